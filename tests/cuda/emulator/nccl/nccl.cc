// A stand-in for NCCL: the functions that yalm uses, between emulated GPUs, whether their ranks are threads of one process or processes of one machine. What one
// rank hands another lies in shared memory. As in NCCL all is queued on streams, can be captured, and waits there for ranks that do not come.
#include <cuda_runtime.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>

constexpr int MOST_RANKS = 8, VERSION = 21400;
constexpr size_t SLOT_BYTES = 32 << 20, BOX_BYTES = 1 << 20; // what is never written to takes no memory

enum { SUCCESS = 0, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, FLOAT32 = 7, SUM = 0 };

struct unique_id {
    char name[128];
};

struct meeting {
    std::atomic<int> n_joined;
    std::atomic<uint64_t> arrived[MOST_RANKS];                                         // at so many sums
    std::atomic<uint64_t> sent[MOST_RANKS][MOST_RANKS], taken[MOST_RANKS][MOST_RANKS]; // from, to
    alignas(4096) char slots[MOST_RANKS][2][SLOT_BYTES];                               // of a sum and of the next
    char boxes[MOST_RANKS][MOST_RANKS][BOX_BYTES];
};

struct communicator {
    meeting *m;
    int rank, n;
    uint64_t sums = 0; // begun
    std::atomic<bool> aborted{false};
    ~communicator() { munmap(m, sizeof *m); }
};
using shared_communicator = std::shared_ptr<communicator>; // graphs keep it, too

static int enqueue(cudaStream_t stream, emulated_call<bool> ready, emulated_call<void> run)
{
    return emulated_enqueue_when(stream, ready, run) == cudaSuccess ? SUCCESS : 1;
}

// The sum of all ranks' slots, in the order of ranks.
static void add_up(const communicator &c, float *to, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float sum = 0;
        for (int r = 0; r < c.n; r++) {
            const float x = reinterpret_cast<const float *>(c.m->slots[r][c.sums % 2])[i];
            sum = r == 0 ? x : sum + x;
        }
        to[i] = sum;
    }
}

#define NCCL extern "C" __attribute__((visibility("default")))

NCCL int ncclGetVersion(int *version)
{
    const char *value = getenv("YALM_EMULATED_NCCL");
    *version = value ? atoi(value) : VERSION;
    return SUCCESS;
}

NCCL int ncclGetUniqueId(unique_id *id)
{
    static std::atomic<int> n;
    *id = {};
    snprintf(id->name, sizeof id->name, "/yalm-nccl-%d-%d", (int)getpid(), n++);
    return SUCCESS;
}

NCCL int ncclCommInitRank(shared_communicator **comm, int n, unique_id id, int rank)
{
    const int file = n <= MOST_RANKS ? shm_open(id.name, O_RDWR | O_CREAT, 0600) : -1;
    if (file < 0 || ftruncate(file, sizeof(meeting)) != 0) {
        return SYSTEM_ERROR;
    }
    void *memory = mmap(nullptr, sizeof(meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    close(file);
    if (memory == MAP_FAILED) {
        return SYSTEM_ERROR;
    }
    auto own = std::make_shared<communicator>();
    own->m = static_cast<meeting *>(memory);
    own->rank = rank;
    own->n = n;
    own->m->n_joined++;
    while (own->m->n_joined < n) {
        usleep(100);
    }
    if (rank == 0) {
        shm_unlink(id.name);
    }
    *comm = new shared_communicator(own);
    return SUCCESS;
}

NCCL int ncclCommAbort(shared_communicator *comm)
{
    (*comm)->aborted = true;
    delete comm;
    return SUCCESS;
}

NCCL int ncclCommGetAsyncError(shared_communicator *, int *result)
{
    *result = SUCCESS;
    return SUCCESS;
}

NCCL int ncclAllReduce(const void *from, void *to, size_t n, int type, int operation, shared_communicator *comm,
                       cudaStream_t stream)
{
    const shared_communicator c = *comm;
    if (type != FLOAT32 || operation != SUM || n * sizeof(float) > SLOT_BYTES) {
        return INVALID_ARGUMENT;
    }
    const int queued = enqueue(stream, nullptr, [=] {
        c->sums++;
        memcpy(c->m->slots[c->rank][c->sums % 2], from, n * sizeof(float));
        c->m->arrived[c->rank] = c->sums;
    });
    auto all_there = [c] {
        bool there = true;
        for (int r = 0; r < c->n; r++) {
            there = there && c->m->arrived[r] >= c->sums;
        }
        return there || c->aborted;
    };
    return queued != SUCCESS ? queued : enqueue(stream, all_there, [=] {
        if (!c->aborted) {
            add_up(*c, static_cast<float *>(to), n);
        }
    });
}

NCCL int ncclSend(const void *from, size_t n, int type, int to_rank, shared_communicator *comm, cudaStream_t stream)
{
    const shared_communicator c = *comm;
    auto &sent = c->m->sent[c->rank][to_rank], &taken = c->m->taken[c->rank][to_rank];
    char *box = c->m->boxes[c->rank][to_rank];
    if (type != FLOAT32 || n * sizeof(float) > BOX_BYTES) {
        return INVALID_ARGUMENT;
    }
    return enqueue(
        stream, [c, &sent, &taken] { return sent == taken || c->aborted; },
        [=, &sent] {
            memcpy(box, from, n * sizeof(float));
            sent++;
        });
}

NCCL int ncclRecv(void *to, size_t n, int type, int from_rank, shared_communicator *comm, cudaStream_t stream)
{
    const shared_communicator c = *comm;
    auto &sent = c->m->sent[from_rank][c->rank], &taken = c->m->taken[from_rank][c->rank];
    const char *box = c->m->boxes[from_rank][c->rank];
    if (type != FLOAT32 || n * sizeof(float) > BOX_BYTES) {
        return INVALID_ARGUMENT;
    }
    return enqueue(
        stream, [c, &sent, &taken] { return sent > taken || c->aborted; },
        [=, &taken] {
            memcpy(to, box, n * sizeof(float));
            taken++;
        });
}

NCCL int ncclGroupStart(void)
{
    return SUCCESS;
}

NCCL int ncclGroupEnd(void)
{
    return SUCCESS;
}

NCCL const char *ncclGetErrorString(int result)
{
    return result == SUCCESS ? "no error" : result == SYSTEM_ERROR ? "unhandled system error" : "invalid argument";
}

NCCL const char *ncclGetLastError(shared_communicator *)
{
    return "";
}
