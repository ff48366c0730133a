// The yalm program: reads the options, runs one mode, and turns its status into the exit code.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "yalm_group.h"

// With stdin, stdout or stderr closed, the next file to be opened would take its place.
static void occupy_standard_files(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", fd == 1 ? O_RDONLY : O_WRONLY) < 0)
            _exit(YALM_FAILED);
}

static const char *mapped = ""; // the model's path, for the handler

// The model is a mapping: where its file is shortened, or its disk fails, there are no bytes left to compute on.
static void on_lost_page(int signal)
{
    static const char what[] = ": pages of the file are gone: it was shortened while yalm ran, or its disk failed\n";
    static atomic_flag told = ATOMIC_FLAG_INIT;
    (void)signal;
    while (atomic_flag_test_and_set(&told))
        pause(); // another thread met one, too, and is ending the program
    if (write(STDERR_FILENO, "yalm: ", 6) < 0 || write(STDERR_FILENO, mapped, strlen(mapped)) < 0 ||
        write(STDERR_FILENO, what, sizeof what - 1) < 0)
        _exit(YALM_FAILED);
    _exit(YALM_BAD_MODEL);
}

static char *version_text(void)
{
    char *text;
    return asprintf(&text, "yalm %s\n", yalm_version()) < 0 ? NULL : text;
}

typedef yalm_status mode_function(const struct options *options, const yalm_model *model, yalm_error *error);

// What each mode calls: `run` with a model; or `text`, which returns what is printed, to be freed.
static const struct {
    mode_function *run;
    char *(*text)(void);
} modes[MODES] = {
    [MODE_COMPLETION] = {.run = run_completion},
    [MODE_CHAT] = {.run = run_chat},
    [MODE_THROUGHPUT] = {.run = run_throughput},
    [MODE_PERPLEXITY] = {.run = run_perplexity},
    [MODE_PASSKEY] = {.run = run_passkey},
    [MODE_SERVE] = {.run = run_serve},
    [MODE_CALIBRATE] = {.run = run_calibrate},
    [MODE_IMPORTANCE] = {.run = run_importance},
    [MODE_EMBED] = {.run = run_embed},
    [MODE_TOKENIZE] = {.run = run_tokenize},
    [MODE_INFO] = {.run = run_info},
    [MODE_VERIFY] = {.run = run_verify},
    [MODE_HELP] = {.text = options_help},
    [MODE_KEYS] = {.text = options_keys},
    [MODE_VERSION] = {.text = version_text},
    [MODE_MAN] = {.text = options_man},
};

// Modes that evaluate nothing map the file, and no more.
static yalm_status run(const struct options *options, yalm_error *error)
{
    const enum mode mode = options->mode;
    if (mode == MODE_CACHE)
        return run_cache(options, error);
    if (modes[mode].text) {
        char *text = modes[mode].text();
        const yalm_status status = text ? output(text, strlen(text), error) : cli_no_memory(error);
        free(text);
        return status;
    }
    const bool looks = mode == MODE_TOKENIZE || mode == MODE_INFO || mode == MODE_VERIFY;
    yalm_model *model = looks ? yalm_model_open(options->model, NULL, error) : open_model(options, error);
    const yalm_status status = model ? modes[mode].run(options, model, error) : error->status;
    yalm_model_close(model);
    return status;
}

// What one process does alone, and is better refused before a long run than at its end.
static yalm_status check_alone(const struct options *options, yalm_error *error)
{
    if (options->mode == MODE_CALIBRATE || options->mode == MODE_IMPORTANCE)
        return error_set(error, YALM_USAGE, "-m %s: one process does it alone: start it without mpirun",
                         mode_name(options->mode));
    if (options->session)
        return error_set(error, YALM_USAGE,
                         "--session: a session of several ranks cannot be kept in a file: leave it out, or start one process");
    return YALM_OK;
}

// A rank other than 0 has no mode of its own: it does what rank 0 says, who also speaks for it.
static yalm_status follow(const struct options *options, yalm_error *error)
{
    const yalm_model_options defaults = yalm_model_defaults();
    const yalm_session_options how = session_options(options);
    signal(SIGINT, SIG_IGN); // rank 0 hears it
    return yalm_group_follow(options->group, options->model, &defaults, &how, error);
}

static void say_traffic(const yalm_group *group)
{
    const yalm_traffic traffic = yalm_group_traffic(group);
    char waited[64] = ""; // GPUs sum otherwise
    if (traffic.seconds > 0)
        snprintf(waited, sizeof waited, "; %.3f s at sums and gathering", traffic.seconds);
    say("ranks: sent %llu messages, %s%s", (unsigned long long)traffic.messages, human_bytes(traffic.bytes), waited);
}

// An error of a model that was converted: in the name that the user gave it. Where the cache's file is damaged: what to do.
static void explain(const struct options *options, yalm_error *error)
{
    const char *name = strrchr(options->converted, '/') + 1;
    const size_t length = strlen(options->converted), end = strlen(error->text);
    const yalm_error found = *error;
    if (error->status == YALM_BAD_MODEL)
        snprintf(error->text + end, sizeof error->text - end, "; yalm cache clear %.*s lets it be converted again",
                 (int)strcspn(name, "."), name);
    else if (strncmp(found.text, options->converted, length) == 0)
        snprintf(error->text, sizeof error->text, "%s%s", options->named, found.text + length);
}

static bool follows(const yalm_group *group)
{
    return group && yalm_group_rank(group) > 0;
}

int main(int argc, char **argv)
{
    occupy_standard_files();
    signal(SIGPIPE, SIG_IGN); // a write says EPIPE instead
    struct options options;
    bool quiet = false, followed = false;
    yalm_group *group = NULL;
    yalm_error error = {0}, unheard = {0};
    yalm_status status = yalm_group_join(&group, &error);
    status = status ?: options_parse(argc, argv, &options, &error);
    if (status == YALM_OK) {
        options.group = group;
        quiet = options.quiet;
        signal(SIGBUS, on_lost_page);
        if (!group && options_given(&options, "machine.wire"))
            status =
                error_set(&error, YALM_USAGE, "machine.wire: one process has none: start several with mpirun, or leave it out");
        if (group) {
            yalm_group_use_fp16(group, options.wire == 1);
            status = check_alone(&options, &error);
        }
        if (status == YALM_OK && options.model)
            status = resolve_models(&options, &error);
        mapped = options.model ? options.model : "";
        followed = status == YALM_OK && follows(group);
        status = status ?: followed ? follow(&options, &error) : run(&options, &error);
        if (status != YALM_OK && options.converted)
            explain(&options, &error);
        options_free(&options);
    }
    status = status ?: output_end(&error);
    progress_clear();
    if (status != YALM_OK && follows(group) && !followed)
        yalm_group_refuse(group, &error, &unheard); // rank 0 would wait for this one
    if (status == YALM_OK && group && !quiet && yalm_group_rank(group) == 0)
        say_traffic(group);
    if (status != YALM_OK && (!group || yalm_group_speaks(group)))
        say_error(&error);
    yalm_group_leave(group);
    return status;
}
