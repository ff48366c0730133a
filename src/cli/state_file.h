// --session FILE: what a session has evaluated, kept between runs.
#pragma once
#include "cli/cli.h"

// Loads the file of --session; makes an empty one where there is none, which shows that it can be kept. *known becomes the session's tokens, an array of its context's size that the caller frees.
yalm_status state_open(const struct options *options, yalm_session *session, struct tokens *known, yalm_error *error);
// Saves it, where the option is given and the session has evaluated anything.
yalm_status state_save(const struct options *options, yalm_session *session, yalm_error *error);

// How many tokens the two begin with alike, less one where that is all of the prompt: its last token is evaluated again, for its logits.
size_t state_common(const struct tokens *known, const struct tokens *prompt);
