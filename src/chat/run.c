// Errors and limits of a rendering.

#include "chat/run.h"

#include <stdarg.h>
#include <stdio.h>

void run_fail(struct run *run, const char *format, ...)
{
    if (failed(run))
        return;
    char text[sizeof run->error->text];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    run->status = run->line ? error_set(run->error, YALM_USAGE, "chat template, line %d: %s", run->line, text)
                            : error_set(run->error, YALM_USAGE, "chat template: %s", text);
}

void *run_take(struct run *run, size_t bytes)
{
    void *taken = failed(run) ? NULL : arena_take(&run->arena, bytes);
    if (taken == NULL && !failed(run))
        run->status = error_set(run->error, YALM_NO_MEMORY,
                                "chat template, line %d: more memory is needed than the %zu MiB that it may take", run->line,
                                run->arena.limit >> 20);
    return taken;
}

bool run_step(struct run *run, size_t steps)
{
    if (failed(run))
        return false;
    if ((size_t)run->steps_left < steps) {
        run_fail(run, "stopped after %d steps: the template or its input is too long, or it does not end", RUN_MAX_STEPS);
        return false;
    }
    run->steps_left -= (long)steps;
    return true;
}
