// What the user names as a model: yalm's own file, or a GGUF file or a directory, which are converted once, into the cache.
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cache.h"

enum file_kind { OWN, GGUF, DIRECTORY }; // OWN: or nothing that is known, of which opening says more

static enum file_kind kind_of(const char *path)
{
    char magic[4] = "";
    struct stat facts;
    if (stat(path, &facts) != 0)
        return OWN;
    if (S_ISDIR(facts.st_mode))
        return DIRECTORY;
    FILE *file = S_ISREG(facts.st_mode) ? fopen(path, "rb") : NULL;
    const bool gguf = file && fread(magic, 1, sizeof magic, file) == sizeof magic && memcmp(magic, "GGUF", sizeof magic) == 0;
    if (file)
        fclose(file);
    return gguf ? GGUF : OWN;
}

// A directory without a config.json that has one GGUF file, or the first of several parts: that one.
static yalm_status look_into(char *path, size_t room, const char *folder, yalm_error *error)
{
    char config[PATH_MAX], first[NAME_MAX + 1] = "";
    int n = 0;
    snprintf(config, sizeof config, "%s/config.json", folder);
    snprintf(path, room, "%s", folder);
    if (access(config, F_OK) == 0)
        return YALM_OK;
    DIR *directory = opendir(folder);
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        const char *end = strrchr(entry->d_name, '.'), *part = strstr(entry->d_name, "-of-");
        if (end == NULL || strcmp(end, ".gguf") != 0 ||
            (part && part - entry->d_name > 6 && strncmp(part - 6, "-00001", 6) != 0))
            continue;
        if (n++ == 0 || strcmp(entry->d_name, first) < 0)
            snprintf(first, sizeof first, "%s", entry->d_name);
    }
    if (directory)
        closedir(directory);
    if (n == 0)
        return error_set(error, YALM_BAD_MODEL,
                         "%s: no model: neither a config.json, as Hugging Face's directories have, nor a GGUF file is in it",
                         folder);
    if (n > 1)
        return error_set(error, YALM_USAGE, "%s: %d GGUF files are in it: name one, as %s/%s", folder, n, folder, first);
    snprintf(path, room, "%s/%s", folder, first);
    return YALM_OK;
}

static yalm_status convert(const struct cache_entry *entry, const struct converter *converter, const char *source,
                           const struct origin *origin, bool quiet, yalm_error *error)
{
    int lock;
    yalm_status status = cache_lock(entry, &lock, error);
    if (status != YALM_OK)
        return status;
    if (!cache_holds(entry)) { // nobody else has made it meanwhile
        if (!quiet)
            say("%s: is converted once, into %s", source, entry->folder);
        status = converter_run(converter, source, entry->file, origin, quiet, error);
        if (status == YALM_OK && cache_replace(entry, origin) && !quiet)
            say("%s: what it was before is removed from there", source);
    }
    cache_unlock(entry, lock);
    return status;
}

// *found: the file to open, owned by the caller; NULL where that is `named` itself.
static yalm_status resolve(const char *named, const struct options *options, char **found, yalm_error *error)
{
    char source[PATH_MAX];
    struct cache_entry entry;
    struct converter converter;
    const enum file_kind kind = kind_of(named);
    *found = NULL;
    if (kind == OWN && access(named, F_OK) != 0 && errno == ENOENT)
        return error_set(error, YALM_FAILED, "%s: No such file or directory (yalm downloads nothing: name a file that is here)",
                         named);
    if (kind == OWN && conversion_option(options))
        return error_set(error, YALM_USAGE, "--%s: %s is no GGUF file and no directory, which would be converted",
                         conversion_option(options), named);
    if (kind == OWN)
        return YALM_OK;
    snprintf(source, sizeof source, "%s", named);
    yalm_status status = kind == DIRECTORY ? look_into(source, sizeof source, named, error) : YALM_OK;
    status = status ?: converter_find(&converter, source, error);
    struct origin origin = {0};
    status = status ?: origin_of(&origin, source, options, error);
    status = status ?: cache_find(&entry, &origin, converter.folder, error);
    if (status == YALM_OK && !cache_holds(&entry))
        status = convert(&entry, &converter, source, &origin, options->quiet, error);
    if (status == YALM_OK)
        cache_remember(&entry, &origin);
    free(origin.bytes);
    if (status != YALM_OK)
        return status;
    *found = strdup(entry.file);
    return *found ? YALM_OK : cli_no_memory(error);
}

yalm_status resolve_models(struct options *options, yalm_error *error)
{
    static const char draft[] = "draft=";
    char *file = NULL;
    options->named = options->model;
    yalm_status status = resolve(options->model, options, &options->converted, error);
    if (status == YALM_OK && options->converted)
        options->model = options->converted;
    if (status != YALM_OK || strncmp(options->speculate, draft, strlen(draft)) != 0)
        return status;
    const struct options as_stored = {.quiet = options->quiet, .follow_links = options->follow_links};
    status = resolve(options->speculate + strlen(draft), &as_stored, &file, error);
    if (status == YALM_OK && file) {
        if (asprintf(&options->converted_draft, "%s%s", draft, file) < 0)
            status = cli_no_memory(error);
        else
            options->speculate = options->converted_draft;
    }
    free(file);
    return status;
}
