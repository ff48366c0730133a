// Fuzzes the model file. The input's first byte picks what its rest is:
//
//     0   the file, as it is
//     1   header, metadata and data, whose lengths and metadata checksum are made right, so that mutations reach the table
//     2   edits of a valid model's metadata: records of (u16 position, u8 bytes to drop, u8 bytes to insert, those bytes)
//     3   the same on a mixture of experts
//
// Whatever it is, opening returns a model that can be used, or NULL with one line of text. The checks below hold for any model
// that was opened.
#include <stdlib.h>
#include <string.h>

#include "../model/model_builder.h"
#include "yalm.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LONGEST_INPUT = 1 << 20 };

static void check(bool true_always)
{
    if (!true_always)
        abort();
}

static void use(const yalm_model *model)
{
    const yalm_model_info *info = yalm_model_facts(model);
    check(info->name && info->architecture && info->weight_dtype && info->rope_type && info->tokenizer);
    check(info->n_layers >= 1 && info->n_heads % info->n_kv_heads == 0 && info->n_active_experts <= info->n_experts);
    check(info->bos >= -1 && info->bos < info->vocab_size && info->n_eos <= YALM_MAX_EOS &&
          info->tokenizer_vocab <= info->vocab_size);
    for (int i = 0; i < info->n_eos; i++)
        check(yalm_is_eos(model, info->eos[i]) && info->eos[i] >= 0 && info->eos[i] < info->vocab_size);
    uint64_t bytes = 0;
    for (int i = 0; i < yalm_model_n_tensors(model); i++) {
        const yalm_tensor_info t = yalm_model_tensor(model, i);
        check(t.offset <= info->file_bytes && t.bytes <= info->file_bytes - t.offset);
        yalm_model_verify_tensor(model, i, NULL); // reads all of it
        bytes += t.bytes;
    }
    check(info->weight_bytes <= bytes && bytes < info->file_bytes);
    int32_t *tokens;
    size_t n;
    yalm_error error;
    if (yalm_tokenize(model, "a b", 3, YALM_TOKENIZE_SPECIAL, &tokens, &n, &error) == YALM_OK) {
        for (size_t i = 0; i < n; i++)
            check(tokens[i] >= 0 && tokens[i] < info->vocab_size);
        free(tokens);
    }
}

static void open_file(const uint8_t *data, size_t size)
{
    char path[64];
    const int fd = file_of(data, size, path);
    yalm_error error = {.status = YALM_OK};
    yalm_model *model = yalm_model_open(path, NULL, &error);
    if (model)
        use(model);
    else
        check(error.status == YALM_BAD_MODEL && error.text[0] != 0 && !strchr(error.text, '\n'));
    yalm_model_close(model);
    close(fd);
}

// A header of ours around what the input has.
static void open_repaired(const uint8_t *data, size_t size)
{
    if (size < 2)
        return;
    const size_t wanted = data[0] | (size_t)data[1] << 8;
    data += 2;
    size -= 2;
    const size_t metadata = wanted < size ? wanted : size;
    const size_t data_offset = (BUILDER_HEADER + metadata + BUILDER_PAGE - 1) / BUILDER_PAGE * BUILDER_PAGE;
    struct built file = {.size = data_offset + size - metadata};
    file.data = calloc(1, file.size);
    check(file.data != NULL);
    memcpy(file.data, "YALM\r\n\x1a\n", 8);
    put_u32(file.data + AT_VERSION, 1);
    put_u32(file.data + AT_HEADER_SIZE, BUILDER_HEADER);
    put_u64(file.data + AT_FILE_LENGTH, file.size);
    put_u64(file.data + AT_METADATA, BUILDER_HEADER);
    put_u64(file.data + AT_DATA, data_offset);
    set_metadata(&file, (const char *)data, metadata);
    memcpy(file.data + data_offset, data + metadata, size - metadata);
    open_file(file.data, file.size);
    built_free(&file);
}

static void open_edited(const uint8_t *data, size_t size, int n_experts)
{
    struct built file = build(&(struct build_options){.n_experts = n_experts});
    char *text = metadata_text(&file);
    size_t length = strlen(text);
    const size_t room = get_u64(file.data + AT_DATA) - BUILDER_HEADER;
    text = realloc(text, room);
    check(text != NULL);
    for (size_t i = 0; i + 4 <= size;) {
        size_t at = data[i] | (size_t)data[i + 1] << 8, drop = data[i + 2], insert = data[i + 3];
        i += 4;
        at = at < length ? at : at % (length + 1);
        drop = drop < length - at ? drop : length - at;
        insert = insert < size - i ? insert : size - i;
        if (length - drop + insert > room)
            break;
        memmove(text + at + insert, text + at + drop, length - at - drop);
        memcpy(text + at, data + i, insert);
        length += insert - drop;
        i += insert;
    }
    set_metadata(&file, text, length);
    open_file(file.data, file.size);
    free(text);
    built_free(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > LONGEST_INPUT)
        return 0;
    switch (data[0] % 4) {
    case 0:
        open_file(data + 1, size - 1);
        break;
    case 1:
        open_repaired(data + 1, size - 1);
        break;
    default:
        open_edited(data + 1, size - 1, data[0] % 4 == 2 ? 0 : 3);
    }
    return 0;
}
