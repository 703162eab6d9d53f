/* rows.h - operations on rows, one by one or a number at a time: lookups, norms, rotations, slices, gates, sums. */
#ifndef APR_KERNELS_HOST_GRAD_ROWS_H
#define APR_KERNELS_HOST_GRAD_ROWS_H

#include "kernels/host/grad/numbers.h"

/* ---- lookups ---- */

static void embed_forward(const apr_grad_call *c)
{
    for (int64_t r = 0; r < c->n_rows; r++)
        memcpy((num *)c->out + r * c->width_out, (const num *)c->weight[0] + apr_embed_row(&c->args->embed, r) * c->width_out,
               (size_t)c->width_out * sizeof(num));
}

static void embed_backward(const apr_grad_call *c)
{
    num *const table = c->d_weight[0];
    for (int64_t r = 0; r < c->n_rows && table != NULL; r++)
        for (int64_t i = 0; i < c->width_out; i++)
            table[apr_embed_row(&c->args->embed, r) * c->width_out + i] += ((const num *)c->d_out)[r * c->width_out + i];
}

static int64_t position_row(const apr_grad_call *c, int64_t r) { return c->args->positions.first + r % c->n_positions; }

static void positions_forward(const apr_grad_call *c)
{
    for (int64_t r = 0; r < c->n_rows; r++)
        memcpy((num *)c->out + r * c->width_out, (const num *)c->weight[0] + position_row(c, r) * c->width_out,
               (size_t)c->width_out * sizeof(num));
}

static void positions_backward(const apr_grad_call *c)
{
    num *const table = c->d_weight[0];
    for (int64_t r = 0; r < c->n_rows && table != NULL; r++)
        for (int64_t i = 0; i < c->width_out; i++)
            table[position_row(c, r) * c->width_out + i] += ((const num *)c->d_out)[r * c->width_out + i];
}

/* The angle is float32, as in kernels/ref. */
static void angles_forward(const apr_grad_call *c)
{
    const apr_angles_args *const a = &c->args->angles;
    for (int64_t r = 0; r < c->n_rows; r++) {
        num *const cosines = (num *)c->out + r * 2 * a->n_freqs, *const sines = cosines + a->n_freqs;
        for (int64_t j = 0; j < a->n_freqs; j++) {
            const float angle = (float)(r % c->n_positions) * a->freqs[j];
            cosines[j] = MATH(cos)((num)angle) * (num)a->magnitude;
            sines[j] = MATH(sin)((num)angle) * (num)a->magnitude;
        }
    }
}

/* ---- norms ---- */

/* A chunk of numbers: normed = (x - mean) * scale. */
typedef struct norm_chunk {
    const num *x;
    num mean, scale;
    int64_t of_weight;
} norm_chunk;

static norm_chunk norm_chunk_of(const apr_grad_call *c, int64_t begin)
{
    const apr_norm_args *const a = &c->args->norm;
    norm_chunk chunk = {.x = (const num *)c->in[0] + begin, .of_weight = begin % a->n_weight};
    num sum = 0;
    for (int64_t i = 0; i < a->chunk && a->kind == APR_NORM_LAYER; i++) chunk.mean += chunk.x[i] / (num)a->chunk;
    for (int64_t i = 0; i < a->chunk; i++) sum += (chunk.x[i] - chunk.mean) * (chunk.x[i] - chunk.mean);
    chunk.scale = 1 / MATH(sqrt)((a->kind == APR_NORM_L2 ? sum : sum / (num)a->chunk) + (num)a->eps);
    return chunk;
}

static num norm_gain(const apr_grad_call *c, int64_t i)
{
    return c->weight[0] != NULL ? ((const num *)c->weight[0])[i] + (num)c->args->norm.offset : 1;
}

static void norm_forward(const apr_grad_call *c)
{
    const apr_norm_args *const a = &c->args->norm;
    const int64_t n_chunks = c->n_rows * a->width / a->chunk;
    const num *const bias = c->weight[1];

#pragma omp parallel for num_threads(threads_for(c, n_chunks, 4.0 * (double)(c->n_rows * a->width)))
    for (int64_t k = 0; k < n_chunks; k++) {
        const norm_chunk chunk = norm_chunk_of(c, k * a->chunk);
        num *const out = (num *)c->out + k * a->chunk;
        for (int64_t i = 0; i < a->chunk; i++)
            out[i] = (chunk.x[i] - chunk.mean) * chunk.scale * norm_gain(c, chunk.of_weight + i) +
                     (bias != NULL ? bias[chunk.of_weight + i] : 0);
    }
}

/* Of normed n and u = d_out * gain: d x = scale * (u - mean of u - n * mean of (u n)); the L2 norm has sums, RMS no mean of u. */
static void norm_backward_chunk(const apr_grad_call *c, int64_t begin)
{
    const apr_norm_args *const a = &c->args->norm;
    const norm_chunk chunk = norm_chunk_of(c, begin);
    const num *const d_out = (const num *)c->d_out + begin;
    num *const d_in = (num *)c->d_in[0] + begin, divisor = a->kind == APR_NORM_L2 ? 1 : (num)a->chunk, mean = 0, along = 0;

    for (int64_t i = 0; i < a->chunk; i++) {
        const num u = d_out[i] * norm_gain(c, chunk.of_weight + i);
        mean += u;
        along += u * (chunk.x[i] - chunk.mean) * chunk.scale;
    }
    mean = a->kind == APR_NORM_LAYER ? mean / divisor : 0;
    for (int64_t i = 0; i < a->chunk; i++) {
        const num u = d_out[i] * norm_gain(c, chunk.of_weight + i), normed = (chunk.x[i] - chunk.mean) * chunk.scale;
        d_in[i] += chunk.scale * (u - mean - normed * along / divisor);
    }
}

static void norm_backward_weights(const apr_grad_call *c, int64_t begin)
{
    const norm_chunk chunk = norm_chunk_of(c, begin);
    const num *const d_out = (const num *)c->d_out + begin;
    num *const gain = c->d_weight[0], *const bias = c->d_weight[1];

    for (int64_t i = 0; i < c->args->norm.chunk; i++) {
        if (gain != NULL) gain[chunk.of_weight + i] += d_out[i] * (chunk.x[i] - chunk.mean) * chunk.scale;
        if (bias != NULL) bias[chunk.of_weight + i] += d_out[i];
    }
}

static void norm_backward(const apr_grad_call *c)
{
    const apr_norm_args *const a = &c->args->norm;
    const int64_t n_chunks = c->n_rows * a->width / a->chunk;

    if (c->d_in[0] != NULL) {
#pragma omp parallel for num_threads(threads_for(c, n_chunks, 8.0 * (double)(c->n_rows * a->width)))
        for (int64_t k = 0; k < n_chunks; k++) norm_backward_chunk(c, k * a->chunk);
    }
    if (c->d_weight[0] == NULL && c->d_weight[1] == NULL) return;
    for (int64_t k = 0; k < n_chunks; k++) norm_backward_weights(c, k * a->chunk);
}

/* ---- rotations: backward is the rotation by the negative angle ---- */

/* Rotates a head of a row, or back; the other numbers are copied. Adds to `out`. */
static void rotate(const apr_grad_call *c, const num *x, int64_t head, num sign, num *out)
{
    const apr_rope_args *const a = &c->args->rope;
    const bool is_pair = a->mode == APR_ROPE_NEIGHBOURS;
    const num *const cosines = (const num *)c->in[1] + head / a->n_heads * 2 * a->n_freqs, *const sines = cosines + a->n_freqs;

    x += head * a->head_dim;
    out += head * a->head_dim;
    for (int64_t i = 0; i < a->start; i++) out[i] += x[i];
    for (int64_t j = 0; j < a->n_freqs; j++) {
        const int64_t one = a->start + (is_pair ? 2 * j : j), two = one + (is_pair ? 1 : a->n_freqs);
        const num first = x[one], second = x[two];
        out[one] += first * cosines[j] - sign * second * sines[j];
        out[two] += second * cosines[j] + sign * first * sines[j];
    }
    for (int64_t i = a->start + 2 * a->n_freqs; i < a->head_dim; i++) out[i] += x[i];
}

static void rope_forward(const apr_grad_call *c)
{
    const int64_t n_heads = c->n_rows * c->args->rope.n_heads;

    memset(c->out, 0, (size_t)(c->n_rows * c->width_out) * sizeof(num));
#pragma omp parallel for num_threads(threads_for(c, n_heads, (double)(c->n_rows * c->width_out)))
    for (int64_t head = 0; head < n_heads; head++) rotate(c, c->in[0], head, 1, c->out);
}

static void rope_backward(const apr_grad_call *c)
{
    const int64_t n_heads = c->d_in[0] != NULL ? c->n_rows * c->args->rope.n_heads : 0;

#pragma omp parallel for num_threads(threads_for(c, n_heads, (double)(c->n_rows * c->width_out)))
    for (int64_t head = 0; head < n_heads; head++) rotate(c, c->d_out, head, -1, c->d_in[0]);
}

/* ---- parts of heads ---- */

static void copy_heads(int64_t n_heads, const num *from, int64_t from_width, num *to, int64_t to_width, int64_t n)
{
    for (int64_t h = 0; h < n_heads; h++) memcpy(to + h * to_width, from + h * from_width, (size_t)n * sizeof *to);
}

static void add_heads(int64_t n_heads, const num *from, int64_t from_width, num *to, int64_t to_width, int64_t n)
{
    for (int64_t h = 0; h < n_heads; h++)
        for (int64_t i = 0; i < n; i++) to[h * to_width + i] += from[h * from_width + i];
}

static void slice_forward(const apr_grad_call *c)
{
    const apr_slice_args *const a = &c->args->slice;
    copy_heads(c->n_rows * a->n_heads, (const num *)c->in[0] + a->start, a->head_dim, c->out, a->n, a->n);
}

static void slice_backward(const apr_grad_call *c)
{
    const apr_slice_args *const a = &c->args->slice;
    if (c->d_in[0] != NULL) add_heads(c->n_rows * a->n_heads, c->d_out, a->n, (num *)c->d_in[0] + a->start, a->head_dim, a->n);
}

static void join_forward(const apr_grad_call *c)
{
    const apr_join_args *const a = &c->args->join;
    const int64_t n = c->n_rows * a->n_heads, width = a->n_a + a->n_b;
    copy_heads(n, c->in[0], a->n_a, c->out, width, a->n_a);
    copy_heads(n, c->in[1], a->n_b, (num *)c->out + a->n_a, width, a->n_b);
}

static void join_backward(const apr_grad_call *c)
{
    const apr_join_args *const a = &c->args->join;
    const int64_t n = c->n_rows * a->n_heads, width = a->n_a + a->n_b;
    if (c->d_in[0] != NULL) add_heads(n, c->d_out, width, c->d_in[0], a->n_a, a->n_a);
    if (c->d_in[1] != NULL) add_heads(n, (const num *)c->d_out + a->n_a, width, c->d_in[1], a->n_b, a->n_b);
}

/* The cache is not used: attention reads the keys and values themselves. */
static void kv_store_forward(const apr_grad_call *c) { (void)c; }
/* A window has no more positions than are chosen, so all are, and attention does not read which. */
static void index_forward(const apr_grad_call *c) { memset(c->out, 0, (size_t)(c->n_rows * c->width_out) * sizeof(num)); }

/* ---- a number at a time ---- */

static int64_t n_out(const apr_grad_call *c) { return c->n_rows * c->width_out; }

static void glu_forward(const apr_grad_call *c)
{
    const apr_glu_shape *const s = &c->args->glu.shape;
    const num *const gate = c->in[0], *const up = c->in[1];
#pragma omp parallel for num_threads(threads_for(c, n_out(c), (double)n_out(c) * APR_OPS_EXP))
    for (int64_t i = 0; i < n_out(c); i++)
        ((num *)c->out)[i] = up != NULL ? glu_of(s, gate[i], up[i]).out : activate(s->activation, gate[i]);
}

static void glu_backward_at(const apr_grad_call *c, int64_t i)
{
    const apr_glu_shape *const s = &c->args->glu.shape;
    const num d = ((const num *)c->d_out)[i], gate = ((const num *)c->in[0])[i];
    const glu_value v =
        c->in[1] != NULL ? glu_of(s, gate, ((const num *)c->in[1])[i]) : (glu_value){.by_gate = activation_slope(s->activation, gate)};
    if (c->d_in[0] != NULL) ((num *)c->d_in[0])[i] += d * v.by_gate;
    if (c->d_in[1] != NULL) ((num *)c->d_in[1])[i] += d * v.by_up;
}

static void glu_backward(const apr_grad_call *c)
{
#pragma omp parallel for num_threads(threads_for(c, n_out(c), (double)n_out(c) * APR_OPS_EXP))
    for (int64_t i = 0; i < n_out(c); i++) glu_backward_at(c, i);
}

static void gate_forward(const apr_grad_call *c)
{
    const apr_gate_args *const a = &c->args->gate;
    for (int64_t h = 0; h < c->n_rows * a->n_heads; h++) {
        const num gate = activate(a->activation, ((const num *)c->in[1])[h]);
        for (int64_t i = h * a->head_dim; i < (h + 1) * a->head_dim; i++) ((num *)c->out)[i] = ((const num *)c->in[0])[i] * gate;
    }
}

static void gate_backward(const apr_grad_call *c)
{
    const apr_gate_args *const a = &c->args->gate;
    const num *const x = c->in[0], *const d = c->d_out;
    for (int64_t h = 0; h < c->n_rows * a->n_heads; h++) {
        const num raw = ((const num *)c->in[1])[h], gate = activate(a->activation, raw);
        num sum = 0;
        for (int64_t i = h * a->head_dim; i < (h + 1) * a->head_dim; i++) {
            if (c->d_in[0] != NULL) ((num *)c->d_in[0])[i] += d[i] * gate;
            sum += d[i] * x[i];
        }
        if (c->d_in[1] != NULL) ((num *)c->d_in[1])[h] += sum * activation_slope(a->activation, raw);
    }
}

static num scale_of(const apr_grad_call *c, int64_t row)
{
    const apr_scale_args *const a = &c->args->scale;
    const float periods = a->warmth != 0.0f ? floorf(((float)(row % c->n_positions) + a->shift) / a->period) : 0.0f;
    return (num)a->factor * (1 + (num)a->warmth * MATH(log1p)((num)periods));
}

/* to[row] = or += from[row] * its factor */
static void scale_rows(const apr_grad_call *c, const num *from, bool adds, num *to)
{
#pragma omp parallel for num_threads(threads_for(c, c->n_rows, (double)n_out(c)))
    for (int64_t r = 0; r < c->n_rows; r++) {
        const num factor = scale_of(c, r);
        for (int64_t i = r * c->width_out; i < (r + 1) * c->width_out; i++) to[i] = (adds ? to[i] : 0) + from[i] * factor;
    }
}

static void scale_forward(const apr_grad_call *c) { scale_rows(c, c->in[0], false, c->out); }

static void scale_backward(const apr_grad_call *c)
{
    if (c->d_in[0] != NULL) scale_rows(c, c->d_out, true, c->d_in[0]);
}

/* Where the factor of number i of the output is in y. */
static int64_t mul_at(const apr_grad_call *c, int64_t i)
{
    const apr_mul_args *const a = &c->args->mul;
    return (a->y_is_vector ? 0 : i / c->width_out * a->y_width) + (a->y_width == 1 ? 0 : i % c->width_out);
}

static void mul_forward(const apr_grad_call *c)
{
    const num *const y = c->args->mul.y_is_vector ? c->weight[0] : c->in[1];
    for (int64_t i = 0; i < n_out(c); i++) ((num *)c->out)[i] = ((const num *)c->in[0])[i] * y[mul_at(c, i)];
}

static void mul_backward(const apr_grad_call *c)
{
    const bool is_vector = c->args->mul.y_is_vector;
    const num *const y = is_vector ? c->weight[0] : c->in[1], *const d = c->d_out;
    num *const d_y = is_vector ? c->d_weight[0] : c->d_in[1];

    for (int64_t i = 0; i < n_out(c); i++) {
        if (c->d_in[0] != NULL) ((num *)c->d_in[0])[i] += d[i] * y[mul_at(c, i)];
        if (d_y != NULL) d_y[mul_at(c, i)] += d[i] * ((const num *)c->in[0])[i];
    }
}

static void softcap_forward(const apr_grad_call *c)
{
    const num cap = (num)c->args->softcap.cap;
#pragma omp parallel for num_threads(threads_for(c, n_out(c), (double)n_out(c) * APR_OPS_EXP))
    for (int64_t i = 0; i < n_out(c); i++) ((num *)c->out)[i] = cap * MATH(tanh)(((const num *)c->in[0])[i] / cap);
}

static void softcap_backward(const apr_grad_call *c)
{
    for (int64_t i = 0; i < n_out(c) && c->d_in[0] != NULL; i++) {
        const num t = ((const num *)c->out)[i] / (num)c->args->softcap.cap;
        ((num *)c->d_in[0])[i] += ((const num *)c->d_out)[i] * (1 - t * t);
    }
}

static void add_forward(const apr_grad_call *c)
{
    const num *const a = c->in[0], *const b = c->in[1];
    num *const out = c->out;

#pragma omp parallel for num_threads(threads_for(c, n_out(c), (double)n_out(c)))
    for (int64_t i = 0; i < n_out(c); i++) out[i] = a[i] + b[i];
}

static void add_backward(const apr_grad_call *c)
{
    const num *const d_out = c->d_out;

    for (int k = 0; k < 2; k++) {
        num *const d_in = c->d_in[k];
        if (d_in == NULL) continue;
#pragma omp parallel for num_threads(threads_for(c, n_out(c), (double)n_out(c)))
        for (int64_t i = 0; i < n_out(c); i++) d_in[i] += d_out[i];
    }
}

#endif
