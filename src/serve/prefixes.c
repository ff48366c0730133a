// See prefixes.h.
#include "serve/prefixes.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct page {
    struct page *parent;        // NULL: a sequence begins with it
    struct page *chain;         // the next one in its bucket
    struct page *newer, *older; // of leaves
    uint64_t key;               // of all tokens up to its end
    uint64_t number;            // no other page ever has it; not 0
    uint64_t used;              // when it was, as the last one of its sequence; of a page between, perhaps later
    size_t end;                 // tokens up to its end
    int n_children;
    int32_t tokens[PAGE_TOKENS];
    max_align_t rows[];
};

struct prefixes {
    size_t page_bytes;
    size_t n_pages, most_pages;
    struct page **buckets; // (n_buckets), a power of two
    size_t n_buckets;
    struct page *newest, *oldest; // of the leaves
    uint64_t clock;
    const void **found; // (context / PAGE_TOKENS)
    size_t context;
    int32_t *tokens; // (context)
};

struct prefixes *prefixes_open(yalm_session *like, uint64_t bytes)
{
    const size_t page_bytes = yalm_page_bytes(like, PAGE_TOKENS);
    const uint64_t most_pages = page_bytes ? bytes / (sizeof(struct page) + page_bytes) : 0;
    if (most_pages == 0)
        return NULL;
    struct prefixes *prefixes = calloc(1, sizeof *prefixes);
    if (prefixes == NULL)
        return NULL;
    prefixes->page_bytes = page_bytes;
    prefixes->most_pages = most_pages;
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

void prefixes_close(struct prefixes *prefixes)
{
    if (prefixes == NULL)
        return;
    for (size_t i = 0; prefixes->buckets && i < prefixes->n_buckets; i++)
        for (struct page *page = prefixes->buckets[i], *next; page; page = next) {
            next = page->chain;
            free(page);
        }
    free(prefixes->buckets);
    free(prefixes->found);
    free(prefixes->tokens);
    free(prefixes);
}

uint64_t prefixes_bytes(const struct prefixes *prefixes)
{
    return prefixes ? prefixes->n_pages * (sizeof(struct page) + prefixes->page_bytes) : 0;
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

static struct page *find_child(const struct prefixes *prefixes, const struct page *parent, const int32_t *tokens)
{
    const uint64_t key = key_of(parent, tokens);
    struct page *page = *bucket_of(prefixes, key);
    while (page && !(page->key == key && page->parent == parent && memcmp(page->tokens, tokens, sizeof page->tokens) == 0))
        page = page->chain;
    return page;
}

static void take_from_tree(struct prefixes *prefixes, struct page *page)
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
}

static void put_in_tree(struct prefixes *prefixes, struct page *page, struct page *parent, const int32_t *tokens)
{
    page->parent = parent;
    page->n_children = 0;
    page->key = key_of(parent, tokens);
    page->number = page->used = ++prefixes->clock;
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

// Memory for a page: more, or that of the oldest. NULL where that would be the one that it is to follow.
static struct page *page_make(struct prefixes *prefixes, const struct page *parent)
{
    if (prefixes->n_pages < prefixes->most_pages)
        return malloc(sizeof(struct page) + prefixes->page_bytes);
    struct page *oldest = prefixes->oldest;
    if (oldest == parent)
        return NULL;
    take_from_tree(prefixes, oldest);
    return oldest;
}

static struct page *page_at(const struct prefixes *prefixes, const struct prefix_place *place)
{
    struct page *page = *bucket_of(prefixes, place->key);
    while (page && page->number != place->number)
        page = page->chain;
    return page;
}

// A page behind `last` with the next of the session's tokens. NULL where it cannot be had.
static struct page *save_page(struct prefixes *prefixes, struct page *last, yalm_session *session, const int32_t *tokens)
{
    struct page *page = page_make(prefixes, last);
    if (page == NULL)
        return NULL;
    if (yalm_page_save(session, last ? (int64_t)last->end : 0, PAGE_TOKENS, page->rows, NULL) != YALM_OK) {
        free(page);
        return NULL;
    }
    put_in_tree(prefixes, page, last, tokens);
    return page;
}

void prefixes_keep(struct prefixes *prefixes, struct prefix_place *place, yalm_session *session, int64_t same)
{
    if (prefixes == NULL)
        return;
    struct page *last = page_at(prefixes, place);
    while (last && last->end > (size_t)same)
        last = last->parent;
    const int32_t *tokens = prefixes->tokens;
    const size_t behind = (size_t)yalm_position(session) - (last ? last->end : 0);
    const size_t n = yalm_session_tokens(session, prefixes->tokens, behind);
    for (size_t at = 0; at + PAGE_TOKENS <= n; at += PAGE_TOKENS) {
        touch(prefixes, last); // so that the next one does not take its memory
        struct page *page = find_child(prefixes, last, tokens + at);
        page = page ? page : save_page(prefixes, last, session, tokens + at);
        if (page == NULL)
            break;
        last = page;
    }
    touch(prefixes, last);
    *place = last ? (struct prefix_place){last->key, last->number} : (struct prefix_place){0};
}

bool prefixes_has_more(const struct prefixes *prefixes, const struct prefix_place *place, const int32_t *tokens, size_t n)
{
    const struct page *last = prefixes ? page_at(prefixes, place) : NULL;
    return !last || (last->end + PAGE_TOKENS <= n && find_child(prefixes, last, tokens + last->end));
}

size_t prefixes_find(struct prefixes *prefixes, const int32_t *tokens, size_t n, const void *const **pages)
{
    size_t n_found = 0;
    if (prefixes == NULL)
        return 0;
    struct page *last = NULL;
    for (struct page *page; (n_found + 1) * PAGE_TOKENS <= n; last = page) {
        page = find_child(prefixes, last, tokens + n_found * PAGE_TOKENS);
        if (page == NULL)
            break;
        prefixes->found[n_found++] = page->rows;
    }
    touch(prefixes, last);
    *pages = prefixes->found;
    return n_found;
}
