// --session FILE: what a session has evaluated, kept between runs.
#pragma once
#include "cli/cli.h"

// Loads the file of --session; makes an empty one where there is none, which shows that it can be kept.
yalm_status state_open(const struct options *options, yalm_session *session, yalm_error *error);
// Saves it, where the option is given and the session has evaluated anything.
yalm_status state_save(const struct options *options, yalm_session *session, yalm_error *error);
