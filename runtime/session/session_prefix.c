/* session_prefix.c - evaluates the common prefix of two texts once: the later tokens are dropped, if the model's states allow it. */
#include "runtime/session/session_internal.h"

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
