// The file of keys: one a line, blank lines and those that begin with # left out.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/keys.h"
#include "util/error.h"
#include "util/file.h"

struct keys {
    char **texts; // (n) owned
    size_t n;
};

static bool add_key(struct keys *keys, const char *line)
{
    char **grown = realloc(keys->texts, (keys->n + 1) * sizeof *grown);
    if (grown == NULL)
        return false;
    keys->texts = grown;
    grown[keys->n] = strdup(line);
    return grown[keys->n] != NULL && ++keys->n;
}

static yalm_status read_keys(struct keys *keys, FILE *file, const char *path, yalm_error *error)
{
    char *line = NULL;
    size_t room = 0;
    bool memory = true;
    for (ssize_t n; memory && (n = getline(&line, &room, file)) >= 0;) {
        line[strcspn(line, "\r\n")] = 0;
        if (*line && *line != '#')
            memory = add_key(keys, line);
    }
    free(line);
    if (memory && !ferror(file) && keys->n)
        return YALM_OK;
    const char *why = !memory ? "out of memory" : ferror(file) ? strerror(errno) : "no key in it: expected one on each line";
    return error_set(error, memory ? YALM_FAILED : YALM_NO_MEMORY, "%s: %s", path, why);
}

struct keys *keys_read(const char *path, yalm_error *error)
{
    FILE *file = file_open_at_once(path, "r");
    struct keys *keys = file ? calloc(1, sizeof *keys) : NULL;
    if (keys == NULL) {
        error_set(error, YALM_FAILED, "%s: %s", path, strerror(errno));
        if (file)
            fclose(file);
        return NULL;
    }
    const yalm_status status = read_keys(keys, file, path, error);
    fclose(file);
    if (status == YALM_OK)
        return keys;
    keys_free(keys);
    return NULL;
}

void keys_free(struct keys *keys)
{
    if (keys == NULL)
        return;
    for (size_t i = 0; i < keys->n; i++)
        free(keys->texts[i]);
    free(keys->texts);
    free(keys);
}

bool keys_hold(const struct keys *keys, const char *text)
{
    bool found = false;
    const size_t length = strlen(text);
    for (size_t i = 0; i < keys->n; i++) { // all of them, whole: the time tells nothing of a key but its length
        const char *key = keys->texts[i];
        unsigned differ = strlen(key) != length;
        for (size_t k = 0; k < length && differ != 1; k++)
            differ |= (unsigned)(key[k] ^ text[k]) << 8;
        found |= !differ;
    }
    return found;
}
