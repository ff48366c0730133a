// Reads and checks the tensors tokenizer.bytes, .offsets and .kinds, and indexes the pieces.

#include "text/vocabulary.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

const struct tensor *tokenizer_tensor(const struct container *container, const char *name, enum dtype dtype, int64_t rows,
                                      int64_t cols, yalm_error *error)
{
    const struct tensor *tensor = container_find(container, name);
    const char *path = container->mapping.path;
    if (!tensor)
        error_set(error, YALM_BAD_MODEL, "%s: tensor '%s' is missing", path, name);
    else if (tensor->dtype != dtype)
        error_set(error, YALM_BAD_MODEL, "%s: tensor '%s' has type %s, expected %s", path, name, dtype_names[tensor->dtype],
                  dtype_names[dtype]);
    else if (tensor->rank != (cols ? 2 : 1) || (rows >= 0 && tensor->shape[0] != rows) || (cols && tensor->shape[1] != cols))
        error_set(error, YALM_BAD_MODEL, "%s: tensor '%s' has %d dimensions and %lld rows, expected %d and %lld", path, name,
                  tensor->rank, (long long)tensor->shape[0], cols ? 2 : 1, (long long)(rows < 0 ? tensor->shape[0] : rows));
    else
        return tensor;
    return NULL;
}

static uint32_t hash(const uint8_t *bytes, size_t length)
{
    return (uint32_t)XXH3_64bits(bytes, length);
}

int32_t vocabulary_find(const struct vocabulary *vocabulary, const uint8_t *bytes, size_t length)
{
    if (length == 0 || length > vocabulary->longest)
        return -1;
    for (uint32_t i = hash(bytes, length);; i++) {
        const int32_t id = vocabulary->slots[i & vocabulary->mask];
        if (id < 0)
            return -1;
        size_t n;
        const uint8_t *piece = vocabulary_piece(vocabulary, id, &n);
        if (n == length && !memcmp(piece, bytes, n))
            return id;
    }
}

static yalm_status bad(yalm_error *error, const struct container *container, const char *what, int id, long long found,
                       long long expected)
{
    return error_set(error, YALM_BAD_MODEL, "%s: tokenizer: %s of token %d: found %lld, expected at most %lld",
                     container->mapping.path, what, id, found, expected);
}

// Offsets rise from 0 to the end of the bytes, pieces have a sensible length, kinds are known.
static yalm_status check_pieces(const struct vocabulary *v, const struct container *container, uint64_t n_bytes,
                                yalm_error *error)
{
    if (v->offsets[0] != 0 || v->offsets[v->n] != n_bytes)
        return error_set(error, YALM_BAD_MODEL, "%s: tokenizer.offsets run from %u to %u, expected 0 to %llu",
                         container->mapping.path, v->offsets[0], v->offsets[v->n], (unsigned long long)n_bytes);
    for (int id = 0; id < v->n; id++) {
        if (v->offsets[id] > v->offsets[id + 1] || v->offsets[id + 1] > n_bytes)
            return error_set(error, YALM_BAD_MODEL, "%s: tokenizer.offsets of token %d run from %u to %u of %llu bytes",
                             container->mapping.path, id, v->offsets[id], v->offsets[id + 1], (unsigned long long)n_bytes);
        const uint32_t length = v->offsets[id + 1] - v->offsets[id];
        if (length > YALM_MAX_PIECE)
            return bad(error, container, "length", id, length, YALM_MAX_PIECE);
        if (v->kinds[id] >= PIECE_KINDS)
            return bad(error, container, "kind", id, v->kinds[id], PIECE_KINDS - 1);
        if (v->flags && v->flags[id] > PIECE_FLAGS)
            return bad(error, container, "flags", id, v->flags[id], PIECE_FLAGS);
        if (length == 0 && v->kinds[id] != PIECE_UNUSED)
            return error_set(error, YALM_BAD_MODEL, "%s: tokenizer: token %d is empty", container->mapping.path, id);
        if (v->kinds[id] == PIECE_BYTE && length != 1)
            return bad(error, container, "length of the byte", id, length, 1);
    }
    return YALM_OK;
}

static yalm_status index_pieces(struct vocabulary *v, const struct container *container, yalm_error *error)
{
    uint32_t n_slots = 1024;
    while (n_slots < 2 * (uint32_t)v->n)
        n_slots *= 2;
    v->slots = malloc(n_slots * sizeof *v->slots);
    if (!v->slots)
        return error_set(error, YALM_NO_MEMORY, "tokenizer: no memory for %d pieces", v->n);
    v->mask = n_slots - 1;
    memset(v->slots, 0xff, n_slots * sizeof *v->slots);
    for (int id = 0; id < v->n; id++) {
        if (v->kinds[id] != PIECE_NORMAL)
            continue;
        size_t length;
        const uint8_t *piece = vocabulary_piece(v, id, &length);
        if (length > v->longest)
            v->longest = length;
        const int32_t twin = vocabulary_find(v, piece, length);
        if (twin >= 0)
            return error_set(error, YALM_BAD_MODEL, "%s: tokenizer: tokens %d and %d have the same bytes",
                             container->mapping.path, twin, id);
        for (size_t i = 1; i < length; i++)
            v->before_space[piece[i - 1]] |= piece[i] == ' ';
        uint32_t slot = hash(piece, length);
        while (v->slots[slot & v->mask] >= 0)
            slot++;
        v->slots[slot & v->mask] = id;
    }
    return YALM_OK;
}

static yalm_status index_bytes(struct vocabulary *v, const struct container *container, enum piece_kind kind, yalm_error *error)
{
    memset(v->byte_ids, 0xff, sizeof v->byte_ids);
    for (int id = 0; id < v->n; id++) {
        if (v->kinds[id] == PIECE_BYTE && kind != PIECE_BYTE)
            return bad(error, container, "kind", id, PIECE_BYTE, PIECE_USER_DEFINED);
        size_t length;
        const uint8_t *piece = vocabulary_piece(v, id, &length);
        if (v->kinds[id] != kind || length != 1)
            continue;
        if (v->byte_ids[piece[0]] >= 0)
            return error_set(error, YALM_BAD_MODEL, "%s: tokenizer: tokens %d and %d are the same byte",
                             container->mapping.path, v->byte_ids[piece[0]], id);
        v->byte_ids[piece[0]] = id;
    }
    for (int byte = 0; byte < 256 && kind == PIECE_BYTE; byte++)
        if (v->byte_ids[byte] < 0)
            return error_set(error, YALM_BAD_MODEL, "%s: tokenizer: no token for byte 0x%02X", container->mapping.path, byte);
    return YALM_OK;
}

yalm_status vocabulary_open(struct vocabulary *vocabulary, const struct container *container, enum piece_kind byte_kind,
                            yalm_error *error)
{
    const int n = vocabulary->n;
    *vocabulary = (struct vocabulary){.n = n};
    const struct tensor *bytes = tokenizer_tensor(container, "tokenizer.bytes", DTYPE_U8, -1, 0, error);
    const struct tensor *offsets = tokenizer_tensor(container, "tokenizer.offsets", DTYPE_U32, (int64_t)n + 1, 0, error);
    const struct tensor *kinds = tokenizer_tensor(container, "tokenizer.kinds", DTYPE_U8, n, 0, error);
    if (!bytes || !offsets || !kinds)
        return YALM_BAD_MODEL;
    vocabulary->bytes = bytes->data;
    vocabulary->offsets = offsets->data;
    vocabulary->kinds = kinds->data;
    if (container_find(container, "tokenizer.flags")) {
        const struct tensor *flags = tokenizer_tensor(container, "tokenizer.flags", DTYPE_U8, n, 0, error);
        if (!flags)
            return YALM_BAD_MODEL;
        vocabulary->flags = flags->data;
    }
    yalm_status status = check_pieces(vocabulary, container, bytes->length, error);
    if (!status)
        status = index_pieces(vocabulary, container, error);
    if (!status)
        status = index_bytes(vocabulary, container, byte_kind, error);
    return status;
}

void vocabulary_close(struct vocabulary *vocabulary)
{
    free(vocabulary->slots);
}
