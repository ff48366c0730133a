// Where threads wait for bulk copies and for other blocks: barriers in shared memory, words in global memory.
#include <cstring>

#include "block_state.h"
#include "cuda_fp16.h"
#include "emulated_ptx.h"

static void must_be_shared(const char *name, const void *address, size_t bytes, const char *file, int line)
{
    auto at = static_cast<const char *>(address);
    if (at < block->arena || at + bytes > block->arena + block->arena_used) {
        emulated_fault("%s:%d: %s: %p is not in shared memory", file, line, name, address);
    }
}

static arrivals *find(const char *name, const void *barrier, const char *file, int line)
{
    for (arrivals &any : block->arrivals_made) {
        if (any.at == barrier) {
            return &any;
        }
    }
    emulated_fault("%s:%d: %s: there is no arrivals_init() of %p in this block", file, line, name, barrier);
    return nullptr;
}

// Where all have come the phase ends: its copies land, and those who wait go on.
static void end_phase(arrivals *a)
{
    if (a->missing > 0 || a->bytes != a->expected_bytes) {
        return;
    }
    for (const bulk_copy &copy : a->copies) {
        memcpy(copy.shared, copy.global, copy.bytes);
    }
    a->copies.clear();
    a->missing = a->expected;
    a->bytes = a->expected_bytes = 0;
    a->phase++;
    std::vector<int> waiting;
    waiting.swap(a->waiting);
    ready_shuffled(waiting.data(), (int)waiting.size(), random_below(2));
}

void emulated_arrivals_init(uint64_t *barrier, unsigned n_arrivals, const char *file, int line)
{
    must_be_shared("arrivals_init", barrier, sizeof *barrier, file, line);
    emulated_aligned("arrivals_init", barrier, sizeof *barrier, file, line);
    for (const arrivals &any : block->arrivals_made) {
        if (any.at == barrier) {
            emulated_fault("%s:%d: arrivals_init of %p a second time", file, line, static_cast<void *>(barrier));
        }
    }
    memset(barrier, 0, sizeof *barrier);
    block->arrivals_made.push_back({barrier, n_arrivals, n_arrivals, 0, 0, 0, {}, {}});
}

void emulated_arrivals_expect(uint64_t *barrier, unsigned bytes, const char *file, int line)
{
    arrivals *a = find("arrivals_expect", barrier, file, line);
    if (a->missing == 0) {
        emulated_fault("%s:%d: one arrival more than the %u that the barrier has", file, line, a->expected);
    }
    a->missing--;
    a->expected_bytes += bytes;
}

void emulated_arrivals_arrive(uint64_t *barrier, const char *file, int line)
{
    emulated_arrivals_expect(barrier, 0, file, line);
    arrivals *a = find("arrivals_arrive", barrier, file, line);
    if (!a->waiting.empty()) {
        end_phase(a);
    }
}

void emulated_arrivals_wait(uint64_t *barrier, unsigned parity, const char *file, int line)
{
    arrivals *a = find("arrivals_wait", barrier, file, line);
    if ((a->phase & 1) == parity) {
        end_phase(a);
    }
    // While this thread waits others may make barriers: the list moves.
    while ((a = find("arrivals_wait", barrier, file, line), (a->phase & 1) == parity)) {
        a->waiting.push_back((int)current()->linear);
        wait_in(IN_ARRIVALS, "arrivals_wait", file, line);
    }
}

void emulated_copy_bulk(void *shared, const void *global, unsigned bytes, uint64_t *barrier, const char *file, int line)
{
    must_be_shared("copy_bulk", shared, bytes, file, line);
    emulated_aligned("copy_bulk", shared, 16, file, line);
    emulated_aligned("copy_bulk", global, 16, file, line);
    if (bytes == 0 || bytes % 16 != 0) {
        emulated_fault("%s:%d: copy_bulk of %u bytes: expected a multiple of 16", file, line, bytes);
    }
    arrivals *a = find("copy_bulk", barrier, file, line);
    a->bytes += bytes;
    a->copies.push_back({shared, global, bytes});
    memset(shared, EMULATED_POISON, bytes); // whoever reads too early or too late gets neither the old nor the new
    if (!a->waiting.empty()) {
        end_phase(a);
    }
}

void emulated_words_wait(bool (*told)(const void *news), const void *news, const char *file, int line)
{
    if (!block->together) {
        emulated_fault("%s:%d: waits for another block in a grid whose blocks need not run at once", file, line);
    }
    while (!told(news)) {
        current()->told = told;
        current()->news = news;
        wait_in(IN_WORDS, "words of another block", file, line);
    }
}
