// See logits_file.h.
#include "cli/logits_file.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/cli.h"
#include "util/file.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "rows are written as they lie in memory");

// Of equals the first.
static int likeliest(const float *logits, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

yalm_status divergence_open(struct divergence *divergence, const char *path, int64_t n_rows, int n_vocab, yalm_error *error)
{
    *divergence = (struct divergence){.path = path, .n_rows = n_rows, .n_vocab = n_vocab};
    FILE *file = file_open_at_once(path, "r");
    if (file == NULL)
        return error_set(error, YALM_FAILED, "%s: %s", path, strerror(errno));
    struct stat found;
    const int64_t expected = n_rows * n_vocab * (int64_t)sizeof(float);
    if (fstat(fileno(file), &found) != 0 || !S_ISREG(found.st_mode)) {
        fclose(file);
        return error_set(error, YALM_USAGE, "%s: is not a regular file of logits", path);
    }
    if (found.st_size != expected) {
        fclose(file);
        return error_set(error, YALM_USAGE, "%s: %lld bytes, expected %lld (%lld rows of %d float32 logits)", path,
                         (long long)found.st_size, (long long)expected, (long long)n_rows, n_vocab);
    }
    divergence->file = file;
    divergence->base = malloc((size_t)n_vocab * sizeof *divergence->base);
    divergence->kl = malloc((size_t)n_rows * sizeof *divergence->kl);
    if (divergence->base == NULL || divergence->kl == NULL) {
        divergence_close(divergence);
        return cli_no_memory(error);
    }
    return YALM_OK;
}

yalm_status divergence_add(struct divergence *divergence, const float *logits, int32_t next, yalm_error *error)
{
    const int n = divergence->n_vocab;
    const float *base = divergence->base;
    if (fread(divergence->base, sizeof *base, (size_t)n, divergence->file) != (size_t)n)
        return error_set(error, YALM_FAILED, "%s: row %lld cannot be read", divergence->path, (long long)divergence->n);
    const double base_sum = yalm_log_sum_exp(base, n), sum = yalm_log_sum_exp(logits, n);
    double kl = 0; // sum of p_base (log p_base - log p)
    for (int i = 0; i < n; i++) {
        const double log_base = base[i] - base_sum, p = exp(log_base);
        if (p > 0)
            kl += p * (log_base - (logits[i] - sum));
    }
    if (!isfinite(base_sum) || isnan(kl))
        return error_set(error, YALM_FAILED, "%s: row %lld has logits that are not finite", divergence->path,
                         (long long)divergence->n);
    divergence->kl[divergence->n++] = kl > 0 ? kl : 0; // rounding may leave it just below
    divergence->same_top += likeliest(base, n) == likeliest(logits, n);
    if (next >= 0) {
        const double ratio = base[next] - base_sum - (logits[next] - sum);
        divergence->ratio += ratio;
        divergence->ratio_squares += ratio * ratio;
        divergence->n_predicted++;
    }
    return YALM_OK;
}

double divergence_ratio(const struct divergence *divergence, double *standard_error)
{
    const double n = (double)divergence->n_predicted, mean = n > 0 ? divergence->ratio / n : 0,
                 variance = n > 1 ? (divergence->ratio_squares / n - mean * mean) / (n - 1) : 0;
    *standard_error = exp(mean) * sqrt(variance > 0 ? variance : 0);
    return exp(mean);
}

double divergence_mean(const struct divergence *divergence)
{
    double sum = 0;
    for (int64_t i = 0; i < divergence->n; i++)
        sum += divergence->kl[i];
    return divergence->n ? sum / (double)divergence->n : 0;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double divergence_quantile(struct divergence *divergence, double q)
{
    if (divergence->n == 0)
        return 0;
    qsort(divergence->kl, (size_t)divergence->n, sizeof *divergence->kl, compare_doubles);
    const double at = q * (double)(divergence->n - 1);
    const int64_t below = (int64_t)at, above = below + 1 < divergence->n ? below + 1 : below;
    return divergence->kl[below] + (at - (double)below) * (divergence->kl[above] - divergence->kl[below]);
}

void divergence_close(struct divergence *divergence)
{
    if (divergence->file)
        fclose(divergence->file);
    free(divergence->base);
    free(divergence->kl);
    *divergence = (struct divergence){0};
}
