// The text of --help, made from the table of options.
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/option_table.h"
#include "util/utf8.h"

enum { WIDTH = 80, INDENT = 2, HELP_COLUMN = 31, KEY_COLUMN = 38 };

struct help_page {
    FILE *file;
    int column; // bytes are not columns: "…" counts once
};

static void put(struct help_page *page, const char *text)
{
    fputs(text, page->file);
    page->column += (int)utf8_count(text, strlen(text));
}

static void move_to(struct help_page *page, int column)
{
    if (page->column > column - 1 && page->column > 0 && column > 0) {
        fputc('\n', page->file);
        page->column = 0;
    }
    for (; page->column < column; page->column++)
        fputc(' ', page->file);
}

static void new_line(struct help_page *page)
{
    fputc('\n', page->file);
    page->column = 0;
}

// Words of `text`, on lines that begin at `indent`.
static void put_wrapped(struct help_page *page, const char *text, int indent)
{
    char word[128];
    while (*text) {
        const size_t n = strcspn(text, " ");
        snprintf(word, sizeof word, "%.*s", (int)n, text);
        if (page->column + 1 + (int)utf8_count(word, strlen(word)) > WIDTH) {
            new_line(page);
            move_to(page, indent);
        } else if (page->column > indent) {
            put(page, " ");
        }
        put(page, word);
        text += n + (text[n] == ' ');
    }
}

void option_default(char *text, size_t room, const struct option *option, const struct options *defaults)
{
    const void *field = (const char *)defaults + option->offset;
    text[0] = 0;
    if (option->kind == OPTION_INT && *(const int *)field > 0)
        snprintf(text, room, " (%d)", *(const int *)field);
    else if (option->kind == OPTION_FLOAT && *(const float *)field > 0)
        snprintf(text, room, " (%g)", (double)*(const float *)field);
    else if (option->kind == OPTION_INTS)
        snprintf(text, room, " (%d)", ((const struct int_list *)field)->values[0]);
}

static void option_text(char *text, size_t room, const struct option *option)
{
    const int name_length = (int)strcspn(option->names, ",");
    const int n = *option->letters ? snprintf(text, room, "-%c, --%.*s", *option->letters, name_length, option->names)
                                   : snprintf(text, room, "--%.*s", name_length, option->names);
    if (option->argument)
        snprintf(text + n, room - (size_t)n, " %s", option->argument);
}

static void put_option(struct help_page *page, const struct option *option, const struct options *defaults)
{
    char name[64], help[256], preset[24];
    option_text(name, sizeof name, option);
    option_default(preset, sizeof preset, option, defaults);
    snprintf(help, sizeof help, "%s%s", option->help ? option->help : option->manual, preset);
    move_to(page, INDENT);
    put(page, name);
    move_to(page, HELP_COLUMN);
    put_wrapped(page, help, HELP_COLUMN);
    new_line(page);
}

static const char examples[] = "usage: yalm MODEL [options]\n"
                               "MODEL is a GGUF file or a directory of Hugging Face's, each converted once, or a\n"
                               "file that convert.py has made.\n"
                               "\n"
                               "  yalm qwen.gguf                                         talks\n"
                               "  yalm qwen.gguf -m chat -i \"Why is the sky blue?\"      answers once\n"
                               "  yalm qwen.gguf -i \"Once upon a time\" -n 200 --seed 1  continues a text\n"
                               "  yalm qwen.gguf -m serve --port 8080                    answers HTTP clients\n"
                               "  yalm cache, yalm cache clear [ID…|stale]               what was converted\n"
                               "\n";

static void put_modes(struct help_page *page)
{
    put(page, "Modes");
    for (int mode = 0; mode < MODE_HELP; mode++) {
        move_to(page, INDENT);
        put(page, mode_name((enum mode)mode));
        move_to(page, HELP_COLUMN);
        put_wrapped(page, mode_about((enum mode)mode), HELP_COLUMN);
        new_line(page);
    }
}

static char *finish(struct help_page *page, char **text)
{
    if (fclose(page->file) == 0)
        return *text;
    free(*text);
    return NULL;
}

char *options_help(void)
{
    char *text = NULL;
    size_t length = 0;
    struct options defaults;
    struct help_page page = {open_memstream(&text, &length), 0};
    if (page.file == NULL)
        return NULL;
    options_defaults(&defaults);
    fputs(examples, page.file);
    put_modes(&page);
    const char *group = "";
    for (int i = 0; i < n_options; i++) {
        if (option_table[i].group == NULL)
            continue;
        if (strcmp(option_table[i].group, group) != 0)
            put(&page, group = option_table[i].group);
        put_option(&page, &option_table[i], &defaults);
    }
    return finish(&page, &text);
}

char *options_keys(void)
{
    char *text = NULL;
    size_t length = 0;
    struct options defaults;
    struct help_page page = {open_memstream(&text, &length), 0};
    if (page.file == NULL)
        return NULL;
    options_defaults(&defaults);
    fputs("--set KEY=VALUE, as often as wanted. The keys:\n", page.file);
    for (int i = 0; i < n_options; i++) {
        char name[64], help[256], preset[24];
        const struct option *option = &option_table[i];
        if (strchr(option->names, '.') == NULL)
            continue;
        option_default(preset, sizeof preset, option, &defaults);
        snprintf(name, sizeof name, "  %s=%s", option->names, option->argument);
        snprintf(help, sizeof help, "%s%s", option->manual, preset);
        put(&page, name);
        move_to(&page, KEY_COLUMN);
        put_wrapped(&page, help, KEY_COLUMN);
        new_line(&page);
    }
    put_wrapped(&page,
                "Of the attention methods, as docs/attention.md of the source describes them: sparq.r, sparq.k, sparq.min_k, "
                "sparq.local, sparq.from, sparq.copy, sparq.tail, nomad.skip, hybrid.min_k, hybrid.local, hybrid.from, "
                "hybrid.codes, hybrid.draw",
                0);
    new_line(&page);
    return finish(&page, &text);
}
