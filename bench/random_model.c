// Writes a model file (docs/format.md) with random weights, as fast as the disk takes it: a model of a real shape to time.
// Making a Hugging Face directory and converting it would take minutes.
//
//     random_model OUT < DESCRIPTION
//
// The description has a line "name NAME", a line "config JSON" (the metadata's member), and for each tensor, in order,
// "tensor NAME DTYPE ROWS COLS". A vector has 0 columns and is all ones. A matrix's elements have random signs and mantissas
// and one exponent, which makes their magnitude about 1 / sqrt(COLS). Those of q8 and q4 (of multiples of 32 columns) are
// random integers with scales to the same end. Those of fp8 (of multiples of 8) are random numbers from 1 to 2 with such
// scales. bench/random_model.py writes descriptions.
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include "model/dtype.h"
#include "util/round.h"

enum { HEADER = 64, PAGE = 4096, ALIGNMENT = 64, MAX_TENSORS = 1 << 16, MAX_THREADS = 64, BLOCK = 1 << 20 };

struct planned {
    char name[128];
    enum dtype dtype;
    uint64_t rows, cols, offset, length, checksum;
};

struct file {
    char name[128], *config;
    struct planned *tensors; // (n)
    int n;
    uint8_t *data; // the whole file, mapped
    uint64_t data_offset, length;
    atomic_int next; // tensor to fill
};

static int fail(const char *what, const char *why)
{
    fprintf(stderr, "random_model: %s: %s\n", what, why);
    return 1;
}

// ------------------------------------------------------------------------------------------ the description

static bool read_tensor(struct planned *t, const char *line)
{
    char dtype[16];
    unsigned long long rows, cols;
    if (sscanf(line, "tensor %127s %15s %llu %llu", t->name, dtype, &rows, &cols) != 4)
        return false;
    t->rows = rows;
    t->cols = cols;
    for (t->dtype = DTYPE_FP32; (int)t->dtype < DTYPE_WEIGHTS; t->dtype++)
        if (strcmp(dtype, dtype_names[t->dtype]) == 0)
            break;
    if ((int)t->dtype == DTYPE_WEIGHTS || cols > INT32_MAX)
        return false;
    t->length = rows * (cols ? dtype_row_bytes(t->dtype, (int)cols) : sizeof(float));
    if (dtype_group_bytes[t->dtype])
        return cols > 0 && cols % QUANT_GROUP == 0;
    if (t->dtype == DTYPE_FP8)
        return cols > 0 && cols % 8 == 0;
    return t->dtype <= DTYPE_BF16 && (cols || t->dtype == DTYPE_FP32);
}

static bool read_description(struct file *f, FILE *in)
{
    char *line = NULL;
    size_t room = 0;
    bool ok = true;
    f->tensors = calloc(MAX_TENSORS, sizeof *f->tensors);
    for (ssize_t n; ok && f->tensors && (n = getline(&line, &room, in)) > 0;) {
        if (line[n - 1] == '\n')
            line[n - 1] = 0;
        if (strncmp(line, "config ", 7) == 0)
            f->config = strdup(line + 7);
        else if (strncmp(line, "name ", 5) == 0)
            snprintf(f->name, sizeof f->name, "%s", line + 5);
        else
            ok = f->n < MAX_TENSORS && read_tensor(&f->tensors[f->n++], line);
    }
    free(line);
    return ok && f->config && f->n > 0;
}

// ------------------------------------------------------------------------------------------ the file's head

static char *metadata(const struct file *f, size_t *length)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, length);
    fprintf(
        out,
        "{\"config\":%s,\"tokenizer\":{\"type\":\"none\"},\"source\":{\"name\":\"%s\",\"converter\":\"random\"},\"tensors\":[",
        f->config, f->name);
    for (int i = 0; i < f->n; i++) {
        const struct planned *t = &f->tensors[i];
        char cols[32] = "";
        if (t->cols)
            snprintf(cols, sizeof cols, ",%llu", (unsigned long long)t->cols);
        fprintf(out,
                "%s{\"name\":\"%s\",\"dtype\":\"%s\",\"shape\":[%llu%s],\"offset\":%llu,\"length\":%llu,\"xxh3\":\"%016llx\"}",
                i ? "," : "", t->name, dtype_names[t->dtype], (unsigned long long)t->rows, cols, (unsigned long long)t->offset,
                (unsigned long long)t->length, (unsigned long long)t->checksum);
    }
    fputs("]}", out);
    fclose(out);
    return text;
}

// Longer offsets lengthen the metadata, which moves the offsets: until they stay.
static void lay_out(struct file *f)
{
    for (bool moved = true; moved;) {
        size_t length;
        free(metadata(f, &length));
        const uint64_t start = round_up(HEADER + length, PAGE);
        moved = start > f->data_offset;
        if (!moved)
            break;
        f->data_offset = f->length = start;
        for (int i = 0; i < f->n; i++) {
            f->tensors[i].offset = round_up(f->length, ALIGNMENT);
            f->length = f->tensors[i].offset + f->tensors[i].length;
        }
    }
}

static void put(uint8_t *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> 8 * i);
}

static void write_head(struct file *f)
{
    size_t length;
    char *text = metadata(f, &length);
    memcpy(f->data, "YALM\r\n\x1a\n", 8);
    put(f->data + 8, 1, 4);
    put(f->data + 12, HEADER, 4);
    put(f->data + 16, f->length, 8);
    put(f->data + 24, HEADER, 8);
    put(f->data + 32, length, 8);
    put(f->data + 40, XXH3_64bits(text, length), 8);
    put(f->data + 48, f->data_offset, 8);
    put(f->data + 56, 0, 8);
    memcpy(f->data + HEADER, text, length);
    free(text);
}

// ------------------------------------------------------------------------------------------ the weights

// Which bits are random, and the exponent, of a word that holds as many elements as go into 64 bits.
struct bits {
    uint64_t random, exponent;
};

static struct bits element_bits(enum dtype dtype, uint64_t cols)
{
    const int exponent = (int)floor(-0.5 * log2((double)cols)); // elements are in [2^exponent, 2^(exponent + 1)), either sign
    if (dtype == DTYPE_FP32)
        return (struct bits){0x807fffff807fffffu, 0x0000000100000001u * ((uint64_t)(127 + exponent) << 23)};
    if (dtype == DTYPE_Q8 || dtype == DTYPE_Q4)
        return (struct bits){~UINT64_C(0), 0};
    if (dtype == DTYPE_FP8)
        return (struct bits){0x8787878787878787u, 0x3838383838383838u};
    if (dtype == DTYPE_BF16)
        return (struct bits){0x807f807f807f807fu, 0x0001000100010001u * ((uint64_t)(127 + exponent) << 7)};
    return (struct bits){0x83ff83ff83ff83ffu, 0x0001000100010001u * ((uint64_t)(15 + exponent) << 10)};
}

// Where the scales of a quantised matrix begin; elsewhere the end. Their bits make a random element about 1 / sqrt(cols).
static uint64_t scales_at(const struct planned *t)
{
    const uint64_t group = dtype_group_bytes[t->dtype];
    if (t->dtype == DTYPE_FP8)
        return t->rows * t->cols;
    return group ? t->rows * (t->cols / QUANT_GROUP) * group : t->length;
}

static uint64_t scale_bits(const struct planned *t)
{
    if (t->dtype == DTYPE_FP8)
        return 0x0000000100000001u * ((uint64_t)(127 + (int)floor(-0.5 * log2((double)t->cols))) << 23);
    const double typical = t->dtype == DTYPE_Q8 ? 74 : 4.6;
    const int exponent = (int)floor(-0.5 * log2((double)t->cols) - log2(typical));
    return 0x0001000100010001u * ((uint64_t)(exponent < -14 ? 1 : 15 + exponent) << 10);
}

static void fill_tensor(struct file *f, int index)
{
    struct planned *t = &f->tensors[index];
    uint8_t *to = f->data + t->offset;
    XXH3_state_t *state = XXH3_createState();
    XXH3_64bits_reset(state);
    const float one = 1;
    const struct bits bits = t->cols ? element_bits(t->dtype, t->cols) : (struct bits){0};
    const uint64_t scales = scales_at(t), scale = scales < t->length ? scale_bits(t) : 0;
    uint64_t x = 0x9e3779b97f4a7c15u * (uint64_t)(index + 1);
    for (uint64_t at = 0; at < t->length; at += BLOCK) {
        const uint64_t n = t->length - at < BLOCK ? t->length - at : BLOCK;
        for (uint64_t i = 0; i < n; i += 8) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            uint64_t word = ((x ^ x >> 32) & bits.random) | bits.exponent;
            if (t->cols == 0) {
                memcpy(&word, &one, 4);
                memcpy((uint8_t *)&word + 4, &one, 4);
            }
            if (at + i >= scales)
                word = scale;
            memcpy(to + at + i, &word, n - i < 8 ? n - i : 8);
        }
        XXH3_64bits_update(state, to + at, n);
    }
    t->checksum = XXH3_64bits_digest(state);
    XXH3_freeState(state);
}

static void *fill_tensors(void *file)
{
    struct file *f = file;
    for (int i; (i = atomic_fetch_add(&f->next, 1)) < f->n;)
        fill_tensor(f, i);
    return NULL;
}

static void fill(struct file *f)
{
    pthread_t threads[MAX_THREADS];
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int n = 0;
    while (n < MAX_THREADS && n < cores - 1 && pthread_create(&threads[n], NULL, fill_tensors, f) == 0)
        n++;
    fill_tensors(f);
    while (n > 0)
        pthread_join(threads[--n], NULL);
}

int main(int argc, char **argv)
{
    struct file f = {.name = "random"};
    if (argc != 2)
        return fail("usage", "random_model OUT < DESCRIPTION");
    if (!read_description(&f, stdin))
        return fail("description", "expected lines of name, config and tensor");
    lay_out(&f);
    const int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0666);
    if (fd < 0 || posix_fallocate(fd, 0, (off_t)f.length) != 0)
        return fail(argv[1], "no room for it, or it cannot be written");
    f.data = mmap(NULL, f.length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (f.data == MAP_FAILED)
        return fail(argv[1], strerror(errno));
    fill(&f);
    write_head(&f); // last: a file that was not finished is none
    munmap(f.data, f.length);
    close(fd);
    free(f.tensors);
    free(f.config);
    return 0;
}
