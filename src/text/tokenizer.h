// Text to token ids and back, exactly as the model was trained: SentencePiece-style BPE with byte fallback, or byte-level
// BPE behind the model's own pre-tokenizer pattern.
#pragma once
#include "model/config.h"

struct tokenizer;

// Reads the metadata's `tokenizer` and the tensors `tokenizer.*`. *tokenizer is NULL for a model that has none ("type":
// "none"). YALM_BAD_MODEL names what is inconsistent. The container must outlive the tokenizer.
yalm_status tokenizer_open(struct tokenizer **tokenizer, const struct container *container, const struct model_config *config,
                           yalm_error *error);
void tokenizer_close(struct tokenizer *tokenizer); // NULL is welcome

const char *tokenizer_type(const struct tokenizer *tokenizer); // "spm", "bpe"; "none" for NULL
int tokenizer_n_pieces(const struct tokenizer *tokenizer);     // 0 for NULL
bool tokenizer_adds_bos(const struct tokenizer *tokenizer);

// As yalm_tokenize(), yalm_piece(), yalm_is_control(), yalm_stream_token() in yalm.h.
yalm_status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t length, int flags, int32_t **tokens,
                             size_t *n_tokens, yalm_error *error);
const char *tokenizer_piece(const struct tokenizer *tokenizer, int32_t token, size_t *length);
bool tokenizer_is_control(const struct tokenizer *tokenizer, int32_t token);
size_t tokenizer_stream(const struct tokenizer *tokenizer, yalm_stream *stream, int32_t token, bool spell_control, char *out);
