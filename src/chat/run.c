// Errors and limits of a rendering.

#include "chat/run.h"

#include <stdarg.h>
#include <stdio.h>

// Says where in the template, once it has begun.
static void set_failure(struct run *run, yalm_status status, const char *text)
{
    run->status = run->line ? error_set(run->error, status, "chat template, line %d: %s", run->line, text)
                            : error_set(run->error, status, "chat template: %s", text);
}

bool run_fail(struct run *run, const char *format, ...)
{
    if (failed(run))
        return false;
    char text[sizeof run->error->text];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    set_failure(run, YALM_USAGE, text);
    return false;
}

void *run_take(struct run *run, size_t bytes)
{
    void *taken = failed(run) ? NULL : arena_take(&run->arena, bytes);
    if (taken == NULL && !failed(run)) {
        char text[80];
        snprintf(text, sizeof text, "more memory is needed than the %zu MiB that it may take", run->arena.limit >> 20);
        set_failure(run, YALM_NO_MEMORY, text);
    }
    return taken;
}

bool run_step(struct run *run, size_t steps)
{
    if (failed(run))
        return false;
    if ((size_t)run->steps_left < steps)
        return run_fail(run, "stopped after %d steps: the template or its input is too long, or it does not end",
                        RUN_MAX_STEPS);
    run->steps_left -= (long)steps;
    return true;
}

bool run_pass(struct run *run, size_t bytes)
{
    return run_step(run, bytes / 64);
}
