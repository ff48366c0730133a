// What goes to stdout and stderr, and how.
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

// A file's name, or a model's, may hold anything: no control character of it reaches a terminal, but for those in `left`.
static void mask(char *text, const char *left)
{
    for (char *at = text; *at; at++)
        if (((unsigned char)*at < 32 || *at == 127) && !strchr(left, *at))
            *at = '?';
}

const char *plain(const char *text)
{
    static char shown[512];
    snprintf(shown, sizeof shown, "%s", text);
    mask(shown, "");
    return shown;
}

yalm_status cli_no_memory(yalm_error *error)
{
    return error_set(error, YALM_NO_MEMORY, "out of memory");
}

void say(const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    progress_clear();
    if (vasprintf(&text, format, args) >= 0) {
        mask(text, "\n\t");
        fprintf(stderr, "%s\n", text);
        free(text);
    }
    va_end(args);
}

void say_error(const yalm_error *error)
{
    if (error->text[0] == 0)
        return;
    const bool red = colour_wanted();
    progress_clear();
    fprintf(stderr, "%syalm:%s %s\n", red ? "\033[1;31m" : "", red ? "\033[0m" : "", error->text);
}

bool progress_wanted(void)
{
    const char *terminal = getenv("TERM");
    return isatty(STDERR_FILENO) && (terminal == NULL || strcmp(terminal, "dumb") != 0);
}

bool colour_wanted(void)
{
    const char *no_color = getenv("NO_COLOR");
    return progress_wanted() && (no_color == NULL || *no_color == 0);
}

static bool progress_shown; // a line without an end stands on the terminal

void progress(const char *format, ...)
{
    if (!progress_wanted())
        return;
    va_list args;
    va_start(args, format);
    fputs("\r\033[K", stderr);
    vfprintf(stderr, format, args);
    fflush(stderr);
    va_end(args);
    progress_shown = true;
}

void progress_clear(void)
{
    if (progress_shown)
        fputs("\r\033[K", stderr);
    progress_shown = false;
}

// Whether nobody reads any more what is written to a pipe.
static bool reader_is_gone(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return errno == EPIPE || (poll(&out, 1, 0) == 1 && (out.revents & POLLERR));
}

// errno may be 0: of a write that failed earlier it is lost.
static yalm_status output_failed(yalm_error *error)
{
    const int why = errno;
    if (reader_is_gone()) {
        *error = (yalm_error){.status = YALM_FAILED};
        return YALM_FAILED;
    }
    return error_set(error, YALM_FAILED, "standard output: %s",
                     why ? strerror(why) : "what was written got lost: is the disk full?");
}

yalm_status output(const char *bytes, size_t length, yalm_error *error)
{
    if (length == 0)
        return YALM_OK;
    progress_clear();
    errno = 0;
    if (fwrite(bytes, 1, length, stdout) != length || fflush(stdout) != 0)
        return output_failed(error);
    return YALM_OK;
}

yalm_status output_end(yalm_error *error)
{
    errno = 0;
    if (fflush(stdout) != 0 || ferror(stdout))
        return output_failed(error);
    return YALM_OK;
}

const char *human_bytes(uint64_t bytes)
{
    static char buffers[8][16];
    static int turn;
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB", "PB", "EB"};
    char *buffer = buffers[turn++ % 8];
    double value = (double)bytes;
    int unit = 0;
    while (value >= 999.5) {
        value /= 1000;
        unit++;
    }
    snprintf(buffer, sizeof buffers[0], unit && value < 99.95 ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return buffer;
}
