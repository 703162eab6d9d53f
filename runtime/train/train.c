/* train.c - runs the forward pass of a whole model, with what backward needs, and backward itself. */
#include "runtime/train/train_internal.h"

#include <math.h>

static apr_status allocate(apr_train *t, apr_error *err)
{
    for (int i = 0; i < N_LINES; i++) {
        if (t->memory[i] != NULL || t->lines[i].bytes == 0) continue;
        APR_TRY(t->backend->allocate(t, i, err));
    }
    return APR_OK;
}

/* ---- numbers of weights ---- */

/* Does the caller write and read the numbers where they are? Otherwise they travel through LINE_FLOATS. */
static bool is_direct(const apr_train *t, const apr_train_weights *weights, const apr_tensor *tensor)
{
    if (!train_is_on_device(t)) return t->numbers->size == sizeof(float);
    return weights != NULL && weights->is_on_device != NULL && weights->is_on_device(weights->user, tensor);
}

apr_status apr_train_renew(apr_train *t, const apr_tensor *tensor, apr_error *err)
{
    if (t->memory[LINE_STORED] == NULL) return APR_OK; /* copied when the line is allocated, or nothing is */
    for (size_t i = 0; i < t->n_trained; i++)
        if (t->stored[i].is_there && (tensor == NULL || t->trained[i] == tensor)) APR_TRY(t->backend->renew(t, i, err));
    return APR_OK;
}

static apr_status read_tensor(apr_train *t, const apr_train_weights *weights, const apr_tensor *tensor, char *to, apr_error *err)
{
    const bool direct = is_direct(t, weights, tensor), is_own = weights == NULL || weights->values == NULL;
    float *const floats = direct ? (float *)(void *)to : train_floats(t);
    const size_t stored = is_own ? train_find_stored(t, tensor) : SIZE_MAX;

    if (stored != SIZE_MAX) return t->backend->decode(t, stored, (float *)(void *)to, err);
    if (!is_own) APR_TRY(weights->values(weights->user, tensor, floats, err));
    else apr_decode_rows(tensor, 0, apr_tensor_rows(tensor), floats);
    return direct ? APR_OK : t->backend->put(t, floats, apr_tensor_elems(tensor), to, err);
}

static apr_status read_weights(apr_train *t, const apr_train_weights *weights, size_t op, apr_error *err)
{
    for (int j = 0; j < APR_OP_MAX_WEIGHTS; j++) {
        const weight_place *const w = &t->weights[op][j];
        if (w->n == 0) continue;
        const int slot = t->program.ops[op].weight[j];
        char *to = train_numbers_at(t, LINE_WEIGHTS, w->at);
        for (int64_t i = 0; i < t->program.weights[slot].count; i++) {
            const apr_tensor *const tensor = t->slots[slot].tensors[i];
            APR_TRY(read_tensor(t, weights, tensor, to, err));
            to += (size_t)apr_tensor_elems(tensor) * t->numbers->size;
        }
        if (t->program.weights[slot].is_log) t->backend->exponentials(t, train_numbers_at(t, LINE_WEIGHTS, w->at), w->n);
    }
    return APR_OK;
}

static char *gradient_of_weight(const apr_train *t, const weight_place *w)
{
    return train_numbers_at(t, w->is_shared ? LINE_SHARED_GRADIENTS : LINE_WEIGHT_GRADIENTS, w->gradient_at);
}

static bool is_trained(const apr_train_weights *weights, const apr_tensor *tensor)
{
    return weights == NULL || weights->is_trained == NULL || weights->is_trained(weights->user, tensor);
}

/* Is the gradient of some tensor of the operation's weight wanted? */
static bool wants_gradient(const apr_train *t, const apr_train_weights *weights, size_t op, int index)
{
    if (t->weights[op][index].n == 0 || weights == NULL || weights->gradient == NULL) return false;
    const int slot = t->program.ops[op].weight[index];
    for (int64_t i = 0; i < t->program.weights[slot].count; i++)
        if (is_trained(weights, t->slots[slot].tensors[i])) return true;
    return false;
}

/* Gradients that are the operation's alone begin as zeros; shared ones did at the start of the pass. */
static apr_status clear_weight_gradients(apr_train *t, size_t op, apr_error *err)
{
    for (int j = 0; j < APR_OP_MAX_WEIGHTS; j++) {
        const weight_place *const w = &t->weights[op][j];
        char *const gradient = w->n > 0 && !w->is_shared ? gradient_of_weight(t, w) : NULL;
        if (gradient != NULL) APR_TRY(t->backend->clear(t, gradient, (size_t)w->n * t->numbers->size, err));
    }
    return APR_OK;
}

static const char *op_weight_name(const apr_train *t, size_t op)
{
    const int slot = t->program.ops[op].weight[0];
    return slot >= 0 ? t->program.weights[slot].name : apr_op_name(t->program.ops[op].kind);
}

static apr_status refuse_not_finite(const apr_train *t, size_t op, const char *what, int64_t number, apr_error *err)
{
    const apr_op *const o = &t->program.ops[op];
    return apr_fail(err, APR_E_NO, "%s: layer %d, %s '%s': number %lld of %s is not finite", t->model->path, o->layer, apr_op_name(o->kind),
                    op_weight_name(t, op), (long long)number, what);
}

/* Fails if a number of x, which `what` names, is not finite. */
static apr_status check_finite(apr_train *t, size_t op, const char *what, const void *x, int64_t n, apr_error *err)
{
    int64_t wrong = -1;
    APR_TRY(t->backend->first_not_finite(t, x, n, &wrong, err));
    return wrong >= 0 ? refuse_not_finite(t, op, what, wrong, err) : APR_OK;
}

static apr_status give_tensor(apr_train *t, const apr_train_weights *weights, const apr_tensor *tensor, const char *gradient,
                              apr_error *err)
{
    const bool direct = is_direct(t, weights, tensor);
    float *floats = train_floats(t);

    if (!is_trained(weights, tensor)) return APR_OK;
    if (!direct && train_is_on_device(t) && weights->room != NULL) APR_TRY(weights->room(weights->user, tensor, &floats, err));
    if (!direct) APR_TRY(t->backend->get(t, gradient, apr_tensor_elems(tensor), floats, err));
    return weights->gradient(weights->user, tensor, direct ? (const float *)(const void *)gradient : floats, err);
}

/* Hands out the gradients that are complete after the operation. */
static apr_status give_gradients(apr_train *t, const apr_train_weights *weights, size_t op, apr_error *err)
{
    for (int j = 0; j < APR_OP_MAX_WEIGHTS; j++) {
        const weight_place *const w = &t->weights[op][j];
        if (!w->gives || !wants_gradient(t, weights, op, j)) continue;
        const int slot = t->program.ops[op].weight[j];
        char *gradient = gradient_of_weight(t, w);
        APR_TRY(check_finite(t, op, "the weight's gradient", gradient, w->n, err));
        if (t->program.weights[slot].is_log) t->backend->multiply(t, gradient, train_numbers_at(t, LINE_WEIGHTS, w->at), w->n);
        for (int64_t i = 0; i < t->program.weights[slot].count; i++) {
            const apr_tensor *const tensor = t->slots[slot].tensors[i];
            APR_TRY(give_tensor(t, weights, tensor, gradient, err));
            gradient += (size_t)apr_tensor_elems(tensor) * t->numbers->size;
        }
    }
    return APR_OK;
}

/* ---- running operations ---- */

/* Rows of a pass: all, or those of a chunk of logits. */
typedef struct row_range {
    int64_t first, n;
} row_range;

static row_range all_rows(const apr_train *t) { return (row_range){0, t->n_rows}; }

static char *value_at(const apr_train *t, int value, int64_t first_row)
{
    const value_place *const v = &t->values[value];
    if (v->is_logits) return train_numbers_at(t, LINE_LOGITS, v->at);
    if (!v->is_kept) return train_numbers_at(t, LINE_LOCAL, v->at);
    return train_numbers_at(t, LINE_KEPT, v->at + first_row * t->program.values[value].width);
}

/* NULL: it has none. */
static char *gradient_at(const apr_train *t, int value, int64_t first_row)
{
    const value_place *const v = &t->values[value];
    if (!v->has_gradient) return NULL;
    if (v->is_logits) return t->memory[LINE_LOGITS] + t->logits_bytes / 2 + v->gradient_at * (int64_t)t->numbers->size;
    if (!v->is_kept) return train_numbers_at(t, LINE_LOCAL_GRADIENTS, v->gradient_at);
    return train_numbers_at(t, LINE_KEPT_GRADIENTS, v->gradient_at + first_row * t->program.values[value].width);
}

static apr_grad_call bind_call(const apr_train *t, size_t i, row_range rows)
{
    const apr_op *const op = &t->program.ops[i];
    apr_grad_call call = apr_train_call_of(t, i, rows.n);

    for (int k = 0; k < APR_GRAD_MAX_IN; k++) call.in[k] = t->inputs[i][k] >= 0 ? value_at(t, t->inputs[i][k], rows.first) : NULL;
    for (int j = 0; j < APR_OP_MAX_WEIGHTS; j++)
        call.weight[j] = t->weights[i][j].n > 0 ? train_numbers_at(t, LINE_WEIGHTS, t->weights[i][j].at) : NULL;
    call.out = op->out >= 0 ? value_at(t, op->out, rows.first) : NULL;
    if (op->kind == APR_OP_EMBED) t->args[i].embed.ids = t->ids + rows.first;
    return call;
}

static apr_status run_forward(apr_train *t, size_t i, row_range rows, apr_error *err)
{
    const apr_op *const op = &t->program.ops[i];
    const apr_grad_call call = bind_call(t, i, rows);

    APR_TRY(t->backend->forward(t, op->kind, &call, err));
    return op->out >= 0 ? check_finite(t, i, "the output", call.out, rows.n * call.width_out, err) : APR_OK;
}

/* to[r] = sum of the squares of row r. Numbers of the host are float, or double. */
static void row_squares(const apr_train *t, const void *x, int64_t n_rows, int64_t width, double *to)
{
    const bool is_double = t->numbers->size == sizeof(double);

    for (int64_t r = 0; r < n_rows; r++) {
        double sum = 0.0;
        for (int64_t i = r * width; i < (r + 1) * width; i++) {
            const double value = is_double ? ((const double *)x)[i] : (double)((const float *)x)[i];
            sum += value * value;
        }
        to[r] = sum;
    }
}

static apr_status run_backward(apr_train *t, const apr_train_weights *weights, size_t i, row_range rows, apr_error *err)
{
    const apr_op *const op = &t->program.ops[i];
    apr_grad_call call = bind_call(t, i, rows);

    if (t->numbers->ops[op->kind].backward == NULL) return APR_OK;
    for (int k = 0; k < APR_GRAD_MAX_IN; k++) call.d_in[k] = t->inputs[i][k] >= 0 ? gradient_at(t, t->inputs[i][k], rows.first) : NULL;
    for (int j = 0; j < APR_OP_MAX_WEIGHTS; j++)
        if (wants_gradient(t, weights, i, j)) call.d_weight[j] = gradient_of_weight(t, &t->weights[i][j]);
    call.d_out = gradient_at(t, op->out, rows.first);
    APR_TRY(check_finite(t, i, "the output's gradient", call.d_out, rows.n * call.width_out, err));
    if (t->squares != NULL && t->squares[i] != NULL) row_squares(t, call.d_out, rows.n, call.width_out, t->squares[i] + rows.first);
    return t->backend->backward(t, op->kind, &call, err);
}

static apr_status check_ids(const apr_train *t, const int32_t *ids, apr_error *err)
{
    for (int64_t i = 0; i < t->n_rows; i++)
        if (ids[i] < 0 || ids[i] >= t->program.vocab_size)
            return apr_fail(err, APR_E_USAGE, "%s: the id %d of token %lld is outside the vocabulary of %lld", t->model->path, (int)ids[i],
                            (long long)i, (long long)t->program.vocab_size);
    return APR_OK;
}

/* The operations of a segment: [*begin, *end). */
static void segment_ops(const apr_train *t, int segment, size_t *begin, size_t *end)
{
    for (*begin = 0; *begin < t->program.n_ops && t->segments[*begin] < segment;) ++*begin;
    for (*end = *begin; *end < t->program.n_ops && t->segments[*end] == segment;) ++*end;
}

static apr_status forward_segment(apr_train *t, const apr_train_weights *weights, int segment, apr_error *err)
{
    size_t begin, end;

    segment_ops(t, segment, &begin, &end);
    t->has_logits_weights = false;
    t->local_of = -1;
    for (size_t i = begin; i < end; i++) {
        APR_TRY(read_weights(t, weights, i, err));
        APR_TRY(run_forward(t, i, all_rows(t), err));
    }
    t->local_of = segment;
    return APR_OK;
}

apr_status apr_train_forward(apr_train *t, const apr_train_weights *weights, const int32_t *ids, apr_error *err)
{
    APR_TRY(check_ids(t, ids, err));
    APR_TRY(allocate(t, err));
    APR_TRY(t->backend->take_ids(t, ids, err));
    for (int s = 0; s < t->n_segments; s++) APR_TRY(forward_segment(t, weights, s, err));
    return APR_OK;
}

/* ---- logits ---- */

static apr_status read_logits_weights(apr_train *t, const apr_train_weights *weights, apr_error *err)
{
    for (size_t i = t->first_logits; i < t->program.n_ops && !t->has_logits_weights; i++) APR_TRY(read_weights(t, weights, i, err));
    t->has_logits_weights = true;
    return APR_OK;
}

static apr_status forward_logits(apr_train *t, const apr_train_weights *weights, row_range rows, apr_error *err)
{
    APR_TRY(read_logits_weights(t, weights, err));
    for (size_t i = t->first_logits; i < t->program.n_ops; i++) APR_TRY(run_forward(t, i, rows, err));
    return APR_OK;
}

/* The value that has the logits: the output of the last operation. */
static int logits_value(const apr_train *t) { return t->program.ops[t->program.n_ops - 1].out; }

/* Computes logits of rows, and gives them to the host, or `there`. */
static apr_status take_logits(apr_train *t, const apr_train_weights *weights, row_range rows, float *to, bool there, apr_error *err)
{
    const int64_t n = rows.n * t->program.vocab_size;
    const void *const logits = value_at(t, logits_value(t), 0);

    APR_TRY(forward_logits(t, weights, rows, err));
    return there ? t->backend->copy(t, to, logits, (size_t)n * t->numbers->size, err) : t->backend->get(t, logits, n, to, err);
}

static apr_status take_all_logits(apr_train *t, const apr_train_weights *weights, row_range all, float *to, bool there, apr_error *err)
{
    for (int64_t done = 0; done < all.n; done += t->options.n_logits) {
        const row_range rows = {all.first + done, all.n - done < t->options.n_logits ? all.n - done : t->options.n_logits};
        APR_TRY(take_logits(t, weights, rows, to + done * t->program.vocab_size, there, err));
    }
    return APR_OK;
}

apr_status apr_train_logits(apr_train *t, const apr_train_weights *weights, int64_t first, int64_t n, float *to, apr_error *err)
{
    return take_all_logits(t, weights, (row_range){first, n}, to, false, err);
}

static apr_status model_logits(void *user, int64_t first, int64_t n, float *to, apr_error *err)
{
    const apr_train_model *const m = user;
    return take_all_logits(m->train, m->weights, (row_range){first, n}, to, train_is_on_device(m->train), err);
}

apr_train_teacher apr_train_teacher_of(apr_train_model *model)
{
    return (apr_train_teacher){.logits = model_logits, .user = model, .device = model->train->options.device};
}

/* One pass over the logits of all rows: the divergence of each, and with `gradient` what follows from it. */
typedef struct logits_pass {
    apr_train *t;
    const apr_train_weights *weights;
    const apr_train_teacher *teacher;
    bool gradient;
    double sum, *kl; /* kl: NULL, or of each row */
} logits_pass;

static apr_status backward_logits(const logits_pass *p, row_range rows, apr_error *err)
{
    apr_train *const t = p->t;
    const int last = logits_value(t);
    const size_t n_bytes = (size_t)(rows.n * t->program.values[last].width) * t->numbers->size;

    for (size_t v = 0; v < t->program.n_values; v++) {
        if (!t->values[v].is_logits) continue;
        APR_TRY(t->backend->clear(t, gradient_at(t, (int)v, 0), (size_t)(rows.n * t->program.values[v].width) * t->numbers->size, err));
    }
    APR_TRY(t->backend->copy(t, gradient_at(t, last, 0), value_at(t, last, 0), n_bytes, err));
    for (size_t i = t->program.n_ops; i-- > t->first_logits;) APR_TRY(run_backward(t, p->weights, i, rows, err));
    return APR_OK;
}

/* The teacher's logits, where the student's are. */
static apr_status ask_teacher(const logits_pass *p, row_range rows, apr_error *err)
{
    apr_train *const t = p->t;
    const apr_train_teacher *const teacher = p->teacher;
    float *const floats = train_floats(t);

    if (teacher->device != NULL && teacher->device != t->options.device)
        return apr_fail(err, APR_E_USAGE, "%s: the teacher's logits are on a GPU where the student is not", t->model->path);
    if (!train_is_on_device(t) || teacher->device != NULL)
        return teacher->logits(teacher->user, rows.first, rows.n, train_teacher_rows(t), err);
    APR_TRY(teacher->logits(teacher->user, rows.first, rows.n, floats, err));
    return t->backend->put(t, floats, rows.n * t->program.vocab_size, train_teacher_rows(t), err);
}

static apr_status run_logits_rows(logits_pass *p, row_range rows, apr_error *err)
{
    apr_train *const t = p->t;
    const double *kl = NULL;

    APR_TRY(forward_logits(t, p->weights, rows, err));
    APR_TRY(ask_teacher(p, rows, err));
    APR_TRY(t->backend->divergence(t, value_at(t, logits_value(t), 0), rows.n, 1.0 / (double)t->n_rows, p->gradient, &kl, err));
    for (int64_t r = 0; r < rows.n; r++) {
        if (!isfinite(kl[r]))
            return apr_fail(err, APR_E_NO, "%s: the divergence from the teacher at token %lld is not finite", t->model->path,
                            (long long)(rows.first + r));
        p->sum += kl[r];
        if (p->kl != NULL) p->kl[rows.first + r] = kl[r];
    }
    return p->gradient ? backward_logits(p, rows, err) : APR_OK;
}

static apr_status run_logits(logits_pass *p, apr_error *err)
{
    const apr_train *const t = p->t;
    for (int64_t first = 0; first < t->n_rows; first += t->options.n_logits) {
        const int64_t left = t->n_rows - first;
        APR_TRY(run_logits_rows(p, (row_range){first, left < t->options.n_logits ? left : t->options.n_logits}, err));
    }
    return APR_OK;
}

apr_status apr_train_loss(apr_train *t, const apr_train_weights *weights, const int32_t *ids, const apr_train_teacher *teacher,
                          double *loss, double *kl, apr_error *err)
{
    logits_pass pass = {.t = t, .weights = weights, .teacher = teacher, .kl = kl};

    APR_TRY(apr_train_forward(t, weights, ids, err));
    APR_TRY(run_logits(&pass, err));
    *loss = pass.sum / (double)t->n_rows;
    return APR_OK;
}

/* ---- backward ---- */

/* Gradients of the kept values that this segment is the first to add to. */
static apr_status clear_value_gradients(apr_train *t, int segment, apr_error *err)
{
    for (size_t v = 0; v < t->program.n_values; v++) {
        const value_place *const place = &t->values[v];
        const bool is_local = !place->is_kept && place->segment == segment && !place->is_logits;
        if (!place->has_gradient || !(is_local || (place->is_kept && place->last == segment))) continue;
        APR_TRY(t->backend->clear(t, gradient_at(t, (int)v, 0), (size_t)(t->n_rows * t->program.values[v].width) * t->numbers->size, err));
    }
    return APR_OK;
}

static apr_status backward_segment(apr_train *t, const apr_train_weights *weights, int segment, apr_error *err)
{
    size_t begin, end;

    segment_ops(t, segment, &begin, &end);
    if (t->local_of != segment) APR_TRY(forward_segment(t, weights, segment, err));
    APR_TRY(clear_value_gradients(t, segment, err));
    for (size_t i = end; i-- > begin;) {
        APR_TRY(read_weights(t, weights, i, err));
        APR_TRY(clear_weight_gradients(t, i, err));
        APR_TRY(run_backward(t, weights, i, all_rows(t), err));
        APR_TRY(give_gradients(t, weights, i, err));
    }
    return APR_OK;
}

static apr_status refuse_pass(const apr_train *t, const char *opened, apr_error *err)
{
    return apr_fail(err, APR_E_USAGE, "%s: this pass was opened %s", t->model->path, opened);
}

/* Forward and backward, after what the pass was opened for was checked. */
static apr_status run_gradient(apr_train *t, const apr_train_weights *weights, const int32_t *ids, const apr_train_teacher *teacher,
                               double *loss, apr_error *err)
{
    logits_pass pass = {.t = t, .weights = weights, .teacher = teacher, .gradient = true};

    APR_TRY(apr_train_forward(t, weights, ids, err));
    if (t->memory[LINE_SHARED_GRADIENTS] != NULL)
        APR_TRY(t->backend->clear(t, t->memory[LINE_SHARED_GRADIENTS], t->lines[LINE_SHARED_GRADIENTS].bytes, err));
    APR_TRY(clear_value_gradients(t, t->n_segments, err));
    for (size_t i = t->first_logits; i < t->program.n_ops; i++) APR_TRY(clear_weight_gradients(t, i, err));
    APR_TRY(run_logits(&pass, err));
    *loss = pass.sum / (double)t->n_rows;
    for (size_t i = t->program.n_ops; i-- > t->first_logits;) APR_TRY(give_gradients(t, weights, i, err));
    for (int s = t->n_segments; s-- > 0;) APR_TRY(backward_segment(t, weights, s, err));
    return APR_OK;
}

apr_status apr_train_gradient(apr_train *t, const apr_train_weights *weights, const int32_t *ids, const apr_train_teacher *teacher,
                              double *loss, apr_error *err)
{
    if (t->options.forward_only) return refuse_pass(t, "without gradients", err);
    if (t->options.squares_only) return refuse_pass(t, "without gradients of weights", err);
    return run_gradient(t, weights, ids, teacher, loss, err);
}

apr_status apr_train_squares(apr_train *t, const int32_t *ids, const apr_train_teacher *teacher, double *const *squares, double *loss,
                             apr_error *err)
{
    if (t->options.forward_only) return refuse_pass(t, "without gradients", err);
    if (train_is_on_device(t)) return refuse_pass(t, "on a GPU, which gives no squares of gradients", err);
    t->squares = squares;
    const apr_status status = run_gradient(t, NULL, ids, teacher, loss, err);
    t->squares = NULL;
    return status;
}
