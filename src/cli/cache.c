// See cache.h. Which file is whose: by each source file's size, time of change and samples, and by the converter's whole text.
#include "cli/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "cli/folders.h"

// Of a file of weights: its beginning, and pieces at even distances. A changed file has another time of change; one that was
// copied with its time has other weights, of which some pieces tell.
enum { SAMPLES = 256, SAMPLE = 4096, BEGINNING = 1 << 20 };
static const char magic[8] = {'Y', 'A', 'L', 'M', '\r', '\n', 0x1a, '\n'}; // docs/format.md

// ---------------------------------------------------------------- what names a file

static void add_text(XXH3_state_t *state, const char *text)
{
    XXH3_64bits_update(state, text, strlen(text) + 1);
}

static void add_bytes(XXH3_state_t *state, int file, int64_t at, size_t length)
{
    char bytes[1 << 16];
    for (ssize_t n; length > 0; length -= (size_t)n, at += n) {
        n = pread(file, bytes, length < sizeof bytes ? length : sizeof bytes, at);
        if (n <= 0)
            return; // the converter will say what is wrong
        XXH3_64bits_update(state, bytes, (size_t)n);
    }
}

// `sampled`: size, time and samples; else all bytes, and nothing else. A file that is missing adds nothing.
static void add_file(XXH3_state_t *state, const char *path, bool sampled)
{
    struct stat facts;
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file >= 0 && fstat(file, &facts) == 0 && S_ISREG(facts.st_mode)) {
        if (sampled) {
            const int64_t key[3] = {facts.st_size, facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec};
            XXH3_64bits_update(state, key, sizeof key);
        }
        add_bytes(state, file, 0, sampled ? BEGINNING : (size_t)facts.st_size);
        for (int i = 1; sampled && i <= SAMPLES && facts.st_size > BEGINNING; i++)
            add_bytes(state, file, (facts.st_size - SAMPLE) / SAMPLES * i, SAMPLE);
    }
    if (file >= 0)
        close(file);
}

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n > m && strcmp(name + n - m, end) == 0;
}

static int is_of_model(const struct dirent *entry)
{
    static const char *const ends[] = {".json", ".safetensors", ".model", ".jinja"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_with(entry->d_name, ends[i]))
            return 1;
    return 0;
}

static int is_of_converter(const struct dirent *entry)
{
    return ends_with(entry->d_name, ".py") || ends_with(entry->d_name, ".txt");
}

static void add_folder(XXH3_state_t *state, const char *folder, int (*chosen)(const struct dirent *), bool sampled)
{
    char path[PATH_MAX + NAME_MAX + 2];
    struct dirent **entries;
    const int n = scandir(folder, &entries, chosen, alphasort);
    for (int i = 0; i < n; i++) {
        add_text(state, entries[i]->d_name);
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        add_file(state, path, sampled);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
}

// A GGUF file may be the first of several: NAME-00001-of-00003.gguf. Its name does not count: it may be moved.
static void add_gguf(XXH3_state_t *state, const char *path)
{
    const int tail = (int)strlen("-00001-of-00003.gguf"), start = (int)strlen(path) - tail;
    char part[PATH_MAX];
    int first, n = 0, end = 0;
    if (start > 0 && sscanf(path + start, "-%5d-of-%5d.gguf%n", &first, &n, &end) == 2 && end == tail) {
        for (int i = 1; i <= n && snprintf(part, sizeof part, "%.*s-%05d-of-%05d.gguf", start, path, i, n) > 0; i++)
            add_file(state, part, true);
    } else {
        add_file(state, path, true);
    }
}

yalm_status cache_folder(struct cache_entry *entry, yalm_error *error)
{
    if (user_folder(entry->folder, sizeof entry->folder, "XDG_CACHE_HOME", ".cache"))
        return YALM_OK;
    return error_set(error, YALM_FAILED,
                     "no place for converted models: neither XDG_CACHE_HOME nor HOME names a directory; set one of them");
}

// An option whose value is a file or a folder: what is in it counts.
static void add_option(XXH3_state_t *state, const char *option)
{
    add_text(state, option);
    if (strncmp(option, "--lora=", strlen("--lora=")) == 0)
        add_folder(state, option + strlen("--lora="), is_of_model, true);
    if (strncmp(option, "--calibration=", strlen("--calibration=")) == 0)
        add_file(state, option + strlen("--calibration="), false);
}

yalm_status cache_find(struct cache_entry *entry, const struct origin *origin, const char *converter, yalm_error *error)
{
    char folder[PATH_MAX + 32];
    const char *source = origin->bytes;
    struct stat facts;
    const yalm_status status = cache_folder(entry, error);
    if (status != YALM_OK)
        return status;
    XXH3_state_t *state = XXH3_createState();
    if (state == NULL)
        return cli_no_memory(error);
    XXH3_64bits_reset(state);
    if (stat(source, &facts) == 0 && S_ISDIR(facts.st_mode)) {
        add_folder(state, source, is_of_model, true);
        snprintf(folder, sizeof folder, "%s/additional_chat_templates", source);
        add_folder(state, folder, is_of_model, true);
    } else {
        add_gguf(state, source);
    }
    snprintf(folder, sizeof folder, "%s/convert.py", converter);
    add_file(state, folder, false);
    snprintf(folder, sizeof folder, "%s/yalm_convert", converter);
    add_folder(state, folder, is_of_converter, false);
    for (const char *option = source; (option = origin_next(origin, option));)
        add_option(state, option);
    snprintf(entry->id, sizeof entry->id, "%016llx", (unsigned long long)XXH3_64bits_digest(state));
    XXH3_freeState(state);
    snprintf(entry->file, sizeof entry->file, "%s/%s.bin", entry->folder, entry->id);
    return YALM_OK;
}

// ---------------------------------------------------------------- the folder

const char *cache_id(const char *name)
{
    name += *name == '.';
    return strspn(name, "0123456789abcdef") == CACHE_ID && name[CACHE_ID] == '.' ? name : NULL;
}

bool cache_holds(const struct cache_entry *entry)
{
    struct {
        char magic[8];
        uint32_t version, header_size;
        uint64_t length;
    } head;
    struct stat facts;
    const int file = open(entry->file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const bool whole = file >= 0 && fstat(file, &facts) == 0 && read(file, &head, sizeof head) == (ssize_t)sizeof head &&
                       memcmp(head.magic, magic, sizeof magic) == 0 && head.length == (uint64_t)facts.st_size;
    if (whole)
        futimens(file, (struct timespec[2]){{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_NOW}}); // of use: a cache may not be ours
    if (file >= 0)
        close(file);
    return whole;
}

static yalm_status no_folder(const char *folder, yalm_error *error)
{
    return error_set(error, YALM_FAILED,
                     "%s: %s: converted models cannot be kept there; name another place: XDG_CACHE_HOME=DIRECTORY yalm …",
                     folder, strerror(errno));
}

// What a converter that was killed has left under its own name. Only who has the lock may call it.
static void sweep(const struct cache_entry *entry)
{
    char path[PATH_MAX + NAME_MAX + 2];
    DIR *folder = opendir(entry->folder);
    for (struct dirent *found; folder && (found = readdir(folder));)
        if (found->d_name[0] == '.' && strncmp(found->d_name + 1, entry->id, CACHE_ID) == 0 &&
            ends_with(found->d_name, ".tmp")) {
            snprintf(path, sizeof path, "%s/%s", entry->folder, found->d_name);
            unlink(path);
        }
    if (folder)
        closedir(folder);
}

static void lock_path(char *path, size_t room, const struct cache_entry *entry)
{
    snprintf(path, room, "%s/%s.lock", entry->folder, entry->id);
}

static bool wait_for_lock(int lock)
{
    if (flock(lock, LOCK_EX | LOCK_NB) == 0)
        return true;
    progress("another yalm converts this model: waiting for it");
    int failed;
    while ((failed = flock(lock, LOCK_EX)) != 0 && errno == EINTR)
        ;
    progress_clear();
    return failed == 0;
}

yalm_status cache_lock(const struct cache_entry *entry, int *lock, yalm_error *error)
{
    char path[PATH_MAX + 32];
    *lock = -1;
    snprintf(path, sizeof path, "%s", entry->folder);
    if (!make_folders(path))
        return no_folder(path, error);
    lock_path(path, sizeof path, entry);
    for (struct stat facts = {0}; facts.st_nlink == 0;) { // whoever had the lock has removed the file: it keeps out nobody
        if (*lock >= 0)
            close(*lock);
        *lock = open(path, O_RDWR | O_CREAT, 0600); // not O_CLOEXEC: see cache.h
        if (*lock < 0 || !wait_for_lock(*lock) || fstat(*lock, &facts) != 0)
            return no_folder(entry->folder, error);
    }
    sweep(entry);
    return YALM_OK;
}

void cache_unlock(const struct cache_entry *entry, int lock)
{
    char path[PATH_MAX + 32];
    lock_path(path, sizeof path, entry);
    unlink(path);
    close(lock);
}

bool cache_is_being_made(const struct cache_entry *entry)
{
    char path[PATH_MAX + 32];
    lock_path(path, sizeof path, entry);
    const int file = open(path, O_RDWR | O_CLOEXEC);
    const bool busy = file >= 0 && flock(file, LOCK_EX | LOCK_NB) != 0;
    if (file >= 0)
        close(file);
    return busy;
}

// ---------------------------------------------------------------- what copies were made of

static void origin_path(char *path, size_t room, const struct cache_entry *entry)
{
    snprintf(path, room, "%s/%s.origin", entry->folder, entry->id);
}

struct origin cache_recall(const struct cache_entry *entry)
{
    char path[PATH_MAX + 32];
    struct text text = {0};
    origin_path(path, sizeof path, entry);
    if (access(path, R_OK) != 0 || text_read_at_once(&text, path, NULL) != YALM_OK)
        return (struct origin){0};
    const bool whole = text.length > 0 && text.bytes[text.length - 1] == 0;
    return (struct origin){text.bytes, whole ? text.length : 0};
}

static bool same_origin(const struct origin *a, const struct origin *b)
{
    return a->length == b->length && memcmp(a->bytes, b->bytes, a->length) == 0;
}

void cache_remember(const struct cache_entry *entry, const struct origin *origin)
{
    char path[PATH_MAX + 32], fresh[PATH_MAX + 64];
    const struct origin before = cache_recall(entry);
    const bool known = same_origin(&before, origin);
    free(before.bytes);
    if (known)
        return;
    origin_path(path, sizeof path, entry);
    snprintf(fresh, sizeof fresh, "%s/.%s.%ld.tmp", entry->folder, entry->id, (long)getpid());
    FILE *file = fopen(fresh, "wx"); // of use: a cache may not be ours
    if (file == NULL)
        return;
    const bool written = fwrite(origin->bytes, 1, origin->length, file) == origin->length;
    if (fclose(file) != 0 || !written || rename(fresh, path) != 0)
        unlink(fresh);
}

bool cache_replace(const struct cache_entry *entry, const struct origin *origin)
{
    struct cache_entry other = *entry;
    bool replaced = false;
    DIR *folder = opendir(entry->folder);
    for (struct dirent *found; folder && (found = readdir(folder));) {
        const char *id = cache_id(found->d_name);
        if (id == NULL || !ends_with(found->d_name, ".origin") || strncmp(id, entry->id, CACHE_ID) == 0)
            continue;
        snprintf(other.id, sizeof other.id, "%.*s", CACHE_ID, id);
        snprintf(other.file, sizeof other.file, "%s/%s.bin", other.folder, other.id);
        const struct origin its = cache_recall(&other);
        if (same_origin(&its, origin) && !cache_is_being_made(&other)) {
            char path[PATH_MAX + 32];
            origin_path(path, sizeof path, &other);
            replaced |= unlink(other.file) == 0;
            unlink(path);
        }
        free(its.bytes);
    }
    if (folder)
        closedir(folder);
    return replaced;
}
