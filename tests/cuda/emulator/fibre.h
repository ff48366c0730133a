// Stacks to run on, and the change from one to another: what the callee must preserve is pushed, the stack pointer exchanged.
#pragma once
#include <cstddef>

#include "sanitizers.h"

struct fibre {
    void *top;           // where it goes on: its saved stack pointer
    char *stack;         // lowest address
    size_t stack_bytes;  // of the stack; 0: the stack that the operating system's thread came with
    size_t unused_bytes; // of it, above the first frame
    void *fake_stack;    // AddressSanitizer's, while another fibre runs
    fibre *next_idle;
};

// A fibre that begins in body(), which never returns.
fibre *fibre_create(void (*body)(void));
// Forgets where it was: it begins again in body().
void fibre_reset(fibre *self, void (*body)(void));
// Leaves `from`, goes on in `to`; returns when somebody changes to `from` again.
#if EMULATED_ASAN
void fibre_switch(fibre *from, fibre *to);
#else
extern "C" void fibre_change(void **from_top, void *to_top);
inline void fibre_switch(fibre *from, fibre *to)
{
    fibre_change(&from->top, to->top);
}
#endif
// The first call of body().
void fibre_begun(void);
// False where the stack has been overrun.
bool fibre_intact(const fibre *self);
