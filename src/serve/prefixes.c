// See prefixes.h.
#include "serve/prefixes_tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

static uint32_t exact_by(const yalm_session_options *facts)
{
    char text[128];
    if (!facts->exact)
        return 0;
    const int n = snprintf(text, sizeof text, "%s %s %d", yalm_version(), facts->isa, facts->context);
    return (uint32_t)XXH3_64bits(text, (size_t)n) | 1;
}

struct prefixes *prefixes_open(yalm_session *like, uint64_t bytes)
{
    const size_t page_bytes = yalm_page_bytes(like, PAGE_TOKENS), state_bytes = yalm_state_bytes(like);
    const uint64_t most_pages = page_bytes ? bytes / (sizeof(struct page) + page_bytes) : 0;
    const uint64_t most_states = state_bytes ? bytes / 2 / state_bytes : 0;
    if (most_pages == 0 || (state_bytes && most_states == 0))
        return NULL;
    struct prefixes *prefixes = calloc(1, sizeof *prefixes);
    if (prefixes == NULL)
        return NULL;
    const yalm_session_options *facts = yalm_session_facts(like);
    prefixes->of = (struct prefixes_of){
        .model_checksum = yalm_model_facts(yalm_session_model(like))->checksum,
        .page_bytes = page_bytes,
        .state_bytes = state_bytes,
        .page_tokens = PAGE_TOKENS,
        .kv = facts->kv,
        .activations = facts->activations,
        .exact = exact_by(facts),
    };
    prefixes->page_bytes = page_bytes;
    prefixes->state_bytes = state_bytes;
    prefixes->most_bytes = bytes;
    prefixes->most_states = most_states < MOST_STATES ? most_states : MOST_STATES;
    for (prefixes->n_buckets = 1; prefixes->n_buckets < most_pages; prefixes->n_buckets *= 2)
        ;
    prefixes->buckets = calloc(prefixes->n_buckets, sizeof(struct page *));
    prefixes->context = (size_t)yalm_session_facts(like)->context;
    prefixes->found = malloc(prefixes->context / PAGE_TOKENS * sizeof *prefixes->found);
    prefixes->tokens = malloc(prefixes->context * sizeof *prefixes->tokens);
    if (prefixes->buckets && prefixes->found && prefixes->tokens)
        return prefixes;
    prefixes_close(prefixes);
    return NULL;
}

void prefixes_release(struct prefixes *prefixes)
{
    if (prefixes->claim) {
        unlink(prefixes->claim);
        close(prefixes->claim_file);
    }
    free(prefixes->claim);
    prefixes->claim = NULL;
}

void prefixes_close(struct prefixes *prefixes)
{
    if (prefixes == NULL)
        return;
    for (size_t i = 0; prefixes->buckets && i < prefixes->n_buckets; i++)
        for (struct page *page = prefixes->buckets[i], *next; page; page = next) {
            next = page->chain;
            free(page->state);
            free(page);
        }
    prefixes_release(prefixes);
    free(prefixes->buckets);
    free(prefixes->found);
    free(prefixes->tokens);
    free(prefixes);
}

uint64_t prefixes_bytes(const struct prefixes *prefixes)
{
    return prefixes
               ? prefixes->n_pages * (sizeof(struct page) + prefixes->page_bytes) + prefixes->n_states * prefixes->state_bytes
               : 0;
}

bool prefixes_need_states(const struct prefixes *prefixes)
{
    return prefixes && prefixes->state_bytes > 0;
}

// ---------------------------------------------------------------- by age

static void list_remove(struct prefixes *prefixes, struct page *page)
{
    *(page->newer ? &page->newer->older : &prefixes->newest) = page->older;
    *(page->older ? &page->older->newer : &prefixes->oldest) = page->newer;
}

// Mostly at one of the two ends.
static void list_add(struct prefixes *prefixes, struct page *page)
{
    struct page *older = prefixes->newest, *newer = prefixes->oldest;
    if (older && older->used > page->used) {
        while (newer->used <= page->used)
            newer = newer->newer;
        older = newer->older;
    } else
        newer = NULL;
    page->newer = newer;
    page->older = older;
    *(newer ? &newer->older : &prefixes->newest) = page;
    *(older ? &older->newer : &prefixes->oldest) = page;
}

static void touch(struct prefixes *prefixes, struct page *page)
{
    if (page == NULL)
        return;
    if (page->n_children == 0)
        list_remove(prefixes, page);
    page->used = ++prefixes->clock;
    if (page->n_children == 0)
        list_add(prefixes, page);
}

// ---------------------------------------------------------------- by tokens

static uint64_t key_of(const struct page *parent, const int32_t *tokens)
{
    return XXH3_64bits_withSeed(tokens, PAGE_TOKENS * sizeof *tokens, parent ? parent->key : 0);
}

static struct page **bucket_of(const struct prefixes *prefixes, uint64_t key)
{
    return &prefixes->buckets[key & (prefixes->n_buckets - 1)];
}

struct page *prefixes_child(const struct prefixes *prefixes, const struct page *parent, const int32_t *tokens)
{
    const uint64_t key = key_of(parent, tokens);
    struct page *page = *bucket_of(prefixes, key);
    while (page && !(page->key == key && page->parent == parent && memcmp(page->tokens, tokens, sizeof page->tokens) == 0))
        page = page->chain;
    return page;
}

// The page carries no state any more: whose memory that was is now the caller's.
static void *take_state(struct prefixes *prefixes, struct page *page)
{
    void *state = page->state;
    size_t i = 0;
    while (prefixes->states[i] != page)
        i++;
    prefixes->states[i] = prefixes->states[--prefixes->n_states];
    page->state = NULL;
    return state;
}

void prefixes_put_state(struct prefixes *prefixes, struct page *page, void *state)
{
    page->state = state;
    prefixes->states[prefixes->n_states++] = page;
}

// A leaf goes.
static void remove_page(struct prefixes *prefixes, struct page *page)
{
    struct page **at = bucket_of(prefixes, page->key);
    while (*at != page)
        at = &(*at)->chain;
    *at = page->chain;
    list_remove(prefixes, page);
    prefixes->n_pages--;
    struct page *parent = page->parent;
    if (parent && parent->used < page->used)
        parent->used = page->used;
    if (parent && --parent->n_children == 0)
        list_add(prefixes, parent);
    free(page->state ? take_state(prefixes, page) : NULL);
    free(page);
}

bool prefixes_make_room(struct prefixes *prefixes, size_t bytes, const struct page *but)
{
    while (prefixes_bytes(prefixes) + bytes > prefixes->most_bytes && prefixes->oldest && prefixes->oldest != but)
        remove_page(prefixes, prefixes->oldest);
    return prefixes_bytes(prefixes) + bytes <= prefixes->most_bytes;
}

void prefixes_put(struct prefixes *prefixes, struct page *page, struct page *parent, const int32_t *tokens, uint64_t used)
{
    page->parent = parent;
    page->n_children = 0;
    page->level = 0;
    page->key = key_of(parent, tokens);
    page->number = ++prefixes->clock;
    page->used = used ? used : page->number;
    page->end = (parent ? parent->end : 0) + PAGE_TOKENS;
    memcpy(page->tokens, tokens, sizeof page->tokens);
    struct page **bucket = bucket_of(prefixes, page->key);
    page->chain = *bucket;
    *bucket = page;
    list_add(prefixes, page);
    if (parent && parent->n_children++ == 0)
        list_remove(prefixes, parent);
    prefixes->n_pages++;
}

struct page *prefixes_page(const struct prefixes *prefixes, const struct prefix_place *place)
{
    struct page *page = *bucket_of(prefixes, place->key);
    while (page && page->number != place->number)
        page = page->chain;
    return page;
}

// A page behind `last` with the next of the session's tokens. NULL where it cannot be had.
static struct page *save_page(struct prefixes *prefixes, struct page *last, yalm_session *session, const int32_t *tokens)
{
    const size_t bytes = sizeof(struct page) + prefixes->page_bytes;
    struct page *page = prefixes_make_room(prefixes, bytes, last) ? malloc(bytes) : NULL;
    if (page == NULL)
        return NULL;
    page->state = NULL;
    if (yalm_page_save(session, last ? (int64_t)last->end : 0, PAGE_TOKENS, page->rows, NULL) != YALM_OK) {
        free(page);
        return NULL;
    }
    prefixes_put(prefixes, page, last, tokens, 0);
    return page;
}

void prefixes_keep(struct prefixes *prefixes, struct prefix_place *place, yalm_session *session, int64_t same)
{
    if (prefixes == NULL)
        return;
    struct page *last = prefixes_page(prefixes, place);
    while (last && last->end > (size_t)same)
        last = last->parent;
    const int32_t *tokens = prefixes->tokens;
    const size_t behind = (size_t)yalm_position(session) - (last ? last->end : 0);
    const size_t written = yalm_session_tokens(session, prefixes->tokens, behind);
    const size_t unsettled = (size_t)(yalm_position(session) - yalm_session_settled(session));
    const size_t n = unsettled < written ? written - unsettled : 0;
    for (size_t at = 0; at + PAGE_TOKENS <= n; at += PAGE_TOKENS) {
        touch(prefixes, last); // so that the next one does not take its memory
        struct page *page = prefixes_child(prefixes, last, tokens + at);
        page = page ? page : save_page(prefixes, last, session, tokens + at);
        if (page == NULL)
            break;
        last = page;
    }
    touch(prefixes, last);
    *place = last ? (struct prefix_place){last->key, last->number} : (struct prefix_place){0};
}

static struct page *checkpoint_before(const struct page *page)
{
    struct page *before = page->parent;
    while (before && before->state == NULL)
        before = before->parent;
    return before;
}

// The state of least worth goes; its memory is the caller's.
static void *take_least(struct prefixes *prefixes)
{
    uint64_t least = UINT64_MAX;
    struct page *of_least = NULL;
    for (size_t i = 0; i < prefixes->n_states; i++)
        prefixes->states[i]->followed = false;
    for (size_t i = 0; i < prefixes->n_states; i++) {
        struct page *before = checkpoint_before(prefixes->states[i]);
        if (before)
            before->followed = true;
    }
    for (size_t i = 0; i < prefixes->n_states; i++) {
        const struct page *page = prefixes->states[i], *before = checkpoint_before(page);
        const size_t saved = page->end - (before ? before->end : 0);
        const uint64_t worth = page->level + (page->followed ? saved : saved * LAST_COUNTS);
        if (worth < least) {
            least = worth;
            of_least = prefixes->states[i];
        }
    }
    prefixes->level = least;
    return take_state(prefixes, of_least);
}

static void *make_state(struct prefixes *prefixes, const struct page *page)
{
    if (prefixes->n_states == prefixes->most_states)
        return take_least(prefixes);
    return prefixes_make_room(prefixes, prefixes->state_bytes, page) ? malloc(prefixes->state_bytes) : NULL;
}

bool prefixes_keep_state(struct prefixes *prefixes, const struct prefix_place *place, yalm_session *session,
                         const struct prefix_place *instead)
{
    struct page *page = prefixes ? prefixes_page(prefixes, place) : NULL;
    if (page == NULL || !prefixes_need_states(prefixes) || page->end != (size_t)yalm_position(session))
        return false;
    struct page *other = prefixes_page(prefixes, instead);
    void *state = NULL;
    if (page->state == NULL) {
        state = other && other->state && other->n_children <= 1 ? take_state(prefixes, other) : make_state(prefixes, page);
        if (state == NULL || yalm_state_save(session, state, NULL) != YALM_OK) {
            free(state);
            return false;
        }
        prefixes_put_state(prefixes, page, state);
    }
    page->level = prefixes->level;
    return true;
}

bool prefixes_has_more(const struct prefixes *prefixes, const struct prefix_place *place, const int32_t *tokens, size_t n)
{
    const struct page *last = prefixes ? prefixes_page(prefixes, place) : NULL;
    return !last || (last->end + PAGE_TOKENS <= n && prefixes_child(prefixes, last, tokens + last->end));
}

struct prefix prefixes_find(struct prefixes *prefixes, const int32_t *tokens, size_t n)
{
    struct prefix prefix = {0};
    if (prefixes == NULL)
        return prefix;
    struct page *last = NULL, *page;
    for (size_t i = 0; (i + 1) * PAGE_TOKENS <= n && (page = prefixes_child(prefixes, last, tokens + i * PAGE_TOKENS)); i++) {
        last = page;
        prefixes->found[i] = page->rows;
        if (page->state || !prefixes_need_states(prefixes)) {
            prefix.n_pages = i + 1;
            prefix.state = page->state;
        }
    }
    touch(prefixes, last);
    while (last && prefix.state && last->state != prefix.state)
        last = last->parent;
    if (last)
        last->level = prefixes->level;
    prefix.pages = prefixes->found;
    return prefix;
}
