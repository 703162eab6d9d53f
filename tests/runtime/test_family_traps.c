/* Faults that others had with these families, on whole models: text in parts, long texts, quantized value heads in ggml's order,
 * numbers beyond half precision, YaRN's scale of scores, rotary dimensions of two kinds. */
#define _XOPEN_SOURCE 700
#include "convert/convert.h"
#include "convert/naming.h"
#include "runtime/session/session.h"
#include "tests/support/conversion.h"
#include "tests/support/family_model.h"
#include "tests/support/program_model.h"
#include "tests/support/work_folder.h"

#include <math.h>

enum { N_TOKENS = 40, N_LONG = 4096 };

static int32_t ids[N_LONG];

static int make_text(void **state)
{
    for (int64_t i = 0; i < N_LONG; i++) ids[i] = (int32_t)((i * 37 + i * i % 101) % 146 + 1);
    return make_work(state);
}

/* ---- helpers ---- */

/* A model in a session whose cells are float32. */
typedef struct run {
    apr_model source, canonical;
    apr_session *session;
    size_t width; /* logits of a token */
} run;

static void make(const char *room, const char *name, const family_edit *edit)
{
    char dir[256];
    apr_error err = {0};
    snprintf(dir, sizeof dir, "tests/data/%s/%s", room, name);
    if (family_write(dir, in_work(name), edit, &err) != APR_OK) fail_msg("%s", err.text);
}

static void open_model(run *r, const char *path)
{
    apr_error err = {0};
    *r = (run){0};
    if (apr_model_open(&r->source, path, &err) != APR_OK || apr_canonical(&r->canonical, &r->source, &err) != APR_OK)
        fail_msg("%s", err.text);
}

static void start(run *r, const apr_backend *backend, int64_t n_ctx)
{
    apr_session_options options = apr_session_defaults;
    apr_error err = {0};
    options.n_ctx = n_ctx;
    options.n_threads = 1; /* smaller models than threads are good for */
    options.kv_dtype = APR_F32;
    options.exact = true; /* what moves heads rounds others together */
    options.backend = backend;
    if (apr_session_open(&r->session, &r->canonical, &options, &err) != APR_OK) fail_msg("%s", err.text);
    r->width = (size_t)apr_session_program(r->session)->vocab_size;
}

static void close_run(run *r)
{
    apr_session_close(r->session);
    apr_model_close(&r->canonical);
    apr_model_close(&r->source);
}

static void eval(run *r, int first, int n, float *logits)
{
    const apr_eval_output out = {.all_logits = true, .logits = logits};
    apr_error err = {0};
    if (apr_session_eval(r->session, ids + first, (size_t)n, &out, &err) != APR_OK) fail_msg("%s", err.text);
}

/* Logits of the first tokens as one prompt, from an empty session; to be freed. */
static float *logits_of(run *r, int n)
{
    float *const logits = malloc((size_t)n * r->width * sizeof *logits);
    assert_non_null(logits);
    apr_session_reset(r->session);
    eval(r, 0, n, logits);
    return logits;
}

/* Opens PATH on the host, and closes it again. */
static float *logits_of_path(const char *path)
{
    run r;
    open_model(&r, path);
    start(&r, NULL, N_TOKENS);
    float *const logits = logits_of(&r, N_TOKENS);
    close_run(&r);
    return logits;
}

/* The largest difference, over the largest number; both are finite. */
static double distance(const float *a, const float *b, size_t n)
{
    double most = 1e-30, off = 0.0;
    for (size_t i = 0; i < n; i++) {
        assert_true(isfinite(a[i]) && isfinite(b[i]));
        most = fmax(most, fabs((double)b[i]));
        off = fmax(off, fabs((double)a[i] - (double)b[i]));
    }
    return off / most;
}

static const char *const recurrent[] = {"qwen3_5", "qwen3_next", "nemotron_h", "granitemoehybrid", "lfm2"};
enum { N_RECURRENT = sizeof recurrent / sizeof *recurrent };

/* ---- what a state remembers ---- */

static void check_splits(const char *family, const apr_backend *backend)
{
    run r;
    open_model(&r, in_work(family));
    start(&r, backend, N_TOKENS);
    float *const reference = logits_of(&r, N_TOKENS), *const parts = malloc(N_TOKENS * r.width * sizeof *parts);
    assert_non_null(parts);
    for (int at = 1; at < N_TOKENS; at++) {
        apr_session_reset(r.session);
        eval(&r, 0, at, parts);
        eval(&r, at, N_TOKENS - at, parts + (size_t)at * r.width);
        const double off = distance(parts, reference, N_TOKENS * r.width);
        if (!(off < 5e-5)) fail_msg("%s, split behind token %d: off by %g", family, at, off);
    }
    free(reference);
    free(parts);
    close_run(&r);
}

static void a_text_split_anywhere_is_the_same_text(void **state)
{
    (void)state;
    for (int i = 0; i < N_RECURRENT; i++) {
        make("families", recurrent[i], NULL);
        check_splits(recurrent[i], &apr_ref_backend);
        check_splits(recurrent[i], NULL);
    }
}

/* Steps and chunks, with the last of 4,096 tokens looked at. */
static void check_long(run *r, const char *family)
{
    enum { LAST = 64, BEFORE = N_LONG - LAST };
    float *const chunks = malloc(2 * LAST * r->width * sizeof *chunks), *const steps = chunks + LAST * r->width;

    assert_non_null(chunks);
    assert_int_equal(apr_session_eval(r->session, ids, BEFORE, NULL, NULL), APR_OK);
    eval(r, BEFORE, LAST, chunks);
    apr_session_reset(r->session);
    for (int t = 0; t < BEFORE; t++) assert_int_equal(apr_session_eval(r->session, ids + t, 1, NULL, NULL), APR_OK);
    for (int t = 0; t < LAST; t++) eval(r, BEFORE + t, 1, steps + (size_t)t * r->width);
    const double off = distance(steps, chunks, LAST * r->width);
    if (!(off < 5e-5)) fail_msg("%s: steps and chunks differ by %g", family, off);
    free(chunks);
}

/* Layers of states alone; a state that was rounded on the way would drift here. */
static void after_4096_tokens_steps_are_where_chunks_are(void **state)
{
    static const struct {
        const char *family;
        uint8_t mixers[2], ffns[2];
    } rows[] = {
        {"qwen3_5", {APR_LAYER_LINEAR, APR_LAYER_LINEAR}, {APR_FFN_DENSE, APR_FFN_DENSE}},
        {"qwen3_next", {APR_LAYER_LINEAR, APR_LAYER_LINEAR}, {APR_FFN_EXPERTS, APR_FFN_EXPERTS}},
        {"nemotron_h", {APR_LAYER_MAMBA, APR_LAYER_MAMBA}, {APR_FFN_NONE, APR_FFN_NONE}},
        {"lfm2", {APR_LAYER_CONV, APR_LAYER_CONV}, {APR_FFN_DENSE, APR_FFN_DENSE}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        apr_hparams h = program_model_sizes(rows[i].family);
        program_model m;
        apr_error err = {0};
        h.layer_kinds = rows[i].mixers;
        h.ffn_kinds = rows[i].ffns;
        h.max_position_embeddings = N_LONG;
        h.vocab_size = 148;
        if (rows[i].ffns[0] != APR_FFN_EXPERTS) h.num_experts = 0;
        if (program_model_open(&m, &h, APR_F32, &err) != APR_OK) fail_msg("%s: %s", rows[i].family, err.text);
        run r = {.canonical = m.model};
        start(&r, NULL, N_LONG);
        check_long(&r, rows[i].family);
        apr_session_close(r.session);
        program_model_close(&m);
    }
}

/* ---- three value heads for each key head ---- */

/* Logits of a GGUF whose heads are taken to be in the order that it says, or in the other. */
static float *with_heads(const char *path, bool other_order)
{
    run r;
    open_model(&r, path);
    assert_true(r.canonical.hparams.tiled_value_heads);
    r.canonical.hparams.tiled_value_heads = !other_order;
    start(&r, NULL, N_TOKENS);
    float *const logits = logits_of(&r, N_TOKENS);
    close_run(&r);
    return logits;
}

/* Rows move whole, and so do blocks of 32 in the columns of ssm_out: there the two files hold the same numbers. Blocks of 256 hold
 * other heads together, which costs no more and no less. */
static void quantized_value_heads_are_run_in_ggmls_order(void **state)
{
    static const struct {
        const char *type;
        apr_dtype dtype;
        bool same_blocks;
    } rows[] = {{"q8_0", APR_Q8_0, true}, {"q4_0", APR_Q4_0, true}, {"q6_k", APR_Q6_K, false}, {"q4_k", APR_Q4_K, false}};
    (void)state;
    make("spellings", "qwen3_5_wide", NULL);
    float *const reference = logits_of_path(in_work("qwen3_5_wide"));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const size_t n = (size_t)N_TOKENS * 148;
        run r;
        convert_as(in_work("qwen3_5_wide"), in_work("w.gguf"), rows[i].type);
        convert_as(in_work("qwen3_5_wide"), in_work("w.apr"), rows[i].type);
        open_model(&r, in_work("w.gguf"));
        assert_int_equal(apr_model_find(&r.source, "blk.0.ssm_out.weight")->dtype, rows[i].dtype);
        close_run(&r);
        float *const grouped = logits_of_path(in_work("w.apr")), *const tiled = with_heads(in_work("w.gguf"), false);
        float *const wrong = with_heads(in_work("w.gguf"), true);
        const double cost = distance(grouped, reference, n), off = distance(tiled, reference, n), apart = distance(tiled, grouped, n);
        if (!(apart < (rows[i].same_blocks ? 2e-5 : 2 * cost))) fail_msg("%s: the GGUF is %g from the APR", rows[i].type, apart);
        if (!(off < 1.5 * cost)) fail_msg("%s: off by %g in ggml's order, by %g in ours", rows[i].type, off, cost);
        if (!(distance(wrong, reference, n) > 0.5)) fail_msg("%s: the order of heads changes nothing", rows[i].type);
        free(grouped);
        free(tiled);
        free(wrong);
    }
    free(reference);
}

/* ---- numbers beyond half precision ---- */

static bool contains(const char *name, const char *word) { return strstr(name, word) != NULL; }

/* What is multiplied with a gate becomes huge, and what follows brings it back. */
static void enlarge(void *user, const char *name, const int64_t *dims, int rank, float *values)
{
    const bool grows = contains(name, "up_proj") || contains(name, "v_proj") || contains(name, "in_proj_qkv");
    const bool shrinks = contains(name, "down_proj") || contains(name, "o_proj");
    int64_t n = 1;
    (void)user;
    for (int d = 0; d < rank; d++) n *= dims[d];
    for (int64_t i = 0; i < n; i++) values[i] *= grows ? 0x1p20f : shrinks ? 0x1p-20f : 1.0f;
}

static void activations_beyond_half_precision_stay_numbers(void **state)
{
    static const char *const families[] = {"qwen3", "qwen3_5", "qwen3_moe"};
    const family_edit edit = {.tensor = enlarge};
    (void)state;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        run ref, host;
        make("families", families[i], &edit);
        open_model(&ref, in_work(families[i]));
        open_model(&host, in_work(families[i]));
        start(&ref, &apr_ref_backend, N_TOKENS);
        start(&host, NULL, N_TOKENS);
        float *const reference = logits_of(&ref, N_TOKENS), *const logits = logits_of(&host, N_TOKENS);
        const double off = distance(logits, reference, N_TOKENS * host.width);
        if (!(off < 1e-4)) fail_msg("%s: off by %g", families[i], off);
        free(reference);
        free(logits);
        close_run(&ref);
        close_run(&host);
    }
}

/* ---- parameters ---- */

static const apr_op *first_op(const apr_program *p, apr_op_kind kind)
{
    for (size_t i = 0; i < p->n_ops; i++)
        if (p->ops[i].kind == kind) return &p->ops[i];
    fail_msg("no such operation");
    return NULL;
}

/* (dn + dr)^-1/2 (0.1 mscale_all_dim ln factor + 1)^2, with 0.707 and 1.0, from the checkpoint and from the GGUF's multiplier. */
static void yarn_scales_the_scores_of_latent_attention(void **state)
{
    static const struct {
        const char *family;
        double mscale_all_dim;
    } rows[] = {{"deepseek_v2", 0.707}, {"deepseek_v3", 1.0}};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const double m = 0.1 * rows[i].mscale_all_dim * log(4.0) + 1.0, scale = m * m / sqrt(16 + 8);
        make("families", rows[i].family, NULL);
        convert_as(in_work(rows[i].family), in_work("y.gguf"), NULL);
        for (int is_gguf = 0; is_gguf < 2; is_gguf++) {
            run r;
            open_model(&r, is_gguf ? in_work("y.gguf") : in_work(rows[i].family));
            start(&r, NULL, N_TOKENS);
            const apr_program *const p = apr_session_program(r.session);
            assert_float_equal(first_op(p, APR_OP_ATTEND)->args.attend.scale, scale, 1e-6);
            assert_float_equal(p->ropes[0].magnitude, 1.0, 1e-6); /* the pair is equal */
            close_run(&r);
        }
    }
}

/* Gemma 4's full layers are wider than the sliding ones, and turn only the first quarter of the pairs (j, j + d/2) of the whole head. */
static void proportional_rope_spans_the_wide_head(void **state)
{
    (void)state;
    make("families", "gemma4", NULL);
    convert_as(in_work("gemma4"), in_work("g.gguf"), NULL);
    for (int is_gguf = 0; is_gguf < 2; is_gguf++) {
        run r;
        open_model(&r, is_gguf ? in_work("g.gguf") : in_work("gemma4"));
        start(&r, NULL, N_TOKENS);
        const apr_program *const p = apr_session_program(r.session);
        const apr_hparams *const h = &r.canonical.hparams;
        const apr_rope_table *full = NULL, *sliding = NULL;
        assert_true(h->global_head_dim > h->head_dim);
        for (size_t t = 0; t < p->n_ropes; t++) {
            if (p->ropes[t].n_freqs == h->global_head_dim / 2) full = &p->ropes[t];
            if (p->ropes[t].n_freqs == h->head_dim / 2) sliding = &p->ropes[t];
        }
        assert_true(full != NULL && sliding != NULL);
        const int64_t turned = h->global_head_dim / 8;
        for (int64_t j = 0; j < full->n_freqs; j++)
            assert_float_equal(full->freqs[j], j < turned ? pow(h->rope_theta, -2.0 * (double)j / (double)h->global_head_dim) : 0.0, 1e-6);
        for (int64_t j = 0; j < sliding->n_freqs; j++) assert_true(sliding->freqs[j] > 0.0f);
        close_run(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_split_anywhere_is_the_same_text),       cmocka_unit_test(after_4096_tokens_steps_are_where_chunks_are),
        cmocka_unit_test(quantized_value_heads_are_run_in_ggmls_order), cmocka_unit_test(activations_beyond_half_precision_stay_numbers),
        cmocka_unit_test(yarn_scales_the_scores_of_latent_attention),   cmocka_unit_test(proportional_rope_spans_the_wide_head),
    };
    return cmocka_run_group_tests_name("family_traps", tests, make_text, remove_work);
}
