// Mode calibrate: learns the codebooks of NoMAD attention from the model's own keys on a text, and writes them to a file.
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "util/clock.h"

static void show_progress(void *context, const char *what, double part)
{
    (void)context;
    progress("%3.0f %%  %s", 100 * part, what);
}

static yalm_status calibrate(const struct options *options, const yalm_model *model, const struct tokens *tokens,
                             yalm_error *error)
{
    const yalm_model_info *facts = yalm_model_facts(model);
    yalm_session_options how = session_options(options);
    how.attention = "dense"; // the keys themselves are wanted
    if (strcmp(how.device, "auto") == 0)
        how.device = "cpu"; // which alone can record them
    yalm_session *session = open_session(options, model, &how, options->quiet, error);
    if (session == NULL)
        return error->status;
    yalm_calibration calibration = yalm_calibration_defaults();
    calibration.d_sub = options->d_sub;
    calibration.samples = options->samples;
    calibration.seed = options->seed;
    calibration.bos = !options->tokens && !options->no_bos && facts->add_bos;
    calibration.progress = show_progress;
    const char *path = options->output_file ? options->output_file : yalm_codebooks_path(model);
    int samples = 0;
    const double start = clock_seconds();
    yalm_status status = yalm_calibrate(session, tokens->ids, tokens->n, &calibration, path, &samples, error);
    progress_clear();
    if (status == YALM_INTERRUPTED)
        error->text[0] = 0;
    if (status == YALM_OK)
        printf("%s: %d layers, %d KV heads, %d x %d components of 4 bits; learned from %d keys of each in %.1f s\n", path,
               facts->n_layers, facts->n_kv_heads, facts->head_dim / options->d_sub, options->d_sub, samples,
               clock_seconds() - start);
    close_session(session);
    return status;
}

yalm_status run_calibrate(const struct options *options, const yalm_model *model, yalm_error *error)
{
    return with_text(options, model, calibrate, error);
}
