/* session_sequences.c - the sequences of a session: the one in use, the pages of their keys and values, and common prefixes.
 *
 * Pages are a stack of free pages, a page table a sequence, and a reference count a page. */
#include "runtime/session/session_internal.h"

#include <stdlib.h>
#include <string.h>

/* --- pages --- */

static int64_t pages_for(int64_t n_positions) { return (n_positions + APR_PAGE_CELLS - 1) / APR_PAGE_CELLS; }

apr_status apr_pages_open(apr_pages *p, int64_t n_pages, int64_t n_sequences, int64_t n_ctx, apr_error *err)
{
    *p = (apr_pages){.n_pages = n_pages, .n_sequences = n_sequences, .most = pages_for(n_ctx), .n_free = n_pages};
    if (n_pages < 1 || n_pages > INT32_MAX || n_sequences < 1 || p->most < 1 || n_sequences > INT64_MAX / 8 / p->most)
        return apr_fail(err, APR_E_USAGE, "a cache of %lld pages for %lld sequences of %lld positions is not possible", (long long)n_pages,
                        (long long)n_sequences, (long long)n_ctx);
    p->free = calloc((size_t)n_pages, sizeof *p->free);
    p->n_uses = calloc((size_t)n_pages, sizeof *p->n_uses);
    p->tables = calloc((size_t)(n_sequences * p->most), sizeof *p->tables);
    p->n_held = calloc((size_t)n_sequences, sizeof *p->n_held);
    if (p->free == NULL || p->n_uses == NULL || p->tables == NULL || p->n_held == NULL) {
        apr_pages_close(p);
        return apr_no_memory(err, "the table of pages");
    }
    for (int64_t i = 0; i < n_pages; i++) p->free[i] = (int32_t)(n_pages - 1 - i);
    return APR_OK;
}

void apr_pages_close(apr_pages *p)
{
    free(p->free);
    free(p->n_uses);
    free(p->tables);
    free(p->n_held);
    *p = (apr_pages){0};
}

apr_status apr_pages_extend(apr_pages *p, int64_t sequence, int64_t n_positions, apr_error *err)
{
    int64_t *const n_held = &p->n_held[sequence];
    const int64_t wanted = pages_for(n_positions);

    if (wanted > p->most || wanted - *n_held > p->n_free)
        return apr_fail(err, APR_E_NO, "the cache is full: %lld positions of a sequence need %lld more pages, and %lld of %lld are free",
                        (long long)n_positions, (long long)(wanted - *n_held), (long long)p->n_free, (long long)p->n_pages);
    for (; *n_held < wanted; ++*n_held) {
        const int32_t page = p->free[--p->n_free];
        p->n_uses[page] = 1;
        p->tables[sequence * p->most + *n_held] = page;
    }
    return APR_OK;
}

void apr_pages_release(apr_pages *p, int64_t sequence)
{
    while (p->n_held[sequence] > 0) {
        const int32_t page = p->tables[sequence * p->most + --p->n_held[sequence]];
        if (--p->n_uses[page] == 0) p->free[p->n_free++] = page;
    }
}

void apr_pages_share(apr_pages *p, int64_t from, int64_t to, int64_t n_positions)
{
    const int64_t n = n_positions / APR_PAGE_CELLS;

    for (int64_t i = 0; i < n; i++) {
        const int32_t page = p->tables[from * p->most + i];
        p->tables[to * p->most + i] = page;
        p->n_uses[page]++;
    }
    p->n_held[to] = n;
}

/* --- sequences --- */

apr_status apr_session_open_sequences(apr_session *s, apr_error *err)
{
    const apr_plan *const plan = &s->places[0].plan;
    const int64_t n = plan->n_sequences, n_rows = apr_batch_rows(n);

    if (n == 1) return APR_OK;
    s->positions = calloc((size_t)n, sizeof *s->positions);
    s->step_ids = calloc((size_t)n_rows, sizeof *s->step_ids);
    s->step_sequences = calloc((size_t)n_rows, sizeof *s->step_sequences);
    s->step_positions = calloc((size_t)n_rows, sizeof *s->step_positions);
    if (s->positions == NULL || s->step_ids == NULL || s->step_sequences == NULL || s->step_positions == NULL)
        return apr_no_memory(err, "the table of sequences");
    return apr_pages_open(&s->pages, plan->n_pages, n, plan->n_ctx, err);
}

void apr_session_close_sequences(apr_session *s)
{
    free(s->positions);
    free(s->step_ids);
    free(s->step_sequences);
    free(s->step_positions);
    apr_pages_close(&s->pages);
    s->positions = NULL;
    s->step_ids = NULL;
    s->step_sequences = NULL;
    s->step_positions = NULL;
}

int64_t apr_session_n_sequences(const apr_session *s) { return s->places[0].plan.n_sequences; }

int64_t apr_session_free_pages(const apr_session *s) { return s->pages.n_free; }

void apr_session_use(apr_session *s, int64_t sequence)
{
    if (s->positions == NULL) return;
    s->positions[s->sequence] = s->position;
    s->sequence = sequence;
    s->position = s->positions[sequence];
}

void apr_session_reset(apr_session *session)
{
    session->position = 0;
    if (session->pages.n_pages > 0) apr_pages_release(&session->pages, session->sequence);
    session->last_logits = session->last_row = NULL;
}

/* --- common prefixes --- */

bool apr_session_can_share_prefix(const apr_session *s)
{
    for (size_t i = 0; i < s->program.n_states; i++)
        if (s->program.states[i].kind != APR_STATE_KV) return false;
    return true;
}

/* All rows write their keys and values before any of them attends, so rows may follow each other in one sequence. A recurrent state has
 * only one value at a time. */
bool apr_session_can_step_prompts(const apr_session *s) { return s->positions != NULL && apr_session_can_share_prefix(s); }

static apr_status copy_state(const apr_session *s, const uint8_t *from, uint8_t *to, uint64_t n_bytes, apr_error *err)
{
    apr_cuda_device *const device = s->places[0].device;

    if (device != NULL) return s->options.cuda->transfer(device, from, device, to, n_bytes, err);
    memcpy(to, from, n_bytes);
    return APR_OK;
}

apr_status apr_session_share(apr_session *s, int64_t from, int64_t to, int64_t n_positions, apr_error *err)
{
    const apr_session_place *const at = &s->places[0];

    apr_session_use(s, from);
    const bool has_them = n_positions > 0 && n_positions <= s->position && n_positions % APR_PAGE_CELLS == 0;
    if (s->positions == NULL || from == to || !has_them || (n_positions < s->position && !apr_session_can_share_prefix(s)))
        return apr_fail(err, APR_E_USAGE, "%lld positions of a sequence at %lld cannot be shared", (long long)n_positions,
                        (long long)s->position);
    apr_session_use(s, to);
    apr_session_reset(s);
    apr_pages_share(&s->pages, from, to, n_positions);
    for (size_t i = 0; i < s->program.n_states; i++) {
        const uint64_t stride = at->plan.state_strides[i];
        uint8_t *const first = at->states + at->plan.state_offsets[i];
        if (stride > 0) APR_TRY(copy_state(s, first + (uint64_t)from * stride, first + (uint64_t)to * stride, stride, err));
    }
    s->position = n_positions;
    return APR_OK;
}

/* Does state i still have everything it had at that position? A ring of cells overwrites the oldest ones. */
static bool is_still_valid(const apr_session *s, size_t i, int64_t position)
{
    const apr_state *const state = &s->program.states[i];

    if (state->kind == APR_STATE_KV) return true;
    if (state->kind != APR_STATE_KV_WINDOW) return false;
    const apr_session_place *const at = apr_session_place_of_state(s, (int)i);
    const int64_t oldest = s->position - at->plan.state_cells[i], visible = position - state->window;
    return oldest <= 0 || visible >= oldest;
}

static bool can_go_back(const apr_session *s, int64_t position)
{
    if (position == s->position) return true;
    if (s->positions != NULL) return false;
    for (size_t i = 0; i < s->program.n_states; i++)
        if (!is_still_valid(s, i, position)) return false;
    return true;
}

int64_t apr_session_keep_prefix(apr_session *s, const int32_t *held, const int32_t *wanted, int64_t n_wanted)
{
    int64_t n = 0;

    while (n < s->position && n < n_wanted - 1 && held[n] == wanted[n]) n++;
    if (n == 0 || !can_go_back(s, n)) {
        apr_session_reset(s);
        return 0;
    }
    s->position = n;
    s->last_logits = s->last_row = NULL;
    return n;
}
