// A session's timeline in a file (docs/format.md, "the file of a session"): its tokens, and what the KV cache holds of them.

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "engine/session.h"
#include "model/key_offset.h"
#include "util/file.h"

enum { VERSION = 1, HEADER_SIZE = 96 };

static const char magic[8] = {'Y', 'S', 'E', 'S', '\r', '\n', '\x1a', '\n'};

struct header { // as it lies in the file
    char magic[8];
    uint32_t version, header_size;
    uint64_t file_length, model_checksum, body_checksum;
    int64_t position, high_water;
    uint32_t n_tokens, kv, activations, n_kinds;
    int64_t floor;
    uint32_t offset_keys; // 1: rows of keys are less what key_offset() says
    uint32_t reserved[3]; // 0
};
_Static_assert(sizeof(struct header) == HEADER_SIZE, "no padding");

struct ring_kind { // of layers: how its ring lies
    uint32_t capacity, span, n_sinks, endless;
};

// What is read or written, in one pass.
struct stream {
    const char *path;
    FILE *file;
    XXH3_state_t *hash;
    uint64_t length; // of the body so far
    bool ended;      // too early
};

// ------------------------------------------------------------------------------------------ both ways

static yalm_status io_error(const char *path, yalm_error *error)
{
    return error_set(error, YALM_FAILED, "%s: %s", path, strerror(errno));
}

static yalm_status count(struct stream *stream, const void *bytes, size_t length)
{
    stream->length += length;
    return XXH3_64bits_update(stream->hash, bytes, length) == XXH_OK ? YALM_OK : YALM_FAILED;
}

static yalm_status put(void *context, void *bytes, size_t length)
{
    struct stream *stream = context;
    if (fwrite(bytes, 1, length, stream->file) != length)
        return YALM_FAILED;
    return count(stream, bytes, length);
}

static yalm_status get(void *context, void *bytes, size_t length)
{
    struct stream *stream = context;
    if (fread(bytes, 1, length, stream->file) != length) {
        stream->ended = !ferror(stream->file);
        return YALM_FAILED;
    }
    return count(stream, bytes, length);
}

static struct ring_kind kind_of(const struct kv_policy *kv)
{
    return (struct ring_kind){(uint32_t)kv->capacity, (uint32_t)kv->span, (uint32_t)kv->n_sinks, kv->endless};
}

// All slots that positions below high_water have been written to: those of a ring's first round. Of recurrent layers what
// stands before `position`.
static void find_written(const yalm_session *s, int64_t position, int64_t high_water, struct stretch *of_kind)
{
    for (int i = 0; i < config_n_kinds(&s->model->config); i++)
        of_kind[i] = (struct stretch){0, high_water < s->kv[i].capacity ? high_water : s->kv[i].capacity, position};
}

static uint32_t has_offset_keys(const yalm_session *s)
{
    return s->options.kv == YALM_KV_INT8 &&
           key_offset_has(&s->model->config, s->kv[config_far_kind(&s->model->config)].n_sinks);
}

// Waits for the device.
static yalm_status check_session(yalm_session *s, yalm_error *error)
{
    if (s->model->group)
        return error_set(error, YALM_USAGE, "a session of several ranks cannot be kept in a file: each has a part of it");
    if (s->position > s->options.context)
        return error_set(error, YALM_USAGE, "a session of %lld tokens is past its context of %d, and cannot be kept in a file",
                         (long long)s->position, s->options.context);
    return yalm_finish(s, error);
}

// ------------------------------------------------------------------------------------------ writing

// How far positions are of use: what was evaluated ahead, or taken back, is not, unless it lies in the place of what came
// before.
static int64_t used(const yalm_session *s)
{
    for (int i = 0; i < config_n_kinds(&s->model->config); i++)
        if (s->high_water > s->kv[i].capacity)
            return s->high_water;
    return s->position;
}

static yalm_status write_body(struct stream *stream, yalm_session *s, uint32_t n_tokens, yalm_error *error)
{
    yalm_status status = YALM_OK;
    for (int i = 0; i < config_n_kinds(&s->model->config) && status == YALM_OK; i++) {
        struct ring_kind kind = kind_of(&s->kv[i]);
        status = put(stream, &kind, sizeof kind);
    }
    for (int64_t at = s->position - n_tokens; at < s->position && status == YALM_OK; at++)
        status = put(stream, &s->history[at % s->options.context], sizeof *s->history);
    if (status == YALM_OK) {
        *error = (yalm_error){0};
        struct stretch written[CONFIG_MAX_KINDS];
        find_written(s, s->position, used(s), written);
        status = s->backend->each_row(s->state, written, ROWS_READ, put, stream, error);
        if (error->text[0]) // the backend's own word, and not the disk's
            return status;
    }
    return status == YALM_OK ? YALM_OK : io_error(stream->path, error);
}

static yalm_status write_file(struct stream *stream, yalm_session *s, yalm_error *error)
{
    struct header header = {.version = VERSION,
                            .header_size = HEADER_SIZE,
                            .model_checksum = yalm_model_facts(s->model)->checksum,
                            .position = s->position,
                            .high_water = used(s),
                            .n_tokens = (uint32_t)s->position,
                            .kv = s->options.kv,
                            .activations = s->options.activations - YALM_ACTIVATIONS_INT16,
                            .n_kinds = (uint32_t)config_n_kinds(&s->model->config),
                            .floor = s->floor,
                            .offset_keys = has_offset_keys(s)};
    memcpy(header.magic, magic, sizeof magic);
    if (fwrite(&header, sizeof header, 1, stream->file) != 1) // keeps the place
        return io_error(stream->path, error);
    const yalm_status status = write_body(stream, s, header.n_tokens, error);
    if (status != YALM_OK)
        return status;
    header.file_length = HEADER_SIZE + stream->length;
    header.body_checksum = XXH3_64bits_digest(stream->hash);
    if (fseek(stream->file, 0, SEEK_SET) != 0 || fwrite(&header, sizeof header, 1, stream->file) != 1 ||
        fflush(stream->file) != 0 || fsync(fileno(stream->file)) != 0)
        return io_error(stream->path, error);
    return YALM_OK;
}

// So that the new name outlives a loss of power, too. What cannot be synchronised is left at that.
static void sync_directory(const char *path)
{
    char *copy = strdup(path);
    const int directory = copy ? open(dirname(copy), O_RDONLY | O_DIRECTORY) : -1;
    if (directory >= 0) {
        fsync(directory);
        close(directory);
    }
    free(copy);
}

static yalm_status save_as(yalm_session *s, const char *path, const char *temporary, yalm_error *error)
{
    struct stream stream = {.path = path, .file = fopen(temporary, "wbx"), .hash = XXH3_createState()};
    yalm_status status = YALM_OK;
    if (!stream.file)
        status = io_error(path, error);
    else if (!stream.hash || XXH3_64bits_reset(stream.hash) != XXH_OK)
        status = error_set(error, YALM_NO_MEMORY, "%s: no memory", path);
    status = status ?: write_file(&stream, s, error);
    if (stream.file && fclose(stream.file) != 0 && status == YALM_OK)
        status = io_error(path, error);
    if (status == YALM_OK && rename(temporary, path) != 0)
        status = io_error(path, error);
    if (status == YALM_OK)
        sync_directory(path);
    else if (stream.file)
        unlink(temporary);
    XXH3_freeState(stream.hash);
    return status;
}

yalm_status yalm_session_save(yalm_session *s, const char *path, yalm_error *error)
{
    yalm_error own;
    error = error ? error : &own;
    const yalm_status status = check_session(s, error);
    if (status != YALM_OK)
        return status;
    ahead_forget(s); // what recurrent layers carry is brought back to the session's position
    char *temporary;
    if (asprintf(&temporary, "%s.%ld.tmp", path, (long)getpid()) < 0)
        return error_set(error, YALM_NO_MEMORY, "%s: no memory", path);
    const yalm_status saved = save_as(s, path, temporary, error);
    free(temporary);
    return saved;
}

// ------------------------------------------------------------------------------------------ reading

static yalm_status unfit(const char *path, const char *why, yalm_error *error)
{
    return error_set(error, YALM_USAGE, "%s: %s: remove the file, or name another", path, why);
}

static yalm_status check_header(const struct header *h, uint64_t size, yalm_session *s, const char *path, yalm_error *error)
{
    const int64_t context = s->options.context;
    if (memcmp(h->magic, magic, sizeof magic) != 0)
        return unfit(path, "not a session of yalm", error);
    if (h->version != VERSION || h->header_size != HEADER_SIZE)
        return unfit(path, "a session of another version of yalm", error);
    if (h->file_length != size)
        return error_set(error, YALM_USAGE, "%s: truncated: found %llu bytes, expected %llu: remove the file, or name another",
                         path, (unsigned long long)size, (unsigned long long)h->file_length);
    if (h->model_checksum != yalm_model_facts(s->model)->checksum)
        return unfit(path, "a session of another model", error);
    if (h->kv != (uint32_t)s->options.kv || h->activations != (uint32_t)(s->options.activations - YALM_ACTIVATIONS_INT16) ||
        h->n_kinds != (uint32_t)config_n_kinds(&s->model->config))
        return unfit(path, "a session with another --kv or --activations", error);
    if (h->offset_keys != has_offset_keys(s))
        return unfit(path, "a session whose keys are kept in another way, by an earlier version or with other text.sinks",
                     error);
    if (h->position < 0 || h->high_water < h->position || h->n_tokens != (uint64_t)h->position || h->floor < 0 ||
        h->floor > h->position)
        return unfit(path, "damaged: numbers that contradict each other", error);
    for (size_t i = 0; i < sizeof h->reserved / sizeof *h->reserved; i++)
        if (h->reserved[i] != 0)
            return unfit(path, "damaged: a reserved field that is not 0", error);
    if (h->position > context)
        return error_set(error, YALM_USAGE, "%s: a session of %lld tokens, and the context holds %lld (-T N makes it larger)",
                         path, (long long)h->position, (long long)context);
    return YALM_OK;
}

// Slots are positions until a ring comes round; from then on only the same ring will do.
static yalm_status check_kinds(struct stream *stream, const struct header *h, yalm_session *s, yalm_error *error)
{
    for (int i = 0; i < config_n_kinds(&s->model->config); i++) {
        struct ring_kind found;
        const struct ring_kind ours = kind_of(&s->kv[i]);
        if (get(stream, &found, sizeof found) != YALM_OK)
            return unfit(stream->path, "truncated", error);
        const bool straight = h->high_water <= found.capacity && h->high_water <= ours.capacity;
        if (!straight && memcmp(&found, &ours, sizeof found) != 0)
            return unfit(stream->path,
                         "a session with another context (-T), other machine.chunk or text.sinks, whose cache has come round",
                         error);
    }
    return YALM_OK;
}

static yalm_status read_tokens(struct stream *stream, const struct header *h, yalm_session *s, yalm_error *error)
{
    if (get(stream, s->history, h->n_tokens * sizeof *s->history) != YALM_OK)
        return unfit(stream->path, "truncated", error);
    for (uint32_t i = 0; i < h->n_tokens; i++)
        if (s->history[i] < 0 || s->history[i] >= s->model->config.vocab_size)
            return unfit(stream->path, "damaged: a token that the model has not", error);
    return YALM_OK;
}

static yalm_status read_rows(struct stream *stream, const struct header *h, yalm_session *s, yalm_error *error)
{
    struct stretch written[CONFIG_MAX_KINDS];
    find_written(s, h->position, h->high_water, written);
    *error = (yalm_error){0};
    const yalm_status status = s->backend->each_row(s->state, written, ROWS_WRITTEN, get, stream, error);
    if (error->text[0])
        return status;
    if (status != YALM_OK)
        return stream->ended ? unfit(stream->path, "truncated", error) : io_error(stream->path, error);
    if (HEADER_SIZE + stream->length != h->file_length || XXH3_64bits_digest(stream->hash) != h->body_checksum)
        return unfit(stream->path, "damaged: its checksum is not that of its contents", error);
    return YALM_OK;
}

static yalm_status read_file(struct stream *stream, yalm_session *s, yalm_error *error)
{
    struct header header;
    struct stat facts;
    long size = -1;
    if (fstat(fileno(stream->file), &facts) == 0 && !S_ISREG(facts.st_mode))
        return unfit(stream->path, "not a regular file", error);
    if (fseek(stream->file, 0, SEEK_END) == 0)
        size = ftell(stream->file);
    if (size < 0 || fseek(stream->file, 0, SEEK_SET) != 0)
        return io_error(stream->path, error);
    if (fread(&header, sizeof header, 1, stream->file) != 1)
        return unfit(stream->path, "not a session of yalm", error);
    yalm_status status = check_header(&header, (uint64_t)size, s, stream->path, error);
    status = status ?: check_kinds(stream, &header, s, error);
    status = status ?: read_tokens(stream, &header, s, error);
    status = status ?: read_rows(stream, &header, s, error);
    if (status != YALM_OK)
        return status;
    s->position = header.position;
    s->high_water = header.high_water;
    s->floor = config_recurs(&s->model->config) ? header.position : header.floor;
    return YALM_OK;
}

yalm_status yalm_session_load(yalm_session *s, const char *path, yalm_error *error)
{
    yalm_error own;
    error = error ? error : &own;
    yalm_status status = check_session(s, error);
    if (status != YALM_OK)
        return status;
    struct stream stream = {.path = path, .file = file_open_at_once(path, "r"), .hash = XXH3_createState()};
    s->position = s->high_water = s->floor = s->settled = 0; // what is read comes in place of what was there
    s->n_logits = 0;
    ahead_forget(s);
    mtp_forget(s);
    if (!stream.file)
        status = io_error(path, error);
    else if (!stream.hash || XXH3_64bits_reset(stream.hash) != XXH_OK)
        status = error_set(error, YALM_NO_MEMORY, "%s: no memory", path);
    status = status ?: read_file(&stream, s, error);
    if (stream.file)
        fclose(stream.file);
    XXH3_freeState(stream.hash);
    return status;
}
