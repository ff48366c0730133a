// Calls of tools, held to the tools' schemas: where nothing else may come, and where a model has begun one.
#include "serve/body.h"
#include "serve/dialogue.h"

static bool read_wish(struct request *request, const struct dialogue *dialogue, struct call_wish *wish)
{
    *wish = (struct call_wish){
        .chosen = dialogue->chosen, .required = dialogue->choice == TOOLS_REQUIRED, .several = dialogue->chosen == NULL};
    return body_bool(request, request->json, "parallel_tool_calls", &wish->several);
}

static void warn_of(struct request *request, const char *loosened)
{
    if (loosened)
        request_warn(request, "tools: the schema of %s", loosened);
}

static bool force_call(struct request *request, const struct dialogue *dialogue)
{
    struct call_wish wish;
    if (!read_wish(request, dialogue, &wish))
        return false;
    wish.several &= dialogue->chosen == NULL;
    wish.begun = request->how->calls.begun;
    const struct calls *calls = &request->server->calls;
    yalm_error error;
    char *text;
    size_t length;
    struct buffer loosened = {0};
    const yalm_status status = call_grammar_write(&calls->form, dialogue->tools, &wish, &loosened, &text, &length, &error);
    warn_of(request, loosened.at);
    buffer_free(&loosened);
    if (status != YALM_OK)
        return request_fail_by(request, &error);
    request->how->marks = calls->marks;
    request->how->n_marks = calls->n_marks;
    return generation_set_grammar(request, text, length);
}

static bool hold_begun_calls(struct request *request, const struct dialogue *dialogue)
{
    struct calls *calls = &request->server->calls;
    struct generation *how = request->how;
    struct call_wish wish;
    // A call without a mark is known by its name, and one of gpt-oss by its header: there is nothing to begin with.
    if (!dialogue->tools || how->grammar || !calls->form.marks[0][0] || dialogue->forms & SPEECH_HARMONY)
        return true;
    if (!read_wish(request, dialogue, &wish))
        return false;
    how->kept = calls_take(calls, dialogue->tools, &wish);
    if (how->kept == NULL) { // they are beyond what a grammar holds
        request_warn(request, "tools: their schemas");
        return true;
    }
    warn_of(request, calls_loosened(how->kept));
    how->held = (struct held_calls){calls_grammar(how->kept), request->server->tree, calls->marks, calls->n_marks};
    how->options.held = &how->held;
    return true;
}

bool dialogue_hold_calls(struct request *request, const struct dialogue *dialogue)
{
    return (dialogue->choice != TOOLS_REQUIRED || force_call(request, dialogue)) && generation_read_format(request) &&
           hold_begun_calls(request, dialogue);
}
