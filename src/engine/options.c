// What options are where the caller does not choose.
#include "yalm.h"

enum { DEFAULT_SINKS = 4 };

yalm_model_options yalm_model_defaults(void)
{
    return (yalm_model_options){.size = sizeof(yalm_model_options)};
}

yalm_session_options yalm_session_defaults(void)
{
    return (yalm_session_options){
        .size = sizeof(yalm_session_options), .device = "auto", .isa = "auto", .attention = "dense", .n_sinks = DEFAULT_SINKS};
}

yalm_sampling yalm_sampling_defaults(void)
{
    return (yalm_sampling){.size = sizeof(yalm_sampling),
                           .temperature = 0.8f,
                           .top_k = 40,
                           .top_p = 0.95f,
                           .min_p = 0.05f,
                           .repeat_penalty = 1,
                           .penalty_last_n = 64};
}
