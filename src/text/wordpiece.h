// WordPiece: see wordpiece.c.
#pragma once
#include "text/tokenizer_parts.h"

// Appends the ids of word[0..length). False: no memory.
bool wordpiece_word(struct ids *ids, const struct tokenizer *tokenizer, const uint8_t *word, size_t length);
