/* runtime/calibrate/loss_weights.h: the weights are the squared gradients of the loss of one drawn token each, over their mean, capped. */
#include "runtime/calibrate/loss_weights.h"

#include "runtime/session/heap.h"
#include "runtime/train/train.h"
#include "tests/support/program_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WINDOW = 8, N_WINDOWS = 6, N_IDS = WINDOW * N_WINDOWS, VOCABULARY = 96 };

typedef struct subject {
    program_model m;
    apr_session *session;
    apr_layer_inputs inputs;
    apr_loss_weights *weights;
    int32_t ids[N_IDS];
    uint8_t mixers[2], ffns[2];
} subject;

/* With a larger head the model is more certain of each token. */
static void scale_head(program_model *m, float by)
{
    const apr_tensor *const head = apr_model_find(&m->model, "lm_head.weight");
    float *const numbers = (float *)(uintptr_t)head->data;
    for (int64_t i = 0; i < apr_tensor_elems(head); i++) numbers[i] *= by;
}

/* Two layers whose head is not the embeddings. */
static void open_subject(subject *s, const char *architecture, uint8_t ffn, float head_scale)
{
    apr_hparams h = program_model_sizes(architecture);
    apr_session_options options = apr_session_defaults;
    apr_error err = {0};

    for (int i = 0; i < 2; i++) {
        s->mixers[i] = APR_LAYER_FULL;
        s->ffns[i] = ffn;
    }
    h.layer_kinds = s->mixers;
    h.ffn_kinds = s->ffns;
    if (ffn != APR_FFN_EXPERTS) h.num_experts = 0;
    if (program_model_open(&s->m, &h, APR_F32, &err) != APR_OK) fail_msg("%s", err.text);
    scale_head(&s->m, head_scale);
    options.n_ctx = WINDOW;
    options.kv_dtype = APR_F32;
    s->session = must_open_session(&s->m.model, &options);
    assert_int_equal(apr_layer_inputs_of(&s->inputs, s->session, NULL), APR_OK);
    for (int i = 0; i < N_IDS; i++) s->ids[i] = (i * 29 + i * i / 5) % VOCABULARY;
    if (apr_loss_weights_open(&s->weights, &s->m.model, &s->inputs, WINDOW, N_IDS, &err) != APR_OK) fail_msg("%s", err.text);
    assert_null(apr_loss_weights_of(s->weights, 0));
    if (apr_loss_weights_make(s->weights, s->ids, NULL, &err) != APR_OK) fail_msg("%s", err.text);
    assert_int_equal(apr_loss_weights_make(s->weights, s->ids, NULL, &err), APR_OK); /* they are there */
}

static void close_subject(subject *s)
{
    apr_loss_weights_close(s->weights);
    apr_layer_inputs_close(&s->inputs);
    apr_session_close(s->session);
    program_model_close(&s->m);
}

static const char *weight_of(const apr_program *p, size_t op)
{
    const int slot = p->ops[op].weight[0];
    return slot >= 0 ? p->weights[slot].name : "";
}

/* The layer input that the matrix of this name reads. */
static size_t input_of(const subject *s, const char *name)
{
    const apr_program *const p = apr_session_program(s->session);
    for (size_t i = 0; i < s->inputs.n_readers; i++)
        if (strstr(p->weights[s->inputs.readers[i].slot].name, name) != NULL) return s->inputs.readers[i].input;
    fail_msg("no input of '%s'", name);
    return 0;
}

/* --- which tokens were drawn: the head's weights say it, because |p - 1 at y|^2 = sum of p^2 - 2 p_y + 1 --- */

static void read_probabilities(subject *s, float *p)
{
    apr_error err = {0};
    for (int w = 0; w < N_WINDOWS; w++) {
        const apr_eval_output out = {.all_logits = true, .logits = p + w * WINDOW * VOCABULARY};
        apr_session_reset(s->session);
        if (apr_session_eval(s->session, s->ids + w * WINDOW, WINDOW, &out, &err) != APR_OK) fail_msg("%s", err.text);
    }
    for (int t = 0; t < N_IDS; t++) {
        float *const row = p + t * VOCABULARY;
        double sum = 0.0;
        for (int i = 0; i < VOCABULARY; i++) sum += exp((double)row[i]);
        for (int i = 0; i < VOCABULARY; i++) row[i] = (float)(exp((double)row[i]) / sum);
    }
}

static double square_with(const float *p, int y)
{
    double sum = 1.0 - 2.0 * (double)p[y];
    for (int i = 0; i < VOCABULARY; i++) sum += (double)p[i] * (double)p[i];
    return sum;
}

/* If the weights have this mean: the tokens, and how far the farthest weight is from that of any token. */
static double draw_with(const float *p, const float *weights, double mean, int *drawn)
{
    double worst = 0.0;
    for (int t = 0; t < N_IDS; t++) {
        double least = INFINITY;
        for (int y = 0; y < VOCABULARY; y++) {
            const double off = fabs(square_with(p + t * VOCABULARY, y) / mean - (double)weights[t]);
            if (off < least) drawn[t] = y;
            least = fmin(least, off);
        }
        worst = fmax(worst, least);
    }
    return worst;
}

static void find_drawn(const subject *s, const float *p, int *drawn)
{
    const float *const weights = apr_loss_weights_of(s->weights, input_of(s, "lm_head"));
    double best = INFINITY;

    for (int y = 0; y < VOCABULARY; y++) {
        int now[N_IDS];
        const double worst = draw_with(p, weights, square_with(p, y) / (double)weights[0], now);
        if (worst < best) memcpy(drawn, now, sizeof now);
        best = fmin(best, worst);
    }
    if (!(best < 2e-6)) fail_msg("the head's weights are those of no tokens: %g off", best);
}

/* --- the weights of all inputs, for these tokens --- */

static apr_status certain(void *user, int64_t first, int64_t n, float *to, apr_error *err)
{
    const int *const drawn = user;
    (void)err;
    for (int64_t r = 0; r < n; r++)
        for (int i = 0; i < VOCABULARY; i++) to[r * VOCABULARY + i] = i == drawn[first + r] ? 0.0f : -INFINITY;
    return APR_OK;
}

/* expected[t] += the squares of the operations whose weight has this name in it. */
static void add_squares(const subject *s, int *drawn, const char *name, double *expected)
{
    const apr_train_options options = {.n_tokens = WINDOW, .n_windows = N_WINDOWS, .n_threads = 2};
    const apr_train_teacher teacher = {.logits = certain, .user = drawn};
    apr_error err = {0};
    apr_train *t;
    double loss, found[N_IDS];
    int n_found = 0;

    if (apr_train_open(&t, &s->m.model, &options, &err) != APR_OK) fail_msg("%s", err.text);
    const apr_program *const p = apr_train_program(t);
    for (size_t op = 0; op < p->n_ops; op++) {
        if (strstr(weight_of(p, op), name) == NULL) continue;
        double **const squares = calloc(p->n_ops, sizeof *squares);
        squares[op] = found;
        if (apr_train_squares(t, s->ids, &teacher, squares, &loss, &err) != APR_OK) fail_msg("%s", err.text);
        for (int i = 0; i < N_IDS; i++) expected[i] += found[i];
        free(squares);
        n_found++;
    }
    assert_int_equal(n_found, 1);
    apr_train_close(t);
}

static void expect_weights(const subject *s, int *drawn, const char *input, const char *const *readers, int n_readers)
{
    const float *const weights = apr_loss_weights_of(s->weights, input_of(s, input));
    double expected[N_IDS] = {0}, sum = 0.0;

    for (int i = 0; i < n_readers; i++) add_squares(s, drawn, readers[i], expected);
    for (int t = 0; t < N_IDS; t++) sum += expected[t];
    for (int t = 0; t < N_IDS; t++) {
        const double w = fmin(expected[t] / sum * N_IDS, APR_LOSS_WEIGHT_CAP);
        if (!(fabs((double)weights[t] - w) <= 1e-3 * w)) fail_msg("%s, token %d: %g instead of %g", input, t, (double)weights[t], w);
    }
}

static void weights_are_squared_gradients_over_their_mean(void **state)
{
    static const char *const qkv[] = {"layers.0.self_attn.q_proj.weight", "layers.0.self_attn.k_proj.weight",
                                      "layers.0.self_attn.v_proj.weight"},
                             *const o[] = {"layers.1.self_attn.o_proj.weight"}, *const down[] = {"layers.0.mlp.down_proj.weight"};
    (void)state;
    subject s;
    float *const p = calloc(N_IDS * VOCABULARY, sizeof *p);
    int drawn[N_IDS];

    open_subject(&s, "llama", APR_FFN_DENSE, 1.0f);
    read_probabilities(&s, p);
    find_drawn(&s, p, drawn);
    expect_weights(&s, drawn, qkv[1], qkv, 3);
    expect_weights(&s, drawn, o[0], o, 1);
    expect_weights(&s, drawn, down[0], down, 1);
    free(p);
    close_subject(&s);
}

static void experts_have_the_weights_of_their_feed_forward(void **state)
{
    static const char *const experts[] = {"layers.0.mlp.experts"};
    (void)state;
    subject s;
    float *const p = calloc(N_IDS * VOCABULARY, sizeof *p);
    int drawn[N_IDS], n_inputs = 0;

    open_subject(&s, "qwen3_moe", APR_FFN_EXPERTS, 1.0f);
    read_probabilities(&s, p);
    find_drawn(&s, p, drawn);
    expect_weights(&s, drawn, experts[0], experts, 1);
    for (size_t i = 0; i + 1 < s.inputs.n_inputs; i++) { /* an expert's input, and its hidden rows */
        if (s.inputs.inputs[i].n_experts == 0 || s.inputs.inputs[i].is_expert_hidden) continue;
        assert_memory_equal(apr_loss_weights_of(s.weights, i), apr_loss_weights_of(s.weights, i + 1), N_IDS * sizeof(float));
        n_inputs++;
    }
    assert_int_equal(n_inputs, 2);
    free(p);
    close_subject(&s);
}

/* Where the model is certain of most tokens, few have nearly all of the gradient. */
static void no_weight_is_above_the_cap(void **state)
{
    (void)state;
    subject s;
    int n_capped = 0;
    open_subject(&s, "llama", APR_FFN_DENSE, 60.0f);
    for (size_t i = 0; i < s.inputs.n_inputs; i++) {
        const float *const w = apr_loss_weights_of(s.weights, i);
        double sum = 0.0, most = 0.0;
        for (int t = 0; t < N_IDS; t++) {
            assert_true(w[t] >= 0.0f);
            most = fmax(most, (double)w[t]);
            sum += (double)w[t];
        }
        assert_true(most <= APR_LOSS_WEIGHT_CAP);
        if (most < APR_LOSS_WEIGHT_CAP) assert_true(fabs(sum / N_IDS - 1.0) < 1e-5);
        else assert_true(sum < N_IDS);
        n_capped += most == APR_LOSS_WEIGHT_CAP;
    }
    assert_true(n_capped > 0);
    assert_int_equal(apr_loss_weights_bytes(s.weights), s.inputs.n_inputs * N_IDS * sizeof(float));
    close_subject(&s);
}

/* The lines of the pass are what it allocates, apart from tables and the weights. */
static void the_pass_allocates_what_it_says(void **state)
{
    (void)state;
    subject s;
    apr_loss_weights *w;
    open_subject(&s, "llama", APR_FFN_DENSE, 1.0f);
    assert_int_equal(apr_loss_weights_open(&w, &s.m.model, &s.inputs, WINDOW, N_IDS, NULL), APR_OK);
    const uint64_t before = apr_heap_in_use();
    s.ids[N_IDS - 1] = -1; /* the last window fails, so that the memory of the pass is still there */
    assert_int_equal(apr_loss_weights_make(w, s.ids, NULL, NULL), APR_E_USAGE);
    const uint64_t after = apr_heap_in_use(), planned = apr_loss_weights_pass_bytes(w);
    if (before != UINT64_MAX) {
        assert_true(after - before + (1 << 16) >= planned); /* what has the squares is freed */
        assert_true(after - before <= planned + (1 << 16));
    }
    apr_loss_weights_close(w);
    close_subject(&s);
}

static void ids_outside_the_vocabulary_are_refused(void **state)
{
    (void)state;
    subject s;
    apr_loss_weights *w;
    apr_error err = {0};
    open_subject(&s, "llama", APR_FFN_DENSE, 1.0f);
    s.ids[3] = VOCABULARY;
    assert_int_equal(apr_loss_weights_open(&w, &s.m.model, &s.inputs, WINDOW, N_IDS, &err), APR_OK);
    assert_int_equal(apr_loss_weights_make(w, s.ids, NULL, &err), APR_E_USAGE);
    assert_non_null(strstr(err.text, "token 3"));
    assert_null(apr_loss_weights_of(w, 0));
    apr_loss_weights_close(w);
    close_subject(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_squared_gradients_over_their_mean),
        cmocka_unit_test(experts_have_the_weights_of_their_feed_forward),
        cmocka_unit_test(no_weight_is_above_the_cap),
        cmocka_unit_test(the_pass_allocates_what_it_says),
        cmocka_unit_test(ids_outside_the_vocabulary_are_refused),
    };
    return cmocka_run_group_tests_name("loss_weights", tests, NULL, NULL);
}
