// Compiles patterns and runs them within limits.

#include "text/pattern.h"

#include <stdlib.h>
#include <string.h>

#include "util/utf8.h"

// Matching is bounded: steps in proportion to the text, memory absolutely.
enum {
    STEPS_LEAST = 10000000,
    STEPS_PER_BYTE = 64,
    HEAP_KIB = 256 * 1024,
    JIT_STACK_LEAST = 32 * 1024,
    JIT_STACK_MOST = 8 << 20
};

struct cutter {
    const struct patterns *patterns;
    pcre2_match_data *matches[MAX_PATTERNS]; // (patterns->n)
    pcre2_match_context *limits;
    pcre2_jit_stack *stack;
    word_visitor *visit;
    void *context;
    yalm_error *error;
};

yalm_status patterns_add(struct patterns *patterns, const char *pattern, bool matches_only, const char *path, yalm_error *error)
{
    const size_t length = strlen(pattern);
    if (patterns->n == MAX_PATTERNS || length > MAX_PATTERN_BYTES)
        return error_set(error, YALM_BAD_MODEL, "%s: tokenizer: more than %d patterns, or one of more than %d bytes", path,
                         MAX_PATTERNS, MAX_PATTERN_BYTES);
    int code;
    PCRE2_SIZE at;
    const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C;
    pcre2_code *compiled = pcre2_compile((PCRE2_SPTR)pattern, length, options, &code, &at, NULL);
    if (!compiled) {
        PCRE2_UCHAR why[128] = "";
        pcre2_get_error_message(code, why, sizeof why);
        return error_set(error, YALM_BAD_MODEL, "%s: tokenizer: pattern '%.100s': %s (at byte %zu)", path, pattern,
                         (const char *)why, at);
    }
    uint32_t empty = 1;
    pcre2_pattern_info(compiled, PCRE2_INFO_MATCHEMPTY, &empty);
    if (empty) {
        pcre2_code_free(compiled);
        return error_set(error, YALM_BAD_MODEL, "%s: tokenizer: pattern '%.100s' can match nothing", path, pattern);
    }
    pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE); // where it cannot, the interpreter does the work
    patterns->matches_only[patterns->n] = matches_only;
    patterns->codes[patterns->n++] = compiled;
    return YALM_OK;
}

void patterns_close(struct patterns *patterns)
{
    for (int i = 0; i < patterns->n; i++)
        pcre2_code_free(patterns->codes[i]);
}

static yalm_status match_failed(const struct cutter *cutter, int code, size_t at)
{
    if (code == PCRE2_ERROR_NOMEMORY)
        return error_set(cutter->error, YALM_NO_MEMORY, "tokenizer: no memory to match a pattern");
    PCRE2_UCHAR why[128] = "";
    pcre2_get_error_message(code, why, sizeof why);
    return error_set(cutter->error, YALM_FAILED, "tokenizer: pattern matching at byte %zu of the text: %s", at,
                     (const char *)why);
}

// Cuts text[start..end) with pattern `stage` and hands the parts to the next one.
static yalm_status cut(const struct cutter *cutter, int stage, const uint8_t *text, size_t start, size_t end, bool matched)
{
    if (stage > 0 && !matched && cutter->patterns->matches_only[stage - 1])
        return YALM_OK;
    if (stage == cutter->patterns->n)
        return cutter->visit(cutter->context, start, end - start, matched);
    pcre2_match_data *match = cutter->matches[stage];
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(match);
    const size_t length = end - start;
    yalm_status status = YALM_OK;
    for (size_t at = 0; at < length && !status;) {
        const pcre2_code *pattern = cutter->patterns->codes[stage];
        const PCRE2_SPTR subject = text + start;
        int code = pcre2_match(pattern, subject, length, at, PCRE2_NO_UTF_CHECK, match, cutter->limits);
        if (code == PCRE2_ERROR_JIT_STACKLIMIT) // the interpreter keeps its state on the heap
            code = pcre2_match(pattern, subject, length, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match, cutter->limits);
        if (code == PCRE2_ERROR_NOMATCH)
            return cut(cutter, stage + 1, text, start + at, end, false);
        if (code < 0)
            return match_failed(cutter, code, start + at);
        const size_t first = found[0], last = found[1];
        if (first < at || last <= first || last > length)
            return error_set(cutter->error, YALM_BAD_MODEL, "tokenizer: a pattern matches nothing at byte %zu of the text",
                             start + at);
        if (first > at)
            status = cut(cutter, stage + 1, text, start + at, start + first, false);
        if (!status)
            status = cut(cutter, stage + 1, text, start + first, start + last, true);
        at = last;
    }
    return status;
}

// *repaired: a copy whose bytes that belong to no character are U+001A; NULL where there are none.
static yalm_status repair(uint8_t **repaired, const uint8_t *text, size_t length, yalm_error *error)
{
    *repaired = NULL;
    for (size_t at = 0; at < length;) {
        const int size = utf8_character(text + at, length - at);
        if (size == 0 && !*repaired) {
            *repaired = malloc(length);
            if (!*repaired)
                return error_set(error, YALM_NO_MEMORY, "tokenizer: no memory for a text of %zu bytes", length);
            memcpy(*repaired, text, length);
        }
        if (size == 0)
            (*repaired)[at] = 0x1a;
        at += size ? (size_t)size : 1;
    }
    return YALM_OK;
}

static yalm_status cut_all(struct cutter *cutter, const uint8_t *text, size_t length)
{
    cutter->limits = pcre2_match_context_create(NULL);
    cutter->stack = pcre2_jit_stack_create(JIT_STACK_LEAST, JIT_STACK_MOST, NULL); // NULL where there is no JIT
    bool ready = cutter->limits != NULL;
    for (int i = 0; i < cutter->patterns->n; i++) {
        cutter->matches[i] = pcre2_match_data_create(1, NULL);
        ready = ready && cutter->matches[i];
    }
    yalm_status status;
    if (ready) {
        const uint64_t steps = STEPS_LEAST + (uint64_t)STEPS_PER_BYTE * length;
        pcre2_set_match_limit(cutter->limits, steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX);
        pcre2_set_heap_limit(cutter->limits, HEAP_KIB);
        pcre2_jit_stack_assign(cutter->limits, NULL, cutter->stack);
        status = cut(cutter, 0, text, 0, length, false);
    } else
        status = error_set(cutter->error, YALM_NO_MEMORY, "tokenizer: no memory to match a pattern");
    for (int i = 0; i < cutter->patterns->n; i++)
        pcre2_match_data_free(cutter->matches[i]);
    pcre2_jit_stack_free(cutter->stack);
    pcre2_match_context_free(cutter->limits);
    return status;
}

yalm_status patterns_cut(const struct patterns *patterns, const uint8_t *text, size_t length, word_visitor *visit,
                         void *context, yalm_error *error)
{
    struct cutter cutter = {.patterns = patterns, .visit = visit, .context = context, .error = error};
    uint8_t *repaired;
    if (length == 0)
        return YALM_OK;
    yalm_status status = repair(&repaired, text, length, error);
    if (!status)
        status = cut_all(&cutter, repaired ? repaired : text, length);
    free(repaired);
    return status;
}
