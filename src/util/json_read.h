// Reads JSON (RFC 8259), strictly: one scanner, without recursion, that builds nothing; and cJSON's tree of what it lets pass.
#pragma once
#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

enum json_part { JSON_WRONG, JSON_END, JSON_OPEN, JSON_CLOSE, JSON_KEY, JSON_STRING, JSON_NUMBER, JSON_WORD };
enum { JSON_DEEPEST = 100 }; // levels that a scan can keep

// A text that is read part by part. The first five are the caller's.
struct json_scan {
    const char *text; // (length)
    size_t length;
    int max_depth;     // at most JSON_DEEPEST
    size_t max_values; // 0: as many as there are
    bool no_nul;       // an escaped NUL is wrong
    size_t at;         // where the next part may begin; where something is wrong
    const char *wrong; // what stands there
    // The part: of keys and strings what stands between the quotes, else a bracket, a number or a word.
    const char *part; // (n)
    size_t n;
    bool escaped; // the part has escapes: json_unescape()
    int depth;
    size_t n_values;
    enum { JSON_AT_VALUE, JSON_AT_FIRST, JSON_BEHIND_VALUE } stands;
    char closers[JSON_DEEPEST]; // '}' or ']' of each open container, outermost first
};

// The next part. Keys are unlike strings; JSON_END comes behind the outermost value and blanks.
enum json_part json_next(struct json_scan *scan);
// Writes the bytes that a key or string stands for, at most n; returns how many.
size_t json_unescape(char *to, const char *part, size_t n);
// Bytes of the number that text[0..length) begins with; 0 where none does.
size_t json_number_length(const char *text, size_t length);

// cJSON recurses into each level, takes some 80 bytes a value, ends strings at a NUL, and reads 63 characters of a number.
enum { JSON_MAX_NUMBER = 60 };

struct json_fault {
    const char *what; // NULL: there was no memory
    size_t at;
};

// The tree, freed with cJSON_Delete(). NULL where the text is wrong, has an escaped NUL, or more levels or values than these.
cJSON *json_tree(const char *text, size_t length, int max_depth, size_t max_values, struct json_fault *fault);
