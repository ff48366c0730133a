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

// A text's beginning needs no place.
static bool stands(const struct carried *c, int64_t position)
{
    return position == 0 || find_place(c, position) >= 0;
}

bool carried_replays(const struct carried *c, int64_t position)
{
    return !stands(c, position) && position > c->first && position <= c->first + c->n_replays && stands(c, c->first);
}

bool carried_holds(const struct carried *c, int64_t position)
{
    return stands(c, position) || carried_replays(c, position);
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

void carried_begin_replay(struct carried *c, int64_t position)
{
    const int from = find_place(c, c->first);
    go_back(c, position);
    c->from = from < 0 ? 0 : from;
    c->to = free_place(c, c->from);
    c->at[c->to] = -1;
}

void carried_begin(struct carried *c, int64_t position, int n, bool apart)
{
    c->from = go_back(c, position);
    if (n > 1 && !apart)
        c->kept = position;
    c->first = position;
    c->n_replays = n > 1 && apart ? n : 0;
    c->to = free_place(c, c->from);
    c->at[c->to] = -1;
}

void carried_end(struct carried *c, int64_t position, int n, bool done)
{
    if (done)
        c->at[c->to] = position + n;
    else
        c->n_replays = 0;
}

int carried_place(struct carried *c, int64_t position)
{
    int place = find_place(c, position);
    if (place < 0)
        place = free_place(c, -1);
    for (int64_t &at : c->at) // which a place that is filled now knows nothing of
        if (at == position)
            at = -1;
    c->at[place] = position;
    return place;
}

int carried_skip(struct carried *c, int64_t position, int n)
{
    const int place = go_back(c, position);
    c->at[place] = position + n;
    c->n_replays = 0;
    return place;
}
