// How the model calls tools, and grammars that hold its calls to the tools' schemas.
#pragma once
#include <pthread.h>

#include "serve/call_grammar.h"

enum { MAX_CALL_MARKS = 32, MAX_KEPT_GRAMMARS = 8 };

struct kept_grammar;

struct calls {
    struct call_form form;
    int32_t marks[MAX_CALL_MARKS]; // (n_marks) control tokens of the form
    int n_marks;
    pthread_mutex_t lock;
    struct kept_grammar *kept; // under the lock: of the tools that were offered last, owned
};

void calls_open(struct calls *calls, const yalm_model *model);
void calls_close(struct calls *calls); // no request runs
// The grammar of calls of these tools, kept or newly made; NULL: none can be made.
struct kept_grammar *calls_take(struct calls *calls, const cJSON *tools, const struct call_wish *wish);
const struct grammar *calls_grammar(const struct kept_grammar *kept);
// The names of tools whose schema it does not hold; NULL: there are none.
const char *calls_loosened(const struct kept_grammar *kept);
// A request is over that used it; NULL is welcome.
void calls_release(struct kept_grammar *kept);
