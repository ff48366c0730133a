// Says who touched what, where a kernel runs out of its memory or the host reads the device's; then the process ends as it would have.
#include "trap.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "runtime.h"
#include "sanitizers.h"

#if !EMULATED_ASAN
static bool near(const memory_range &range, const char *address)
{
    return range.pages && address >= range.pages - CLOSED_BYTES && address < range.pages + range.page_bytes + CLOSED_BYTES;
}

static void on_fault(int signal_number, siginfo_t *information, void *)
{
    char text[600], where[300];
    const char *address = static_cast<const char *>(information->si_addr);
    emulated_where(where, sizeof(where));
    const memory_range *range = memory_nearest(address, near);
    if (range && address >= range->begin && address < range->begin + range->bytes) {
        snprintf(text, sizeof(text), "emulated GPU: %sdevice memory is touched by the host: byte %td of %zu\n", where,
                 address - range->begin, range->bytes);
    } else if (range) {
        snprintf(text, sizeof(text), "emulated GPU: %sbyte %td of an allocation of %zu bytes is touched\n", where,
                 address - range->begin, range->bytes);
    } else {
        snprintf(text, sizeof(text), "emulated GPU: %saddress %p is touched, where nothing is allocated\n", where,
                 static_cast<const void *>(address));
    }
    if (range || where[0]) {
        ssize_t written = write(2, text, strlen(text));
        (void)written;
    }
    signal(signal_number, SIG_DFL); // and again, on return
}

void trap_prepare(void)
{
    // Each time: test frameworks put their own in its place.
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, nullptr);
    sigaction(SIGBUS, &action, nullptr);
    static thread_local char *stack; // a fibre's may be what ran out
    if (!stack) {
        constexpr size_t STACK_BYTES = 64 << 10;
        stack = static_cast<char *>(malloc(STACK_BYTES));
        stack_t other = {};
        other.ss_sp = stack;
        other.ss_size = STACK_BYTES;
        sigaltstack(&other, nullptr);
    }
}
#else
void trap_prepare(void) {} // the sanitizer explains
#endif
