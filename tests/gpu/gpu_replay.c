/* A token recorded as one CUDA graph on a device gives the bits of a token whose kernels are started one by one: every family, every type
 * of cache; and the likeliest tokens are those that the host finds.
 *
 * usage: gpu_replay [TEST]: one of them, by its name, in which * stands for anything. */
#include "kernels/cuda_loader.h"
#include "runtime/check/compare.h"
#include "runtime/program/ability.h"
#include "runtime/session/generate.h"
#include "runtime/session/session_internal.h"
#include "tests/support/program_model.h"
#include "tests/support/replay_script.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const apr_cuda_api *cuda;
static apr_cuda_drill_fn drill;
static char warning[1024];

static void keep_warning(void *user, const char *sentence)
{
    (void)user;
    snprintf(warning, sizeof warning, "%s", sentence);
}

static apr_session_options on_device(bool replays, apr_dtype kv_dtype)
{
    apr_session_options options = apr_session_defaults;
    options.n_ctx = REPLAY_SCRIPT_CTX;
    options.n_batch = 16;
    options.kv_dtype = kv_dtype;
    options.cuda = cuda;
    options.no_replay = !replays;
    options.no_fusion = true; /* the same kernels: the same bits */
    options.on_warning = keep_warning;
    return options;
}

/* How many rows of logits are the host's, but for rounding. Where two experts are as good, backends may choose otherwise. */
static double share_of_the_host_s(const program_model *m, apr_dtype kv_dtype, const float *logits)
{
    apr_session_options options = on_device(false, kv_dtype);
    const size_t width = (size_t)m->program.vocab_size;
    int n_same = 0;

    options.cuda = NULL;
    options.n_threads = 2;
    apr_session *const host = must_open_session(&m->model, &options);
    float *const reference = replay_script_run(host, 0);
    for (size_t r = 0; r < REPLAY_SCRIPT_STEPS; r++) {
        double off = 0.0, most = 0.0;
        for (size_t i = r * width; i < (r + 1) * width; i++) {
            off += ((double)logits[i] - (double)reference[i]) * ((double)logits[i] - (double)reference[i]);
            most += (double)reference[i] * (double)reference[i];
        }
        n_same += sqrt(off) <= 1e-2 * sqrt(most);
    }
    apr_session_close(host);
    free(reference);
    return (double)n_same / REPLAY_SCRIPT_STEPS;
}

static void check_layer(const program_model *m, apr_dtype kv_dtype, const char *what)
{
    const apr_session_options plain_options = on_device(false, kv_dtype), options = on_device(true, kv_dtype);
    warning[0] = '\0';
    apr_session *const plain = must_open_session(&m->model, &plain_options);
    float *const reference = replay_script_run(plain, 0);
    assert_null(plain->places[0].recorded);
    apr_session_close(plain);

    apr_session *const s = must_open_session(&m->model, &options);
    float *const again = replay_script_run(s, 0);
    if ((s->places[0].recorded == NULL) != replay_has_host_tables(&m->program)) fail_msg("%s: was not recorded: %s", what, warning);
    apr_session_close(s);
    const size_t n = REPLAY_SCRIPT_STEPS * (size_t)m->program.vocab_size;
    for (size_t i = 0; i < n; i++) assert_true(isfinite(reference[i]));
    const double share = share_of_the_host_s(m, kv_dtype, reference);
    if (share < 0.97) print_message("%s: %.0f %% of the rows are the host's\n", what, 100.0 * share);
    if (share < 0.5) fail_msg("%s: the host has other numbers", what);
    if (memcmp(reference, again, n * sizeof *reference) != 0) fail_msg("%s: other numbers", what);
    free(reference);
    free(again);
}

static void every_family_gives_the_same_bits_recorded_or_not(void **state)
{
    (void)state;
    int n_layers = 0;
    for (size_t i = 0; i < apr_n_families; i++) {
        const char *const name = apr_families[i]->types[0].name;
        if (apr_family_ability(apr_families[i], cuda->backend) != APR_ABLE_RUN) continue;
        for (uint8_t mixer = 0; mixer <= APR_LAYER_NONE; mixer++) {
            program_model m;
            char what[96];
            if (!replay_open_layers(&m, name, mixer, 2)) continue;
            snprintf(what, sizeof what, "%s, layers of kind %d", name, mixer);
            check_layer(&m, APR_F16, what);
            program_model_close(&m);
            n_layers++;
        }
    }
    print_message("%d kinds of layers\n", n_layers);
    assert_true(n_layers >= 40);
}

static void every_type_of_cache_gives_the_same_bits_recorded_or_not(void **state)
{
    (void)state;
    program_model m;
    int n_types = 0;
    assert_true(replay_open_layers(&m, "qwen3", APR_LAYER_SLIDING, 2) || replay_open_layers(&m, "qwen3", APR_LAYER_FULL, 2));
    for (size_t i = 0; i < APR_KV_DTYPES; i++) {
        if (apr_kv_row_bytes(apr_kv_dtypes[i], m.model.hparams.head_dim) < 0) continue;
        check_layer(&m, apr_kv_dtypes[i], apr_dtypes[apr_kv_dtypes[i]].name);
        n_types++;
    }
    assert_true(n_types >= 3);
    program_model_close(&m);
}

enum { LONG = 2040, AFTER = 16, CLASS = 2048 }; /* apr_attend_split_end */

/* The logits of AFTER tokens after LONG others, and of AFTER from the first position on. */
static float *decode_long_and_short(apr_session *s)
{
    const size_t width = (size_t)apr_session_program(s)->vocab_size;
    float *const logits = malloc(2 * AFTER * width * sizeof *logits);
    int32_t ids[LONG];
    apr_error err = {0};

    assert_non_null(logits);
    for (int i = 0; i < LONG; i++) ids[i] = (int32_t)((size_t)(i * 37 + i / 7) % width);
    if (apr_session_eval(s, ids, LONG, NULL, &err) != APR_OK) fail_msg("%s", err.text);
    for (int i = 0; i < 2 * AFTER; i++) {
        if (i == AFTER) apr_session_reset(s);
        const int32_t id = (int32_t)((size_t)(i * 11 + 3) % width);
        if (apr_session_eval(s, &id, 1, &(apr_eval_output){.logits = logits + (size_t)i * width}, &err) != APR_OK) fail_msg("%s", err.text);
    }
    return logits;
}

/* How a context is cut, and what is recorded, changes at some positions, and back again. */
static void a_context_that_grows_is_recorded_again(void **state)
{
    (void)state;
    program_model m;
    float *logits[2];
    assert_int_equal(apr_attend_split_end(LONG), CLASS);
    assert_true(LONG + AFTER > CLASS && apr_attend_split_end(CLASS) > CLASS);
    assert_true(replay_open_layers(&m, "qwen3", APR_LAYER_FULL, 2));
    for (int replays = 0; replays < 2; replays++) {
        apr_session_options options = on_device(replays, APR_F16);
        options.n_ctx = 2 * CLASS;
        options.n_batch = 512;
        apr_session *const s = must_open_session(&m.model, &options);
        logits[replays] = decode_long_and_short(s);
        assert_int_equal(s->places[0].recorded != NULL, replays);
        if (replays) assert_int_equal(s->recorded_end, CLASS);
        apr_session_close(s);
    }
    assert_memory_equal(logits[0], logits[1], 2 * AFTER * (size_t)m.program.vocab_size * sizeof(float));
    free(logits[0]);
    free(logits[1]);
    program_model_close(&m);
}

static void two_sessions_in_turn_do_not_read_each_other_s_token(void **state)
{
    (void)state;
    program_model m;
    const apr_session_options options = on_device(true, APR_F16);
    assert_true(replay_open_layers(&m, "qwen3_next", APR_LAYER_LINEAR, 2));
    const size_t vocab_size = (size_t)m.program.vocab_size;
    apr_session *const a = must_open_session(&m.model, &options), *const b = must_open_session(&m.model, &options);
    float *const alone[2] = {replay_script_run(a, 0), replay_script_run(b, 5)}, *const one = malloc(vocab_size * sizeof *one);
    replay_script of_a = {.salt = 0}, of_b = {.salt = 5};

    while (replay_script_step(&of_a, a, one)) {
        assert_memory_equal(one, alone[0] + (size_t)(of_a.step - 1) * vocab_size, vocab_size * sizeof *one);
        assert_true(replay_script_step(&of_b, b, one));
        assert_memory_equal(one, alone[1] + (size_t)(of_b.step - 1) * vocab_size, vocab_size * sizeof *one);
    }
    apr_session_close(a);
    apr_session_close(b);
    free(alone[0]);
    free(alone[1]);
    free(one);
    program_model_close(&m);
}

/* --- latent attention --- */

/* Wide enough for products on tensor cores, and as wide as latents are. */
static bool open_latent(program_model *m, const char *architecture, int64_t rank, apr_dtype dtype)
{
    static const uint8_t mixers[] = {APR_LAYER_FULL, APR_LAYER_FULL}, ffns[] = {APR_FFN_DENSE, APR_FFN_DENSE};
    apr_hparams h = program_model_sizes(architecture);
    h.hidden_size = 256;
    h.intermediate_size = 512;
    h.vocab_size = 128;
    h.num_heads = h.num_kv_heads = 4;
    h.q_lora_rank = 256;
    h.kv_lora_rank = rank;
    h.qk_nope_head_dim = h.v_head_dim = 128;
    h.qk_rope_head_dim = h.rotary_dim = 64;
    h.max_position_embeddings = 4096;
    h.num_layers = 2;
    h.layer_kinds = mixers;
    h.ffn_kinds = ffns;
    h.num_experts = 0;
    return program_model_open(m, &h, dtype, NULL) == APR_OK;
}

static int count_steps(const apr_fusion *fusion, apr_fused_kind kind)
{
    int n = 0;
    for (size_t i = 0; i < fusion->n_steps; i++) n += fusion->steps[i].kind == kind;
    return n;
}

/* The logits of PROMPT tokens' last, and of NEXT single tokens, [1 + NEXT, vocab_size]. */
enum { PROMPT = 140, NEXT = 6 };
static float *prompt_and_tokens(const program_model *m, bool fused, int n_latent)
{
    apr_session_options options = on_device(fused, APR_F16);
    const size_t width = (size_t)m->program.vocab_size;
    float *const logits = malloc((1 + NEXT) * width * sizeof *logits);
    int32_t ids[PROMPT];
    apr_error err = {0};

    options.no_fusion = !fused;
    options.n_ctx = options.n_batch = 160;
    apr_session *const s = must_open_session(&m->model, &options);
    for (int i = 0; i < PROMPT; i++) ids[i] = (int32_t)((size_t)(i * 37 + i / 7) % width);
    if (apr_session_eval(s, ids, PROMPT, &(apr_eval_output){.logits = logits}, &err) != APR_OK) fail_msg("%s", err.text);
    for (int i = 0; i < NEXT; i++)
        if (apr_session_eval(s, ids + 3 * i, 1, &(apr_eval_output){.logits = logits + (size_t)(1 + i) * width}, &err) != APR_OK)
            fail_msg("%s", err.text);
    for (int k = 0; k < 2 && fused; k++) {
        const apr_fusion *const fusion = k == 0 ? &s->places[0].fusion : &s->places[0].prompt;
        assert_int_equal(count_steps(fusion, APR_FUSED_LATENT_QUERY), n_latent);
        int n_stores = count_steps(fusion, APR_FUSED_LATENT_STORE);
        for (size_t i = 0; i < fusion->n_steps; i++) n_stores += fusion->steps[i].latent_store >= 0;
        assert_int_equal(n_stores, 2);
    }
    apr_session_close(s);
    return logits;
}

static void latent_attention_gives_the_same_numbers_fused_or_not(void **state)
{
    static const struct {
        const char *architecture;
        int64_t rank;
        apr_dtype dtype;
        int n_latent; /* fused queries */
    } cases[] = {{"deepseek_v2", 512, APR_Q8_0, 2},
                 {"deepseek_v3", 512, APR_Q4_K, 2},
                 {"deepseek_v3", 256, APR_F16, 2},
                 {"mistral4", 256, APR_Q8_0, 2}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        program_model m;
        double off = 0.0, most = 0.0;
        assert_true(open_latent(&m, cases[i].architecture, cases[i].rank, cases[i].dtype));
        float *const one = prompt_and_tokens(&m, true, cases[i].n_latent), *const other = prompt_and_tokens(&m, false, 0);
        for (size_t k = 0; k < (1 + NEXT) * (size_t)m.program.vocab_size; k++) {
            assert_true(isfinite(one[k]));
            off += ((double)one[k] - (double)other[k]) * ((double)one[k] - (double)other[k]);
            most += (double)other[k] * (double)other[k];
        }
        print_message("%s, %s: %.1e of the logits\n", cases[i].architecture, apr_dtypes[cases[i].dtype].name, sqrt(off / most));
        assert_true(sqrt(off / most) < 2e-3);
        free(one);
        free(other);
        program_model_close(&m);
    }
}

/* --- the likeliest --- */

static apr_cuda_device *open_device(void)
{
    const apr_cuda_options options = {.stack_bytes = 256};
    apr_cuda_device *device;
    apr_error err = {0};
    if (cuda->open(&device, 0, &options, &err) != APR_OK) fail_msg("%s", err.text);
    return device;
}

static void *take(apr_cuda_device *device, uint64_t n_bytes)
{
    void *p;
    apr_error err = {0};
    if (cuda->alloc(device, n_bytes, "test", &p, &err) != APR_OK) fail_msg("%s", err.text);
    return p;
}

/* Random numbers, few different ones, all equal ones, NaN and infinities, rising and falling. */
static void make_row(float *logits, int64_t n, int kind)
{
    for (int64_t i = 0; i < n; i++) {
        const float x = (float)(rand() % 1000003) / 50000.0f - 10.0f;
        logits[i] = kind == 1 ? floorf(x) : kind == 2 ? -1.5f : kind == 5 ? (float)i : kind == 6 ? (float)-i : x;
        if (kind == 3 && rand() % 3 == 0) logits[i] = rand() % 2 ? NAN : rand() % 2 ? -INFINITY : -0.0f;
        if (kind == 4) logits[i] = NAN;
        if (kind == 7) logits[i] = i == n / 2 ? INFINITY : -INFINITY;
        if (kind == 8) logits[i] = rand() % 2 ? 0.0f : -0.0f;
    }
}

static void the_top_k_are_those_that_the_host_finds(void **state)
{
    (void)state;
    enum { MOST = 262144 };
    static const int64_t lengths[] = {1, 2, 31, 32, 33, 63, 64, 65, 1023, 1024, 1025, 16384, 16385, 32000, 65537, 151936, 152064, MOST};
    static const int wanted[] = {1, 2, 31, 32, 33, 64};
    apr_cuda_device *const device = open_device();
    float *const logits = malloc(MOST * sizeof *logits), *const there = take(device, MOST * sizeof *logits);
    apr_cuda_topk_result *const found = take(device, sizeof *found), here;
    void *const work = take(device, apr_cuda_topk_bytes(MOST));
    apr_error err = {0};
    double worst = 0.0;

    srand(3);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int kind = 0; kind < 9; kind++) {
            const int64_t n = lengths[i];
            make_row(logits, n, kind);
            assert_int_equal(cuda->upload(device, there, logits, (uint64_t)n * sizeof *logits, &err), APR_OK);
            for (size_t k = 0; k < sizeof wanted / sizeof *wanted; k++) {
                apr_topk reference = {.n_wanted = wanted[k], .temperature = 0.3f + (float)k}, best = reference;
                apr_topk_find(&reference, logits, n);
                if (cuda->topk(device, there, n, best.n_wanted, best.temperature, work, found, &err) != APR_OK) fail_msg("%s", err.text);
                assert_int_equal(cuda->download(device, &here, found, sizeof here, &err), APR_OK);
                apr_topk_from_keys(&best, here.keys, best.n_wanted);
                assert_int_equal(best.n, reference.n);
                assert_memory_equal(best.ids, reference.ids, (size_t)reference.n * sizeof *reference.ids);
                for (int j = 0; j < reference.n; j++)
                    assert_true(best.logits[j] == reference.logits[j] || (isnan(best.logits[j]) && isnan(reference.logits[j])));
                if (wanted[k] == 1) assert_int_equal(best.ids[0], apr_argmax(logits, n));
                assert_true(fabs(here.sum - reference.sum) <= APR_TOPK_SUM_ERROR * reference.sum);
                for (int j = 0; j < reference.n_parts; j++)
                    assert_true(fabs(here.parts[j] - reference.parts[j]) <= APR_TOPK_SUM_ERROR * reference.parts[j]);
                if (reference.sum > 0.0) worst = fmax(worst, fabs(here.sum - reference.sum) / reference.sum);
            }
        }
    print_message("sums are off by %.1e at most\n", worst);
    cuda->close(device);
    free(logits);
}

/* Rows with different requests, in a workspace for all of them and for a few at a time. */
static void the_top_k_of_several_rows_are_those_of_each(void **state)
{
    (void)state;
    enum { N = 5000, ROWS = 70 };
    static const int wanted[] = {1, 3, 1, 64, 7};
    apr_cuda_device *const device = open_device();
    float *const logits = malloc((size_t)ROWS * N * sizeof *logits), *const there = take(device, (uint64_t)ROWS * N * sizeof *logits);
    apr_cuda_topk_result *const found = take(device, ROWS * sizeof *found), here[ROWS];
    void *const work = take(device, ROWS * apr_cuda_topk_bytes(N));
    apr_error err = {0};

    for (int r = 0; r < ROWS; r++) make_row(logits + r * N, N, r % 9);
    assert_int_equal(cuda->upload(device, there, logits, (uint64_t)ROWS * N * sizeof *logits, &err), APR_OK);
    for (int way = 0; way < 4; way++) { /* all want one; all want something; each with little workspace */
        apr_topk wishes[ROWS] = {0};
        for (int r = 0; r < ROWS; r++)
            wishes[r] = (apr_topk){.n_wanted = way % 2 == 0 ? 1 : wanted[r % 5], .temperature = way % 2 == 0 || r % 3 == 0 ? 0.0f : 0.7f};
        const uint64_t n_bytes = (way < 2 ? ROWS : 1) * apr_cuda_topk_bytes(N);
        if (cuda->topk_rows(device, there, N, ROWS, wishes, work, n_bytes, found, &err) != APR_OK) fail_msg("%s", err.text);
        assert_int_equal(cuda->download(device, here, found, sizeof here, &err), APR_OK);
        for (int r = 0; r < ROWS; r++) {
            apr_topk reference = wishes[r], best = wishes[r];
            apr_topk_find(&reference, logits + r * N, N);
            apr_topk_from_keys(&best, here[r].keys, best.n_wanted);
            assert_int_equal(best.n, reference.n);
            assert_memory_equal(best.ids, reference.ids, (size_t)reference.n * sizeof *reference.ids);
            if (reference.temperature > 0.0f) assert_true(fabs(here[r].sum - reference.sum) <= APR_TOPK_SUM_ERROR * reference.sum);
        }
    }
    cuda->close(device);
    free(logits);
}

/* --- sums of squares, and rows of two models --- */

static void squares_of_columns_have_the_bits_of_the_host_s_sums(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{1, 1}, {7, 63}, {16, 64}, {17, 65}, {512, 3584}, {333, 18944}};
    apr_cuda_device *const device = open_device();
    apr_error err = {0};

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int64_t n_rows = shapes[i][0], width = shapes[i][1];
        const size_t n_bytes = (size_t)(n_rows * width) * sizeof(float), n_sums = (size_t)width * sizeof(double);
        float *const x = malloc(n_bytes), *const there = take(device, n_bytes);
        double *const sums = malloc(n_sums), *const found = malloc(n_sums), *const sums_there = take(device, n_sums);
        for (int64_t k = 0; k < n_rows * width; k++) x[k] = (float)(rand() % 1000003) / 50000.0f - 10.0f;
        for (int64_t k = 0; k < width; k++) sums[k] = (double)k / 7.0;
        assert_int_equal(cuda->upload(device, there, x, n_bytes, &err), APR_OK);
        assert_int_equal(cuda->upload(device, sums_there, sums, n_sums, &err), APR_OK);
        if (cuda->column_squares(device, there, n_rows, width, sums_there, &err) != APR_OK) fail_msg("%s", err.text);
        assert_int_equal(cuda->download(device, found, sums_there, n_sums, &err), APR_OK);
        for (int64_t k = 0; k < n_rows * width; k++) sums[k % width] += (double)x[k] * (double)x[k];
        assert_memory_equal(found, sums, n_sums);
        free(x);
        free(sums);
        free(found);
    }
    cuda->close(device);
}

static void same_or_both_nan(double found, double wanted, double tolerance)
{
    if (isnan(found) && isnan(wanted)) return;
    if (!(found == wanted || fabs(found - wanted) <= tolerance * fmax(1.0, fabs(wanted)))) fail_msg("%.17g is not %.17g", found, wanted);
}

static void rows_of_two_models_are_compared_as_on_the_host(void **state)
{
    (void)state;
    enum { MOST = 152064, ROWS = 9 };
    static const int64_t lengths[] = {1, 2, 31, 511, 513, 2048, 32000, MOST};
    apr_cuda_device *const device = open_device();
    float *const rows[2] = {malloc((size_t)ROWS * MOST * sizeof(float)), malloc((size_t)ROWS * MOST * sizeof(float))};
    float *const there[2] = {take(device, (uint64_t)ROWS * MOST * sizeof(float)), take(device, (uint64_t)ROWS * MOST * sizeof(float))};
    apr_cuda_logits_difference *const found = take(device, ROWS * sizeof *found), here[ROWS];
    int32_t *const next_there = take(device, ROWS * sizeof *next_there), next[ROWS];
    apr_error err = {0};

    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        const int64_t n = lengths[i];
        for (int r = 0; r < ROWS; r++) {
            next[r] = r % 4 == 3 ? -1 : (int32_t)(rand() % n);
            make_row(rows[0] + r * n, n, r);
            make_row(rows[1] + r * n, n, r == 2 || r > 4 ? r : 0); /* row 2: equal ones */
        }
        for (int k = 0; k < 2; k++)
            assert_int_equal(cuda->upload(device, there[k], rows[k], (uint64_t)(ROWS * n) * sizeof(float), &err), APR_OK);
        assert_int_equal(cuda->upload(device, next_there, next, sizeof next, &err), APR_OK);
        if (cuda->compare_logits(device, there[0], there[1], n, ROWS, next_there, found, &err) != APR_OK) fail_msg("%s", err.text);
        assert_int_equal(cuda->download(device, here, found, sizeof here, &err), APR_OK);
        for (int r = 0; r < ROWS; r++) {
            const apr_row_difference wanted = apr_compare_logits(rows[0] + r * n, rows[1] + r * n, n, next[r]);
            same_or_both_nan(here[r].kl < 0.0 ? 0.0 : here[r].kl, wanted.kl, 1e-11);
            same_or_both_nan(here[r].nll_reference, wanted.nll_reference, 1e-12);
            same_or_both_nan(here[r].nll_other, wanted.nll_other, 1e-12);
            assert_int_equal(here[r].same_top, wanted.same_top);
        }
    }
    cuda->close(device);
    for (int k = 0; k < 2; k++) free(rows[k]);
}

/* --- generations --- */

typedef struct spoken {
    int32_t ids[60];
    int n;
} spoken;

static bool keep_id(void *user, int32_t id, bool is_stop)
{
    spoken *const said = user;
    (void)is_stop;
    said->ids[said->n++] = id;
    return true;
}

/* From the whole rows, token by token. */
static void say_by_rows(apr_session *s, apr_sampler *sampler, const int32_t *prompt, size_t n_prompt, spoken *said)
{
    apr_error err = {0};
    if (apr_session_eval(s, prompt, n_prompt, NULL, &err) != APR_OK) fail_msg("%s", err.text);
    apr_sampler_take(sampler, prompt, n_prompt);
    for (said->n = 0; said->n < 60;) {
        const int32_t id = said->ids[said->n++] = apr_sample(sampler, apr_session_logits(s));
        if (said->n < 60 && apr_session_eval(s, &id, 1, NULL, &err) != APR_OK) fail_msg("%s", err.text);
    }
}

static void a_seed_says_what_it_says_when_all_logits_are_read(void **state)
{
    static const apr_sample_options ways[] = {{0},
                                              {.temperature = 0.2f, .top_p = 0.5f, .seed = 3},
                                              {.temperature = 1.0f, .top_p = 0.95f, .seed = 4},
                                              {.temperature = 0.8f, .top_p = 1.0f, .seed = 5},
                                              {.temperature = 0.9f, .seed = 6, .top_k = 40, .top_p = 0.9f, .min_p = 0.02f},
                                              {.temperature = 1.5f, .seed = 7, .min_p = 0.1f},
                                              {.seed = 8, .repeat_penalty = 1.5f, .repeat_last = -1},
                                              {.temperature = 0.7f, .seed = 9, .top_k = 20, .presence_penalty = 1.0f, .repeat_last = 8}};
    const int32_t prompt[] = {1, 5, 9};
    program_model m;

    (void)state;
    assert_true(replay_open_layers(&m, "qwen3", APR_LAYER_FULL, 2));
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const apr_session_options options = on_device(true, APR_F16);
        apr_session *const s = must_open_session(&m.model, &options);
        apr_generate_options generate = {.max_tokens = 60, .on_token = keep_id};
        apr_generation generation;
        apr_sampler sampler;
        spoken by_rows, said = {.n = 0};

        generate.user = &said;
        assert_int_equal(apr_sampler_open(&sampler, m.program.vocab_size, &ways[i], NULL), APR_OK);
        say_by_rows(s, &sampler, prompt, 3, &by_rows);
        apr_sampler_close(&sampler);
        apr_session_reset(s);
        assert_int_equal(apr_sampler_open(&sampler, m.program.vocab_size, &ways[i], NULL), APR_OK);
        assert_int_equal(apr_generate(s, &sampler, prompt, 3, &generate, &generation, NULL), APR_OK);
        assert_int_equal(said.n, 60);
        assert_memory_equal(said.ids, by_rows.ids, sizeof said.ids);
        apr_sampler_close(&sampler);
        apr_session_close(s);
    }
    program_model_close(&m);
}

/* --- what happens to a recording --- */

static void what_cannot_be_recorded_leaves_a_device_that_can_be_used(void **state)
{
    (void)state;
    apr_cuda_device *const device = open_device();
    float *const a = take(device, 1024), *const b = take(device, 1024), host[256], back[256];
    apr_op_args args = {.add = {.n_tokens = 1, .width = 256, .a = a, .b = a, .out = b}},
                impossible = {.norm = {.n_tokens = 1, .width = 256, .chunk = -1}};
    apr_cuda_graph *graph;
    apr_error err = {0};

    for (int i = 0; i < 256; i++) host[i] = (float)i;
    cuda->check_each(device, true);
    assert_int_equal(cuda->record(device, &err), APR_E_UNSUPPORTED);
    cuda->check_each(device, false);
    assert_int_equal(cuda->end_record(device, &graph, &err), APR_E_USAGE);

    assert_int_equal(cuda->record(device, &err), APR_OK); /* an operation fails: the rest is a graph all the same, or a sentence */
    assert_int_equal(cuda->run(device, APR_OP_ADD, &args, &err), APR_OK);
    assert_int_not_equal(cuda->run(device, APR_OP_NORM, &impossible, &err), APR_OK);
    (void)cuda->end_record(device, &graph, &err);
    cuda->forget(graph);
    assert_int_equal(cuda->record(device, &err), APR_OK); /* what waits cannot be recorded */
    assert_int_not_equal(cuda->upload(device, a, host, 1024, &err), APR_OK);
    err = (apr_error){0};
    assert_int_not_equal(cuda->end_record(device, &graph, &err), APR_OK);
    print_message("%s\n", err.text);
    assert_null(graph);
    assert_false(cuda->is_lost(device));

    assert_int_equal(cuda->upload(device, a, host, 1024, &err), APR_OK);
    assert_int_equal(cuda->record(device, &err), APR_OK);
    assert_int_equal(cuda->run(device, APR_OP_ADD, &args, &err), APR_OK);
    if (cuda->end_record(device, &graph, &err) != APR_OK) fail_msg("%s", err.text);
    assert_int_equal(cuda->clear(device, b, 1024, &err), APR_OK);
    assert_int_equal(cuda->download(device, back, b, 1024, &err), APR_OK);
    assert_true(back[255] == 0.0f); /* recording ran nothing */
    assert_int_equal(cuda->replay(graph, &err), APR_OK);
    assert_int_equal(cuda->download(device, back, b, 1024, &err), APR_OK);
    for (int i = 0; i < 256; i++) assert_true(back[i] == 2.0f * host[i]);
    cuda->forget(graph);
    cuda->close(device);
}

/* The last one: nothing works on the device afterwards in this process. */
static void a_fault_before_a_replay_is_named_with_the_stage_and_auto_goes_on_on_the_host(void **state)
{
    (void)state;
    program_model m;
    apr_session_options options = on_device(true, APR_F16);
    apr_error err = {0};
    assert_true(replay_open_layers(&m, "qwen3", APR_LAYER_FULL, 2));
    apr_session *const strict = must_open_session(&m.model, &options);
    options.fall_back = true;
    apr_session *const s = must_open_session(&m.model, &options);
    for (int32_t i = 0; i < 4; i++) {
        assert_int_equal(apr_session_eval(s, &i, 1, NULL, &err), APR_OK);
        assert_int_equal(apr_session_eval(strict, &i, 1, NULL, &err), APR_OK);
    }
    assert_non_null(s->places[0].recorded);
    assert_int_equal(drill(s->places[0].device, APR_CUDA_DRILL_OUT_OF_BOUNDS, NULL), APR_E_DEVICE);
    warning[0] = '\0';
    assert_int_equal(apr_session_eval(s, &(int32_t){9}, 1, NULL, NULL), APR_OK);
    print_message("%s\n", warning);
    assert_string_equal(apr_session_backend_name(s), "host");
    assert_int_equal(apr_session_position(s), 5);
    assert_int_equal(apr_session_eval(strict, &(int32_t){9}, 1, NULL, &err), APR_E_DEVICE);
    print_message("%s\n", err.text);
    assert_non_null(strstr(err.text, "illegal memory access"));
    apr_session_close(s);
    apr_session_close(strict);
    program_model_close(&m);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_gives_the_same_bits_recorded_or_not),
        cmocka_unit_test(a_context_that_grows_is_recorded_again),
        cmocka_unit_test(every_type_of_cache_gives_the_same_bits_recorded_or_not),
        cmocka_unit_test(two_sessions_in_turn_do_not_read_each_other_s_token),
        cmocka_unit_test(latent_attention_gives_the_same_numbers_fused_or_not),
        cmocka_unit_test(the_top_k_are_those_that_the_host_finds),
        cmocka_unit_test(the_top_k_of_several_rows_are_those_of_each),
        cmocka_unit_test(squares_of_columns_have_the_bits_of_the_host_s_sums),
        cmocka_unit_test(rows_of_two_models_are_compared_as_on_the_host),
        cmocka_unit_test(a_seed_says_what_it_says_when_all_logits_are_read),
        cmocka_unit_test(what_cannot_be_recorded_leaves_a_device_that_can_be_used),
        cmocka_unit_test(a_fault_before_a_replay_is_named_with_the_stage_and_auto_goes_on_on_the_host),
    };
    apr_error err = {0};
    int n;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    if (apr_cuda_load_drills(&cuda, &drill, &err) != APR_OK || cuda->count(&n, &err) != APR_OK) {
        printf("skipped: no device (%s)\n", err.text);
        return 77;
    }
    return cmocka_run_group_tests_name("gpu_replay", tests, NULL, NULL);
}
