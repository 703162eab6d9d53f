/* attend.cu - causal attention of whole windows for training (the formulas are in kernels/host/grad/attend.h).
 *
 * Some query rows of a window at a time: their scores with all keys that one of them attends to are products of matrices, and so are all
 * that follows from them; a kernel in between makes weights of the scores. All products are in float32: a weight is the exponential of a
 * score, and the gradient of a score is the difference of numbers that are nearly the same. Query heads that share a key/value head are
 * rows of the same product. For that, queries and outputs are gathered by key/value head: [window, kv head, position, head of the group, dim]. */
#include "kernels/cuda/grad/grad.cuh"

enum { ATTEND_ROWS = 128, ATTEND_TOKENS = 2048 /* windows at a time have about so many */, ROW_THREADS = 128, MAX_GRID_Y = 65535 };

/* Scratch memory for `n_windows` windows at a time. */
struct attend_memory {
    int64_t n_windows;
    float *q, *k, *v, *o, *scores;                     /* o: the output, or its gradient */
    float *d_q, *d_k, *d_v, *d_scores, *sinks, *parts; /* sinks: [n_rows, n_heads] */
    size_t n;
};

static float *cut(attend_memory *m, float *work, int64_t n)
{
    float *const at = work != NULL ? work + m->n : NULL;
    m->n += (size_t)(n + 63) / 64 * 64;
    return at;
}

static int64_t most_keys(const apr_grad_call *c)
{
    const apr_attend_args *const a = &c->args->attend;
    return a->window > 0 && a->window + ATTEND_ROWS < c->n_positions ? a->window + ATTEND_ROWS : c->n_positions;
}

/* A grid's second dimension has the key/value heads of all these windows. */
static int64_t windows_at_a_time(const apr_attend_args *a, int64_t n_windows, int64_t n_positions)
{
    const int64_t by_tokens = ATTEND_TOKENS / n_positions, by_grid = MAX_GRID_Y / a->n_kv_heads;
    const int64_t fitting = by_tokens < by_grid ? by_tokens : by_grid;
    return fitting < 1 ? 1 : fitting < n_windows ? fitting : n_windows;
}

/* work: NULL to count. */
static attend_memory cut_memory(const apr_grad_call *c, float *work)
{
    const apr_attend_args *const a = &c->args->attend;
    attend_memory m = {};

    m.n_windows = windows_at_a_time(a, c->n_rows / c->n_positions, c->n_positions);
    const int64_t n = m.n_windows * c->n_positions, n_rows = c->n_positions < ATTEND_ROWS ? c->n_positions : (int64_t)ATTEND_ROWS;
    const int64_t n_scores = m.n_windows * a->n_heads * n_rows * most_keys(c),
                  n_values = c->in[2] != NULL ? n * a->n_kv_heads * a->value_dim : 0;
    m.q = cut(&m, work, n * a->n_heads * a->key_dim);
    m.k = cut(&m, work, n * a->n_kv_heads * a->key_dim);
    m.v = cut(&m, work, n_values);
    m.o = cut(&m, work, n * a->n_heads * a->value_dim);
    m.scores = cut(&m, work, n_scores);
    m.d_q = cut(&m, work, n * a->n_heads * a->key_dim);
    m.d_k = cut(&m, work, n * a->n_kv_heads * a->key_dim);
    m.d_v = cut(&m, work, n_values);
    m.d_scores = cut(&m, work, n_scores);
    m.sinks = cut(&m, work, c->n_rows * a->n_heads);
    m.parts = cut(&m, work, (int64_t)grad_columns_work(c->n_rows, a->n_heads));
    return m;
}

size_t grad_attend_work(const apr_grad_call *c) { return cut_memory(c, NULL).n; }

/* ---- gathering by key/value head ---- */

struct gathering {
    int64_t n_positions, n_heads, group, dim;
    /* Where number i of rows of heads is in the gathered ones. */
    __device__ int64_t at(int64_t i) const
    {
        const int64_t d = i % dim, head = i / dim % n_heads, row = i / dim / n_heads;
        const int64_t part = row / n_positions * (n_heads / group) + head / group;
        return ((part * n_positions + row % n_positions) * group + head % group) * dim + d;
    }
};

struct gather {
    gathering g;
    const float *from;
    float *to;
    __device__ void operator()(int64_t i) const { to[g.at(i)] = from[i]; }
};

struct scatter {
    gathering g;
    const float *from;
    bool adds;
    float *to;
    __device__ void operator()(int64_t i) const { to[i] = (adds ? to[i] : 0.0f) + from[g.at(i)]; }
};

/* ---- some rows ---- */

/* Query rows [row, row + n) of windows from `window` on, and their keys from `first` on. */
struct attend_rows {
    apr_attend_args args;
    int64_t n_positions, window, n_windows, row, n, first, n_keys, group;
    bool own_values;
};

static attend_rows rows_of(const apr_grad_call *c, int64_t window, int64_t n_windows, int64_t row)
{
    const apr_attend_args *const a = &c->args->attend;
    attend_rows r = {
        *a, c->n_positions, window, n_windows, row, 0, apr_attend_first(a, row), 0, a->n_heads / a->n_kv_heads, c->in[2] != NULL};
    r.n = c->n_positions - row < ATTEND_ROWS ? c->n_positions - row : (int64_t)ATTEND_ROWS;
    r.n_keys = row + r.n - r.first;
    return r;
}

/* Matrices of a key/value head, in gathered memory: its queries or outputs, keys, values, scores. */
static grad_matrix queries(const attend_rows &r, const float *q, int64_t dim)
{
    return grad_rows_of(q + r.row * r.group * dim, dim, r.n_positions * r.group * dim);
}
static grad_matrix keys(const attend_rows &r, const float *k)
{
    const int64_t dim = r.args.key_dim;
    return grad_rows_of(k + r.first * dim, dim, r.n_positions * dim);
}
/* Values are in their own rows, or the first numbers of the keys. */
static grad_matrix values(const attend_rows &r, const float *k, const float *v)
{
    const int64_t dim = r.own_values ? r.args.value_dim : r.args.key_dim;
    return grad_rows_of((r.own_values ? v : k) + r.first * dim, dim, r.n_positions * dim);
}
static grad_matrix scores_of(const attend_rows &r, const float *scores) { return grad_rows_of(scores, r.n_keys, r.n * r.group * r.n_keys); }

/* c = or += a b, where c has the form of `to`. */
static apr_status multiply(apr_cuda_device *device, const attend_rows &r, grad_matrix a, grad_matrix b, grad_matrix to, int64_t m,
                           int64_t n, int64_t k, bool adds, apr_error *err)
{
    const grad_product p = {a, b, (float *)to.at, to.row, to.batch, m, n, k, r.n_windows * r.args.n_kv_heads, adds, GRAD_FLOAT32};
    return grad_multiply(device, &p, err);
}

static apr_status multiply_scores(apr_cuda_device *device, const attend_rows &r, grad_matrix a, grad_matrix b, float *scores, int64_t k,
                                  apr_error *err)
{
    return multiply(device, r, a, grad_turned(b), scores_of(r, scores), r.n * r.group, r.n_keys, k, false, err);
}

/* What a row of weights is made of, and of its gradient: rows of heads, as they are. */
struct weighing {
    const float *sinks, *out, *d_out; /* d_out NULL: forward */
    float *scores, *d_scores, *d_sinks;
};

static __device__ float capped(const attend_rows &r, float score)
{
    const float x = score * r.args.scale;
    return r.args.softcap > 0.0f ? r.args.softcap * tanhf(x / r.args.softcap) : x;
}

/* The derivative of a score by q . k. */
static __device__ float score_slope(const attend_rows &r, float score)
{
    const float t = r.args.softcap > 0.0f ? score / r.args.softcap : 0.0f;
    return r.args.scale * (1.0f - t * t);
}

/* The largest score and the sum of exponentials of keys [begin, end), the sink included. Scores are capped in place. Keys are numbered by
 * int, within the rows of scores. */
static __device__ float2 weigh_scores(const attend_rows &r, float sink, int begin, int end, float *scores, float *parts)
{
    float most = sink, sum = 0.0f;
    for (int k = begin + (int)threadIdx.x; k < end; k += ROW_THREADS) {
        scores[k] = capped(r, scores[k]);
        most = fmaxf(most, scores[k]);
    }
    most = block_max<ROW_THREADS>(most, parts);
    for (int k = begin + (int)threadIdx.x; k < end; k += ROW_THREADS) sum += expf(scores[k] - most);
    __syncthreads();
    return make_float2(most, block_sum<ROW_THREADS>(sum, parts) + expf(sink - most));
}

/* A thread block has a row of a head: row m of matrix `blockIdx.y` (window, key/value head). Masked keys get zeros. */
static __global__ void __launch_bounds__(ROW_THREADS) k_weigh(const __grid_constant__ attend_rows r, const __grid_constant__ weighing w)
{
    __shared__ float parts[ROW_THREADS / 32];
    const int64_t m = blockIdx.x, own = r.row + m / r.group, head = blockIdx.y % r.args.n_kv_heads * r.group + m % r.group;
    const int64_t at = ((r.window + blockIdx.y / r.args.n_kv_heads) * r.n_positions + own) * r.args.n_heads + head;
    const int begin = (int)(apr_attend_first(&r.args, own) - r.first), end = (int)(own - r.first) + 1;
    const int64_t first = (blockIdx.y * r.n * r.group + m) * r.n_keys;
    const float sink = w.sinks != NULL ? w.sinks[head] : -INFINITY;
    const float2 norm = weigh_scores(r, sink, begin, end, w.scores + first, parts);
    float along = 0.0f;

    if (w.d_out != NULL) {
        for (int64_t d = threadIdx.x; d < r.args.value_dim; d += ROW_THREADS)
            along += w.d_out[at * r.args.value_dim + d] * w.out[at * r.args.value_dim + d];
        along = block_sum<ROW_THREADS>(along, parts);
        if (threadIdx.x == 0 && w.d_sinks != NULL) w.d_sinks[at] = -expf(sink - norm.x) / norm.y * along;
    }
    for (int k = (int)threadIdx.x; k < (int)r.n_keys; k += ROW_THREADS) {
        const bool is_seen = k >= begin && k < end;
        const float score = w.scores[first + k], weight = is_seen ? expf(score - norm.x) / norm.y : 0.0f;
        w.scores[first + k] = weight;
        if (w.d_out == NULL) continue;
        w.d_scores[first + k] = is_seen ? weight * (w.d_scores[first + k] - along) * score_slope(r, score) : 0.0f;
    }
}

static apr_status weigh(apr_cuda_device *device, const attend_rows &r, const weighing &w, apr_error *err)
{
    const dim3 blocks((unsigned)(r.n * r.group), (unsigned)(r.n_windows * r.args.n_kv_heads));
    k_weigh<<<blocks, ROW_THREADS, 0, device->stream>>>(r, w);
    return apr_cuda_outcome(device, cudaGetLastError(), err);
}

/* ---- forward ---- */

static apr_status forward_rows(apr_cuda_device *device, const apr_grad_call *c, const attend_memory &m, const attend_rows &r,
                               apr_error *err)
{
    const apr_attend_args &a = r.args;
    const weighing w = {grad_weight(c, 0), NULL, NULL, m.scores, NULL, NULL};

    APR_TRY(multiply_scores(device, r, queries(r, m.q, a.key_dim), keys(r, m.k), m.scores, a.key_dim, err));
    APR_TRY(weigh(device, r, w, err));
    return multiply(device, r, scores_of(r, m.scores), values(r, m.k, m.v), queries(r, m.o, a.value_dim), r.n * r.group, a.value_dim,
                    r.n_keys, false, err);
}

/* What both passes read, from row `first` on: n rows. */
static apr_status gather_inputs(apr_cuda_device *device, const apr_grad_call *c, const attend_memory &m, int64_t first, int64_t n,
                                apr_error *err)
{
    const apr_attend_args *const a = &c->args->attend;
    const int64_t q = a->n_heads * a->key_dim, k = a->n_kv_heads * a->key_dim, v = a->n_kv_heads * a->value_dim;
    const gathering of_q = {c->n_positions, a->n_heads, a->n_heads / a->n_kv_heads, a->key_dim};
    const gathering of_k = {c->n_positions, a->n_kv_heads, 1, a->key_dim}, of_v = {c->n_positions, a->n_kv_heads, 1, a->value_dim};

    APR_TRY(grad_each(device, gather{of_q, grad_in(c, 0) + first * q, m.q}, n * q, err));
    APR_TRY(grad_each(device, gather{of_k, grad_in(c, 1) + first * k, m.k}, n * k, err));
    if (c->in[2] == NULL) return APR_OK;
    return grad_each(device, gather{of_v, grad_in(c, 2) + first * v, m.v}, n * v, err);
}

static gathering of_outputs(const apr_grad_call *c)
{
    const apr_attend_args *const a = &c->args->attend;
    return gathering{c->n_positions, a->n_heads, a->n_heads / a->n_kv_heads, a->value_dim};
}

static apr_status forward_windows(apr_cuda_device *device, const apr_grad_call *c, const attend_memory &m, int64_t window,
                                  int64_t n_windows, apr_error *err)
{
    const int64_t first = window * c->n_positions, n = n_windows * c->n_positions;

    APR_TRY(gather_inputs(device, c, m, first, n, err));
    for (int64_t row = 0; row < c->n_positions; row += ATTEND_ROWS)
        APR_TRY(forward_rows(device, c, m, rows_of(c, window, n_windows, row), err));
    return grad_each(device, scatter{of_outputs(c), m.o, false, (float *)c->out + first * c->width_out}, n * c->width_out, err);
}

apr_status grad_attend_forward(apr_cuda_device *device, const apr_grad_call *c, apr_error *err)
{
    const attend_memory m = cut_memory(c, (float *)c->work);
    const int64_t n_windows = c->n_rows / c->n_positions;

    for (int64_t w = 0; w < n_windows; w += m.n_windows)
        APR_TRY(forward_windows(device, c, m, w, n_windows - w < m.n_windows ? n_windows - w : m.n_windows, err));
    return APR_OK;
}

/* ---- backward ---- */

static apr_status backward_rows(apr_cuda_device *device, const apr_grad_call *c, const attend_memory &m, const attend_rows &r,
                                apr_error *err)
{
    const apr_attend_args &a = r.args;
    const grad_matrix q = queries(r, m.q, a.key_dim), d_o = queries(r, m.o, a.value_dim), p = scores_of(r, m.scores);
    const grad_matrix d_s = scores_of(r, m.d_scores), d_v = values(r, m.d_k, m.d_v);
    const int64_t n_rows = r.n * r.group;
    const weighing w = {
        grad_weight(c, 0), (const float *)c->out, grad_d_out(c), m.scores, m.d_scores, c->d_weight[0] != NULL ? m.sinks : NULL};

    APR_TRY(multiply_scores(device, r, q, keys(r, m.k), m.scores, a.key_dim, err));
    APR_TRY(multiply_scores(device, r, d_o, values(r, m.k, m.v), m.d_scores, a.value_dim, err));
    APR_TRY(weigh(device, r, w, err));
    APR_TRY(multiply(device, r, grad_turned(p), d_o, d_v, r.n_keys, a.value_dim, n_rows, true, err));
    APR_TRY(multiply(device, r, d_s, keys(r, m.k), queries(r, m.d_q, a.key_dim), n_rows, a.key_dim, r.n_keys, false, err));
    return multiply(device, r, grad_turned(d_s), q, keys(r, m.d_k), r.n_keys, a.key_dim, n_rows, true, err);
}

static apr_status clear(apr_cuda_device *device, float *x, int64_t n, apr_error *err)
{
    return apr_cuda_outcome(device, cudaMemsetAsync(x, 0, (size_t)n * sizeof(float), device->stream), err);
}

static apr_status give_back(apr_cuda_device *device, const apr_grad_call *c, int input, const float *from, int64_t first, int64_t n,
                            int64_t n_heads, int64_t dim, apr_error *err)
{
    const gathering g = {c->n_positions, n_heads, input == 0 ? n_heads / c->args->attend.n_kv_heads : 1, dim};
    if (c->d_in[input] == NULL) return APR_OK;
    return grad_each(device, scatter{g, from, true, grad_d_in(c, input) + first * n_heads * dim}, n * n_heads * dim, err);
}

static apr_status backward_windows(apr_cuda_device *device, const apr_grad_call *c, const attend_memory &m, int64_t window,
                                   int64_t n_windows, apr_error *err)
{
    const apr_attend_args *const a = &c->args->attend;
    const int64_t first = window * c->n_positions, n = n_windows * c->n_positions;

    APR_TRY(gather_inputs(device, c, m, first, n, err));
    APR_TRY(grad_each(device, gather{of_outputs(c), grad_d_out(c) + first * c->width_out, m.o}, n * c->width_out, err));
    APR_TRY(clear(device, m.d_k, n * a->n_kv_heads * a->key_dim, err));
    if (c->in[2] != NULL) APR_TRY(clear(device, m.d_v, n * a->n_kv_heads * a->value_dim, err));
    for (int64_t row = 0; row < c->n_positions; row += ATTEND_ROWS)
        APR_TRY(backward_rows(device, c, m, rows_of(c, window, n_windows, row), err));
    APR_TRY(give_back(device, c, 0, m.d_q, first, n, a->n_heads, a->key_dim, err));
    APR_TRY(give_back(device, c, 1, m.d_k, first, n, a->n_kv_heads, a->key_dim, err));
    return c->in[2] != NULL ? give_back(device, c, 2, m.d_v, first, n, a->n_kv_heads, a->value_dim, err) : APR_OK;
}

apr_status grad_attend_backward(apr_cuda_device *device, const apr_grad_call *c, apr_error *err)
{
    const attend_memory m = cut_memory(c, (float *)c->work);
    const int64_t n_windows = c->n_rows / c->n_positions, n_heads = c->args->attend.n_heads;

    for (int64_t w = 0; w < n_windows; w += m.n_windows)
        APR_TRY(backward_windows(device, c, m, w, n_windows - w < m.n_windows ? n_windows - w : m.n_windows, err));
    if (c->d_weight[0] == NULL) return APR_OK;
    return grad_add_columns(device, grad_entry_of{m.sinks, n_heads}, c->n_rows, n_heads, m.parts, grad_d_weight(c, 0), err);
}
