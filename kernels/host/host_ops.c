/* host_ops.c - the host backend: the operations whose rows, tokens or numbers are divided between as many threads as the work is worth,
 * and the table of all operations.
 *
 * A share is the same operation on fewer rows, so results do not depend on the number of shares. */
#include "kernels/host/host_ops.h"
#include "kernels/ref/ref_ops.h"

#include <math.h>

/* Cost of a number, in steps (formats/base/threads.h). It is bound by memory; norms and ropes read their input twice. */
enum { STEPS_ONCE = 4, STEPS_TWICE = 8 };

/* Rows [first, first + n) of an operation. */
typedef void (*share_fn)(const apr_op_args *args, int64_t first, int64_t n);

static void divide(const apr_op_args *args, share_fn share, int n_threads, int64_t n_rows, double steps)
{
    const int n = apr_threads(n_threads, n_rows, steps);
    if (n <= 1) {
        share(args, 0, n_rows);
        return;
    }
#pragma omp parallel for schedule(static) num_threads(n)
    for (int i = 0; i < n; i++) {
        const int64_t first = n_rows * i / n;
        share(args, first, n_rows * (i + 1) / n - first);
    }
}

/* Sixteen partial sums, so that the compiler can vectorize. */
static float sum_of_squares(const float *x, float mean, int64_t n)
{
    float lane[16] = {0}, sum = 0.0f;
    int64_t i = 0;

    for (; i + 16 <= n; i += 16)
        for (int l = 0; l < 16; l++) lane[l] += (x[i + l] - mean) * (x[i + l] - mean);
    for (; i < n; i++) sum += (x[i] - mean) * (x[i] - mean);
    for (int l = 0; l < 16; l++) sum += lane[l];
    return sum;
}

static float sum_of(const float *x, int64_t n)
{
    float lane[16] = {0}, sum = 0.0f;
    int64_t i = 0;

    for (; i + 16 <= n; i += 16)
        for (int l = 0; l < 16; l++) lane[l] += x[i + l];
    for (; i < n; i++) sum += x[i];
    for (int l = 0; l < 16; l++) sum += lane[l];
    return sum;
}

static void norm_rms(const apr_norm_args *a)
{
    for (int64_t begin = 0; begin < a->n_tokens * a->width; begin += a->chunk) {
        const float *const x = a->x + begin, *const weight = a->weight + begin % a->n_weight;
        const float scale = 1.0f / sqrtf(sum_of_squares(x, 0.0f, a->chunk) / (float)a->chunk + a->eps);
        for (int64_t i = 0; i < a->chunk; i++) a->out[begin + i] = x[i] * scale * (weight[i] + a->offset);
    }
}

static void norm_share(const apr_op_args *args, int64_t first, int64_t n)
{
    apr_op_args some = *args;
    some.norm.n_tokens = n;
    some.norm.x += first * args->norm.width;
    some.norm.out += first * args->norm.width;
    if (some.norm.kind == APR_NORM_RMS && some.norm.weight != NULL && some.norm.bias == NULL) norm_rms(&some.norm);
    else apr_ref_norm(&some);
}

static void norm_rows(const apr_op_args *args)
{
    const apr_norm_args *const a = &args->norm;
    divide(args, norm_share, a->n_threads, a->n_tokens, STEPS_TWICE * (double)a->n_tokens * (double)a->width);
}

static void rope_share(const apr_op_args *args, int64_t first, int64_t n)
{
    const int64_t width = args->rope.n_heads * args->rope.head_dim;
    apr_op_args some = *args;
    some.rope.n_tokens = n;
    some.rope.x += first * width;
    some.rope.angles += first * 2 * args->rope.n_freqs;
    some.rope.out += first * width;
    apr_ref_rope(&some);
}

static void rope(const apr_op_args *args)
{
    const apr_rope_args *const a = &args->rope;
    divide(args, rope_share, a->n_threads, a->n_tokens, STEPS_TWICE * (double)(a->n_tokens * a->n_heads) * (double)a->head_dim);
}

/* A row here is a head, since a single token has many. */
static void gate_share(const apr_op_args *args, int64_t first, int64_t n)
{
    apr_op_args some = *args;
    some.gate.n_tokens = n;
    some.gate.n_heads = 1;
    some.gate.x += first * args->gate.head_dim;
    some.gate.gate += first;
    some.gate.out += first * args->gate.head_dim;
    apr_ref_gate(&some);
}

static void gate(const apr_op_args *args)
{
    const apr_gate_args *const a = &args->gate;
    const int64_t n_rows = a->n_tokens * a->n_heads;
    divide(args, gate_share, a->n_threads, n_rows, (double)n_rows * (double)(STEPS_ONCE * a->head_dim + APR_OPS_EXP));
}

static void scale_share(const apr_op_args *args, int64_t first, int64_t n)
{
    apr_op_args some = *args;
    some.scale.n_tokens = n;
    some.scale.position += first;
    some.scale.x += first * args->scale.width;
    some.scale.out += first * args->scale.width;
    apr_ref_scale(&some);
}

static void scale_rows(const apr_op_args *args)
{
    const apr_scale_args *const a = &args->scale;
    divide(args, scale_share, a->n_threads, a->n_tokens, STEPS_ONCE * (double)a->n_tokens * (double)a->width);
}

static void mul_share(const apr_op_args *args, int64_t first, int64_t n)
{
    apr_op_args some = *args;
    some.mul.n_tokens = n;
    some.mul.x += first * args->mul.width;
    if (!args->mul.y_is_vector) some.mul.y += first * args->mul.y_width;
    some.mul.out += first * args->mul.width;
    apr_ref_mul(&some);
}

static void mul_rows(const apr_op_args *args)
{
    const apr_mul_args *const a = &args->mul;
    divide(args, mul_share, a->n_threads, a->n_tokens, STEPS_ONCE * (double)a->n_tokens * (double)a->width);
}

/* A row here is a number, since a single token has many logits. */
static void softcap_share(const apr_op_args *args, int64_t first, int64_t n)
{
    apr_op_args some = *args;
    some.softcap.n_tokens = n;
    some.softcap.width = 1;
    some.softcap.x += first;
    some.softcap.out += first;
    apr_ref_softcap(&some);
}

static void softcap(const apr_op_args *args)
{
    const apr_softcap_args *const a = &args->softcap;
    const int64_t n = a->n_tokens * a->width;
    divide(args, softcap_share, a->n_threads, n, APR_OPS_EXP * (double)n);
}

static void add_share(const apr_op_args *args, int64_t first, int64_t n)
{
    apr_op_args some = *args;
    some.add.n_tokens = n;
    some.add.width = 1;
    some.add.a += first;
    some.add.b += first;
    some.add.out += first;
    apr_ref_add(&some);
}

static void add_rows(const apr_op_args *args)
{
    const apr_add_args *const a = &args->add;
    const int64_t n = a->n_tokens * a->width;
    divide(args, add_share, a->n_threads, n, STEPS_ONCE * (double)n);
}

static void altup_share(const apr_op_args *args, int64_t first, int64_t n)
{
    const apr_altup_args *const a = &args->altup;
    apr_op_args some = *args;
    some.altup.n_tokens = n;
    some.altup.x += first * a->n_streams * a->width;
    some.altup.y += first * a->n_y * a->width;
    if (a->routed != NULL) some.altup.routed += first * a->n_streams;
    some.altup.out += first * a->n_streams * a->width;
    apr_ref_altup(&some);
}

static void altup(const apr_op_args *args)
{
    const apr_altup_args *const a = &args->altup;
    const double steps = (double)(a->n_tokens * a->n_streams) * (double)(a->n_y * a->width);
    divide(args, altup_share, a->n_threads, a->n_tokens, STEPS_ONCE * steps);
}

static void rescale_rows(const apr_rescale_args *a)
{
    for (int64_t at = 0; at < a->n_tokens * a->width; at += a->width) {
        const float square = fmaxf(sum_of_squares(a->x + at, 0.0f, a->width) / (float)a->width, a->floor);
        const float factor = sqrtf(sum_of_squares(a->like + at, 0.0f, a->width) / (float)a->width) / sqrtf(square);
        for (int64_t i = at; i < at + a->width; i++) a->out[i] = a->x[i] * factor;
    }
}

static void rescale_share(const apr_op_args *args, int64_t first, int64_t n)
{
    apr_op_args some = *args;
    some.rescale.n_tokens = n;
    some.rescale.x += first * args->rescale.width;
    some.rescale.like += first * args->rescale.width;
    some.rescale.out += first * args->rescale.width;
    rescale_rows(&some.rescale);
}

static void rescale(const apr_op_args *args)
{
    const apr_rescale_args *const a = &args->rescale;
    divide(args, rescale_share, a->n_threads, a->n_tokens, STEPS_TWICE * (double)a->n_tokens * (double)a->width);
}

static void gauss_topk_rows(const apr_gauss_topk_args *a)
{
    for (int64_t at = 0; at < a->n_tokens * a->width; at += a->width) {
        const float mean = sum_of(a->x + at, a->width) / (float)a->width;
        const float least = mean + a->factor * sqrtf(sum_of_squares(a->x + at, mean, a->width) / (float)a->width);
        for (int64_t i = at; i < at + a->width; i++) a->out[i] = fmaxf(0.0f, a->x[i] - least);
    }
}

static void gauss_topk_share(const apr_op_args *args, int64_t first, int64_t n)
{
    apr_op_args some = *args;
    some.gauss_topk.n_tokens = n;
    some.gauss_topk.x += first * args->gauss_topk.width;
    some.gauss_topk.out += first * args->gauss_topk.width;
    gauss_topk_rows(&some.gauss_topk);
}

static void gauss_topk(const apr_op_args *args)
{
    const apr_gauss_topk_args *const a = &args->gauss_topk;
    divide(args, gauss_topk_share, a->n_threads, a->n_tokens, STEPS_TWICE * (double)a->n_tokens * (double)a->width);
}

static void glu(const apr_op_args *args)
{
    const apr_glu_args *const a = &args->glu;
    const int64_t n = a->n_tokens * a->width;
#pragma omp parallel for schedule(static) num_threads(apr_threads(a->n_threads, n, (double)n *APR_OPS_EXP))
    for (int64_t i = 0; i < n; i++)
        a->out[i] = a->up != NULL ? apr_glu_of(&a->shape, a->gate[i], a->up[i]) : apr_activate(a->shape.activation, a->gate[i]);
}

/* ---- tokens ---- */

static void route(const apr_op_args *args)
{
    const apr_route_args *const a = &args->route;
    const int n_threads = apr_threads(a->work.n_threads, a->n_tokens, (double)a->n_tokens * (double)a->shape.n_experts * APR_OPS_EXP);
#pragma omp parallel for schedule(static) num_threads(n_threads)
    for (int64_t t = 0; t < a->n_tokens; t++) apr_ref_route_one(a, t, a->work.data + apr_host_slice(&a->work));
}

static void conv(const apr_op_args *args)
{
    const apr_conv_args *const a = &args->conv;
    const int64_t n_before = a->n_taps - 1;
    const double steps = (double)a->n_tokens * (double)a->width * (double)(a->n_taps + APR_OPS_EXP);

#pragma omp parallel for schedule(static) num_threads(apr_threads(a->n_threads, a->n_tokens, steps))
    for (int64_t t = 0; t < a->n_tokens; t++)
        for (int64_t c = 0; c < a->width; c++) {
            float sum = 0.0f;
            for (int64_t k = 0; k < a->n_taps; k++) {
                const int64_t at = t - n_before + k;
                sum += a->weight[c * a->n_taps + k] * (at < 0 ? a->state[(n_before + at) * a->width + c] : a->x[at * a->width + c]);
            }
            a->out[t * a->width + c] = apr_activate(a->activation, a->bias != NULL ? sum + a->bias[c] : sum);
        }
    apr_ref_conv_remember(a);
}

static uint8_t *cache_row(const apr_cache *cache, int64_t position, int64_t n_heads, int64_t head)
{
    return cache->data + (apr_cache_cell(cache, position) * n_heads + head) * cache->row_bytes;
}

static void store_cells(const apr_kv_store_args *a, const apr_cache *cache, const float *x, int64_t width)
{
    const apr_codec *const codecs = apr_host_codecs();
    const int64_t n = a->n_kv_heads * width;
    /* the heads of a cell are adjacent, and a head is whole blocks: one call for all */
    for (int64_t t = 0; t < a->n_tokens; t++)
        codecs[cache->dtype].encode(x + t * n, cache_row(cache, a->position + t, a->n_kv_heads, 0), n);
}

static void kv_store(const apr_op_args *args)
{
    const apr_kv_store_args *const a = &args->kv_store;
    store_cells(a, &a->keys, a->k, a->key_dim);
    if (a->v != NULL) store_cells(a, &a->values, a->v, a->value_dim);
}

/* ---- the table ---- */

static void linear(const apr_op_args *args) { apr_host_linears((const apr_linear_args *const[]){&args->linear}, 1); }
static void linear_exact(const apr_op_args *args) { apr_host_linears_exact((const apr_linear_args *const[]){&args->linear}, 1); }
static void experts(const apr_op_args *args) { apr_host_experts(&args->experts, apr_host_linears); }
static void experts_exact(const apr_op_args *args) { apr_host_experts(&args->experts, apr_host_linears_exact); }
static void experts_float64(const apr_op_args *args) { apr_host_experts(&args->experts, apr_float64_linears); }

/* Each backend's own operations and those all of them have; operations without a faster implementation are ref's. */
#define OPS(norm, linear, store, index, attend, experts, delta, ssd, scaled, topk)                                                         \
    {                                                                                                                                      \
        [APR_OP_EMBED] = apr_ref_embed, [APR_OP_POSITIONS] = apr_ref_positions, [APR_OP_ANGLES] = apr_ref_angles, [APR_OP_NORM] = norm,    \
        [APR_OP_LINEAR] = linear, [APR_OP_ROPE] = rope, [APR_OP_SLICE] = apr_ref_slice, [APR_OP_JOIN] = apr_ref_join,                      \
        [APR_OP_KV_STORE] = store, [APR_OP_INDEX] = index, [APR_OP_ATTEND] = attend, [APR_OP_GLU] = glu, [APR_OP_GATE] = gate,             \
        [APR_OP_SCALE] = scale_rows, [APR_OP_MUL] = mul_rows, [APR_OP_SOFTCAP] = softcap, [APR_OP_ADD] = add_rows, [APR_OP_ROUTE] = route, \
        [APR_OP_EXPERTS] = experts, [APR_OP_CONV] = conv, [APR_OP_DELTA] = delta, [APR_OP_SSD] = ssd, [APR_OP_ALTUP] = altup,              \
        [APR_OP_RESCALE] = scaled, [APR_OP_GAUSS_TOPK] = topk                                                                              \
    }
#define HOST_OPS(linear, experts) \
    OPS(norm_rows, linear, kv_store, apr_host_index, apr_host_attend, experts, apr_host_delta, apr_host_ssd, rescale, gauss_topk)

const apr_backend apr_host_backend = {.name = "host", .ops = HOST_OPS(linear, experts), .linears = apr_host_linears};
const apr_backend apr_host_exact_backend = {
    .name = "host", .ops = HOST_OPS(linear_exact, experts_exact), .linears = apr_host_linears_exact};
const apr_backend apr_float64_backend = {
    .name = "float64",
    .ops = OPS(apr_float64_norm, apr_float64_linear, apr_ref_kv_store, apr_float64_index, apr_float64_attend, experts_float64,
               apr_float64_delta, apr_float64_ssd, apr_float64_rescale, apr_float64_gauss_topk),
};
