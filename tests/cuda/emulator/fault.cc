// What went wrong first, and where.
#include <cstdarg>
#include <cstdio>

#include "block_state.h"
#include "runtime.h"

static char fault_text[1024];
static bool fault_is_quiet;

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
