// See suffix.h.
#include "speculate/suffix.h"

#include <stdlib.h>
#include <string.h>

enum { NONE = -1, ROOT = 0 };

struct state {
    int32_t length; // of its longest string
    int32_t link;   // the state of that string's longest end that is not of this state
    int32_t end;    // where its strings end: the position of the token behind; of a matched state, the last such place
    int32_t edges;  // the first; NONE: none
};

struct edge {
    int32_t from, token, to;
    int32_t next; // of the same state
};

struct suffix {
    size_t most;
    int32_t *text;
    struct state *states; // (2 * room)
    struct edge *edges;   // (3 * room): there are fewer than three for each token
    int32_t *table;       // (n_table), edges by state and token; NONE: free
    size_t n_text, room, n_states, n_edges, n_table;
    int32_t last; // the state of the whole text
};

static size_t place(const struct suffix *s, int32_t from, int32_t token)
{
    const uint64_t key = ((uint64_t)(uint32_t)from << 32 | (uint32_t)token) * 0x9e3779b97f4a7c15u;
    size_t at = (size_t)(key >> 32) & (s->n_table - 1);
    while (s->table[at] != NONE && (s->edges[s->table[at]].from != from || s->edges[s->table[at]].token != token))
        at = (at + 1) & (s->n_table - 1);
    return at;
}

static struct edge *find(const struct suffix *s, int32_t from, int32_t token)
{
    const int32_t edge = s->table[place(s, from, token)];
    return edge == NONE ? NULL : &s->edges[edge];
}

static void add_edge(struct suffix *s, int32_t from, int32_t token, int32_t to)
{
    s->table[place(s, from, token)] = (int32_t)s->n_edges;
    s->edges[s->n_edges] = (struct edge){from, token, to, s->states[from].edges};
    s->states[from].edges = (int32_t)s->n_edges++;
}

static int32_t add_state(struct suffix *s, int32_t length, int32_t link, int32_t end)
{
    s->states[s->n_states] = (struct state){length, link, end, NONE};
    return (int32_t)s->n_states++;
}

void suffix_forget(struct suffix *s)
{
    s->n_text = s->n_states = s->n_edges = 0;
    memset(s->table, 0xff, s->n_table * sizeof *s->table);
    s->last = add_state(s, 0, NONE, 0);
}

// Room for twice the tokens, or for the first ones. False: no memory, nothing has changed.
static bool grow(struct suffix *s)
{
    const size_t room = s->room ? 2 * s->room : 1024, n_table = 4 * room;
    int32_t *text = realloc(s->text, room * sizeof *text);
    s->text = text ? text : s->text;
    struct state *states = realloc(s->states, 2 * room * sizeof *states);
    s->states = states ? states : s->states;
    struct edge *edges = realloc(s->edges, 3 * room * sizeof *edges);
    s->edges = edges ? edges : s->edges;
    int32_t *table = malloc(n_table * sizeof *table);
    if (!text || !states || !edges || !table) {
        free(table);
        return false;
    }
    free(s->table);
    s->table = table;
    s->n_table = n_table;
    s->room = room;
    memset(table, 0xff, n_table * sizeof *table);
    for (size_t i = 0; i < s->n_edges; i++)
        table[place(s, edges[i].from, edges[i].token)] = (int32_t)i;
    return true;
}

struct suffix *suffix_open(size_t most)
{
    struct suffix *s = calloc(1, sizeof *s);
    if (s)
        s->most = most < INT32_MAX / 8 ? most : INT32_MAX / 8;
    if (s && grow(s)) {
        suffix_forget(s);
        return s;
    }
    suffix_close(s);
    return NULL;
}

void suffix_close(struct suffix *s)
{
    if (!s)
        return;
    free(s->text);
    free(s->states);
    free(s->edges);
    free(s->table);
    free(s);
}

// The state of the strings that `from` and a token make, where it had longer ones besides: these keep `whole`, the others get
// a state of their own.
static int32_t split(struct suffix *s, int32_t from, int32_t token, int32_t whole)
{
    const struct state old = s->states[whole];
    const int32_t part = add_state(s, s->states[from].length + 1, old.link, old.end);
    for (int32_t e = old.edges; e != NONE; e = s->edges[e].next)
        add_edge(s, part, s->edges[e].token, s->edges[e].to);
    s->states[whole].link = part;
    for (struct edge *edge; from != NONE && (edge = find(s, from, token)) && edge->to == whole; from = s->states[from].link)
        edge->to = part;
    return part;
}

static bool have_room(struct suffix *s)
{
    if (s->n_text == s->most)
        suffix_forget(s);
    if (s->n_text < s->room || grow(s))
        return true;
    suffix_forget(s);
    return false;
}

bool suffix_add(struct suffix *s, int32_t token)
{
    if (!have_room(s))
        return false;
    if (s->last != ROOT && s->states[s->last].link > ROOT) // the place that was matched last is the one to be found next time
        s->states[s->states[s->last].link].end = (int32_t)s->n_text;
    s->text[s->n_text++] = token;
    int32_t at = s->last;
    s->last = add_state(s, s->states[at].length + 1, ROOT, (int32_t)s->n_text);
    struct edge *edge = NULL;
    for (; at != NONE && !(edge = find(s, at, token)); at = s->states[at].link)
        add_edge(s, at, token, s->last);
    if (at == NONE)
        return true;
    const int32_t next = edge->to;
    s->states[s->last].link = s->states[next].length == s->states[at].length + 1 ? next : split(s, at, token, next);
    return true;
}

// As a token that never comes again.
bool suffix_break(struct suffix *s)
{
    return s->n_text == 0 || suffix_add(s, -1 - (int32_t)s->n_text);
}

size_t suffix_match(const struct suffix *s, const int32_t **next, size_t *n)
{
    const int32_t link = s->last == ROOT ? NONE : s->states[s->last].link;
    const size_t most = *n, end = link > ROOT ? (size_t)s->states[link].end : s->n_text;
    *next = s->text + end;
    for (*n = 0; *n < most && end + *n < s->n_text && s->text[end + *n] >= 0;)
        ++*n;
    return link <= ROOT ? 0 : (size_t)s->states[link].length;
}
