// The tree of pages in a file: a header, then the pages in the order in which they came, each with its rows and its state.
//
// A page names the one before it by its number in the file. Its checksum begins with that of the page that stands before it
// there, so behind damage nothing is believed.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "serve/prefixes_tree.h"
#include "util/error.h"
#include "util/file.h"
#include "util/new_file.h"

static const char magic[8] = {'Y', 'P', 'A', 'G', '\r', '\n', '\x1a', 1}; // the last one is the version

struct file_header {
    char magic[8];
    struct prefixes_of of;
    uint64_t n_pages, clock, level;
};
enum { MOST_CLOCK_BITS = 62 };

struct file_page {
    uint64_t behind; // the number of the page before it, from 1; 0: none
    uint64_t used, level;
    uint32_t has_state, reserved;
    int32_t tokens[PAGE_TOKENS];
};
_Static_assert(sizeof(struct file_header) == 72 && sizeof(struct file_page) == 96, "no padding");

static uint64_t checksum(uint64_t before, const struct file_page *head, const struct prefixes *prefixes, const void *rows,
                         const void *state)
{
    uint64_t sum = XXH3_64bits_withSeed(head, sizeof *head, before);
    sum = XXH3_64bits_withSeed(rows, prefixes->page_bytes, sum);
    return state ? XXH3_64bits_withSeed(state, prefixes->state_bytes, sum) : sum;
}

// The caller's; NULL: no memory.
static char *path_in(const struct prefixes *prefixes, const char *folder)
{
    char *path = NULL;
    const uint64_t name = XXH3_64bits(&prefixes->of, sizeof prefixes->of);
    return asprintf(&path, "%s/yalm-%016llx.pages", folder, (unsigned long long)name) < 0 ? NULL : path;
}

static yalm_status io_error(const char *path, yalm_error *error)
{
    return error_set(error, YALM_FAILED, "%s: %s", path, strerror(errno));
}

// Two servers must not write the same file. A claim is a locked file beside it, so it ends with its process. Who locks one that
// has been removed meanwhile tries again. Where no lock is to be had, nobody has one.
static bool claim(struct prefixes *prefixes, const char *path)
{
    const char *name = strrchr(path, '/') + 1;
    struct stat ours, theirs;
    while (prefixes->claim == NULL) {
        char *lock = NULL;
        if (asprintf(&lock, "%.*s.%s.lock", (int)(name - path), path, name) < 0)
            return true;
        const int file = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (file >= 0 && flock(file, LOCK_EX | LOCK_NB) == 0) {
            if (stat(lock, &theirs) == 0 && fstat(file, &ours) == 0 && ours.st_ino == theirs.st_ino) {
                prefixes->claim = lock;
                prefixes->claim_file = file;
                return true;
            }
            close(file);
            free(lock);
            continue;
        }
        const bool other = file >= 0 && errno == EWOULDBLOCK;
        if (file >= 0)
            close(file);
        free(lock);
        return !other;
    }
    return true;
}

// ---------------------------------------------------------------- writing

static int by_number(const void *a, const void *b)
{
    const struct page *const *x = a, *const *y = b;
    return ((*x)->number > (*y)->number) - ((*x)->number < (*y)->number);
}

// All pages, those before first. NULL: no memory.
static struct page **list_pages(const struct prefixes *prefixes)
{
    struct page **pages = malloc((prefixes->n_pages + 1) * sizeof(struct page *));
    size_t n = 0;
    for (size_t i = 0; pages && i < prefixes->n_buckets; i++)
        for (struct page *page = prefixes->buckets[i]; page; page = page->chain)
            pages[n++] = page;
    if (pages)
        qsort(pages, n, sizeof *pages, by_number);
    return pages;
}

static uint64_t find_number(struct page *const *pages, size_t n, const struct page *page)
{
    struct page *const *found = page ? bsearch(&page, pages, n, sizeof *pages, by_number) : NULL;
    return found ? (uint64_t)(found - pages) + 1 : 0;
}

static bool write_page(FILE *file, const struct prefixes *prefixes, struct page *const *pages, size_t i, uint64_t *sum)
{
    const struct page *page = pages[i];
    struct file_page head = {.behind = find_number(pages, i, page->parent),
                             .used = page->used,
                             .level = page->level,
                             .has_state = page->state != NULL};
    memcpy(head.tokens, page->tokens, sizeof head.tokens);
    *sum = checksum(*sum, &head, prefixes, page->rows, page->state);
    return fwrite(&head, sizeof head, 1, file) == 1 && fwrite(page->rows, prefixes->page_bytes, 1, file) == 1 &&
           (page->state == NULL || fwrite(page->state, prefixes->state_bytes, 1, file) == 1) &&
           fwrite(sum, sizeof *sum, 1, file) == 1;
}

static yalm_status write_all(FILE *file, const char *path, const struct prefixes *prefixes, struct page *const *pages,
                             yalm_error *error)
{
    struct file_header header = {
        .of = prefixes->of, .n_pages = prefixes->n_pages, .clock = prefixes->clock, .level = prefixes->level};
    memcpy(header.magic, magic, sizeof magic);
    uint64_t sum = XXH3_64bits(&header, sizeof header);
    // What people have written is theirs alone.
    bool written = fchmod(fileno(file), 0600) == 0 && fwrite(&header, sizeof header, 1, file) == 1;
    for (size_t i = 0; i < prefixes->n_pages && written; i++)
        written = write_page(file, prefixes, pages, i, &sum);
    return written && fflush(file) == 0 && fsync(fileno(file)) == 0 ? YALM_OK : io_error(path, error);
}

static bool is_ours(FILE *file)
{
    char found[sizeof magic];
    return fread(found, sizeof found, 1, file) == 1 && memcmp(found, magic, sizeof magic - 1) == 0;
}

// What a process began to write here, and was killed: new_file.h's temporary files of processes that are no more.
static void remove_begun(const char *path, const char *folder)
{
    const char *name = strrchr(path, '/') + 1;
    const size_t length = strlen(name);
    DIR *found = opendir(folder);
    for (struct dirent *entry; found && (entry = readdir(found));) {
        long process = 0;
        int end = 0;
        if (strncmp(entry->d_name, name, length) == 0)
            sscanf(entry->d_name + length, ".%ld.tmp%n", &process, &end);
        if (end > 0 && entry->d_name[length + (size_t)end] == 0 && process > 0 && kill((pid_t)process, 0) != 0 &&
            errno == ESRCH)
            unlinkat(dirfd(found), entry->d_name, 0);
    }
    if (found)
        closedir(found);
}

yalm_status prefixes_save(struct prefixes *prefixes, const char *folder, yalm_error *error)
{
    char *path = path_in(prefixes, folder);
    struct page **pages = list_pages(prefixes);
    struct new_file made = {0};
    yalm_status status = path && pages ? YALM_OK : error_set(error, YALM_NO_MEMORY, "%s: no memory for pages", folder);
    if (status == YALM_OK && !claim(prefixes, path))
        status = error_set(error, YALM_FAILED, "%s: what this server has read is not kept, for another one keeps its own there",
                           path);
    if (status == YALM_OK)
        remove_begun(path, folder);
    status = status ?: new_file_create(&made, path, is_ours, "pages of yalm's server", error);
    status = status ?: new_file_finish(&made, write_all(made.file, path, prefixes, pages, error), error);
    free(pages);
    free(path);
    return status;
}

// ---------------------------------------------------------------- reading

// Of the pages that were read, where they are: {0}: not kept.
struct kept_file {
    struct prefixes *prefixes;
    FILE *file;
    struct prefix_place *places; // (n_pages), by their numbers
    uint64_t sum;
};

// Its rows and state, in memory of their own, are there when the checksum fits.
static bool read_page(struct kept_file *r, struct file_page *head, struct page **page, void **state)
{
    struct prefixes *prefixes = r->prefixes;
    uint64_t sum;
    *page = NULL;
    *state = NULL;
    if (fread(head, sizeof *head, 1, r->file) != 1 || head->has_state > 1 || (head->has_state && !prefixes->state_bytes))
        return false;
    *page = malloc(sizeof(struct page) + prefixes->page_bytes);
    *state = head->has_state ? malloc(prefixes->state_bytes) : NULL;
    if (*page == NULL || (head->has_state && *state == NULL) || fread((*page)->rows, prefixes->page_bytes, 1, r->file) != 1 ||
        (*state && fread(*state, prefixes->state_bytes, 1, r->file) != 1) || fread(&sum, sizeof sum, 1, r->file) != 1)
        return false;
    r->sum = checksum(r->sum, head, prefixes, (*page)->rows, *state);
    return sum == r->sum;
}

// The page's place in the tree, if there is room and the one before it is there.
static void take_in(struct kept_file *r, uint64_t number, const struct file_page *head, struct page *page, void *state)
{
    struct prefixes *prefixes = r->prefixes;
    struct page *behind = head->behind ? prefixes_page(prefixes, &r->places[head->behind - 1]) : NULL;
    if ((head->behind && behind == NULL) || prefixes_child(prefixes, behind, head->tokens) ||
        !prefixes_make_room(prefixes, sizeof(struct page) + prefixes->page_bytes, behind)) {
        free(page);
        free(state);
        return;
    }
    page->state = NULL;
    prefixes_put(prefixes, page, behind, head->tokens, head->used);
    r->places[number] = (struct prefix_place){page->key, page->number};
    if (state && prefixes->n_states < prefixes->most_states && prefixes_make_room(prefixes, prefixes->state_bytes, page)) {
        prefixes_put_state(prefixes, page, state);
        page->level = head->level;
    } else
        free(state);
}

static yalm_status read_all(struct kept_file *r, const char *path, yalm_error *error)
{
    struct file_header header;
    if (fread(&header, sizeof header, 1, r->file) != 1 || memcmp(header.magic, magic, sizeof magic) != 0 ||
        memcmp(&header.of, &r->prefixes->of, sizeof header.of) != 0)
        return error_set(error, YALM_FAILED, "%s: not pages of this model and these settings; it is not used", path);
    struct stat facts;
    const uint64_t least = sizeof(struct file_page) + r->prefixes->page_bytes;
    if (fstat(fileno(r->file), &facts) != 0 || header.clock >> MOST_CLOCK_BITS ||
        header.n_pages > (uint64_t)facts.st_size / least)
        return error_set(error, YALM_FAILED, "%s: damaged; it is not used", path);
    r->places = calloc(header.n_pages + 1, sizeof *r->places);
    if (r->places == NULL)
        return error_set(error, YALM_NO_MEMORY, "%s: no memory for its pages", path);
    r->sum = XXH3_64bits(&header, sizeof header);
    for (uint64_t i = 0; i < header.n_pages; i++) {
        struct file_page head;
        struct page *page;
        void *state;
        if (!read_page(r, &head, &page, &state) || head.behind > i) {
            free(page);
            free(state);
            return error_set(error, YALM_FAILED, "%s: damaged behind page %llu of %llu; those before it are used", path,
                             (unsigned long long)i, (unsigned long long)header.n_pages);
        }
        if (i == 0) { // the header's numbers are right: the first page's checksum began with it
            r->prefixes->clock = header.clock;
            r->prefixes->level = header.level;
        }
        take_in(r, i, &head, page, state);
    }
    return YALM_OK;
}

yalm_status prefixes_load(struct prefixes *prefixes, const char *folder, yalm_error *error)
{
    char *path = path_in(prefixes, folder);
    if (path == NULL)
        return error_set(error, YALM_NO_MEMORY, "%s: no memory for pages", folder);
    const bool ours = claim(prefixes, path);
    struct kept_file r = {.prefixes = prefixes, .file = file_open_at_once(path, "rb")};
    yalm_status status = YALM_OK;
    if (r.file)
        status = read_all(&r, path, error);
    else if (errno != ENOENT)
        status = io_error(path, error);
    if (r.file)
        fclose(r.file);
    if (status == YALM_OK && !ours)
        status =
            error_set(error, YALM_FAILED,
                      "%s: another server keeps what it reads there; what this one reads is lost, unless that one ends first: "
                      "name another folder",
                      path);
    free(r.places);
    free(path);
    return status;
}
