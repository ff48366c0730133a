// See schema_parts.h.
#include "grammar/schema_parts.h"

#include <stdarg.h>
#include <string.h>

yalm_status schema_refuse(struct schema_writer *w, yalm_error *error, const char *format, ...)
{
    char what[160];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    *error = (yalm_error){.status = YALM_USAGE};
    snprintf(error->text, sizeof error->text, "schema%s%s: %s", *w->path ? ", at " : "", w->path, what);
    return YALM_USAGE;
}

const cJSON *schema_member(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

yalm_status schema_add_part(struct schema_writer *w, const cJSON *schema, const char *key, int *rule, yalm_error *error)
{
    const size_t length = strlen(w->path);
    if (w->n_rules >= SCHEMA_MAX_RULES || w->depth >= SCHEMA_MAX_DEPTH)
        return schema_refuse(w, error, "more than %d parts, or deeper than %d", SCHEMA_MAX_RULES, SCHEMA_MAX_DEPTH);
    snprintf(w->path + length, sizeof w->path - length, "/%s", key);
    *rule = w->n_rules++;
    w->depth++;
    const yalm_status status = w->write(w, schema, *rule, error);
    w->depth--;
    if (status == YALM_OK)
        w->path[length] = 0;
    return status;
}

void schema_write_literal(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c < 32 || c == 127)
            fprintf(out, "\\x%02x", c);
        else
            fputc(c, out);
    }
    fputc('"', out);
}
