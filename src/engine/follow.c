// The ranks of a group besides rank 0: they do what it says, with their shares of the model, until it leaves.

#include <stdlib.h>
#include <string.h>

#include "engine/device.h"
#include "engine/group.h"
#include "engine/ranks.h"
#include "util/error.h"

// A session of rank 0's, as far as it is this rank's.
struct followed {
    int session; // its name
    const struct backend *backend;
    void *state;
    yalm_session_options options; // but what its attention method has besides
    struct followed *next;
};

struct follower {
    yalm_group *group;
    const struct model_source *source;
    const yalm_session_options *options; // threads are this rank's own affair
    yalm_model *model;                   // NULL: not yet
    float *unread;                       // (vocab_size): logits of sessions together, which are rank 0's to read
    float wanted;                        // what stands for logits that go to rank 0: only whether there are to be any counts
    struct followed *sessions;
    yalm_error failed; // why nothing is evaluated any more; rank 0 hears of it when it asks
};

static struct followed **find(struct follower *f, int session)
{
    struct followed **at = &f->sessions;
    while (*at && (*at)->session != session)
        at = &(*at)->next;
    return at;
}

static void close_session(struct followed **at)
{
    struct followed *gone = *at;
    if (!gone)
        return;
    *at = gone->next;
    gone->backend->close(gone->state);
    free(gone);
}

static void close_all(struct follower *f)
{
    while (f->sessions)
        close_session(&f->sessions);
    if (f->model)
        f->source->close(f->model);
    free(f->unread);
    f->unread = NULL;
    f->model = NULL;
}

// The model, which must be rank 0's, and this rank's share of it.
static yalm_status load(struct follower *f, const struct group_model *wanted, yalm_error *error)
{
    close_all(f);
    f->group->fp16 = wanted->fp16;
    f->model = f->source->open(f->source, f->group, error);
    if (!f->model)
        return error->status;
    const struct group_model mine = group_model_of(&f->model->info);
    if (memcmp(mine.version, wanted->version, sizeof mine.version) != 0)
        return error_set(error, YALM_FAILED, "yalm %.100s, rank 0 has %.100s", mine.version, wanted->version);
    if (mine.checksum != wanted->checksum || mine.file_bytes != wanted->file_bytes)
        return error_set(error, YALM_BAD_MODEL,
                         "%.200s: another model (%016llx, %llu bytes) than rank 0's (%016llx, %llu bytes)", f->source->path,
                         (unsigned long long)mine.checksum, (unsigned long long)mine.file_bytes,
                         (unsigned long long)wanted->checksum, (unsigned long long)wanted->file_bytes);
    f->unread = malloc(sizeof *f->unread * (size_t)f->model->config.vocab_size);
    return f->unread ? model_take_share(f->model, error) : error_set(error, YALM_NO_MEMORY, "out of memory for logits");
}

static yalm_status open_session(struct follower *f, int session, const struct command *command, const char *body,
                                yalm_error *error)
{
    struct ranks_options sent;
    if (!f->model || !ranks_read_options(&sent, body, command->body_bytes))
        return error_set(error, YALM_FAILED, "rank 0 sends options that cannot be read");
    static const atomic_bool never;
    yalm_session_options *o = &sent.options;
    o->n_threads = f->options->n_threads;
    o->n_threads_batch = f->options->n_threads_batch;
    struct device_choice choice;
    yalm_status status = device_choose(f->model, o, &choice, error);
    if (status != YALM_OK)
        return status;
    const struct backend_plan plan = device_plan(f->model, o, &never);
    yalm_memory memory;
    status = device_memory(choice.own, &plan, &memory, error);
    status = status ?: device_has_room(choice.own, &plan, &memory, error);
    if (status != YALM_OK)
        return status;
    struct followed *opened = calloc(1, sizeof *opened);
    if (!opened)
        return error_set(error, YALM_NO_MEMORY, "out of memory for a session");
    *opened = (struct followed){session, choice.own, choice.own->open(&plan, error), *o, f->sessions};
    opened->options.codebooks = NULL;
    opened->options.attention = "dense";
    opened->options.n_settings = 0;
    if (!opened->state) {
        free(opened);
        return error->status;
    }
    f->sessions = opened;
    return YALM_OK;
}

static void keep(struct follower *f, const yalm_error *mine)
{
    if (f->failed.status == YALM_OK)
        f->failed = *mine;
}

static void evaluate(struct follower *f, const struct command *command, const int32_t *tokens)
{
    struct followed *session = *find(f, command->session);
    struct batch batch = {.tokens = command->n > 1 ? tokens : &command->token, .n = command->n, .position = command->position};
    batch.logits = command->logits ? &f->wanted : NULL;
    batch.all_logits = command->logits == 2;
    batch.apart = command->apart == 2;
    batch.last_apart = command->apart == 1;
    yalm_error mine = {0};
    if (session && f->failed.status == YALM_OK)
        session->backend->evaluate(session->state, &batch, &mine);
    if (mine.status != YALM_INTERRUPTED) // which is rank 0's to report
        keep(f, &mine);
}

static void evaluate_together(struct follower *f, const struct command *command, const struct group_turn *turns)
{
    void *states[GROUP_AT_ONCE];
    struct batch batches[GROUP_AT_ONCE];
    const int n = command->n < GROUP_AT_ONCE ? command->n : GROUP_AT_ONCE;
    struct followed *first = *find(f, turns[0].session);
    for (int i = 0; i < n; i++) {
        const struct followed *session = *find(f, turns[i].session);
        if (!session)
            return;
        states[i] = session->state;
        batches[i] = (struct batch){.tokens = &turns[i].token, .n = 1, .position = turns[i].position, .logits = f->unread};
    }
    const struct backend_plan plan = device_plan(f->model, &first->options, NULL);
    backend_cpu.evaluate_together(states, batches, n, &plan, NULL);
}

// Whether to go on.
static bool obey(struct follower *f, const struct command *command, const void *body, yalm_error *error)
{
    yalm_error mine = {0};
    struct followed *session = *find(f, command->session);
    switch (command->kind) {
    case COMMAND_LOAD:
        load(f, body, &mine);
        group_answer(f->group, &mine, error);
        break;
    case COMMAND_OPEN:
        open_session(f, command->session, command, body, &mine);
        group_answer(f->group, &mine, error);
        break;
    case COMMAND_EVALUATE:
        evaluate(f, command, body);
        break;
    case COMMAND_TOGETHER:
        evaluate_together(f, command, body);
        break;
    case COMMAND_FILL:
        if (session)
            session->backend->fill_random(session->state, command->position, command->n, command->seed, NULL);
        break;
    case COMMAND_CLOSE:
        close_session(find(f, command->session));
        break;
    case COMMAND_JOIN:
        if (!session || !session->backend->join || command->body_bytes != INVITATION_BYTES)
            error_set(&mine, YALM_FAILED, "rank 0 asks for a meeting that this rank knows nothing of");
        else
            session->backend->join(session->state, body, &mine);
        group_answer(f->group, &mine, error);
        break;
    case COMMAND_ROLL:
        group_answer_roll(f->group, &f->failed);
        break;
    case COMMAND_NOTHING:
        break;
    default:
        return false;
    }
    return !f->group->lost;
}

yalm_status group_follow(yalm_group *group, const struct model_source *source, const yalm_session_options *options,
                         yalm_error *error)
{
    struct follower f = {.group = group, .source = source, .options = options};
    yalm_status status = YALM_OK;
    bool has_pulse = false;
    for (bool go_on = true; go_on && status == YALM_OK;) {
        struct command command;
        void *body;
        status = group_hear(group, has_pulse, &command, &body, error);
        has_pulse = status == YALM_OK && command.kind != COMMAND_LOAD;
        go_on = status == YALM_OK && obey(&f, &command, body, error);
        free(body);
    }
    if (group->lost)
        status = group_failure(group, error);
    close_all(&f);
    return status;
}

static yalm_model *open_file(const struct model_source *source, yalm_group *group, yalm_error *error)
{
    yalm_model_options how = *source->how;
    how.group = group;
    return yalm_model_open(source->path, &how, error);
}

yalm_status yalm_group_follow(yalm_group *group, const char *path, const yalm_model_options *how,
                              const yalm_session_options *options, yalm_error *error)
{
    if (error_of_size(options->size, sizeof *options, "yalm_session_options", error) != YALM_OK)
        return YALM_USAGE;
    const struct model_source file = {.open = open_file, .close = yalm_model_close, .path = path, .how = how};
    return group_follow(group, &file, options, error);
}

static yalm_model *open_nothing(const struct model_source *source, yalm_group *group, yalm_error *error)
{
    (void)group;
    *error = *source->why;
    return NULL;
}

yalm_status yalm_group_refuse(yalm_group *group, const yalm_error *why, yalm_error *error)
{
    const yalm_session_options options = yalm_session_defaults();
    const struct model_source nothing = {.open = open_nothing, .why = why};
    return group_follow(group, &nothing, &options, error);
}
