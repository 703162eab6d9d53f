/* linear_heads.c - linear layers on the host where each head has its own matrix: a thread takes a head, decodes a few of its rows and
 * multiplies them with all tokens. */
#include "kernels/host/host_ops.h"
#include "kernels/host/lanes.h"

#include <string.h>

/* Decoded rows [i, i + n_rows) of a head's matrix. */
typedef struct head_rows {
    const float *rows;
    int64_t head, i, n_rows;
} head_rows;

/* out[t][i + r] = row r . x[t] */
LANES_INLINE void dot_rows(const lanes_shape shape, const apr_linear_args *a, const head_rows *h)
{
    const int64_t x_stride = a->heads.n * a->n_in, out_stride = a->heads.n * a->n_out;
    const float *x = a->x + h->head * a->n_in;
    float *out = a->out + h->head * a->n_out + h->i;
    float sums[4][6];

    for (int64_t t = 0, n; t < a->n_tokens; t += n) {
        n = a->n_tokens - t >= shape.tokens ? shape.tokens : 1;
        for (int64_t r = 0; r < h->n_rows; r++) {
            if (n == shape.tokens)
                lanes_dots(shape, 1, shape.tokens, h->rows + r * a->n_in, a->n_in, x + t * x_stride, x_stride, a->n_in, sums);
            else lanes_dots(shape, 1, 1, h->rows + r * a->n_in, a->n_in, x + t * x_stride, x_stride, a->n_in, sums);
            for (int64_t k = 0; k < n; k++) out[(t + k) * out_stride + r] = sums[0][k];
        }
    }
}

/* out[t] += sum over r: x[t][i + r] * row r */
LANES_INLINE void add_rows(const lanes_shape shape, const apr_linear_args *a, const head_rows *h)
{
    for (int64_t t = 0; t < a->n_tokens; t++) {
        const float *const x = a->x + (t * a->heads.n + h->head) * a->n_in + h->i;
        float *const out = a->out + (t * a->heads.n + h->head) * a->n_out;
        for (int64_t r = 0; r < h->n_rows; r++) lanes_add_scaled(shape, out, x[r], h->rows + r * a->n_out, a->n_out);
    }
}

LANES_INLINE void multiply_body(const lanes_shape shape, const apr_linear_args *a, const head_rows *h)
{
    if (a->heads.transposed) add_rows(shape, a, h);
    else dot_rows(shape, a, h);
}

LANES_CLONES(multiply, multiply_body, (const apr_linear_args *a, const head_rows *h), a, h)

static void run_head(const apr_linear_args *a, int64_t head, float *decoded)
{
    const int64_t n_rows = apr_linear_head_rows(a);

    for (int64_t t = 0; t < a->n_tokens && a->heads.transposed; t++)
        memset(a->out + (t * a->heads.n + head) * a->n_out, 0, (size_t)a->n_out * sizeof *a->out);
    for (int64_t i = 0; i < n_rows; i += APR_LINEAR_ROWS) {
        const head_rows h = {.rows = decoded, .head = head, .i = i, .n_rows = n_rows - i < APR_LINEAR_ROWS ? n_rows - i : APR_LINEAR_ROWS};
        apr_decode_rows(a->weight, apr_linear_first_row(a, head) + i, h.n_rows, decoded);
        multiply(a, &h);
    }
}

void apr_host_linear_heads(const apr_linear_args *a)
{
#pragma omp parallel for schedule(dynamic, 1) num_threads(apr_threads(a->work.n_threads, a->heads.n, apr_host_linear_cost(a)))
    for (int64_t head = 0; head < a->heads.n; head++) run_head(a, head, a->work.data + apr_host_slice(&a->work));
}
