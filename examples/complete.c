// Completes a text with nothing but the library:  complete MODEL TEXT [N [auto|cpu|cuda]]
//     cc -o complete complete.c $(pkg-config --cflags --libs yalm)

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yalm.h>

static int fail(const yalm_error *error)
{
    fprintf(stderr, "complete: %s\n", error->text);
    return error->status;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return fprintf(stderr, "usage: complete MODEL TEXT [N [auto|cpu|cuda]]\n"), YALM_USAGE;
    yalm_error error;
    yalm_model *model = yalm_model_open(argv[1], NULL, &error);
    yalm_session_options options = yalm_session_defaults();
    options.device = argc > 4 ? argv[4] : "auto";
    yalm_session *session = model ? yalm_session_open(model, &options, &error) : NULL;
    int32_t *tokens;
    size_t n_tokens;
    if (session == NULL ||
        yalm_tokenize(model, argv[2], strlen(argv[2]), YALM_TOKENIZE_BOS, &tokens, &n_tokens, &error) != YALM_OK)
        return fail(&error);

    yalm_sampling sampling = yalm_sampling_defaults();
    sampling.temperature = 0; // the likeliest token, always
    yalm_stream stream = {.started = true};
    char text[YALM_MAX_PIECE + 8];
    printf("%s", argv[2]);
    yalm_status status = yalm_eval(session, tokens, (int)n_tokens, YALM_LOGITS_LAST, &error);
    for (int n = argc > 3 ? atoi(argv[3]) : 64; n > 0 && status == YALM_OK; n--) {
        const int32_t token = yalm_sample(session, &sampling);
        if (yalm_is_eos(model, token))
            break;
        fwrite(text, 1, yalm_stream_token(model, &stream, token, false, text), stdout);
        status = yalm_eval(session, &token, 1, YALM_LOGITS_LAST, &error);
    }
    putchar('\n');
    free(tokens);
    yalm_session_close(session);
    yalm_model_close(model);
    return status == YALM_OK ? 0 : fail(&error);
}
