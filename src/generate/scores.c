// See scores.h.
#include "generate/scores.h"

#include <math.h>
#include <stdlib.h>

// The n likeliest of all, the likeliest first; of equals the lower id.
static void find_likely(struct score *likely, int n, const float *logits, int n_vocab, double sum)
{
    int found = 0;
    for (int id = 0; n > 0 && id < n_vocab; id++) {
        const float value = (float)(logits[id] - sum);
        if (isnan(value) || (found == n && value <= likely[n - 1].log_probability))
            continue;
        int at = found < n ? found++ : n - 1;
        for (; at > 0 && likely[at - 1].log_probability < value; at--)
            likely[at] = likely[at - 1];
        likely[at] = (struct score){id, value};
    }
    for (; found < n; found++)
        likely[found] = (struct score){-1, NAN};
}

bool scores_add(struct scores *scores, int n_likely, int32_t token, const float *logits, int n_vocab)
{
    const int n = n_likely > 0 ? n_likely : 0;
    if (scores->n == scores->room) {
        const size_t room = scores->room ? scores->room * 2 : 64;
        struct score *list = realloc(scores->list, room * sizeof *list);
        scores->list = list ? list : scores->list;
        struct score *likely = n ? realloc(scores->likely, room * (size_t)n * sizeof *likely) : NULL;
        scores->likely = likely ? likely : scores->likely;
        if (list == NULL || (n && likely == NULL))
            return false;
        scores->room = room;
    }
    struct score *likely = n ? scores->likely + scores->n * (size_t)n : NULL;
    struct score *score = &scores->list[scores->n++];
    *score = (struct score){token, NAN};
    if (logits) {
        const double sum = yalm_log_sum_exp(logits, n_vocab);
        score->log_probability = (float)(logits[token] - sum);
        find_likely(likely, n, logits, n_vocab, sum);
    } else
        for (int i = 0; i < n; i++)
            likely[i] = (struct score){-1, NAN};
    return true;
}

void scores_free(struct scores *scores)
{
    free(scores->list);
    free(scores->likely);
    *scores = (struct scores){0};
}
