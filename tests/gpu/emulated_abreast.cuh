/* emulated_abreast.cuh - products of tokens abreast on the host: the kernel's own functions of indices and bytes, lane by lane, and tensor
 * cores as PTX describes which lane holds what. It needs no device; who uses it (gpu_abreast.cu) compares with the decoded weights.
 *
 * Of m16n8k16, "a" register i, half h of lane 4 g + t is row g + 8 (i % 2), column 2 t + h + 8 (i / 2); "b" register i is row
 * 2 t + h + 8 i, column g; "d" register i is row g + 8 (i / 2), column 2 t + i % 2. Of m16n8k8, "a" has registers 0 and 1, "b" one. */
#ifndef APR_TESTS_GPU_EMULATED_ABREAST_CUH
#define APR_TESTS_GPU_EMULATED_ABREAST_CUH

#include "kernels/cuda/ops/abreast_kernel.cuh"
#include "tests/gpu/gpu_weights.cuh"

/* d of all lanes += a * b; DEPTH 16 or 8. */
template <int DEPTH>
static void emulated_mma(float *const (&d)[32], const uint32_t (&a)[32][4], const uint32_t (&b)[32][2], float (*number)(uint32_t))
{
    float rows[16][16] = {}, columns[16][8] = {};
    for (int lane = 0; lane < 32; lane++) {
        const int g = lane / 4, t = lane % 4;
        for (int h = 0; h < 2; h++) {
            for (int i = 0; i < DEPTH / 4; i++) rows[g + 8 * (i % 2)][2 * t + h + 8 * (i / 2)] = number(a[lane][i] >> 16 * h & 0xffff);
            for (int i = 0; i < DEPTH / 8; i++) columns[2 * t + h + 8 * i][g] = number(b[lane][i] >> 16 * h & 0xffff);
        }
    }
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++) {
            const int row = lane / 4 + 8 * (i / 2), column = lane % 4 * 2 + i % 2;
            double sum = d[lane][i];
            for (int k = 0; k < DEPTH; k++) sum += (double)rows[row][k] * columns[k][column];
            d[lane][i] = (float)sum;
        }
}

static float half_number(uint32_t bits) { return float_of(bits); }
static float bfloat_number(uint32_t bits) { return apr_bf16_to_f32((uint16_t)bits); }

/* The inputs that apr_cuda_abreast_prepare should make, found by asking where each column and token lies. */
struct emulated_inputs {
    std::vector<uint8_t> fragments, sums;
    std::vector<float> factors;
    apr_abreast_inputs view;
};

static int64_t sum_at(int64_t sub, int64_t n_in, int64_t token, int part, const emulated_inputs &in)
{
    return in.view.form == APR_ABREAST_WIDE ? wide_sum_at(sub, in.view.n_tiles, token, part) : abreast_sum_at(sub, n_in / 32, token, part);
}

static void emulated_prepare(const std::vector<float> &x, int64_t n_tokens, int64_t n_in, apr_abreast_form form, emulated_inputs *to)
{
    const bool bfloats = form == APR_ABREAST_BFLOATS, wide = form == APR_ABREAST_WIDE;
    const int64_t n_tiles = (n_tokens + 7) / 8;
    const int64_t n_subs = n_in / 32, plane = abreast_plane(n_tiles, n_in);
    to->fragments.assign(apr_abreast_fragment_bytes(n_tiles, n_in), 0);
    to->sums.assign(apr_abreast_sum_bytes(n_tiles, n_in), 0);
    to->factors.assign((size_t)n_tiles * 8, 1.0f);
    to->view = apr_abreast_inputs{n_in, n_in, n_tiles, to->fragments.data(), to->sums.data(), to->factors.data(), form};
    for (int64_t token = 0; token < n_tokens; token++) {
        float most = 0;
        int e;
        for (int64_t c = 0; c < n_in; c++) most = fmaxf(most, fabsf(x[(size_t)(token * n_in + c)]));
        frexpf(most, &e);
        const float times = most > 0 ? ldexpf(1.0f, 10 - e) : 1.0f;
        to->factors[(size_t)token] = most > 0 ? ldexpf(1.0f, e - 10) : 1.0f;
        for (int64_t sub = 0; sub < n_in / 32; sub++) {
            double sum = 0;
            for (int t = 0; t < 4; t++)
                for (int k = 0; k < 2; k++)
                    for (int i = 0; i < 4; i++) {
                        const float v = x[(size_t)(token * n_in + 32 * sub + abreast_column(t, k, i))] * times;
                        const uint16_t high = bfloats ? apr_f32_to_bf16(v) : apr_f32_to_f16(v);
                        const float worth = bfloats ? apr_bf16_to_f32(high) : apr_f16_to_f32(high);
                        const uint16_t low = bfloats ? apr_f32_to_bf16(v - worth) : apr_f32_to_f16(v - worth);
                        const int64_t number = wide ? wide_halves_at(sub, n_tiles, token, t, i / 2) + 4 * k + i % 2 * 2
                                                    : abreast_piece_at(sub, n_subs, token, t) + 8 * k + 2 * i;
                        memcpy(&to->fragments[(size_t)number], &high, 2);
                        if (!wide) memcpy(&to->fragments[(size_t)(number + plane)], &low, 2);
                        sum += worth;
                    }
            if (bfloats) continue;
            const uint16_t high = apr_f32_to_f16((float)sum), low = apr_f32_to_f16((float)(sum - apr_f16_to_f32(high)));
            memcpy(&to->sums[(size_t)sum_at(sub, n_in, token, 0, *to)], &high, 2);
            memcpy(&to->sums[(size_t)sum_at(sub, n_in, token, 1, *to)], &low, 2);
        }
    }
}

template <typename S> struct emulated_block {
    typedef typename S::T T;
    typedef float lane_sums[S::MS][S::TILES][4];
    static constexpr int LANE = S::MS * S::TILES * 4;
    std::vector<float> total; /* [threads] of lane_sums */
    std::vector<uint8_t> memory;

    emulated_block(void) : total((size_t)(S::THREADS * LANE), 0.0f), memory((size_t)S::BYTES + 16) {}
    lane_sums &of(int thread) { return *(lane_sums *)&total[(size_t)(thread * LANE)]; }
    static lane_sums &of(std::vector<float> &sums, int lane) { return *(lane_sums *)&sums[(size_t)(lane * LANE)]; }

    template <int SUB> void add_sub(int warp, int n_tiles, std::vector<float> &sums)
    {
        static abreast_operands<S, SUB> o[32];
        for (int lane = 0; lane < 32; lane++) {
            const abreast_warp w = warp_of<S>(32 * warp + lane);
            abreast_heads<S> heads;
            heads.load(memory.data(), w);
            o[lane].load(memory.data(), w, heads);
        }
        if (T::SPAN == 2) std::fill(sums.begin(), sums.end(), 0.0f);
        for (int n = 0; n < n_tiles; n++)
            for (int m = 0; m < S::MS; m++)
                for (int part = 0; part < T::PARTS; part++)
                    for (int k = 0; k < 2; k++) {
                        uint32_t a[32][4], b[32][2];
                        float *d[32];
                        for (int lane = 0; lane < 32; lane++) {
                            memcpy(a[lane], o[lane].a[m][k], 16);
                            const uint4 x = o[lane].inputs(memory.data(), warp_of<S>(32 * warp + lane), part, n);
                            b[lane][0] = k == 0 ? x.x : x.z, b[lane][1] = k == 0 ? x.y : x.w;
                            d[lane] = of(sums, lane)[m][n];
                        }
                        emulated_mma<16>(d, a, b, T::BFLOATS ? bfloat_number : half_number);
                    }
        for (int i = 0; i < 32 * S::MS * n_tiles && T::SPAN == 2; i++) {
            const int lane = i % 32, m = i / 32 % S::MS, n = i / 32 / S::MS;
            scale_add(of(32 * warp + lane)[m][n], o[lane].factors[m][0], o[lane].factors[m][1], of(sums, lane)[m][n]);
        }
    }

    void add_mins(int warp, int m, int n_tiles)
    {
        for (int n = 0; n < n_tiles; n++) {
            float sums[32][4] = {};
            float *d[32];
            uint32_t a[32][4], b[32][2];
            abreast_mins<S> o[32];
            for (int lane = 0; lane < 32; lane++) {
                const abreast_warp w = warp_of<S>(32 * warp + lane);
                o[lane].load(memory.data(), w, m);
                memcpy(a[lane], o[lane].a, 16);
                const uint2 x = o[lane].sums(memory.data(), w, n);
                b[lane][0] = x.x, b[lane][1] = x.y;
                d[lane] = sums[lane];
            }
            emulated_mma<16>(d, a, b, half_number);
            for (int lane = 0; lane < 32; lane++) scale_add(of(32 * warp + lane)[m][n], o[lane].first, o[lane].second, sums[lane]);
        }
    }

    void add_stage(const abreast_call &a, const abreast_run &run, int stage)
    {
        const auto copy = [&](int to, const uint8_t *from) { put(to, from); };
        memset(memory.data(), 0xff, memory.size()); /* NaN wherever nothing is put */
        for (int thread = 0; thread < S::THREADS; thread++) {
            for (int i = 0; i < S::WARP_UNITS; i++) {
                const int unit = thread / 32 * S::WARP_UNITS + i;
                const uint8_t *const from = weight_of<S>(a, run, unit, thread % 32);
                if (from != NULL)
                    each_weight<S>(a, copies_of<S>(a, unit, thread % 32), from + (int64_t)(stage - run.stage) * stage_step<S>(a), copy);
            }
            each_input<S>(a, stage, run.first_tile, run.n_tiles, thread, copy);
        }
        for (int warp = 0; warp < S::WARPS; warp++) {
            std::vector<float> sums((size_t)(32 * LANE), 0.0f);
            const int half = warp_of<S>(32 * warp).half;
            for (int m = half * (S::MS / 2); T::MINS && m < (half + 1) * (S::MS / 2); m++)
                if constexpr (T::MINS) add_mins(warp, m, run.n_tiles);
            add_sub<0>(warp, run.n_tiles, sums);
            if constexpr (S::SUBS > 2) add_sub<1>(warp, run.n_tiles, sums);
            if constexpr (S::SUBS > 4) add_sub<2>(warp, run.n_tiles, sums), add_sub<3>(warp, run.n_tiles, sums);
            for (int i = 0; i < 32 * S::MS * run.n_tiles && T::SPAN > 2; i++) {
                const int lane = i % 32, m = i / 32 % S::MS, n = i / 32 / S::MS;
                const abreast_warp w = warp_of<S>(32 * warp + lane);
                scale_add(of(32 * warp + lane)[m][n], T::half_factor(row_at<S>(memory.data(), w, m, 0)),
                          T::half_factor(row_at<S>(memory.data(), w, m, 1)), of(sums, lane)[m][n]);
            }
        }
    }
    void put(int to, const uint8_t *from)
    {
        if (to < 0 || to + 16 > (int)S::BYTES || to % 16 != 0 || (uintptr_t)from % 16 != 0)
            note("a copy out of bounds", 1, 0, apr_dtypes[S::TYPE].name);
        else memcpy(memory.data() + to, from, 16);
    }

    void put_run(const abreast_call &a, const abreast_run &run, int place)
    {
        std::vector<float> join((size_t)(8 * S::TILES * S::JOIN_PITCH), 0.0f);
        for (int thread = 0; thread < S::THREADS; thread++) {
            const abreast_warp w = warp_of<S>(thread);
            for (int i = 0; i < LANE; i++) {
                const int m = i / (S::TILES * 4), n = i / 4 % S::TILES;
                join[(size_t)(sum_token(w, n, i % 4) * S::JOIN_PITCH + sum_row(w, m, i % 4))] += of(thread)[m][n][i % 4];
                of(thread)[m][n][i % 4] = 0.0f;
            }
        }
        for (int row = 0; row < S::ROWS; row++) {
            const abreast_target to = target_of(a, run, place, S::ROWS, row);
            for (int token = 0; token < 8 * S::TILES; token++)
                put_sum(to, token, join[(size_t)(token * S::JOIN_PITCH + row)], factor_of(to, token));
        }
    }
};

/* A whole launch of n_blocks blocks, and the joining behind it. */
template <typename S> static void emulated_launch(const abreast_call &a, int n_blocks)
{
    emulated_block<S> block;
    for (int b = 0; b < n_blocks; b++) {
        const abreast_share share = share_of(a, b, n_blocks);
        for (int r = share.first; r < share.last; r++) {
            const abreast_run run = run_of(a, r, share);
            for (int stage = run.stage; stage < run.end; stage++) block.add_stage(a, run, stage);
            block.put_run(a, run, 2 * b + (r != share.first));
        }
    }
    for (int x = 0; a.groups == NULL && x < joints_of(a, n_blocks); x++) {
        const abreast_joint j = joint_of(a, n_blocks, x);
        abreast_run run = {};
        run.row_block = j.row_block, run.first_tile = a.first_tile, run.n_tiles = a.n_here, run.whole = true;
        for (int row = 0; row < S::ROWS && j.first != j.last; row++) {
            const abreast_target to = target_of(a, run, 0, S::ROWS, row);
            for (int token = 0; token < to.n; token++) put_sum(to, token, joined_sum(a, j, S::ROWS, row, token), factor_of(to, token));
        }
    }
}

#endif
