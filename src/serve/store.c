// See store.h. A response holds its whole conversation, so an older one may go. They are kept as texts, whose size is known.
#include "serve/store.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct store {
    pthread_mutex_t lock;
    struct stored {
        char *id, *response, *items; // owned
        size_t bytes;
    } list[STORE_MAX]; // (n) the oldest first
    int n;
    size_t bytes;
};

struct store *store_open(void)
{
    struct store *store = calloc(1, sizeof *store);
    if (store)
        pthread_mutex_init(&store->lock, NULL);
    return store;
}

static void forget(struct stored *stored)
{
    free(stored->id);
    free(stored->response);
    free(stored->items);
}

void store_close(struct store *store)
{
    if (store == NULL)
        return;
    for (int i = 0; i < store->n; i++)
        forget(&store->list[i]);
    pthread_mutex_destroy(&store->lock);
    free(store);
}

// Under the lock.
static void take_out(struct store *store, int i)
{
    store->bytes -= store->list[i].bytes;
    forget(&store->list[i]);
    store->n--;
    memmove(&store->list[i], &store->list[i + 1], (size_t)(store->n - i) * sizeof *store->list);
}

void store_add(struct store *store, const char *id, const cJSON *response, const cJSON *items)
{
    struct stored new = {strdup(id), cJSON_PrintUnformatted(response), cJSON_PrintUnformatted(items), 0};
    if (new.id &&new.response &&new.items)
        new.bytes = strlen(new.response) + strlen(new.items);
    if (new.bytes == 0 || new.bytes > STORE_MAX_BYTES) {
        forget(&new);
        return;
    }
    pthread_mutex_lock(&store->lock);
    while (store->n == STORE_MAX || store->bytes > STORE_MAX_BYTES - new.bytes)
        take_out(store, 0);
    store->list[store->n++] = new;
    store->bytes += new.bytes;
    pthread_mutex_unlock(&store->lock);
}

// Under the lock; -1: there is none.
static int find(const struct store *store, const char *id)
{
    int i = store->n - 1;
    while (i >= 0 && strcmp(store->list[i].id, id) != 0)
        i--;
    return i;
}

static cJSON *copy(struct store *store, const char *id, bool items)
{
    pthread_mutex_lock(&store->lock);
    const int i = find(store, id);
    cJSON *found = i < 0 ? NULL : cJSON_Parse(items ? store->list[i].items : store->list[i].response);
    pthread_mutex_unlock(&store->lock);
    return found;
}

cJSON *store_response(struct store *store, const char *id)
{
    return copy(store, id, false);
}

cJSON *store_items(struct store *store, const char *id)
{
    return copy(store, id, true);
}

bool store_remove(struct store *store, const char *id)
{
    pthread_mutex_lock(&store->lock);
    const int i = find(store, id);
    if (i >= 0)
        take_out(store, i);
    pthread_mutex_unlock(&store->lock);
    return i >= 0;
}
