/* train_check.c - see train_check.h. */
#include "tests/support/train_check.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { VOCABULARY = 96, N_LAYERS = 3 };

const train_check_model train_check_models[N_TRAIN_CHECK_MODELS] = {
    {"qwen2", true, "biases, a tied head"},
    {"qwen3", false, "norms of heads"},
    {"gemma2", true, "soft caps, sliding windows, norms after layers, gelu"},
    {"olmo2", false, "norms after layers"},
    {"gpt2", true, "layer norms with biases, learned positions, no gates"},
};

void train_check_open_model(program_model *m, const train_check_model *of) { train_check_open_typed(m, of, APR_F32); }

void train_check_open_typed(program_model *m, const train_check_model *of, apr_dtype dtype)
{
    static const uint8_t mixers[N_LAYERS] = {APR_LAYER_FULL, APR_LAYER_SLIDING, APR_LAYER_FULL};
    static const uint8_t full[N_LAYERS] = {APR_LAYER_FULL, APR_LAYER_FULL, APR_LAYER_FULL};
    static const uint8_t ffns[N_LAYERS] = {APR_FFN_DENSE, APR_FFN_DENSE, APR_FFN_DENSE};
    apr_hparams h = program_model_sizes(of->architecture);
    apr_error err = {0};

    h.num_layers = N_LAYERS;
    h.layer_kinds = strcmp(of->architecture, "gemma2") == 0 ? mixers : full;
    h.ffn_kinds = ffns;
    h.sliding_window = 5;
    h.num_experts = 0;
    h.tie_word_embeddings = of->is_tied;
    if (program_model_open(m, &h, dtype, &err) != APR_OK) fail_msg("%s: %s", of->architecture, err.text);
}

const int32_t *train_check_ids(void)
{
    static int32_t ids[TRAIN_CHECK_ROWS];
    for (int i = 0; i < TRAIN_CHECK_ROWS; i++) ids[i] = (i * 37 + i * i) % VOCABULARY;
    return ids;
}

static float noise(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return 2.0f * (float)((double)(int32_t)(*seed >> 32) * 0x1p-31);
}

static apr_status give_noise(void *user, int64_t first, int64_t n, float *to, apr_error *err)
{
    (void)user, (void)err;
    for (int64_t r = 0; r < n; r++) {
        uint64_t seed = (uint64_t)(first + r) * 77 + 5;
        for (int i = 0; i < VOCABULARY; i++) to[r * VOCABULARY + i] = noise(&seed);
    }
    return APR_OK;
}

const apr_train_teacher train_check_teacher = {.logits = give_noise};

apr_train_options train_check_options(apr_train_device *device)
{
    return (apr_train_options){.n_tokens = TRAIN_CHECK_WINDOW, .n_windows = TRAIN_CHECK_WINDOWS, .n_threads = 1, .device = device};
}

apr_train *train_check_open(const apr_model *model, apr_train_device *device)
{
    const apr_train_options options = train_check_options(device);
    apr_error err = {0};
    apr_train *t;
    if (apr_train_open(&t, model, &options, &err) != APR_OK) fail_msg("%s", err.text);
    return t;
}

static apr_status take_gradient(void *user, const apr_tensor *tensor, const float *gradient, apr_error *err)
{
    train_gradients *const g = user;
    (void)err;
    for (size_t i = 0; i < g->n; i++)
        if (g->tensors[i] == tensor) memcpy(g->of[i], gradient, (size_t)apr_tensor_elems(tensor) * sizeof *gradient);
    return APR_OK;
}

train_gradients train_check_gradients(apr_train *t)
{
    train_gradients g = {0};
    const apr_train_weights weights = {.gradient = take_gradient, .user = &g};
    apr_error err = {0};

    g.tensors = apr_train_tensors(t, &g.n);
    g.of = calloc(g.n + 1, sizeof *g.of);
    for (size_t i = 0; i < g.n; i++) g.of[i] = calloc((size_t)apr_tensor_elems(g.tensors[i]) + 1, sizeof **g.of);
    if (apr_train_gradient(t, &weights, train_check_ids(), &train_check_teacher, &g.loss, &err) != APR_OK) fail_msg("%s", err.text);
    return g;
}

void train_check_close(train_gradients *g)
{
    for (size_t i = 0; i < g->n; i++) free(g->of[i]);
    free(g->of);
}

bool train_check_same_bits(const train_gradients *a, const train_gradients *b)
{
    bool is_same = a->n == b->n && a->loss == b->loss;
    for (size_t i = 0; i < a->n && is_same; i++)
        is_same = memcmp(a->of[i], b->of[i], (size_t)apr_tensor_elems(a->tensors[i]) * sizeof(float)) == 0;
    return is_same;
}

typedef struct squares {
    double of, off;
} squares;

static squares squares_of(const float *a, const float *b, int64_t n)
{
    squares s = {0};
    for (int64_t i = 0; i < n; i++) {
        s.of += (double)a[i] * (double)a[i];
        s.off += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    }
    return s;
}

/* Infinity where it is not a number: nothing hides that. */
static double ratio_of(squares s)
{
    const double ratio = s.off == 0.0 ? 0.0 : sqrt(s.off / s.of);
    return isfinite(ratio) ? ratio : INFINITY;
}

train_distances train_check_distances(const train_gradients *a, const train_gradients *b)
{
    train_distances d = {.name = "none"};
    squares all = {0};

    for (size_t i = 0; i < a->n; i++) {
        const squares own = squares_of(a->of[i], b->of[i], apr_tensor_elems(a->tensors[i]));
        all.of += own.of, all.off += own.off;
        if (ratio_of(own) <= d.worst) continue;
        d.worst = ratio_of(own);
        d.name = a->tensors[i]->name;
    }
    d.whole = ratio_of(all);
    return d;
}
