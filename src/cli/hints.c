// What somebody who comes from another program meant by an option.
#include <stdio.h>
#include <string.h>

#include "cli/option_table.h"

const char *option_hint(const char *arg)
{
    static const struct {
        const char *names; // between blanks
        const char *hint;
    } hints[] = {
        {" -ngl --n-gpu-layers --gpu-layers ", "-d cuda has all layers on a GPU, -d cpu none"},
        {" -b -ub --batch-size --ubatch-size ", "prompts are read N tokens at a time by --set machine.chunk=N"},
        {" -tb --threads-batch ", "--set machine.threads_batch=N is for prompts"},
        {" -np ", "--parallel N"},
        {" -sys ", "--system TEXT"},
        {" -cnv --conversation -st --single-turn ", "-m chat talks; -m chat -i TEXT answers once"},
        {" -no-cnv --no-conversation ", "-m completion"},
        {" -t ", "-t is for threads; the temperature is --temp X"},
        {" -i --interactive ", "-i TEXT is the text itself; without it yalm talks"},
        {" --keep ", "--set text.sinks=N keeps the first positions"},
        {" --info --verify --tokenize ", "these are modes: -m info, -m verify, -m tokenize"},
        {" --no-bos ", "--set text.bos=off"},
        {" -ctk -ctv --cache-type-k --cache-type-v ", "the cache's type is --kv, of keys and values both"},
        {" -fa --flash-attn --no-mmap --jinja --mmap ", "leave it out: there is nothing to choose"},
        {" --api-key ", "--api-key-file FILE: a command line can be read by others"},
        {" -hf -hfr -mu --hf-repo --hf-file --model-url pull ", "yalm downloads nothing: fetch the file, then yalm FILE"},
        {" --mirostat --typical --xtc-probability --dry-multiplier ", "yalm has none"},
        {" list ls ps ", "yalm cache lists the models that were converted"},
        {" rm ", "yalm cache clear ID removes a model that was converted"},
        {" create push cp stop ", "yalm keeps no list of models: yalm FILE runs one"},
    };
    const size_t length = arg ? strcspn(arg, "=") : 0;
    for (size_t i = 0; i < sizeof hints / sizeof *hints && length > 0; i++)
        for (const char *at = hints[i].names; *at; at += strcspn(at + 1, " ") + 1)
            if (strcspn(at + 1, " ") == length && !strncmp(at + 1, arg, length))
                return hints[i].hint;
    return NULL;
}

// The name has one letter more or less than the option's, or another, or two; words longer than this are not compared.
enum { MOST_LETTERS = 31, MOST_EDITS = 2 };

// Letters to insert, to delete or to exchange so that a (n) becomes b (m): Levenshtein's distance, row by row.
static int edits(const char *a, size_t n, const char *b, size_t m)
{
    int row[MOST_LETTERS + 1];
    for (size_t j = 0; j <= m; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int corner = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            const int exchanged = corner + (a[i - 1] != b[j - 1]);
            corner = row[j];
            const int shorter = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            row[j] = shorter < exchanged ? shorter : exchanged;
        }
    }
    return row[m];
}

// Whether a key's last part is that name, with '_' for '-'.
static bool is_key_named(const char *key, const char *name, size_t length)
{
    const char *part = strchr(key, '.');
    if (part == NULL || strlen(++part) != length)
        return false;
    for (size_t i = 0; i < length; i++)
        if (part[i] != (name[i] == '-' ? '_' : name[i]))
            return false;
    return true;
}

void option_advice(char *text, size_t room, const char *arg)
{
    const char *hint = option_hint(arg), *name = arg + strspn(arg, "-");
    const size_t length = strcspn(name, "=");
    const char *nearest = NULL;
    int least = MOST_EDITS + 1;
    for (int i = 0; i < n_options && !hint && length > 1 && length <= MOST_LETTERS; i++) {
        const char *names = option_table[i].names;
        if (is_key_named(names, name, length)) {
            snprintf(text, room, "--set %s=%s", names, option_table[i].argument);
            return;
        }
        for (size_t n; !strchr(names, '.') && *names; names += n + (names[n] == ',')) {
            n = strcspn(names, ",");
            const int distance = n <= MOST_LETTERS ? edits(name, length, names, n) : least;
            if (distance < least && distance * 2 < (int)length) {
                least = distance;
                nearest = names;
            }
        }
    }
    if (nearest)
        snprintf(text, room, "did you mean --%.*s? yalm --help lists them", (int)strcspn(nearest, ","), nearest);
    else
        snprintf(text, room, "%s", hint ? hint : "yalm --help lists them; --set help lists rarer ones");
}
