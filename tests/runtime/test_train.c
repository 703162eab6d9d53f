/* runtime/train/train.h: the pass computes what a session computes; its gradients are the differences of its loss, in float64, for every
 * family and each way to mix tokens; and its numbers depend on neither threads nor chunks. */
#include "runtime/program/ability.h"
#include "runtime/session/heap.h"
#include "runtime/train/train.h"
#include "tests/support/program_model.h"
#include "tests/support/sanitizer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WINDOW = 8, N_WINDOWS = 2, N_ROWS = WINDOW * N_WINDOWS, VOCABULARY = 96 };

static int32_t ids[N_ROWS];

static int make_text(void **state)
{
    (void)state;
    for (int i = 0; i < N_ROWS; i++) ids[i] = (i * 37 + i * i) % VOCABULARY;
    return 0;
}

static double noise(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(int32_t)(*seed >> 32) * 0x1p-31;
}

static apr_status teacher_logits(void *user, int64_t first, int64_t n, float *to, apr_error *err)
{
    (void)user;
    (void)err;
    for (int64_t r = 0; r < n; r++) {
        uint64_t seed = (uint64_t)(first + r) * 77 + 5;
        for (int i = 0; i < VOCABULARY; i++) to[r * VOCABULARY + i] = 2.0f * (float)noise(&seed);
    }
    return APR_OK;
}

static const apr_train_teacher teacher = {.logits = teacher_logits};

/* --- weights that a test moves --- */

typedef struct moved_weights {
    const apr_tensor *const *tensors;
    size_t n;
    float **stored, **values, **gradients; /* [n] */
    double *sizes;                         /* [n] root mean squares of the gradients */
    int *n_given;                          /* [n] */
} moved_weights;

static size_t find(const moved_weights *w, const apr_tensor *tensor)
{
    for (size_t i = 0; i < w->n; i++)
        if (w->tensors[i] == tensor) return i;
    fail_msg("tensor '%s' is not listed", tensor->name);
    return 0;
}

static apr_status give_values(void *user, const apr_tensor *tensor, float *to, apr_error *err)
{
    const moved_weights *const w = user;
    (void)err;
    memcpy(to, w->values[find(w, tensor)], (size_t)apr_tensor_elems(tensor) * sizeof *to);
    return APR_OK;
}

static double root_mean_square(const float *x, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sqrt(sum / (double)n);
}

static apr_status take_gradient(void *user, const apr_tensor *tensor, const float *gradient, apr_error *err)
{
    moved_weights *const w = user;
    const size_t i = find(w, tensor);
    (void)err;
    memcpy(w->gradients[i], gradient, (size_t)apr_tensor_elems(tensor) * sizeof *gradient);
    w->sizes[i] = root_mean_square(gradient, apr_tensor_elems(tensor));
    w->n_given[i]++;
    return APR_OK;
}

static moved_weights open_weights(const apr_train *t)
{
    moved_weights w = {0};
    w.tensors = apr_train_tensors(t, &w.n);
    w.stored = calloc(w.n + 1, sizeof *w.stored);
    w.values = calloc(w.n + 1, sizeof *w.values);
    w.gradients = calloc(w.n + 1, sizeof *w.gradients);
    w.sizes = calloc(w.n + 1, sizeof *w.sizes);
    w.n_given = calloc(w.n + 1, sizeof *w.n_given);
    for (size_t i = 0; i < w.n; i++) {
        const size_t n = (size_t)apr_tensor_elems(w.tensors[i]);
        w.values[i] = calloc(n, sizeof **w.values);
        w.gradients[i] = calloc(n, sizeof **w.gradients);
        w.stored[i] = calloc(n, sizeof **w.stored);
        apr_decode_rows(w.tensors[i], 0, apr_tensor_rows(w.tensors[i]), w.stored[i]);
        memcpy(w.values[i], w.stored[i], n * sizeof **w.values);
    }
    return w;
}

static void close_weights(moved_weights *w)
{
    for (size_t i = 0; i < w->n; i++) {
        free(w->stored[i]);
        free(w->values[i]);
        free(w->gradients[i]);
    }
    free(w->stored);
    free(w->values);
    free(w->gradients);
    free(w->sizes);
    free(w->n_given);
}

static apr_train_weights callbacks(moved_weights *w)
{
    return (apr_train_weights){.values = give_values, .gradient = take_gradient, .user = w};
}

static apr_train *open_train(const apr_model *model, bool float64, int n_threads, int64_t n_logits)
{
    const apr_train_options options = {
        .n_tokens = WINDOW, .n_windows = N_WINDOWS, .n_threads = n_threads, .n_logits = n_logits, .float64 = float64};
    apr_error err = {0};
    apr_train *t;
    if (apr_train_open(&t, model, &options, &err) != APR_OK) fail_msg("%s: %s", model->hparams.architecture, err.text);
    return t;
}

static double loss_of(apr_train *t, moved_weights *w)
{
    const apr_train_weights weights = callbacks(w);
    apr_error err = {0};
    double loss = 0.0;
    if (apr_train_loss(t, &weights, ids, &teacher, &loss, NULL, &err) != APR_OK) fail_msg("%s", err.text);
    return loss;
}

static double gradient_of(apr_train *t, moved_weights *w)
{
    const apr_train_weights weights = callbacks(w);
    apr_error err = {0};
    double loss = 0.0;
    if (apr_train_gradient(t, &weights, ids, &teacher, &loss, &err) != APR_OK) fail_msg("%s", err.text);
    return loss;
}

/* --- every family --- */

typedef void (*family_check)(program_model *m, const char *what);

/* Layers that mix tokens in these ways. */
static bool open_layers(program_model *m, const char *architecture, const uint8_t *mixers, const uint8_t *ffns, int64_t n, bool tied)
{
    apr_hparams h = program_model_sizes(architecture);

    h.num_layers = n;
    h.layer_kinds = mixers;
    h.ffn_kinds = ffns;
    h.sliding_window = 5;
    h.attention_chunk_size = 6;
    h.index_topk = 32;
    h.tie_word_embeddings = tied;
    if (ffns[0] != APR_FFN_EXPERTS) h.num_experts = 0;
    return program_model_open(m, &h, APR_F32, NULL) == APR_OK;
}

static bool with_layer(const char *architecture, uint8_t mixer, uint8_t ffn, bool tied, family_check check)
{
    program_model m;
    char what[96];

    if (!open_layers(&m, architecture, &mixer, &ffn, 1, tied)) return false;
    snprintf(what, sizeof what, "%s, a layer of kind %d, feed-forward %d", architecture, mixer, ffn);
    check(&m, what);
    program_model_close(&m);
    return true;
}

/* Each way to mix tokens that a family has, with a dense feed-forward and with experts by turns. */
static int with_layers(const char *architecture, family_check check)
{
    static const uint8_t orders[2][3] = {{APR_FFN_EXPERTS, APR_FFN_DENSE, APR_FFN_NONE}, {APR_FFN_DENSE, APR_FFN_EXPERTS, APR_FFN_NONE}};
    int n = 0;
    for (uint8_t mixer = 0; mixer <= APR_LAYER_NONE; mixer++)
        for (int i = 0; i < 3; i++)
            if (with_layer(architecture, mixer, orders[mixer % 2][i], mixer % 2 == 0, check)) {
                n++;
                break;
            }
    return n;
}

/* Under a sanitizer every second family from `first` on. */
static void with_families(size_t first, family_check check)
{
    const size_t step = APR_HAS_SANITIZER ? 2 : 1;
    size_t n_families = 0;
    for (size_t i = first % step; i < apr_n_families; i += step) {
        if (apr_family_ability(apr_families[i], &apr_ref_backend) != APR_ABLE_RUN) continue;
        if (with_layers(apr_families[i]->types[0].name, check) == 0) fail_msg("%s: no layers at all", apr_families[i]->name);
        n_families++;
    }
    assert_true(n_families >= 30 / step);
}

/* --- forward: the logits of a session --- */

static void check_forward(program_model *m, const char *what)
{
    static float logits[N_ROWS * VOCABULARY], reference[WINDOW * VOCABULARY];
    apr_session_options options = apr_session_defaults;
    apr_train *const t = open_train(&m->model, false, 2, 0);
    apr_error err = {0};

    options.n_ctx = 32;
    options.kv_dtype = APR_F32;
    options.backend = &apr_ref_backend;
    apr_session *const s = must_open_session(&m->model, &options);
    if (apr_train_forward(t, NULL, ids, &err) != APR_OK || apr_train_logits(t, NULL, 0, N_ROWS, logits, &err) != APR_OK)
        fail_msg("%s: %s", what, err.text);
    for (int window = 0; window < N_WINDOWS; window++) {
        const apr_eval_output out = {.all_logits = true, .logits = reference};
        double most = 0.0, off = 0.0;
        apr_session_reset(s);
        assert_int_equal(apr_session_eval(s, ids + window * WINDOW, WINDOW, &out, &err), APR_OK);
        for (int i = 0; i < WINDOW * VOCABULARY; i++) {
            most = fmax(most, fabs((double)reference[i]));
            off = fmax(off, fabs((double)reference[i] - (double)logits[window * WINDOW * VOCABULARY + i]));
        }
        if (!(off <= 2e-5 * most)) fail_msg("%s: logits differ by %g of %g", what, off, most);
    }
    apr_session_close(s);
    apr_train_close(t);
}

static void a_pass_computes_what_a_session_does(void **state)
{
    (void)state;
    with_families(0, check_forward);
}

/* --- backward: differences of the loss --- */

/* Steps are longer in tensors with small gradients, so that an error in any of them shows. */
static double step_of(double size, double largest) { return 2e-6 * fmin(fmax(largest / fmax(size, 1e-30), 1.0), 20.0); }

/* Moves tensors [first, end) along a random direction, up or down. Returns the change that the gradient says, and its deviation. */
static double move(moved_weights *w, size_t first, size_t end, uint64_t seed, double sign, double *deviation)
{
    double sum = 0.0, square = 0.0, largest = 0.0;
    for (size_t i = first; i < end; i++) largest = fmax(largest, w->sizes[i]);
    for (size_t i = first; i < end; i++) {
        const double length = step_of(w->sizes[i], largest);
        for (int64_t k = 0; k < apr_tensor_elems(w->tensors[i]); k++) {
            w->values[i][k] = (float)((double)w->stored[i][k] + sign * length * noise(&seed));
            const double share = (double)w->gradients[i][k] * ((double)w->values[i][k] - (double)w->stored[i][k]);
            sum += share;
            square += share * share;
        }
    }
    *deviation = sqrt(square);
    return sum;
}

/* How far the difference of the loss is from what the gradient says, relative to that or to its usual size. */
static double direction_error(apr_train *t, moved_weights *w, size_t first, size_t end, uint64_t seed)
{
    double deviation;
    double expected = move(w, first, end, seed, 1.0, &deviation);
    const double above = loss_of(t, w);
    expected -= move(w, first, end, seed, -1.0, &deviation);
    const double found = above - loss_of(t, w);
    for (size_t i = first; i < end; i++) memcpy(w->values[i], w->stored[i], (size_t)apr_tensor_elems(w->tensors[i]) * sizeof(float));
    return fabs(found - expected) / fmax(fmax(fabs(expected), 2.0 * deviation), 1e-10);
}

static void check_directions(apr_train *t, moved_weights *w, int n, const char *what)
{
    for (int k = 0; k < n; k++) {
        const double error = direction_error(t, w, 0, w->n, 11 + (uint64_t)k * 97);
        if (error <= 1e-4) continue;
        for (size_t i = 0; i < w->n; i++)
            if (!(direction_error(t, w, i, i + 1, 5) <= 1e-4)) fail_msg("%s: the gradient of '%s' is wrong", what, w->tensors[i]->name);
        fail_msg("%s: along direction %d the loss is %g off", what, k, error);
    }
}

static void check_backward(program_model *m, const char *what)
{
    apr_train *const t = open_train(&m->model, true, 1, 0);
    moved_weights w = open_weights(t);

    (void)gradient_of(t, &w);
    for (size_t i = 0; i < w.n; i++)
        if (w.n_given[i] != 1) fail_msg("%s: the gradient of '%s' came %d times", what, w.tensors[i]->name, w.n_given[i]);
    check_directions(t, &w, 2, what);
    close_weights(&w);
    apr_train_close(t);
}

static void a_gradient_is_the_difference_of_the_loss(void **state)
{
    (void)state;
    with_families(1, check_backward);
}

/* --- whole models: several layers, which are computed again --- */

typedef struct layered_model {
    const char *architecture;
    uint8_t mixers[3], ffns[3];
    bool tied;
} layered_model;

enum { FULL = APR_LAYER_FULL, SLIDING = APR_LAYER_SLIDING, DENSE = APR_FFN_DENSE, EXPERTS = APR_FFN_EXPERTS };

static const layered_model models[] = {
    {"llama", {FULL, FULL, FULL}, {DENSE, DENSE, DENSE}, false},
    {"qwen3", {FULL, FULL, FULL}, {DENSE, DENSE, DENSE}, true},
    {"qwen3_moe", {FULL, FULL, FULL}, {EXPERTS, EXPERTS, EXPERTS}, false},
    {"gpt_oss", {SLIDING, FULL, SLIDING}, {EXPERTS, EXPERTS, EXPERTS}, false},
    {"gemma3_text", {SLIDING, SLIDING, FULL}, {DENSE, DENSE, DENSE}, true},
};
enum { N_MODELS = sizeof models / sizeof *models };

static void open_model(program_model *m, const layered_model *l)
{
    if (!open_layers(m, l->architecture, l->mixers, l->ffns, 3, l->tied)) fail_msg("%s cannot be opened", l->architecture);
}

static void all_weights_at_once_in_twenty_directions(void **state)
{
    (void)state;
    for (int i = 0; i < N_MODELS; i++) {
        program_model m;
        open_model(&m, &models[i]);
        apr_train *const t = open_train(&m.model, true, 1, 0);
        moved_weights w = open_weights(t);
        (void)gradient_of(t, &w);
        check_directions(t, &w, 20, models[i].architecture);
        close_weights(&w);
        apr_train_close(t);
        program_model_close(&m);
    }
}

/* --- squares: how much the loss depends on each row that an operation gives --- */

/* The operation whose weight number `index` is this. */
static size_t op_of(const apr_train *t, int index, const char *weight)
{
    const apr_program *const p = apr_train_program(t);
    for (size_t i = 0; i < p->n_ops; i++)
        if (p->ops[i].weight[index] >= 0 && strcmp(p->weights[p->ops[i].weight[index]].name, weight) == 0) return i;
    fail_msg("no operation reads '%s'", weight);
    return 0;
}

static void take_squares(apr_train *t, const int32_t *text, size_t op, double *to)
{
    double **const squares = calloc(apr_train_program(t)->n_ops, sizeof *squares), loss;
    apr_error err = {0};
    squares[op] = to;
    if (apr_train_squares(t, text, &teacher, squares, &loss, &err) != APR_OK) fail_msg("%s", err.text);
    free(squares);
}

static double loss_of_text(apr_train *t, moved_weights *w, const int32_t *text, double *kl)
{
    const apr_train_weights weights = callbacks(w);
    apr_error err = {0};
    double loss = 0.0;
    if (apr_train_loss(t, &weights, text, &teacher, &loss, kl, &err) != APR_OK) fail_msg("%s", err.text);
    return loss;
}

/* The slopes of the loss and of each row's divergence along one number of a tensor, by a central difference. */
static double slopes(apr_train *t, moved_weights *w, const int32_t *text, size_t tensor, int64_t number, double *of_rows)
{
    const float stored = w->stored[tensor][number], above = stored + 0x1p-12f, below = stored - 0x1p-12f;
    const double length = (double)above - (double)below;
    double down[N_ROWS];

    w->values[tensor][number] = below;
    const double before = loss_of_text(t, w, text, down);
    w->values[tensor][number] = above;
    const double after = loss_of_text(t, w, text, of_rows);
    w->values[tensor][number] = stored;
    for (int r = 0; r < N_ROWS; r++) of_rows[r] = (of_rows[r] - down[r]) / length;
    return (after - before) / length;
}

static void expect_near(double found, double expected, const char *what)
{
    assert_true(expected > 0.0);
    if (!(fabs(found - expected) <= 1e-5 * expected)) fail_msg("%s: %g, differences say %g", what, found, expected);
}

/* A window of one token, for each row: its loss depends on the row alone, and a bias moves all rows by the same. */
static void squares_of_rows_are_those_of_differences(void **state)
{
    (void)state;
    const uint8_t mixers[] = {FULL, FULL}, ffns[] = {DENSE, DENSE};
    const apr_train_options options = {.n_tokens = 1, .n_windows = N_ROWS, .n_threads = 1, .float64 = true};
    program_model m;
    apr_train *t;
    double squares[N_ROWS], differences[N_ROWS] = {0};

    assert_true(open_layers(&m, "qwen2", mixers, ffns, 2, false));
    assert_int_equal(apr_train_open(&t, &m.model, &options, NULL), APR_OK);
    moved_weights w = open_weights(t);
    const size_t op = op_of(t, 1, "model.layers.0.self_attn.v_proj.bias");
    take_squares(t, ids, op, squares);
    const size_t bias = find(&w, apr_model_find(&m.model, "model.layers.0.self_attn.v_proj.bias"));
    for (int64_t i = 0; i < apr_tensor_elems(w.tensors[bias]); i++) {
        double of_rows[N_ROWS];
        (void)slopes(t, &w, ids, bias, i, of_rows);
        for (int r = 0; r < N_ROWS; r++) differences[r] += of_rows[r] * of_rows[r] / (N_ROWS * N_ROWS); /* the loss is their mean */
    }
    for (int r = 0; r < N_ROWS; r++) expect_near(squares[r], differences[r], "v");
    close_weights(&w);
    apr_train_close(t);
    program_model_close(&m);
}

/* In whole windows, where later tokens depend on a row as well: the loss by the embedding of a token that comes once. */
static void squares_have_what_later_tokens_depend_on(void **state)
{
    (void)state;
    int32_t text[N_ROWS];

    for (int i = 0; i < N_ROWS; i++) text[i] = 5 * i + 3;
    for (int i = 0; i < N_MODELS - 1; i += 3) { /* dense, and with experts */
        program_model m;
        open_model(&m, &models[i]);
        apr_train *const t = open_train(&m.model, true, 1, 0);
        moved_weights w = open_weights(t);
        double squares[N_ROWS];
        const size_t table = find(&w, apr_model_find(&m.model, "model.embed_tokens.weight"));
        const int64_t width = apr_tensor_columns(w.tensors[table]);
        take_squares(t, text, op_of(t, 0, "model.embed_tokens.weight"), squares);
        for (int row = 1; row < N_ROWS; row += 9) {
            double expected = 0.0, of_rows[N_ROWS];
            for (int64_t k = 0; k < width; k++) {
                const double slope = slopes(t, &w, text, table, text[row] * width + k, of_rows);
                expected += slope * slope;
            }
            expect_near(squares[row], expected, models[i].architecture);
        }
        close_weights(&w);
        apr_train_close(t);
        program_model_close(&m);
    }
}

/* Of the head, in one piece of rows or in two; and a pass that only gives these has no memory for gradients of weights. */
static void squares_need_no_gradients_of_weights(void **state)
{
    (void)state;
    enum { MANY = 20, ROWS = MANY * WINDOW };
    program_model m;
    apr_train *all, *alone;
    int32_t text[ROWS];
    double first[ROWS], second[ROWS], loss;
    size_t n, n_lines = 0;
    apr_error err = {0};

    for (int i = 0; i < ROWS; i++) text[i] = (7 * i + i / 9) % VOCABULARY;
    open_model(&m, &models[0]);
    apr_train_options options = {.n_tokens = WINDOW, .n_windows = MANY, .n_threads = 1, .n_logits = 256};
    assert_int_equal(apr_train_open(&all, &m.model, &options, NULL), APR_OK);
    options.n_threads = 3;
    options.n_logits = 128;
    options.squares_only = true;
    assert_int_equal(apr_train_open(&alone, &m.model, &options, NULL), APR_OK);
    const apr_train_line *const lines = apr_train_plan(alone, &n);
    for (size_t i = 0; i < n; i++)
        if (strstr(lines[i].key, "weight_gradients") != NULL || strstr(lines[i].key, "shared_gradients") != NULL) {
            assert_int_equal(lines[i].bytes, 0);
            n_lines++;
        }
    assert_int_equal(n_lines, 2);
    take_squares(all, text, op_of(all, 0, "lm_head.weight"), first);
    take_squares(alone, text, op_of(alone, 0, "lm_head.weight"), second);
    assert_memory_equal(first, second, sizeof first);
    for (int r = 0; r < ROWS; r++) assert_true(first[r] > 0.0);
    assert_int_equal(apr_train_gradient(alone, NULL, text, &teacher, &loss, &err), APR_E_USAGE);
    apr_train_close(all);
    apr_train_close(alone);
    program_model_close(&m);
}

static void same_gradients(const moved_weights *a, const moved_weights *b)
{
    assert_int_equal(a->n, b->n);
    for (size_t i = 0; i < a->n; i++)
        assert_memory_equal(a->gradients[i], b->gradients[i], (size_t)apr_tensor_elems(a->tensors[i]) * sizeof(float));
}

static void neither_threads_nor_runs_change_a_bit(void **state)
{
    (void)state;
    for (int i = 0; i < N_MODELS; i++) {
        program_model m;
        open_model(&m, &models[i]);
        apr_train *const one = open_train(&m.model, false, 1, 0), *const three = open_train(&m.model, false, 3, 256);
        moved_weights a = open_weights(one), b = open_weights(three);
        const double loss = gradient_of(one, &a);
        assert_true(loss == gradient_of(three, &b));
        same_gradients(&a, &b);
        assert_true(loss == gradient_of(three, &b)); /* from memory that was used */
        same_gradients(&a, &b);
        close_weights(&a);
        close_weights(&b);
        apr_train_close(one);
        apr_train_close(three);
        program_model_close(&m);
    }
}

/* A model is its own teacher: the divergence is zero, of each row. */
static void a_model_does_not_diverge_from_itself(void **state)
{
    (void)state;
    program_model m;
    apr_error err = {0};
    double loss = 1.0, kl[N_ROWS];

    open_model(&m, &models[0]);
    apr_train *const t = open_train(&m.model, false, 2, 0), *const other = open_train(&m.model, false, 1, 0);
    apr_train_model source = {.train = other};
    const apr_train_teacher itself = apr_train_teacher_of(&source);
    assert_int_equal(apr_train_forward(other, NULL, ids, &err), APR_OK);
    assert_int_equal(apr_train_loss(t, NULL, ids, &itself, &loss, kl, &err), APR_OK);
    assert_true(loss == 0.0);
    for (int i = 0; i < N_ROWS; i++) assert_true(kl[i] == 0.0);
    apr_train_close(t);
    apr_train_close(other);
    program_model_close(&m);
}

/* The lines of the plan are what is allocated, apart from tables. */
static void what_is_planned_is_allocated(void **state)
{
    (void)state;
    program_model m;
    uint64_t planned = 0;
    size_t n;

    open_model(&m, &models[2]);
    apr_train *const t = open_train(&m.model, false, 2, 0);
    moved_weights w = open_weights(t);
    const apr_train_line *const lines = apr_train_plan(t, &n);
    for (size_t i = 0; i < n; i++) planned += lines[i].bytes;
    const uint64_t before = apr_heap_in_use();
    (void)gradient_of(t, &w);
    const uint64_t after = apr_heap_in_use();
    if (before != UINT64_MAX) {
        assert_true(after - before >= planned);
        assert_true(after - before <= planned + (1 << 16));
    }
    close_weights(&w);
    apr_train_close(t);
    program_model_close(&m);
}

static void what_is_not_finite_is_named(void **state)
{
    (void)state;
    program_model m;
    apr_error err = {0};
    double loss;

    open_model(&m, &models[0]);
    apr_train *const t = open_train(&m.model, false, 1, 0);
    moved_weights w = open_weights(t);
    const apr_train_weights weights = callbacks(&w);
    for (size_t i = 0; i < w.n; i++)
        if (strcmp(w.tensors[i]->name, "model.layers.1.self_attn.v_proj.weight") == 0) w.values[i][0] = NAN;
    assert_int_equal(apr_train_gradient(t, &weights, ids, &teacher, &loss, &err), APR_E_NO);
    assert_non_null(strstr(err.text, "layer 1, linear 'model.layers.1.self_attn.v_proj.weight'"));
    err = (apr_error){0};
    ids[3] = VOCABULARY;
    assert_int_equal(apr_train_gradient(t, &weights, ids, &teacher, &loss, &err), APR_E_USAGE);
    (void)make_text(NULL);
    close_weights(&w);
    apr_train_close(t);
    program_model_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pass_computes_what_a_session_does),
        cmocka_unit_test(a_gradient_is_the_difference_of_the_loss),
        cmocka_unit_test(all_weights_at_once_in_twenty_directions),
        cmocka_unit_test(squares_of_rows_are_those_of_differences),
        cmocka_unit_test(squares_have_what_later_tokens_depend_on),
        cmocka_unit_test(squares_need_no_gradients_of_weights),
        cmocka_unit_test(neither_threads_nor_runs_change_a_bit),
        cmocka_unit_test(a_model_does_not_diverge_from_itself),
        cmocka_unit_test(what_is_planned_is_allocated),
        cmocka_unit_test(what_is_not_finite_is_named),
    };
    return cmocka_run_group_tests(tests, make_text, NULL);
}
