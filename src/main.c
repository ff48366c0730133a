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

static yalm_status print_text(char *text, yalm_error *error)
{
    if (text == NULL)
        return cli_no_memory(error);
    const yalm_status status = output(text, strlen(text), error);
    free(text);
    return status;
}

static yalm_status print_version(yalm_error *error)
{
    const char *version = yalm_version();
    yalm_status status = output("yalm ", 5, error);
    status = status ?: output(version, strlen(version), error);
    return status ?: output("\n", 1, error);
}

static yalm_status run(const struct options *options, yalm_error *error)
{
    switch (options->mode) {
    case MODE_CHAT:
        return run_chat(options, error);
    case MODE_THROUGHPUT:
        return run_throughput(options, error);
    case MODE_PERPLEXITY:
        return run_perplexity(options, error);
    case MODE_PASSKEY:
        return run_passkey(options, error);
    case MODE_SERVE:
        return run_serve(options, error);
    case MODE_CALIBRATE:
        return run_calibrate(options, error);
    case MODE_IMPORTANCE:
        return run_importance(options, error);
    case MODE_EMBED:
        return run_embed(options, error);
    case MODE_TOKENIZE:
        return run_tokenize(options, error);
    case MODE_INFO:
        return run_info(options, error);
    case MODE_VERIFY:
        return run_verify(options, error);
    case MODE_HELP:
        return print_text(options_help(), error);
    case MODE_VERSION:
        return print_version(error);
    case MODE_KEYS:
        return print_text(options_keys(), error);
    case MODE_CACHE:
        return run_cache(options, error);
    case MODE_MAN:
        return print_text(options_man(), error);
    default:
        return run_completion(options, error);
    }
}

// What one process does alone, and is better refused before a long run than at its end.
static yalm_status check_alone(const struct options *options, yalm_error *error)
{
    if (options->mode == MODE_CALIBRATE || options->mode == MODE_IMPORTANCE)
        return cli_error(error, YALM_USAGE, "-m %s: one process does it alone: start it without mpirun",
                         mode_name(options->mode));
    if (options->session)
        return cli_error(error, YALM_USAGE,
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
                cli_error(&error, YALM_USAGE, "machine.wire: one process has none: start several with mpirun, or leave it out");
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
