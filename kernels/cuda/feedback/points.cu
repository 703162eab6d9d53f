/* points.cu - rounding and descent of types with codebooks: two rows a warp, sixteen threads each, and groups of eight columns at once. */
#include "kernels/cuda/feedback/points_search.cuh"

enum { PANEL = FEEDBACK_PANEL, WARPS = 2, ROWS = 2 /* of a warp */, HALF = WARP / ROWS, METRIC_THREADS = 256 };
enum { MOST = 32 /* columns of a sub-block */ };

/* Thread blocks of a multiprocessor: 128 registers, or 96 for points of four values. */
template <apr_dtype D> static __host__ __device__ constexpr int at_once(void) { return points_of<D>::type().n_values == POINTS ? 8 : 10; }

/* ---- what is the same for all rows ---- */

/* Of rounding: with T the factors of pull inside of the group and 1 on the diagonal, |D (T e + x)|^2 for errors e, the sums x over the
 * columns before and pivots D. A thread an element of S. */
static __global__ void __launch_bounds__(METRIC_THREADS)
    k_metrics_of_factors(const float *__restrict__ pull, const float *__restrict__ pivot, int64_t n, apr_cuda_points_metric *metrics)
{
    const int64_t at = (int64_t)blockIdx.x * METRIC_THREADS + threadIdx.x, k = at / (POINTS * POINTS) * POINTS;
    const int a = (int)(at / POINTS % POINTS), b = (int)(at % POINTS);
    float s = 0.0f;

    if (k >= n) return;
    for (int i = a > b ? a : b; i < POINTS; i++) {
        const float to_a = i == a ? 1.0f : pull[(k + a) * n + k + i], to_b = i == b ? 1.0f : pull[(k + b) * n + k + i];
        s += to_a * to_b * pivot[k + i] * pivot[k + i];
    }
    apr_cuda_points_metric *const m = metrics + k / POINTS;
    m->s[a][b] = s;
    m->solve[a][b] = b < a ? pull[(k + b) * n + k + a] : 0.0f;
    if (a == b) m->inverse[a] = 1.0f / s;
}

/* Of descent: the columns' part of H, and its inverse (Gauss-Jordan). Sixteen threads a group, each with a column of both. */
static __global__ void __launch_bounds__(METRIC_THREADS)
    k_metrics_of_h(const float *__restrict__ h, int64_t n, apr_cuda_points_metric *metrics)
{
    const int64_t at = ((int64_t)blockIdx.x * METRIC_THREADS + threadIdx.x) / HALF * POINTS, k = at < n ? at : n - POINTS;
    const int lane = (int)threadIdx.x % WARP, column = lane % HALF, half = lane - column;
    double a[POINTS];

#pragma unroll
    for (int i = 0; i < POINTS; i++) a[i] = column < POINTS ? (double)h[(k + i) * n + k + column] : i == column - POINTS ? 1.0 : 0.0;
#pragma unroll
    for (int j = 0; j < POINTS; j++) {
        const double pivot = __shfl_sync(WHOLE_WARP, a[j], half + j);
#pragma unroll
        for (int i = 0; i < POINTS; i++) {
            const double factor = __shfl_sync(WHOLE_WARP, a[i], half + j) / pivot;
            if (i != j && column > j) a[i] -= factor * a[j];
        }
    }
    apr_cuda_points_metric *const m = metrics + k / POINTS;
#pragma unroll
    for (int i = 0; i < POINTS; i++) {
        const double diagonal = __shfl_sync(WHOLE_WARP, a[i], half + i);
        if (at >= n) continue;
        if (column >= POINTS) m->solve[i][column - POINTS] = (float)(a[i] / diagonal);
        else m->s[i][column] = h[(k + i) * n + k + column];
        if (i == column) m->inverse[i] = 1.0f / h[(k + i) * (n + 1)];
    }
}

/* ---- a row ---- */

/* What a kernel is called with. */
struct points_args {
    apr_cuda_feedback_rows rows;
    device_book book;
    const float *matrix; /* pull, or H */
    const int32_t *order;
    int64_t n, first;
    int width;
    bool has_panel; /* else it is zeros */
    bool rescale;   /* also tries other scales */
};

/* What a row keeps while its groups are searched, in shared memory: registers are for lists. */
struct points_scale {
    int scale, shift; /* of a sub-block */
};

struct row_memory {
    int64_t row; /* one that exists */
    bool is_there;
    float panel[PANEL]; /* its part of E H, or the sums that are pulled */
    /* of a sub-block: descent */
    float weight[MOST], error[MOST], now[MOST], code[MOST], best[MOST];
    points_scale scale;
    uint16_t d;
    points_scale trial;
    bool is_asked; /* the trial is none that was tried before */
    grid_step step;
    float gain; /* of the best trial */
    int best_number;
};

template <apr_dtype D> struct block_memory {
    points_levels levels;
    points_memory<D> warps[WARPS];
    row_memory rows[WARPS][ROWS];
};

/* A row's place: sixteen threads, in two teams that search for it. */
struct row_place {
    int lane; /* of sixteen */
    row_memory *m;
};

/* False: the warp has no rows. The threads of a block do not meet again after this, so a warp may leave. */
template <apr_dtype D>
static __device__ __forceinline__ bool begin_rows(const points_args &a, block_memory<D> &m, points_search<D> *p, row_place *place)
{
    const int thread = (int)threadIdx.x, warp = thread / WARP, half = thread % WARP / HALF;
    const int64_t row = ((int64_t)blockIdx.x * WARPS + warp) * ROWS + half;

    if (thread < 16) {
        (&m.levels.level[0][0])[thread] = (&points_of<D>::in_memory()->level[0][0])[thread] / a.rows.grid.unit;
        (&m.levels.boundary[0][0])[thread] = (&points_of<D>::in_memory()->boundary[0][0])[thread] / a.rows.grid.unit;
    }
    *place = {thread % HALF, &m.rows[warp][half]};
    place->m->row = row < a.rows.n_rows ? row : a.rows.n_rows - 1;
    place->m->is_there = row < a.rows.n_rows;
    for (int c = place->lane; c < a.width; c += HALF) place->m->panel[c] = a.has_panel ? a.rows.panel[place->m->row * PANEL + c] : 0.0f;
    *p = {&m.warps[warp], &m.levels, a.book, nullptr, thread % WARP, thread % WARP / POINTS, thread % POINTS, 1};
    for (int i = 0; i < p->value % points_of<D>::type().n_values; i++) p->power *= points_of<D>::type().n_levels;
    __syncthreads();
    return row - half < a.rows.n_rows;
}

/* ---- feedback ---- */

template <apr_dtype D> static __global__ void __launch_bounds__(WARP *WARPS, at_once<D>()) k_round_points(points_args a)
{
    typedef block_memory<D> memory_of_block;
    __shared__ memory_of_block memory;
    constexpr int SUB = points_of<D>::type().sub_elems;
    const apr_cuda_feedback_rows &r = a.rows;
    const int64_t n = a.n;
    points_search<D> p;
    row_place place;

    if (!begin_rows(a, memory, &p, &place)) return;
#pragma unroll 1
    for (int begin = 0; begin < a.width; begin += POINTS) {
        const int64_t k = a.first + begin, here = place.m->row * n + a.order[k] + p.value, sub = here / SUB, block = here / IQ_ELEMS;
        const grid_step step = step_of(r.grid, r.d[block], r.dmin[block], r.scale[sub], r.min[sub]);
        const float weight = r.weight[here];
        float x = place.m->panel[begin + p.value];

        p.metric = r.metrics + k / POINTS;
#pragma unroll
        for (int j = 0; j < POINTS; j++) { /* T^-1 x; the diagonal of `solve` is 0, and what is above it */
            const float x_j = of_team(x, j);
            if (p.value > j) x -= __ldg(&p.metric->solve[p.value][j]) * x_j;
        }
        x += weight;
        float code = nearest_points(p, x * step.inverse, r.min[sub], place.m->is_there && step.inverse != 0.0f);
        if (step.inverse == 0.0f) code = (float)r.code[here];
        const float error = weight - value_of(step, code);
        if (place.m->is_there && place.lane < POINTS) {
            r.code[here] = (int8_t)code;
            r.error[here] = error;
            r.gathered[place.m->row * n + k + p.value] = error;
        }
        for (int c = begin + POINTS; c < a.width; c += HALF) {
            const bool is_inside = c + place.lane < a.width;
            const float *const from = a.matrix + k * n + a.first + (is_inside ? c + place.lane : c);
            float sum = place.m->panel[is_inside ? c + place.lane : c];
#pragma unroll
            for (int i = 0; i < POINTS; i++) sum += __ldg(from + i * n) * of_team(error, i);
            if (is_inside) place.m->panel[c + place.lane] = sum;
        }
        __syncwarp();
    }
}

/* ---- descent ---- */

/* Trial t of those within reach, as in quant/feedback/feedback.c: scales, and for each all shifts, where a type has them. The first is
 * what the sub-block has. False: it is another trial's. */
template <apr_dtype D>
static __device__ __forceinline__ bool make_trial(const apr_cuda_grid &grid, points_scale from, int t, points_scale *to)
{
    constexpr int SHIFTS = points_of<D>::type().signs == IQ_SHIFTED_SUBS ? 2 : 1;
    const int as_is = grid.scale_reach * SHIFTS + from.shift, at = t <= as_is ? t - 1 : t;

    *to = from;
    if (t == 0) return true;
    to->scale = from.scale + at / SHIFTS - grid.scale_reach;
    if (SHIFTS > 1) to->shift = at % SHIFTS;
    if (to->scale >= grid.scale_low && to->scale <= grid.scale_high) return true;
    *to = from;
    return false;
}

/* Chooses all groups of a sub-block, one after another, each best given those before. Returns how much that lowers the error; codes are
 * left in the row's memory. */
template <apr_dtype D>
static __device__ __forceinline__ float try_points(const points_args &a, points_search<D> &p, const row_place &place, int begin)
{
    constexpr int SUB = points_of<D>::type().sub_elems;
    row_memory *const m = place.m;
    float gain = 0.0f;

#pragma unroll
    for (int e = 0; e < SUB; e += HALF) m->now[e + place.lane] = m->panel[begin + e + place.lane];
    __syncwarp();
#pragma unroll 1
    for (int group = 0; group < SUB / POINTS; group++) {
        const int64_t at = a.first + begin, column = at + group * POINTS;
        const int c = group * POINTS + p.value;
        p.metric = a.rows.metrics + column / POINTS;
        float x = m->weight[c] - m->error[c];
#pragma unroll
        for (int j = 0; j < POINTS; j++) x += __ldg(&p.metric->solve[p.value][j]) * m->now[group * POINTS + j];
        float code = nearest_points(p, x * m->step.inverse, m->trial.shift, m->is_asked && m->step.inverse != 0.0f);
        if (m->step.inverse == 0.0f) code = m->code[c]; /* stays as it is */
        const float change = m->error[c] - (m->weight[c] - value_of(m->step, code));
        if (place.lane < POINTS) m->code[c] = code;
#pragma unroll
        for (int e = 0; e < SUB; e += HALF) {
            const int j = e + place.lane;
            const float *const from = a.matrix + column * a.n + at + j;
            float now = m->now[j];
#pragma unroll
            for (int i = 0; i < POINTS; i++) now -= __ldg(from + i * a.n) * of_team(change, i);
            m->now[j] = now;
        }
        __syncwarp();
    }
    /* a change x of the values lowers the objective by x (2 g - H x), and H x is the decrease of g */
#pragma unroll
    for (int e = 0; e < SUB; e += HALF) {
        const int c = e + place.lane;
        gain += (m->error[c] - (m->weight[c] - value_of(m->step, m->code[c]))) * (m->panel[begin + c] + m->now[c]);
    }
    return half_warp_sum(gain);
}

/* One sub-block. Leaves the decrease of the errors in the row's `now`. */
template <apr_dtype D>
static __device__ __forceinline__ void descend_sub_block(const points_args &a, points_search<D> &p, const row_place &place, int begin)
{
    constexpr int SUB = points_of<D>::type().sub_elems, SHIFTS = points_of<D>::type().signs == IQ_SHIFTED_SUBS ? 2 : 1;
    const apr_cuda_feedback_rows &r = a.rows;
    const int n_trials = a.rescale ? (2 * r.grid.scale_reach + 1) * SHIFTS : 1;
    row_memory *const m = place.m;
    int64_t here = m->row * a.n + a.first + begin;
    points_scale to;

#pragma unroll
    for (int e = 0; e < SUB; e += HALF) {
        const int c = e + place.lane;
        m->weight[c] = r.weight[here + c];
        m->error[c] = r.error[here + c];
        m->code[c] = (float)r.code[here + c];
    }
    m->scale = {r.scale[here / SUB], r.min[here / SUB]};
    m->d = r.d[here / IQ_ELEMS];
#pragma unroll 1
    for (int number = 0; number < n_trials; number++) {
        m->is_asked = make_trial<D>(r.grid, m->scale, number, &to) && m->is_there;
        m->trial = to;
        m->step = step_of(r.grid, m->d, 0, to.scale, 0);
        const float gain = try_points(a, p, place, begin);
        const bool is_best = number == 0 || (m->is_asked && gain > m->gain);
        __syncwarp();
        if (is_best) {
            m->gain = gain;
            m->best_number = number;
#pragma unroll
            for (int e = 0; e < SUB; e += HALF) m->best[e + place.lane] = m->code[e + place.lane];
        }
        __syncwarp();
    }
    make_trial<D>(r.grid, m->scale, m->best_number, &to);
    const grid_step step = step_of(r.grid, m->d, 0, to.scale, 0);
    const bool is_taken = m->is_there && m->gain > 0.0f;
    here = m->row * a.n + a.first + begin; /* not kept in registers */
#pragma unroll
    for (int e = 0; e < SUB; e += HALF) {
        const int c = e + place.lane;
        const float left = m->weight[c] - value_of(step, m->best[c]);
        m->now[c] = is_taken ? m->error[c] - left : 0.0f;
        if (is_taken) r.code[here + c] = (int8_t)m->best[c], r.error[here + c] = left;
    }
    if (is_taken && place.lane == 0) r.scale[here / SUB] = (int16_t)to.scale, r.min[here / SUB] = (int16_t)to.shift;
    __syncwarp();
}

/* Updates a row's part of E H for the changes of its errors in a sub-block of SUB columns. */
template <int SUB> static __device__ __forceinline__ void update_panel(const points_args &a, const row_place &place, int begin)
{
    for (int c = begin + SUB + place.lane; c < a.width; c += HALF) {
        const float *const column = a.matrix + (a.first + begin) * a.n + a.first + c;
        float sum = 0.0f;
#pragma unroll 8
        for (int k = 0; k < SUB; k++) sum += __ldg(column + k * a.n) * place.m->now[k];
        place.m->panel[c] -= sum;
    }
    __syncwarp();
}

template <apr_dtype D> static __global__ void __launch_bounds__(WARP *WARPS, at_once<D>()) k_descend_points(points_args a)
{
    typedef block_memory<D> memory_of_block;
    __shared__ memory_of_block memory;
    constexpr int SUB = points_of<D>::type().sub_elems;
    points_search<D> p;
    row_place place;

    if (!begin_rows(a, memory, &p, &place)) return;
#pragma unroll 1
    for (int begin = 0; begin < a.width; begin += SUB) {
        descend_sub_block(a, p, place, begin);
        update_panel<SUB>(a, place, begin);
    }
}

/* ---- launches ---- */

struct points_kernels {
    void (*round)(points_args a), (*descend)(points_args a);
    book_name book;
};

static points_kernels kernels_of(apr_dtype dtype)
{
    switch (dtype) {
#define X(ID, ...) \
    case APR_##ID: return {k_round_points<APR_##ID>, k_descend_points<APR_##ID>, points_of<APR_##ID>::BOOK};
        IQ_TYPES(X)
#undef X
    default: return {};
    }
}

/* Finds the kernels and the codebook of a type, and computes the metrics of its groups of columns. */
static apr_status prepare(apr_cuda_solver *s, const apr_cuda_feedback_rows *r, bool descends, points_args *a, points_kernels *kernels,
                          apr_error *err)
{
    const apr_cuda_factors *const f = r->factors;

    APR_TRY(apr_cuda_make_current(s->device, err));
    apr_cuda_begin(s->device, "%s of %lld rows of %lld", descends ? "descent" : "rounding with feedback", (long long)r->n_rows,
                   (long long)f->n);
    *kernels = kernels_of(r->grid.points);
    *a = {*r, {}, descends ? f->h : f->pull, f->order, f->n, 0, 0, false, false};
    APR_TRY(apr_cuda_outcome(s->device, book_on_device(kernels->book, s->device->stream, &a->book), err));
    if (descends)
        k_metrics_of_h<<<blocks_of(f->n / POINTS * HALF, METRIC_THREADS), METRIC_THREADS, 0, s->device->stream>>>(f->h, f->n, r->metrics);
    else
        k_metrics_of_factors<<<blocks_of(f->n * POINTS, METRIC_THREADS), METRIC_THREADS, 0, s->device->stream>>>(f->pull, f->pivot, f->n,
                                                                                                                 r->metrics);
    return apr_cuda_outcome(s->device, cudaGetLastError(), err);
}

static apr_status run_panel(apr_cuda_solver *s, void (*kernel)(points_args a), const points_args *a, apr_error *err)
{
    kernel<<<blocks_of(a->rows.n_rows, ROWS * WARPS), WARP * WARPS, 0, s->device->stream>>>(*a);
    return apr_cuda_outcome(s->device, cudaGetLastError(), err);
}

static int width_from(int64_t n, int64_t first) { return n - first < PANEL ? (int)(n - first) : (int)PANEL; }

apr_status apr_cuda_points_round(apr_cuda_solver *s, const apr_cuda_feedback_rows *r, apr_error *err)
{
    points_kernels kernels;
    points_args a;

    APR_TRY(prepare(s, r, false, &a, &kernels, err));
    for (; a.first < a.n; a.first += PANEL) {
        a.width = width_from(a.n, a.first);
        a.has_panel = a.first > 0;
        if (a.has_panel) APR_TRY(apr_cuda_panel_of_pull(s, r, a.first, a.width, PRODUCT_EXACT, err));
        APR_TRY(run_panel(s, kernels.round, &a, err));
    }
    return APR_OK;
}

apr_status apr_cuda_points_descend(apr_cuda_solver *s, const apr_cuda_feedback_rows *r, bool rescale, apr_error *err)
{
    points_kernels kernels;
    points_args a;

    APR_TRY(prepare(s, r, true, &a, &kernels, err));
    a.has_panel = true;
    a.rescale = rescale;
    for (; a.first < a.n; a.first += PANEL) {
        a.width = width_from(a.n, a.first);
        APR_TRY(apr_cuda_panel_of_errors(s, r, a.first, a.width, PRODUCT_EXACT, err));
        APR_TRY(run_panel(s, kernels.descend, &a, err));
    }
    return APR_OK;
}
