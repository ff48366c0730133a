// `yalm cache`: what was converted, which of it is stale, and its removal.
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/cache.h"

// Why no start will find the entry's copy any more, in text[0..room); false where one may.
static bool is_stale(const struct cache_entry *entry, char *text, size_t room)
{
    struct converter converter;
    struct cache_entry now;
    const struct origin its = cache_recall(entry);
    bool stale = true;
    if (its.length == 0)
        snprintf(text, room, "what it was made of is not known");
    else if (access(its.bytes, F_OK) != 0)
        snprintf(text, room, "%s is gone", plain(its.bytes));
    else if (converter_find(&converter, its.bytes, NULL) == YALM_OK &&
             cache_find(&now, &its, converter.folder, NULL) == YALM_OK && strcmp(now.id, entry->id) != 0)
        snprintf(text, room, "%s has changed, or the converter", plain(its.bytes));
    else
        stale = false;
    free(its.bytes);
    return stale;
}

static bool is_wanted(const struct cache_entry *entry, const struct options *options)
{
    char why[PATH_MAX + 64];
    for (int i = 1; i < options->n_words; i++)
        if (strcmp(options->words[i], "stale") == 0 ? is_stale(entry, why, sizeof why)
                                                    : strncmp(entry->id, options->words[i], strlen(options->words[i])) == 0)
            return true;
    return options->n_words <= 1;
}

static yalm_status clear(struct cache_entry *entry, const struct options *options, yalm_error *error)
{
    char path[PATH_MAX + NAME_MAX + 2];
    int models = 0;
    for (int i = 1; i < options->n_words; i++)
        if (options->words[i][0] == '\0')
            return error_set(error, YALM_USAGE, "yalm cache clear: an ID is empty: yalm cache lists them");
    DIR *folder = opendir(entry->folder);
    for (struct dirent *found; folder && (found = readdir(folder));) {
        const char *id = cache_id(found->d_name);
        if (id == NULL)
            continue;
        snprintf(entry->id, sizeof entry->id, "%.*s", CACHE_ID, id);
        if (!is_wanted(entry, options) || cache_is_being_made(entry))
            continue;
        snprintf(path, sizeof path, "%s/%s", entry->folder, found->d_name);
        if (unlink(path) != 0) {
            closedir(folder);
            return error_set(error, YALM_FAILED, "%s: %s", path, strerror(errno));
        }
        models += strcmp(id + CACHE_ID, ".bin") == 0;
    }
    if (folder)
        closedir(folder);
    if (models == 0 && options->n_words > 1 && strcmp(options->words[1], "stale") != 0)
        return error_set(error, YALM_USAGE, "%s: no model '%s' is there: yalm cache lists them", entry->folder,
                         options->words[1]);
    printf("%s: %d model%s removed\n", entry->folder, models, models == 1 ? "" : "s");
    return YALM_OK;
}

static int is_model(const struct dirent *entry)
{
    return cache_id(entry->d_name) == entry->d_name && strcmp(entry->d_name + CACHE_ID, ".bin") == 0;
}

static uint64_t show(struct cache_entry *entry, const char *name, int *stale)
{
    char path[PATH_MAX + NAME_MAX + 2], why[PATH_MAX + 64], day[32] = "";
    struct stat facts;
    struct tm local;
    snprintf(path, sizeof path, "%s/%s", entry->folder, name);
    snprintf(entry->id, sizeof entry->id, "%.*s", CACHE_ID, name);
    yalm_model *model = yalm_model_open(path, NULL, NULL);
    if (stat(path, &facts) != 0)
        facts = (struct stat){0};
    if (localtime_r(&facts.st_mtime, &local))
        strftime(day, sizeof day, "%Y-%m-%d %H:%M", &local);
    printf("%s  %8s  %-6s  used %s  %s", entry->id, human_bytes((uint64_t)facts.st_size),
           model ? yalm_model_facts(model)->weight_dtype : "?", day, model ? plain(yalm_model_facts(model)->name) : "damaged");
    if (is_stale(entry, why, sizeof why) && ++*stale)
        printf("  (stale: %s)", why);
    putchar('\n');
    yalm_model_close(model);
    return (uint64_t)facts.st_size;
}

yalm_status run_cache(const struct options *options, yalm_error *error)
{
    struct cache_entry entry;
    const yalm_status status = cache_folder(&entry, error);
    if (status != YALM_OK)
        return status;
    if (options->n_words > 0 && strcmp(options->words[0], "clear") == 0)
        return clear(&entry, options, error);
    if (options->n_words > 0)
        return error_set(error, YALM_USAGE, "yalm cache: found '%s', expected nothing, or clear [ID…|stale]",
                         options->words[0]);
    struct dirent **entries;
    uint64_t bytes = 0;
    int stale = 0;
    const int n = scandir(entry.folder, &entries, is_model, alphasort);
    if (n < 0 && errno != ENOENT)
        return error_set(error, YALM_FAILED, "%s: %s", entry.folder, strerror(errno));
    for (int i = 0; i < n; i++) {
        bytes += show(&entry, entries[i]->d_name, &stale);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    printf("%s: %d model%s, %s%s\n", entry.folder, n > 0 ? n : 0, n == 1 ? "" : "s", human_bytes(bytes),
           stale   ? "; yalm cache clear stale removes what no start will find, clear [ID…] others"
           : n > 0 ? "; yalm cache clear [ID…] removes them"
                   : "");
    return YALM_OK;
}
