// Where threads wait for each other or for copies: barriers, warp operations, cp.async, the grid before.
#include <cstring>

#include "block_state.h"

static bool same_place(const char *file, int line, const char *other_file, int other_line)
{
    return line == other_line && (file == other_file || strcmp(file, other_file) == 0);
}

// Of landings and orderings: each has a time of its own.
static uint64_t clock_now;

void order_all_warps(void)
{
    clock_now++;
    for (ordering &each : block->orderings) {
        each = {clock_now, clock_now};
    }
}

void emulated_barrier(int id, int n_threads, const char *file, int line)
{
    int expected = n_threads ? n_threads : block->n_threads;
    if (id < 0 || id >= MAX_BARRIERS || (n_threads && (n_threads % 32 || n_threads < 0 || n_threads > block->n_threads))) {
        emulated_fault(
            "%s:%d: barrier %d of %d threads in a block of %d: expected an id of 0 to 15 and a multiple of 32 threads", file,
            line, id, n_threads, block->n_threads);
    }
    barrier *b = &block->barriers[id];
    if (b->n_arrived == 0) {
        b->n_expected = expected;
        b->file = file;
        b->line = line;
    } else if (b->n_expected != expected || (id == 0 && !same_place(file, line, b->file, b->line))) {
        emulated_fault("barrier %d: this thread comes to %s:%d (%d threads), others wait at %s:%d (%d threads)", id, file, line,
                       expected, b->file, b->line, b->n_expected);
    }
    int self = (int)current()->linear;
    b->waiting[b->n_arrived++] = self;
    if (b->n_arrived < b->n_expected) {
        wait_in(IN_BARRIER, "a barrier", file, line);
        return;
    }
    b->n_arrived = 0;
    clock_now++;
    for (int i = 0; i < b->n_expected; i++) {
        block->orderings[b->waiting[i] / 32] = {clock_now, clock_now};
    }
    // Who came last need not go on first.
    ready_shuffled(b->waiting, b->n_expected, random_below(2));
    thread *next = next_thread();
    if (next != current()) {
        go_on_with(next);
    }
}

static gather *find_gather(gather *gathers, unsigned mask)
{
    gather *free_one = nullptr;
    for (int i = 0; i < MAX_GATHERS; i++) {
        if (gathers[i].mask == mask) {
            return &gathers[i];
        }
        if (gathers[i].mask == 0) {
            if (!free_one) {
                free_one = &gathers[i];
            }
            if (i >= 2) {
                break; // they fill from the front
            }
        }
    }
    return free_one;
}

void emulated_collective(const char *name, unsigned mask, void *operand, void (*complete)(void *const operands[32]),
                         const char *file, int line)
{
    thread *self = current();
    unsigned lane = self->linear % 32, warp = self->linear / 32;
    if (!(mask >> lane & 1)) {
        emulated_fault("%s:%d: %s with mask 0x%08x by lane %u, which is not in the mask", file, line, name, mask, lane);
    }
    unsigned n_lanes = (unsigned)block->n_threads - warp * 32;
    if (n_lanes < 32 && mask >> n_lanes) {
        emulated_fault("%s:%d: %s with mask 0x%08x in a warp of %u lanes", file, line, name, mask, n_lanes);
    }
    if ((mask & (mask - 1)) == 0) { // alone
        void *operands[32] = {};
        operands[lane] = operand;
        if (complete) {
            complete(operands);
        }
        return;
    }
    gather *g = find_gather(block->gathers[warp], mask);
    if (!g) {
        emulated_fault("%s:%d: %s: too many different masks in one warp", file, line, name);
    }
    if (g->mask == 0) {
        g->mask = mask;
        g->arrived = 0;
        g->name = name;
        g->file = file;
        g->line = line;
        if (mask != 0xffffffff) {
            memset(g->operands, 0, sizeof(g->operands));
        }
    } else if (!same_place(file, line, g->file, g->line) || (name != g->name && strcmp(name, g->name) != 0)) {
        emulated_fault("lane %u comes to %s (%s:%d), others of mask 0x%08x wait at %s (%s:%d)", lane, name, file, line, mask,
                       g->name, g->file, g->line);
    }
    g->operands[lane] = operand;
    g->arrived |= 1u << lane;
    if (g->arrived != mask) {
        wait_in(IN_WARP, name, file, line);
        return;
    }
    g->mask = 0;
    if (complete) {
        complete(g->operands);
    } else if (mask == 0xffffffff) { // __syncwarp(); no other operation orders memory
        block->orderings[warp].within = ++clock_now;
    }
    int list[32], n = 0;
    for (unsigned i = 0; i < 32; i++) {
        if (mask >> i & 1 && i != lane) {
            list[n++] = (int)(warp * 32 + i);
        }
    }
    ready_shuffled(list, n, random_below(4) != 0);
}

void emulated_inactive(const char *name, int lane, int source)
{
    emulated_fault("%s: lane %d asks for the value of lane %d, which does not take part", name, lane, source);
}

void emulated_aligned(const char *name, const void *address, int bytes, const char *file, int line)
{
    if (reinterpret_cast<uintptr_t>(address) % bytes) {
        emulated_fault("%s:%d: %s: address %p is not a multiple of %d", file, line, name, address, bytes);
    }
}

// A warp's collective read of 16 bytes. Lanes come to it together, so that their order cannot show what is missing.
void emulated_ordered(const char *name, const void *shared)
{
    auto at = static_cast<const char *>(shared);
    if (at < block->arena || at >= block->arena + block->arena_used) {
        return;
    }
    const landing &last = block->landings[(at - block->arena) / 16];
    unsigned warp = current()->linear / 32;
    bool own = last.thread / 32 == (int)warp;
    if (last.time > (own ? block->orderings[warp].within : block->orderings[warp].between)) {
        emulated_fault("%s: reads what thread %d's copy brought, and there was no %s since", name, last.thread,
                       own ? "__syncwarp() or barrier" : "barrier");
    }
}

// ---------------------------------------------------------------------------------------- copies, dependencies

void emulated_copy_async(const char *name, void *shared, const void *global, int bytes, bool valid, const char *file, int line)
{
    emulated_aligned(name, shared, bytes, file, line);
    auto to = static_cast<char *>(shared);
    if (to < block->arena || to + bytes > block->arena + block->arena_used) {
        emulated_fault("%s:%d: %s: %p is not in shared memory", file, line, name, shared);
    }
    if (valid) {
        emulated_aligned(name, global, bytes, file, line);
    }
    // Whoever reads the place from now to the wait, expecting the old or the new, gets neither.
    if (bytes == 16) {
        memset(shared, EMULATED_POISON, 16); // without a call
    } else {
        memset(shared, EMULATED_POISON, bytes);
    }
    thread *self = current();
    self->copies.push_back({shared, global, bytes, valid, self->n_groups});
}

void copy_async_commit(void)
{
    current()->n_groups++;
}

void emulated_copy_wait(int n_groups_left)
{
    thread *self = current();
    size_t kept = 0;
    for (const copy_async &copy : self->copies) {
        if ((int)(self->n_groups - copy.group) <= n_groups_left) { // the group of the last commit is n_groups - 1
            self->copies[kept++] = copy;
            continue;
        }
        if (!copy.valid) {
            memset(copy.shared, 0, copy.bytes);
        } else if (copy.bytes == 16) {
            memcpy(copy.shared, copy.global, 16);
        } else {
            memcpy(copy.shared, copy.global, copy.bytes);
        }
        block->landings[(static_cast<char *>(copy.shared) - block->arena) / 16] = {++clock_now, (int)self->linear};
    }
    self->copies.resize(kept);
}

void grid_dependency_wait(void)
{
    current()->waited = true;
    if (block->early) {
        wait_in(IN_DEPENDENCY, "grid_dependency_wait", "", 0);
    }
}
