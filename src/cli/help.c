// The text of --help, made from the table of options.
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/option_table.h"
#include "util/utf8.h"

enum { WIDTH = 80, INDENT = 12, HELP_COLUMN = 32 };

struct page {
    FILE *file;
    int column; // bytes are not columns: "…" counts once
};

static void put(struct page *page, const char *text)
{
    fputs(text, page->file);
    page->column += (int)utf8_count(text, strlen(text));
}

static void move_to(struct page *page, int column)
{
    if (page->column > column - 1 && page->column > 0 && column > 0) {
        fputc('\n', page->file);
        page->column = 0;
    }
    for (; page->column < column; page->column++)
        fputc(' ', page->file);
}

static void new_line(struct page *page)
{
    fputc('\n', page->file);
    page->column = 0;
}

// Words of `text`, on lines that begin at `indent`.
static void put_wrapped(struct page *page, const char *text, int indent)
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
    const int n = option->letter ? snprintf(text, room, "-%c, --%.*s", option->letter, name_length, option->names)
                                 : snprintf(text, room, "--%.*s", name_length, option->names);
    if (option->argument)
        snprintf(text + n, room - (size_t)n, " %s", option->argument);
}

static void put_option(struct page *page, const struct option *option, const struct options *defaults)
{
    char name[64], help[160], preset[24];
    option_text(name, sizeof name, option);
    option_default(preset, sizeof preset, option, defaults);
    snprintf(help, sizeof help, "%s%s", option->help, preset);
    move_to(page, INDENT);
    put(page, name);
    move_to(page, HELP_COLUMN);
    put_wrapped(page, help, HELP_COLUMN);
    new_line(page);
}

// The options of a group that have no line of their own, one after the other.
static void put_others(struct page *page, const char *group, const struct options *defaults)
{
    bool any = false;
    for (int i = 0; i < n_options; i++) {
        const struct option *option = &option_table[i];
        if (option->help || option->group == NULL || strcmp(option->group, group) != 0)
            continue;
        char item[96], preset[24];
        option_text(item, sizeof item, option);
        option_default(preset, sizeof preset, option, defaults);
        strncat(item, preset, sizeof item - strlen(item) - 1);
        if (any)
            put(page, ",");
        if (page->column + 2 + (int)utf8_count(item, strlen(item)) > WIDTH)
            new_line(page);
        if (page->column < INDENT)
            move_to(page, INDENT);
        else if (any)
            put(page, " ");
        put(page, item);
        any = true;
    }
    if (any)
        new_line(page);
}

static const char examples[] = "usage: yalm MODEL [options]\n"
                               "\n"
                               "  yalm model.bin -i \"Once upon a time\" -n 200 --temp 0.7 --seed 1\n"
                               "  yalm model.bin -f story.txt -n -1 --stop \"The End\" > continued.txt\n"
                               "  yalm model.bin -m chat --system \"Be brief.\"\n"
                               "  yalm model.bin -m calibrate -f text.txt\n"
                               "  echo hello | yalm model.bin -m tokenize --pieces -\n"
                               "\n";

char *options_help(void)
{
    char *text = NULL;
    size_t length = 0;
    struct page page = {open_memstream(&text, &length), 0};
    if (page.file == NULL)
        return NULL;
    struct options defaults;
    options_defaults(&defaults);
    fputs(examples, page.file);
    const char *group = NULL;
    for (int i = 0; i < n_options; i++) {
        if (option_table[i].group == NULL || (group && strcmp(group, option_table[i].group) == 0))
            continue;
        group = option_table[i].group;
        put(&page, group);
        for (int j = i; j < n_options; j++)
            if (option_table[j].group && strcmp(option_table[j].group, group) == 0 && option_table[j].help)
                put_option(&page, &option_table[j], &defaults);
        put_others(&page, group, &defaults);
    }
    if (fclose(page.file) != 0) {
        free(text);
        return NULL;
    }
    return text;
}
