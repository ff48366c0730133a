// The file as a file: signatures, header, metadata's grammar, table, checksums.

#include <time.h>

#include "expect.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static void test_valid_file_opens(void **state)
{
    (void)state;
    struct built file = build(NULL);
    struct opened o;
    accepted(&o, &file);
    const struct container *c = &o.container;
    assert_int_equal(c->n_tensors, 1 + TINY_LAYERS * 9 + 2);
    assert_int_equal(c->mapping.size, file.size);
    assert_int_equal(c->metadata_checksum, get_u64(file.data + AT_CHECKSUM));
    uint64_t end = 0;
    for (int i = 0; i < c->n_tensors; i++) {
        const struct tensor *t = &c->tensors[i];
        assert_ptr_equal(container_find(c, t->name), t);
        assert_memory_equal(t->data, file.data + t->offset, t->length);
        assert_int_equal(container_verify(c, t, NULL), YALM_OK);
        assert_true(t->offset >= end && t->offset % 64 == 0);
        end = t->offset + t->length;
    }
    assert_int_equal(end, file.size);
    const struct tensor *q = container_find(c, "layers.1.q");
    assert_int_equal(q->rank, 2);
    assert_int_equal(q->shape[0], TINY_HEADS * TINY_HEAD_DIM);
    assert_int_equal(q->shape[1], TINY_HIDDEN);
    assert_int_equal(q->shape[2], 1);
    assert_int_equal(q->dtype, DTYPE_FP32);
    assert_int_equal(q->length, q->shape[0] * q->shape[1] * 4);
    assert_int_equal(q->checksum, XXH3_64bits(q->data, q->length));
    assert_null(container_find(c, "layers.2.q"));
    assert_null(container_find(c, ""));
    close_all(&o);
    built_free(&file);
}

static void test_no_file_and_no_regular_file(void **state)
{
    (void)state;
    struct container c;
    yalm_error error;
    assert_int_equal(container_open(&c, "/nonexistent/model.bin", false, &error), YALM_FAILED);
    assert_non_null(strstr(error.text, "/nonexistent/model.bin"));
    assert_int_equal(container_open(&c, "/", false, &error), YALM_FAILED);
    assert_int_equal(container_open(&c, "/dev/null", false, &error), YALM_FAILED);
    assert_non_null(strstr(error.text, "not a regular file"));
    assert_int_equal(container_open(&c, "/nonexistent/model.bin", false, NULL), YALM_FAILED);
}

static void test_files_that_are_something_else(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
        const char *words;
    } files[] = {
        {"", 0, "the file is empty"},
        {"Y", 1, "too short: found 1 bytes"},
        {"YALM\r\n\x1a\n", 8, "too short: found 8 bytes"},
        {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", 64, "git-lfs pointer"},
        {"<!DOCTYPE html><html><body>404</body></html>", 44, "an HTML page"},
        {"\xef\xbb\xbf \n<HTML lang=en>", 18, "an HTML page"},
        {"<?xml version=\"1.0\"?>", 21, "an HTML page"},
        {"GGUF\3\0\0\0", 8, "GGUF file; make a model file of it first: tools/convert.py"},
        {"PK\3\4\0\0\0\0", 8, "zip archive"},
        {"\x80\2}q\0.", 6, "Python pickle"},
        {"\x1f\x8b\x08", 3, "gzip archive"},
        {"\x20\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", 40, "safetensors file: convert its directory"},
        {"{\"architectures\":[]}", 20, "this is JSON"},
        {"YALM\n\x1a\n\1\0\0\0", 11, "transfer in text mode"},
        {"\x7f"
         "ELF and so on",
         14, "not a model of yalm"},
        {"\0\0\0\0", 4, "not a model of yalm"},
        {"            ", 12, "not a model of yalm"},
    };
    for (size_t i = 0; i < COUNT(files); i++)
        refused(files[i].bytes, files[i].size, YALM_BAD_MODEL, files[i].words);
}

static void test_every_truncation_is_refused(void **state)
{
    (void)state;
    struct built file = build(NULL);
    for (size_t size = 0; size < file.size; size += size < 80 ? 1 : 61)
        refused(file.data, size, YALM_BAD_MODEL, size == 0 ? "empty" : size < 64 ? "too short" : "truncated: found ");
    // The same where the header was made to agree: now the table must notice.
    for (size_t size = 64; size < file.size; size += 61) {
        put_u64(file.data + AT_FILE_LENGTH, size);
        refused(file.data, size, YALM_BAD_MODEL, "/proc/self/fd/");
    }
    put_u64(file.data + AT_FILE_LENGTH, file.size - 1);
    refused(file.data, file.size - 1, YALM_BAD_MODEL, "tensor 'classifier': reaches past the end of the file");
    built_free(&file);
}

static void test_longer_than_it_says(void **state)
{
    (void)state;
    struct built file = build(NULL);
    file.data = realloc(file.data, file.size + 1);
    file.data[file.size] = 0;
    refused(file.data, file.size + 1, YALM_BAD_MODEL, "longer than its header says");
    put_u64(file.data + AT_FILE_LENGTH, file.size + 1);
    refused(file.data, file.size + 1, YALM_BAD_MODEL, "the last tensor ends at");
    built_free(&file);
}

static void test_header_fields(void **state)
{
    (void)state;
    static const struct {
        int at;
        uint64_t value;
        const char *words;
    } fields[] = {
        {AT_VERSION, 3 | (uint64_t)64 << 32, "format version 3 found, this yalm reads versions up to 2"},
        {AT_VERSION, (uint64_t)64 << 32, "format version 0 found"},
        {AT_VERSION, UINT64_MAX, "format version 4294967295 found"},
        {AT_VERSION, 1, "header size: found 0, expected 64"},
        {AT_VERSION, 1 | (uint64_t)65 << 32, "header size: found 65"},
        {AT_FILE_LENGTH, 0, "longer than its header says"},
        {AT_FILE_LENGTH, UINT64_MAX, "truncated"},
        {AT_METADATA, 0, "metadata offset: found 0, expected 64"},
        {AT_METADATA, UINT64_MAX, "metadata offset"},
        {AT_METADATA_LENGTH, 0, "metadata length: found 0"},
        {AT_METADATA_LENGTH, 1 << 20, "metadata reach past the end"},
        {AT_METADATA_LENGTH, (256 << 20) + 1, "metadata length: found 268435457"},
        {AT_METADATA_LENGTH, UINT64_MAX, "metadata length: found 18446744073709551615"},
        {AT_CHECKSUM, 1, "metadata damaged: checksum found"},
        {AT_DATA, 0, "data offset: found 0"},
        {AT_DATA, 64, "data offset: found 64"},
        {AT_DATA, UINT64_MAX - 4095, "data offset"},
        {AT_DATA, 1 << 30, "data offset"},
        {AT_RESERVED, 1, "reserved field: found 1, expected 0"},
    };
    for (size_t i = 0; i < COUNT(fields); i++) {
        struct built file = build(NULL);
        put_u64(file.data + fields[i].at, fields[i].value);
        refused(file.data, file.size, YALM_BAD_MODEL, fields[i].words);
        built_free(&file);
    }
    struct built file = build(NULL); // a page later than it is, but a possible place
    put_u64(file.data + AT_DATA, get_u64(file.data + AT_DATA) + 4096);
    refused(file.data, file.size, YALM_BAD_MODEL, "disagrees with the header's data offset");
    put_u64(file.data + AT_DATA, get_u64(file.data + AT_DATA) - 4096 - 64);
    refused(file.data, file.size, YALM_BAD_MODEL, "expected a multiple of 4096");
    built_free(&file);
}

static void test_metadata_changed_without_checksum(void **state)
{
    (void)state;
    struct built file = build(NULL);
    file.data[BUILDER_HEADER + 100] ^= 1;
    refused(file.data, file.size, YALM_BAD_MODEL, "metadata damaged");
    built_free(&file);
}

static void test_table(void **state)
{
    (void)state;
    static const struct damage damages[] = {
        {"\"tensors\":[", "\"tensors\":[],\"tensorz\":[", "'tensorz' is not known"},
        {"\"tensors\":[{", "\"tensors\":[1,{", "'tensors[0]' is not an object"},
        {"\"name\":\"embedding\",", "", "'tensors[0].name' is missing"},
        {"\"name\":\"embedding\"", "\"name\":7", "'tensors[0].name': found a number, expected a string"},
        {"\"name\":\"embedding\"", "\"name\":\"\"", "printable ASCII"},
        {"\"name\":\"embedding\"", "\"name\":\"em bedding\"", "printable ASCII"},
        {"\"name\":\"embedding\"", "\"name\":\"emb\\u001b[31m\"", "'emb?[31m'"},
        {"\"name\":\"layers.0.q\"", "\"name\":\"embedding\"", "tensor 'embedding' appears twice"},
        {"\"dtype\":\"fp32\"", "\"dtype\":\"fp9\"", "tensor 'embedding': dtype 'fp9' is not known"},
        {"\"dtype\":\"fp32\"", "\"dtype\":\"fp16\"", "length disagrees with shape and dtype: found 352, expected 176"},
        {"\"dtype\":\"fp32\"", "\"dtype\":\"q8\"", "length disagrees with shape and dtype: found 352, expected 374"},
        {"\"dtype\":\"fp32\"", "\"dtype\":\"q4\"", "length disagrees with shape and dtype: found 352, expected 198"},
        {"\"dtype\":\"fp32\",\"shape\":[11,8]", "\"dtype\":\"q8\",\"shape\":[11,33]", "found 352, expected 748"},
        {"\"dtype\":\"fp32\"", "\"dtype\":\"q4n\"", "length disagrees with shape and dtype: found 352, expected 231"},
        {"\"dtype\":\"fp32\",\"shape\":[11,8]", "\"dtype\":\"q5\",\"shape\":[11,33]", "found 352, expected 506"},
        {"\"dtype\":\"fp32\",\"shape\":[11,8]", "\"dtype\":\"q6\",\"shape\":[11,33]", "found 352, expected 594"},
        {"\"dtype\":\"fp32\",\"shape\":[11,8]", "\"dtype\":\"q6k\",\"shape\":[11,256]", "found 352, expected 2310"},
        {"\"dtype\":\"fp32\",\"shape\":[11,8]", "\"dtype\":\"q5k\",\"shape\":[11,512]", "found 352, expected 3872"},
        {"\"dtype\":\"fp32\",\"shape\":[11,8]", "\"dtype\":\"q4k\",\"shape\":[11,256]", "found 352, expected 1584"},
        {"\"dtype\":\"fp32\",\"shape\":[11,8]", "\"dtype\":\"q5u\",\"shape\":[11,33]", "found 352, expected 484"},
        {"\"dtype\":\"fp32\",\"shape\":[11,8]", "\"dtype\":\"q5a\",\"shape\":[11,33]", "found 352, expected 528"},
        {"\"dtype\":\"fp32\",\"shape\":[11,8]", "\"dtype\":\"q4a\",\"shape\":[11,33]", "found 352, expected 440"},
        {"\"dtype\":\"fp32\",\"shape\":[11,8]", "\"dtype\":\"q3k\",\"shape\":[11,256]", "found 352, expected 1210"},
        {"\"dtype\":\"fp32\",\"shape\":[11,8]", "\"dtype\":\"q2k\",\"shape\":[11,512]", "found 352, expected 1848"},
        {"\"dtype\":\"fp32\",\"shape\":[11,8]", "\"dtype\":\"iq3s\",\"shape\":[11,256]", "found 352, expected 1210"},
        {"\"dtype\":\"fp32\",\"shape\":[11,8]", "\"dtype\":\"iq2xxs\",\"shape\":[11,512]", "found 352, expected 1452"},
        {"\"dtype\":\"fp32\"", "\"dtype\":\"q4k\"", "dtype q4k: found 8 columns, expected a multiple of 256"},
        {"\"dtype\":\"fp32\",\"shape\":[11,8]", "\"dtype\":\"q6k\",\"shape\":[9007199254740991,9007199254740736]", "overflow"},
        {"\"dtype\":\"fp32\",\"shape\":[11,8]", "\"dtype\":\"q6\",\"shape\":[9007199254740991,9007199254740991]", "overflow"},
        {"\"dtype\":\"fp32\",\"shape\":[11,8]", "\"dtype\":\"q8\",\"shape\":[88]", "dtype q8: found 1 dimensions, expected 2"},
        {"\"dtype\":\"fp32\",\"shape\":[11,8]", "\"dtype\":\"q4\",\"shape\":[11,2,4]", "found 3 dimensions, expected 2"},
        {"\"dtype\":\"fp32\",\"shape\":[11,8]", "\"dtype\":\"q8\",\"shape\":[9007199254740991,9007199254740991]", "overflow"},
        {"\"dtype\":\"fp32\"", "\"dtype\":\"fp8\"", "length disagrees with shape and dtype: found 352, expected 132"},
        {"\"dtype\":\"fp32\"", "\"dtype\":\"fp8_e5m2\"", "length disagrees with shape and dtype: found 352, expected 88"},
        {"\"dtype\":\"fp32\",\"shape\":[11,8]", "\"dtype\":\"fp8\",\"shape\":[88]",
         "dtype fp8: found 1 dimensions, expected 2"},
        {"\"dtype\":\"fp32\",\"shape\":[11,8]", "\"dtype\":\"fp8\",\"shape\":[9007199254740991,9007199254740991]", "overflow"},
        {"\"dtype\":\"fp32\"", "\"dtype\":\"bf12\"", "length disagrees with shape and dtype: found 352, expected 2816"},
        {"\"dtype\":\"fp32\",\"shape\":[11,8]", "\"dtype\":\"bf12\",\"shape\":[88]",
         "dtype bf12: found 1 dimensions, expected 2"},
        {"\"dtype\":\"fp32\",\"shape\":[11,8]", "\"dtype\":\"bf12\",\"shape\":[9007199254740991,65537]",
         "dtype bf12: found 65537 columns, expected at most 65536"},
        {"\"dtype\":\"fp32\",\"shape\":[11,8]", "\"dtype\":\"bf12\",\"shape\":[9007199254740991,65536]", "overflow"},
        {"\"dtype\":\"fp32\"", "\"dtype\":null", "found null, expected a string"},
        {"\"shape\":[11,8]", "\"shape\":[11,9]", "length disagrees with shape and dtype: found 352, expected 396"},
        {"\"shape\":[11,8]", "\"shape\":[]", "no dimensions"},
        {"\"shape\":[11,8]", "\"shape\":[11,8,1,1,1]", "more than 4 dimensions"},
        {"\"shape\":[11,8]", "\"shape\":[11,-8]", "dimension 1 is not an integer"},
        {"\"shape\":[11,8]", "\"shape\":[11,8.5]", "dimension 1 is not an integer"},
        {"\"shape\":[11,8]", "\"shape\":[11,\"8\"]", "dimension 1 is not an integer"},
        {"\"shape\":[11,8]", "\"shape\":[11,1e300]", "dimension 1 is not an integer"},
        {"\"shape\":[11,8]", "\"shape\":[4294967296,4294967296]", "overflow"},
        {"\"shape\":[11,8]", "\"shape\":[9007199254740991,9007199254740991,2]", "overflow"},
        {"\"shape\":[11,8]", "\"shape\":88", "'tensors[0].shape': found a number, expected an array"},
        {"\"length\":352", "\"length\":351", "length disagrees"},
        {"\"length\":352", "\"length\":-352", "found -352, expected an integer"},
        {"\"length\":352", "\"length\":352.5", "found 352.5, expected an integer"},
        {"\"length\":352", "\"length\":18446744073709551616", "expected an integer"},
        {"\"length\":352", "\"length\":9007199254740992", "expected an integer"},
        {"\"length\":352", "\"length\":true", "found a bool, expected an integer"},
        {"\"length\":352,", "", "'tensors[0].length' is missing"},
        {"\"xxh3\":\"", "\"xxh3\":\"0", "expected 16 lower-case hex digits"},
        {"\"xxh3\":\"", "\"XXH3\":\"", "'tensors[0].XXH3' is not known"},
        {"\"name\":\"embedding\"", "\"extra\":1,\"name\":\"embedding\"", "'tensors[0].extra' is not known"},
    };
    each_refused(NULL, damages, COUNT(damages));
}

// The text of the number behind the n-th `"key":` in the metadata is replaced.
static void set_number(struct built *file, const char *key, int n, long long delta)
{
    char *text = metadata_text(file);
    char pattern[32], from[64], to[64];
    snprintf(pattern, sizeof pattern, "\"%s\":", key);
    char *at = strstr(text, pattern);
    for (int i = 0; i < n; i++)
        at = strstr(at + 1, pattern);
    const long long value = strtoll(at + strlen(pattern), NULL, 10);
    snprintf(from, sizeof from, "%s%lld", pattern, value);
    snprintf(to, sizeof to, "%s%lld", pattern, value + delta);
    edit(file, from, to);
    free(text);
}

static void test_offsets(void **state)
{
    (void)state;
    static const struct {
        int tensor;
        long long delta;
        const char *words;
    } offsets[] = {
        {0, 64, "tensor 'embedding': offset of the first tensor"},
        {0, -64, "tensor 'embedding': offset of the first tensor"},
        {1, 1, "tensor 'layers.0.attention_norm': offset not aligned"},
        {1, 32, "offset not aligned"},
        {2, -64, "tensor 'layers.0.q': offset overlaps"},
        {2, -4096, "offset overlaps"},
        {2, 64, "tensor 'layers.0.k': offset overlaps"},
        {2, 1 << 30, "reaches past the end of the file"},
        {20, 64, "tensor 'classifier': reaches past the end of the file"},
        {20, -1000000, "expected an integer"},
    };
    for (size_t i = 0; i < COUNT(offsets); i++) {
        struct built file = build(NULL);
        set_number(&file, "offset", offsets[i].tensor, offsets[i].delta);
        refused(file.data, file.size, YALM_BAD_MODEL, offsets[i].words);
        built_free(&file);
    }
}

static void test_no_tensors(void **state)
{
    (void)state;
    static const char text[] = "{\"config\":{},\"tokenizer\":{},\"source\":{},\"tensors\":[]}";
    struct built file = build(NULL);
    set_metadata(&file, text, strlen(text));
    refused(file.data, file.size, YALM_BAD_MODEL, "the table names no tensors");
    built_free(&file);
}

// 200,000 tensors of no bytes, the last with a name that the first has, or not: sorting must find it, quickly.
static void test_huge_table_takes_linear_time(void **state)
{
    (void)state;
    enum { N = 200000, ROOM = N * 128 };
    const clock_t start = clock();
    struct built tiny = build(NULL);
    char *text = malloc(ROOM + 4096), *head = metadata_text(&tiny);
    const size_t prefix = (size_t)(strstr(head, "\"tensors\":[") - head) + strlen("\"tensors\":[");
    for (int repeated = 0; repeated < 2; repeated++) {
        struct built file = {.size = ROOM + 8192};
        file.data = calloc(1, file.size);
        builder_check(text && file.data, "no memory");
        memcpy(file.data, tiny.data, BUILDER_HEADER);
        memcpy(text, head, prefix);
        size_t n = prefix;
        for (int i = 0; i < N; i++)
            n += (size_t)sprintf(text + n,
                                 "%s{\"name\":\"t%d\",\"dtype\":\"u8\",\"shape\":[0],\"offset\":%zu,\"length\":0,"
                                 "\"xxh3\":\"2d06800538d394c2\"}",
                                 i ? "," : "", repeated && i == N - 1 ? 0 : i, file.size / 4096 * 4096);
        n += (size_t)sprintf(text + n, "]}");
        file.size = file.size / 4096 * 4096;
        put_u64(file.data + AT_FILE_LENGTH, file.size);
        put_u64(file.data + AT_DATA, file.size);
        set_metadata(&file, text, n);
        refused(file.data, file.size, YALM_BAD_MODEL, repeated ? "tensor 't0' appears twice" : "tensor 'embedding' is missing");
        built_free(&file);
    }
    free(head);
    free(text);
    built_free(&tiny);
    assert_true((double)(clock() - start) / CLOCKS_PER_SEC < 30); // quadratic: many minutes
}

static void test_verify_finds_damage(void **state)
{
    (void)state;
    struct built file = build(NULL);
    struct opened o;
    accepted(&o, &file);
    const uint64_t in_q = container_find(&o.container, "layers.0.q")->offset + 5;
    const struct tensor *norm = container_find(&o.container, "layers.0.attention_norm");
    const uint64_t behind_norm = norm->offset + norm->length;
    assert_true(behind_norm < in_q - 5);
    close_all(&o);

    yalm_error error;
    file.data[in_q] ^= 0x40;
    accepted(&o, &file);
    assert_int_equal(container_verify(&o.container, container_find(&o.container, "layers.0.q"), &error), YALM_BAD_MODEL);
    assert_non_null(strstr(error.text, "tensor 'layers.0.q' damaged: checksum found"));
    assert_int_equal(container_verify(&o.container, container_find(&o.container, "layers.0.k"), &error), YALM_OK);
    close_all(&o);

    file.data[in_q] ^= 0x40;
    file.data[behind_norm] = 3;
    accepted(&o, &file);
    assert_int_equal(container_verify(&o.container, container_find(&o.container, "layers.0.q"), &error), YALM_BAD_MODEL);
    assert_non_null(strstr(error.text, "before tensor 'layers.0.q': found 3, expected 0"));
    close_all(&o);
    built_free(&file);
}

// Every byte of header and metadata in turn: no crash, and no flip of a byte that a checksum covers goes unnoticed.
static void test_every_byte_flipped(void **state)
{
    (void)state;
    struct built file = build(NULL);
    const size_t end = BUILDER_HEADER + get_u64(file.data + AT_METADATA_LENGTH);
    for (size_t i = 0; i < end; i += i < BUILDER_HEADER ? 1 : 7) {
        file.data[i] ^= 0xff;
        refused(file.data, file.size, YALM_BAD_MODEL, "/proc/self/fd/");
        file.data[i] ^= 0xff;
    }
    built_free(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_valid_file_opens),
        cmocka_unit_test(test_no_file_and_no_regular_file),
        cmocka_unit_test(test_files_that_are_something_else),
        cmocka_unit_test(test_every_truncation_is_refused),
        cmocka_unit_test(test_longer_than_it_says),
        cmocka_unit_test(test_header_fields),
        cmocka_unit_test(test_metadata_changed_without_checksum),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_offsets),
        cmocka_unit_test(test_no_tensors),
        cmocka_unit_test(test_huge_table_takes_linear_time),
        cmocka_unit_test(test_verify_finds_damage),
        cmocka_unit_test(test_every_byte_flipped),
    };
    return cmocka_run_group_tests_name("container", tests, NULL, NULL);
}
