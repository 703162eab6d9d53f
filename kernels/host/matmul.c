/* matmul.c - linear layers on the host: a thread decodes a few rows of weights and multiplies them with all tokens. */
#include "kernels/host/host_ops.h"
#include "kernels/host/lanes.h"
#include "kernels/host/packed.h"

/* out[t][r] for one tile of rows and tokens. */
LANES_INLINE void multiply_tile(int n_rows, int n_tokens, const float *rows, const apr_linear_args *a, int64_t first_row, int64_t token)
{
    float sums[4][6];
    lanes_dots(n_rows, n_tokens, rows, a->n_in, a->x + token * a->n_in, a->n_in, a->n_in, sums);
    for (int t = 0; t < n_tokens; t++)
        for (int r = 0; r < n_rows; r++)
            a->out[(token + t) * a->n_out + first_row + r] = a->bias != NULL ? sums[r][t] + a->bias[first_row + r] : sums[r][t];
}

/* A tile of tokens against n_rows decoded rows. */
LANES_INLINE void multiply_tokens(int row_tile, int n_tokens, const apr_linear_args *a, const float *rows, int64_t first_row,
                                  int64_t n_rows, int64_t token)
{
    int64_t r = 0;
    for (; r + row_tile <= n_rows; r += row_tile) multiply_tile(row_tile, n_tokens, rows + r * a->n_in, a, first_row + r, token);
    for (; r < n_rows; r++) multiply_tile(1, n_tokens, rows + r * a->n_in, a, first_row + r, token);
}

/* All tokens. Tokens outside, rows inside: the rows stay in the cache. */
LANES_INLINE void multiply_body(const int row_tile, const int token_tile, const apr_linear_args *a, const float *rows, int64_t first_row,
                                int64_t n_rows)
{
    int64_t t = 0;
    for (; t + token_tile <= a->n_tokens; t += token_tile) multiply_tokens(row_tile, token_tile, a, rows, first_row, n_rows, t);
    for (; t + 2 <= a->n_tokens; t += 2) multiply_tokens(row_tile, 2, a, rows, first_row, n_rows, t);
    for (; t < a->n_tokens; t++) multiply_tokens(4, 1, a, rows, first_row, n_rows, t);
}

LANES_CLONES(multiply, multiply_body, (const apr_linear_args *a, const float *rows, int64_t first_row, int64_t n_rows), a, rows, first_row,
             n_rows)

/* Stored as float32, in order and aligned: there is nothing to decode. */
static const float *plain_rows(const apr_tensor *weight)
{
    const bool is_plain = weight->dtype == APR_F32 && weight->pending.kind == APR_STEP_NONE && weight->packing == NULL &&
                          (uintptr_t)weight->data % sizeof(float) == 0;
    return is_plain ? (const float *)(const void *)weight->data : NULL;
}

/* One or two tokens: each row is read once and never written decoded. */
static void multiply_packed(const apr_linear_args *a, apr_packed_dot_fn dot)
{
#pragma omp parallel for schedule(dynamic, 32) num_threads(apr_threads(a->work.n_threads, a->n_out, apr_host_linear_steps(a)))
    for (int64_t r = 0; r < a->n_out; r++) {
        const uint8_t *const row = apr_tensor_row(a->weight, r);
        for (int64_t t = 0; t < a->n_tokens; t++) {
            float sum;
            dot(row, a->x + t * a->n_in, a->n_in, &sum);
            a->out[t * a->n_out + r] = a->bias != NULL ? sum + a->bias[r] : sum;
        }
    }
}

void apr_host_linear(const apr_op_args *args)
{
    const apr_linear_args *const a = &args->linear;
    const bool lies_plain = a->weight->packing == NULL && a->weight->scale == NULL;
    const apr_packed_dot_fn dot = lies_plain ? apr_host_packed_dot(a->weight->dtype) : NULL;

    if (a->heads.n > 0) {
        apr_host_linear_heads(a);
        return;
    }
    if (dot != NULL && a->n_tokens <= 2) {
        multiply_packed(a, dot);
        return;
    }
    const float *const plain = plain_rows(a->weight);
    /* few tokens: a block that stays in the first-level cache; many: read the tokens less often */
    const int64_t block = a->n_tokens < 4 ? 4 : APR_LINEAR_ROWS;
    const int64_t n_blocks = (a->n_out + block - 1) / block;

#pragma omp parallel for schedule(dynamic, 4) num_threads(apr_threads(a->work.n_threads, n_blocks, apr_host_linear_steps(a)))
    for (int64_t b = 0; b < n_blocks; b++) {
        const int64_t first = b * block, n_rows = a->n_out - first < block ? a->n_out - first : block;
        float *const decoded = a->work.data + apr_host_slice(&a->work);
        if (plain == NULL) apr_decode_rows(a->weight, first, n_rows, decoded);
        multiply(a, plain != NULL ? plain + first * a->n_in : decoded, first, n_rows);
    }
}
