/* loss_weights.c - one backward pass over the text: squared gradients of what reads each layer input, as weights of tokens. */
#include "runtime/calibrate/loss_weights.h"

#include "runtime/session/sample.h"
#include "runtime/train/train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct apr_loss_weights {
    const apr_model *model;
    const apr_layer_inputs *inputs;
    int64_t window, n_ids;
    apr_train *train; /* NULL after the pass */
    uint64_t pass_bytes;
    double **squares; /* [n_ops] of the operations that read an input: [window], in the memory of all */
    double *all_squares;
    size_t n_readers;
    float *weights; /* [n_inputs, n_ids]; NULL before they are made */
};

/* Does the operation multiply the rows of this layer input? */
static bool reads(const apr_program *p, size_t op, const apr_layer_input *input)
{
    const apr_op *const o = &p->ops[op];

    if (input->n_experts > 0) return op == input->op;
    if (o->kind != APR_OP_LINEAR || o->args.linear.heads.transposed || o->in[0] != input->value) return false;
    const int64_t n_heads = o->args.linear.heads.n;
    return p->values[input->value].width / (n_heads > 0 ? n_heads : 1) == input->width;
}

static bool reads_any(const apr_loss_weights *w, size_t op)
{
    bool found = false;
    for (size_t i = 0; i < w->inputs->n_inputs && !found; i++) found = reads(apr_train_program(w->train), op, &w->inputs->inputs[i]);
    return found;
}

static apr_status no_memory(apr_error *err) { return apr_no_memory(err, "the weights of tokens"); }

static apr_status open_tables(apr_loss_weights *w, apr_error *err)
{
    const apr_program *const p = apr_train_program(w->train);
    size_t n;
    const apr_train_line *const lines = apr_train_plan(w->train, &n);

    for (size_t i = 0; i < n; i++) w->pass_bytes += lines[i].bytes;
    w->squares = calloc(p->n_ops + 1, sizeof *w->squares);
    if (w->squares == NULL) return no_memory(err);
    for (size_t i = 0; i < p->n_ops; i++) w->n_readers += reads_any(w, i);
    w->pass_bytes += w->n_readers * (uint64_t)w->window * sizeof *w->all_squares;
    return APR_OK;
}

apr_status apr_loss_weights_open(apr_loss_weights **weights, const apr_model *model, const apr_layer_inputs *inputs, int64_t window,
                                 int64_t n_ids, apr_error *err)
{
    const apr_train_options options = {.n_tokens = window, .squares_only = true};
    apr_loss_weights *const w = calloc(1, sizeof *w);

    *weights = NULL;
    if (w == NULL) return no_memory(err);
    *w = (apr_loss_weights){.model = model, .inputs = inputs, .window = window, .n_ids = n_ids};
    apr_status status = apr_train_open(&w->train, model, &options, err);
    if (status == APR_OK) status = open_tables(w, err);
    if (status == APR_OK) *weights = w;
    else apr_loss_weights_close(w);
    return status;
}

static void close_pass(apr_loss_weights *w)
{
    apr_train_close(w->train);
    free(w->squares);
    free(w->all_squares);
    w->train = NULL;
    w->squares = NULL;
    w->all_squares = NULL;
}

void apr_loss_weights_close(apr_loss_weights *w)
{
    if (w == NULL) return;
    close_pass(w);
    free(w->weights);
    free(w);
}

uint64_t apr_loss_weights_pass_bytes(const apr_loss_weights *w) { return w->pass_bytes; }
uint64_t apr_loss_weights_bytes(const apr_loss_weights *w) { return w->inputs->n_inputs * (uint64_t)w->n_ids * sizeof *w->weights; }

const float *apr_loss_weights_of(const apr_loss_weights *w, size_t input)
{
    return w->weights != NULL ? w->weights + input * (size_t)w->n_ids : NULL;
}

/* The tokens that the loss is of: each drawn from the model's own predictions. */
typedef struct drawn_tokens {
    apr_train *train;
    apr_sampler sampler;
    int64_t width;
} drawn_tokens;

/* As logits: the drawn token has all of the probability. */
static apr_status draw(void *user, int64_t first, int64_t n, float *to, apr_error *err)
{
    drawn_tokens *const d = user;

    APR_TRY(apr_train_logits(d->train, NULL, first, n, to, err));
    for (int64_t r = 0; r < n; r++) {
        float *const row = to + r * d->width;
        const int32_t id = apr_sample(&d->sampler, row);
        for (int64_t i = 0; i < d->width; i++) row[i] = i == id ? 0.0f : -INFINITY;
    }
    return APR_OK;
}

/* Adds the squares of a window to the weights of the inputs that the operations read. */
static void take_window(apr_loss_weights *w, int64_t at)
{
    const apr_program *const p = apr_train_program(w->train);

    for (size_t input = 0; input < w->inputs->n_inputs; input++) {
        float *const to = w->weights + input * (size_t)w->n_ids + at;
        for (int64_t t = 0; t < w->window; t++) {
            double sum = 0.0;
            for (size_t op = 0; op < p->n_ops; op++)
                if (w->squares[op] != NULL && reads(p, op, &w->inputs->inputs[input])) sum += w->squares[op][t];
            to[t] = (float)sum;
        }
    }
}

/* Mean 1, then at most the cap. Gradients that are all zero say nothing: all tokens count alike. */
static void normalise(float *weights, int64_t n)
{
    double sum = 0.0;

    for (int64_t t = 0; t < n; t++) sum += (double)weights[t];
    for (int64_t t = 0; t < n; t++) weights[t] = sum > 0.0 ? (float)fmin((double)weights[t] / sum * (double)n, APR_LOSS_WEIGHT_CAP) : 1.0f;
}

static apr_status allocate(apr_loss_weights *w, apr_error *err)
{
    const apr_program *const p = apr_train_program(w->train);
    double *at = w->all_squares = calloc(w->n_readers * (size_t)w->window + 1, sizeof *w->all_squares);

    w->weights = calloc(w->inputs->n_inputs * (size_t)w->n_ids + 1, sizeof *w->weights);
    if (w->all_squares == NULL || w->weights == NULL) return no_memory(err);
    for (size_t i = 0; i < p->n_ops; i++) {
        if (!reads_any(w, i)) continue;
        w->squares[i] = at;
        at += w->window;
    }
    return APR_OK;
}

static apr_status run_windows(apr_loss_weights *w, const int32_t *ids, const apr_progress *progress, apr_error *err)
{
    const apr_sample_options by = {.temperature = 1.0f, .top_p = 1.0f};
    drawn_tokens drawn = {.train = w->train, .width = apr_train_program(w->train)->vocab_size};
    const apr_train_teacher teacher = {.logits = draw, .user = &drawn};
    double loss;

    apr_status status = apr_sampler_open(&drawn.sampler, drawn.width, &by, err);
    for (int64_t at = 0; at < w->n_ids && status == APR_OK; at += w->window) {
        apr_progress_report(progress, (uint64_t)at, (uint64_t)w->n_ids, "weights of the loss, tokens");
        status = apr_train_squares(w->train, ids + at, &teacher, w->squares, &loss, err);
        if (status == APR_OK) take_window(w, at);
    }
    apr_sampler_close(&drawn.sampler);
    return status;
}

apr_status apr_loss_weights_make(apr_loss_weights *w, const int32_t *ids, const apr_progress *progress, apr_error *err)
{
    if (w->train == NULL) return APR_OK;
    apr_status status = allocate(w, err);
    if (status == APR_OK) status = run_windows(w, ids, progress, err);
    for (size_t input = 0; input < w->inputs->n_inputs && status == APR_OK; input++)
        normalise(w->weights + input * (size_t)w->n_ids, w->n_ids);
    if (status == APR_OK) {
        close_pass(w);
        return APR_OK;
    }
    free(w->weights);
    free(w->all_squares);
    w->weights = NULL;
    w->all_squares = NULL;
    return status;
}
