/* inputs.c - reads the rows that matrices multiply, after the first operation that reads them. */
#include "runtime/calibrate/inputs.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { GATE, UP, DOWN, GATE_BIAS, UP_BIAS, DOWN_BIAS }; /* weight slots of APR_OP_EXPERTS */

/* --- which matrix reads what --- */

static size_t find_or_add(apr_layer_inputs *f, apr_layer_input input)
{
    for (size_t i = 0; i < f->n_inputs; i++) {
        const apr_layer_input *const known = &f->inputs[i];
        const bool is_routed = input.n_experts > 0; /* another routing is another input */
        if (known->value == input.value && known->is_expert_hidden == input.is_expert_hidden && known->n_experts == input.n_experts &&
            known->width == input.width && (!is_routed || known->op == input.op))
            return i;
    }
    f->inputs[f->n_inputs] = input;
    return f->n_inputs++;
}

static void add(apr_layer_inputs *f, const apr_session *session, int slot, apr_layer_input input)
{
    int64_t n;
    if (apr_trace_tensors(session, slot, &n) == NULL || n == 0) return;
    const size_t at = find_or_add(f, input);
    for (size_t i = 0; i < f->n_readers; i++)
        if (f->readers[i].slot == slot && f->readers[i].input == at) return;
    f->readers[f->n_readers++] = (apr_layer_input_reader){slot, at};
}

static void add_op(apr_layer_inputs *f, const apr_session *session, const apr_program *program, const apr_op *op)
{
    apr_layer_input input = {.op = (size_t)(op - program->ops), .value = op->in[0], .layer = op->layer};

    if (op->kind == APR_OP_LINEAR && !op->args.linear.heads.transposed) {
        const int64_t n_heads = op->args.linear.heads.n;
        input.width = program->values[op->in[0]].width / (n_heads > 0 ? n_heads : 1);
        add(f, session, op->weight[0], input);
    }
    if (op->kind == APR_OP_EXPERTS) {
        input.width = op->args.experts.n_in;
        input.n_experts = op->args.experts.n_experts;
        add(f, session, op->weight[GATE], input);
        add(f, session, op->weight[UP], input);
        input.is_expert_hidden = true;
        input.width = op->args.experts.n_mid;
        add(f, session, op->weight[DOWN], input);
    }
}

apr_status apr_layer_inputs_of(apr_layer_inputs *f, const apr_session *session, apr_error *err)
{
    const apr_program *const program = apr_session_program(session);

    *f = (apr_layer_inputs){.inputs = calloc(2 * program->n_ops + 1, sizeof *f->inputs),
                            .readers = calloc(3 * program->n_ops + 1, sizeof *f->readers)};
    if (f->inputs == NULL || f->readers == NULL) {
        apr_layer_inputs_close(f);
        return apr_no_memory(err, "the inputs of a model");
    }
    for (size_t i = 0; i < program->n_ops; i++) add_op(f, session, program, &program->ops[i]);
    return APR_OK;
}

void apr_layer_inputs_close(apr_layer_inputs *f)
{
    free(f->inputs);
    free(f->readers);
    *f = (apr_layer_inputs){0};
}

/* --- buffers of a visit --- */

typedef struct visit {
    const apr_layer_inputs *inputs;
    const apr_pass *pass;
    int64_t first;        /* token of the batch */
    size_t n_wanted_left; /* inputs still to be seen in the batch */
    bool stops, stopped;  /* after the last wanted input: may stop, has stopped */
    int n_threads;
    float *rows, *routes, *hidden[2], *bias, *work;
    float *matrix; /* an expert's decoded matrix, if it is composed */
} visit;

static bool is_wanted(const visit *v, size_t input) { return v->pass->wanted == NULL || v->pass->wanted[input]; }

static size_t count_wanted(const visit *v)
{
    size_t n = 0;
    for (size_t i = 0; i < v->inputs->n_inputs; i++) n += is_wanted(v, i);
    return n;
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static bool is_composed(const apr_session *session, int slot)
{
    const apr_tensor *const t = apr_trace_tensor(session, slot);
    return t != NULL && apr_tensor_is_composed(t);
}

/* Allocates buffers for the largest case, before the first operation runs. */
static apr_status allocate(visit *v, const apr_session *session, apr_error *err)
{
    const apr_program *const program = apr_session_program(session);
    const int64_t n_batch = apr_session_plan(session)->n_batch;
    int64_t width = 1, n_routes = 1, n_hidden = 1, n_matrix = 1;

    for (size_t i = 0; i < v->inputs->n_inputs; i++) {
        const apr_op *const op = &program->ops[v->inputs->inputs[i].op];
        width = larger(width, program->values[op->in[0]].width);
        if (op->kind != APR_OP_EXPERTS) continue;
        n_routes = larger(n_routes, program->values[op->in[1]].width);
        n_hidden = larger(n_hidden, larger(op->args.experts.n_in, op->args.experts.n_mid));
        if (is_composed(session, op->weight[GATE]) || is_composed(session, op->weight[UP]))
            n_matrix = larger(n_matrix, op->args.experts.n_in * op->args.experts.n_mid);
    }
    v->n_threads = omp_get_max_threads();
    v->rows = malloc((size_t)(n_batch * width) * 2 * sizeof *v->rows); /* all tokens, then those of one expert */
    v->routes = malloc((size_t)(n_batch * n_routes) * sizeof *v->routes);
    for (int i = 0; i < 2; i++) v->hidden[i] = malloc((size_t)(n_batch * n_hidden) * sizeof *v->hidden[i]);
    v->bias = malloc((size_t)n_hidden * sizeof *v->bias);
    v->matrix = malloc((size_t)n_matrix * sizeof *v->matrix);
    v->work = aligned_alloc(64, (apr_linear_slice(larger(width, n_hidden)) * (size_t)v->n_threads * sizeof *v->work + 63) / 64 * 64);
    const float *const all[] = {v->rows, v->routes, v->hidden[0], v->hidden[1], v->bias, v->matrix, v->work};
    bool has_all = true;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) has_all = has_all && all[i] != NULL;
    if (has_all) return APR_OK;
    return apr_no_memory(err, "the inputs of a batch");
}

static void release(visit *v)
{
    free(v->rows);
    free(v->routes);
    free(v->hidden[0]);
    free(v->hidden[1]);
    free(v->bias);
    free(v->matrix);
    free(v->work);
}

/* --- experts --- */

/* Gathers the rows of expert e into `to`, weighted if its inputs are. Returns their number. */
static int64_t gather(const visit *v, const apr_experts_args *a, int64_t n_tokens, int64_t e, float *to)
{
    int64_t n = 0;
    for (int64_t t = 0; t < n_tokens; t++)
        for (int64_t k = 0; k < a->n_used; k++) {
            const float *const route = v->routes + t * apr_route_row(a->n_used);
            if ((int64_t)route[k] != e) continue;
            const float weight = a->weight_on_input ? route[a->n_used + k] : 1.0f;
            for (int64_t i = 0; i < a->n_in; i++) to[n * a->n_in + i] = v->rows[t * a->n_in + i] * weight;
            if (v->pass->tokens != NULL) v->pass->tokens[n] = v->first + t;
            n++;
            break;
        }
    return n;
}

/* The bias of expert e, or NULL where there is none. */
static const float *read_bias(const apr_session *session, int slot, int64_t e, int64_t n_out, float *to)
{
    int64_t n;
    const apr_tensor *const all = apr_trace_tensors(session, slot, &n);
    if (all == NULL) return NULL;
    if (n > 1 || apr_tensor_columns(&all[0]) == n_out) apr_decode_rows(&all[n > 1 ? e : 0], n > 1 ? 0 : e, 1, to);
    else apr_decode_elements(&all[0], e * n_out, n_out, to);
    return to;
}

/* Expert e's matrix. Composed tensors (such as the two tensors of MXFP4) are decoded. */
static apr_tensor matrix_of(const visit *v, const apr_session *session, int slot, int64_t e)
{
    int64_t n;
    apr_tensor t = apr_trace_tensors(session, slot, &n)[e];

    if (!apr_tensor_is_composed(&t)) return t;
    apr_decode_rows(&t, 0, apr_tensor_rows(&t), v->matrix);
    return (apr_tensor){.name = t.name,
                        .dtype = APR_F32,
                        .rank = 2,
                        .dims = {apr_tensor_rows(&t), apr_tensor_columns(&t)},
                        .data = (const uint8_t *)v->matrix,
                        .n_bytes = (uint64_t)apr_tensor_elems(&t) * sizeof *v->matrix};
}

/* out[n, n_mid] = rows * matrix of expert e + its bias */
static void multiply(const visit *v, const apr_session *session, const apr_op *op, int which, int64_t e, const float *x, int64_t n,
                     float *out)
{
    const apr_experts_args *const a = &op->args.experts;
    const apr_tensor matrix = matrix_of(v, session, op->weight[which], e);
    const apr_op_args args = {.linear = {.n_tokens = n,
                                         .n_in = a->n_in,
                                         .n_out = a->n_mid,
                                         .x = x,
                                         .weight = &matrix,
                                         .bias = read_bias(session, op->weight[which + GATE_BIAS], e, a->n_mid, v->bias),
                                         .out = out,
                                         .work = {v->work, apr_linear_slice(a->n_in), v->n_threads}}};
    apr_host_backend.ops[APR_OP_LINEAR](&args);
}

/* Computes the input of expert e's last product as kernels/host/experts.c does. */
static const float *make_hidden(const visit *v, const apr_session *session, const apr_op *op, int64_t e, const float *x, int64_t n)
{
    const apr_experts_args *const a = &op->args.experts;
    float *const gate = v->hidden[0], *const up = v->hidden[1];
    const bool has_gate = apr_trace_tensor(session, op->weight[GATE]) != NULL;

    multiply(v, session, op, UP, e, x, n, up);
    if (has_gate) multiply(v, session, op, GATE, e, x, n, gate);
    for (int64_t i = 0; i < n * a->n_mid; i++)
        up[i] = has_gate ? apr_glu_of(&a->glu, gate[i], up[i]) : apr_activate(a->glu.activation, up[i]);
    return up;
}

/* Visits both inputs of an experts operation; SIZE_MAX: not wanted. */
static apr_status visit_experts(const visit *v, apr_session *session, const apr_op *op, size_t input, size_t hidden, apr_error *err)
{
    const apr_experts_args *const a = &op->args.experts;
    const int64_t n_tokens = apr_trace_n_tokens(session);
    float *const chosen = v->rows + n_tokens * a->n_in;

    APR_TRY(apr_trace_read(session, op->in[0], v->rows, err));
    APR_TRY(apr_trace_read(session, op->in[1], v->routes, err));
    for (int64_t e = 0; e < a->n_experts; e++) {
        const int64_t n = gather(v, a, n_tokens, e, chosen);
        if (n == 0) continue;
        if (input != SIZE_MAX) APR_TRY(v->pass->visit(v->pass->user, input, e, n, chosen, err));
        if (hidden == SIZE_MAX) continue;
        APR_TRY(v->pass->visit(v->pass->user, hidden, e, n, make_hidden(v, session, op, e, chosen, n), err));
    }
    return APR_OK;
}

/* --- after every operation --- */

static apr_status visit_linear(const visit *v, apr_session *session, const apr_op *op, size_t input, apr_error *err)
{
    const int64_t n_heads = apr_session_program(session)->values[op->in[0]].width / v->inputs->inputs[input].width;
    const int64_t n_rows = apr_trace_n_tokens(session) * n_heads;
    const float *const on_device = v->pass->visit_device != NULL ? apr_trace_device_value(session, op->in[0]) : NULL;

    if (on_device != NULL) {
        if (!v->pass->queues) APR_TRY(apr_trace_wait(session, op->in[0], err));
        return v->pass->visit_device(v->pass->user, input, n_rows, on_device, err);
    }
    APR_TRY(apr_trace_read(session, op->in[0], v->rows, err));
    for (int64_t r = 0; r < n_rows && v->pass->tokens != NULL; r++) v->pass->tokens[r] = v->first + r / n_heads;
    return v->pass->visit(v->pass->user, input, -1, n_rows, v->rows, err);
}

/* The wanted inputs that this operation is the first to read: at most two. */
static size_t inputs_of_op(const visit *v, size_t op, size_t found[2])
{
    size_t n = 0;
    for (size_t i = 0; i < v->inputs->n_inputs && n < 2; i++)
        if (v->inputs->inputs[i].op == op && is_wanted(v, i)) found[n++] = i;
    return n;
}

static apr_status watch(void *user, apr_session *session, const apr_op *op, apr_error *err)
{
    visit *const v = user;
    size_t found[2];
    const size_t n = inputs_of_op(v, (size_t)(op - apr_session_program(session)->ops), found);

    if (n == 0) return APR_OK;
    if (op->kind == APR_OP_EXPERTS) {
        const bool last_is_middle = v->inputs->inputs[found[n - 1]].is_expert_hidden;
        const size_t hidden = last_is_middle ? found[n - 1] : SIZE_MAX, input = n == 2 || !last_is_middle ? found[0] : SIZE_MAX;
        APR_TRY(visit_experts(v, session, op, input, hidden, err));
    } else {
        APR_TRY(visit_linear(v, session, op, found[0], err));
    }
    v->n_wanted_left -= n;
    if (!v->stops || v->n_wanted_left > 0) return APR_OK;
    v->stopped = true;
    return apr_fail(err, APR_E_NO, "the last wanted input has been seen");
}

apr_status apr_layer_inputs_visit(const apr_layer_inputs *inputs, apr_session *session, const apr_pass *pass, const int32_t *ids,
                                  int64_t n_ids, apr_error *err)
{
    const int64_t n_batch = apr_session_plan(session)->n_batch;
    visit v = {.inputs = inputs, .pass = pass, .stops = n_ids <= n_batch};
    apr_error failure = {0};

    apr_status status = allocate(&v, session, err);
    apr_session_reset(session);
    apr_trace_watch(session, APR_OP_COUNT, watch, &v);
    for (int64_t i = 0; i < n_ids && status == APR_OK && !v.stopped; i += n_batch) {
        v.first = i;
        v.n_wanted_left = count_wanted(&v);
        if (v.n_wanted_left == 0) break;
        status = apr_session_eval(session, ids + i, (size_t)(n_ids - i < n_batch ? n_ids - i : n_batch), NULL, &failure);
        if (status != APR_OK && !v.stopped) apr_fail(err, status, "%s", failure.text);
    }
    apr_trace_watch(session, APR_OP_COUNT, NULL, NULL);
    apr_session_reset(session);
    release(&v);
    return v.stopped ? APR_OK : status;
}
