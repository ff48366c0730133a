// Fuzzes the file of codebooks. The input's first byte picks what its rest is: the file as it is; or a header's fields behind
// the magic bytes, and some of the centroids. Length, the model's checksum and the body's are made right then, so that
// mutations reach what lies behind them. Whatever it is, it is opened, with as many finite centroids as the model needs, or
// refused with one line of text.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "../model/model_builder.h"
#include "model/codebook.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LONGEST_INPUT = 1 << 16, FLOATS = TINY_LAYERS * TINY_KV_HEADS * TINY_HEAD_DIM * CODEBOOK_CENTROIDS };

static void check(bool true_always)
{
    if (!true_always)
        abort();
}

static void open_file(const uint8_t *data, size_t size, const struct container *model, const struct model_config *config)
{
    char path[64];
    const int fd = file_of(data, size, path);
    yalm_error error = {.status = YALM_OK};
    struct codebook book;
    const yalm_status status = codebook_open(&book, path, model, config, &error);
    if (status == YALM_OK) {
        check((book.d_sub == 1 || book.d_sub == 2 || book.d_sub == 4) && book.positions >= 1 && book.samples >= 1);
        for (int i = 0; i < FLOATS; i++)
            check(isfinite(book.centroids[i]));
        codebook_close(&book);
    } else {
        check(status == YALM_BAD_MODEL && error.status == status && error.text[0] != 0 && !strchr(error.text, '\n'));
    }
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || size > LONGEST_INPUT) // an empty file is refused before its bytes are looked at
        return 0;
    const struct container model = {.mapping = {.path = "model"}, .metadata_checksum = 0x1234567890abcdef};
    const struct model_config config = {
        .n_layers = TINY_LAYERS, .n_kv_heads = TINY_KV_HEADS, .head_dim = TINY_HEAD_DIM, .context_length = 16};
    if (data[0] % 2 == 0) {
        open_file(data + 1, size - 1, &model, &config);
        return 0;
    }
    const size_t length = size - 1 < 64 ? 64 : size - 1;
    uint8_t *file = calloc(1, length);
    check(file != NULL);
    memcpy(file, data + 1, size - 1);
    memcpy(file, "NMAD\r\n\x1a\n", 8);
    put_u64(file + 16, length);
    put_u64(file + 24, model.metadata_checksum);
    put_u64(file + 32, XXH3_64bits(file + 64, length - 64));
    open_file(file, length, &model, &config);
    free(file);
    return 0;
}
