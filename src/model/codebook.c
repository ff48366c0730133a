#include "model/codebook.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "util/checked.h"
#include "util/error.h"

enum { CODEBOOK_VERSION = 1, CODEBOOK_HEADER = 64 };

static const char magic[8] = {'N', 'M', 'A', 'D', '\r', '\n', '\x1a', '\n'};

struct codebook_header { // as it lies in the file
    char magic[8];
    uint32_t version, header_size;
    uint64_t file_length, model_checksum, body_checksum;
    uint32_t n_layers, n_kv_heads, head_dim, d_sub, positions, samples;
};
_Static_assert(sizeof(struct codebook_header) == CODEBOOK_HEADER, "no padding");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file is little-endian, and computed on where it lies");

char *codebook_default_path(const char *model_path)
{
    const char *name = strrchr(model_path, '/');
    const char *dot = strrchr(name ? name + 1 : model_path, '.');
    const int length = (int)(dot && dot > (name ? name + 1 : model_path) ? (size_t)(dot - model_path) : strlen(model_path));
    char *path;
    return asprintf(&path, "%.*s.nomad", length, model_path) < 0 ? NULL : path;
}

// ------------------------------------------------------------------------------------------ reading

static yalm_status bad_number(const char *path, const char *what, uint64_t found, uint64_t expected, yalm_error *error)
{
    return error_set(error, YALM_BAD_MODEL, "%s: %s: found %llu, expected %llu", path, what, (unsigned long long)found,
                     (unsigned long long)expected);
}

static bool body_floats(const struct model_config *config, uint64_t *n)
{
    return mul_checked((uint64_t)config_far(config).n_layers * (uint64_t)config_all_kv_heads(config),
                       codebook_head_floats(config), n) &&
           *n <= (UINT64_MAX - CODEBOOK_HEADER) / sizeof(float);
}

static yalm_status check_header(const struct codebook_header *h, const struct mapping *map, const struct container *model,
                                const struct model_config *config, yalm_error *error)
{
    const char *path = map->path;
    const struct far_shape far = config_far(config);
    if (h->version != CODEBOOK_VERSION)
        return bad_number(path, "version of the codebooks", h->version, CODEBOOK_VERSION, error);
    if (h->header_size != CODEBOOK_HEADER)
        return bad_number(path, "header size", h->header_size, CODEBOOK_HEADER, error);
    if (h->file_length != map->size)
        return error_set(error, YALM_BAD_MODEL, "%s: %s: found %llu bytes, expected %llu", path,
                         h->file_length > map->size ? "truncated" : "longer than its header says",
                         (unsigned long long)map->size, (unsigned long long)h->file_length);
    if (h->model_checksum != model->metadata_checksum)
        return error_set(
            error, YALM_BAD_MODEL, "%s: codebooks of another model: made for checksum %016llx, that of %s is %016llx", path,
            (unsigned long long)h->model_checksum, model->mapping.path, (unsigned long long)model->metadata_checksum);
    const struct {
        const char *what;
        uint32_t found;
        int expected;
    } numbers[] = {{"layers", h->n_layers, far.n_layers},
                   {"KV heads", h->n_kv_heads, config_all_kv_heads(config)},
                   {"head_dim", h->head_dim, far.head_dim}};
    for (int i = 0; i < 3; i++)
        if (numbers[i].found != (uint32_t)numbers[i].expected)
            return bad_number(path, numbers[i].what, numbers[i].found, (uint64_t)numbers[i].expected, error);
    if ((h->d_sub != 1 && h->d_sub != 2 && h->d_sub != 4) || far.head_dim % (int)h->d_sub != 0)
        return error_set(error, YALM_BAD_MODEL, "%s: d_sub: found %u, expected 1, 2 or 4, a divisor of head_dim %d", path,
                         (unsigned)h->d_sub, far.head_dim);
    if (h->positions < 1 || h->positions > INT32_MAX || h->samples < 1 || h->samples > INT32_MAX)
        return error_set(error, YALM_BAD_MODEL, "%s: positions and samples: found %u and %u, expected 1 to 2147483647", path,
                         (unsigned)h->positions, (unsigned)h->samples);
    uint64_t floats;
    if (!body_floats(config, &floats) || h->file_length != CODEBOOK_HEADER + floats * sizeof(float))
        return bad_number(path, "file length", h->file_length, CODEBOOK_HEADER + floats * sizeof(float), error);
    return YALM_OK;
}

static yalm_status check_body(const float *centroids, uint64_t n, const struct codebook_header *h, const char *path,
                              yalm_error *error)
{
    const uint64_t found = XXH3_64bits(centroids, n * sizeof(float));
    if (found != h->body_checksum)
        return error_set(error, YALM_BAD_MODEL, "%s: damaged: checksum found %016llx, expected %016llx", path,
                         (unsigned long long)found, (unsigned long long)h->body_checksum);
    for (uint64_t i = 0; i < n; i++)
        if (!isfinite(centroids[i]))
            return error_set(error, YALM_BAD_MODEL, "%s: centroid %llu of %llu is not a finite number", path,
                             (unsigned long long)i, (unsigned long long)n);
    return YALM_OK;
}

static yalm_status read_file(struct codebook *book, const struct container *model, const struct model_config *config,
                             yalm_error *error)
{
    const struct mapping *map = &book->mapping;
    if (map->size < sizeof magic || memcmp(map->data, magic, sizeof magic) != 0)
        return error_set(error, YALM_BAD_MODEL, "%s: not a file of codebooks (yalm MODEL -m calibrate makes one)", map->path);
    if (map->size < CODEBOOK_HEADER)
        return bad_number(map->path, "too short: bytes", map->size, CODEBOOK_HEADER, error);
    struct codebook_header header;
    memcpy(&header, map->data, sizeof header);
    const yalm_status status = check_header(&header, map, model, config, error);
    if (status != YALM_OK)
        return status;
    book->d_sub = (int)header.d_sub;
    book->positions = (int)header.positions;
    book->samples = (int)header.samples;
    book->centroids = (const float *)(map->data + CODEBOOK_HEADER);
    return check_body(book->centroids, (map->size - CODEBOOK_HEADER) / sizeof(float), &header, map->path, error);
}

yalm_status codebook_open(struct codebook *book, const char *path, const struct container *model,
                          const struct model_config *config, yalm_error *error)
{
    *book = (struct codebook){.path = strdup(path)};
    if (!book->path)
        return error_set(error, YALM_NO_MEMORY, "%s: no memory", path);
    yalm_status status = mapping_open(&book->mapping, book->path, false, error);
    status = status ?: read_file(book, model, config, error);
    if (status != YALM_OK)
        codebook_close(book);
    return status;
}

yalm_status codebook_find(struct codebook *book, const char *named, const struct container *model,
                          const struct model_config *config, yalm_error *error)
{
    *book = (struct codebook){0};
    char *path = named ? strdup(named) : codebook_default_path(model->mapping.path);
    if (!path)
        return error_set(error, YALM_NO_MEMORY, "out of memory for a session");
    const bool missing = access(path, F_OK) != 0 && errno == ENOENT;
    const yalm_status status =
        missing ? error_set(error, YALM_FAILED,
                            "%s: No such file or directory; `yalm MODEL -m calibrate -f TEXT` learns a model's codebooks", path)
                : codebook_open(book, path, model, config, error);
    free(path);
    return status;
}

void codebook_close(struct codebook *book)
{
    mapping_close(&book->mapping);
    free(book->path);
    *book = (struct codebook){0};
}

// ------------------------------------------------------------------------------------------ writing

static bool holds_codebooks(FILE *file)
{
    char begin[sizeof magic];
    return fread(begin, sizeof begin, 1, file) == 1 && memcmp(begin, magic, sizeof magic) == 0;
}

yalm_status codebook_create(struct new_file *writer, const char *path, yalm_error *error)
{
    return new_file_create(writer, path, holds_codebooks, "codebooks", error);
}

yalm_status codebook_write(struct new_file *writer, const struct codebook *book, const struct container *model,
                           const struct model_config *config, yalm_error *error)
{
    const struct far_shape far = config_far(config);
    uint64_t n;
    if (!body_floats(config, &n))
        return error_set(error, YALM_FAILED, "%s: too large", writer->path);
    struct codebook_header header = {
        .version = CODEBOOK_VERSION,
        .header_size = CODEBOOK_HEADER,
        .file_length = CODEBOOK_HEADER + n * sizeof(float),
        .model_checksum = model->metadata_checksum,
        .body_checksum = XXH3_64bits(book->centroids, n * sizeof(float)),
        .n_layers = (uint32_t)far.n_layers,
        .n_kv_heads = (uint32_t)far.n_kv_heads,
        .head_dim = (uint32_t)far.head_dim,
        .d_sub = (uint32_t)book->d_sub,
        .positions = (uint32_t)book->positions,
        .samples = (uint32_t)book->samples,
    };
    memcpy(header.magic, magic, sizeof magic);
    if (fwrite(&header, sizeof header, 1, writer->file) != 1 || fwrite(book->centroids, sizeof(float), n, writer->file) != n)
        return error_set(error, YALM_FAILED, "%s: %s", writer->path, strerror(errno));
    return YALM_OK;
}
