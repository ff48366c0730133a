// See char_map.h.
#include "text/char_map.h"

#include <stdlib.h>
#include <string.h>

struct char_pair {
    const char *from, *to;
};

static int by_from(const void *a, const void *b)
{
    return strcmp(((const struct char_pair *)a)->from, ((const struct char_pair *)b)->from);
}

yalm_status char_map_open(struct char_map *map, const struct json_object *object, yalm_error *error)
{
    const cJSON *list, *node;
    yalm_status status = json_get_array(&list, object, "pairs", error);
    if (status)
        return status;
    map->pairs = calloc((size_t)cJSON_GetArraySize(list) / 2 + 1, sizeof *map->pairs);
    if (!map->pairs)
        return error_set(error, YALM_NO_MEMORY, "tokenizer: no memory for a table of characters");
    for (node = list->child; node; node = node->next->next) {
        if (!node->next || !cJSON_IsString(node) || !cJSON_IsString(node->next) || !*node->valuestring)
            return error_set(error, YALM_BAD_MODEL, "%s: metadata: '%s.pairs': expected pairs of strings", object->path,
                             object->where);
        map->pairs[map->n++] = (struct char_pair){node->valuestring, node->next->valuestring};
        const size_t length = strlen(node->valuestring);
        map->longest = length > map->longest ? length : map->longest;
        map->begins[(uint8_t)*node->valuestring] = true;
    }
    qsort(map->pairs, map->n, sizeof *map->pairs, by_from);
    return YALM_OK;
}

void char_map_close(struct char_map *map)
{
    free(map->pairs);
}

// How a pair's string stands to text[0..length).
static int compare(const char *from, const uint8_t *text, size_t length)
{
    const int order = strncmp(from, (const char *)text, length);
    return order ? order : from[length] != 0;
}

const char *char_map_find(const struct char_map *map, const uint8_t *text, size_t length)
{
    if (length == 0 || !map->begins[text[0]])
        return NULL;
    for (size_t n = 1; n <= length && n <= map->longest && text[n - 1]; n++) // strings of the table have no NUL
        for (size_t low = 0, high = map->n; low < high;) {
            const size_t middle = low + (high - low) / 2;
            const int order = compare(map->pairs[middle].from, text, n);
            if (order == 0)
                return map->pairs[middle].to;
            if (order < 0)
                low = middle + 1;
            else
                high = middle;
        }
    return NULL;
}
