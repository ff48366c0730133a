// Pages of the KV cache: what it holds of a run of tokens, in memory of the caller's.
//
// A page is one block for each kind of layer. Layers that see everything have all rows there. Of layers with a window only
// the rows that the position behind the page sees can be relied on: a ring may have dropped older ones by the time that the
// page is saved. What recurrent layers carry is no part of a page: it is one more block, of the position behind the last one.

#include <string.h>

#include "engine/session.h"

static bool is_ring(const yalm_session *s, int kind)
{
    return s->kv[kind].capacity < s->options.context;
}

// The rows of tokens [first, end) that a page has of this kind of layer.
static struct stretch rows_of(const yalm_session *s, int kind, int64_t first, int64_t end)
{
    const int64_t visible = kv_first_visible(&s->kv[kind], end);
    return (struct stretch){is_ring(s, kind) && visible > first ? visible : first, end, 0};
}

// What each_row() hands over of one kind of layer alone.
static yalm_status each_of_kind(yalm_session *s, int kind, struct stretch rows, enum row_use use, row_taker *take,
                                void *context, yalm_error *error)
{
    struct stretch of_kind[CONFIG_MAX_KINDS] = {{0, 0, 0}};
    of_kind[kind] = rows;
    return s->backend->each_row(s->state, of_kind, use, take, context, error);
}

static yalm_status measure(void *context, void *bytes, size_t length)
{
    (void)bytes;
    *(size_t *)context += length;
    return YALM_OK;
}

static yalm_status take_out(void *context, void *bytes, size_t length)
{
    uint8_t **at = context;
    memcpy(*at, bytes, length);
    *at += length;
    return YALM_OK;
}

static yalm_status put_in(void *context, void *bytes, size_t length)
{
    const uint8_t **at = context;
    memcpy(bytes, *at, length);
    *at += length;
    return YALM_OK;
}

static bool has_rows(const yalm_session *s, int kind)
{
    return config_kind_attends(&s->model->config, kind);
}

// What recurrent layers carry at `position`, of all kinds.
static yalm_status each_carried(yalm_session *s, int64_t position, enum row_use use, row_taker *take, void *context,
                                yalm_error *error)
{
    yalm_status status = YALM_OK;
    for (int kind = 0; kind < config_n_kinds(&s->model->config) && status == YALM_OK; kind++)
        if (config_kind_recurs(&s->model->config, kind))
            status = each_of_kind(s, kind, (struct stretch){0, 0, position}, use, take, context, error);
    return status;
}

// Bytes of a page's block of a kind: as many for each page, which has the most rows that a window lets one have.
static size_t block_bytes(yalm_session *s, int kind, int n)
{
    if (!has_rows(s, kind))
        return 0;
    const int visible = s->kv[kind].span - 1;
    const int rows = is_ring(s, kind) && visible < n ? visible : n;
    size_t bytes = 0;
    return each_of_kind(s, kind, (struct stretch){0, rows, 0}, ROWS_MEASURED, measure, &bytes, NULL) == YALM_OK ? bytes : 0;
}

size_t yalm_page_bytes(yalm_session *s, int n)
{
    size_t bytes = 0;
    if (!s->backend->each_row || s->options.endless || n < 1 || n > s->options.context)
        return 0;
    for (int kind = 0; kind < config_n_kinds(&s->model->config); kind++)
        bytes += block_bytes(s, kind, n);
    return bytes;
}

size_t yalm_state_bytes(const yalm_session *s)
{
    size_t floats = 0;
    for (int layer = 0; layer < s->model->config.n_layers && s->backend->each_row; layer++)
        if (config_is_recurrent(&s->model->config, layer)) {
            const struct delta_config *delta = config_delta(&s->model->config, layer);
            floats += delta_state_floats(delta) + delta_input_floats(delta);
        }
    return floats * sizeof(float);
}

static yalm_status check_pages(yalm_session *s, int n, yalm_error *error)
{
    if (yalm_page_bytes(s, n) == 0)
        return error_set(error, YALM_USAGE, "pages of %d tokens: this session has none (dense attention in one process has)",
                         n);
    return yalm_finish(s, error);
}

yalm_status yalm_page_save(yalm_session *s, int64_t first, int n, void *page, yalm_error *error)
{
    yalm_status status = check_pages(s, n, error);
    if (status != YALM_OK)
        return status;
    const int64_t settled = yalm_session_settled(s);
    if (first < 0 || first > settled - n)
        return error_set(error, YALM_USAGE, "a page of %d tokens from %lld on: the session has %lld", n, (long long)first,
                         (long long)settled);
    uint8_t *at = page;
    for (int kind = 0; kind < config_n_kinds(&s->model->config) && status == YALM_OK; kind++) {
        if (!has_rows(s, kind))
            continue;
        const struct stretch rows = rows_of(s, kind, first, first + n);
        if (is_ring(s, kind) && (rows.first + s->kv[kind].capacity < s->high_water || first + n < s->floor))
            return error_set(error, YALM_USAGE, "a page of %d tokens from %lld on: a window has dropped them", n,
                             (long long)first);
        uint8_t *block = at;
        status = each_of_kind(s, kind, rows, ROWS_READ, take_out, &block, error);
        at += block_bytes(s, kind, n);
    }
    return status;
}

yalm_status yalm_state_save(yalm_session *s, void *state, yalm_error *error)
{
    if (yalm_state_bytes(s) == 0)
        return error_set(error, YALM_USAGE, "a state of recurrent layers: this session has none that it can give");
    if (s->position == 0)
        return error_set(error, YALM_USAGE, "a state of recurrent layers: the session has no tokens yet");
    if (s->position > yalm_session_settled(s))
        return error_set(error, YALM_USAGE, "a state of recurrent layers: with exact bits there is one behind a prompt alone");
    const yalm_status status = yalm_finish(s, error);
    if (status != YALM_OK)
        return status;
    uint8_t *at = state;
    return each_carried(s, s->position, ROWS_READ, take_out, &at, error);
}

// Settled tokens that the session's timeline has in common with these.
static int64_t in_common(const yalm_session *s, const int32_t *tokens, int64_t n)
{
    int64_t common = 0;
    while (common < n && common < yalm_session_settled(s) && s->history[common] == tokens[common])
        common++;
    return common;
}

// Rows of a page that is for tokens [first, first + n), of layers that need them: all but what `common` tokens have left
// there, and what a window that ends at `end` no longer sees.
static yalm_status load_page(yalm_session *s, const uint8_t *at, int64_t first, int n, int64_t common, int64_t end,
                             yalm_error *error)
{
    yalm_status status = YALM_OK;
    for (int kind = 0; kind < config_n_kinds(&s->model->config) && status == YALM_OK; kind++) {
        const uint8_t *block = at;
        if (!has_rows(s, kind))
            continue;
        if (is_ring(s, kind) ? first + n > kv_first_visible(&s->kv[kind], end) : first + n > common)
            status = each_of_kind(s, kind, rows_of(s, kind, first, first + n), ROWS_WRITTEN, put_in, &block, error);
        at += block_bytes(s, kind, n);
    }
    return status;
}

yalm_status yalm_page_load(yalm_session *s, const int32_t *tokens, int n, const void *const *pages, int n_pages,
                           const void *state, yalm_error *error)
{
    yalm_status status = check_pages(s, n, error);
    const int64_t end = (int64_t)n * n_pages;
    if (status != YALM_OK)
        return status;
    if (n_pages < 0 || end > s->options.context)
        return error_set(error, YALM_USAGE, "pages of %lld tokens: the context holds %d", (long long)end, s->options.context);
    for (int64_t i = 0; i < end; i++)
        if (tokens[i] < 0 || tokens[i] >= s->model->config.vocab_size)
            return error_set(error, YALM_USAGE, "pages: found token id %d, expected 0 to %d", tokens[i],
                             s->model->config.vocab_size - 1);
    const bool recurs = yalm_state_bytes(s) > 0 && end > 0;
    if (recurs && !state)
        return error_set(error, YALM_USAGE, "pages: the state of recurrent layers that belongs to them is missing");
    const int64_t common = in_common(s, tokens, end);
    s->floor = 0;
    if (recurs)
        status = each_carried(s, end, ROWS_WRITTEN, put_in, &state, error);
    for (int i = 0; i < n_pages && status == YALM_OK; i++)
        status = load_page(s, pages[i], (int64_t)i * n, n, common, end, error);
    const int64_t held = status == YALM_OK ? end : 0; // half of a text is of no use
    for (int kind = 0; kind < config_n_kinds(&s->model->config); kind++)
        if (config_kind_recurs(&s->model->config, kind) || (is_ring(s, kind) && kv_first_visible(&s->kv[kind], end) > 0))
            s->floor = held;
    memcpy(s->history, tokens, sizeof *tokens * (size_t)end);
    s->position = s->high_water = s->settled = held;
    s->n_logits = 0;
    ahead_forget(s);
    mtp_forget(s);
    return status;
}
