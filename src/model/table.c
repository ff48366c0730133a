// Where each tensor lies. No size is multiplied, added or compared without a check that it cannot wrap.

#include "model/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/json.h"
#include "util/checked.h"

enum { TENSOR_ALIGN = 64, MAX_NAME = 127 };

// One entry, and where it stands.
struct table_entry {
    const struct container *container;
    struct json_object object;
    struct tensor *tensor;
    yalm_error *error;
};

static yalm_status wrong(const struct table_entry *e, const char *what, uint64_t found, uint64_t expected)
{
    return error_set(e->error, YALM_BAD_MODEL, "%s: tensor '%s': %s: found %llu, expected %llu", e->object.path,
                     e->tensor->name, what, (unsigned long long)found, (unsigned long long)expected);
}

static yalm_status read_name(struct table_entry *e)
{
    const char *name;
    const yalm_status status = json_get_string(&name, &e->object, "name", e->error);
    if (status != YALM_OK)
        return status;
    size_t n = 0;
    while (n <= MAX_NAME && name[n] > 0x20 && name[n] < 0x7f)
        n++;
    if (n == 0 || name[n] != 0)
        return error_set(e->error, YALM_BAD_MODEL,
                         "%s: metadata: '%s.name': found '%s', expected 1 to %d printable ASCII characters", e->object.path,
                         e->object.where, json_show(name).text, MAX_NAME);
    e->tensor->name = name;
    return YALM_OK;
}

static yalm_status read_dtype(struct table_entry *e)
{
    const char *name;
    const yalm_status status = json_get_string(&name, &e->object, "dtype", e->error);
    if (status != YALM_OK)
        return status;
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (!strcmp(name, dtype_names[i])) {
            e->tensor->dtype = (enum dtype)i;
            return YALM_OK;
        }
    return error_set(e->error, YALM_BAD_MODEL, "%s: tensor '%s': dtype '%s' is not known to this version", e->object.path,
                     e->tensor->name, json_show(name).text);
}

static yalm_status read_shape(struct table_entry *e)
{
    struct tensor *t = e->tensor;
    const cJSON *shape;
    const yalm_status status = json_get_array(&shape, &e->object, "shape", e->error);
    if (status != YALM_OK)
        return status;
    for (int i = 0; i < MAX_RANK; i++)
        t->shape[i] = 1;
    for (const cJSON *dim = shape->child; dim; dim = dim->next, t->rank++) {
        if (t->rank == MAX_RANK)
            return error_set(e->error, YALM_BAD_MODEL, "%s: tensor '%s': shape: more than %d dimensions", e->object.path,
                             t->name, MAX_RANK);
        if (!json_integer_in(dim, 0, JSON_MAX_INTEGER - 1, &t->shape[t->rank]))
            return error_set(e->error, YALM_BAD_MODEL, "%s: tensor '%s': shape: dimension %d is not an integer of 0 or more",
                             e->object.path, t->name, t->rank);
    }
    if (t->rank == 0)
        return error_set(e->error, YALM_BAD_MODEL, "%s: tensor '%s': shape: no dimensions", e->object.path, t->name);
    return YALM_OK;
}

static yalm_status read_checksum(struct table_entry *e)
{
    const char *hex;
    const yalm_status status = json_get_string(&hex, &e->object, "xxh3", e->error);
    if (status != YALM_OK)
        return status;
    const size_t n = strspn(hex, "0123456789abcdef");
    if (n != 16 || hex[n] != 0)
        return error_set(e->error, YALM_BAD_MODEL, "%s: tensor '%s': xxh3: found '%s', expected 16 lower-case hex digits",
                         e->object.path, e->tensor->name, json_show(hex).text);
    e->tensor->checksum = strtoull(hex, NULL, 16);
    return YALM_OK;
}

// Computes the bytes of a shape and type; false where that overflows.
static bool tensor_bytes(const struct tensor *t, uint64_t *bytes)
{
    *bytes = dtype_sizes[t->dtype];
    int rank = t->rank;
    if (dtype_group_bytes[t->dtype]) {
        const uint64_t cols = (uint64_t)t->shape[--rank];
        const uint64_t groups = cols / QUANT_GROUP + (cols % QUANT_GROUP != 0);
        if (!mul_checked(groups, dtype_group_bytes[t->dtype], bytes))
            return false;
        *bytes += quant_scale_bytes(t->dtype, groups) + dtype_row_scale[t->dtype]; // groups are below 2^48
    } else if (t->dtype == DTYPE_BF12) {
        *bytes = bf12_row_bytes((int)t->shape[--rank]); // at most BF12_MOST_COLS
    } else if (dtype_row_scale[t->dtype]) {
        const uint64_t cols = (uint64_t)t->shape[--rank]; // below 2^53, as all of the table's numbers
        *bytes = cols * dtype_sizes[t->dtype] + dtype_row_scale[t->dtype];
    }
    for (int i = 0; i < rank; i++)
        if (!mul_checked(*bytes, (uint64_t)t->shape[i], bytes))
            return false;
    return true;
}

// Checks that offset and length agree with shape, type, the tensor before (ending at `end`), and the file.
static yalm_status read_place(struct table_entry *e, uint64_t end)
{
    struct tensor *t = e->tensor;
    int64_t offset, length;
    yalm_status status = json_get_integer(&offset, &e->object, "offset", 0, JSON_MAX_INTEGER - 1, e->error);
    status = status ?: json_get_integer(&length, &e->object, "length", 0, JSON_MAX_INTEGER - 1, e->error);
    if (status != YALM_OK)
        return status;
    t->offset = (uint64_t)offset;
    t->length = (uint64_t)length;
    uint64_t bytes;
    if ((dtype_group_bytes[t->dtype] || dtype_row_scale[t->dtype] || t->dtype == DTYPE_BF12) && t->rank != 2)
        return error_set(e->error, YALM_BAD_MODEL, "%s: tensor '%s': dtype %s: found %d dimensions, expected 2", e->object.path,
                         t->name, dtype_names[t->dtype], t->rank);
    if (dtype_in_eights(t->dtype) && t->shape[1] % QUANT_EIGHT_COLS != 0)
        return error_set(e->error, YALM_BAD_MODEL, "%s: tensor '%s': dtype %s: found %lld columns, expected a multiple of %d",
                         e->object.path, t->name, dtype_names[t->dtype], (long long)t->shape[1], QUANT_EIGHT_COLS);
    if (t->dtype == DTYPE_BF12 && t->shape[1] > BF12_MOST_COLS)
        return error_set(e->error, YALM_BAD_MODEL, "%s: tensor '%s': dtype bf12: found %lld columns, expected at most %d",
                         e->object.path, t->name, (long long)t->shape[1], BF12_MOST_COLS);
    if (!tensor_bytes(t, &bytes))
        return error_set(e->error, YALM_BAD_MODEL, "%s: tensor '%s': shape too large: its bytes overflow 64 bits",
                         e->object.path, t->name);
    if (bytes != t->length)
        return wrong(e, "length disagrees with shape and dtype", t->length, bytes);
    if (t->offset % TENSOR_ALIGN != 0)
        return error_set(e->error, YALM_BAD_MODEL, "%s: tensor '%s': offset not aligned: found %llu, expected a multiple of %d",
                         e->object.path, t->name, (unsigned long long)t->offset, TENSOR_ALIGN);
    const struct mapping *map = &e->container->mapping;
    if (!inside(t->offset, t->length, map->size))
        return wrong(e, "reaches past the end of the file: bytes", t->length,
                     map->size > t->offset ? map->size - t->offset : 0);
    if (t == e->container->tensors && t->offset != end)
        return wrong(e, "offset of the first tensor disagrees with the header's data offset", t->offset, end);
    if (t->offset < end)
        return error_set(e->error, YALM_BAD_MODEL,
                         "%s: tensor '%s': offset overlaps what lies before: found %llu, expected at least %llu",
                         e->object.path, t->name, (unsigned long long)t->offset, (unsigned long long)end);
    t->data = map->data + t->offset;
    return YALM_OK;
}

static yalm_status read_entry(struct table_entry *e, uint64_t end)
{
    static const char *const members[] = {"name", "dtype", "shape", "offset", "length", "xxh3"};
    if (!cJSON_IsObject(e->object.node))
        return error_set(e->error, YALM_BAD_MODEL, "%s: metadata: '%s' is not an object", e->object.path, e->object.where);
    yalm_status status = json_only(&e->object, members, 6, e->error);
    status = status ?: read_name(e);
    status = status ?: read_dtype(e);
    status = status ?: read_shape(e);
    status = status ?: read_place(e, end);
    status = status ?: read_checksum(e);
    return status;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(struct tensor *const *)a)->name, (*(struct tensor *const *)b)->name);
}

static yalm_status sort_names(struct container *c, yalm_error *error)
{
    for (int i = 0; i < c->n_tensors; i++)
        c->by_name[i] = &c->tensors[i];
    qsort(c->by_name, (size_t)c->n_tensors, sizeof *c->by_name, compare_names);
    for (int i = 1; i < c->n_tensors; i++)
        if (!strcmp(c->by_name[i - 1]->name, c->by_name[i]->name))
            return error_set(error, YALM_BAD_MODEL, "%s: tensor '%s' appears twice in the table", c->mapping.path,
                             c->by_name[i]->name);
    return YALM_OK;
}

yalm_status table_read(struct container *container, uint64_t data_offset, yalm_error *error)
{
    const struct json_object root = {container->mapping.path, "", container->metadata};
    const cJSON *table;
    const yalm_status status = json_get_array(&table, &root, "tensors", error);
    if (status != YALM_OK)
        return status;
    int n = 0; // JSON_MAX_VALUES bounds it
    for (const cJSON *node = table->child; node; node = node->next)
        n++;
    if (n == 0)
        return error_set(error, YALM_BAD_MODEL, "%s: the table names no tensors", root.path);
    container->tensors = calloc((size_t)n, sizeof *container->tensors);
    container->by_name = calloc((size_t)n, sizeof(struct tensor *));
    if (!container->tensors || !container->by_name)
        return error_set(error, YALM_NO_MEMORY, "%s: no memory for a table of %d tensors", root.path, n);
    container->n_tensors = n;

    uint64_t end = data_offset;
    struct tensor *tensor = container->tensors;
    for (const cJSON *node = table->child; node; node = node->next, tensor++) {
        char where[32];
        snprintf(where, sizeof where, "tensors[%d]", (int)(tensor - container->tensors));
        struct table_entry entry = {container, {root.path, where, node}, tensor, error};
        const yalm_status bad = read_entry(&entry, end);
        if (bad != YALM_OK)
            return bad;
        end = tensor->offset + tensor->length; // inside the file: cannot wrap
    }
    if (end != container->mapping.size)
        return error_set(error, YALM_BAD_MODEL, "%s: the last tensor ends at %llu, expected the file's end at %llu", root.path,
                         (unsigned long long)end, (unsigned long long)container->mapping.size);
    return sort_names(container, error);
}

const struct tensor *container_find(const struct container *container, const char *name)
{
    const struct tensor key = {.name = name}, *wanted = &key;
    struct tensor **found =
        bsearch(&wanted, container->by_name, (size_t)container->n_tensors, sizeof *container->by_name, compare_names);
    return found ? *found : NULL;
}
