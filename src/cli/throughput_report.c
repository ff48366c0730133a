// The table of a throughput run in the shapes of llama.cpp's llama-bench, so that its readers read this too.
#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/throughput.h"

// What the products with this model's weights are made of, at best: on a GPU all but fp32's of its matrix units' products, on
// the CPU quantised ones' of 8-bit multiply-adds. Mixtures are quantised where a weight has fewer than twelve bits.
static double arithmetic_limit(const struct report *report)
{
    const bool mixed = strcmp(report->facts->weight_dtype, "mixed") == 0,
               few_bits = 8 * report->facts->weight_bytes < 12 * (uint64_t)report->facts->n_params;
    if ((report->facts->weight_dtype[0] == 'q' || (mixed && few_bits)) && report->limits.dot_gop_per_s > 0)
        return report->limits.dot_gop_per_s;
    const bool matrices = report->limits.matrix_gop_per_s > 0 && strcmp(report->facts->weight_dtype, "fp32") != 0;
    return matrices ? report->limits.matrix_gop_per_s : report->limits.fma_gop_per_s;
}

// As many readings as were meant to be, or none: a mean of some of them would pass for one of all.
static void add_reads(struct summary *s, const struct test *test)
{
    const int n = test->n_reads;
    if (n != test->n + 1)
        return;
    for (int i = 0; i < n; i++)
        s->reads_gb_per_s += test->reads[i] / n;
    for (int i = 0; i < n; i++)
        s->reads_deviation += (test->reads[i] - s->reads_gb_per_s) * (test->reads[i] - s->reads_gb_per_s) / (n - 1);
    s->reads_deviation = sqrt(s->reads_deviation);
    s->fraction_of_reads = s->gb_per_s / s->reads_gb_per_s;
}

struct summary test_summary(const struct report *report, const struct test *test)
{
    struct summary s = {0};
    const int n_tokens = test->n_prompt + test->n_gen;
    for (int i = 0; i < test->n; i++) {
        s.mean_ns += 1e9 * test->seconds[i] / test->n;
        s.mean_rate += n_tokens / test->seconds[i] / test->n;
    }
    for (int i = 0; i < test->n && test->n > 1; i++) {
        const double ns = 1e9 * test->seconds[i] - s.mean_ns, rate = n_tokens / test->seconds[i] - s.mean_rate;
        s.deviation_ns += ns * ns / (test->n - 1);
        s.deviation_rate += rate * rate / (test->n - 1);
    }
    s.deviation_ns = sqrt(s.deviation_ns);
    s.deviation_rate = sqrt(s.deviation_rate);
    s.gb_per_s = test->cost.bytes / s.mean_ns;
    s.gop_per_s = test->cost.ops / s.mean_ns;
    const double limit = test->n_gen ? report->limits.read_gb_per_s : arithmetic_limit(report);
    s.fraction = limit > 0 ? (test->n_gen ? s.gb_per_s : s.gop_per_s) / limit : 0;
    add_reads(&s, test);
    for (int i = 0; i < test->n && test->attention; i++)
        s.attention_ns += 1e9 * test->attention[i] / test->n / n_tokens;
    s.attention_bytes = test->attention_cost.bytes / n_tokens;
    s.dense_attention_bytes = test->attention_cost.dense_bytes / n_tokens;
    s.attention_gb_per_s = s.attention_ns > 0 ? s.attention_bytes / s.attention_ns : 0;
    s.attention_fraction = report->limits.read_gb_per_s > 0 ? s.attention_gb_per_s / report->limits.read_gb_per_s : 0;
    return s;
}

static void model_type(char *text, size_t room, const yalm_model_info *facts)
{
    snprintf(text, room, "%s %s", facts->name, facts->weight_dtype);
}

// -------------------------------------------------------------------------------- markdown

// Attention alone, of a token: its time; the bytes that the method has to read of the cache, and that dense attention would;
// their rate. Prefill is bound by arithmetic, so the rate is decode's alone. Nothing where the device does not tell.
static void print_attention(const struct test *test, const struct summary *s)
{
    if (!test->attention)
        return;
    char bytes[64], rate[48] = "";
    snprintf(bytes, sizeof bytes, "%.3f (%.3f)", 1e-6 * s->attention_bytes, 1e-6 * s->dense_attention_bytes);
    if (test->n_gen)
        snprintf(rate, sizeof rate, "%.1f (%.1f %%)", s->attention_gb_per_s, 100 * s->attention_fraction);
    printf(" %15.4f | %19s | %15s |", 1e-6 * s->attention_ns, bytes, rate);
}

static void print_heads(bool with_attention)
{
    printf("| %-30s | %10s | %10s | %-10s | %7s | %15s | %20s | %15s | %18s | %8s |", "model", "size", "params", "backend",
           "threads", "test", "t/s", "GB/s (limit)", "GOP/s (limit)", "of limit");
    if (with_attention)
        printf(" %15s | %19s | %15s |", "attention, ms/t", "its MB/t (of dense)", "its GB/s");
    printf("\n| %.30s | %.9s: | %.9s: | %.10s | %.6s: | %.14s: | %.19s: | %.14s: | %.17s: | %.7s: |",
           "------------------------------", "---------", "---------", "----------", "------", "--------------",
           "-------------------", "--------------", "-----------------", "-------");
    if (with_attention)
        printf(" %.14s: | %.18s: | %.14s: |", "--------------", "------------------", "--------------");
    putchar('\n');
}

// "tg128 @ d4096"
static void test_name(char *name, size_t room, const struct test *test)
{
    const int n = snprintf(name, room, "%s%d", test->n_gen ? "tg" : "pp", test->n_prompt + test->n_gen);
    if (test->depth)
        snprintf(name + n, room - (size_t)n, " @ d%d", test->depth);
}

// Below the table: for each decode, a mean to set its own mean beside, as the limit, a best moment, is not.
static void print_reads(const struct report *report)
{
    bool first = true;
    for (int i = 0; i < report->n_tests; i++) {
        char name[64];
        const struct summary s = test_summary(report, &report->tests[i]);
        if (s.reads_gb_per_s <= 0)
            continue;
        test_name(name, sizeof name, &report->tests[i]);
        printf("%splain reading between the repetitions of %s: %.1f ± %.1f GB/s, and %s read at %.1f %% of that\n",
               first ? "\n" : "", name, s.reads_gb_per_s, s.reads_deviation, name, 100 * s.fraction_of_reads);
        first = false;
    }
}

static void print_markdown(const struct report *report)
{
    char type[160], size[24], params[24];
    const yalm_model_info *facts = report->facts;
    model_type(type, sizeof type, facts);
    const double bytes = (double)facts->weight_bytes, count = (double)facts->n_params;
    if (bytes < 1 << 30)
        snprintf(size, sizeof size, "%.2f MiB", bytes / (1 << 20));
    else
        snprintf(size, sizeof size, "%.2f GiB", bytes / (1 << 30));
    snprintf(params, sizeof params, count < 1e9 ? "%.2f M" : "%.2f B", count < 1e9 ? count / 1e6 : count / 1e9);

    print_heads(report->tests[0].attention != NULL);
    for (int i = 0; i < report->n_tests; i++) {
        const struct test *test = &report->tests[i];
        const struct summary s = test_summary(report, test);
        char name[64], rate[64], bandwidth[48], arithmetic[48];
        test_name(name, sizeof name, test);
        snprintf(rate, sizeof rate, "%.2f ± %.2f", s.mean_rate, s.deviation_rate);
        snprintf(bandwidth, sizeof bandwidth, "%.1f (%.1f)", s.gb_per_s, report->limits.read_gb_per_s);
        snprintf(arithmetic, sizeof arithmetic, "%.1f (%.1f)", s.gop_per_s, arithmetic_limit(report));
        printf("| %-30s | %10s | %10s | %-10s | %7d | %15s | %21s | %15s | %18s | %6.1f %% |", type, size, params,
               strcmp(report->how.device, "cuda") == 0 ? "CUDA" : "CPU", report->how.n_threads, name, rate, bandwidth,
               arithmetic, 100 * s.fraction);
        print_attention(test, &s);
        putchar('\n');
    }
    print_reads(report);
}

// -------------------------------------------------------------------------------- csv and json

// The processor's name as the kernel gives it; empty where it gives none.
static void read_cpu_name(char *name, size_t room)
{
    char line[512];
    FILE *file = fopen("/proc/cpuinfo", "r");
    name[0] = 0;
    while (file && fgets(line, sizeof line, file)) {
        const char *value = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || value == NULL)
            continue;
        value += 1 + strspn(value + 1, " ");
        snprintf(name, room, "%.*s", (int)strcspn(value, "\n"), value);
        break;
    }
    if (file)
        fclose(file);
}

static void read_commit(char *commit, size_t room)
{
    const char *found = strstr(yalm_version(), "commit ");
    const char *at = found ? found + strlen("commit ") : "unknown";
    snprintf(commit, room, "%.*s", (int)strcspn(at, ",;) "), at);
}

static void add_machine(cJSON *row, const struct report *report)
{
    static const char *const caches[] = {[YALM_KV_FP16] = "f16", [YALM_KV_FP32] = "f32", [YALM_KV_INT8] = "i8"}; // ggml's names
    static const char *const activations[] = {
        [YALM_ACTIVATIONS_INT16] = "int16", [YALM_ACTIVATIONS_INT8] = "int8", [YALM_ACTIVATIONS_FP32] = "fp32"};
    char text[256];
    const bool cuda = strcmp(report->how.device, "cuda") == 0;
    read_commit(text, sizeof text);
    cJSON_AddStringToObject(row, "build_commit", text);
    read_cpu_name(text, sizeof text);
    cJSON_AddStringToObject(row, "cpu_info", text);
    cJSON_AddStringToObject(row, "gpu_info", cuda ? report->machine : "");
    cJSON_AddStringToObject(row, "backends", cuda ? "CUDA" : "CPU");
    cJSON_AddStringToObject(row, "isa", report->how.isa);
    cJSON_AddStringToObject(row, "model_filename", report->path);
    model_type(text, sizeof text, report->facts);
    cJSON_AddStringToObject(row, "model_type", text);
    cJSON_AddNumberToObject(row, "model_size", (double)report->facts->weight_bytes);
    cJSON_AddNumberToObject(row, "model_n_params", (double)report->facts->n_params);
    cJSON_AddNumberToObject(row, "n_batch", report->how.chunk);
    cJSON_AddNumberToObject(row, "n_ubatch", report->how.chunk);
    cJSON_AddNumberToObject(row, "n_threads", report->how.n_threads);
    cJSON_AddStringToObject(row, "type_k", caches[report->how.kv]);
    cJSON_AddStringToObject(row, "type_v", caches[report->how.kv]);
    cJSON_AddStringToObject(row, "activations", activations[report->how.activations]);
    cJSON_AddBoolToObject(row, "use_mmap", true);
}

// Of a token. Left out where the device does not tell attention from the rest.
static void add_attention(cJSON *row, const struct test *test, const struct summary *s, bool with_samples)
{
    if (!test->attention)
        return;
    cJSON_AddNumberToObject(row, "attention_ns", s->attention_ns);
    cJSON_AddNumberToObject(row, "attention_bytes", s->attention_bytes);
    cJSON_AddNumberToObject(row, "dense_attention_bytes", s->dense_attention_bytes);
    cJSON_AddNumberToObject(row, "attention_gb_per_s", s->attention_gb_per_s);
    cJSON_AddNumberToObject(row, "attention_fraction_of_limit", s->attention_fraction);
    cJSON *ns = with_samples ? cJSON_AddArrayToObject(row, "samples_attention_ns") : NULL;
    for (int i = 0; i < test->n && ns; i++)
        cJSON_AddItemToArray(ns, cJSON_CreateNumber(1e9 * test->attention[i] / (test->n_prompt + test->n_gen)));
}

// Null where there are none: prefill, a GPU, too little memory. (Not left out: rows of csv are alike.)
static void add_reads_between(cJSON *row, const struct test *test, const struct summary *s, bool with_samples)
{
    const bool known = s->reads_gb_per_s > 0;
    cJSON_AddItemToObject(row, "reads_between_gb_per_s", known ? cJSON_CreateNumber(s->reads_gb_per_s) : cJSON_CreateNull());
    cJSON_AddItemToObject(row, "fraction_of_reads_between",
                          known ? cJSON_CreateNumber(s->fraction_of_reads) : cJSON_CreateNull());
    cJSON *samples = with_samples ? cJSON_AddArrayToObject(row, "samples_reads_between_gb_per_s") : NULL;
    for (int i = 0; i < test->n_reads && known && samples; i++)
        cJSON_AddItemToArray(samples, cJSON_CreateNumber(test->reads[i]));
}

// Samples are left out of csv, as there.
static cJSON *test_row(const struct report *report, const struct test *test, bool with_samples)
{
    const struct summary s = test_summary(report, test);
    cJSON *row = cJSON_CreateObject();
    add_machine(row, report);
    cJSON_AddNumberToObject(row, "n_prompt", test->n_prompt);
    cJSON_AddNumberToObject(row, "n_gen", test->n_gen);
    cJSON_AddNumberToObject(row, "n_depth", test->depth);
    cJSON_AddStringToObject(row, "test_time", test->time);
    cJSON_AddNumberToObject(row, "avg_ns", round(s.mean_ns));
    cJSON_AddNumberToObject(row, "stddev_ns", round(s.deviation_ns));
    cJSON_AddNumberToObject(row, "avg_ts", s.mean_rate);
    cJSON_AddNumberToObject(row, "stddev_ts", s.deviation_rate);
    if (with_samples) {
        cJSON *ns = cJSON_AddArrayToObject(row, "samples_ns"), *rates = cJSON_AddArrayToObject(row, "samples_ts");
        for (int i = 0; i < test->n; i++) {
            cJSON_AddItemToArray(ns, cJSON_CreateNumber(round(1e9 * test->seconds[i])));
            cJSON_AddItemToArray(rates, cJSON_CreateNumber((test->n_prompt + test->n_gen) / test->seconds[i]));
        }
    }
    cJSON_AddNumberToObject(row, "gb_per_s", s.gb_per_s);
    cJSON_AddNumberToObject(row, "limit_gb_per_s", report->limits.read_gb_per_s);
    cJSON_AddNumberToObject(row, "gop_per_s", s.gop_per_s);
    cJSON_AddNumberToObject(row, "limit_gop_per_s", arithmetic_limit(report));
    cJSON_AddNumberToObject(row, "fraction_of_limit", s.fraction);
    add_reads_between(row, test, &s, with_samples);
    add_attention(row, test, &s, with_samples);
    return row;
}

static void print_quoted(const char *text)
{
    putchar('"');
    for (; *text; text++) {
        if (*text == '"')
            putchar('"');
        putchar(*text);
    }
    putchar('"');
}

static void print_csv_row(const cJSON *row, bool header)
{
    for (const cJSON *item = row->child; item; item = item->next) {
        if (header) {
            fputs(item->string, stdout);
        } else if (cJSON_IsString(item)) {
            print_quoted(item->valuestring);
        } else if (cJSON_IsBool(item)) {
            printf("\"%d\"", cJSON_IsTrue(item));
        } else if (cJSON_IsNull(item)) {
            print_quoted("");
        } else {
            char number[48];
            snprintf(number, sizeof number, floor(item->valuedouble) == item->valuedouble ? "%.0f" : "%.6f", item->valuedouble);
            print_quoted(number);
        }
        putchar(item->next ? ',' : '\n');
    }
}

static yalm_status print_json(const struct report *report, yalm_error *error)
{
    cJSON *rows = cJSON_CreateArray();
    for (int i = 0; i < report->n_tests; i++)
        cJSON_AddItemToArray(rows, test_row(report, &report->tests[i], true));
    char *text = cJSON_Print(rows);
    cJSON_Delete(rows);
    if (text == NULL)
        return cli_no_memory(error);
    puts(text);
    free(text);
    return YALM_OK;
}

yalm_status report_write(const struct report *report, int format, yalm_error *error)
{
    yalm_status status = YALM_OK;
    if (format == FORMAT_MD) {
        print_markdown(report);
    } else if (format == FORMAT_JSON) {
        status = print_json(report, error);
    } else {
        for (int i = 0; i < report->n_tests; i++) {
            cJSON *row = test_row(report, &report->tests[i], false);
            if (i == 0)
                print_csv_row(row, true);
            print_csv_row(row, false);
            cJSON_Delete(row);
        }
    }
    return status ?: output_end(error);
}
