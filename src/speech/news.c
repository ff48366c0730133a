// See speech.h.
#include "speech/speech.h"

static bool take(struct piece *piece, enum part part, struct span whole, size_t *told)
{
    if (whole.length <= *told)
        return false;
    piece->part = part;
    piece->text = rest_of(whole, *told);
    *told = whole.length;
    return true;
}

// A call that has none has an empty object.
static struct span arguments_of(const struct call *call)
{
    return call->whole && call->arguments.length == 0 ? (struct span){"{}", 2}
                                                      : (struct span){call->arguments.at, call->arguments.length};
}

bool speech_news(const struct speech *s, struct told *told, struct piece *piece)
{
    piece->call = told->n_calls - 1;
    // What is left of a call's arguments came before any text that follows it.
    if ((told->n_calls > 0 && take(piece, PART_ARGUMENTS, arguments_of(&s->calls[piece->call]), &told->arguments)) ||
        take(piece, PART_REASONING, (struct span){s->reasoning.at, s->reasoning.length}, &told->reasoning) ||
        take(piece, PART_TEXT, (struct span){s->content.at, s->content.length}, &told->content))
        return true;
    if (told->n_calls == s->n_calls)
        return false;
    const struct buffer *name = &s->calls[told->n_calls].name;
    *piece = (struct piece){PART_CALL, {name->at, name->length}, told->n_calls++};
    told->arguments = 0;
    return true;
}
