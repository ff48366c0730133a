// See state_file.h.
#include "cli/state_file.h"

#include <unistd.h>

yalm_status state_open(const struct options *options, yalm_session *session, yalm_error *error)
{
    if (options->session == NULL)
        return YALM_OK;
    if (access(options->session, F_OK) != 0) // what cannot be kept is refused before anything is read
        return yalm_session_save(session, options->session, error);
    const yalm_status status = yalm_session_load(session, options->session, error);
    if (status == YALM_OK && yalm_position(session) > 0 && !options->quiet)
        say("%s: %lld tokens that need not be read again", options->session, (long long)yalm_position(session));
    return status;
}

yalm_status state_save(const struct options *options, yalm_session *session, yalm_error *error)
{
    if (options->session == NULL || session == NULL || yalm_position(session) == 0)
        return YALM_OK;
    return yalm_session_save(session, options->session, error);
}
