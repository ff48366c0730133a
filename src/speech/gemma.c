// What Gemma 4 writes: reasoning in a channel.
//
//     <|channel>thought
//     …<channel|>…
#include "speech/reader.h"

static stage begin_channel, read_channel;

size_t gemma_text(struct speech *speech, struct span text)
{
    const char *marks[5] = {"<|channel>"};
    struct reading *r = &speech->reading;
    int which;
    const int n = 1 + speech_marks_of_calls(speech, marks + 1);
    const size_t at = speech_find(speech, text, marks, n, &which);
    r->skip = speech->content.length == 0 && r->blanks.length == 0;
    speech_say(speech, &speech->content, (struct span){text.at, at});
    if (which < 0 || at > 0)
        return at;
    if (which > 0)
        return speech_begin_marked(speech, marks[which]);
    speech_drop_blanks(speech); // blanks around channels belong to nobody
    r->stage = begin_channel;
    return strlen(marks[0]);
}

// A channel's name is its first line.
static size_t begin_channel(struct speech *speech, struct span text)
{
    static const char thought[] = "thought";
    struct reading *r = &speech->reading;
    if (!r->ended && may_become(text, thought))
        return 0;
    r->part = &speech->reasoning;
    r->skip = true;
    r->apart = speech->reasoning.length > 0;
    r->stage = read_channel;
    return begins(text, thought) ? strlen(thought) : 0;
}

static size_t read_channel(struct speech *speech, struct span text)
{
    static const char *const marks[] = {"<channel|>"};
    struct reading *r = &speech->reading;
    int which;
    const size_t at = speech_find(speech, text, marks, 1, &which);
    speech_say(speech, &speech->reasoning, (struct span){text.at, at});
    if (which < 0)
        return at;
    speech_drop_blanks(speech);
    r->apart = false;
    r->part = &speech->content;
    r->stage = gemma_text;
    return at + strlen(marks[0]);
}
