/* runtime/check/program_compare.h, weights.h: a model that was converted correctly to another type is still the model, for every type that
 * can be made; one that was broken a little is not, for any. */
#include "formats/base/random.h"
#include "runtime/check/compare.h"
#include "runtime/check/parity.h"
#include "runtime/check/program_compare.h"
#include "tests/support/edited_model.h"
#include "tests/support/fake_device.h"
#include "tests/support/family_model.h"
#include "tests/support/pipe_fixture.h"
#include "tests/support/work_folder.h"

#include <math.h>

static void near(double found, double wanted, double tolerance)
{
    if (!(fabs(found - wanted) <= tolerance)) fail_msg("%.17g is not %.17g", found, wanted);
}

/* --- scans --- */

static apr_tensor matrix(const char *name, const float *values, int64_t rows, int64_t columns)
{
    return (apr_tensor){.name = name,
                        .dtype = APR_F32,
                        .rank = 2,
                        .dims = {rows, columns},
                        .data = (const uint8_t *)values,
                        .n_bytes = (uint64_t)(rows * columns) * sizeof *values};
}

static void a_scan_finds_zeros_infinities_and_the_worst_row(void **state)
{
    (void)state;
    float reference[12] = {3, 4, 0, 0, 1, 2, 2, 0, 0, 0, 6, 8}, other[12];
    const apr_tensor was = matrix("w", reference, 3, 4);
    apr_tensor_scan scan;

    memcpy(other, reference, sizeof other);
    apr_tensor now = matrix("w", other, 3, 4);
    assert_int_equal(apr_scan_tensor(&now, &was, NULL, &scan, NULL), APR_OK);
    assert_true(scan.relative == 0.0 && scan.worst_row == 0.0 && scan.worst_row_at == -1 && !scan.all_zero && scan.n_nonfinite == 0);

    memset(other + 4, 0, 4 * sizeof *other); /* row 1 of size 3 is gone; all of it has sqrt(25 + 9 + 100) */
    assert_int_equal(apr_scan_tensor(&now, &was, NULL, &scan, NULL), APR_OK);
    near(scan.worst_row, 1.0, 1e-12);
    assert_int_equal(scan.worst_row_at, 1);
    near(scan.relative, 3.0 / sqrt(134.0), 1e-12);

    other[7] = INFINITY;
    other[2] = NAN;
    assert_int_equal(apr_scan_tensor(&now, NULL, NULL, &scan, NULL), APR_OK);
    assert_int_equal(scan.n_nonfinite, 2);
    assert_int_equal(scan.first_nonfinite, 2);

    memset(other, 0, sizeof other);
    assert_int_equal(apr_scan_tensor(&now, &was, NULL, &scan, NULL), APR_OK);
    assert_true(scan.all_zero);
    near(scan.relative, 1.0, 1e-12);

    now.dims[0] = 2;
    now.n_bytes = 32;
    apr_error err = {0};
    assert_int_equal(apr_scan_tensor(&now, &was, NULL, &scan, &err), APR_E_NO);
    assert_non_null(strstr(err.text, "[2, 4]"));
    now.dims[0] = 0;
    now.n_bytes = 0;
    assert_int_equal(apr_scan_tensor(&now, NULL, NULL, &scan, NULL), APR_OK);
    assert_false(scan.all_zero);
}

static apr_tensor packed_as(apr_dtype dtype, const apr_tensor *was, uint8_t *bytes)
{
    apr_tensor now = *was;
    const int64_t row_bytes = apr_row_bytes(dtype, was->dims[1]);
    for (int64_t r = 0; r < was->dims[0]; r++)
        apr_ref_codecs[dtype].encode((const float *)(const void *)was->data + r * was->dims[1], bytes + r * row_bytes, was->dims[1]);
    now.dtype = dtype;
    now.data = bytes;
    now.n_bytes = (uint64_t)(row_bytes * was->dims[0]);
    return now;
}

/* Rows of noise, each of another size: what a type may lose is measured row by row. */
static void fill_noise(float *values, int64_t rows, int64_t columns)
{
    uint32_t state = 1;
    for (int64_t i = 0; i < rows * columns; i++) {
        float sum = 0;
        for (int k = 0; k < 4; k++) sum += (float)((state = state * 1664525u + 1013904223u) >> 24) - 127.5f;
        values[i] = sum * 1e-4f * (float)(1 + i / columns % 7);
    }
}

static void a_row_may_lose_what_its_type_must_lose_and_no_more(void **state)
{
    (void)state;
    enum { ROWS = 32, COLUMNS = 512 };
    static const apr_dtype types[] = {APR_F16,  APR_BF16, APR_Q8_0, APR_Q4_0, APR_Q4_1, APR_Q5_0,
                                      APR_Q5_1, APR_Q4_K, APR_Q5_K, APR_Q6_K, APR_MXFP4};
    float *const values = malloc(ROWS * COLUMNS * sizeof *values), *const spoilt = malloc(ROWS * COLUMNS * sizeof *spoilt);
    uint8_t *const bytes = malloc(ROWS * COLUMNS * 4);

    fill_noise(values, ROWS, COLUMNS);
    const apr_tensor was = matrix("w", values, ROWS, COLUMNS), other = matrix("w", spoilt, ROWS, COLUMNS);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        apr_tensor_scan scan;
        const apr_tensor good = packed_as(types[t], &was, bytes);
        assert_int_equal(apr_scan_tensor(&good, &was, NULL, &scan, NULL), APR_OK);
        assert_true(scan.excess > 0.5 && scan.excess < 0.7 && scan.control == scan.relative); /* our own encoder: 1 / 1.6 */

        memcpy(spoilt, values, ROWS * COLUMNS * sizeof *values); /* two rows change places */
        memcpy(spoilt + 3 * COLUMNS, values + 10 * COLUMNS, COLUMNS * sizeof *values);
        memcpy(spoilt + 10 * COLUMNS, values + 3 * COLUMNS, COLUMNS * sizeof *values);
        const apr_tensor swapped = packed_as(types[t], &other, bytes);
        assert_int_equal(apr_scan_tensor(&swapped, &was, NULL, &scan, NULL), APR_OK);
        assert_true(scan.excess > 2.0 && (scan.excess_at == 3 || scan.excess_at == 10));

        memcpy(spoilt, values, ROWS * COLUMNS * sizeof *values); /* one block of one row is lost */
        memset(spoilt + 5 * COLUMNS + 256, 0, 256 * sizeof *values);
        const apr_tensor holed = packed_as(types[t], &other, bytes);
        assert_int_equal(apr_scan_tensor(&holed, &was, NULL, &scan, NULL), APR_OK);
        assert_true(scan.excess > 1.0 && scan.excess_at == 5);
    }
    free(values);
    free(spoilt);
    free(bytes);
}

/* A row that was scaled a little is found by what it adds to the control's error, where the other rows are the control's. */
static void one_row_that_was_scaled_by_a_hundredth_is_found(void **state)
{
    (void)state;
    enum { ROWS = 200, COLUMNS = 3584, ROW = 77 };
    static const apr_dtype types[] = {APR_BF16, APR_Q8_0, APR_Q6_K, APR_Q5_K, APR_Q4_K};
    float *const reference = malloc(ROWS * COLUMNS * sizeof *reference), *const scaled = malloc(COLUMNS * sizeof *scaled);
    uint64_t random = 1;

    for (int i = 0; i < ROWS * COLUMNS; i++) { /* four uniform numbers: nearly normal */
        const uint64_t r = apr_random(&random);
        reference[i] = ((float)(r & 0xffff) + (float)(r >> 16 & 0xffff) + (float)(r >> 32 & 0xffff) + (float)(r >> 48) - 131070.0f) / 1e6f;
    }
    for (int i = 0; i < COLUMNS; i++) scaled[i] = 1.01f * reference[ROW * COLUMNS + i];
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        const size_t row_bytes = (size_t)apr_row_bytes(types[k], COLUMNS);
        uint8_t *const blocks = malloc(ROWS * row_bytes);
        const apr_tensor was = matrix("w", reference, ROWS, COLUMNS);
        apr_tensor now = was;
        apr_tensor_scan scan;

        for (size_t r = 0; r < ROWS; r++) apr_host_codecs()[types[k]].encode(reference + r * COLUMNS, blocks + r * row_bytes, COLUMNS);
        now.dtype = types[k];
        now.data = blocks;
        now.n_bytes = ROWS * row_bytes;
        assert_int_equal(apr_scan_tensor(&now, &was, NULL, &scan, NULL), APR_OK);
        assert_true(scan.excess <= 1.0);
        apr_host_codecs()[types[k]].encode(scaled, blocks + ROW * row_bytes, COLUMNS);
        assert_int_equal(apr_scan_tensor(&now, &was, NULL, &scan, NULL), APR_OK);
        if (!(scan.excess > 1.0) || scan.excess_at != ROW) fail_msg("%s: not found, %g", apr_dtypes[types[k]].name, scan.excess);
        free(blocks);
    }
    free(reference);
    free(scaled);
}

static void what_a_type_holds_must_be_exact(void **state)
{
    (void)state;
    float reference[4] = {1.0f, 0.5f, -2.0f, 3.0f}, other[4] = {1.0f, 0.5f, -2.0f, 3.0f};
    apr_tensor was = matrix("model.norm.weight", reference, 1, 4), now = matrix("model.norm.weight", other, 1, 4);
    apr_tensor_scan scan;

    assert_int_equal(apr_scan_tensor(&now, &was, NULL, &scan, NULL), APR_OK);
    assert_true(scan.excess == 0.0);
    other[1] = 0.50000006f;
    assert_int_equal(apr_scan_tensor(&now, &was, NULL, &scan, NULL), APR_OK);
    assert_true(scan.excess > 0.0 && scan.excess < 1.0); /* a vector may have been computed there and back */
    other[1] = 0.500005f;
    assert_int_equal(apr_scan_tensor(&now, &was, NULL, &scan, NULL), APR_OK);
    assert_true(scan.excess > 1.0);
    other[1] = 0.50000006f;
    was = matrix("model.norm.weight", reference, 2, 2), now = matrix("model.norm.weight", other, 2, 2);
    assert_int_equal(apr_scan_tensor(&now, &was, NULL, &scan, NULL), APR_OK);
    assert_true(isinf(scan.excess)); /* no matrix is */
}

/* --- judging --- */

enum { N_IDS = 96 };

typedef struct judged {
    bool facts, weights, operations, divergence; /* passed */
    double kl, bound, excess;
    char far[512];
} judged;

static void check_divergence(judged *j, apr_session *reference, apr_session *other, const apr_weights *w, const int32_t *ids)
{
    apr_divergence d, control = {0};
    apr_session *s = NULL;
    apr_error err = {0};

    assert_int_equal(apr_compare_models(reference, other, ids, N_IDS, N_IDS, NULL, NULL, &d, &err), APR_OK);
    assert_true(w->has_control);
    if (apr_session_open_like(&s, &w->control, reference, &err) != APR_OK) fail_msg("%s", err.text);
    assert_int_equal(apr_compare_models(reference, s, ids, N_IDS, N_IDS, NULL, NULL, &control, &err), APR_OK);
    j->kl = d.mean;
    j->bound = apr_divergence_bound(&control);
    j->divergence = d.mean <= j->bound;
    apr_divergence_close(&d);
    apr_divergence_close(&control);
    apr_session_close(s);
}

/* thorough: also operation by operation, and the divergence. */
static judged compare_with(const apr_model *truth_model, const apr_model *other_model, bool thorough)
{
    apr_session *const reference = edited_model_session(truth_model, 128), *const other = edited_model_session(other_model, 128);
    static const int64_t positions[] = {0, 64};
    apr_parity_options options = {.positions = positions, .n_positions = 2, .n_batch = 16, .fp16_above = INT64_MAX};
    apr_parity_result result = {0};
    apr_error err = {0};
    int32_t ids[N_IDS];
    apr_weights w;
    judged j = {.operations = true, .divergence = true};

    for (int i = 0; i < N_IDS; i++) ids[i] = (i * 37 + i * i * 11 + 5) % 160;
    j.facts = apr_programs_compare(reference, other, NULL) == APR_OK;
    if (apr_weights_compare(&w, reference, other, thorough ? (uint64_t)1 << 30 : 0, NULL, &err) != APR_OK) fail_msg("%s", err.text);
    j.weights = w.n_missing + w.n_damaged + w.n_far == 0;
    j.excess = w.worst != NULL ? w.worst->scan.excess : 0.0;
    snprintf(j.far, sizeof j.far, "%s", w.far);
    options.weights = &w;
    options.layer = APR_PARITY_ALL_LAYERS;
    if (thorough) {
        if (apr_parity_run(reference, other, ids, N_IDS, &options, &result, &err) != APR_OK) fail_msg("%s", err.text);
        j.operations = !result.failed;
        check_divergence(&j, reference, other, &w, ids);
    }
    apr_parity_result_close(&result);
    apr_weights_close(&w);
    apr_session_close(reference);
    apr_session_close(other);
    return j;
}

/* Every type that can be made, and two mixtures of them. */
static const apr_dtype made_types[][2] = {
    {APR_F16, APR_F16},   {APR_BF16, APR_BF16},   {APR_F8_E4M3, APR_F8_E4M3}, {APR_Q8_0, APR_Q8_0},  {APR_Q4_0, APR_Q4_0},
    {APR_Q4_1, APR_Q4_1}, {APR_Q5_0, APR_Q5_0},   {APR_Q5_1, APR_Q5_1},       {APR_Q4_K, APR_Q4_K},  {APR_Q5_K, APR_Q5_K},
    {APR_Q6_K, APR_Q6_K}, {APR_MXFP4, APR_MXFP4}, {APR_Q4_K, APR_Q6_K},       {APR_MXFP4, APR_Q8_0},
};

/* all: every model_break of every type; otherwise one of each type, in turn. */
static void check_every_type(const apr_model *reference, const char *name, bool all)
{
    for (size_t t = 0; t < sizeof made_types / sizeof *made_types; t++) {
        edited_model good;
        edited_model_open(&good, reference, NULL, made_types[t][0], made_types[t][1], BREAK_NONE);
        for (model_break how = BREAK_NONE; how < N_BREAKS; how++) {
            edited_model other;
            if (!all && how != BREAK_NONE && how != 1 + t % (N_BREAKS - 1)) continue;
            edited_model_open(&other, reference, &good, made_types[t][0], made_types[t][1], how);
            const judged j = compare_with(reference, &other.model, how == BREAK_NONE);
            const bool passed = j.facts && j.weights && j.operations && j.divergence;
            if (passed != (how == BREAK_NONE))
                fail_msg("%s, %s and %s, %s: facts %d, weights %d (%.3g; %s), operations %d, KL %.3g of %.3g", name,
                         apr_dtypes[made_types[t][0]].name, apr_dtypes[made_types[t][1]].name, break_names[how], j.facts, j.weights,
                         j.excess, j.far, j.operations, j.kl, j.bound);
            /* and by the check that says what it is */
            assert_int_equal(j.facts, how != BREAK_THETA_DOUBLED);
            assert_int_equal(j.weights, how != BREAK_NORM_LEFT_OUT && how != BREAK_HEADS_SWAPPED);
            edited_model_close(&other);
        }
        edited_model_close(&good);
    }
}

/* A llama wide enough for blocks of 256, its weights by formula. */
static void write_wide_llama(int seed)
{
    static const char config[] = "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":256,\"head_dim\":64,"
                                 "\"num_attention_heads\":4,\"num_key_value_heads\":1,\"num_hidden_layers\":2,\"intermediate_size\":256,"
                                 "\"vocab_size\":160,\"rms_norm_eps\":1e-6,\"rope_theta\":10000.0,\"max_position_embeddings\":512,"
                                 "\"hidden_act\":\"silu\",\"tie_word_embeddings\":false}";
    static const struct {
        const char *name;
        int rows, columns;
    } parts[] = {{"self_attn.q_proj", 256, 256}, {"self_attn.k_proj", 64, 256}, {"self_attn.v_proj", 64, 256},
                 {"self_attn.o_proj", 256, 256}, {"mlp.gate_proj", 256, 256},   {"mlp.up_proj", 256, 256},
                 {"mlp.down_proj", 256, 256}};
    char json[8192];
    int n = snprintf(json, sizeof json,
                     "{\"seed\":%d,\"dtype\":\"BF16\",\"tensors\":{\"model.embed_tokens.weight\":[[160,256],0,0.7],\"lm_head.weight\":"
                     "[[160,256],0,0.08],\"model.norm.weight\":[[256],1,0.2]",
                     seed);
    for (int layer = 0; layer < 2; layer++) {
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
            n += snprintf(json + n, sizeof json - (size_t)n, ",\"model.layers.%d.%s.weight\":[[%d,%d],0,%g]", layer, parts[i].name,
                          parts[i].rows, parts[i].columns, 1.2 / sqrt(parts[i].columns));
        n += snprintf(
            json + n, sizeof json - (size_t)n,
            ",\"model.layers.%d.input_layernorm.weight\":[[256],1,0.2],\"model.layers.%d.post_attention_layernorm.weight\":[[256],1,0.2]",
            layer, layer);
    }
    n += snprintf(json + n, sizeof json - (size_t)n, "}}");
    assert_true(n < (int)sizeof json);
    mkdir(in_work("wide"), 0777);
    write_file(in_work("wide/tensors.json"), json, (size_t)n);
    write_file(in_work("wide/config.json"), config, sizeof config - 1);
}

static void a_broken_random_model_fails_for_every_type(void **state)
{
    (void)state;
    apr_model reference;
    apr_error err = {0};
    write_wide_llama(7);
    if (family_write(in_work("wide"), in_work("wide7"), NULL, &err) != APR_OK) fail_msg("%s", err.text);
    if (apr_model_open(&reference, in_work("wide7"), &err) != APR_OK) fail_msg("%s", err.text);
    check_every_type(&reference, "random llama", true);
    apr_model_close(&reference);
}

static void a_trained_model_passes_in_every_type_and_fails_when_it_is_broken(void **state)
{
    (void)state;
    apr_model reference;
    assert_int_equal(apr_model_open(&reference, "tests/data/tiny-qwen2", NULL), APR_OK);
    check_every_type(&reference, "tiny-qwen2", false);
    apr_model_close(&reference);
}

/* --- meaning, not slots --- */

/* Llama 3's scaling in the one model, divisors in a tensor of the other: the programs have other slots. On top, a bias that only one has.
 */
static void make_with_divisors(edited_model *m, const apr_model *reference, float spoil, float bias)
{
    const apr_session *const s = edited_model_session(reference, 128);
    const int64_t n = reference->hparams.rotary_dim / 2;
    float *const scaled = malloc((size_t)n * sizeof *scaled);

    apr_trace_frequencies(s, 0, scaled);
    edited_model_open(m, reference, NULL, APR_Q4_0, APR_Q4_0, BREAK_NONE);
    apr_model_close(&m->model);
    m->model = (apr_model){.path = "made", .naming = reference->naming, .hparams = reference->hparams, .tensors = m->memory[0]};
    m->model.tensors = realloc(m->memory[0], (reference->n_tensors + 2) * sizeof *m->model.tensors);
    m->memory[0] = m->model.tensors;
    m->model.hparams.rope.kind = APR_ROPE_PLAIN;
    apr_tensor *const divisors = &m->model.tensors[reference->n_tensors], *const extra = divisors + 1;
    float *const values = edited_model_memory(m, (size_t)n * sizeof *values), *const biases = edited_model_memory(
                                                                                  m,
                                                                                  (size_t)reference->hparams.hidden_size * sizeof *biases);
    for (int64_t j = 0; j < n; j++)
        values[j] = 1.0f / powf((float)reference->hparams.rope_theta, (float)(2 * j) / (float)(2 * n)) / scaled[j];
    values[n - 1] *= spoil;
    biases[3] = bias;
    *divisors = (apr_tensor){.name = "rope_freqs.weight", .dtype = APR_F32, .rank = 1, .dims = {n}, .data = (const uint8_t *)values};
    divisors->n_bytes = (uint64_t)n * sizeof *values;
    *extra = (apr_tensor){.name = "model.layers.0.self_attn.o_proj.bias", .dtype = APR_F32, .rank = 1, .data = (const uint8_t *)biases};
    extra->dims[0] = reference->hparams.hidden_size;
    extra->n_bytes = (uint64_t)extra->dims[0] * sizeof *biases;
    m->model.n_tensors = reference->n_tensors + 2;
    assert_int_equal(apr_model_index_names(&m->model, NULL), APR_OK);
    free(scaled);
    apr_session_close((apr_session *)(uintptr_t)s);
}

static void weights_that_only_one_model_has_are_compared_by_meaning(void **state)
{
    (void)state;
    apr_model reference;
    edited_model other;

    assert_int_equal(apr_model_open(&reference, "tests/data/tiny-llama", NULL), APR_OK);
    assert_int_equal(reference.hparams.rope.kind, APR_ROPE_LLAMA3);
    make_with_divisors(&other, &reference, 1.0f, 0.0f);
    judged j = compare_with(&reference, &other.model, true);
    assert_true(j.facts && j.weights && j.operations && j.divergence);
    j = compare_with(&other.model, &reference, false); /* and the other way round */
    assert_true(j.facts && !j.weights);                /* bf16 that comes of q4_0 is not what q4_0 holds */
    edited_model_close(&other);

    make_with_divisors(&other, &reference, 1.01f, 0.0f);
    j = compare_with(&reference, &other.model, true);
    assert_true(!j.facts && j.weights);
    edited_model_close(&other);

    make_with_divisors(&other, &reference, 1.0f, 5.0f);
    j = compare_with(&reference, &other.model, true);
    assert_true(j.facts && !j.weights && !j.divergence);
    edited_model_close(&other);
    apr_model_close(&reference);
}

static void no_control_is_made_beyond_its_memory(void **state)
{
    (void)state;
    apr_model reference;
    apr_weights w;
    edited_model other;

    assert_int_equal(apr_model_open(&reference, "tests/data/tiny-llama", NULL), APR_OK);
    edited_model_open(&other, &reference, NULL, APR_Q8_0, APR_Q8_0, BREAK_NONE);
    apr_session *const a = edited_model_session(&reference, 128), *const b = edited_model_session(&other.model, 128);
    assert_int_equal(apr_weights_compare(&w, a, b, 1000, NULL, NULL), APR_OK);
    assert_true(!w.has_control && w.control_bytes > 100000 && w.n_far == 0 && !w.unchanged);
    apr_weights_close(&w);
    apr_session_close(a);
    apr_session_close(b);
    edited_model_close(&other);
    apr_model_close(&reference);
}

/* --- the control on a GPU: a session of the fake device, whose codecs are those of the pipe's fake --- */

static apr_status open_on_fake(apr_cuda_device *device, const apr_cuda_worker_sizes *sizes, apr_cuda_worker **worker, apr_error *err)
{
    (void)device;
    return fake_codecs.open_worker(fake_codecs_devices()[0], sizes, worker, err);
}

static apr_session *session_on_fake(const apr_model *model, const apr_cuda_api *cuda)
{
    apr_session_options options = apr_session_defaults;
    apr_error err = {0};
    apr_session *s;
    options.n_ctx = 128;
    options.kv_dtype = APR_F32;
    options.n_logits = 32;
    options.cuda = cuda;
    if (apr_session_open(&s, model, &options, &err) != APR_OK) fail_msg("%s", err.text);
    return s;
}

static void same_pairs(const apr_weights *a, const apr_weights *b)
{
    assert_int_equal(a->n_pairs, b->n_pairs);
    assert_true(a->has_control && b->has_control);
    assert_int_equal(a->control.n_tensors, b->control.n_tensors);
    for (size_t i = 0; i < a->n_pairs; i++) {
        const apr_tensor_scan *const x = &a->pairs[i].scan, *const y = &b->pairs[i].scan;
        assert_true(x->relative == y->relative && x->worst_row == y->worst_row && x->excess == y->excess && x->excess_at == y->excess_at);
        if (!isnan(x->control)) assert_true(x->control == y->control);
    }
    for (size_t i = 0; i < a->control.n_tensors; i++) {
        const apr_tensor *const x = &a->control.tensors[i], *const y = &b->control.tensors[i];
        assert_int_equal(x->n_bytes, y->n_bytes);
        assert_memory_equal(x->data, y->data, x->n_bytes);
        if (x->scale != NULL) assert_memory_equal(x->scale->data, y->scale->data, x->scale->n_bytes);
    }
}

static void a_gpu_makes_the_same_control(void **state)
{
    (void)state;
    static const apr_dtype types[] = {APR_Q4_K, APR_Q8_0, APR_F8_E4M3, APR_MXFP4};
    apr_cuda_codecs codecs = fake_codecs;
    apr_cuda_api cuda = *fake_device();
    apr_model reference;

    codecs.open_worker = open_on_fake;
    cuda.codecs = &codecs;
    assert_int_equal(apr_model_open(&reference, "tests/data/tiny-llama", NULL), APR_OK);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        edited_model other;
        apr_weights w, on_gpu;
        apr_error err = {0};
        edited_model_open(&other, &reference, NULL, types[i], types[i], BREAK_NONE);
        apr_session *const a = edited_model_session(&reference, 128), *const b = edited_model_session(&other.model, 128);
        apr_session *const c = session_on_fake(&other.model, &cuda);
        const int before = fake_codecs_is.n_started;

        assert_int_equal(apr_weights_compare(&w, a, b, (uint64_t)1 << 30, NULL, NULL), APR_OK);
        assert_int_equal(fake_codecs_is.n_started, before);
        assert_int_equal(apr_weights_compare(&on_gpu, a, c, (uint64_t)1 << 30, NULL, NULL), APR_OK);
        assert_true(fake_codecs_is.n_started > before);
        assert_int_equal(fake_codecs_is.n_open, 0);
        same_pairs(&w, &on_gpu);
        apr_weights_close(&on_gpu);

        fake_codecs_is.workers_free = 0; /* a full GPU leaves it to the host */
        assert_int_equal(apr_weights_compare(&on_gpu, a, c, (uint64_t)1 << 30, NULL, NULL), APR_OK);
        same_pairs(&w, &on_gpu);
        apr_weights_close(&on_gpu);
        fake_codecs_is.workers_free = 1000;

        fake_codecs_is.fail_at = fake_codecs_is.n_started + 2; /* one that breaks ends the comparison */
        assert_int_equal(apr_weights_compare(&on_gpu, a, c, (uint64_t)1 << 30, NULL, &err), APR_E_DEVICE);
        assert_string_equal(err.text, "the device broke");
        assert_int_equal(fake_codecs_is.n_open, 0);
        fake_codecs_is.fail_at = 0;
        apr_weights_close(&on_gpu);
        apr_weights_close(&w);
        apr_session_close(a);
        apr_session_close(b);
        apr_session_close(c);
        edited_model_close(&other);
    }
    apr_model_close(&reference);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_scan_finds_zeros_infinities_and_the_worst_row),
        cmocka_unit_test(a_row_may_lose_what_its_type_must_lose_and_no_more),
        cmocka_unit_test(one_row_that_was_scaled_by_a_hundredth_is_found),
        cmocka_unit_test(what_a_type_holds_must_be_exact),
        cmocka_unit_test(a_broken_random_model_fails_for_every_type),
        cmocka_unit_test(a_trained_model_passes_in_every_type_and_fails_when_it_is_broken),
        cmocka_unit_test(weights_that_only_one_model_has_are_compared_by_meaning),
        cmocka_unit_test(no_control_is_made_beyond_its_memory),
        cmocka_unit_test(a_gpu_makes_the_same_control),
    };
    return cmocka_run_group_tests_name("weights", tests, make_work, remove_work);
}
