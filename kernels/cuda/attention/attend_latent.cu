/* attend_latent.cu - attention to latents, on tensor cores: a value is the first part of its key, and one key serves all heads.
 *
 * A thread block of eight warps has 32 or 64 rows (heads of tokens) and goes over the visible cells, CELLS at a time. A cell is copied once
 * and read twice, as key and as value. Warps form groups of 32 rows. In a group each warp has some cells of the scores, and afterwards some
 * columns of the values: so maxima and weights of a group are exchanged in shared memory. The fast kernel stores weights where the tile's
 * keys have numbers that are not values: all scores are known by then.
 *
 * Careful: queries and weights are two FP16 parts each, and sums are added in float32 outside the tensor cores after a few products, since
 * tensor cores truncate. */
#include "kernels/cuda/attention/attend_combine.cuh"
#include "kernels/cuda/attention/attend_prompt.cuh"

enum { LATENT_WARPS = 8, LATENT_THREADS = 32 * LATENT_WARPS, PART_CELLS = 512, ROPE = 64, COMBINED = 128 };

/* KEY: VALUE numbers of the latent, then ROPE. */
template <int VALUE, int ROWS, int CELLS, bool CAREFUL> struct latent {
    static constexpr int KEY = VALUE + ROPE, STRIDE = 2 * KEY + 16; /* avoids bank conflicts */
    static constexpr int GROUP_WARPS = LATENT_WARPS * 32 / ROWS, COLUMNS = VALUE / GROUP_WARPS, VALUE_TILES = COLUMNS / 8;
    static constexpr int OWN_CELLS = CELLS / GROUP_WARPS < 8 ? 8 : CELLS / GROUP_WARPS, CELL_TILES = OWN_CELLS / 8;
    static constexpr int QUERIES = ROWS * STRIDE, TILE = CELLS * STRIDE, PARTS = CAREFUL ? 2 : 1;
    static constexpr bool IN_TILE = !CAREFUL && CELLS <= ROPE && ROWS <= CELLS; /* weights are in the tile */
    static constexpr int WEIGHT_STRIDE = IN_TILE ? STRIDE : 2 * CELLS + 16, WEIGHTS = IN_TILE ? 0 : ROWS * WEIGHT_STRIDE;
    static constexpr int SHARED_MAX = LATENT_WARPS * 32 * (int)sizeof(float);
    static constexpr int BYTES = PARTS * (QUERIES + WEIGHTS) + SHARED_MAX + TILE;
    static constexpr int TOGETHER = KEY == 576 ? 12 : 10; /* steps of 16 columns that tensor cores add up in a careful score */
    static_assert(OWN_CELLS <= 16 && KEY / 16 % TOGETHER == 0 && TOGETHER % 2 == 0, "the loads of keys");

    float sums[2][VALUE_TILES][4];           /* rows g and g + 8 of each 16, columns 8 n + 2 t and 2 t + 1 */
    float max_score[2][2], weight[2][2];     /* of these rows; of the weight this thread's share */
    float factor[2][2];                      /* a product times it is a score in units of log2 */
    uint8_t *queries, *weights, *remainders; /* of the warp's 32 rows; remainders: of the weights */
    float *top;                              /* [GROUP_WARPS][32] maxima of the group */
    int place;                               /* of the warp in its group */

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int m = 0; m < 2; m++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                max_score[m][h] = ATTEND_LOWEST;
                weight[m][h] = 0.0f;
            }
#pragma unroll
            for (int n = 0; n < VALUE_TILES; n++)
#pragma unroll
                for (int k = 0; k < 4; k++) sums[m][n][k] = 0.0f;
        }
    }

    /* Stores a row as FP16, scaled by a power of two of its own, by one warp. Returns the inverse of that power. */
    static __device__ __forceinline__ float put_query(const float *from, int key_dim, uint8_t *to, uint8_t *rest)
    {
        enum { EACH = (KEY + 127) / 128 };
        const int lane = threadIdx.x % 32;
        float4 x[EACH];
        float largest = 0.0f;
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            const int column = 4 * lane + 128 * k;
            x[k] = from != NULL && column < key_dim ? *(const float4 *)(from + column) : make_float4(0, 0, 0, 0);
            largest = fmaxf(fmaxf(largest, fmaxf(fabsf(x[k].x), fabsf(x[k].y))), fmaxf(fabsf(x[k].z), fabsf(x[k].w)));
        }
        const float scale = row_scale(warp_max(largest));
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            const int column = 4 * lane + 128 * k;
            if (column >= KEY) continue;
            const float4 q = make_float4(x[k].x * scale, x[k].y * scale, x[k].z * scale, x[k].w * scale);
            const uint2 packed = make_uint2(pack_f16(q.x, q.y), pack_f16(q.z, q.w));
            *(uint2 *)(to + 2 * column) = packed;
            if (CAREFUL)
                *(uint2 *)(rest + 2 * column) = make_uint2(pack_remainders(q.x, q.y, packed.x), pack_remainders(q.z, q.w, packed.y));
        }
        return inverse_power(scale);
    }

    /* dots = queries * keys, for the warp's cells; `keys` is the first of them. */
    template <int STEPS>
    __device__ __forceinline__ void multiply_steps(const uint8_t *keys, int begin, float (&dots)[2][CELL_TILES][4]) const
    {
        const int lane = threadIdx.x % 32;
        const uint8_t *const q_row = queries + lane % 16 * STRIDE + lane / 16 * 16 + 32 * begin;
        const uint8_t *const k_row =
            keys + (CELL_TILES == 2 ? (lane / 16 * 8 + lane % 8) * STRIDE + lane / 8 % 2 * 16 : lane % 8 * STRIDE + lane / 8 * 16) +
            32 * begin;
#pragma unroll
        for (int i = 0; i < STEPS; i += 2) {
            uint32_t k[2][4];
            load_matrices(k[0], k_row + 32 * i);
            if (CELL_TILES == 2) load_matrices(k[1], k_row + 32 * i + 32);
#pragma unroll
            for (int j = 0; j < 2; j++)
#pragma unroll
                for (int part = 0; part < PARTS; part++)
#pragma unroll
                    for (int m = 0; m < 2; m++) {
                        uint32_t q[4];
                        load_matrices(q, q_row + part * QUERIES + m * 16 * STRIDE + 32 * (i + j));
#pragma unroll
                        for (int n = 0; n < CELL_TILES; n++) {
                            if (CELL_TILES == 2) mma(dots[m][n], q, k[j][2 * n], k[j][2 * n + 1]);
                            else mma(dots[m][n], q, k[0][2 * j], k[0][2 * j + 1]);
                        }
                    }
        }
    }

    __device__ __forceinline__ void multiply(const uint8_t *keys, float (&dots)[2][CELL_TILES][4]) const
    {
        constexpr int STEPS = CAREFUL ? TOGETHER : 4;
#pragma unroll 1
        for (int begin = 0; begin < KEY / 16; begin += STEPS) {
            if constexpr (!CAREFUL) multiply_steps<STEPS>(keys, begin, dots);
            else {
                float some[2][CELL_TILES][4] = {};
                multiply_steps<STEPS>(keys, begin, some);
#pragma unroll
                for (int i = 0; i < 8 * CELL_TILES; i++)
                    dots[i / 4 / CELL_TILES][i / 4 % CELL_TILES][i % 4] += some[i / 4 / CELL_TILES][i / 4 % CELL_TILES][i % 4];
            }
        }
    }

    /* Masks the positions that a row does not see, from `first` on. */
    static __device__ __forceinline__ void mask(const prompt_view &v, const prompt_row *rows, int first, float (&dots)[2][CELL_TILES][4])
    {
        if (first >= v.all_see_from && first + OWN_CELLS - 1 <= v.all_see_last) return;
        const int g = threadIdx.x % 32 / 4, begin = first + threadIdx.x % 4 * 2;
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int low = rows[16 * m + 8 * h + g].low - begin, high = rows[16 * m + 8 * h + g].high - begin;
#pragma unroll
                for (int n = 0; n < CELL_TILES; n++)
#pragma unroll
                    for (int k = 0; k < 2; k++)
                        if (8 * n + k < low || 8 * n + k > high) dots[m][n][2 * h + k] = -INFINITY;
            }
    }

    /* The warp's maxima of each row. */
    __device__ __forceinline__ void put_top(const float (&dots)[2][CELL_TILES][4]) const
    {
        const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float x = -INFINITY;
#pragma unroll
                for (int n = 0; n < CELL_TILES; n++) x = fmaxf(x, fmaxf(dots[m][n][2 * h], dots[m][n][2 * h + 1]));
                x = quad_max(x) * factor[m][h];
                if (t == 0) top[place * 32 + 16 * m + 8 * h + g] = x;
            }
    }

    /* Updates the running maxima; if one of the group's grew by more than ATTEND_LAG, the sums are rescaled. */
    __device__ __forceinline__ void update_max()
    {
        const int g = threadIdx.x % 32 / 4;
        float most[2][2];
        bool grows = false;
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                most[m][h] = top[16 * m + 8 * h + g];
#pragma unroll
                for (int i = 1; i < GROUP_WARPS && i * OWN_CELLS < CELLS; i++)
                    most[m][h] = fmaxf(most[m][h], top[i * 32 + 16 * m + 8 * h + g]);
                grows = grows || most[m][h] > max_score[m][h] + ATTEND_LAG;
            }
        if (!__any_sync(0xffffffffu, grows)) return;
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const float now = fmaxf(max_score[m][h], most[m][h]), down = power_of_two(max_score[m][h] - now);
                max_score[m][h] = now;
                weight[m][h] *= down;
#pragma unroll
                for (int n = 0; n < VALUE_TILES; n++) sums[m][n][2 * h] *= down, sums[m][n][2 * h + 1] *= down;
            }
    }

    /* Turns the warp's products into weights times 2^HEADROOM, and stores them for the group. */
    __device__ __forceinline__ void put_weights(const float (&dots)[2][CELL_TILES][4])
    {
        const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int n = 0; n < CELL_TILES; n++) {
                    const float shift = ATTEND_HEADROOM - max_score[m][h];
                    const float x = power_of_two(fmaf(dots[m][n][2 * h], factor[m][h], shift)),
                                y = power_of_two(fmaf(dots[m][n][2 * h + 1], factor[m][h], shift));
                    const int at = (16 * m + 8 * h + g) * WEIGHT_STRIDE + 2 * (place * OWN_CELLS + 8 * n + 2 * t);
                    const uint32_t packed = pack_f16(x, y);
                    weight[m][h] += x + y;
                    *(uint32_t *)(weights + at) = packed;
                    if (CAREFUL) *(uint32_t *)(remainders + at) = pack_remainders(x, y, packed);
                }
    }

    /* sums += weights * values, in the warp's columns */
    __device__ __forceinline__ void add_values(const uint8_t *tile)
    {
        const int lane = threadIdx.x % 32;
        const uint8_t *const row = tile + lane % 16 * STRIDE + lane / 16 * 16 + 2 * place * COLUMNS;
        const int at = lane % 16 * WEIGHT_STRIDE + lane / 16 * 16;
#pragma unroll(CELLS == 64 ? 2 : CELLS / 16)
        for (int i = 0; i < CELLS / 16; i++) {
            uint32_t p[2][4];
#pragma unroll
            for (int m = 0; m < 2; m++) load_matrices(p[m], weights + at + m * 16 * WEIGHT_STRIDE + 32 * i);
#pragma unroll
            for (int n = 0; n < VALUE_TILES; n += 2) {
                uint32_t x[4];
                load_transposed(x, row + i * 16 * STRIDE + 16 * n);
#pragma unroll
                for (int m = 0; m < 2; m++) {
                    mma(sums[m][n], p[m], x[0], x[1]);
                    mma(sums[m][n + 1], p[m], x[2], x[3]);
                }
            }
        }
    }

    __device__ __forceinline__ void add_values_carefully(const uint8_t *tile)
    {
        const int lane = threadIdx.x % 32;
        const uint8_t *const row = tile + lane % 16 * STRIDE + lane / 16 * 16 + 2 * place * COLUMNS;
        const int at = lane % 16 * WEIGHT_STRIDE + lane / 16 * 16;
        uint32_t p[2][CELLS / 16][4], rest[2][CELLS / 16][4];
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int i = 0; i < CELLS / 16; i++) {
                load_matrices(p[m][i], weights + at + m * 16 * WEIGHT_STRIDE + 32 * i);
                load_matrices(rest[m][i], remainders + at + m * 16 * WEIGHT_STRIDE + 32 * i);
            }
#pragma unroll
        for (int n = 0; n < VALUE_TILES; n += 2) {
            float some[2][2][4] = {};
#pragma unroll
            for (int i = 0; i < CELLS / 16; i++) {
                uint32_t x[4];
                load_transposed(x, row + i * 16 * STRIDE + 16 * n);
#pragma unroll
                for (int m = 0; m < 2; m++) {
                    mma(some[m][0], p[m][i], x[0], x[1]);
                    mma(some[m][1], p[m][i], x[2], x[3]);
                    mma(some[m][0], rest[m][i], x[0], x[1]);
                    mma(some[m][1], rest[m][i], x[2], x[3]);
                }
            }
#pragma unroll
            for (int i = 0; i < 16; i++) sums[i / 8][n + i / 4 % 2][i % 4] += some[i / 8][i / 4 % 2][i % 4];
        }
    }

    /* Each row's sum of weights, of the whole group, in its four lanes. Called once, at the end, by all warps. */
    __device__ __forceinline__ void sum_weights()
    {
        const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
        __syncthreads(); /* the maxima have been read */
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const float own = quad_sum(weight[m][h]);
                if (t == 0) top[place * 32 + 16 * m + 8 * h + g] = own;
            }
        __syncthreads();
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                weight[m][h] = 0.0f;
#pragma unroll
                for (int i = 0; i < GROUP_WARPS; i++) weight[m][h] += top[i * 32 + 16 * m + 8 * h + g];
            }
    }

    __device__ __forceinline__ void write(const apr_attend_args &a, const attend_parts &parts, const prompt_row *rows, bool is_part)
    {
        const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float by = 1.0f;
                const int64_t to = rows[16 * m + 8 * h + g].which;
                if (to < 0) continue;
                const int64_t at = is_part ? blockIdx.y * a.n_tokens * a.n_heads + to : to;
                if (!is_part) {
                    const float divisor = with_sink(a, (int)to, max_score[m][h] - ATTEND_HEADROOM, weight[m][h], &by);
                    by /= divisor;
                } else if (t == 0 && place == 0) {
                    parts.largest[at] = max_score[m][h] - ATTEND_HEADROOM;
                    parts.weight[at] = weight[m][h];
                }
                float *const out = (is_part ? parts.sums : a.out) + at * a.value_dim + 2 * t;
#pragma unroll
                for (int n = 0; n < VALUE_TILES; n++)
                    if (place * COLUMNS + 8 * n < a.value_dim)
                        *(float2 *)(out + place * COLUMNS + 8 * n) = make_float2(sums[m][n][2 * h] * by, sums[m][n][2 * h + 1] * by);
            }
    }
};

/* Copies CELLS cells into shared memory as FP16; cells beyond the visible ones, and columns that the cache does not have, become zeros.
 * FP16 is copied asynchronously, as one group. */
template <apr_dtype KV, int KEY, int CELLS>
static __device__ __forceinline__ void copy_latents(const apr_attend_args &a, const prompt_view &v, int tile, uint8_t *to)
{
    enum { PIECES = KEY / 8, STRIDE = 2 * KEY + 16 };
    static_assert(KV == APR_F16 || piece<KV>::RUNS == 2, "a piece is 16 bytes of FP16");
    const int64_t cell_bytes = a.n_kv_heads * a.keys.row_bytes;
    const uint32_t n_cells = (uint32_t)a.keys.n_cells, cell = a.keys.pages == NULL ? cell_of(a.keys, v.from + tile * CELLS) : 0;
    const uint8_t *const data = a.keys.data + v.kv_head * a.keys.row_bytes;
    const int n_there = v.n_seen - tile * CELLS;
#pragma unroll(KV == APR_F16 ? 6 : 3)
    for (int at = (int)threadIdx.x; at < CELLS * PIECES; at += LATENT_THREADS) {
        const int row = at / PIECES, column = at % PIECES;
        const bool there = row < n_there && 8 * column < a.key_dim;
        uint32_t where = cell + row;
        if (where >= n_cells) where -= n_cells;
        if (a.keys.pages != NULL && there) where = (uint32_t)apr_cache_cell(&a.keys, v.from + tile * CELLS + row);
        uint8_t *const place = to + row * STRIDE + 16 * column;
        if constexpr (KV == APR_F16) copy_16(place, there ? data + where * cell_bytes + 16 * column : data, there);
        else {
            uint4 packed = make_uint4(0, 0, 0, 0);
            if (there) {
                piece<KV> p;
                p.load(data + where * cell_bytes + column / piece<KV>::LANES * piece<KV>::BYTES, column % piece<KV>::LANES);
                const float scale = p.scale(0);
                const float4 x = p.codes(0), y = p.codes(1);
                packed = make_uint4(pack_f16(x.x * scale, x.y * scale), pack_f16(x.z * scale, x.w * scale),
                                    pack_f16(y.x * scale, y.y * scale), pack_f16(y.z * scale, y.w * scale));
            }
            *(uint4 *)place = packed;
        }
    }
    if (KV == APR_F16) end_copies();
}

/* blockIdx.x: rows and a key/value head; y: a part of the context. two: there is room for two tiles. */
template <apr_dtype KV, int VALUE, int ROWS, int CELLS, bool CAREFUL>
static __device__ __forceinline__ void attend_rows(const apr_attend_args &a, const attend_parts &parts, prompt_view &v, prompt_row *rows,
                                                   bool is_part, bool two)
{
    typedef latent<VALUE, ROWS, CELLS, CAREFUL> L;
    extern __shared__ __align__(16) uint8_t latent_shared[];
    __shared__ float unscale[ROWS];
    uint8_t *const weights = latent_shared + L::PARTS * L::QUERIES, *const tiles = weights + L::PARTS * L::WEIGHTS + L::SHARED_MAX;
    const int warp = threadIdx.x / 32, group = warp / L::GROUP_WARPS, place = warp % L::GROUP_WARPS, g = threadIdx.x % 32 / 4;
    const int own_cells = place * L::OWN_CELLS;
    L s;

    if (v.begin < v.end) copy_latents<KV, L::KEY, CELLS>(a, v, v.begin, tiles);
    if (threadIdx.x < ROWS) put_row(a, v, threadIdx.x, rows);
    __syncthreads();
#pragma unroll 2
    for (int i = warp; i < ROWS; i += LATENT_WARPS) {
        const float *const from = rows[i].which < 0 ? NULL : a.q + (int64_t)rows[i].which * a.key_dim;
        uint8_t *const to = latent_shared + i * L::STRIDE;
        const float inverse = L::put_query(from, (int)a.key_dim, to, to + L::QUERIES);
        if (threadIdx.x % 32 == 0) unscale[i] = inverse;
    }
    __syncthreads();
    rows += 32 * group;
    s.clear();
    s.place = place;
    s.queries = latent_shared + 32 * group * L::STRIDE;
    s.top = (float *)(weights + L::PARTS * L::WEIGHTS) + group * L::GROUP_WARPS * 32;
#pragma unroll
    for (int i = 0; i < 4; i++) s.factor[i / 2][i % 2] = scale_of(a, unscale[32 * group + 8 * i + g]).factor;
    for (int tile = v.begin; tile < v.end; tile++) {
        uint8_t *const here = tiles + (two && (tile - v.begin) % 2 != 0 ? L::TILE : 0), *const there = tiles + L::TILE - (here - tiles);
        float dots[2][L::CELL_TILES][4] = {};
        s.weights = (L::IN_TILE ? here + 2 * VALUE : weights) + 32 * group * L::WEIGHT_STRIDE;
        s.remainders = s.weights + L::WEIGHTS;
        await_copies<0>();
        __syncthreads(); /* the tile has arrived, and the previous one has been used */
        if (two && tile + 1 < v.end) copy_latents<KV, L::KEY, CELLS>(a, v, tile + 1, there);
        if (own_cells < CELLS) {
            s.multiply(here + own_cells * L::STRIDE, dots);
            L::mask(v, rows, tile * CELLS + own_cells, dots);
            s.put_top(dots);
        }
        __syncthreads();
        s.update_max();
        if (own_cells < CELLS) s.put_weights(dots);
        __syncthreads();
        if (CAREFUL) s.add_values_carefully(here);
        else s.add_values(here);
        if (two || tile + 1 == v.end) continue;
        __syncthreads(); /* the tile has been used */
        copy_latents<KV, L::KEY, CELLS>(a, v, tile + 1, tiles);
    }
    s.sum_weights();
    s.write(a, parts, rows, is_part);
}

/* How the context is divided among parts: as share_context does, or for a sequence decoded among others in parts of PART_CELLS positions,
 * of longer contexts in APR_CUDA_ATTEND_SPLITS parts. So the split does not depend on other tokens. */
template <int CELLS, bool PER_SEQUENCE>
static __device__ __forceinline__ attend_shares shares_of(const apr_attend_args &a, int position, const attend_parts &parts)
{
    if (!PER_SEQUENCE) return share_context<CELLS>(a, position, parts);
    const int n = (position - first_seen(a, position)) / CELLS + 1, least = (n - 1) / APR_CUDA_ATTEND_SPLITS + 1;
    attend_shares s;
    s.each = least > PART_CELLS / CELLS ? least : PART_CELLS / CELLS;
    s.n_used = (n - 1) / s.each + 1;
    return s;
}

/* A token's own arguments among those of several sequences. */
static __device__ __forceinline__ attend_parts parts_of_token(const apr_attend_args &all, const attend_parts &shared, int token)
{
    const int64_t before = (int64_t)token * shared.n_parts * all.n_heads;
    attend_parts parts = shared;
    parts.sums += before * all.value_dim;
    parts.largest += before;
    parts.weight += before;
    return parts;
}

template <int ROWS, int CELLS, bool PER_SEQUENCE>
static __device__ __forceinline__ bool is_some_work(const apr_attend_args &a, const attend_parts &parts, prompt_view &v, bool *is_part)
{
    const attend_shares shares = shares_of<CELLS, PER_SEQUENCE>(a, own_position(a), parts);
    *is_part = shares.n_used > 1;
    if ((int)blockIdx.y >= shares.n_used) return false;
    if (threadIdx.x == 0) {
        v = view_of<ROWS, CELLS>(a, parts);
        const int n_tiles = (v.n_seen + CELLS - 1) / CELLS, begin = (int)blockIdx.y * shares.each;
        v.begin = begin < n_tiles ? begin : n_tiles;
        v.end = begin + shares.each < n_tiles ? begin + shares.each : n_tiles;
    }
    __syncthreads();
    return true;
}

/* blockIdx.z: the token, with a sequence per token. */
template <apr_dtype KV, int VALUE, int ROWS, int CELLS, bool CAREFUL, bool PER_SEQUENCE>
static __global__ void __launch_bounds__(LATENT_THREADS, 1)
    k_latent(const __grid_constant__ apr_attend_args all, const __grid_constant__ attend_parts shared, const bool two)
{
    __shared__ prompt_view v; /* in shared memory to save registers */
    __shared__ prompt_row rows[ROWS];
    bool is_part;
#if __CUDA_ARCH__ < 800
    return; /* never started there */
#endif
    pdl_trigger_and_wait();
    if constexpr (PER_SEQUENCE) {
        const apr_attend_args a = args_of_token(all, blockIdx.z);
        const attend_parts parts = parts_of_token(all, shared, blockIdx.z);
        if (is_some_work<ROWS, CELLS, true>(a, parts, v, &is_part))
            attend_rows<KV, VALUE, ROWS, CELLS, CAREFUL>(a, parts, v, rows, is_part, two);
    } else if (is_some_work<ROWS, CELLS, false>(all, shared, v, &is_part))
        attend_rows<KV, VALUE, ROWS, CELLS, CAREFUL>(all, shared, v, rows, is_part, two);
}

/* Combines the parts of a row, COMBINED columns of it per thread block, in order. Does nothing for a row of one part. */
template <int CELLS, bool PER_SEQUENCE>
static __global__ void __launch_bounds__(COMBINED)
    k_combine_latent(const __grid_constant__ apr_attend_args all, const __grid_constant__ attend_parts shared)
{
    enum { AT_ONCE = 8 };
    pdl_trigger_and_wait();
    const int token = PER_SEQUENCE ? (int)(blockIdx.x / (uint32_t)all.n_heads) : 0;
    const apr_attend_args a = PER_SEQUENCE ? args_of_token(all, token) : all;
    const attend_parts parts = PER_SEQUENCE ? parts_of_token(all, shared, token) : shared;
    const int row = PER_SEQUENCE ? (int)(blockIdx.x % (uint32_t)all.n_heads) : (int)blockIdx.x;
    const int column = (int)(blockIdx.y * COMBINED + threadIdx.x),
              n_used = shares_of<CELLS, PER_SEQUENCE>(a, own_position(a), parts).n_used;
    if (n_used <= 1) return;
    const int64_t n_rows = a.n_tokens * a.n_heads, stride = n_rows * a.value_dim;
    const float *const sums = parts.sums + (int64_t)row * a.value_dim + column;
    const bool mine = column < a.value_dim;
    const attend_compared compared = load_compared(parts, n_rows, row, n_used);
    float factors[2], sum = 0.0f;
    const float factor = factors_of(a, row, compared, factors);
    for (int first = 0; first < n_used; first += AT_ONCE) {
        float v[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) v[i] = mine && first + i < n_used ? __ldcg(sums + (first + i) * stride) : 0.0f;
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) /* lanes beyond the parts have factor 0 */
            sum = fmaf(__shfl_sync(0xffffffffu, first < 32 ? factors[0] : factors[1], (first + i) % 32), v[i], sum);
    }
    if (mine) a.out[(int64_t)row * a.value_dim + column] = sum * factor;
}

template <int CELLS, bool PER_SEQUENCE>
static cudaError_t start_combine(const apr_attend_args *a, const attend_parts &parts, cudaStream_t stream)
{
    if (parts.n_parts == 1) return cudaSuccess;
    const dim3 grid((unsigned)(a->n_tokens * a->n_heads), blocks_of(a->value_dim, COMBINED));
    return launch_pdl(k_combine_latent<CELLS, PER_SEQUENCE>, grid, COMBINED, 0, stream, *a, parts);
}

/* The parts of a token at the largest position: no token has more. */
static int max_parts(const apr_attend_args *a)
{
    int64_t n_seen = a->position + 1;
    if (a->window > 0 && a->window < n_seen) n_seen = a->window;
    if (a->chunk > 0 && a->chunk < n_seen) n_seen = a->chunk;
    const int64_t n = (n_seen + PART_CELLS - 1) / PART_CELLS;
    return n < APR_CUDA_ATTEND_SPLITS ? (int)n : (int)APR_CUDA_ATTEND_SPLITS;
}

/* Tokens, of several sequences, whose parts fit the workspace together; 0: not even one's. */
static int64_t place_parts(const apr_attend_args *a, attend_parts *parts)
{
    const int64_t each = max_parts(a) * a->n_heads * (a->value_dim + 2), most = 65535;
    int64_t n = a->n_tokens < most ? a->n_tokens : most;

    *parts = attend_parts{NULL, NULL, NULL, NULL, max_parts(a), 0, NULL};
    if (parts->n_parts == 1) return n;
    const int64_t fits = a->work.data != NULL ? (int64_t)a->work.slice / each : 0;
    n = n < fits ? n : fits;
    parts->sums = a->work.data;
    parts->largest = parts->sums + n * parts->n_parts * a->n_heads * a->value_dim;
    parts->weight = parts->largest + n * parts->n_parts * a->n_heads;
    return n;
}

/* Tokens [first, first + n) of several sequences. */
static apr_attend_args some_sequences(const apr_attend_args *a, int64_t first, int64_t n)
{
    apr_attend_args some = *a;
    some.n_tokens = a->n_tokens - first < n ? a->n_tokens - first : n;
    some.position_at = a->position_at + first;
    some.q = a->q + first * a->n_heads * a->key_dim;
    some.out = a->out + first * a->n_heads * a->value_dim;
    if (a->keys.pages != NULL) some.keys.pages += first * a->keys.pages_stride;
    if (a->keys.slots != NULL) some.keys.slots += first;
    some.values = some.keys;
    return some;
}

/* Shared memory of a kernel for this device; two: with room for two tiles. 0: it does not fit. */
template <typename L> static int bytes_on(const attend_card *card, bool *two)
{
    *two = L::BYTES + L::TILE <= card->most_bytes;
    return L::BYTES > card->most_bytes ? 0 : L::BYTES + (*two ? L::TILE : 0);
}

template <apr_dtype KV, int VALUE, int ROWS, int CELLS, bool CAREFUL>
static cudaError_t start(const apr_attend_args *a, const attend_card *card, cudaStream_t stream)
{
    const int64_t n_rows = a->n_tokens * (a->n_heads / a->n_kv_heads), n_blocks = (n_rows + ROWS - 1) / ROWS * a->n_kv_heads;
    const auto kernel = k_latent<KV, VALUE, ROWS, CELLS, CAREFUL, false>;
    bool two;
    const int n_bytes = bytes_on<latent<VALUE, ROWS, CELLS, CAREFUL>>(card, &two);
    if (n_bytes == 0) return cudaErrorNotSupported;
    cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, n_bytes);
    if (error != cudaSuccess) return error;
    const attend_parts parts = apr_cuda_cut_context(a, n_blocks, card->n_sms, CELLS, 1);
    error = launch_pdl(kernel, dim3((unsigned)n_blocks, (unsigned)parts.n_parts), LATENT_THREADS, n_bytes, stream, *a, parts, two);
    return error == cudaSuccess ? start_combine<CELLS, false>(a, parts, stream) : error;
}

template <apr_dtype KV, int VALUE, int ROWS, int CELLS>
static cudaError_t start_per_sequence(const apr_attend_args *a, const attend_card *card, cudaStream_t stream)
{
    const int64_t n_blocks = (a->n_heads / a->n_kv_heads + ROWS - 1) / ROWS * a->n_kv_heads;
    const auto kernel = k_latent<KV, VALUE, ROWS, CELLS, true, true>;
    attend_parts parts;
    bool two;
    const int n_bytes = bytes_on<latent<VALUE, ROWS, CELLS, true>>(card, &two);
    if (n_bytes == 0) return cudaErrorNotSupported;
    cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, n_bytes);
    const int64_t n = place_parts(a, &parts);
    if (n < 1) return cudaErrorInvalidValue;
    for (int64_t first = 0; first < a->n_tokens && error == cudaSuccess; first += n) {
        const apr_attend_args some = some_sequences(a, first, n);
        const dim3 grid((unsigned)n_blocks, (unsigned)parts.n_parts, (unsigned)some.n_tokens);
        error = launch_pdl(kernel, grid, LATENT_THREADS, n_bytes, stream, some, parts, two);
        if (error == cudaSuccess) error = start_combine<CELLS, true>(&some, parts, stream);
    }
    return error;
}

/* The largest tiles that fit. */
template <apr_dtype KV, int VALUE>
static cudaError_t start_width(const apr_attend_args *a, bool careful, const attend_card *card, cudaStream_t stream)
{
    cudaError_t error;
    if (a->per_sequence) {
        error = start_per_sequence<KV, VALUE, 32, 32>(a, card, stream);
        return error == cudaErrorNotSupported ? start_per_sequence<KV, VALUE, 32, 16>(a, card, stream) : error;
    }
    if (careful) {
        error = start<KV, VALUE, 32, 32, true>(a, card, stream);
        return error == cudaErrorNotSupported ? start<KV, VALUE, 32, 16, true>(a, card, stream) : error;
    }
    error = start<KV, VALUE, 64, 64, false>(a, card, stream);
    return error == cudaErrorNotSupported ? start<KV, VALUE, 32, 32, false>(a, card, stream) : error;
}

template <apr_dtype KV> static cudaError_t start_cache(const apr_attend_args *a, bool careful, cudaStream_t stream)
{
    attend_card card;
    const cudaError_t error = apr_cuda_attend_gpu(&card);
    if (error != cudaSuccess) return error;
    if (card.is_75) return cudaErrorNotSupported;
    if (a->value_dim <= 256 && a->key_dim <= 256 + ROPE) return start_width<KV, 256>(a, careful, &card, stream);
    return start_width<KV, 512>(a, careful, &card, stream);
}

cudaError_t apr_cuda_attend_latent(const apr_attend_args *a, bool careful, cudaStream_t stream)
{
    const apr_dtype dtype = a->keys.dtype;
    const bool is_q8 = dtype == APR_Q8_0;
    if (a->values.data != a->keys.data || a->values.row_bytes != a->keys.row_bytes || dtype != a->values.dtype)
        return cudaErrorNotSupported;
    if (a->value_dim > 512 || a->key_dim > 512 + ROPE || a->key_dim <= 256 || !(a->scale > 0.0f) || a->softcap > 0.0f)
        return cudaErrorNotSupported;
    if ((a->key_dim | a->value_dim) % (is_q8 ? 32 : 8) != 0 || !attend_is_aligned(a, dtype == APR_F16 ? 16 : is_q8 ? 2 : 8))
        return cudaErrorNotSupported;
    if (dtype == APR_F16) return start_cache<APR_F16>(a, careful, stream);
    if (dtype == APR_F8_E4M3) return start_cache<APR_F8_E4M3>(a, careful, stream);
    return is_q8 && !careful && !a->per_sequence ? start_cache<APR_Q8_0>(a, false, stream)
                                                 : cudaErrorNotSupported; /* its numbers are rounded to FP16 */
}
