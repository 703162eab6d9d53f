/* sequence_check.c - sequences alone and among others. */
#include "tests/support/sequence_check.h"

#include "runtime/calibrate/own_text.h"
#include "tests/support/program_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS_OF_EACH = 1 + CHECK_STEPS };

int32_t check_id(const apr_model *model, int64_t sequence, int64_t position)
{
    return (int32_t)((sequence * 31 + position * 37 + position * position) % model->hparams.vocab_size);
}

static int64_t stretch_of(const sequence_check *c) { return c->stretch > 0 ? c->stretch : 1; }

int64_t check_prompt(const sequence_check *c, int64_t sequence)
{
    const int64_t n = 1 + (sequence % 4 == 0 ? sequence * 43 % 130 : sequence * 11 % 24); /* 1 to 127 */
    return n * stretch_of(c);
}

int64_t check_ctx(const sequence_check *c) { return 144 * stretch_of(c); }

apr_session *check_open(const sequence_check *c, int64_t n_sequences, int64_t kv_cells)
{
    apr_session_options options = apr_session_defaults;
    apr_error err = {0};
    apr_session *s;
    options.n_ctx = check_ctx(c);
    options.n_batch = CHECK_PIECE;
    options.n_logits = 4;
    options.n_threads = 2;
    options.n_sequences = n_sequences;
    options.kv_cells = kv_cells;
    options.kv_dtype = c->kv_dtype;
    options.backend = c->backend;
    options.cuda = c->cuda;
    options.exact = c->is_exact;
    if (apr_session_open(&s, c->model, &options, &err) != APR_OK) fail_msg("%s: %s", c->what, err.text);
    return s;
}

void check_evaluate(const sequence_check *c, apr_session *s, int64_t slot, int64_t sequence, int64_t first, int64_t end, float *logits)
{
    int32_t ids[CHECK_PIECE];
    apr_error err = {0};

    apr_session_use(s, slot);
    for (int64_t p = first; p < end;) {
        const int64_t piece = CHECK_PIECE - p % CHECK_PIECE, n = end - p < piece ? end - p : piece;
        const apr_eval_output out = {.logits = p + n == end ? logits : NULL};
        for (int64_t i = 0; i < n; i++) ids[i] = check_id(c->model, sequence, p + i);
        if (apr_session_eval(s, ids, (size_t)n, &out, &err) != APR_OK) fail_msg("%s: %s", c->what, err.text);
        p += n;
    }
}

static float *room(const sequence_check *c, int64_t n_rows)
{
    float *const rows = calloc((size_t)(n_rows * c->model->hparams.vocab_size), sizeof *rows);
    assert_non_null(rows);
    return rows;
}

static float *row_of(const sequence_check *c, float *logits, int64_t sequence, int64_t step)
{
    return logits + (sequence * ROWS_OF_EACH + step) * c->model->hparams.vocab_size;
}

static void step(const sequence_check *c, apr_session *s, const apr_sequence_token *tokens, int64_t n, float *rows)
{
    const apr_eval_output out = {.logits = rows};
    apr_error err = {0};
    if (apr_session_step(s, tokens, n, &out, &err) != APR_OK) fail_msg("%s: %s", c->what, err.text);
}

/* logits[CHECK_SEQUENCES, ROWS_OF_EACH, vocab]. On the host alone in a session of its own size; a device computes one of several in another
 * way than a session's only one. */
static float *alone(const sequence_check *c)
{
    float *const logits = room(c, CHECK_SEQUENCES * ROWS_OF_EACH);
    apr_session *const s = check_open(c, c->cuda != NULL ? 2 : 1, 0);

    for (int64_t i = 0; i < CHECK_SEQUENCES; i++) {
        const int64_t n = check_prompt(c, i);
        apr_session_reset(s);
        check_evaluate(c, s, 0, i, 0, n, row_of(c, logits, i, 0));
        for (int64_t k = 0; k < CHECK_STEPS; k++) {
            const apr_sequence_token token = {0, check_id(c->model, i, n + k)};
            if (c->cuda != NULL) step(c, s, &token, 1, row_of(c, logits, i, k + 1));
            else check_evaluate(c, s, 0, i, n + k, n + k + 1, row_of(c, logits, i, k + 1));
        }
    }
    apr_session_close(s);
    return logits;
}

void check_memory(const sequence_check *c, const apr_session *s)
{
    const apr_session_memory memory = apr_session_check_memory(s);
    if (!memory.as_planned && memory.measured != UINT64_MAX)
        fail_msg("%s: not as planned: %llu bytes planned, %llu measured", c->what, (unsigned long long)memory.planned,
                 (unsigned long long)memory.measured);
}

/* All of them, joining in the order of `stride` and one by one from step to step; as many as are there go on together. */
static float *among_others(const sequence_check *c, int64_t stride)
{
    const size_t row_bytes = (size_t)c->model->hparams.vocab_size * sizeof(float);
    float *const logits = room(c, CHECK_SEQUENCES * ROWS_OF_EACH), *const rows = room(c, CHECK_SEQUENCES);
    apr_session *const s = check_open(c, CHECK_SEQUENCES, 0);
    int64_t n_done[CHECK_SEQUENCES] = {0};

    for (int64_t turn = 0; turn < CHECK_SEQUENCES + CHECK_STEPS; turn++) {
        apr_sequence_token tokens[CHECK_SEQUENCES];
        int64_t n = 0;
        for (int64_t j = turn < CHECK_SEQUENCES ? turn + 1 : CHECK_SEQUENCES; j-- > 0;) {
            const int64_t i = j * stride % CHECK_SEQUENCES, n_prompt = check_prompt(c, i);
            if (j == turn) check_evaluate(c, s, i, i, 0, n_prompt, row_of(c, logits, i, 0));
            else if (n_done[i] < CHECK_STEPS) tokens[n++] = (apr_sequence_token){i, check_id(c->model, i, n_prompt + n_done[i])};
        }
        step(c, s, tokens, n, rows);
        for (int64_t r = 0; r < n; r++) {
            const int64_t i = tokens[r].sequence;
            memcpy(row_of(c, logits, i, ++n_done[i]), (const uint8_t *)rows + (size_t)r * row_bytes, row_bytes);
        }
    }
    if (c->counts_memory) check_memory(c, s);
    apr_session_close(s);
    free(rows);
    return logits;
}

/* All of them, n_slots at a time, the ends of their prompts as rows of steps: as many as a step takes, whosoever they are. NULL where
 * prompts are never rows. */
static float *stepped(const sequence_check *c, int64_t n_slots)
{
    const size_t row_bytes = (size_t)c->model->hparams.vocab_size * sizeof(float);
    apr_session *const s = check_open(c, n_slots, 0);
    float *const logits = apr_session_can_step_prompts(s) ? room(c, CHECK_SEQUENCES * ROWS_OF_EACH) : NULL, *const rows = room(c, n_slots);

    for (int64_t base = 0; base < CHECK_SEQUENCES && logits != NULL; base += n_slots) {
        const int64_t n_here = CHECK_SEQUENCES - base < n_slots ? CHECK_SEQUENCES - base : n_slots;
        int64_t at[CHECK_SEQUENCES];
        for (int64_t j = 0; j < n_here; j++) {
            const int64_t n = check_prompt(c, base + j);
            at[j] = n > CHECK_STEPPED ? n - CHECK_STEPPED : 0;
            apr_session_use(s, j);
            apr_session_reset(s);
            check_evaluate(c, s, j, base + j, 0, at[j], NULL);
        }
        for (int64_t n_done = 0; n_done < n_here;) {
            apr_sequence_token tokens[CHECK_SEQUENCES];
            int64_t n = 0, whose[CHECK_SEQUENCES];
            for (int64_t j = 0; j < n_here; j++) {
                const int64_t n_prompt = check_prompt(c, base + j);
                for (bool more = true; more && n < n_slots && at[j] < n_prompt + CHECK_STEPS; more = at[j] < n_prompt) {
                    whose[n] = at[j] + 1 < n_prompt ? -1 : at[j] + 1 - n_prompt;
                    tokens[n++] = (apr_sequence_token){j, check_id(c->model, base + j, at[j]++)};
                }
            }
            step(c, s, tokens, n, rows);
            for (int64_t r = 0; r < n; r++) {
                if (whose[r] < 0) continue;
                memcpy(row_of(c, logits, base + tokens[r].sequence, whose[r]), (const uint8_t *)rows + (size_t)r * row_bytes, row_bytes);
                n_done += whose[r] == CHECK_STEPS;
            }
        }
    }
    if (c->counts_memory) check_memory(c, s);
    apr_session_close(s);
    free(rows);
    return logits;
}

static void compare(const sequence_check *c, float *a, float *b)
{
    const int64_t width = c->model->hparams.vocab_size;
    for (int64_t i = 0; i < CHECK_SEQUENCES; i++)
        for (int64_t k = 0; k < ROWS_OF_EACH; k++) {
            const float *const x = row_of(c, a, i, k), *const y = row_of(c, b, i, k);
            int64_t at = 0;
            while (at < width && memcmp(x + at, y + at, sizeof *x) == 0) at++;
            if (at < width)
                fail_msg("%s: sequence %lld of %lld tokens is another among others, at step %lld: number %lld is %.9g, alone %.9g", c->what,
                         (long long)i, (long long)check_prompt(c, i), (long long)k, (long long)at, (double)x[at], (double)y[at]);
        }
}

void check_sequences(const sequence_check *c, int64_t stride)
{
    float *const truth = alone(c), *const together = among_others(c, stride);
    compare(c, together, truth);
    free(together);
    free(truth);
    float *const few = stepped(c, 2), *const many = few != NULL ? stepped(c, CHECK_SEQUENCES) : NULL;
    if (few != NULL) compare(c, many, few);
    free(many);
    free(few);
}

double check_distance(const sequence_check *c, const sequence_check *reference)
{
    float *const truth = alone(reference), *const together = among_others(c, 1);
    double most = 0.0, off = 0.0;

    for (int64_t i = 0; i < CHECK_SEQUENCES * ROWS_OF_EACH * c->model->hparams.vocab_size; i++) {
        const double difference = fabs((double)truth[i] - (double)together[i]);
        if (!(difference <= off)) off = difference;
        if (fabs((double)truth[i]) > most) most = fabs((double)truth[i]);
    }
    free(together);
    free(truth);
    return off / most;
}

void check_sharing(const sequence_check *c, bool anywhere)
{
    const size_t n_bytes = (size_t)c->model->hparams.vocab_size * sizeof(float);
    float *const own = room(c, 1), *const shared = room(c, 1);
    apr_session *const s = check_open(c, 3, 0);

    assert_int_equal(apr_session_can_share_prefix(s), anywhere);
    check_evaluate(c, s, 0, 5, 0, 130, own);
    check_evaluate(c, s, 1, 5, 0, 64, NULL);
    const int64_t before = apr_session_free_pages(s);
    assert_int_equal(apr_session_share(s, 1, 2, 64, NULL), APR_OK);
    assert_int_equal(apr_session_free_pages(s), before);
    check_evaluate(c, s, 2, 5, 64, 130, shared);
    assert_memory_equal(shared, own, n_bytes);
    check_evaluate(c, s, 1, 5, 64, 130, shared); /* and the one that it was shared with goes on as if it were alone */
    assert_memory_equal(shared, own, n_bytes);
    assert_int_equal(apr_session_share(s, 0, 2, 65, NULL), APR_E_USAGE);
    assert_int_equal(apr_session_share(s, 0, 2, 128, NULL), anywhere ? APR_OK : APR_E_USAGE);
    apr_session_close(s);
    free(shared);
    free(own);
}

void check_own_text(const sequence_check *c, int64_t window, int64_t n_windows)
{
    static const int64_t at_once[] = {1, 3, 8, 32};
    int32_t *const first = calloc((size_t)(n_windows * window), sizeof *first), *const ids =
                                                                                    calloc((size_t)(n_windows * window), sizeof *ids);
    const apr_own_text how = {.window = window, .n_windows = n_windows, .seed = 7};
    apr_session_options options = apr_session_defaults;
    apr_error err = {0};

    assert_true(first != NULL && ids != NULL);
    options.kv_dtype = c->kv_dtype;
    options.n_threads = 2;
    options.backend = c->backend;
    options.cuda = c->cuda;
    for (size_t i = 0; i < sizeof at_once / sizeof *at_once && (i == 0 || at_once[i - 1] < n_windows); i++) {
        int32_t *const to = i == 0 ? first : ids;
        apr_session *s = NULL;
        if (apr_own_text_open(&s, &how, c->model, &options, at_once[i], &err) != APR_OK) fail_msg("%s: %s", c->what, err.text);
        if (apr_own_text_write(&how, s, to, &err) != APR_OK) fail_msg("%s: %s", c->what, err.text);
        if (c->counts_memory) check_memory(c, s);
        apr_session_close(s);
        for (int64_t k = 0; k < n_windows * window; k++)
            if (to[k] != first[k])
                fail_msg("%s: with %lld windows at once token %lld of window %lld is %d, alone %d", c->what, (long long)at_once[i],
                         (long long)(k % window), (long long)(k / window), to[k], first[k]);
    }
    free(first);
    free(ids);
}

int check_family(const sequence_check *c, const char *architecture, apr_dtype dtype, void (*sizes)(apr_hparams *h))
{
    int n = 0;
    for (uint8_t mixer = 0; mixer <= APR_LAYER_NONE; mixer++)
        for (uint8_t ffn = 0; ffn <= APR_FFN_NONE; ffn++) {
            apr_hparams h = program_model_sizes(architecture);
            program_model m;
            char what[96];
            h.num_layers = 1;
            h.layer_kinds = &mixer;
            h.ffn_kinds = &ffn;
            if (sizes != NULL) sizes(&h);
            if (ffn != APR_FFN_EXPERTS) h.num_experts = 0;
            if (program_model_open(&m, &h, dtype, NULL) != APR_OK) continue;
            snprintf(what, sizeof what, "%s (%s), a layer of kind %d, feed-forward %d", architecture, apr_dtypes[dtype].name, mixer, ffn);
            sequence_check own = *c;
            own.model = &m.model;
            own.what = what;
            if (own.of_family != NULL) own.of_family(&own);
            else check_sequences(&own, (mixer + ffn) % 2 == 0 ? 1 : 7); /* in one order or another */
            program_model_close(&m);
            n++;
        }
    return n;
}
