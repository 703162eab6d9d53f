/* runtime/check/backends.h: a backend that computes what the reference computes passes; one that is wrong in one operation is caught at it.
 */
#include "runtime/check/backends.h"

#include "tests/support/program_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_IDS = 80 };

/* A text on a backend. */
typedef struct opened {
    apr_model model;
    apr_session *session;
    int32_t ids[N_IDS];
} opened;

static void open_on(opened *o, const apr_backend *backend)
{
    apr_session_options options = apr_session_defaults;
    apr_error err = {0};

    for (int i = 0; i < N_IDS; i++) o->ids[i] = (i * 37 + i * i * 11 + 5) % 2000;
    options.n_ctx = 96;
    options.n_batch = 32;
    options.n_logits = 32;
    options.kv_dtype = APR_F32;
    options.backend = backend;
    if (apr_model_open(&o->model, "tests/data/tiny-qwen2", &err) != APR_OK) fail_msg("%s", err.text);
    if (apr_session_open(&o->session, &o->model, &options, &err) != APR_OK) fail_msg("%s", err.text);
}

static void close_opened(opened *o)
{
    apr_session_close(o->session);
    apr_model_close(&o->model);
}

/* Every operation at the beginning and after 40 tokens. */
static void compare(apr_parity_result *result, const apr_backend *backend)
{
    static const int64_t positions[] = {0, 40};
    apr_parity_options options = {.positions = positions, .n_positions = 2, .n_batch = 16, .layer = APR_PARITY_ALL_LAYERS};
    apr_error err = {0};
    opened o;

    open_on(&o, backend);
    if (apr_backends_parity(o.session, o.ids, N_IDS, &options, result, &err) != APR_OK) fail_msg("%s", err.text);
    close_opened(&o);
}

/* One number of a product is a little too large. */
static void linear_a_little_off(const apr_op_args *args)
{
    apr_ref_backend.ops[APR_OP_LINEAR](args);
    args->linear.out[3] *= 1.01f;
}

static void linear_with_nan(const apr_op_args *args)
{
    apr_ref_backend.ops[APR_OP_LINEAR](args);
    args->linear.out[2] = NAN;
}

static void the_host_does_what_the_reference_does(void **state)
{
    (void)state;
    apr_parity_result result;

    compare(&result, NULL);
    assert_true(!result.failed && result.n_passed == result.n_checked && result.n_checked > 80);
    assert_true(result.n_positions == 2 && result.last_position == 56); /* 40 and a batch of 16, then one alone */
    apr_parity_result_close(&result);
}

static void a_wrong_operation_is_named_with_its_tensor_and_its_bound(void **state)
{
    (void)state;
    apr_backend wrong = apr_ref_backend;
    apr_parity_result result;
    char sentence[512];

    wrong.ops[APR_OP_LINEAR] = linear_a_little_off;
    compare(&result, &wrong);
    assert_true(result.failed && result.first.kind == APR_OP_LINEAR && result.first.layer == 0 && result.first.position == 0);
    assert_true(result.first.difference.largest_at == 3);
    apr_parity_sentence(sentence, sizeof sentence, &result);
    assert_int_equal(strncmp(sentence, "layer 0, linear 'model.layers.0.self_attn.", 42), 0);
    assert_non_null(strstr(sentence, "at position 0 (16 tokens): "));
    assert_non_null(strstr(sentence, " is allowed ("));
    apr_parity_result_close(&result);

    wrong.ops[APR_OP_LINEAR] = linear_with_nan;
    compare(&result, &wrong);
    assert_true(result.failed && !result.first.difference.finite);
    assert_non_null(strstr(apr_parity_sentence(sentence, sizeof sentence, &result), "number 2 is not finite"));
    assert_int_equal(strlen(apr_parity_sentence(sentence, 20, &result)), 19); /* cut off, never over the end */
    apr_parity_result_close(&result);
}

/* Do the logits of a text? */
static bool agree_on_text(const apr_backend *backend)
{
    apr_divergence d;
    apr_error err = {0};
    opened o;

    open_on(&o, backend);
    if (apr_backends_on_text(o.session, o.ids, N_IDS, NULL, NULL, &d, &err) != APR_OK) fail_msg("%s", err.text);
    assert_true(d.n_rows == N_IDS && d.window == 96); /* as much as the context holds */
    const bool agree = apr_backends_agree(&d);
    apr_divergence_close(&d);
    close_opened(&o);
    return agree;
}

static void texts_tell_a_wrong_backend_from_another_order_of_sums(void **state)
{
    (void)state;
    apr_backend wrong = apr_ref_backend;

    assert_true(agree_on_text(NULL));
    wrong.ops[APR_OP_LINEAR] = linear_with_nan;
    assert_false(agree_on_text(&wrong));
}

static void backends_agree_within_their_bounds_alone(void **state)
{
    (void)state;
    static const struct {
        double mean, same_top;
        bool agree;
    } cases[] = {{0, 1, true}, {1e-4, 0.995, true}, {1.01e-4, 1, false}, {0, 0.9949, false}, {NAN, 1, false}, {0, NAN, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(apr_backends_agree(&(apr_divergence){.mean = cases[i].mean, .same_top = cases[i].same_top}), cases[i].agree);
}

/* --- chosen positions --- */

/* A layer of a family, its kind as stated, with a dense feed-forward. */
static void open_layer(program_model *m, const char *architecture, const uint8_t *mixer)
{
    static const uint8_t ffn = APR_FFN_DENSE;
    apr_hparams h = program_model_sizes(architecture);
    apr_error err = {0};

    h.num_layers = 1;
    h.layer_kinds = mixer;
    h.ffn_kinds = &ffn;
    h.num_experts = 0;
    if (program_model_open(m, &h, APR_F32, &err) != APR_OK) fail_msg("%s: %s", architecture, err.text);
}

/* The host, but the first chosen position of each token is the one before it, where there is one. */
static void index_one_off(const apr_op_args *args)
{
    apr_host_backend.ops[APR_OP_INDEX](args);
    for (int64_t t = 0; t < args->index.n_tokens; t++) {
        float *const first = args->index.out + t * apr_index_row(args->index.n_chosen);
        if (*first > 0.0f) --*first;
    }
}

/* How far the last chosen score is above the next one is not compared: it differs by rounding. The positions are. */
static void chosen_positions_are_compared_without_their_gap(void **state)
{
    static const uint8_t mixer = APR_LAYER_FULL;
    static const int64_t positions[] = {0, 40};
    apr_backend wrong = apr_host_backend;
    program_model m;
    int32_t ids[N_IDS];
    (void)state;

    open_layer(&m, "deepseek_v32", &mixer);
    for (int i = 0; i < N_IDS; i++) ids[i] = (int32_t)((i * 37 + i * i * 11 + 5) % m.model.hparams.vocab_size);
    wrong.ops[APR_OP_INDEX] = index_one_off;
    for (int is_wrong = 0; is_wrong < 2; is_wrong++) {
        apr_parity_options options = {.positions = positions, .n_positions = 2, .n_batch = 16, .layer = APR_PARITY_ALL_LAYERS};
        apr_session_options sizes = apr_session_defaults;
        apr_parity_result result;
        apr_error err = {0};
        sizes.n_ctx = 96;
        sizes.n_batch = sizes.n_logits = 32;
        sizes.kv_dtype = APR_F32;
        sizes.backend = is_wrong ? &wrong : NULL;
        apr_session *const session = must_open_session(&m.model, &sizes);
        if (apr_backends_parity(session, ids, N_IDS, &options, &result, &err) != APR_OK) fail_msg("%s", err.text);
        assert_true(result.failed == (is_wrong != 0) && (!is_wrong || result.first.kind == APR_OP_INDEX));
        apr_parity_result_close(&result);
        apr_session_close(session);
    }
    program_model_close(&m);
}

/* --- a cache that is filled --- */

/* FILLED_FROM tokens are evaluated first, then cells are filled up to FILLED_TO, then APR_PARITY_LAST_EVALUATED tokens are evaluated. */
enum { DISTANT = 400, MOST_EVALUATED = 192, FILLED_FROM = 64, FILLED_TO = DISTANT - 128, FILLED_CTX = 448, SHIFTED = 64 };
enum { N_ALL = DISTANT + 17, N_FEW = FILLED_FROM + APR_PARITY_LAST_EVALUATED + 17 };

/* The host, which counts the tokens that it is given. */
static int64_t n_embedded;

static void count_tokens(const apr_op_args *args)
{
    n_embedded += args->embed.n_tokens;
    apr_host_backend.ops[APR_OP_EMBED](args);
}

/* The host, but after FILLED_TO two ranges of the keys are in each other's place. */
static void attend_with_ranges_swapped(const apr_op_args *args)
{
    const apr_cache *const keys = &args->attend.keys;
    const size_t cell = (size_t)(keys->row_bytes * args->attend.n_kv_heads), range = SHIFTED * cell;
    apr_op_args own = *args;

    if (args->attend.position < FILLED_TO) {
        apr_host_backend.ops[APR_OP_ATTEND](args);
        return;
    }
    uint8_t *const swapped = malloc((size_t)keys->n_cells * cell);
    assert_non_null(swapped);
    memcpy(swapped, keys->data, (size_t)keys->n_cells * cell);
    memcpy(swapped + 2 * range, keys->data + 3 * range, range);
    memcpy(swapped + 3 * range, keys->data + 2 * range, range);
    own.attend.keys.data = swapped;
    apr_host_backend.ops[APR_OP_ATTEND](&own);
    free(swapped);
}

/* The first and a distant position of a model on a backend. Answers how many tokens it was given. */
static int64_t compare_distant(const apr_model *model, const apr_backend *backend, int64_t most_evaluated, apr_parity_result *result)
{
    static const int64_t positions[] = {0, DISTANT};
    apr_parity_options options = {
        .positions = positions, .n_positions = 2, .n_batch = 16, .layer = APR_PARITY_ALL_LAYERS, .most_evaluated = most_evaluated};
    apr_session_options sizes = apr_session_defaults;
    apr_backend counting = *backend;
    apr_error err = {0};
    int32_t ids[N_IDS];

    for (int i = 0; i < N_IDS; i++) ids[i] = (int32_t)((i * 37 + i * i * 11 + 5) % model->hparams.vocab_size);
    sizes.n_ctx = FILLED_CTX;
    sizes.n_batch = 32;
    sizes.n_logits = 32;
    sizes.kv_dtype = APR_F32;
    counting.ops[APR_OP_EMBED] = count_tokens;
    sizes.backend = &counting;
    apr_session *const session = must_open_session(model, &sizes);
    n_embedded = 0;
    if (apr_backends_parity(session, ids, N_IDS, &options, result, &err) != APR_OK) fail_msg("%s", err.text);
    apr_session_close(session);
    assert_true(result->n_positions == 2 && result->last_position == DISTANT + 16);
    return n_embedded;
}

static void a_distant_position_is_compared_on_cells_that_are_copies(void **state)
{
    static const int64_t enough = DISTANT + APR_PARITY_LAST_EVALUATED;
    apr_parity_result all, few, same;
    apr_model model;
    apr_error err = {0};
    (void)state;

    if (apr_model_open(&model, "tests/data/tiny-qwen2", &err) != APR_OK) fail_msg("%s", err.text);
    assert_int_equal(compare_distant(&model, &apr_host_backend, 0, &all), N_ALL);
    assert_int_equal(compare_distant(&model, &apr_host_backend, MOST_EVALUATED, &few), N_FEW);
    assert_true(!all.failed && !few.failed && few.n_checked == all.n_checked && few.n_passed == all.n_checked);
    assert_int_equal(compare_distant(&model, &apr_host_backend, enough, &same), N_ALL); /* nothing is left to fill */
    assert_true(all.n_evaluated == DISTANT && all.n_filled == 0 && same.n_evaluated == DISTANT && same.n_filled == 0);
    assert_true(few.n_evaluated == MOST_EVALUATED && few.n_filled == DISTANT - MOST_EVALUATED);
    assert_memory_equal(same.worst_relative, all.worst_relative, (size_t)all.n_layers * sizeof *all.worst_relative);
    assert_memory_not_equal(few.worst_relative, all.worst_relative, (size_t)all.n_layers * sizeof *all.worst_relative);
    apr_parity_result_close(&all);
    apr_parity_result_close(&few);
    apr_parity_result_close(&same);
    apr_model_close(&model);
}

static void an_operation_that_reads_other_cells_is_found_among_copies(void **state)
{
    static const int64_t most[] = {0, MOST_EVALUATED};
    apr_backend wrong = apr_host_backend;
    apr_model model;
    apr_error err = {0};
    (void)state;

    wrong.ops[APR_OP_ATTEND] = attend_with_ranges_swapped;
    if (apr_model_open(&model, "tests/data/tiny-qwen2", &err) != APR_OK) fail_msg("%s", err.text);
    for (size_t i = 0; i < sizeof most / sizeof *most; i++) {
        apr_parity_result result;
        compare_distant(&model, &wrong, most[i], &result);
        assert_true(result.failed && result.first.kind == APR_OP_ATTEND && result.first.layer == 0);
        assert_int_equal(result.first.position, DISTANT);
        apr_parity_result_close(&result);
    }
    apr_model_close(&model);
}

/* Windows are filled with cells that they still have. Recurrent states, and scores that choose positions, need every token. */
static void what_a_model_keeps_decides_whether_cells_are_copies(void **state)
{
    static const struct {
        const char *architecture;
        uint8_t mixer;
        int64_t n_evaluated;
    } cases[] = {{"llama", APR_LAYER_FULL, N_FEW},
                 {"gemma3_text", APR_LAYER_SLIDING, N_FEW},
                 {"qwen3_5", APR_LAYER_LINEAR, N_ALL},
                 {"deepseek_v32", APR_LAYER_FULL, N_ALL}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_parity_result result;
        program_model m;
        open_layer(&m, cases[i].architecture, &cases[i].mixer);
        assert_int_equal(compare_distant(&m.model, &apr_host_backend, MOST_EVALUATED, &result), cases[i].n_evaluated);
        char sentence[512];
        if (result.failed) fail_msg("%s: %s", cases[i].architecture, apr_parity_sentence(sentence, sizeof sentence, &result));
        apr_parity_result_close(&result);
        program_model_close(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_host_does_what_the_reference_does),
        cmocka_unit_test(a_wrong_operation_is_named_with_its_tensor_and_its_bound),
        cmocka_unit_test(texts_tell_a_wrong_backend_from_another_order_of_sums),
        cmocka_unit_test(backends_agree_within_their_bounds_alone),
        cmocka_unit_test(chosen_positions_are_compared_without_their_gap),
        cmocka_unit_test(a_distant_position_is_compared_on_cells_that_are_copies),
        cmocka_unit_test(an_operation_that_reads_other_cells_is_found_among_copies),
        cmocka_unit_test(what_a_model_keeps_decides_whether_cells_are_copies),
    };
    return cmocka_run_group_tests_name("backends", tests, NULL, NULL);
}
