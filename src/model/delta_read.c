// Reads `delta` of the metadata: the sizes of a recurrent layer, and what makes it a scan.

#include <float.h>

#include "model/config.h"
#include "model/json.h"

enum {
    MAX_DELTA_HEADS = 1 << 12, // three for each token of a batch are numbered by an int
    MAX_HEAD_DIM = 1 << 12,
};

static yalm_status read_scan(struct delta_config *delta, const struct json_object *of, yalm_error *error)
{
    static const char *const keys[] = {"conv_bias", "norm_groups", "norm_first", "norm_eps", "dt_min", "dt_max"};
    struct scan_config *scan = &delta->scan;
    struct json_object object;
    int64_t groups = 0;
    double eps = 0, bounds[2] = {0, 0};
    yalm_status status = json_get_object(&object, of, "scan", "config.kinds.delta.scan", error);
    status = status ?: json_only(&object, keys, sizeof keys / sizeof *keys, error);
    status = status ?: json_get_bool(&scan->conv_bias, &object, "conv_bias", error);
    status = status ?: json_get_integer(&groups, &object, "norm_groups", 0, MAX_DELTA_HEADS, error);
    if (status == YALM_OK && groups > 0)
        status = json_get_bool(&scan->norm_first, &object, "norm_first", error);
    if (status == YALM_OK && groups > 0)
        status = json_get_number(&eps, &object, "norm_eps", FLT_MIN, 1, error);
    for (int i = 0; i < 2 && status == YALM_OK; i++)
        if (json_has(&object, keys[4 + i]))
            status = json_get_number(&bounds[i], &object, keys[4 + i], 1e-9, 1e9, error);
    scan->there = true;
    scan->norm_groups = (int)groups;
    scan->norm_eps = (float)eps;
    scan->dt_min = (float)bounds[0];
    scan->dt_max = (float)bounds[1];
    if (status == YALM_OK && ((groups > 0 && delta->n_value_heads * delta->value_dim % groups != 0) || delta->tiled))
        return error_set(
            error, YALM_BAD_MODEL,
            "%s: metadata: 'config.kinds.delta.scan': expected 'norm_groups' that divide all heads' values, and no "
            "'tiled' beside it",
            of->path);
    return status;
}

yalm_status delta_read(struct delta_config *delta, const struct json_object *kind, yalm_error *error)
{
    static const char *const keys[] = {"n_key_heads", "n_value_heads", "key_dim", "value_dim",
                                       "conv_width",  "tiled",         "scan",    "kda_rank"};
    const struct {
        int min, max, *value;
    } sizes[] = {{1, MAX_DELTA_HEADS, &delta->n_key_heads},
                 {1, MAX_DELTA_HEADS, &delta->n_value_heads},
                 {1, MAX_HEAD_DIM, &delta->key_dim},
                 {1, MAX_HEAD_DIM, &delta->value_dim},
                 {2, CONFIG_MAX_CONV, &delta->conv_width}};
    struct json_object object;
    yalm_status status = json_get_object(&object, kind, "delta", "config.kinds.delta", error);
    status = status ?: json_only(&object, keys, sizeof keys / sizeof *keys, error);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && status == YALM_OK; i++) {
        int64_t value = 0;
        status = json_get_integer(&value, &object, keys[i], sizes[i].min, sizes[i].max, error);
        *sizes[i].value = (int)value;
    }
    if (status == YALM_OK && json_has(&object, "tiled"))
        status = json_get_bool(&delta->tiled, &object, "tiled", error);
    int64_t rank = 0;
    if (status == YALM_OK && json_has(&object, "kda_rank"))
        status = json_get_integer(&rank, &object, "kda_rank", 1, CONFIG_MAX_DIM, error);
    delta->kda_rank = (int)rank;
    if (status != YALM_OK)
        return status;
    if (rank > 0 && (delta->n_value_heads != delta->n_key_heads || delta->tiled || json_has(&object, "scan")))
        return error_set(error, YALM_BAD_MODEL,
                         "%s: metadata: 'config.kinds.delta.kda_rank': expected as many key heads as value heads, and neither "
                         "'tiled' nor 'scan' beside it",
                         kind->path);
    if (delta->n_value_heads % delta->n_key_heads != 0)
        return error_set(error, YALM_BAD_MODEL,
                         "%s: metadata: 'config.kinds.delta.n_value_heads': found %d, expected a multiple of n_key_heads = %d",
                         kind->path, delta->n_value_heads, delta->n_key_heads);
    if ((int64_t)delta->n_key_heads * delta->key_dim > CONFIG_MAX_DIM ||
        (int64_t)delta->n_value_heads * delta->value_dim > CONFIG_MAX_DIM)
        return error_set(error, YALM_BAD_MODEL,
                         "%s: metadata: 'config.kinds.delta': heads times 'key_dim' or 'value_dim': expected at most %d",
                         kind->path, CONFIG_MAX_DIM);
    return json_has(&object, "scan") ? read_scan(delta, &object, error) : YALM_OK;
}
