// One block at a time, each of its threads on a fibre of its own from where it first waits: a thread that never waits runs on the fibre
// of the one before it. Which thread goes on is drawn from a seeded generator, so that what one order hides another shows. One block of
// the stream's next kernel is there besides: it has run to its grid_dependency_wait() before this kernel began.
#include "block.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "fibre.h"
#include "runtime.h"
#include "sanitizers.h"

enum { MAX_THREADS = 1024, MAX_WARPS = MAX_THREADS / 32, MAX_BARRIERS = 16, MAX_GATHERS = 32 };
enum { ARENA_BYTES = 512 << 10, RED_ZONE = 64, RED_BYTE = 0xA5 };

enum thread_state { READY, IN_WARP, IN_BARRIER, IN_DEPENDENCY, ENDED };

struct copy_async {
    void *shared;
    const void *global;
    bool valid;
    unsigned group;
};

struct thread : emulated_thread {
    thread_state state;
    fibre *on;        // null: not begun
    const char *what; // it waits for
    const char *file;
    int line;
    unsigned n_groups;              // of copies committed
    std::vector<copy_async> copies; // under way
};

// Lanes of one warp that have come to one operation.
struct gather {
    unsigned mask, arrived; // mask 0: free
    const char *name, *file;
    int line;
    void *operands[32];
};

struct barrier {
    int n_arrived, n_expected;
    const char *file;
    int line;
    int waiting[MAX_THREADS];
};

struct shared_array {
    const void *key;
    char *memory;
    size_t bytes;
};

emulated_thread *emulated_self;
emulated_grid emulated_shape;

struct block_state {
    const emulated_kernel *kernel; // null: free
    uint64_t number;               // of the block in the grid
    bool early;                    // up to grid_dependency_wait() only
    int n_threads, n_ended;
    thread threads[MAX_THREADS];
    gather gathers[MAX_WARPS][MAX_GATHERS];
    barrier barriers[MAX_BARRIERS];
    // Threads that can go on: a ring, first to last.
    int ready[MAX_THREADS], first, n_ready;
    fibre outside;  // the caller of the kernel
    fibre *running; // null: outside
    std::vector<shared_array> arrays;
    char *arena;
    size_t arena_used, shared_bytes;
};

enum { N_BLOCKS = 3 }; // a kernel's own, and those begun early, one in each of two streams
static block_state blocks[N_BLOCKS];
static block_state *block = blocks; // that runs
static uint64_t random_state;
static std::vector<fibre *> fibres;
static fibre *idle;

// ---------------------------------------------------------------------------------------- faults

static char fault_text[1024];
static bool fault_is_quiet;

static void go_outside(void);

bool emulated_faulted(void)
{
    return fault_text[0] != 0;
}
const char *emulated_fault_text(void)
{
    return fault_text;
}
void emulated_fault_quiet(bool quiet)
{
    fault_is_quiet = quiet;
}
void emulated_fault_forget(void)
{
    fault_text[0] = 0;
}

void emulated_where(char *text, size_t room)
{
    uint3 b = emulated_shape.block_index;
    if (emulated_self) {
        uint3 t = emulated_self->index;
        snprintf(text, room, "%s, block (%u, %u, %u), thread (%u, %u, %u): ", block->kernel->name, b.x, b.y, b.z, t.x, t.y,
                 t.z);
    } else if (block->running) {
        snprintf(text, room, "%s, block (%u, %u, %u): ", block->kernel->name, b.x, b.y, b.z);
    } else {
        text[0] = 0;
    }
}

// In a kernel it does not return: the block is abandoned.
void emulated_fault(const char *format, ...)
{
    if (!emulated_faulted()) {
        char where[300], text[700];
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(text, sizeof(text), format, arguments);
        va_end(arguments);
        emulated_where(where, sizeof(where));
        snprintf(fault_text, sizeof(fault_text), "%s%s", where, text);
        if (!fault_is_quiet) {
            fprintf(stderr, "emulated GPU: %s\n", fault_text);
        }
    }
    if (block->running) {
        go_outside();
    }
}

// ---------------------------------------------------------------------------------------- order

static unsigned random_below(unsigned n)
{
    random_state ^= random_state << 13; // Marsaglia, "Xorshift RNGs", 2003
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (unsigned)((random_state >> 32) * n >> 32);
}

static void ready_last(int index)
{
    block->threads[index].state = READY;
    block->ready[(block->first + block->n_ready++) % MAX_THREADS] = index;
}

static void ready_first(int index)
{
    block->threads[index].state = READY;
    block->first = (block->first + MAX_THREADS - 1) % MAX_THREADS;
    block->ready[block->first] = index;
    block->n_ready++;
}

// A random walk through 0 … n - 1 that comes to each once: index(i) = (start + i * step) mod n, step prime to n.
struct walk {
    unsigned n, at, step;
};
static walk walk_begin(unsigned n)
{
    walk self = {n, random_below(n), 1};
    if (n > 2) {
        for (;;) {
            self.step = 1 + random_below(n - 1);
            unsigned a = n, b = self.step;
            while (b) {
                unsigned rest = a % b;
                a = b;
                b = rest;
            }
            if (a == 1) {
                break;
            }
        }
    }
    return self;
}
static unsigned walk_next(walk *self)
{
    unsigned index = self->at;
    self->at = (self->at + self->step) % self->n;
    return index;
}

// Threads list[0..n) can go on, in a new order. Sometimes all lanes of a warp come one after the other, sometimes warps mix.
static void ready_shuffled(const int *list, int n, bool before_others)
{
    walk order = walk_begin((unsigned)n);
    for (int i = 0; i < n; i++) {
        int index = list[walk_next(&order)];
        if (before_others) {
            ready_first(index);
        } else {
            ready_last(index);
        }
    }
}

// ---------------------------------------------------------------------------------------- fibres

static void fibre_body(void);

static thread *current(void)
{
    return static_cast<thread *>(emulated_self);
}

static fibre *idle_fibre(void)
{
    fibre *self = idle;
    if (self) {
        idle = self->next_idle;
    } else {
        self = fibre_create(fibre_body);
        fibres.push_back(self);
    }
    return self;
}

static void park(fibre *self)
{
    self->next_idle = idle;
    idle = self;
}

static void report_stuck(void)
{
    char text[600];
    size_t used = 0;
    int shown = 0, n_waiting = 0;
    for (int i = 0; i < block->n_threads; i++) {
        n_waiting += block->threads[i].state != ENDED;
    }
    for (int i = 0; i < block->n_threads && shown < 4; i++) {
        const thread *t = &block->threads[i];
        bool said = t->state == ENDED;
        for (int j = 0; j < i && !said; j++) {
            const thread *other = &block->threads[j];
            said = other->state != ENDED && other->line == t->line && strcmp(other->file, t->file) == 0;
        }
        if (!said && used < sizeof(text)) {
            int n = 0;
            for (int j = i; j < block->n_threads; j++) {
                const thread *other = &block->threads[j];
                n += other->state != ENDED && other->line == t->line && strcmp(other->file, t->file) == 0;
            }
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%d thread%s at %s (%s:%d), the first (%u, %u, %u)",
                                     shown ? "; " : "", n, n == 1 ? "" : "s", t->what, t->file, t->line, t->index.x, t->index.y,
                                     t->index.z);
            shown++;
        }
    }
    emulated_self = nullptr; // it is nobody's fault in particular
    emulated_fault("deadlock: %d of %d threads wait for others that never come: %s; %d threads have ended", n_waiting,
                   block->n_threads, text, block->n_ended);
}

static thread *next_thread(void)
{
    if (block->n_ready == 0) {
        return nullptr;
    }
    thread *next = &block->threads[block->ready[block->first]];
    block->first = (block->first + 1) % MAX_THREADS;
    block->n_ready--;
    return next;
}

static void go_on_with(thread *next)
{
    if (!next->on) {
        next->on = idle_fibre();
    }
    fibre *from = block->running;
    emulated_self = next;
    block->running = next->on;
    fibre_switch(from, next->on);
}

static void go_on_from_outside(thread *next)
{
    if (!next->on) {
        next->on = idle_fibre();
    }
    emulated_self = next;
    block->running = next->on;
    fibre_switch(&block->outside, next->on);
}

static void go_outside(void)
{
    fibre *from = block->running;
    block->running = nullptr;
    emulated_self = nullptr;
    fibre_switch(from, &block->outside);
}

// The running thread waits until somebody makes it ready.
static void wait_in(thread_state state, const char *what, const char *file, int line)
{
    thread *self = current();
    self->state = state;
    self->what = what;
    self->file = file;
    self->line = line;
    thread *next = next_thread();
    if (next) {
        go_on_with(next);
    } else if (block->early) {
        go_outside();
    } else {
        report_stuck();
    }
}

static void thread_end(void)
{
    thread *self = current();
    if (!self->waited) {
        emulated_fault(
            "the thread ends without grid_dependency_wait(): this kernel may have run before the one that it depends on ended");
    }
    if (!fibre_intact(self->on)) {
        emulated_fault("the thread's stack has been overrun");
    }
    self->state = ENDED;
    self->copies.clear();
    self->on = nullptr;
    block->n_ended++;
}

// Runs thread after thread; where the next one is in the middle of its run, changes to its fibre and waits to be used again.
static void fibre_body(void)
{
    fibre_begun();
    for (;;) {
        block->kernel->run();
        thread_end();
        thread *next = next_thread();
        fibre *self = block->running;
        if (next && !next->on) {
            next->on = self;
            emulated_self = next;
            continue;
        }
        park(self);
        if (next) {
            go_on_with(next);
        } else if (block->n_ended < block->n_threads) {
            report_stuck();
        } else {
            go_outside();
        }
    }
}

// ---------------------------------------------------------------------------------------- barriers, warp operations

static bool same_place(const char *file, int line, const char *other_file, int other_line)
{
    return line == other_line && (file == other_file || strcmp(file, other_file) == 0);
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
        *g = {mask, 0, name, file, line, {}};
    } else if (!same_place(file, line, g->file, g->line) || strcmp(name, g->name) != 0) {
        emulated_fault("lane %u comes to %s (%s:%d), others of mask 0x%08x wait at %s (%s:%d)", lane, name, file, line, mask,
                       g->name, g->file, g->line);
    }
    g->operands[lane] = operand;
    g->arrived |= 1u << lane;
    if (g->arrived != mask) {
        wait_in(IN_WARP, name, file, line);
        return;
    }
    void *operands[32];
    memcpy(operands, g->operands, sizeof(operands));
    g->mask = 0;
    if (complete) {
        complete(operands);
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

void emulated_aligned(const char *name, const void *address, const char *file, int line)
{
    if (reinterpret_cast<uintptr_t>(address) % 16) {
        emulated_fault("%s:%d: %s: address %p is not a multiple of 16", file, line, name, address);
    }
}

// ---------------------------------------------------------------------------------------- copies, dependencies

void copy_async16(void *shared, const void *global, bool valid, const char *file, int line)
{
    emulated_aligned("copy_async16", shared, file, line);
    auto to = static_cast<char *>(shared);
    if (to < block->arena || to + 16 > block->arena + block->arena_used) {
        emulated_fault("%s:%d: copy_async16: %p is not in shared memory", file, line, shared);
    }
    if (valid) {
        emulated_aligned("copy_async16", global, file, line);
    }
    // Whoever reads the place from now to the wait, expecting the old or the new, gets neither.
    memset(shared, EMULATED_POISON, 16);
    thread *self = current();
    self->copies.push_back({shared, global, valid, self->n_groups});
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
        } else if (copy.valid) {
            memcpy(copy.shared, copy.global, 16);
        } else {
            memset(copy.shared, 0, 16);
        }
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

// ---------------------------------------------------------------------------------------- shared memory

void emulated_poison(void *memory, size_t bytes)
{
    memset(memory, EMULATED_POISON, bytes);
    sanitizer_unwritten(memory, bytes);
}

static char *arena_take(size_t bytes)
{
    char *memory = block->arena + block->arena_used;
    size_t rounded = (bytes + 15) / 16 * 16;
    if (block->arena_used + rounded + RED_ZONE > ARENA_BYTES) {
        emulated_fault("%zu bytes of shared memory: at most %zu in all", bytes, device_shared_limit());
    }
    block->arena_used += rounded + RED_ZONE;
    sanitizer_unpoison(memory, rounded + RED_ZONE);
    emulated_poison(memory, bytes);
    memset(memory + bytes, RED_BYTE, rounded + RED_ZONE - bytes);
    sanitizer_poison(memory + bytes, rounded + RED_ZONE - bytes);
    return memory;
}

void *emulated_shared(const void *key, size_t bytes, const char *name)
{
    for (const shared_array &array : block->arrays) {
        if (array.key == key) {
            return array.memory;
        }
    }
    block->shared_bytes += bytes;
    if (block->shared_bytes > device_shared_limit() || block->shared_bytes - block->kernel->shared_bytes > 48 << 10) {
        emulated_fault("%s: %zu bytes of shared memory: at most 48 KiB static, %zu in all", name, block->shared_bytes,
                       device_shared_limit());
    }
    block->arrays.push_back({key, arena_take(bytes), bytes});
    return block->arrays.back().memory;
}

void *emulated_shared_dynamic(void)
{
    if (block->kernel->shared_bytes == 0) {
        emulated_fault("dynamic shared memory, of which the launch has none");
    }
    return block->arena;
}

static void check_red_zones(void)
{
    for (const shared_array &array : block->arrays) {
        char *zone = array.memory + array.bytes;
        size_t bytes = (array.bytes + 15) / 16 * 16 - array.bytes + RED_ZONE;
        sanitizer_unpoison(zone, bytes);
        for (size_t i = 0; i < bytes; i++) {
            if ((unsigned char)zone[i] != RED_BYTE) {
                emulated_fault("block (%u, %u, %u): byte %zu after %zu of shared memory has been overwritten",
                               emulated_shape.block_index.x, emulated_shape.block_index.y, emulated_shape.block_index.z, i,
                               array.bytes);
                return;
            }
        }
    }
}

// ---------------------------------------------------------------------------------------- blocks, grids

static void begin_threads(void)
{
    dim3 size = block->kernel->block;
    int list[MAX_THREADS];
    for (int i = 0; i < block->n_threads; i++) {
        thread *t = &block->threads[i];
        unsigned linear = (unsigned)i;
        t->index = {linear % size.x, linear / size.x % size.y, linear / size.x / size.y};
        t->linear = linear;
        t->waited = false;
        t->on = nullptr;
        t->n_groups = 0;
        t->copies.clear();
        list[i] = i;
    }
    block->first = block->n_ready = block->n_ended = 0;
    ready_shuffled(list, block->n_threads, false);
}

// After a fault fibres stand anywhere: they begin anew.
static void abandon(void)
{
    idle = nullptr;
    for (fibre *f : fibres) {
        fibre_reset(f, fibre_body);
        park(f);
    }
    for (block_state &any : blocks) {
        any.kernel = nullptr;
        any.early = false;
        any.running = nullptr;
        memset(any.gathers, 0, sizeof(any.gathers));
        memset(any.barriers, 0, sizeof(any.barriers));
    }
}

// Lets threads go on until none can, or all have ended.
static void run_threads(void)
{
    thread *first = next_thread();
    if (!first) {
        report_stuck();
    } else {
        go_on_from_outside(first);
    }
    emulated_self = nullptr;
    if (emulated_faulted()) {
        abandon();
    } else if (!block->early) {
        check_red_zones();
    }
}

static void enter_block(uint64_t number)
{
    dim3 grid = block->kernel->grid;
    block->number = number;
    emulated_shape = {
        grid,
        block->kernel->block,
        {(unsigned)(number % grid.x), (unsigned)(number / grid.x % grid.y), (unsigned)(number / grid.x / grid.y)}};
}

static void run_block(uint64_t number)
{
    enter_block(number);
    block->arrays.clear();
    block->arena_used = 0;
    block->shared_bytes = block->kernel->shared_bytes;
    if (block->shared_bytes) {
        block->arrays.push_back({nullptr, arena_take(block->shared_bytes), block->shared_bytes});
    }
    begin_threads();
    run_threads();
}

// The block that was begun early: the kernel before it has ended.
static void finish_block(void)
{
    enter_block(block->number);
    block->early = false;
    int list[MAX_THREADS], n = 0;
    for (int i = 0; i < block->n_threads; i++) {
        if (block->threads[i].state == IN_DEPENDENCY) {
            list[n++] = i;
        }
    }
    ready_shuffled(list, n, false);
    run_threads();
}

static uint64_t order_seed(void)
{
    static uint64_t n_launches; // each launch has an order of its own
    uint64_t x = (uint64_t)runtime_setting("YALM_EMULATED_SEED", 1) * 0x9e3779b97f4a7c15 + ++n_launches * 0xd1342543de82ef95;
    return x ? x : 1;
}

static bool sizes_fit(const emulated_kernel &kernel)
{
    dim3 g = kernel.grid, b = kernel.block;
    return g.x && g.y && g.z && b.x && b.y && b.z && g.x <= 0x7fffffff && g.y <= 0xffff && g.z <= 0xffff && b.x <= 1024 &&
           b.y <= 1024 && b.z <= 64 && (uint64_t)b.x * b.y * b.z <= MAX_THREADS && kernel.shared_bytes <= device_shared_limit();
}

static uint64_t n_blocks(const emulated_kernel &kernel)
{
    return (uint64_t)kernel.grid.x * kernel.grid.y * kernel.grid.z;
}

static block_state *find_block(const emulated_kernel *kernel)
{
    for (block_state &any : blocks) {
        if (any.kernel == kernel) {
            return &any;
        }
    }
    return nullptr;
}

// False where all are taken.
static bool take_block(const emulated_kernel &kernel)
{
    block_state *found = find_block(nullptr);
    if (found) {
        block = found;
        if (!block->arena) {
            block->arena = static_cast<char *>(aligned_alloc(256, ARENA_BYTES));
        }
        block->kernel = &kernel;
        block->n_threads = (int)(kernel.block.x * kernel.block.y * kernel.block.z);
        random_state = order_seed();
    }
    return found;
}

void emulated_begin_early(const emulated_kernel &kernel)
{
    if (sizes_fit(kernel) && !find_block(&kernel) && take_block(kernel)) {
        block->early = true;
        uint64_t n = n_blocks(kernel);
        run_block(n > UINT32_MAX ? 0 : random_below((unsigned)n));
    }
}

void emulated_run_grid(const emulated_kernel &kernel)
{
    if (!sizes_fit(kernel)) {
        emulated_fault("%s: grid (%u, %u, %u), block (%u, %u, %u), %zu bytes of shared memory: out of the device's range",
                       kernel.name, kernel.grid.x, kernel.grid.y, kernel.grid.z, kernel.block.x, kernel.block.y, kernel.block.z,
                       kernel.shared_bytes);
        return;
    }
    uint64_t n = n_blocks(kernel), begun = n;
    block_state *early = find_block(&kernel);
    if (early) {
        block = early;
        begun = block->number;
        finish_block();
    } else if (!take_block(kernel)) {
        emulated_fault("%s: more streams run at once than the emulator has room for", kernel.name);
    }
    uint64_t start = n > UINT32_MAX ? 0 : random_below((unsigned)n);
    bool backwards = random_below(2);
    for (uint64_t i = 0; i < n && !emulated_faulted(); i++) {
        uint64_t number = (start + (backwards ? n - i : i)) % n;
        if (number != begun) {
            run_block(number);
        }
    }
    block->kernel = nullptr;
}
