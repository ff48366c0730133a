// What somebody who comes from another program meant by an option.
#include <string.h>

#include "cli/option_table.h"

const char *option_hint(const char *arg)
{
    static const struct {
        const char *names; // between blanks
        const char *hint;
    } hints[] = {
        {" -c ", "the context is -T N, or --ctx N"},
        {" -ngl --n-gpu-layers --gpu-layers ", "-d cuda runs all of the model on a GPU"},
        {" -p ", "text comes after -i"},
        {" -b -ub ", "prompts are read --chunk N tokens at a time"},
        {" -tb ", "--threads-batch N is for prompts"},
        {" -ctk -ctv --cache-type-k --cache-type-v ", "the cache's type is --kv"},
        {" -fa --flash-attn --no-mmap ", "leave it out: there is nothing to choose"},
        {" -hf -hfr --hf-repo ", "yalm downloads nothing: tools/convert.py makes a model file from a directory"},
    };
    const size_t length = strcspn(arg, "=");
    for (size_t i = 0; i < sizeof hints / sizeof *hints && length > 0; i++)
        for (const char *at = hints[i].names; *at; at += strcspn(at + 1, " ") + 1)
            if (strcspn(at + 1, " ") == length && !strncmp(at + 1, arg, length))
                return hints[i].hint;
    return NULL;
}
