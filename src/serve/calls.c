// See calls.h.
#include "serve/calls.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "generate/learn_calls.h"
#include "grammar/grammar.h"
#include "util/buffer.h"

// A grammar of the tools that some request offered.
struct kept_grammar {
    char *key; // the tools and what was wished, owned
    struct grammar *grammar;
    struct buffer loosened; // names of tools whose schema it does not hold
    atomic_int users;       // requests; calls_take() alone adds to them
    struct kept_grammar *next;
};

// ---------------------------------------------------------------- the model's form

// Control tokens that the frame is written with: a model learnt to write them, and not their letters.
static void find_marks(struct calls *calls, const yalm_model *model)
{
    const int n_vocab = yalm_model_facts(model)->vocab_size;
    for (int32_t token = 0; token < n_vocab && calls->n_marks < MAX_CALL_MARKS; token++) {
        size_t length = 0;
        const char *bytes = yalm_is_control(model, token) ? yalm_piece(model, token, &length) : NULL;
        bool used = false;
        for (int part = 0; bytes && length > 1 && part < N_PARTS; part++)
            used |= memmem(calls->form.part[part], strlen(calls->form.part[part]), bytes, length) != NULL;
        if (used)
            calls->marks[calls->n_marks++] = token;
    }
}

void calls_open(struct calls *calls, const yalm_model *model)
{
    *calls = (struct calls){0};
    pthread_mutex_init(&calls->lock, NULL);
    learn_calls(&calls->form, model);
    find_marks(calls, model);
}

static void forget(struct kept_grammar *kept)
{
    grammar_free(kept->grammar);
    buffer_free(&kept->loosened);
    free(kept->key);
    free(kept);
}

void calls_close(struct calls *calls)
{
    while (calls->kept) {
        struct kept_grammar *next = calls->kept->next;
        forget(calls->kept);
        calls->kept = next;
    }
    pthread_mutex_destroy(&calls->lock);
}

// ---------------------------------------------------------------- grammars of tools

// Of those that nobody uses the oldest go.
static void forget_some(struct calls *calls)
{
    int n = 0;
    for (struct kept_grammar **at = &calls->kept; *at;) {
        struct kept_grammar *kept = *at;
        if (++n > MAX_KEPT_GRAMMARS && atomic_load(&kept->users) == 0) {
            *at = kept->next;
            forget(kept);
        } else
            at = &kept->next;
    }
}

// To the front, where it was used last.
static struct kept_grammar *find_kept(struct calls *calls, const char *key)
{
    for (struct kept_grammar **at = &calls->kept; *at; at = &(*at)->next)
        if (strcmp((*at)->key, key) == 0) {
            struct kept_grammar *kept = *at;
            *at = kept->next;
            kept->next = calls->kept;
            atomic_fetch_add(&kept->users, 1);
            return calls->kept = kept;
        }
    return NULL;
}

static struct kept_grammar *make_kept(struct calls *calls, const cJSON *tools, const struct call_wish *wish, char *key)
{
    yalm_error error;
    char *text;
    size_t length;
    struct kept_grammar *kept = NULL;
    struct buffer loosened = {0};
    if (call_grammar_write(&calls->form, tools, wish, &loosened, &text, &length, &error) != YALM_OK) {
        buffer_free(&loosened);
        return NULL;
    }
    struct grammar *grammar = grammar_parse(text, length, &error);
    free(text);
    if (grammar && (kept = calloc(1, sizeof *kept)) != NULL)
        *kept = (struct kept_grammar){key, grammar, loosened, 1, calls->kept};
    else {
        buffer_free(&loosened);
        grammar_free(grammar);
    }
    if (kept)
        calls->kept = kept;
    return kept;
}

struct kept_grammar *calls_take(struct calls *calls, const cJSON *tools, const struct call_wish *wish)
{
    struct buffer key = {0};
    char *json = cJSON_PrintUnformatted(tools);
    buffer_text(&key, json ? json : "");
    buffer_text(&key, wish->several ? "+" : "1");
    free(json);
    if (json == NULL || key.failed) {
        buffer_free(&key);
        return NULL;
    }
    pthread_mutex_lock(&calls->lock);
    struct kept_grammar *kept = find_kept(calls, key.at);
    if (kept == NULL)
        kept = make_kept(calls, tools, wish, key.at);
    forget_some(calls);
    pthread_mutex_unlock(&calls->lock);
    if (kept == NULL || kept->key != key.at)
        buffer_free(&key);
    return kept;
}

const struct grammar *calls_grammar(const struct kept_grammar *kept)
{
    return kept->grammar;
}

const char *calls_loosened(const struct kept_grammar *kept)
{
    return kept->loosened.at;
}

void calls_release(struct kept_grammar *kept)
{
    if (kept)
        atomic_fetch_sub(&kept->users, 1); // the last word about it: it may be forgotten now
}
