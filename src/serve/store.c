// See store.h. A response holds its whole conversation, so an older one may go.
#include "serve/store.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { N_STORED = 64 };

struct store {
    pthread_mutex_t lock;
    struct stored {
        cJSON *response, *items;
    } list[N_STORED]; // a ring
    int next;
};

struct store *store_open(void)
{
    struct store *store = calloc(1, sizeof *store);
    if (store)
        pthread_mutex_init(&store->lock, NULL);
    return store;
}

static void clear(struct stored *stored)
{
    cJSON_Delete(stored->response);
    cJSON_Delete(stored->items);
    *stored = (struct stored){0};
}

void store_close(struct store *store)
{
    if (store == NULL)
        return;
    for (int i = 0; i < N_STORED; i++)
        clear(&store->list[i]);
    pthread_mutex_destroy(&store->lock);
    free(store);
}

void store_add(struct store *store, cJSON *response, cJSON *items)
{
    pthread_mutex_lock(&store->lock);
    clear(&store->list[store->next]);
    store->list[store->next] = (struct stored){response, items};
    store->next = (store->next + 1) % N_STORED;
    pthread_mutex_unlock(&store->lock);
}

// Under the lock.
static struct stored *find(struct store *store, const char *id)
{
    for (int i = 0; i < N_STORED; i++) {
        const char *known = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(store->list[i].response, "id"));
        if (known && strcmp(known, id) == 0)
            return &store->list[i];
    }
    return NULL;
}

static cJSON *copy(struct store *store, const char *id, bool items)
{
    pthread_mutex_lock(&store->lock);
    const struct stored *stored = find(store, id);
    cJSON *found = stored ? cJSON_Duplicate(items ? stored->items : stored->response, true) : NULL;
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
    struct stored *stored = find(store, id);
    if (stored)
        clear(stored);
    pthread_mutex_unlock(&store->lock);
    return stored != NULL;
}
