// libFuzzer entry: the first byte picks a tokenizer; the next is how many bytes of its tensors, its ids or its metadata to
// change, and how; the rest is a text. An unchanged tokenizer must open and give every text back; a changed one may be
// refused, and where it is not, nothing may break.

#include "text/small_tokenizer.h"

static const char *const pattern_lists[] = {
    "[\"'s| ?\\\\p{L}+|\\\\p{N}{1,3}| ?[^\\\\s\\\\p{L}\\\\p{N}]+|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"]",
    "[\"\\\\p{N}\", \"[a-z]+|\\\\s\"]",
    "[]",
};

static const char normalizers[] =
    "\"normalizers\": [{\"type\": \"nfkc\"}, {\"type\": \"lowercase\"}, {\"type\": \"nfd\"}, {\"type\": \"strip_accents\"}, "
    "{\"type\": \"replace\", \"pattern\": \"\\\\s+\", \"text\": \" ab\"}, {\"type\": \"prepend\", \"text\": \"x\"}, "
    "{\"type\": \"strip\", \"left\": true, \"right\": true}, {\"type\": \"nfc\"}]";

static void build(struct small_tokenizer *small, unsigned kind)
{
    static const char *const prefixes[] = {"never", "first", "segments"};
    if (kind & 1)
        small_bpe(small, pattern_lists[kind / 2 % 3], kind & 8);
    else
        small_spm(small, kind & 8 ? "score" : "rank", prefixes[kind / 2 % 3], kind & 16, kind & 32);
    if (kind & 64)
        small_facts(small, normalizers);
    if (kind & 128)
        small_flags(small, (uint8_t)(kind / 2 % 16));
}

static void change(struct small_tokenizer *small, const uint8_t *edit) // where: two bytes, what, value
{
    const size_t at = (size_t)edit[1] << 8 | edit[2];
    struct tensor *tensor = &small->tensors[edit[0] % small->container.n_tensors];
    switch (edit[0] / 8 % 5) {
    case 0:
        small->metadata[at % strlen(small->metadata)] = (char)(edit[3] ? edit[3] : ' ');
        break;
    case 1:
        small->config.bos = (int32_t)at - 4;
        small->config.eos[0] = edit[3];
        break;
    case 2: // not the number of rows: the container has checked that it agrees with the length
        tensor->dtype = (enum dtype)(edit[3] % DTYPE_COUNT);
        break;
    default:
        ((uint8_t *)tensor->data)[at % tensor->length] = edit[3];
    }
}

static bool same_space(const char *text, size_t length) // texts that cannot come back: see docs/format.md
{
    for (size_t i = 0; i + 3 <= length; i++)
        if (!memcmp(text + i, "\xe2\x96\x81", 3))
            return true;
    return false;
}

static void check(bool holds)
{
    if (!holds)
        abort();
}

static void encode(const struct tokenizer *tokenizer, const char *text, size_t length, int flags, bool must_come_back,
                   bool may_check_control)
{
    int32_t *ids;
    size_t n, bytes;
    yalm_error error;
    const yalm_status status = tokenizer_encode(tokenizer, text, length, flags, &ids, &n, &error);
    check(!status || !must_come_back);
    if (status)
        return;
    for (size_t i = 0; i < n; i++)
        check(ids[i] >= 0 && ids[i] < tokenizer_n_pieces(tokenizer));
    if (!(flags & YALM_TOKENIZE_SPECIAL) && may_check_control)
        for (size_t i = 0; i < n; i++)
            check(!tokenizer_is_control(tokenizer, ids[i]));
    char *back = small_decode(tokenizer, ids, n, &bytes);
    check(back && (!must_come_back || (bytes == length && !memcmp(back, text, length))));
    free(back);
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct small_tokenizer small;
    if (size < 2)
        return 0;
    const unsigned kind = data[0];
    size_t n_edits = data[1] & 0x80 ? data[1] & 7u : 0;
    data += 2;
    size -= 2;
    build(&small, kind);
    if (n_edits > size / 4)
        n_edits = size / 4;
    for (size_t i = 0; i < n_edits; i++)
        change(&small, data + 4 * i);
    data += 4 * n_edits;
    size -= 4 * n_edits;

    struct tokenizer *tokenizer;
    yalm_error error;
    const yalm_status status = small_open(&small, &tokenizer, &error);
    check(!status || !tokenizer);
    check(!status || n_edits);
    if (!tokenizer)
        return 0;
    const char *text = (const char *)data;
    const bool spm = !(kind & 1), lossy_prefix = spm && kind & 16 && kind / 2 % 3 != 0;
    const bool comes_back = !n_edits && !lossy_prefix && !(kind & 192) && !(spm && same_space(text, size));
    encode(tokenizer, text, size, 0, comes_back,
           !n_edits); // an edit may make a control token the one for bytes that are not there
    // "first" cannot tell its own space after bos from the text's: bos may be there or spelled.
    encode(tokenizer, text, size, YALM_TOKENIZE_SPECIAL, comes_back && !(spm && kind / 2 % 3 == 1), false);
    tokenizer_close(tokenizer);
    return 0;
}
