/* train_host.c - passes on the host: memory of the heap, and the operations of kernels/host/grad in float32 or float64. */
#include "runtime/train/train_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_float(const apr_train *t) { return t->numbers->size == sizeof(float); }

static bool has(const apr_train *t, apr_op_kind kind) { return t->numbers->ops[kind].forward != NULL; }

/* The operation's own, and the tiles of all threads. */
static size_t work(const apr_train *t, apr_op_kind kind, const apr_grad_call *call)
{
    const apr_grad_op *const op = &t->numbers->ops[kind];
    return (op->work != NULL ? op->work(call) : 0) + (size_t)t->options.n_threads * apr_grad_tiles();
}

static apr_status allocate(apr_train *t, int line, apr_error *err)
{
    t->memory[line] = aligned_alloc(64, t->lines[line].bytes);
    return t->memory[line] != NULL ? APR_OK : apr_no_memory(err, t->lines[line].what);
}

static void release(apr_train *t, int line) { free(t->memory[line]); }

static apr_status take_ids(apr_train *t, const int32_t *ids, apr_error *err)
{
    (void)err;
    t->ids = ids;
    return APR_OK;
}

static apr_status clear(apr_train *t, void *there, size_t n_bytes, apr_error *err)
{
    (void)t, (void)err;
    memset(there, 0, n_bytes);
    return APR_OK;
}

static apr_status copy(apr_train *t, void *to, const void *from, size_t n_bytes, apr_error *err)
{
    (void)t, (void)err;
    memcpy(to, from, n_bytes);
    return APR_OK;
}

static apr_status put(apr_train *t, const float *from, int64_t n, void *there, apr_error *err)
{
    (void)err;
    t->numbers->from_floats(from, n, there);
    return APR_OK;
}

static apr_status get(apr_train *t, const void *there, int64_t n, float *to, apr_error *err)
{
    (void)err;
    t->numbers->to_floats(there, n, to);
    return APR_OK;
}

static void exponentials(apr_train *t, void *x, int64_t n)
{
    for (int64_t i = 0; i < n && is_float(t); i++) ((float *)x)[i] = expf(((float *)x)[i]);
    for (int64_t i = 0; i < n && !is_float(t); i++) ((double *)x)[i] = exp(((double *)x)[i]);
}

static void multiply(apr_train *t, void *x, const void *by, int64_t n)
{
    for (int64_t i = 0; i < n && is_float(t); i++) ((float *)x)[i] *= ((const float *)by)[i];
    for (int64_t i = 0; i < n && !is_float(t); i++) ((double *)x)[i] *= ((const double *)by)[i];
}

/* Operations have tiles at the begin of the workspace, and their scratch memory behind them. */
static apr_grad_call with_workspace(const apr_train *t, const apr_grad_call *call)
{
    apr_grad_call c = *call;
    c.tiles = t->memory[LINE_WORKSPACE];
    c.work = train_numbers_at(t, LINE_WORKSPACE, t->options.n_threads * (int64_t)apr_grad_tiles());
    return c;
}

static apr_status forward(apr_train *t, apr_op_kind kind, const apr_grad_call *call, apr_error *err)
{
    const apr_grad_call c = with_workspace(t, call);
    (void)err;
    t->numbers->ops[kind].forward(&c);
    return APR_OK;
}

static apr_status backward(apr_train *t, apr_op_kind kind, const apr_grad_call *call, apr_error *err)
{
    const apr_grad_call c = with_workspace(t, call);
    (void)err;
    t->numbers->ops[kind].backward(&c);
    return APR_OK;
}

static apr_status first_not_finite(apr_train *t, const void *x, int64_t n, int64_t *at, apr_error *err)
{
    (void)err;
    *at = t->numbers->first_not_finite(x, n);
    return APR_OK;
}

static apr_status divergence(apr_train *t, void *student, int64_t n_rows, double factor, bool gradient, const double **kl, apr_error *err)
{
    (void)err;
    t->numbers->divergence(train_teacher_rows(t), student, n_rows, t->program.vocab_size, factor, gradient, train_row_losses(t),
                           t->options.n_threads);
    *kl = train_row_losses(t);
    return APR_OK;
}

const train_backend train_on_host = {
    .where = "",
    .n_logits = 128,
    .has = has,
    .work = work,
    .allocate = allocate,
    .release = release,
    .take_ids = take_ids,
    .clear = clear,
    .copy = copy,
    .put = put,
    .get = get,
    .exponentials = exponentials,
    .multiply = multiply,
    .forward = forward,
    .backward = backward,
    .first_not_finite = first_not_finite,
    .divergence = divergence,
};
