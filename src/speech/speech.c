// See speech.h.
#include "speech/reader.h"

unsigned speech_marks(const char *chat_template)
{
    if (chat_template == NULL)
        return 0;
    const bool harmony = strstr(chat_template, "<|channel|>") && strstr(chat_template, "<|message|>");
    const bool gemma = strstr(chat_template, "<|channel>") && strstr(chat_template, "<|tool_call>");
    return harmony ? SPEECH_HARMONY : gemma ? SPEECH_GEMMA : strstr(chat_template, "[THINK]") ? SPEECH_BRACKETS : 0;
}

// ---------------------------------------------------------------- reasoning

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

bool speech_call_begun(const struct call_form *form, const char *prompt, size_t length)
{
    const char *begin = form->part[BEGIN];
    const size_t n = strlen(begin);
    return form->known && !form->is_object && !form->part[OPENING][0] && n > 0 && n <= length &&
           memcmp(prompt + length - n, begin, n) == 0;
}

const char *speech_answer_mark(unsigned forms, const char *reasoning_end)
{
    return forms & SPEECH_HARMONY ? "<|channel|>final<|message|>" : reasoning_end;
}

// Blanks behind the mark that ended it.
static size_t read_gap(struct speech *speech, struct span text)
{
    const size_t n = count_blanks(text);
    if (n < text.length)
        speech->reading.stage = speech->reading.first;
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
        if (!r->ended && (may_become(text, thoughts[i].open) || (r->calls && may_become(text, thoughts[i].close))))
            return 0;
        if (begins(text, thoughts[i].open)) {
            r->reasoning_end = thoughts[i].close;
            return begin_reasoning(speech) + strlen(thoughts[i].open);
        }
        if (r->calls && r->reasoning_end == NULL &&
            begins(text, thoughts[i].close)) { // of none, as templates write before calls
            speech_drop_blanks(speech);
            r->stage = read_gap;
            return strlen(thoughts[i].close);
        }
    }
    if (r->reasoning_end)
        return begin_reasoning(speech);
    r->stage = speech->reading.first;
    return 0;
}

// ---------------------------------------------------------------- as it comes

// Where the template has no marks, or who offers the tools is not known, a call may be all of the text.
static bool begins_bare(const struct reading *r)
{
    return r->calls && r->calls->form->is_object && (r->calls->tools == NULL || r->calls->form->marks[0][0] == 0);
}

void speech_begin(struct speech *speech, unsigned forms, const char *reasoning_end, const struct speech_calls *calls)
{
    speech_free(speech);
    speech->reading.forms = forms;
    speech->reading.reasoning_end = reasoning_end;
    speech->reading.calls = calls && calls->form->known ? calls : NULL;
    speech->reading.part = &speech->content;
    speech->reading.rest = forms & SPEECH_GEMMA ? gemma_text : speech_text;
    speech->reading.first = begins_bare(&speech->reading) ? speech_first : speech->reading.rest;
    speech->reading.members = members_begin;
    speech->reading.stage = forms & SPEECH_HARMONY ? harmony_header : forms & SPEECH_GEMMA ? gemma_text : read_beginning;
    if (speech->reading.calls && calls->begun)
        speech_begin_named(speech);
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

bool speech_call_begins(const struct speech *speech, struct span begun[2])
{
    const struct reading *r = &speech->reading;
    begun[0] = (struct span){r->raw.at, r->raw.length};
    begun[1] = (struct span){r->text.at, r->text.length};
    return r->unsure && !r->near && r->calls && r->calls->form->marks[0][0];
}

// Where a call must come, what is cut off before its arguments is a call, or nothing where nobody knows of which tool.
static bool end_begun(struct speech *speech)
{
    struct reading *r = &speech->reading;
    const char *must = r->calls ? r->calls->must : NULL;
    const bool begins = r->part == &speech->content && r->text.length > 0 && speech->content.length == 0;
    if (must == NULL || speech->n_calls > 0 || !(r->unsure ? !r->has_arguments : begins))
        return false;
    struct buffer *name = &speech_call(speech)->name;
    if (!r->unsure || !r->has_name) {
        name->length = 0;
        buffer_text(name, must);
    }
    if (name->length)
        speech_tell_call(speech);
    r->unsure = false;
    r->text.length = 0;
    return true;
}

void speech_end(struct speech *speech)
{
    struct reading *r = &speech->reading;
    if (end_begun(speech))
        return;
    buffer_add(&r->text, "", 0);
    if (r->text.failed)
        return;
    r->ended = true;
    read_on(speech);
    if (r->unsure && r->has_name && r->has_arguments) { // but for the last brace
        speech_end_call(speech);
        read_on(speech);
    }
    while (r->unsure) { // what follows the mark may begin with one
        speech_no_call(speech);
        read_on(speech);
    }
    if (r->part == &speech->content && (speech->n_calls == 0 || r->said))
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
