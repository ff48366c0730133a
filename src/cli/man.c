// The man page, made from the table of options in the language of man(7), which man-db, groff and mandoc render.
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/option_table.h"

static const char head[] = ".SH NAME\n"
                           "yalm \\- runs one language model, fast, on the machine in front of you\n"
                           ".SH SYNOPSIS\n"
                           ".B yalm\n"
                           ".I MODEL\n"
                           "[\\fIoptions\\fR]\n"
                           ".SH DESCRIPTION\n"
                           "MODEL is a GGUF file, a directory of Hugging Face's, or a file that convert.py has made.\n"
                           "The first two are converted once, into a cache, which\n.B yalm cache\nlists and\n"
                           ".B yalm cache clear\n[\\fIID\\fR...] empties, with\n.B stale\nof what no start will find.\n"
                           "Text and data go to stdout, all else to stderr.\n"
                           "The beginning of a mode's name will do.\n";

static const char tail[] =
    ".SH EXIT STATUS\n"
    "0 done, 1 failed at run time (or a pass key missed), 2 usage, 3 bad model file, 4 out of memory, 130 interrupted\n"
    ".SH ENVIRONMENT\n"
    ".TP\n.B NO_COLOR\nwhere it is set, nothing has a colour\n"
    ".TP\n.B XDG_CACHE_HOME\nhas the folder yalm of converted models (~/.cache)\n"
    ".TP\n.B XDG_STATE_HOME\nhas the file yalm/history of what was typed in chats (~/.local/state)\n"
    ".TP\n.B YALM_CONVERTER\nfolder of convert.py, where it is not beside the program or in ../share/yalm\n"
    ".TP\n.B YALM_PYTHON\nthe Python that runs convert.py, where it is not that of the environment beside it\n"
    ".TP\n.B CUDA_VISIBLE_DEVICES\nchooses among several GPUs\n"
    ".TP\n.B YALM_CUDA_LIBRARY\npath of libyalm\\-cuda.so, where it is not beside the program or in ../lib\n"
    ".TP\n.B YALM_NCCL_LIBRARY\nname of NCCL's library, by which several GPUs meet (libnccl.so.2)\n"
    ".SH EXAMPLES\n"
    ".nf\n"
    "yalm qwen.gguf\n"
    "yalm qwen.gguf \\-m chat \\-i \"Why is the sky blue?\"\n"
    "yalm qwen.gguf \\-i \"Once upon a time\" \\-n 200 \\-\\-seed 1\n"
    "yalm qwen.gguf \\-m serve \\-\\-port 8080\n"
    ".fi\n";

// As it stands: a hyphen can be copied, a backslash is one, and a line may begin with a dot.
static void put_n(FILE *page, const char *text, size_t length)
{
    static const char dots[] = "…";
    if (*text == '.' || *text == '\'')
        fputs("\\&", page);
    for (const char *end = text + length; text < end; text++) {
        if (*text == '-') {
            fputs("\\-", page);
        } else if (*text == '\\') {
            fputs("\\e", page);
        } else if (strncmp(text, dots, strlen(dots)) == 0) {
            fputs("...", page);
            text += strlen(dots) - 1;
        } else {
            fputc(*text, page);
        }
    }
}

static void put(FILE *page, const char *text)
{
    put_n(page, text, strlen(text));
}

static bool is_key(const struct option *option) // of --set
{
    return strchr(option->names, '.') != NULL;
}

// "-n, --n-predict, --predict N", or "serve.queue=N"
static void put_names(FILE *page, const struct option *option)
{
    fputs(".TP\n\\fB", page);
    for (const char *letter = option->letters; *letter; letter++)
        fprintf(page, "\\-%c, ", *letter);
    for (const char *name = option->names; *name;) {
        const size_t n = strcspn(name, ",");
        put(page, is_key(option) ? "" : "--");
        put_n(page, name, n);
        put(page, name[n] ? ", " : "");
        name += n + (name[n] == ',');
    }
    if (option->argument) {
        fputs(is_key(option) ? "=\\fI" : " \\fI", page);
        put(page, option->argument);
    }
    fputs("\\fR\n", page);
}

// The choice or text that holds when the option is not given; of numbers option_default() knows.
static void put_default(FILE *page, const struct option *option, const struct options *defaults)
{
    const void *field = (const char *)defaults + option->offset;
    char number[24];
    option_default(number, sizeof number, option, defaults);
    put(page, number);
    const char *word = NULL;
    int skipped = 0; // choices before it
    if (option->kind == OPTION_WORD || option->kind == OPTION_TEXT)
        word = *(const char *const *)field;
    else if (option->kind == OPTION_CHOICE || option->kind == OPTION_SWITCH)
        word = option->choices;
    if (option->kind == OPTION_CHOICE)
        skipped = *(const int *)field;
    for (; skipped > 0; skipped--)
        word += strcspn(word, ",") + 1;
    if (word)
        fprintf(page, " (%.*s)", (int)strcspn(word, ","), word);
}

static void put_modes(FILE *page, const struct option *option)
{
    const char *before = ".br\nModes: ";
    for (int mode = 0; mode < MODE_HELP; mode++)
        if (option->modes >> mode & 1) {
            fprintf(page, "%s%s", before, mode_name((enum mode)mode));
            before = ", ";
        }
    fputc('\n', page);
}

static void put_option(FILE *page, const struct option *option, const struct options *defaults)
{
    put_names(page, option);
    put(page, option->help ? option->help : "");
    put(page, option->help && option->manual ? "; " : "");
    put(page, option->manual ? option->manual : "");
    put_default(page, option, defaults);
    fputc('\n', page);
    if (option->modes != (1u << MODES) - 1)
        put_modes(page, option);
}

static void put_options(FILE *page)
{
    struct options defaults;
    options_defaults(&defaults);
    fputs(".SH OPTIONS\n", page);
    const char *group = "";
    for (int i = 0; i < n_options; i++) {
        const struct option *option = &option_table[i];
        if (option->group && strcmp(option->group, group) != 0)
            fprintf(page, ".SS %s\n", group = option->group);
        if (!is_key(option))
            put_option(page, option, &defaults);
    }
    fputs(
        ".SH SETTINGS\n"
        "Keys of \\-\\-set. Those of attention methods (sparq.*, nomad.*, hybrid.*) are in docs/attention.md of the source.\n",
        page);
    for (int i = 0; i < n_options; i++)
        if (is_key(&option_table[i]))
            put_option(page, &option_table[i], &defaults);
}

char *options_man(void)
{
    char *text = NULL;
    size_t length = 0;
    FILE *page = open_memstream(&text, &length);
    if (page == NULL)
        return NULL;
    const char *version = yalm_version();
    fprintf(page, ".TH YALM 1 \"\" \"yalm %.*s\" \"User Commands\"\n", (int)strcspn(version, " "), version);
    fputs(head, page);
    fputs(".SH MODES\n", page);
    for (int mode = 0; mode < MODE_HELP; mode++) {
        fprintf(page, ".TP\n.B %s\n", mode_name((enum mode)mode));
        put(page, mode_about((enum mode)mode));
        fputc('\n', page);
    }
    put_options(page);
    fputs(tail, page);
    if (fclose(page) != 0) {
        free(text);
        return NULL;
    }
    return text;
}
