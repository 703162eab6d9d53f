/* runtime/session/session.h on a CUDA device: the bundled model, in many types, does what it does on the host. */
#include "formats/number/half.h"
#include "kernels/cuda_loader.h"
#include "runtime/session/generate.h"
#include "runtime/session/session.h"
#include "tests/support/cache_bounds.h"
#include "tests/support/golden_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_TOKENS = 64 };

static const char tiny_qwen2[] = "tests/data/tiny-qwen2";
static const apr_cuda_api *cuda;

static apr_session *open_session(const apr_model *model, const apr_session_options *options)
{
    apr_error err = {0};
    apr_session *session;
    if (apr_session_open(&session, model, options, &err) != APR_OK) fail_msg("%s", err.text);
    return session;
}

static void read_ids(const golden *g, int32_t *ids) { assert_true(golden_text(g, ids, N_TOKENS)); }

static void open_golden_of(golden *g, const char *dir)
{
    apr_error err = {0};
    if (golden_open(g, dir, &err) != APR_OK) fail_msg("%s", err.text);
}

static void open_golden(golden *g) { open_golden_of(g, tiny_qwen2); }

/* Logits [N_TOKENS, vocab] and hidden states [n_taps, N_TOKENS, hidden] of the golden text, malloc'ed. */
static void evaluate(const golden *g, const apr_model *model, const apr_session_options *options, float **logits, float **hidden)
{
    apr_session *const s = open_session(model, options);
    const apr_program *const p = apr_session_program(s);
    int32_t ids[N_TOKENS];
    apr_error err = {0};

    *logits = malloc(N_TOKENS * (size_t)p->vocab_size * sizeof **logits);
    *hidden = malloc(p->n_taps * N_TOKENS * (size_t)p->hidden_size * sizeof **hidden);
    const apr_eval_output out = {.all_logits = true, .logits = *logits, .hidden = *hidden};
    read_ids(g, ids);
    if (apr_session_eval(s, ids, N_TOKENS, &out, &err) != APR_OK) fail_msg("%s", err.text);
    apr_session_close(s);
}

/* What products cost: float32 sums in another order; inputs rounded to FP16, once for each product, where there are many tokens. */
static double roundoff_of_products(int64_t n_batch) { return n_batch <= APR_CUDA_CAREFUL_TOKENS ? 1e-5 : 2.0 * cache_roundoff(APR_F16); }

/* Bounds from the precision of the cache's type, as in cache_bounds.h: test_cache shows that broken caches are beyond them. */
static void check_logits(const char *dir)
{
    static const int64_t batches[] = {1, 7, 40, 64};
    golden g;

    open_golden_of(&g, dir);
    const size_t n = N_TOKENS * (size_t)g.model.hparams.vocab_size;
    for (size_t i = 0; i < APR_KV_DTYPES * sizeof batches / sizeof *batches; i++) {
        apr_session_options options = apr_session_defaults;
        float *logits, *hidden;
        options.cuda = cuda;
        options.n_batch = batches[i / APR_KV_DTYPES];
        options.kv_dtype = apr_kv_dtypes[i % APR_KV_DTYPES];
        if (apr_kv_row_bytes(options.kv_dtype, g.model.hparams.head_dim) < 0) continue; /* heads of 16 are not whole blocks of 32 */
        evaluate(&g, &g.model, &options, &logits, &hidden);
        const double off = relative_distance(logits, golden_floats(&g, "logits", (int64_t)n), n);
        const double of_cache = cache_roundoff(options.kv_dtype), bound = 1.5 * hypot(of_cache, roundoff_of_products(options.n_batch));
        print_message("%s, batches of %2lld, cache %-4s: logits move by %.2e, bound %.2e\n", dir, (long long)options.n_batch,
                      apr_dtypes[options.kv_dtype].name, off, bound);
        assert_true(off <= bound);
        if (of_cache > 1e-3) assert_true(off >= 0.5 * of_cache);
        free(logits);
        free(hidden);
    }
    golden_close(&g);
}

static void logits_are_those_of_transformers_as_far_as_the_cache_keeps_them(void **state)
{
    (void)state;
    check_logits(tiny_qwen2);
    check_logits("tests/data/tiny-llama");
}

static void hidden_states_are_those_of_transformers(void **state)
{
    (void)state;
    static const struct {
        int64_t n_batch;
        bool exact;
        double least, most; /* of numbers that reach to 30 */
    } cases[] = {{1, false, 0, 2e-3}, {7, false, 0, 2e-3}, {40, false, 0, 2e-3}, {64, false, 0, 2e-3}, {64, true, 0, 2e-3}};
    golden g;

    open_golden(&g);
    const size_t n = (size_t)(g.model.hparams.num_layers + 1) * N_TOKENS * (size_t)g.model.hparams.hidden_size;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_session_options options = apr_session_defaults;
        float *logits, *hidden;
        options.cuda = cuda;
        options.n_batch = cases[i].n_batch;
        options.exact = cases[i].exact;
        options.kv_dtype = APR_F32;
        evaluate(&g, &g.model, &options, &logits, &hidden);
        const double off = largest_difference(hidden, golden_floats(&g, "hidden", (int64_t)n), n);
        print_message("batches of %2lld%s: largest difference of hidden states %.2e\n", (long long)cases[i].n_batch,
                      cases[i].exact ? ", exact products" : "", off);
        assert_true(off >= cases[i].least && off < cases[i].most);
        free(logits);
        free(hidden);
    }
    golden_close(&g);
}

/* --- types --- */

/* The model with every matrix of whole blocks as dtype. Close with free_requantized. */
static apr_model requantized(const apr_model *model, apr_dtype dtype)
{
    apr_model made = *model;
    apr_error err = {0};

    made.tensors = calloc(model->n_tensors, sizeof *made.tensors);
    made.index = NULL;
    made.arena = (apr_arena){0};
    for (size_t i = 0; i < model->n_tensors; i++) {
        apr_tensor *const t = &made.tensors[i];
        *t = model->tensors[i];
        const int64_t n_rows = apr_tensor_rows(t), n_columns = apr_tensor_columns(t), row_bytes = apr_row_bytes(dtype, n_columns);
        if (t->rank != 2 || row_bytes < 0) continue;
        float *const values = malloc((size_t)(n_rows * n_columns) * sizeof *values);
        uint8_t *const bytes = malloc((size_t)(n_rows * row_bytes));
        apr_decode_rows(t, 0, n_rows, values);
        for (int64_t r = 0; r < n_rows; r++) apr_ref_codecs[dtype].encode(values + r * n_columns, bytes + r * row_bytes, n_columns);
        free(values);
        t->dtype = dtype;
        t->data = bytes;
        t->n_bytes = (uint64_t)(n_rows * row_bytes);
    }
    if (apr_model_index_names(&made, &err) != APR_OK) fail_msg("%s", err.text);
    return made;
}

static void free_requantized(const apr_model *model, apr_model *made)
{
    for (size_t i = 0; i < model->n_tensors; i++)
        if (made->tensors[i].data != model->tensors[i].data) free((void *)(uintptr_t)made->tensors[i].data);
    free(made->tensors);
    apr_arena_close(&made->arena);
}

/* Mean KL divergence of b from a, and how many rows have the same largest number. */
static double divergence(const float *a, const float *b, size_t n_rows, size_t width, size_t *n_same)
{
    double total = 0.0;
    *n_same = 0;
    for (size_t r = 0; r < n_rows; r++, a += width, b += width) {
        double max_a = -INFINITY, max_b = -INFINITY, sum_a = 0.0, sum_b = 0.0, kl = 0.0;
        size_t top_a = 0, top_b = 0;
        for (size_t i = 0; i < width; i++) {
            if ((double)a[i] > max_a) max_a = (double)a[top_a = i];
            if ((double)b[i] > max_b) max_b = (double)b[top_b = i];
        }
        for (size_t i = 0; i < width; i++) {
            sum_a += exp((double)a[i] - max_a);
            sum_b += exp((double)b[i] - max_b);
        }
        for (size_t i = 0; i < width; i++) {
            const double log_a = (double)a[i] - max_a - log(sum_a), log_b = (double)b[i] - max_b - log(sum_b);
            kl += exp(log_a) * (log_a - log_b);
        }
        total += kl;
        *n_same += top_a == top_b;
    }
    return total / (double)n_rows;
}

static void weights_of_every_type_agree_with_the_host(void **state)
{
    (void)state;
    golden g;
    int n_types = 0;

    open_golden(&g);
    const size_t width = (size_t)g.model.hparams.vocab_size;
    for (int dtype = 0; dtype < APR_DTYPE_COUNT; dtype++) {
        const bool is_weights = apr_dtype_is_float((apr_dtype)dtype) || apr_dtype_is_quantized((apr_dtype)dtype);
        if (!is_weights || !apr_can_encode((apr_dtype)dtype) || !apr_can_decode((apr_dtype)dtype)) continue;
        if (dtype == APR_APR_Q4 || dtype == APR_APR_Q8 || apr_row_bytes((apr_dtype)dtype, g.model.hparams.hidden_size) < 0) continue;
        n_types++;
        apr_model model = requantized(&g.model, (apr_dtype)dtype);
        for (int64_t n_batch = 1; n_batch <= N_TOKENS; n_batch *= N_TOKENS) { /* packed weights; tiles through cuBLAS */
            apr_session_options options = apr_session_defaults;
            float *logits[2], *hidden[2];
            size_t n_same;
            options.n_batch = n_batch;
            evaluate(&g, &model, &options, &logits[0], &hidden[0]);
            options.cuda = cuda;
            evaluate(&g, &model, &options, &logits[1], &hidden[1]);
            const double kl = divergence(logits[0], logits[1], N_TOKENS, width, &n_same);
            print_message("%-8s batches of %2lld: mean KL divergence %.1e, same top token %zu of %d\n", apr_dtypes[dtype].name,
                          (long long)n_batch, kl, n_same, N_TOKENS);
            assert_true(kl < 1e-4);
            assert_true(n_same >= N_TOKENS - 1);
            for (int i = 0; i < 2; i++) {
                free(logits[i]);
                free(hidden[i]);
            }
        }
        free_requantized(&g.model, &model);
    }
    print_message("%d types of weights\n", n_types);
    assert_true(n_types >= 13);
    golden_close(&g);
}

/* FP16 copies where they fit; where not, every product decodes tile by tile. */
static void without_kernels_for_packed_weights_copies_or_tiles_do(void **state)
{
    (void)state;
    golden g;
    apr_session_options options = apr_session_defaults;
    float *logits[2], *hidden[2];
    bool saw[2] = {false, false}; /* tiles, copies */

    open_golden(&g);
    apr_model model = requantized(&g.model, APR_Q4_K);
    options.n_ctx = N_TOKENS;
    options.n_batch = 1;
    evaluate(&g, &model, &options, &logits[0], &hidden[0]);
    options.cuda = cuda;
    apr_session *s = open_session(&model, &options);
    const apr_plan *plan = apr_session_plan(s);
    const uint64_t free_bytes = plan->budget_bytes - (plan->device_bytes - options.headroom_bytes);
    apr_session_close(s);
    options.no_direct = true;
    /* less and less is left: at first for copies, then not */
    for (uint64_t less = (uint64_t)40 << 20; !(saw[0] && saw[1]) && less < free_bytes; less -= (uint64_t)1 << 20) {
        apr_error err = {0};
        size_t n_same;
        options.headroom_bytes = free_bytes - less;
        if (apr_session_open(&s, &model, &options, &err) != APR_OK) break; /* nothing fits any more */
        const bool has_copies = apr_plan_line_of(apr_session_plan(s), APR_LINE_COPIES) != NULL;
        apr_session_close(s);
        if (saw[has_copies]) continue;
        saw[has_copies] = true;
        evaluate(&g, &model, &options, &logits[1], &hidden[1]);
        const double kl = divergence(logits[0], logits[1], N_TOKENS, (size_t)g.model.hparams.vocab_size, &n_same);
        print_message("%s: mean KL divergence %.1e, same top token %zu of %d\n", has_copies ? "copies" : "tiles", kl, n_same, N_TOKENS);
        assert_true(kl < 1e-4);
        assert_true(n_same >= N_TOKENS - 1);
        free(logits[1]);
        free(hidden[1]);
    }
    assert_true(saw[0] && saw[1]);
    free(logits[0]);
    free(hidden[0]);
    free_requantized(&g.model, &model);
    golden_close(&g);
}

/* The same tensor, its rows in the order of the pairs of rotary embedding, as a GGUF of llama has them. */
static void put_in_pairs(apr_tensor *t, int64_t n_heads)
{
    const int64_t n_rows = apr_tensor_rows(t);
    const size_t row_bytes = (size_t)(t->n_bytes / (uint64_t)n_rows);
    uint8_t *const data = malloc((size_t)t->n_bytes);
    const apr_step step = {.kind = APR_STEP_PAIRS_TO_HALVES, .n = {(int32_t)n_heads}};

    for (int64_t r = 0; r < n_rows; r++)
        memcpy(data + (size_t)apr_step_row(step, n_rows, r) * row_bytes, t->data + (size_t)r * row_bytes, row_bytes);
    t->data = data;
    t->pending = step;
}

static void rows_stored_in_another_order_are_put_in_order(void **state)
{
    (void)state;
    static const apr_dtype dtypes[] = {APR_BF16, APR_Q8_0, APR_Q4_K};
    golden g;

    open_golden(&g);
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        apr_session_options options = apr_session_defaults;
        apr_model model = requantized(&g.model, dtypes[i]);
        float *logits[2], *hidden[2];
        size_t n_moved = 0;
        options.cuda = cuda;
        evaluate(&g, &model, &options, &logits[0], &hidden[0]);
        for (size_t k = 0; k < model.n_tensors; k++) {
            if (strstr(model.tensors[k].name, "q_proj.weight") == NULL) continue;
            uint8_t *const before = (uint8_t *)(uintptr_t)model.tensors[k].data;
            put_in_pairs(&model.tensors[k], g.model.hparams.num_heads);
            if (before != g.model.tensors[k].data) free(before);
            n_moved++;
        }
        evaluate(&g, &model, &options, &logits[1], &hidden[1]);
        assert_int_equal(n_moved, g.model.hparams.num_layers);
        assert_memory_equal(logits[0], logits[1], N_TOKENS * (size_t)g.model.hparams.vocab_size * sizeof *logits[0]);
        for (int k = 0; k < 2; k++) {
            free(logits[k]);
            free(hidden[k]);
        }
        free_requantized(&g.model, &model);
    }
    golden_close(&g);
}

static bool has_fp8_units;

static bool yes(void *user, const apr_cuda_facts *facts)
{
    (void)user;
    has_fp8_units = facts->major > 8 || (facts->major == 8 && facts->minor >= 9);
    return has_fp8_units;
}

static void products_in_fp8_cost_what_rounding_to_it_costs(void **state)
{
    (void)state;
    golden g;
    apr_session_options options = apr_session_defaults;
    float *logits[3], *hidden[3];
    size_t n_same;

    open_golden(&g);
    const size_t width = (size_t)g.model.hparams.vocab_size;
    apr_model model = requantized(&g.model, APR_F8_E4M3);
    evaluate(&g, &model, &options, &logits[0], &hidden[0]);
    options.cuda = cuda;
    evaluate(&g, &model, &options, &logits[1], &hidden[1]);
    options.may_use_fp8 = yes;
    evaluate(&g, &model, &options, &logits[2], &hidden[2]);
    for (int i = 1; i < 3; i++) {
        const double kl = divergence(logits[0], logits[i], N_TOKENS, width, &n_same);
        print_message("fp8 weights, products in %s: mean KL divergence %.1e, same top token %zu of %d\n",
                      i == 1          ? "FP16"
                      : has_fp8_units ? "FP8"
                                      : "FP16, since there are no FP8 units",
                      kl, n_same, N_TOKENS);
        assert_true(kl < (i == 1 ? 1e-4 : 0.1));
    }
    for (int i = 0; i < 3; i++) {
        free(logits[i]);
        free(hidden[i]);
    }
    free_requantized(&g.model, &model);
    golden_close(&g);
}

static void ten_runs_give_the_same_bits(void **state)
{
    (void)state;
    golden g;
    apr_session_options options = apr_session_defaults;
    float *first, *hidden;

    open_golden(&g);
    options.cuda = cuda;
    evaluate(&g, &g.model, &options, &first, &hidden);
    free(hidden);
    for (int run = 1; run < 10; run++) {
        float *again;
        evaluate(&g, &g.model, &options, &again, &hidden);
        assert_memory_equal(first, again, N_TOKENS * (size_t)g.model.hparams.vocab_size * sizeof *first);
        free(again);
        free(hidden);
    }
    free(first);
    golden_close(&g);
}

static void the_driver_reports_what_was_planned(void **state)
{
    (void)state;
    golden g;
    apr_session_options options = apr_session_defaults;
    int32_t ids[N_TOKENS];

    open_golden(&g);
    options.cuda = cuda;
    options.n_ctx = 512;
    apr_session *const s = open_session(&g.model, &options);
    read_ids(&g, ids);
    assert_int_equal(apr_session_eval(s, ids, N_TOKENS, NULL, NULL), APR_OK);
    for (int i = 0; i < 3; i++) assert_int_equal(apr_session_eval(s, ids, 1, NULL, NULL), APR_OK); /* checked, recorded, replayed */
    const apr_plan *const plan = apr_session_plan(s);
    const uint64_t planned = plan->device_bytes - apr_plan_line_of(plan, APR_LINE_HEADROOM)->bytes, driver = apr_session_used(s).driver;
    print_message("planned %.1f MiB, the driver reports %.1f MiB\n", (double)planned / 0x1p20, (double)driver / 0x1p20);
    assert_true(driver > 0); /* the driver must say, or nothing is checked */
    assert_true(fabs((double)planned - (double)driver) <= 4 * 0x1p20);
    apr_session_close(s);
    golden_close(&g);
}

/* gpu_session [PATTERN]: leaves out the tests of such names. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        /* first: contexts and modules of a process stay, so later growth would be less than planned */
        cmocka_unit_test(the_driver_reports_what_was_planned),
        cmocka_unit_test(logits_are_those_of_transformers_as_far_as_the_cache_keeps_them),
        cmocka_unit_test(hidden_states_are_those_of_transformers),
        cmocka_unit_test(weights_of_every_type_agree_with_the_host),
        cmocka_unit_test(without_kernels_for_packed_weights_copies_or_tiles_do),
        cmocka_unit_test(rows_stored_in_another_order_are_put_in_order),
        cmocka_unit_test(products_in_fp8_cost_what_rounding_to_it_costs),
        cmocka_unit_test(ten_runs_give_the_same_bits),
    };
    apr_error err = {0};
    int n;
    if (argc > 1) cmocka_set_skip_filter(argv[1]);
    if (apr_cuda_load(&cuda, &err) != APR_OK || cuda->count(&n, &err) != APR_OK) {
        printf("skipped: no device (%s)\n", err.text);
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
