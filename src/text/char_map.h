// Characters that become others, as SentencePiece's normalisation has them: a table of strings.
#pragma once
#include "model/json.h"

struct char_map {
    struct char_pair *pairs; // (n), sorted by what they stand for
    size_t n, longest;
    bool begins[256]; // a byte that none begins with needs no search
};

// Reads {"pairs": [from, to, from, to, …]}, whose strings must outlive the map.
yalm_status char_map_open(struct char_map *map, const struct json_object *object, yalm_error *error);
void char_map_close(struct char_map *map);

// What the shortest string that text[0..length) begins with becomes; NULL: there is none.
const char *char_map_find(const struct char_map *map, const uint8_t *text, size_t length);
