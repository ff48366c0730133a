// The modes by name, and what each does.
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/option_table.h"

static const struct {
    const char *name, *also; // also: what other programs call it
    const char *about;
} modes[MODE_HELP] = {
    [MODE_COMPLETION] = {"completion", "complete", "continues a text (the usual mode where there is one)"},
    [MODE_CHAT] = {"chat", "run", "talks, or answers -i once (the usual mode on a terminal)"},
    [MODE_SERVE] = {"serve", "server",
                    "answers clients of OpenAI's, Anthropic's, Ollama's and llama.cpp's APIs; has a page to talk at"},
    [MODE_THROUGHPUT] = {"throughput", "bench", "times prefill and decode beside the machine's limits"},
    [MODE_PERPLEXITY] = {"perplexity", "", "scores a text"},
    [MODE_PASSKEY] = {"passkey", "", "hides a five-digit key in junk, and asks for it"},
    [MODE_CALIBRATE] = {"calibrate", "", "learns the codebooks of nomad and hybrid attention from a text"},
    [MODE_IMPORTANCE] = {"importance", "", "measures which columns of the matrices matter; the converter runs it"},
    [MODE_EMBED] = {"embed", "embedding", "makes a vector of each line of a text"},
    [MODE_TOKENIZE] = {"tokenize", "", "shows a text's token ids"},
    [MODE_INFO] = {"info", "show", "prints config and sizes; with -v every tensor"},
    [MODE_VERIFY] = {"verify", "", "compares every tensor with its checksum"},
};

const char *mode_name(enum mode mode)
{
    return mode < MODE_HELP ? modes[mode].name : "";
}

const char *mode_about(enum mode mode)
{
    return modes[mode].about;
}

static bool mode_is_word(const char *text, enum mode *mode)
{
    for (int i = 0; i < MODE_HELP; i++)
        if (strcmp(text, modes[i].name) == 0 || (*text && strcmp(text, modes[i].also) == 0)) {
            *mode = (enum mode)i;
            return true;
        }
    return false;
}

bool mode_comes_first(int argc, char **argv, enum mode *mode)
{
    return argc > 1 && access(argv[1], F_OK) != 0 && mode_is_word(argv[1], mode);
}

// "t" is throughput, as "c" is completion: tokenize, which has an option of its own, begins with "to", calibrate with "ca" and
// importance with "im".
yalm_status mode_read(const char *text, enum mode *mode, yalm_error *error)
{
    int found = -1;
    char candidates[128] = "";
    size_t length = 0;
    if (mode_is_word(text, mode))
        return YALM_OK;
    for (int i = 0; i < MODE_HELP; i++) {
        if (strncmp(modes[i].name, text, strlen(text)) != 0 || *text == 0 || (i == MODE_TOKENIZE && strcmp(text, "t") == 0) ||
            ((i == MODE_CALIBRATE || i == MODE_CHAT) && strcmp(text, "c") == 0) ||
            (i == MODE_IMPORTANCE && strcmp(text, "i") == 0))
            continue;
        length +=
            (size_t)snprintf(candidates + length, sizeof candidates - length, "%s%s", found >= 0 ? " or " : "", modes[i].name);
        found = found < 0 ? i : MODES;
    }
    if (found < 0)
        return error_set(error, YALM_USAGE,
                         "unknown mode '%s': expected completion, chat, serve, throughput, perplexity, passkey, calibrate, "
                         "importance, embed, tokenize, info or verify, or a model's file",
                         text);
    if (found == MODES)
        return error_set(error, YALM_USAGE, "mode '%s' is ambiguous: %s", text, candidates);
    *mode = (enum mode)found;
    return YALM_OK;
}

bool mode_names_model(const char *text)
{
    enum mode mode;
    return mode_read(text, &mode, NULL) != YALM_OK && (text[strcspn(text, "/.")] != 0 || access(text, F_OK) == 0);
}
