// One block at a time, each of its threads on a fibre of its own from where it first waits: a thread that never waits runs on the fibre
// of the one before it. Which thread goes on is drawn from a seeded generator, so that what one order hides another shows. One block of
// the stream's next kernel is there besides: it has run to its grid_dependency_wait() before this kernel began.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "block_state.h"
#include "runtime.h"

emulated_thread *emulated_self;
emulated_grid emulated_shape;

// A kernel's own, and those begun early, one in each of two streams; or all of a grid whose blocks wait for each other.
enum { N_BLOCKS = 8 };
static block_state blocks[N_BLOCKS];
block_state *block = blocks;
static uint64_t random_state;
static std::vector<fibre *> fibres;
static fibre *idle;
static size_t n_taken, most_taken; // of the fibres; at most at once since they were looked at

// ---------------------------------------------------------------------------------------- order

unsigned random_below(unsigned n)
{
    random_state ^= random_state << 13; // Marsaglia, "Xorshift RNGs", 2003
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (unsigned)((random_state >> 32) * n >> 32);
}

static void ready_last(int index)
{
    block->ready[(block->first + block->n_ready++) % MAX_THREADS] = index;
}

static void ready_first(int index)
{
    block->first = (block->first - 1) % MAX_THREADS;
    block->ready[block->first] = index;
    block->n_ready++;
}

// A random walk through 0 … n - 1 that comes to each once: index(i) = (start + i * step) mod n. Primes larger than any n are
// steps that have no factor in common with it.
struct walk {
    unsigned n, at, step;
};
static walk walk_begin(unsigned n)
{
    static const unsigned short primes[64] = {
        1031, 1033, 1039, 1049, 1051, 1061, 1063, 1069, 1087, 1091, 1093, 1097, 1103, 1109, 1117, 1123,
        1129, 1151, 1153, 1163, 1171, 1181, 1187, 1193, 1201, 1213, 1217, 1223, 1229, 1231, 1237, 1249,
        1259, 1277, 1279, 1283, 1289, 1291, 1297, 1301, 1303, 1307, 1319, 1321, 1327, 1361, 1367, 1373,
        1381, 1399, 1409, 1423, 1427, 1429, 1433, 1439, 1447, 1451, 1453, 1459, 1471, 1481, 1483, 1487,
    };
    static_assert(MAX_THREADS < 1031, "less than the primes");
    return {n, random_below(n), n ? primes[random_below(64)] % n : 0};
}
static unsigned walk_next(walk *self)
{
    unsigned index = self->at, next = index + self->step;
    self->at = next < self->n ? next : next - self->n;
    return index;
}

// Threads list[0..n) can go on, in a new order. Sometimes all lanes of a warp come one after the other, sometimes warps mix.
void ready_shuffled(const int *list, int n, bool before_others)
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

static fibre *idle_fibre(void)
{
    fibre *self = idle;
    most_taken = std::max(most_taken, ++n_taken);
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
    n_taken--;
}

// After a grid. The last to be parked lie on top, so what was taken since the last look is there.
static void look_at_stacks(void)
{
    size_t n = 0;
    for (const fibre *f = idle; f && n < most_taken; f = f->next_idle, n++) {
        if (!fibre_intact(f)) {
            emulated_fault("%s: a thread's stack has been overrun", block->kernel->name);
            return;
        }
    }
    most_taken = n_taken;
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

// What the threads after this one go on with is on its way meanwhile: hundreds of stacks do not fit the first-level cache.
static void fetch_next(void)
{
    const int *ready = block->ready;
    const fibre *soon = block->threads[ready[block->first]].on;
    const fibre *later = block->threads[ready[(block->first + 1) % MAX_THREADS]].on;
    if (soon) {
        __builtin_prefetch(soon->top);
        __builtin_prefetch(static_cast<char *>(soon->top) + 64);
        __builtin_prefetch(static_cast<char *>(soon->top) + 128);
    }
    if (later) {
        __builtin_prefetch(later);
    }
    __builtin_prefetch(&block->threads[ready[(block->first + 2) % MAX_THREADS]]);
}

thread *next_thread(void)
{
    if (block->n_ready == 0) {
        return nullptr;
    }
    thread *next = &block->threads[block->ready[block->first]];
    block->first = (block->first + 1) % MAX_THREADS;
    block->n_ready--;
    fetch_next();
    return next;
}

void go_on_with(thread *next)
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

void go_outside(void)
{
    fibre *from = block->running;
    block->running = nullptr;
    emulated_self = nullptr;
    fibre_switch(from, &block->outside);
}

// The running thread waits until somebody makes it ready.
void wait_in(thread_state state, const char *what, const char *file, int line)
{
    thread *self = current();
    self->state = state;
    self->what = what;
    self->file = file;
    self->line = line;
    thread *next = next_thread();
    if (next) {
        go_on_with(next);
    } else if (block->early || block->together) {
        go_outside();
    } else {
        report_stuck();
    }
    self->state = READY;
}

static void thread_end(void)
{
    thread *self = current();
    if (!self->waited) {
        emulated_fault(
            "the thread ends without grid_dependency_wait(): this kernel may have run before the one that it depends on ended");
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
        } else if (block->n_ended < block->n_threads && !block->together) {
            report_stuck();
        } else {
            go_outside();
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
        t->state = READY;
        t->waited = false;
        t->on = nullptr;
        t->n_groups = 0;
        t->copies.clear();
        list[i] = i;
    }
    block->first = block->n_ready = block->n_ended = 0;
    block->arrivals_made.clear();
    ready_shuffled(list, block->n_threads, false);
}

// After a fault fibres stand anywhere: they begin anew.
static void abandon(void)
{
    idle = nullptr;
    n_taken = fibres.size();
    for (fibre *f : fibres) {
        fibre_reset(f, fibre_body);
        park(f);
    }
    most_taken = 0;
    for (block_state &any : blocks) {
        any.kernel = nullptr;
        any.early = any.together = false;
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
        shared_check();
    }
}

static void end_grid(void)
{
    if (!emulated_faulted()) {
        look_at_stacks();
        if (emulated_faulted()) {
            abandon();
        }
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
    shared_begin();
    order_all_warps();
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

static uint64_t n_blocks_free(void)
{
    uint64_t n = 0;
    for (const block_state &any : blocks) {
        n += !any.kernel;
    }
    return n;
}

// False where all are taken.
static bool take_block(const emulated_kernel &kernel)
{
    block_state *found = find_block(nullptr);
    if (found) {
        block = found;
        block->kernel = &kernel;
        block->n_threads = (int)(kernel.block.x * kernel.block.y * kernel.block.z);
        random_state = order_seed();
    }
    return found;
}

// Threads that wait for words which are there now go on.
static void wake_for_words(void)
{
    int list[MAX_THREADS], n = 0;
    for (int i = 0; i < block->n_threads; i++) {
        const thread &t = block->threads[i];
        if (t.state == IN_WORDS && t.told(t.news)) {
            list[n++] = i;
        }
    }
    ready_shuffled(list, n, false);
}

// All blocks of a grid at once: each runs until none of its threads can go on, in an order that is drawn anew every time.
static void run_together(const emulated_kernel &kernel, unsigned n)
{
    block_state *all[N_BLOCKS];
    for (unsigned i = 0; i < n; i++) {
        take_block(kernel);
        all[i] = block;
        block->together = true;
        enter_block(i);
        shared_begin();
        order_all_warps();
        begin_threads();
    }
    for (bool left = true, moved = true; left;) {
        if (!moved) {
            report_stuck();
        }
        left = moved = false;
        walk order = walk_begin(n);
        for (unsigned i = 0; i < n && !emulated_faulted(); i++) {
            block_state *next = all[walk_next(&order)];
            if (next->n_ended == next->n_threads) {
                continue;
            }
            left = true;
            block = next;
            enter_block(block->number);
            wake_for_words();
            thread *first = next_thread();
            if (first) {
                moved = true;
                go_on_from_outside(first);
                emulated_self = nullptr;
            }
        }
        if (emulated_faulted()) {
            abandon();
            return;
        }
    }
    end_grid();
    for (unsigned i = 0; i < n && !emulated_faulted(); i++) {
        block = all[i];
        enter_block(block->number);
        shared_check();
        block->together = false;
        block->kernel = nullptr;
    }
}

void emulated_begin_early(const emulated_kernel &kernel)
{
    if (!kernel.together && sizes_fit(kernel) && !find_block(&kernel) && take_block(kernel)) {
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
    if (kernel.together) {
        n_blocks_free() < n ? emulated_fault("%s: %llu blocks wait for each other, which do not fit the device", kernel.name,
                                             (unsigned long long)n)
                            : run_together(kernel, (unsigned)n);
        return;
    }
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
    end_grid();
    block->kernel = nullptr;
}
