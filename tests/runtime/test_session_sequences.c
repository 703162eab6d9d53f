/* runtime/session/session.h: several sequences in one session. Each has the numbers that it has alone, to the last bit, whoever else is
 * there, in whatever pages; what two begin with alike is computed once; and the memory is what the plan says. */
#include "runtime/program/ability.h"
#include "runtime/session/session_parts.h"
#include "tests/support/golden_model.h"
#include "tests/support/program_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Sequences of different lengths: within a page, over its end, longer than a window and a chunk. More than one product takes at once. */
enum { N_SEQUENCES = 19, N_STEPS = 4, N_CTX = 144, PIECE = APR_PAGE_CELLS, VOCAB = 96 };

static int32_t id_of(int64_t sequence, int64_t position)
{
    return (int32_t)((sequence * 31 + position * 37 + position * position) % VOCAB);
}
static int64_t prompt_of(int64_t sequence) { return 1 + (sequence % 4 == 0 ? sequence * 43 % 130 : sequence * 11 % 24); } /* 1 to 127 */

static apr_session *open_session(const apr_model *model, const apr_backend *backend, int64_t n_sequences, int64_t kv_cells)
{
    apr_session_options options = apr_session_defaults;
    apr_error err = {0};
    apr_session *s;
    options.n_ctx = N_CTX;
    options.n_batch = PIECE;
    options.n_logits = 4;
    options.n_threads = 2;
    options.n_sequences = n_sequences;
    options.kv_cells = kv_cells;
    options.backend = backend;
    if (apr_session_open(&s, model, &options, &err) != APR_OK) fail_msg("%s: %s", model->hparams.architecture, err.text);
    return s;
}

/* Positions [first, end) of a sequence, in pieces that are counted from its beginning. */
static void evaluate(apr_session *s, int64_t slot, int64_t sequence, int64_t first, int64_t end, float *logits)
{
    int32_t ids[PIECE];
    apr_error err = {0};

    apr_session_use(s, slot);
    for (int64_t p = first; p < end;) {
        const int64_t n = end - p < PIECE - p % PIECE ? end - p : PIECE - p % PIECE;
        const apr_eval_output out = {.logits = p + n == end ? logits : NULL};
        for (int64_t i = 0; i < n; i++) ids[i] = id_of(sequence, p + i);
        if (apr_session_eval(s, ids, (size_t)n, &out, &err) != APR_OK) fail_msg("%s", err.text);
        p += n;
    }
}

/* logits[N_SEQUENCES, 1 + N_STEPS, VOCAB], of each sequence alone in a session of its own size. */
static float *alone(const apr_model *model, const apr_backend *backend)
{
    float *const logits = calloc((size_t)N_SEQUENCES * (1 + N_STEPS) * VOCAB, sizeof *logits);
    apr_session *const s = open_session(model, backend, 1, 0);

    assert_non_null(logits);
    for (int64_t i = 0; i < N_SEQUENCES; i++) {
        float *const own = logits + i * (1 + N_STEPS) * VOCAB;
        apr_session_reset(s);
        evaluate(s, 0, i, 0, prompt_of(i), own);
        for (int64_t k = 0; k < N_STEPS; k++) evaluate(s, 0, i, prompt_of(i) + k, prompt_of(i) + k + 1, own + (k + 1) * VOCAB);
    }
    apr_session_close(s);
    return logits;
}

/* All of them, joining in the order of `stride` and one by one from step to step; as many as are there go on together. */
static float *among_others(const apr_model *model, const apr_backend *backend, int64_t stride)
{
    float *const logits = calloc((size_t)N_SEQUENCES * (1 + N_STEPS) * VOCAB, sizeof *logits), *const rows = calloc(N_SEQUENCES * VOCAB, 4);
    apr_session *const s = open_session(model, backend, N_SEQUENCES, 0);
    int64_t n_done[N_SEQUENCES] = {0};
    apr_error err = {0};

    assert_true(logits != NULL && rows != NULL);
    for (int64_t turn = 0; turn < N_SEQUENCES + N_STEPS; turn++) {
        apr_sequence_token tokens[N_SEQUENCES];
        int64_t n = 0;
        for (int64_t j = turn < N_SEQUENCES ? turn + 1 : N_SEQUENCES; j-- > 0;) {
            const int64_t i = j * stride % N_SEQUENCES;
            if (j == turn) evaluate(s, i, i, 0, prompt_of(i), logits + i * (1 + N_STEPS) * VOCAB);
            else if (n_done[i] < N_STEPS) tokens[n++] = (apr_sequence_token){i, id_of(i, prompt_of(i) + n_done[i])};
        }
        const apr_eval_output out = {.logits = rows};
        if (apr_session_step(s, tokens, n, &out, &err) != APR_OK) fail_msg("%s", err.text);
        for (int64_t r = 0; r < n; r++) {
            const int64_t i = tokens[r].sequence;
            memcpy(logits + (i * (1 + N_STEPS) + ++n_done[i]) * VOCAB, rows + r * VOCAB, VOCAB * sizeof *rows);
        }
    }
    const apr_session_memory memory = apr_session_check_memory(s);
    if (!memory.as_planned && memory.measured != UINT64_MAX) fail_msg("%s: not as planned", model->hparams.architecture);
    apr_session_close(s);
    free(rows);
    return logits;
}

static void compare(const float *a, const float *b, const char *what)
{
    for (int64_t i = 0; i < N_SEQUENCES; i++)
        for (int64_t k = 0; k <= N_STEPS; k++) {
            const size_t at = (size_t)(i * (1 + N_STEPS) + k) * VOCAB;
            if (memcmp(a + at, b + at, VOCAB * sizeof *a) != 0)
                fail_msg("%s: sequence %lld of %lld tokens is another among others, at step %lld", what, (long long)i,
                         (long long)prompt_of(i), (long long)k);
        }
}

static void check_model(program_model *m, int64_t stride, const char *what)
{
    float *const truth = alone(&m->model, NULL), *const together = among_others(&m->model, NULL, stride);
    compare(together, truth, what);
    free(together);
    free(truth);
}

/* --- each way to mix tokens, and each feed-forward, of each family --- */

static int check_layers(const char *architecture, apr_dtype dtype)
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
            if (ffn != APR_FFN_EXPERTS) h.num_experts = 0;
            if (program_model_open(&m, &h, dtype, NULL) != APR_OK) continue;
            snprintf(what, sizeof what, "%s (%s), a layer of kind %d, feed-forward %d", architecture, apr_dtypes[dtype].name, mixer, ffn);
            check_model(&m, (mixer + ffn) % 2 == 0 ? 1 : 7, what); /* in one order or another */
            program_model_close(&m);
            n++;
        }
    return n;
}

static void with_families(apr_dtype dtype, size_t first, size_t step)
{
    int n_families = 0;
    for (size_t i = first; i < apr_n_families; i += step) {
        if (apr_family_ability(apr_families[i], &apr_ref_backend) != APR_ABLE_RUN) continue;
        n_families += check_layers(apr_families[i]->types[0].name, dtype) > 0;
    }
    assert_true(n_families >= (int)(30 / step));
}

static void a_sequence_of_any_family_is_the_same_alone_and_among_others(void **state)
{
    (void)state;
    with_families(APR_F32, 0, 1);
}

static void and_with_weights_whose_products_round(void **state)
{
    (void)state;
    with_families(APR_Q8_0, 0, 1);
}

static void and_with_halves_of_which_few_are_multiplied_at_once(void **state)
{
    (void)state;
    with_families(APR_BF16, 0, 3);
}

/* --- pages and what is shared --- */

static int open_family(program_model *m, const char *architecture, uint8_t mixer)
{
    static const uint8_t ffn = APR_FFN_DENSE;
    static uint8_t kind;
    apr_hparams h = program_model_sizes(architecture);
    kind = mixer;
    h.num_layers = 1;
    h.layer_kinds = &kind; /* the model keeps both */
    h.ffn_kinds = &ffn;
    h.num_experts = 0;
    return program_model_open(m, &h, APR_F32, NULL) == APR_OK;
}

static void what_sequences_begin_with_alike_is_computed_once(void **state)
{
    static const struct {
        const char *architecture;
        uint8_t mixer;
        bool anywhere;
    } cases[] = {{"llama", APR_LAYER_FULL, true}, {"qwen3_5", APR_LAYER_LINEAR, false}, {"gemma3_text", APR_LAYER_SLIDING, false}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        program_model m;
        float own[VOCAB], shared[VOCAB];
        if (!open_family(&m, cases[i].architecture, cases[i].mixer)) fail_msg("%s cannot be made", cases[i].architecture);
        apr_session *const s = open_session(&m.model, NULL, 3, 0);
        assert_int_equal(apr_session_shares_anywhere(s), cases[i].anywhere);
        evaluate(s, 0, 5, 0, 130, own);
        evaluate(s, 1, 5, 0, 64, NULL);
        const int64_t before = apr_session_free_pages(s);
        assert_int_equal(apr_session_share(s, 1, 2, 64, NULL), APR_OK);
        assert_int_equal(apr_session_free_pages(s), before);
        evaluate(s, 2, 5, 64, 130, shared);
        assert_memory_equal(shared, own, sizeof own);
        evaluate(s, 1, 5, 64, 130, shared); /* and the one that it was shared with goes on as if it were alone */
        assert_memory_equal(shared, own, sizeof own);
        assert_int_equal(apr_session_share(s, 0, 2, 65, NULL), APR_E_USAGE);
        assert_int_equal(apr_session_share(s, 0, 2, 128, NULL), cases[i].anywhere ? APR_OK : APR_E_USAGE);
        apr_session_close(s);
        program_model_close(&m);
    }
}

static void sequences_share_a_cache_that_is_smaller_than_all_contexts(void **state)
{
    program_model m;
    apr_error err = {0};
    int32_t ids[PIECE] = {0};
    (void)state;
    assert_true(open_family(&m, "llama", APR_LAYER_FULL));
    apr_session *const s = open_session(&m.model, NULL, 4, 300);
    assert_int_equal(apr_session_plan(s)->n_pages, 5);
    evaluate(s, 0, 0, 0, 128, NULL);
    evaluate(s, 1, 1, 0, 64, NULL);
    evaluate(s, 2, 2, 0, 100, NULL);
    assert_int_equal(apr_session_free_pages(s), 0);
    apr_session_use(s, 3);
    assert_int_equal(apr_session_eval(s, ids, 1, NULL, &err), APR_E_NO);
    assert_non_null(strstr(err.text, "the cache is full"));
    const apr_sequence_token over[] = {{1, 3}};
    assert_int_equal(apr_session_step(s, over, 1, NULL, NULL), APR_E_NO);
    apr_session_use(s, 0);
    apr_session_reset(s);
    assert_int_equal(apr_session_free_pages(s), 2);
    assert_int_equal(apr_session_step(s, over, 1, NULL, NULL), APR_OK);
    apr_session_close(s);
    program_model_close(&m);
}

static void a_step_of_what_is_not_there_is_refused(void **state)
{
    static const apr_sequence_token none[] = {{3, 1}}, foreign[] = {{1, VOCAB}}, empty[] = {{2, 1}}, twice[] = {{1, 1}, {1, 2}};
    program_model m;
    (void)state;
    assert_true(open_family(&m, "llama", APR_LAYER_FULL));
    apr_session *const s = open_session(&m.model, NULL, 3, 0), *const one = open_session(&m.model, NULL, 1, 0);
    evaluate(s, 1, 1, 0, N_CTX - 1, NULL);
    assert_int_equal(apr_session_step(s, none, 1, NULL, NULL), APR_E_USAGE);
    assert_int_equal(apr_session_step(s, foreign, 1, NULL, NULL), APR_E_USAGE);
    assert_int_equal(apr_session_step(s, empty, 1, NULL, NULL), APR_E_USAGE);
    assert_int_equal(apr_session_step(s, twice, 2, NULL, NULL), APR_E_USAGE);
    assert_int_equal(apr_session_step(one, twice, 1, NULL, NULL), APR_E_USAGE);
    assert_int_equal(apr_session_step(s, twice, 1, NULL, NULL), APR_OK);
    assert_int_equal(apr_session_step(s, twice, 1, NULL, NULL), APR_E_NO); /* the context is full */
    apr_session_close(s);
    apr_session_close(one);
    program_model_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sequence_of_any_family_is_the_same_alone_and_among_others),
        cmocka_unit_test(and_with_weights_whose_products_round),
        cmocka_unit_test(and_with_halves_of_which_few_are_multiplied_at_once),
        cmocka_unit_test(what_sequences_begin_with_alike_is_computed_once),
        cmocka_unit_test(sequences_share_a_cache_that_is_smaller_than_all_contexts),
        cmocka_unit_test(a_step_of_what_is_not_there_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
