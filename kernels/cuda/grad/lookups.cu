/* lookups.cu - what copies rows or parts of them, for training: embeddings, learned positions, rotary angles, rotations, parts of heads. */
#include "kernels/cuda/grad/grad.cuh"

/* ---- embeddings ---- */

struct embed_rows {
    const float *table;
    const int32_t *ids;
    int64_t width;
    float *out;
    __device__ void operator()(int64_t i) const { out[i] = table[ids[i / width] * width + i % width]; }
};

apr_status grad_embed_forward(apr_cuda_device *device, const apr_grad_call *c, apr_error *err)
{
    return grad_each(device, embed_rows{grad_weight(c, 0), c->args->embed.ids, c->width_out, (float *)c->out}, grad_n_out(c), err);
}

/* Whether one of the rows [begin, end) has this id. All threads take part. */
static __device__ bool has_id(const int32_t *ids, int64_t begin, int64_t end, int32_t id, float *parts)
{
    float found = 0.0f;
    for (int64_t r = begin + threadIdx.x; r < end; r += GRAD_THREADS)
        if (ids[r] == id) found = 1.0f;
    return block_sum<GRAD_THREADS>(found, parts) > 0.0f;
}

/* A thread block for the first row of each id: it adds all rows of that id in order, so that each row of the table has one writer. */
static __global__ void __launch_bounds__(GRAD_THREADS)
    k_embed_backward(const float *d_out, const int32_t *ids, int64_t n_rows, int64_t width, float *table)
{
    __shared__ float parts[GRAD_THREADS / 32];
    const int64_t row = blockIdx.x;
    const int32_t id = ids[row];

    if (has_id(ids, 0, row, id, parts)) return;
    for (int64_t r = row; r < n_rows; r++)
        if (ids[r] == id)
            for (int64_t i = threadIdx.x; i < width; i += GRAD_THREADS) table[id * width + i] += d_out[r * width + i];
}

apr_status grad_embed_backward(apr_cuda_device *device, const apr_grad_call *c, apr_error *err)
{
    if (c->d_weight[0] == NULL) return APR_OK;
    k_embed_backward<<<(unsigned)c->n_rows, GRAD_THREADS, 0, device->stream>>>(grad_d_out(c), c->args->embed.ids, c->n_rows, c->width_out,
                                                                               grad_d_weight(c, 0));
    return apr_cuda_outcome(device, cudaGetLastError(), err);
}

/* ---- positions ---- */

struct position_rows {
    const float *table; /* from the first position on */
    int64_t n_positions, width;
    float *out;
    __device__ void operator()(int64_t i) const { out[i] = table[i / width % n_positions * width + i % width]; }
};

apr_status grad_positions_forward(apr_cuda_device *device, const apr_grad_call *c, apr_error *err)
{
    const float *const table = grad_weight(c, 0) + c->args->positions.first * c->width_out;
    return grad_each(device, position_rows{table, c->n_positions, c->width_out, (float *)c->out}, grad_n_out(c), err);
}

/* Number i of the first window: added over all windows. */
struct add_windows {
    const float *d_out;
    int64_t window, n; /* numbers of a window, of all */
    float *table;
    __device__ void operator()(int64_t i) const
    {
        for (int64_t k = i; k < n; k += window) table[i] += d_out[k];
    }
};

apr_status grad_positions_backward(apr_cuda_device *device, const apr_grad_call *c, apr_error *err)
{
    const int64_t window = c->n_positions * c->width_out;
    if (c->d_weight[0] == NULL) return APR_OK;
    float *const table = grad_d_weight(c, 0) + c->args->positions.first * c->width_out;
    return grad_each(device, add_windows{grad_d_out(c), window, grad_n_out(c), table}, window, err);
}

/* ---- rotations ---- */

struct angles_of {
    const float *freqs;
    int64_t n_freqs, n_positions;
    float magnitude, *out;
    __device__ void operator()(int64_t i) const
    {
        const int64_t row = i / n_freqs, j = i % n_freqs;
        const float angle = (float)(row % n_positions) * freqs[j];
        out[row * 2 * n_freqs + j] = cosf(angle) * magnitude;
        out[row * 2 * n_freqs + n_freqs + j] = sinf(angle) * magnitude;
    }
};

apr_status grad_angles_forward(apr_cuda_device *device, const apr_grad_call *c, apr_error *err)
{
    const apr_angles_args *const a = &c->args->angles;
    return grad_each(device, angles_of{a->freqs, a->n_freqs, c->n_positions, a->magnitude, (float *)c->out}, c->n_rows * a->n_freqs, err);
}

/* Adds the gradient of a number of a head, rotated back; those outside the rotated part are copied. */
struct rotate_back {
    apr_rope_args a;
    const float *d_out, *angles;
    float *d_in;
    __device__ void operator()(int64_t i) const
    {
        const int64_t in_head = i % a.head_dim, at = in_head - a.start;
        if (at < 0 || at >= 2 * a.n_freqs) {
            d_in[i] += d_out[i];
            return;
        }
        const bool is_pair = a.mode == APR_ROPE_NEIGHBOURS, is_first = is_pair ? at % 2 == 0 : at < a.n_freqs;
        const int64_t j = is_pair ? at / 2 : at % a.n_freqs, apart = is_pair ? 1 : a.n_freqs;
        const float *const cosines = angles + i / a.head_dim / a.n_heads * 2 * a.n_freqs + j, sine = cosines[a.n_freqs];
        d_in[i] += d_out[i] * cosines[0] + (is_first ? d_out[i + apart] * sine : -d_out[i - apart] * sine);
    }
};

apr_status grad_rope_backward(apr_cuda_device *device, const apr_grad_call *c, apr_error *err)
{
    if (c->d_in[0] == NULL) return APR_OK;
    return grad_each(device, rotate_back{c->args->rope, grad_d_out(c), grad_in(c, 1), grad_d_in(c, 0)}, grad_n_out(c), err);
}

/* ---- parts of heads ---- */

/* Adds numbers [from_at, from_at + n) of each head of `from` to those at to_at. */
struct add_part {
    const float *from;
    int64_t from_dim, from_at;
    float *to;
    int64_t to_dim, to_at, n;
    __device__ void operator()(int64_t i) const { to[i / n * to_dim + to_at + i % n] += from[i / n * from_dim + from_at + i % n]; }
};

apr_status grad_slice_backward(apr_cuda_device *device, const apr_grad_call *c, apr_error *err)
{
    const apr_slice_args *const a = &c->args->slice;
    if (c->d_in[0] == NULL) return APR_OK;
    return grad_each(device, add_part{grad_d_out(c), a->n, 0, grad_d_in(c, 0), a->head_dim, a->start, a->n}, c->n_rows * a->n_heads * a->n,
                     err);
}

apr_status grad_join_backward(apr_cuda_device *device, const apr_grad_call *c, apr_error *err)
{
    const apr_join_args *const a = &c->args->join;
    const int64_t n[2] = {a->n_a, a->n_b}, first[2] = {0, a->n_a};

    for (int k = 0; k < 2; k++)
        if (c->d_in[k] != NULL)
            APR_TRY(grad_each(device, add_part{grad_d_out(c), a->n_a + a->n_b, first[k], grad_d_in(c, k), n[k], 0, n[k]},
                              c->n_rows * a->n_heads * n[k], err));
    return APR_OK;
}
