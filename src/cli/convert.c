// See convert.h.
#include "cli/convert.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/option_table.h"

extern char **environ;

static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
enum { ENDS = sizeof ends / sizeof *ends };

static volatile pid_t running; // for the handler

// Python writes a traceback where SIGINT meets it before the converter's first line, and ends in silence by SIGTERM. So it is
// started without the former.
static void pass_on(int signal)
{
    if (running > 0)
        kill(running, signal == SIGINT ? SIGTERM : signal);
}

// ---------------------------------------------------------------- where it is

static bool join(char *path, size_t room, const char *folder, const char *name)
{
    const int n = snprintf(path, room, "%s/%s", folder, name);
    return n > 0 && (size_t)n < room && access(path, R_OK) == 0;
}

static void folder_of(char *folder, size_t room, const char *path)
{
    const char *slash = strrchr(path, '/');
    snprintf(folder, room, "%.*s", slash ? (int)(slash - path) : 0, path);
}

yalm_status converter_find(struct converter *converter, const char *source, yalm_error *error)
{
    static const char *const places[] = {"tools", "../share/yalm"};
    const ssize_t n = readlink("/proc/self/exe", converter->program, sizeof converter->program - 1);
    converter->program[n > 0 ? n : 0] = 0;
    char beside[PATH_MAX], script[PATH_MAX];
    folder_of(beside, sizeof beside, converter->program);
    const char *named = getenv("YALM_CONVERTER");
    if (named && *named) {
        snprintf(converter->folder, sizeof converter->folder, "%s", named);
        if (join(script, sizeof script, named, "convert.py"))
            return YALM_OK;
        return error_set(error, YALM_FAILED, "YALM_CONVERTER=%s: there is no convert.py in it", named);
    }
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (join(converter->folder, sizeof converter->folder, beside, places[i]) &&
            join(script, sizeof script, converter->folder, "convert.py"))
            return YALM_OK;
    return error_set(error, YALM_FAILED,
                     "%s: to be converted first, and convert.py is neither in %s/tools nor in %s/../share/yalm: `make install` "
                     "puts it there, YALM_CONVERTER=FOLDER names another place",
                     source, beside, beside);
}

// YALM_PYTHON (the wheel's, which has the packages), or the first that is there: that of the source, the user's own environment
// for yalm, that of a program in one, the system's.
static const char *find_python(const struct converter *converter, char *path, size_t room)
{
    char folder[PATH_MAX];
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    const char *named = getenv("YALM_PYTHON");
    if (named && *named)
        return named;
    if (join(path, room, converter->folder, "../.venv/bin/python"))
        return path;
    snprintf(folder, sizeof folder, "%s%s",
             data && *data == '/' ? data
             : home               ? home
                                  : "",
             data && *data == '/' ? "" : "/.local/share");
    if (join(path, room, folder, "yalm/venv/bin/python"))
        return path;
    folder_of(folder, sizeof folder, converter->program);
    if (join(path, room, folder, "python3"))
        return path;
    return "python3";
}

// ---------------------------------------------------------------- what it is told

// From / on. Links stay as they are: the parts of a GGUF file are found by its name.
static void put_path(FILE *to, const char *path)
{
    char here[PATH_MAX];
    if (*path != '/' && getcwd(here, sizeof here))
        fprintf(to, "%s/", here);
    fputs(path, to);
}

static bool is_of_conversion(const struct option *option)
{
    return option->group && strcmp(option->group, "Conversion") == 0;
}

// A row's option, or options, with what they were given.
static void put_words(FILE *to, const struct option *option, const struct options *options)
{
    const void *value = (const char *)options + option->offset;
    const struct text_list one = {1, (const char **)value}, *list = option->kind == OPTION_TEXTS ? value : &one;
    if (option->kind == OPTION_FLAG && *(const bool *)value)
        fprintf(to, "--%s%c", option->names, 0);
    if (option->kind == OPTION_FLOAT && *(const float *)value > 0)
        fprintf(to, "--%s=%g%c", option->names, (double)*(const float *)value, 0);
    if (option->kind != OPTION_TEXT && option->kind != OPTION_WORD && option->kind != OPTION_TEXTS)
        return;
    for (int i = 0; i < list->n && list->texts[i]; i++) {
        fprintf(to, "--%s=", option->names);
        if (option->kind == OPTION_TEXT && strcmp(list->texts[i], "none") != 0)
            put_path(to, list->texts[i]);
        else
            fputs(list->texts[i], to);
        fputc(0, to);
    }
}

yalm_status origin_of(struct origin *origin, const char *source, const struct options *options, yalm_error *error)
{
    *origin = (struct origin){0};
    FILE *to = open_memstream(&origin->bytes, &origin->length);
    if (to == NULL)
        return cli_no_memory(error);
    put_path(to, source);
    fputc(0, to);
    for (int i = 0; i < n_options; i++)
        if (is_of_conversion(&option_table[i]))
            put_words(to, &option_table[i], options);
    return fclose(to) == 0 ? YALM_OK : cli_no_memory(error);
}

const char *origin_next(const struct origin *origin, const char *text)
{
    const char *next = text + strlen(text) + 1;
    return next < origin->bytes + origin->length ? next : NULL;
}

const char *conversion_option(const struct options *options)
{
    for (int i = 0; i < n_options; i++)
        if (is_of_conversion(&option_table[i]) && options->given[i])
            return option_table[i].names;
    return NULL;
}

// ---------------------------------------------------------------- running it

static yalm_status start(const char *python, char *const *words, yalm_error *error)
{
    pid_t child = 0;
    sigset_t blocked, before;
    sigemptyset(&blocked);
    for (int i = 0; i < ENDS; i++)
        sigaddset(&blocked, ends[i]);
    sigprocmask(SIG_BLOCK, &blocked, &before); // until the handler knows whom to tell
    const struct sigaction ignored = {.sa_handler = SIG_IGN};
    struct sigaction handled;
    sigaction(SIGINT, &ignored, &handled); // which the child inherits; what is blocked is not lost meanwhile
    posix_spawnattr_t how;
    posix_spawnattr_init(&how);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigmask(&how, &before);
    const int code = posix_spawnp(&child, python, NULL, &how, words, environ);
    posix_spawnattr_destroy(&how);
    sigaction(SIGINT, &handled, NULL);
    running = child;
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (code == ENOENT)
        return error_set(error, YALM_FAILED,
                         "python3 is not here, and the converter is written in it: install Python 3.9 or later (on Debian and "
                         "Ubuntu: apt-get install python3-venv)");
    return code == 0 ? YALM_OK : error_set(error, YALM_FAILED, "%s: %s", python, strerror(code));
}

static yalm_status wait_for_end(yalm_error *error)
{
    int code = 0;
    while (waitpid(running, &code, 0) < 0 && errno == EINTR)
        ;
    running = 0;
    if (WIFEXITED(code) && WEXITSTATUS(code) == 0)
        return YALM_OK;
    yalm_status status = WIFEXITED(code) ? (yalm_status)WEXITSTATUS(code) : YALM_FAILED;
    for (int i = 0; i < ENDS; i++)
        if (WIFSIGNALED(code) ? WTERMSIG(code) == ends[i] : WEXITSTATUS(code) == 128 + ends[i])
            status = YALM_INTERRUPTED;
    *error = (yalm_error){.status = status};
    if (WIFSIGNALED(code) && status != YALM_INTERRUPTED)
        return error_set(error, YALM_FAILED, "the converter was ended by signal %d%s: nothing was written", WTERMSIG(code),
                         WTERMSIG(code) == SIGKILL ? ", as the system does where memory runs out" : "");
    return status;
}

yalm_status converter_run(const struct converter *converter, const char *source, const char *file, const struct origin *origin,
                          bool quiet, yalm_error *error)
{
    char python[PATH_MAX], script[PATH_MAX + 16];
    const char *found = find_python(converter, python, sizeof python);
    snprintf(script, sizeof script, "%s/convert.py", converter->folder);
    size_t room = 8, n = 0; // of the words that are no option, with the NULL behind them
    for (const char *option = origin->bytes; (option = origin_next(origin, option));)
        room++;
    const char **words = calloc(room, sizeof *words);
    if (words == NULL)
        return cli_no_memory(error);
    words[n++] = found;
    words[n++] = script;
    words[n++] = "--into-cache";
    if (quiet)
        words[n++] = "--quiet";
    for (const char *option = origin->bytes; (option = origin_next(origin, option));)
        words[n++] = option;
    words[n++] = "--";
    words[n++] = source;
    words[n++] = file;
    setenv("YALM", converter->program, 0); // which measures what matters, where weights are quantised to few bits

    struct sigaction before[ENDS];
    const struct sigaction action = {.sa_handler = pass_on, .sa_flags = SA_RESTART};
    for (int i = 0; i < ENDS; i++)
        sigaction(ends[i], &action, &before[i]);
    yalm_status status = start(found, (char *const *)words, error);
    status = status ?: wait_for_end(error);
    for (int i = 0; i < ENDS; i++)
        sigaction(ends[i], &before[i], NULL);
    free(words);
    return status;
}
