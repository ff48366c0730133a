// See speculation.h.
#include "cli/speculation.h"

#include <string.h>

#include "cli/cli.h"

static const char *draft_path(const struct options *options)
{
    static const char prefix[] = "draft=";
    const size_t n = sizeof prefix - 1;
    return strncmp(options->speculate, prefix, n) == 0 && options->speculate[n] ? options->speculate + n : NULL;
}

static bool is(const struct options *options, const char *word)
{
    return strcmp(options->speculate, word) == 0;
}

yalm_status speculation_check(const struct options *options, yalm_error *error)
{
    if (is(options, "auto") || is(options, "off") || is(options, "suffix") || is(options, "mtp") || draft_path(options))
        return YALM_OK;
    return error_set(error, YALM_USAGE, "option '--speculate': expected auto, off, suffix, mtp or draft=FILE, found '%s'",
                     options->speculate);
}

bool speculation_named(const struct options *options)
{
    return is(options, "suffix") || is(options, "mtp") || draft_path(options);
}

yalm_mtp speculation_mtp(const struct options *options)
{
    const bool guesses = options->mode == MODE_COMPLETION || options->mode == MODE_CHAT || options->mode == MODE_SERVE;
    if (is(options, "mtp"))
        return YALM_MTP_ON;
    return guesses && is(options, "auto") ? YALM_MTP_AUTO : YALM_MTP_OFF;
}

yalm_status speculation_draft_model(const struct options *options, const yalm_model *model, yalm_model **draft,
                                    yalm_error *error)
{
    *draft = NULL;
    const char *path = draft_path(options);
    if (path == NULL)
        return YALM_OK;
    yalm_model_options how = yalm_model_defaults();
    how.lock = options->mlock;
    how.huge_pages = options->hugepages;
    *draft = yalm_model_open(path, &how, error);
    if (*draft == NULL)
        return error->status;
    const yalm_status status = draft_check(*draft, model, error);
    if (status != YALM_OK) {
        yalm_model_close(*draft);
        *draft = NULL;
    }
    return status;
}

yalm_status speculation_open(struct speculation *s, const struct options *options, const yalm_model *model,
                             yalm_session *session, yalm_error *error)
{
    *s = (struct speculation){0};
    if (is(options, "off") || (options->mode == MODE_THROUGHPUT && is(options, "auto")))
        return YALM_OK;
    yalm_status status = speculation_draft_model(options, model, &s->draft_model, error);
    if (status == YALM_OK && s->draft_model) {
        yalm_session_options how = *yalm_session_facts(session);
        how.endless = false;
        status = draft_check_session(session, error);
        if (status == YALM_OK && (s->draft = draft_open(s->draft_model, &how, error)) == NULL)
            status = error->status;
    }
    if (status == YALM_OK && (s->speculator = speculator_open(s->draft, NULL)) == NULL)
        status = cli_no_memory(error);
    if (status != YALM_OK)
        speculation_close(s);
    return status;
}

void speculation_close(struct speculation *s)
{
    speculator_close(s->speculator);
    draft_close(s->draft);
    yalm_model_close(s->draft_model);
    *s = (struct speculation){0};
}
