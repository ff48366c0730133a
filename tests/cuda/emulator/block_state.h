// The state of a block that runs, for the files of the emulator that have a part in it.
#pragma once
#include "block.h"
#include "fibre.h"

enum { MAX_THREADS = 1024, MAX_WARPS = MAX_THREADS / 32, MAX_BARRIERS = 16, MAX_GATHERS = 32 };
enum { ARENA_BYTES = 512 << 10, RED_ZONE = 64, RED_BYTE = 0xA5 };

enum thread_state { READY, IN_WARP, IN_BARRIER, IN_DEPENDENCY, IN_ARRIVALS, IN_WORDS, ENDED };

struct copy_async {
    void *shared;
    const void *global;
    int bytes;
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
    bool (*told)(const void *news); // IN_WORDS: until this is true
    const void *news;
};

// A barrier in shared memory that copies can arrive at (mbarrier). They land when the phase ends: the last moment that the device allows.
struct bulk_copy {
    void *shared;
    const void *global;
    unsigned bytes;
};
struct arrivals {
    const void *at;
    unsigned expected, missing;     // threads
    unsigned expected_bytes, bytes; // announced; of the phase's copies
    unsigned phase;
    std::vector<bulk_copy> copies;
    std::vector<int> waiting;
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

// The last asynchronous copy to have come to 16 bytes of shared memory: whose, and when.
struct landing {
    uint64_t time;
    int thread;
};

// When what a warp's lanes had written could last be read by all of them, and when by other warps.
struct ordering {
    uint64_t within, between;
};

struct shared_array {
    const void *key;
    char *memory;
    size_t bytes;
};

struct block_state {
    const emulated_kernel *kernel; // null: free
    uint64_t number;               // of the block in the grid
    bool early;                    // up to grid_dependency_wait() only
    bool together;                 // with all others of its grid
    int n_threads, n_ended;
    thread threads[MAX_THREADS];
    gather gathers[MAX_WARPS][MAX_GATHERS];
    barrier barriers[MAX_BARRIERS];
    ordering orderings[MAX_WARPS];
    landing landings[ARENA_BYTES / 16]; // of the arena; those of blocks before are older than any ordering
    // Threads that can go on: a ring, first to last.
    int ready[MAX_THREADS];
    unsigned first, n_ready;
    fibre outside;  // the caller of the kernel
    fibre *running; // null: outside
    std::vector<shared_array> arrays;
    std::vector<arrivals> arrivals_made;
    char *arena;
    size_t arena_used, shared_bytes;
};

extern block_state *block; // that runs

// block.cc
unsigned random_below(unsigned n);
// Threads list[0..n) can go on, in a new order.
void ready_shuffled(const int *list, int n, bool before_others);
inline thread *current(void)
{
    return static_cast<thread *>(emulated_self);
}
thread *next_thread(void); // of those that can go on, taken from them; null: none
void go_on_with(thread *next);
void go_outside(void); // to the caller of the kernel
// The running thread waits until somebody makes it ready.
void wait_in(thread_state state, const char *what, const char *file, int line);

// synchronise.cc
void order_all_warps(void); // as a new block begins

// shared.cc
void shared_begin(void); // of a block
void shared_check(void); // at its end: what lies between arrays is as it was
