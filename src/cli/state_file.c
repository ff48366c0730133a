// See state_file.h.
#include "cli/state_file.h"

#include <stdlib.h>
#include <unistd.h>

yalm_status state_open(const struct options *options, yalm_session *session, struct tokens *known, yalm_error *error)
{
    const size_t room = (size_t)yalm_session_facts(session)->context;
    known->n = 0;
    known->ids = malloc(room * sizeof *known->ids);
    if (known->ids == NULL)
        return cli_no_memory(error);
    if (options->session == NULL)
        return YALM_OK;
    if (access(options->session, F_OK) != 0) // what cannot be kept is refused before anything is read
        return yalm_session_save(session, options->session, error);
    const yalm_status status = yalm_session_load(session, options->session, error);
    if (status == YALM_OK)
        known->n = yalm_session_tokens(session, known->ids, room);
    if (known->n > 0 && !options->quiet)
        say("%s: %zu tokens that need not be read again", options->session, known->n);
    return status;
}

yalm_status state_save(const struct options *options, yalm_session *session, yalm_error *error)
{
    if (options->session == NULL || session == NULL || yalm_position(session) == 0)
        return YALM_OK;
    return yalm_session_save(session, options->session, error);
}

size_t state_common(const struct tokens *known, const struct tokens *prompt)
{
    size_t n = 0;
    while (n < known->n && n < prompt->n && known->ids[n] == prompt->ids[n])
        n++;
    return n > 0 && n == prompt->n ? n - 1 : n;
}
