// See speech.h.
#include "speech/reader.h"

unsigned speech_marks(const char *chat_template)
{
    if (chat_template == NULL)
        return 0;
    return (speech_forms(chat_template) & (SPEECH_HARMONY | SPEECH_GEMMA)) |
           (strstr(chat_template, "[THINK]") ? SPEECH_BRACKETS : 0);
}

unsigned speech_forms(const char *chat_template)
{
    if (chat_template == NULL)
        return 0;
    if (strstr(chat_template, "<|channel|>") && strstr(chat_template, "<|message|>"))
        return SPEECH_HARMONY;
    if (strstr(chat_template, "<|channel>") && strstr(chat_template, "<|tool_call>"))
        return SPEECH_GEMMA;
    unsigned forms = 0;
    forms |= strstr(chat_template, "<tool_call>") ? CALLS_HERMES : 0;
    forms |= strstr(chat_template, "[TOOL_CALLS]") ? CALLS_MISTRAL : 0;
    forms |= strstr(chat_template, "\"parameters\"") && strstr(chat_template, "ipython") ? CALLS_BARE : 0;
    return forms ? forms | CALLS_BARE : 0; // small models leave the marks out
}

// ---------------------------------------------------------------- writing

static void put(struct reading *r, const char *text, size_t length)
{
    if (length == 0)
        return;
    if (r->apart)
        buffer_text(r->part, "\n\n");
    r->apart = false;
    buffer_add(r->part, text, length);
}

void speech_keep_blanks(struct speech *speech)
{
    struct reading *r = &speech->reading;
    put(r, r->blanks.at, r->blanks.length);
    r->blanks.length = 0;
}

void speech_drop_blanks(struct speech *speech)
{
    speech->reading.blanks.length = 0;
}

void speech_say(struct speech *speech, struct buffer *part, struct span text)
{
    struct reading *r = &speech->reading;
    r->part = part;
    if (r->skip)
        text = skip_blanks(text);
    if (text.length == 0)
        return;
    r->skip = false;
    const struct span body = trim_end(text);
    if (body.length) {
        speech_keep_blanks(speech);
        put(r, body.at, body.length);
        r->said = true;
    }
    buffer_add(&r->blanks, text.at + body.length, text.length - body.length);
}

// ---------------------------------------------------------------- marks

size_t speech_find(const struct speech *speech, struct span text, const char *const *marks, int n, int *which)
{
    *which = -1;
    for (size_t at = 0; at < text.length; at++)
        for (int i = 0; i < n; i++) {
            if (text.at[at] != *marks[i]) // most bytes begin none
                continue;
            const struct span rest = rest_of(text, at);
            if (begins(rest, marks[i])) {
                *which = i;
                return at;
            }
            if (!speech->reading.ended && may_become(rest, marks[i]))
                return at;
        }
    return text.length;
}

// ---------------------------------------------------------------- reasoning, and then text

static const struct {
    const char *open, *close;
} thoughts[] = {{"<think>", "</think>"}, {"[THINK]", "[/THINK]"}};

const char *speech_reasoning_end(const char *prompt, size_t length)
{
    const struct span text = trim_end((struct span){prompt, length});
    for (size_t i = 0; i < sizeof thoughts / sizeof *thoughts; i++) {
        const size_t n = strlen(thoughts[i].open);
        if (text.length >= n && memcmp(text.at + text.length - n, thoughts[i].open, n) == 0)
            return thoughts[i].close;
    }
    return NULL;
}

const char *speech_answer_mark(unsigned forms, const char *reasoning_end)
{
    return forms & SPEECH_HARMONY ? "<|channel|>final<|message|>" : reasoning_end;
}

static stage *after_reasoning(const struct speech *speech)
{
    return speech->reading.forms & CALLS_BARE ? speech_first : speech_text;
}

// Blanks behind the mark that ended it.
static size_t read_gap(struct speech *speech, struct span text)
{
    const size_t n = count_blanks(text);
    if (n < text.length)
        speech->reading.stage = after_reasoning(speech);
    return n;
}

static size_t read_reasoning(struct speech *speech, struct span text)
{
    struct reading *r = &speech->reading;
    int which;
    const size_t at = speech_find(speech, text, &r->reasoning_end, 1, &which);
    speech_say(speech, &speech->reasoning, (struct span){text.at, at});
    if (which < 0)
        return at;
    speech_drop_blanks(speech);
    r->stage = read_gap;
    r->skip = false;
    return at + strlen(r->reasoning_end);
}

static size_t begin_reasoning(struct speech *speech)
{
    speech_drop_blanks(speech);
    speech->reading.part = &speech->reasoning;
    speech->reading.skip = true;
    speech->reading.stage = read_reasoning;
    return 0;
}

// Where a mark may begin the reasoning.
static size_t read_beginning(struct speech *speech, struct span text)
{
    struct reading *r = &speech->reading;
    const size_t n = count_blanks(text);
    buffer_add(&r->blanks, text.at, n);
    if (n > 0)
        return n;
    for (size_t i = 0; i < sizeof thoughts / sizeof *thoughts; i++) {
        if (!r->ended && may_become(text, thoughts[i].open))
            return 0;
        if (begins(text, thoughts[i].open)) {
            r->reasoning_end = thoughts[i].close;
            return begin_reasoning(speech) + strlen(thoughts[i].open);
        }
    }
    if (r->reasoning_end)
        return begin_reasoning(speech);
    r->stage = after_reasoning(speech);
    return 0;
}

size_t speech_first(struct speech *speech, struct span text)
{
    static const char tag[] = "<|python_tag|>";
    struct reading *r = &speech->reading;
    const size_t n = count_blanks(text);
    buffer_add(&r->blanks, text.at, n);
    if (n > 0 || (!r->ended && may_become(text, tag)))
        return n;
    const bool tagged = begins(text, tag);
    if (speech->n_calls < MAX_CALLS && (tagged || (text.length > 0 && *text.at == '{')))
        speech_begin_call(speech, speech_bare);
    else
        r->stage = speech_text;
    return tagged && r->stage == speech_bare ? strlen(tag) : 0;
}

size_t speech_text(struct speech *speech, struct span text)
{
    struct reading *r = &speech->reading;
    const char *marks[2];
    stage *readers[2];
    int n = 0, which;
    if (r->forms & CALLS_HERMES && speech->n_calls < MAX_CALLS) {
        marks[n] = "<tool_call>";
        readers[n++] = speech_hermes;
    }
    if (r->forms & CALLS_MISTRAL && speech->n_calls < MAX_CALLS) {
        marks[n] = "[TOOL_CALLS]";
        readers[n++] = speech_mistral;
    }
    const size_t at = speech_find(speech, text, marks, n, &which);
    speech_say(speech, &speech->content, (struct span){text.at, at});
    if (r->forms == 0)
        speech_keep_blanks(speech);
    if (which < 0 || at > 0)
        return at;
    speech_begin_call(speech, readers[which]);
    return strlen(marks[which]);
}

// ---------------------------------------------------------------- calls, or not

void speech_begin_call(struct speech *speech, stage *next)
{
    struct reading *r = &speech->reading;
    r->told = r->has_name = r->has_arguments = r->is_list = false;
    r->unsure = true;
    r->raw.length = 0;
    r->stage = next;
}

struct call *speech_call(struct speech *speech)
{
    return &speech->calls[speech->n_calls - speech->reading.told];
}

void speech_tell_call(struct speech *speech)
{
    if (speech->reading.told)
        return;
    speech->reading.told = true;
    speech->reading.unsure = speech->reading.said = false;
    speech->n_calls++;
    speech_drop_blanks(speech); // blanks before a call belong to neither
}

// Behind what was to be a call.
static size_t read_plain(struct speech *speech, struct span text)
{
    buffer_add(&speech->content, text.at, text.length);
    return text.length;
}

size_t speech_no_call(struct speech *speech)
{
    struct reading *r = &speech->reading;
    struct call *call = speech_call(speech);
    call->name.length = call->arguments.length = 0;
    r->part = &speech->content;
    r->skip = r->unsure = false;
    speech_keep_blanks(speech);
    buffer_add(&speech->content, r->raw.at, r->raw.length);
    r->stage = read_plain;
    return 0;
}

// ---------------------------------------------------------------- as it comes

void speech_begin(struct speech *speech, unsigned forms, const char *reasoning_end)
{
    speech_free(speech);
    speech->reading.forms = forms;
    speech->reading.reasoning_end = reasoning_end;
    speech->reading.part = &speech->content;
    speech->reading.stage = forms & SPEECH_HARMONY ? harmony_header : forms & SPEECH_GEMMA ? gemma_text : read_beginning;
}

static void read_on(struct speech *speech)
{
    struct reading *r = &speech->reading;
    struct span text = {r->text.at, r->text.length};
    for (;;) {
        stage *const now = r->stage;
        const size_t n = now(speech, text);
        if (r->unsure)
            buffer_add(&r->raw, text.at, n);
        text = rest_of(text, n);
        if (n == 0 && r->stage == now)
            break;
    }
    if (text.length < r->text.length)
        memmove(r->text.at, text.at, text.length);
    r->text.length = text.length;
}

void speech_add(struct speech *speech, const char *text, size_t length)
{
    buffer_add(&speech->reading.text, text, length);
    if (length > 0 && !speech->reading.text.failed)
        read_on(speech);
}

void speech_end(struct speech *speech)
{
    struct reading *r = &speech->reading;
    buffer_add(&r->text, "", 0);
    if (r->text.failed)
        return;
    r->ended = true;
    read_on(speech);
    if (r->unsure) {
        speech_no_call(speech);
        buffer_add(&speech->content, r->text.at, r->text.length);
    } else if (r->part == &speech->content && (speech->n_calls == 0 || r->said))
        speech_keep_blanks(speech);
}

bool speech_failed(const struct speech *speech)
{
    const struct reading *r = &speech->reading;
    bool failed = speech->reasoning.failed || speech->content.failed || r->text.failed || r->blanks.failed || r->raw.failed ||
                  r->word.failed;
    for (int i = 0; i < MAX_CALLS; i++)
        failed |= speech->calls[i].name.failed || speech->calls[i].arguments.failed;
    return failed;
}

void speech_free(struct speech *speech)
{
    struct reading *r = &speech->reading;
    buffer_free(&speech->reasoning);
    buffer_free(&speech->content);
    buffer_free(&r->text);
    buffer_free(&r->blanks);
    buffer_free(&r->raw);
    buffer_free(&r->word);
    for (int i = 0; i < MAX_CALLS; i++) {
        buffer_free(&speech->calls[i].name);
        buffer_free(&speech->calls[i].arguments);
    }
    *speech = (struct speech){0};
}
