#include "fibre.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "sanitizers.h"

#if EMULATED_ASAN || EMULATED_MSAN
constexpr size_t STACK_BYTES = 128 << 10; // checks make frames larger
#else
constexpr size_t STACK_BYTES = 36 << 10;
#endif
// Stacks end at different places of their pages: else the frames of all threads share a few of the cache's sets.
constexpr size_t N_ENDS = 16, END_BYTES = 256;
constexpr uint64_t CANARY = 0x5afe5afe5afe5afe;

// void fibre_change(void **from_top, void *to_top)
extern "C" void fibre_change(void **from_top, void *to_top);
#if defined(__x86_64__)
asm(R"(
    .text
    .globl fibre_change
    .type fibre_change, @function
fibre_change:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size fibre_change, . - fibre_change
)");

static void *first_frame(char *end, void (*body)(void))
{
    // Six registers, the address that `ret` takes, and what keeps the stack aligned as after a call.
    auto top = reinterpret_cast<void **>(end) - 8;
    memset(top, 0, 8 * sizeof(*top));
    top[6] = reinterpret_cast<void *>(body);
    return top;
}
#elif defined(__aarch64__)
asm(R"(
    .text
    .globl fibre_change
    .type fibre_change, %function
fibre_change:
    sub sp, sp, #160
    stp x19, x20, [sp]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
    .size fibre_change, . - fibre_change
)");

static void *first_frame(char *end, void (*body)(void))
{
    auto top = reinterpret_cast<void **>(end - 160);
    memset(top, 0, 160);
    top[11] = reinterpret_cast<void *>(body); // x30
    return top;
}
#else
#error "the emulator's change of stacks is written for x86-64 and aarch64"
#endif

// Stacks lie side by side in huge pages, where the system has them: hundreds of pages of their own would not fit the first TLB.
static char *new_stack(void)
{
    constexpr size_t HUGE = 2 << 20;
    static char *next, *end;
    if ((size_t)(end - next) < STACK_BYTES) {
        void *room = mmap(nullptr, 2 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (room == MAP_FAILED) {
            abort();
        }
        next = static_cast<char *>(room) + (HUGE - reinterpret_cast<uintptr_t>(room) % HUGE) % HUGE;
        end = next + HUGE;
        madvise(next, HUGE, MADV_HUGEPAGE);
    }
    next += STACK_BYTES;
    return next - STACK_BYTES;
}

fibre *fibre_create(void (*body)(void))
{
    auto self = static_cast<fibre *>(calloc(1, sizeof(fibre)));
    if (!self) {
        abort();
    }
    self->stack = new_stack();
    self->stack_bytes = STACK_BYTES;
    static size_t n_made;
    self->unused_bytes = n_made++ % N_ENDS * END_BYTES;
    fibre_reset(self, body);
    return self;
}

void fibre_reset(fibre *self, void (*body)(void))
{
    sanitizer_unpoison(self->stack, self->stack_bytes); // what frames left that were never returned from
    memcpy(self->stack, &CANARY, sizeof(CANARY));
    self->top = first_frame(self->stack + self->stack_bytes - self->unused_bytes, body);
    self->fake_stack = nullptr;
}

bool fibre_intact(const fibre *self)
{
    return memcmp(self->stack, &CANARY, sizeof(CANARY)) == 0;
}

#if EMULATED_ASAN
static fibre *left; // by the change under way

static void learn_stack(void *fake_stack)
{
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(fake_stack, &bottom, &bytes);
    if (left && left->stack_bytes == 0) { // the thread's own stack tells where it is
        left->stack = static_cast<char *>(const_cast<void *>(bottom));
        left->stack_bytes = bytes;
    }
}

void fibre_begun(void)
{
    learn_stack(nullptr);
}

void fibre_switch(fibre *from, fibre *to)
{
    left = from;
    __sanitizer_start_switch_fiber(&from->fake_stack, to->stack, to->stack_bytes);
    fibre_change(&from->top, to->top);
    learn_stack(from->fake_stack);
}
#else
void fibre_begun(void) {}
#endif
