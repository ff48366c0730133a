// Files of codebooks: written, read again, and refused when they are damaged, cut, another model's, or hostile.

#include <dirent.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "expect.h"
#include "model/codebook.h"

enum { FLOATS = TINY_LAYERS * TINY_KV_HEADS * TINY_HEAD_DIM * CODEBOOK_CENTROIDS, BYTES = 64 + 4 * FLOATS };

static char directory[] = "/tmp/yalm-codebook-XXXXXX", path[64];
static struct opened model;
static float centroids[FLOATS];

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(directory))
        return 1;
    snprintf(path, sizeof path, "%s/a.nomad", directory);
    struct built file = build(NULL);
    accepted(&model, &file);
    built_free(&file);
    for (int i = 0; i < FLOATS; i++)
        centroids[i] = (float)(i % 23) / 7 - 1;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    close_all(&model);
    unlink(path);
    return rmdir(directory);
}

static yalm_status write_book(const char *to, yalm_error *error)
{
    struct new_file writer;
    yalm_status status = codebook_create(&writer, to, error);
    if (status == YALM_OK)
        status =
            codebook_write(&writer, &(struct codebook){.d_sub = 2, .positions = 77, .samples = 1234, .centroids = centroids},
                           &model.container, &model.config, error);
    return new_file_finish(&writer, status, error);
}

static int files_in_directory(void)
{
    DIR *d = opendir(directory);
    int n = 0;
    for (const struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void test_round_trip(void **state)
{
    (void)state;
    yalm_error error = {0};
    assert_int_equal(write_book(path, &error), YALM_OK);
    assert_int_equal(files_in_directory(), 1);
    struct codebook book;
    assert_int_equal(codebook_open(&book, path, &model.container, &model.config, &error), YALM_OK);
    assert_int_equal(book.d_sub, 2);
    assert_int_equal(book.positions, 77);
    assert_int_equal(book.samples, 1234);
    assert_int_equal(book.mapping.size, BYTES);
    assert_memory_equal(book.centroids, centroids, sizeof centroids);
    assert_ptr_equal(codebook_of(&book, &model.config, 1, 1), book.centroids + 3 * TINY_HEAD_DIM * CODEBOOK_CENTROIDS);
    codebook_close(&book);
}

// An interrupted writer leaves what was there, and nothing else.
static void test_unfinished(void **state)
{
    (void)state;
    yalm_error error = {0};
    assert_int_equal(write_book(path, &error), YALM_OK);
    struct new_file writer;
    assert_int_equal(codebook_create(&writer, path, &error), YALM_OK);
    assert_int_equal(files_in_directory(), 2);
    assert_int_equal(new_file_finish(&writer, YALM_INTERRUPTED, &error), YALM_INTERRUPTED);
    assert_int_equal(files_in_directory(), 1);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_size, BYTES);
    assert_int_equal(write_book("/nonexistent/a.nomad", &error), YALM_FAILED);
    assert_non_null(strstr(error.text, "/nonexistent/a.nomad: No such file"));
    assert_int_equal(write_book(directory, &error), YALM_FAILED);
    assert_non_null(strstr(error.text, "not a regular file"));
}

struct damage_to_book {
    size_t at, bytes; // where a number is replaced, and its width; 0: nothing
    uint64_t value;
    long size;      // of the file; 0: all
    bool right_sum; // the body's checksum is made right again
    const char *words;
};

static void refused_book(const struct damage_to_book *d)
{
    uint8_t data[BYTES + 8] = {0};
    yalm_error error = {0};
    unlink(path); // damaged by the case before, it would not be replaced
    assert_int_equal(write_book(path, &error), YALM_OK);
    FILE *file = fopen(path, "rb");
    assert_int_equal(fread(data, 1, BYTES, file), BYTES);
    fclose(file);
    memcpy(data + d->at, &d->value, d->bytes);
    if (d->right_sum) {
        const uint64_t sum = XXH3_64bits(data + 64, BYTES - 64);
        memcpy(data + 32, &sum, sizeof sum);
    }
    const size_t size = d->size ? (size_t)d->size : BYTES;
    file = fopen(path, "wb");
    assert_int_equal(fwrite(data, 1, size, file), size);
    fclose(file);
    struct codebook book;
    const yalm_status status = codebook_open(&book, path, &model.container, &model.config, &error);
    if (status != YALM_BAD_MODEL || !strstr(error.text, d->words) || strncmp(error.text, path, strlen(path)) != 0)
        fail_msg("status %d, '%s': expected '%s'", (int)status, error.text, d->words);
    assert_null(book.mapping.data);
}

static void test_damaged(void **state)
{
    (void)state;
    const float nan = NAN, infinity = INFINITY;
    uint32_t nan_bits, infinity_bits;
    memcpy(&nan_bits, &nan, 4);
    memcpy(&infinity_bits, &infinity, 4);
    const struct damage_to_book damages[] = {
        {0, 1, 'X', 0, false, "not a file of codebooks"},
        {0, 0, 0, 5, false, "not a file of codebooks"},
        {0, 0, 0, 40, false, "too short"},
        {8, 4, 2, 0, false, "version of the codebooks: found 2, expected 1"},
        {12, 4, 65, 0, false, "header size: found 65, expected 64"},
        {0, 0, 0, BYTES - 1, false, "truncated: found"},
        {0, 0, 0, 64, false, "truncated: found 64 bytes"},
        {0, 0, 0, BYTES + 4, false, "longer than its header says"},
        {16, 8, BYTES + 4, BYTES + 4, false, "file length"},
        {16, 8, 64, 64, false, "file length: found 64"},
        {24, 8, 12345, 0, false, "codebooks of another model: made for checksum 0000000000003039"},
        {32, 8, 1, 0, false, "damaged: checksum found"},
        {BYTES - 1, 1, 0x41, 0, false, "damaged: checksum found"},
        {40, 4, TINY_LAYERS + 1, 0, false, "layers: found 3, expected 2"},
        {40, 4, UINT32_MAX, 0, false, "layers: found 4294967295, expected 2"},
        {44, 4, 1, 0, false, "KV heads: found 1, expected 2"},
        {48, 4, 0, 0, false, "head_dim: found 0, expected 4"},
        {52, 4, 0, 0, false, "d_sub: found 0"},
        {52, 4, 3, 0, false, "d_sub: found 3, expected 1, 2 or 4"},
        {52, 4, 0x80000001, 0, false, "d_sub: found 2147483649"},
        {56, 4, 0, 0, false, "positions and samples: found 0 and 1234"},
        {60, 4, UINT32_MAX, 0, false, "positions and samples"},
        {64 + 40, 4, nan_bits, 0, true, "centroid 10 of 256 is not a finite number"},
        {BYTES - 4, 4, infinity_bits, 0, true, "centroid 255 of 256 is not a finite number"},
    };
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++)
        refused_book(&damages[i]);
}

static void test_no_file(void **state)
{
    (void)state;
    struct codebook book;
    yalm_error error = {0};
    assert_int_equal(codebook_open(&book, "/nonexistent/b.nomad", &model.container, &model.config, &error), YALM_FAILED);
    assert_non_null(strstr(error.text, "/nonexistent/b.nomad: No such file"));
    assert_int_equal(codebook_open(&book, directory, &model.container, &model.config, NULL), YALM_FAILED);
}

static void test_default_path(void **state)
{
    (void)state;
    static const char *const paths[][2] = {{"model.bin", "model.nomad"},
                                           {"/a.b/model", "/a.b/model.nomad"},
                                           {"/a.b/m.q4.bin", "/a.b/m.q4.nomad"},
                                           {"dir/.hidden", "dir/.hidden.nomad"}};
    for (int i = 0; i < 4; i++) {
        char *found = codebook_default_path(paths[i][0]);
        assert_string_equal(found, paths[i][1]);
        free(found);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_unfinished),   cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_no_file),    cmocka_unit_test(test_default_path),
    };
    return cmocka_run_group_tests_name("codebooks", tests, set_up, tear_down);
}
