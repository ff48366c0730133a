// Opening the file: header, metadata, then the table of tensors (table.c).
//
// What is checked here was true when the file was opened. The file stays mapped, so it must not change while it is in use. A
// program that truncates it turns the next touch of a lost page into SIGBUS; no check can prevent that, and the yalm program
// ends with a line. One that writes into it changes the weights, which container_verify() tells afterwards. This room's
// decisions are safe from that: it copies the header before it believes it, and reads the metadata from cJSON's copy.
// tools/convert.py never writes into a finished file; it renames a new one into its place, and a mapping keeps the old one.

#include "model/container.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "model/foreign.h"
#include "model/json.h"
#include "model/table.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file is little-endian, and computed on where it lies");

enum { FORMAT_VERSION = 2, HEADER_SIZE = 64, DATA_ALIGN = 4096, MAX_METADATA = 256 << 20 };

static const char magic[8] = {'Y', 'A', 'L', 'M', '\r', '\n', '\x1a', '\n'};

struct container_header { // as it lies in the file
    char magic[8];
    uint32_t version, header_size;
    uint64_t file_length, metadata_offset, metadata_length, metadata_checksum, data_offset, reserved;
};
_Static_assert(sizeof(struct container_header) == HEADER_SIZE, "no padding");

static yalm_status bad_number(const char *path, const char *what, uint64_t found, const char *expected, yalm_error *error)
{
    return error_set(error, YALM_BAD_MODEL, "%s: header: %s: found %llu, expected %s", path, what, (unsigned long long)found,
                     expected);
}

// The beginning of the file: ours at all, and of a version that we know?
static yalm_status read_header(struct container_header *header, const struct mapping *map, yalm_error *error)
{
    const size_t n = map->size < sizeof magic ? map->size : sizeof magic;
    if (memcmp(map->data, magic, n) != 0) {
        const char *what = foreign_file(map->data, map->size);
        if (what)
            return error_set(error, YALM_BAD_MODEL, "%s: %s", map->path, what);
        return error_set(error, YALM_BAD_MODEL, "%s: not a model of yalm: it does not begin with the magic bytes of one",
                         map->path);
    }
    if (map->size < HEADER_SIZE)
        return error_set(error, YALM_BAD_MODEL, "%s: too short: found %llu bytes, the header alone has %d", map->path,
                         (unsigned long long)map->size, HEADER_SIZE);
    memcpy(header, map->data, sizeof *header);
    if (header->version == 0 || header->version > FORMAT_VERSION)
        return error_set(error, YALM_BAD_MODEL,
                         "%s: format version %u found, this yalm reads versions up to %d: convert the model again", map->path,
                         (unsigned)header->version, FORMAT_VERSION);
    return YALM_OK;
}

static yalm_status check_header(const struct container_header *h, const struct mapping *map, yalm_error *error)
{
    if (h->header_size != HEADER_SIZE)
        return bad_number(map->path, "header size", h->header_size, "64", error);
    if (h->file_length != map->size)
        return error_set(error, YALM_BAD_MODEL, "%s: %s: found %llu bytes, expected %llu", map->path,
                         h->file_length > map->size ? "truncated" : "longer than its header says",
                         (unsigned long long)map->size, (unsigned long long)h->file_length);
    if (h->metadata_offset != HEADER_SIZE)
        return bad_number(map->path, "metadata offset", h->metadata_offset, "64", error);
    if (h->metadata_length == 0 || h->metadata_length > MAX_METADATA)
        return bad_number(map->path, "metadata length", h->metadata_length, "1 to 268435456", error);
    if (h->metadata_length > map->size - HEADER_SIZE)
        return error_set(error, YALM_BAD_MODEL,
                         "%s: header: metadata reach past the end of the file: found %llu bytes, %llu are left", map->path,
                         (unsigned long long)h->metadata_length, (unsigned long long)(map->size - HEADER_SIZE));
    if (h->data_offset % DATA_ALIGN != 0 || h->data_offset < HEADER_SIZE + h->metadata_length || h->data_offset > map->size)
        return bad_number(map->path, "data offset", h->data_offset,
                          "a multiple of 4096 between the metadata and the end of the file", error);
    if (h->reserved != 0)
        return bad_number(map->path, "reserved field", h->reserved, "0", error);
    return YALM_OK;
}

static yalm_status read_metadata(struct container *container, const struct container_header *h, yalm_error *error)
{
    const char *path = container->mapping.path;
    const char *text = (const char *)container->mapping.data + HEADER_SIZE;
    container->metadata_checksum = XXH3_64bits(text, h->metadata_length);
    if (container->metadata_checksum != h->metadata_checksum)
        return error_set(error, YALM_BAD_MODEL, "%s: metadata damaged: checksum found %016llx, expected %016llx", path,
                         (unsigned long long)container->metadata_checksum, (unsigned long long)h->metadata_checksum);
    yalm_status status = json_parse(&container->metadata, text, h->metadata_length, path, error);
    if (status != YALM_OK)
        return status;

    static const char *const members[] = {"config", "tokenizer", "chat_template", "chat", "source", "tensors"};
    const struct json_object root = {path, "", container->metadata};
    struct json_object ignored;
    status = json_only(&root, members, 6, error);
    status = status ?: json_get_object(&ignored, &root, "config", "config", error);
    status = status ?: json_get_object(&ignored, &root, "tokenizer", "tokenizer", error);
    status = status ?: json_get_object(&ignored, &root, "source", "source", error);
    return status;
}

yalm_status container_open(struct container *container, const char *path, bool huge_pages, yalm_error *error)
{
    *container = (struct container){0};
    char *copy = strdup(path);
    if (!copy)
        return error_set(error, YALM_NO_MEMORY, "%s: no memory", path);
    struct container_header header = {0};
    yalm_status status = mapping_open(&container->mapping, copy, huge_pages, error);
    container->mapping.path = copy;
    status = status ?: read_header(&header, &container->mapping, error);
    status = status ?: check_header(&header, &container->mapping, error);
    status = status ?: read_metadata(container, &header, error);
    status = status ?: table_read(container, header.data_offset, error);
    if (status != YALM_OK)
        container_close(container);
    return status;
}

void container_close(struct container *container)
{
    char *path = (char *)container->mapping.path; // ours: container_open() copied it
    cJSON_Delete(container->metadata);
    free(container->by_name);
    free(container->tensors);
    mapping_close(&container->mapping);
    free(path);
    *container = (struct container){0};
}

yalm_status container_verify(const struct container *container, const struct tensor *tensor, yalm_error *error)
{
    const char *path = container->mapping.path;
    const uint64_t found = XXH3_64bits(tensor->data, tensor->length);
    if (found != tensor->checksum)
        return error_set(error, YALM_BAD_MODEL, "%s: tensor '%s' damaged: checksum found %016llx, expected %016llx", path,
                         tensor->name, (unsigned long long)found, (unsigned long long)tensor->checksum);
    const struct tensor *before = tensor == container->tensors ? NULL : tensor - 1;
    for (uint64_t at = before ? before->offset + before->length : tensor->offset; at < tensor->offset; at++)
        if (container->mapping.data[at] != 0)
            return error_set(error, YALM_BAD_MODEL, "%s: the byte at %llu, before tensor '%s': found %d, expected 0", path,
                             (unsigned long long)at, tensor->name, container->mapping.data[at]);
    return YALM_OK;
}
