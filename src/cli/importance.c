// Mode importance: writes how much each column of the weight matrices matters on a text, for the converter.
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "util/clock.h"

static void show_progress(void *context, double part)
{
    (void)context;
    progress("%3.0f %%  observing", 100 * part);
}

static yalm_status observe(const struct options *options, const yalm_model *model, const struct tokens *tokens,
                           yalm_error *error)
{
    yalm_session_options how = session_options(options);
    if (strcmp(how.device, "auto") == 0)
        how.device = "cpu"; // which alone can observe
    yalm_session *session = open_session(options, model, &how, options->quiet, error);
    if (session == NULL)
        return error->status;
    yalm_importance importance = yalm_importance_defaults();
    importance.bos = !options->tokens && !options->no_bos && yalm_model_facts(model)->add_bos;
    importance.progress = show_progress;
    const double start = clock_seconds();
    const yalm_status status = yalm_importance_write(session, tokens->ids, tokens->n, &importance, options->output_file, error);
    progress_clear();
    if (status == YALM_INTERRUPTED)
        error->text[0] = 0;
    if (status == YALM_OK)
        printf("%s: importance by %zu tokens, in %.1f s\n", options->output_file, tokens->n, clock_seconds() - start);
    close_session(session);
    return status;
}

yalm_status run_importance(const struct options *options, const yalm_model *model, yalm_error *error)
{
    if (options->output_file == NULL)
        return error_set(error, YALM_USAGE, "mode importance writes a file: -o FILE");
    return with_text(options, model, observe, error);
}
