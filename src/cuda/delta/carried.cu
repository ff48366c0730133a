// Which place of a session's recurrent states stands before which position.
#include "cuda/delta/delta.h"

void carried_open(struct carried *c)
{
    *c = {};
    for (int64_t &at : c->at)
        at = -1;
}

static int find_place(const struct carried *c, int64_t position)
{
    int place = CARRIED_PLACES - 1;
    while (place >= 0 && c->at[place] != position)
        place--;
    return place;
}

bool carried_holds(const struct carried *c, int64_t position)
{
    return position == 0 || find_place(c, position) >= 0;
}

// The place before `position`, with all that came later taken back. A text that begins needs none: kernels take its states for
// 0.
static int go_back(struct carried *c, int64_t position)
{
    for (int64_t &at : c->at)
        if (position == 0 || at > position)
            at = -1;
    const int place = find_place(c, position);
    return place < 0 ? 0 : place;
}

// A place that may be written: one that holds nothing; else neither `but` nor the one that is kept.
static int free_place(const struct carried *c, int but)
{
    int found = -1;
    for (int place = 0; place < CARRIED_PLACES; place++) {
        const int64_t at = c->at[place];
        if (place != but && (at < 0 || (found < 0 && at != c->kept)))
            found = place;
        if (found == place && at < 0)
            break;
    }
    return found;
}

void carried_begin(struct carried *c, int64_t position, int n)
{
    c->from = go_back(c, position);
    if (n > 1)
        c->kept = position;
    c->to = free_place(c, c->from);
    c->at[c->to] = -1;
}

void carried_end(struct carried *c, int64_t position, int n, bool done)
{
    if (done)
        c->at[c->to] = position + n;
}

int carried_skip(struct carried *c, int64_t position, int n)
{
    const int place = go_back(c, position);
    c->at[place] = position + n;
    return place;
}
