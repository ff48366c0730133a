// See text_out.h.
#include "cli/text_out.h"

#include "cli/cli.h"

yalm_status text_out_bytes(struct text_out *out, const char *bytes, size_t length, yalm_error *error)
{
    if (length == 0)
        return YALM_OK;
    out->any = true;
    out->last_byte = bytes[length - 1];
    return out->take ? out->take(out->context, bytes, length, error) : output(bytes, length, error);
}

static yalm_status send_generated(struct text_out *out, const char *bytes, size_t length, yalm_error *error)
{
    if (out->filter.stops->n == 0)
        return text_out_bytes(out, bytes, length, error);
    const size_t ready = stop_filter_add(&out->filter, bytes, length);
    if (ready == SIZE_MAX)
        return cli_no_memory(error);
    const yalm_status status = text_out_bytes(out, out->filter.held, ready, error);
    stop_filter_sent(&out->filter, ready);
    return status;
}

yalm_status text_out_token(struct text_out *out, int32_t token, yalm_error *error)
{
    char bytes[YALM_MAX_PIECE + 8];
    const size_t n = yalm_stream_token(out->model, &out->stream, token, out->special, bytes);
    return send_generated(out, bytes, n, error);
}

yalm_status text_out_end(struct text_out *out, yalm_error *error)
{
    char bytes[8];
    yalm_status status = YALM_OK;
    if (out->filter.found)
        return YALM_OK;
    const size_t n = yalm_stream_end(&out->stream, bytes);
    if (n)
        status = send_generated(out, bytes, n, error);
    if (status == YALM_OK && !out->filter.found)
        status = text_out_bytes(out, out->filter.held, out->filter.length, error);
    return status;
}
