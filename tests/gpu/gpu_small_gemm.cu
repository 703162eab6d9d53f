/* gpu_small_gemm.cu - products of several tokens (small_gemm.cuh) against the decoded weights in float64, whether a token's numbers depend
 * on its neighbours, and how fast they are.
 *
 * gpu_small_gemm [quick|times [TYPE...]]. With types, only their linears, and also times of products whose inputs are there already. Exit
 * code 0: within bounds, 1: not, 77: no device. Outputs begin as NaN. */
#include "kernels/cuda/moe/pairs.cuh"
#include "kernels/cuda/small_gemm/small_gemm.cuh"
#include "kernels/cuda/small_gemm/small_gemm_layout.cuh"
#include "tests/gpu/gpu_weights.cuh"

#include <algorithm>
#include <string>

static int n_multiprocessors, major_version;

static std::vector<std::string> wanted; /* types; none: all */
static bool is_wanted(apr_dtype dtype) { return wanted.empty() || std::count(wanted.begin(), wanted.end(), apr_dtypes[dtype].name) > 0; }

static const apr_dtype types[] = {APR_Q4_K, APR_Q6_K, APR_Q4_0, APR_Q8_0, APR_MXFP4, APR_F16, APR_BF16};

/* 11 bits of inputs, and Q6_K's codes times their scales rounded to 11; 22 with 16-bit weights, 16 with BF16; and float32 sums. */
static double bound_of(apr_dtype dtype) { return dtype == APR_BF16 ? 1.2e-5 : dtype == APR_F16 ? 2e-6 : 6e-4; }

static std::vector<float> uneven(int64_t n)
{
    std::vector<float> x = normals(n);
    for (int64_t i = 0; i < n / 100 + 1; i++) x[random_bits() % (size_t)n] *= 60.0f;
    return x;
}

/* [n_tokens, rows] */
static std::vector<float> product(const apr_tensor *m, const std::vector<float> &x, int64_t n_tokens, const std::vector<float> &bias)
{
    const int64_t rows = m->dims[0], columns = m->dims[1];
    std::vector<float> y((size_t)(n_tokens * rows)), w((size_t)columns);
    for (int64_t r = 0; r < rows; r++) {
        apr_decode_rows(m, r, 1, w.data());
        for (int64_t t = 0; t < n_tokens; t++) {
            double sum = bias.empty() ? 0 : bias[(size_t)r];
            for (int64_t i = 0; i < columns; i++) sum += (double)w[(size_t)i] * x[(size_t)(t * columns + i)];
            y[(size_t)(t * rows + r)] = (float)sum;
        }
    }
    return y;
}

static bool is_tiled_on_device(apr_dtype dtype) { return apr_tile_columns(dtype) > 0; }

/* The inputs that apr_cuda_small_gemm_prepare should make, found by asking for the offset of each column and token. */
struct host_inputs {
    std::vector<uint8_t> fragments, sums;
    std::vector<float> factors;
    apr_small_gemm_inputs view;
};

static int64_t sum_at(int64_t sub, int64_t n_in, int64_t token, int part, const host_inputs &in)
{
    return in.view.layout == APR_SMALL_GEMM_WGMMA ? wgmma_sum_at(sub, in.view.n_tiles, token, part)
                                                  : gemm_sum_at(sub, n_in / 32, token, part);
}

static void prepare_on_host(const std::vector<float> &x, int64_t n_tokens, int64_t n_in, apr_small_gemm_layout layout, host_inputs *to)
{
    const bool bfloats = layout == APR_SMALL_GEMM_BF16, wide = layout == APR_SMALL_GEMM_WGMMA;
    const int64_t n_tiles = (n_tokens + 7) / 8;
    const int64_t n_subs = n_in / 32, plane = gemm_part_bytes(n_tiles, n_in);
    to->fragments.assign(apr_small_gemm_fragment_bytes(n_tiles, n_in), 0);
    to->sums.assign(apr_small_gemm_sum_bytes(n_tiles, n_in), 0);
    to->factors.assign((size_t)n_tiles * 8, 1.0f);
    to->view = apr_small_gemm_inputs{n_in, n_in, n_tiles, to->fragments.data(), to->sums.data(), to->factors.data(), layout};
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
                        const float v = x[(size_t)(token * n_in + 32 * sub + gemm_column(t, k, i))] * times;
                        const uint16_t high = bfloats ? apr_f32_to_bf16(v) : apr_f32_to_f16(v);
                        const float worth = bfloats ? apr_bf16_to_f32(high) : apr_f16_to_f32(high);
                        const uint16_t low = bfloats ? apr_f32_to_bf16(v - worth) : apr_f32_to_f16(v - worth);
                        const int64_t number = wide ? wgmma_input_at(sub, n_tiles, token, t, i / 2) + 4 * k + i % 2 * 2
                                                    : gemm_piece_at(sub, n_subs, token, t) + 8 * k + 2 * i;
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

/* A matrix where the kernel reads it: in items, if its type is put into them. */
struct device_matrix {
    matrix *m;
    apr_tensor lying;
    device_copy<uint8_t> *made;
    device_matrix(apr_dtype dtype, int64_t rows, int64_t n_in)
        : m(new_matrix(dtype, rows, n_in, 0, 0, 0, APR_F32)), lying(m->device), made(NULL)
    {
        if (!is_tiled_on_device(dtype)) return;
        made = new device_copy<uint8_t>(padded(items_of(m->bytes, dtype, rows, n_in)));
        lying.data = made->device;
        lying.tiled = true;
    }
    ~device_matrix()
    {
        delete made;
        free_matrix(m);
    }
    device_matrix(const device_matrix &) = delete;
};

/* Each token's rows of `many` [n_tokens, rows], as if alone. */
static std::vector<float> linear(const apr_tensor *weight, const std::vector<float> &x, int64_t n_tokens, const float *bias, int n_blocks,
                                 cudaError_t expected)
{
    const int64_t rows = weight->dims[0], n_in = weight->dims[1];
    const size_t work_bytes =
        apr_cuda_linear_small_gemm_bytes(std::max<int64_t>(n_tokens, APR_SMALL_GEMM_MAX_TOKENS), apr_small_gemm_columns(n_in), n_blocks);
    device_copy<float> dx(x), out((size_t)(n_tokens * rows)), work(work_bytes / 4);
    apr_linear_args a;
    memset(&a, 0, sizeof a);
    a.n_tokens = n_tokens, a.n_in = n_in, a.n_out = rows, a.x = dx.device, a.weight = weight, a.bias = bias, a.out = out.device;
    a.work.data = work.device, a.work.slice = work_bytes / 4, a.work.n_threads = 1;
    const cudaError_t error = apr_cuda_linear_small_gemm(&a, false, n_blocks, major_version, 0);
    note("linear: answers as it should", error == expected ? 0 : 1, 0, apr_dtypes[weight->dtype].name);
    return out.get();
}

static void test_linear(apr_dtype dtype, int64_t rows, int64_t n_in, bool thorough)
{
    const device_matrix d(dtype, rows, n_in);
    const int64_t most = 64;
    const std::vector<float> x = uneven(most * n_in), bias = normals(rows);
    const device_copy<float> dbias(bias);
    const std::vector<float> want = product(&d.m->host, x, most, bias);
    char what[64];
    snprintf(what, sizeof what, "%s [%d, %d]", apr_dtypes[dtype].name, (int)rows, (int)n_in);

    const std::vector<float> all = linear(&d.lying, x, most, dbias.device, n_multiprocessors, cudaSuccess);
    note("linear, 64 tokens, of the bound", distance(all, want.data()) / bound_of(dtype), 1, what);
    for (int blocks : {1, 5})
        note("linear, other blocks, of the bound",
             distance(linear(&d.lying, x, most, dbias.device, blocks, cudaSuccess), want.data()) / bound_of(dtype), 1, what);
    for (int64_t n :
         thorough ? std::vector<int64_t>{1, 2, 3, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 40, 63} : std::vector<int64_t>{1, 9, 33}) {
        const int64_t from = n < most ? (int64_t)(random_bits() % (size_t)(most - n + 1)) : 0; /* elsewhere in tiles than among 64 */
        const std::vector<float> some = linear(&d.lying, std::vector<float>(x.begin() + from * n_in, x.begin() + (from + n) * n_in), n,
                                               dbias.device, n_multiprocessors, cudaSuccess);
        note("linear, alone and among 64 (bytes that differ)", differing(some.data(), all.data() + from * rows, some.size() * 4), 0, what);
    }
    if (d.lying.tiled && (dtype == APR_Q4_K))
        note("rows and items (bytes that differ)",
             differing(linear(&d.m->device, x, most, dbias.device, n_multiprocessors, cudaSuccess).data(), all.data(), all.size() * 4), 0,
             what);
}

/* What the device makes of inputs has the bytes that the host finds. */
static void test_inputs(int64_t n_tokens, int64_t n_in, apr_small_gemm_layout layout)
{
    const std::vector<float> x = uneven(n_tokens * n_in);
    host_inputs want;
    prepare_on_host(x, n_tokens, n_in, layout, &want);
    device_copy<float> dx(x), factors(want.factors.size());
    device_copy<uint8_t> fragments(want.fragments.size()), sums(want.sums.size());
    must(cudaMemset(sums.device, 0, sums.n), "clear");
    must(cudaMemset(fragments.device, 0, fragments.n), "clear");
    const apr_small_gemm_inputs to = {n_in, n_in, want.view.n_tiles, fragments.device, sums.device, factors.device, layout};
    must(apr_cuda_small_gemm_prepare(dx.device, NULL, n_tokens, &to, 0), "prepare");
    note("fragments (bytes that differ)", differing(fragments.get().data(), want.fragments.data(), fragments.n), 0, "");
    std::vector<float> f = factors.get();
    f.resize((size_t)n_tokens);
    note("powers of two (bytes that differ)", differing(f.data(), want.factors.data(), f.size() * 4), 0, "");
    double worst = 0;
    const std::vector<uint8_t> got = sums.get();
    for (int64_t t = 0; t < n_tokens; t++)
        for (int64_t sub = 0; sub < n_in / 32; sub++) {
            float a = 0, b = 0;
            for (int part = 0; part < 2; part++) {
                uint16_t u, v;
                memcpy(&u, &got[(size_t)sum_at(sub, n_in, t, part, want)], 2);
                memcpy(&v, &want.sums[(size_t)sum_at(sub, n_in, t, part, want)], 2);
                a += apr_f16_to_f32(u), b += apr_f16_to_f32(v);
            }
            worst = fmax(worst, fabs((double)a - b) / 1024);
        }
    note("sums of inputs, of the largest", worst, 1e-5, "");
}

/* Several matrices that share inputs, multiplied by those products that inputs of that form are for. */
static void test_parts(apr_dtype dtype, int64_t n_in, int64_t n_tokens, apr_small_gemm_layout layout)
{
    const int64_t rows[3] = {112, 272, 48};
    const std::vector<float> x = uneven(n_tokens * n_in);
    const int64_t n_tiles = (n_tokens + 7) / 8;
    device_copy<float> dx(x), factors((size_t)n_tiles * 8);
    device_copy<uint8_t> fragments(apr_small_gemm_fragment_bytes(n_tiles, n_in)), sums(apr_small_gemm_sum_bytes(n_tiles, n_in) + 1),
        partial(apr_cuda_small_gemm_partial_bytes(n_multiprocessors));
    device_matrix *d[3];
    device_copy<float> *out[3];
    apr_small_gemm_args a = {};
    a.n_parts = 3, a.n_tokens = n_tokens, a.partial = partial.device;
    a.inputs = apr_small_gemm_inputs{n_in, n_in, n_tiles, fragments.device, sums.device, factors.device, layout};
    for (int i = 0; i < 3; i++) {
        d[i] = new device_matrix(dtype, rows[i], n_in);
        out[i] = new device_copy<float>((size_t)(n_tokens * rows[i]));
        a.parts[i] = apr_small_gemm_part{&d[i]->lying, NULL, out[i]->device};
    }
    must(apr_cuda_small_gemm_prepare(dx.device, NULL, n_tokens, &a.inputs, 0), "prepare");
    must(apr_cuda_small_gemm(&a, n_multiprocessors, 0), "abreast");
    for (int i = 0; i < 3; i++) {
        note("three matrices at once, of the bound",
             distance(out[i]->get(), product(&d[i]->m->host, x, n_tokens, {}).data()) / bound_of(dtype), 1, apr_dtypes[dtype].name);
        delete out[i];
        delete d[i];
    }
}

/* A stack of experts' matrices, and one after the other on the host. */
struct expert_stack {
    device_matrix all;
    std::vector<apr_tensor> host;
    expert_stack(apr_dtype dtype, int64_t n_experts, int64_t rows, int64_t n_in)
        : all(dtype, n_experts * rows, n_in), host((size_t)n_experts)
    {
        all.lying.rank = 3, all.lying.dims[0] = n_experts, all.lying.dims[1] = rows, all.lying.dims[2] = n_in;
        for (size_t e = 0; e < host.size(); e++) {
            host[e] = all.m->host;
            host[e].dims[0] = rows, host[e].n_bytes = all.m->bytes.size() / host.size();
            host[e].data = all.m->bytes.data() + e * host[e].n_bytes;
        }
    }
};

typedef struct mixture {
    apr_dtype dtype, down_dtype;
    int64_t n_in, n_mid, n_out, n_experts, n_used;
    bool has_biases, weight_on_input, no_gate;
} mixture;

static std::vector<float> random_routes(const mixture &s, int64_t n_tokens)
{
    std::vector<float> routes = normals(n_tokens * apr_route_row(s.n_used));
    for (int64_t t = 0; t < n_tokens; t++) {
        const int64_t first = random_bits() % s.n_experts;
        for (int64_t k = 0; k < s.n_used; k++) routes[(size_t)(t * apr_route_row(s.n_used) + k)] = (float)((first + k * k) % s.n_experts);
    }
    return routes;
}

/* Experts on the device. */
struct device_mixture {
    const mixture s;
    expert_stack gate, up, down;
    std::vector<float> biases[3];
    device_copy<float> *device_biases[3];
    explicit device_mixture(const mixture &m)
        : s(m), gate(m.dtype, m.n_experts, m.n_mid, m.n_in), up(m.dtype, m.n_experts, m.n_mid, m.n_in),
          down(m.down_dtype, m.n_experts, m.n_out, m.n_mid)
    {
        for (int i = 0; i < 3; i++)
            biases[i] = normals(m.n_experts * (i < 2 ? m.n_mid : m.n_out)), device_biases[i] = new device_copy<float>(biases[i]);
    }
    ~device_mixture()
    {
        for (device_copy<float> *b : device_biases) delete b;
    }
    device_mixture(const device_mixture &) = delete;

    apr_experts_args args(bool on_device, int64_t n_tokens) const
    {
        apr_experts_args a;
        memset(&a, 0, sizeof a);
        a.n_tokens = n_tokens, a.n_in = s.n_in, a.n_mid = s.n_mid, a.n_out = s.n_out, a.n_experts = s.n_experts, a.n_used = s.n_used;
        a.glu = apr_glu_shape{APR_ACT_SILU, 0, 0, 0}, a.weight_on_input = s.weight_on_input;
        a.gate = s.no_gate ? NULL : on_device ? &gate.all.lying : gate.host.data();
        a.up = on_device ? &up.all.lying : up.host.data(), a.down = on_device ? &down.all.lying : down.host.data();
        if (!s.has_biases) return a;
        if (!s.no_gate) a.gate_bias = on_device ? device_biases[0]->device : biases[0].data();
        a.up_bias = on_device ? device_biases[1]->device : biases[1].data();
        a.down_bias = on_device ? device_biases[2]->device : biases[2].data();
        return a;
    }
    std::vector<float> run(const std::vector<float> &x, const std::vector<float> &routes, int64_t n_tokens, int64_t room_for) const
    {
        apr_experts_args a = args(true, n_tokens);
        const size_t floats = apr_cuda_experts_small_gemm_bytes(&a, room_for, n_multiprocessors) / 4;
        device_copy<float> dx(x), dr(routes), out((size_t)(n_tokens * s.n_out)), work(floats);
        a.x = dx.device, a.routes = dr.device, a.out = out.device, a.work = apr_workspace{work.device, floats, 1};
        must(apr_cuda_experts_small_gemm(&a, n_multiprocessors, major_version, 0), "experts");
        return out.get();
    }
};

/* Two products one after the other, the reference's inputs rounded to 15 bits. */
static double expert_bound(const mixture &s) { return s.dtype == APR_BF16 ? 5e-5 : 1.5e-3; }

static void test_experts(const mixture &s)
{
    const device_mixture d(s);
    const int64_t most = 200, row = apr_route_row(s.n_used);
    const std::vector<float> x = uneven(most * s.n_in), routes = random_routes(s, most);
    std::vector<float> ref((size_t)(most * s.n_out)), work(apr_experts_slice(s.n_in, s.n_mid));
    apr_op_args args;
    memset(&args, 0, sizeof args);
    args.experts = d.args(false, most);
    args.experts.x = x.data(), args.experts.routes = routes.data(), args.experts.out = ref.data();
    args.experts.work = apr_workspace{work.data(), work.size(), 1};
    apr_ref_experts(&args);
    const char *const what = apr_dtypes[s.dtype].name;
    note("experts, 200 tokens", distance(d.run(x, routes, most, most), ref.data()), expert_bound(s), what);
    note("experts, 200 tokens in parts", distance(d.run(x, routes, most, 64), ref.data()), expert_bound(s), what);
    const std::vector<float> all = d.run(std::vector<float>(x.begin(), x.begin() + 64 * s.n_in),
                                         std::vector<float>(routes.begin(), routes.begin() + 64 * row), 64, 64);
    note("experts, 64 tokens", distance(all, ref.data()), expert_bound(s), what);
    for (int64_t n : {1, 2, 7, 9, 31}) {
        const int64_t from = (int64_t)(random_bits() % (size_t)(64 - n + 1));
        const std::vector<float> some = d.run(std::vector<float>(x.begin() + from * s.n_in, x.begin() + (from + n) * s.n_in),
                                              std::vector<float>(routes.begin() + from * row, routes.begin() + (from + n) * row), n, 64);
        note("experts, alone and among 64 (bytes that differ)", differing(some.data(), all.data() + from * s.n_out, some.size() * 4), 0,
             what);
    }
}

/* Values of any width are written to a slot, normed, for any number of rows. */
static void test_brought(int64_t width, int64_t n_tokens)
{
    const std::vector<float> x = uneven(n_tokens * width);
    std::vector<float> want(x.size());
    for (int64_t t = 0; t < n_tokens; t++) {
        double squares = 0;
        for (int64_t i = 0; i < width; i++) squares += (double)x[(size_t)(t * width + i)] * x[(size_t)(t * width + i)];
        for (int64_t i = 0; i < width; i++)
            want[(size_t)(t * width + i)] = (float)(x[(size_t)(t * width + i)] / sqrt(squares / (double)width + 1e-6));
    }
    const size_t n_bytes = apr_cuda_rows_bytes(width, n_multiprocessors);
    device_copy<float> dx(x), out(x.size()), work(n_bytes / 4);
    apr_rows_inputs args = {};
    args.workspace.work = apr_workspace{work.device, n_bytes / 4, 1}, args.workspace.widest = width;
    args.n_tokens = n_tokens, args.width = width, args.x = dx.device, args.out = out.device;
    args.output.norm = true, args.output.eps = 1e-6f;
    char what[64];
    snprintf(what, sizeof what, "%lld wide, %lld rows", (long long)width, (long long)n_tokens);
    must(apr_cuda_small_gemm_rows_inputs(&args, 0), what);
    note("brought into a slot, normed", distance(out.get(), want.data()), 1e-5, what);
}

static const mixture mixtures[] = {
    {APR_Q4_K, APR_Q6_K, 512, 256, 528, 16, 4, false, false, false},  {APR_MXFP4, APR_MXFP4, 768, 512, 256, 9, 3, true, false, false},
    {APR_Q8_0, APR_Q4_K, 256, 768, 272, 40, 6, true, true, false},    {APR_BF16, APR_F16, 128, 64, 144, 5, 2, false, false, true},
    {APR_Q4_0, APR_Q8_0, 256, 256, 256, 130, 8, false, false, false}, {APR_MXFP4, APR_MXFP4, 2880, 160, 144, 9, 4, true, false, false},
    {APR_Q8_0, APR_MXFP4, 160, 2880, 48, 6, 2, true, false, false},   {APR_MXFP4, APR_Q8_0, 96, 288, 64, 5, 3, false, true, false},
    {APR_Q6_K, APR_Q4_K, 768, 512, 272, 40, 6, true, true, false},    {APR_Q4_K, APR_Q4_K, 256, 256, 16, 5, 2, true, false, true},
    {APR_Q4_K, APR_Q4_K, 256, 12032, 16, 3, 1, true, false, false}, /* a unit that does not fit where others are kept */
};

static void test_type(apr_dtype dtype, const modes &m)
{
    test_linear(dtype, 16, 256, true);
    test_linear(dtype, 272, 768, true);
    if (672 % apr_dtypes[dtype].elems_per_block == 0 && apr_small_gemm_pads(dtype, 272, 672)) test_linear(dtype, 272, 672, true);
    test_linear(dtype, 1040, 3584, false);
    if (!m.quick) test_linear(dtype, 4608, 3584, false), test_linear(dtype, 512, 18944, false);
    test_parts(dtype, 1024, 19, apr_cuda_small_gemm_layout(dtype));
}

static void run_tests(const modes &m)
{
    for (const mixture &s : mixtures)
        if (is_wanted(s.dtype)) test_experts(s);
    for (apr_small_gemm_layout layout : {APR_SMALL_GEMM_F16, APR_SMALL_GEMM_BF16, APR_SMALL_GEMM_WGMMA})
        test_inputs(21, 1024, layout), test_inputs(8, layout == APR_SMALL_GEMM_WGMMA ? 256 : 64, layout);
    for (apr_dtype dtype : types) {
        if (!is_wanted(dtype) || !apr_cuda_has_small_gemm(dtype, is_tiled_on_device(dtype), 16, 256, major_version)) continue;
        test_type(dtype, m);
        if (apr_cuda_small_gemm_layout(dtype) != APR_SMALL_GEMM_WGMMA) continue;
        test_parts(dtype, 1024, 19, APR_SMALL_GEMM_F16); /* left for other types as well */
        apr_cuda_allow_wgmma(false);                     /* the kernel of other devices */
        test_type(dtype, m);
        apr_cuda_allow_wgmma(true);
    }
    if (major_version >= 9)
        for (int64_t width : {256, 45056, 49152, 65504})
            for (int64_t n_tokens : {3, 64}) test_brought(width, n_tokens);
    apr_small_gemm_args wide = {}; /* warpgroups do not multiply that */
    const device_matrix other(APR_Q8_0, 48, 256);
    wide.n_parts = 1, wide.n_tokens = 1, wide.parts[0].weight = &other.lying;
    wide.inputs.n_in = 256, wide.inputs.n_tiles = 1, wide.inputs.layout = APR_SMALL_GEMM_WGMMA;
    note("inputs of another form are refused", apr_cuda_small_gemm(&wide, n_multiprocessors, 0) == cudaErrorInvalidValue ? 0 : 1, 0, "");
    const device_matrix d(APR_Q4_0, 48, 96 * 2); /* no whole stage */
    linear(&d.lying, normals(192), 1, NULL, n_multiprocessors, cudaErrorNotSupported);
}

/* --- figures --- */

static __global__ void k_read(const uint4 *p, size_t n, uint4 *out)
{
    uint4 s = make_uint4(0, 0, 0, 0);
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        const uint4 v = p[i];
        s.x ^= v.x, s.y ^= v.y, s.z ^= v.z, s.w ^= v.w;
    }
    if (s.x == 12345 && s.y == 999 && s.z == s.w) *out = s;
}

static double read_rate(void)
{
    const size_t n = (size_t)1 << 30;
    device_copy<uint8_t> p(n);
    const double us = graph_us([&](cudaStream_t s) {
        k_read<<<(unsigned)n_multiprocessors * 16, 512, 0, s>>>((const uint4 *)p.device, n / 16, (uint4 *)p.device);
    });
    return (double)n / us * 1e-3;
}

typedef struct named_shape {
    const char *name;
    int64_t rows, n_in;
} named_shape;

static const named_shape shapes[] = {
    {"7b qkv", 4608, 3584},  {"7b o", 3584, 3584},  {"7b gate, up", 37888, 3584},  {"7b down", 3584, 18944},  {"7b head", 152064, 3584},
    {"32b qkv", 7168, 5120}, {"32b o", 5120, 5120}, {"32b gate, up", 55296, 5120}, {"32b down", 5120, 27648},
};

/* Copies of a matrix, so many that none of them waits in L2; the same blocks again and again. Alone: inputs are prepared before the first.
 */
static double product_us(const named_shape &s, apr_dtype dtype, int64_t n_tokens, bool alone)
{
    const size_t bytes = (size_t)(s.rows * row_bytes_of(dtype, s.n_in)), wanted = (size_t)400 << 20;
    const int n_copies = bytes >= wanted ? 1 : (int)(wanted / bytes) + 1;
    static device_copy<uint8_t> *weights;
    static size_t room;
    static apr_dtype filled = APR_F32;
    if (filled != dtype || room < bytes * (size_t)n_copies) {
        const matrix *const m = new_matrix(dtype, 1024, 4096, 0, 0, 0, APR_F32);
        delete weights;
        room = std::max(bytes * (size_t)n_copies, wanted * 2), filled = dtype;
        weights = new device_copy<uint8_t>(room, false);
        for (size_t at = 0; at < room; at += m->bytes.size())
            must(cudaMemcpy(weights->device + at, m->device.data, std::min(m->bytes.size(), room - at), cudaMemcpyDeviceToDevice), "fill");
        free_matrix((matrix *)m);
    }
    const size_t work_bytes = apr_cuda_linear_small_gemm_bytes(64, s.n_in, n_multiprocessors);
    device_copy<float> x(normals(n_tokens * s.n_in)), out((size_t)(n_tokens * s.rows)), work(work_bytes / 4);
    return graph_us([&](cudaStream_t stream) {
               for (int i = 0; i < n_copies; i++) {
                   apr_tensor t;
                   apr_linear_args a;
                   set_up(&t, dtype, s.rows, s.n_in);
                   t.data = weights->device + bytes / 256 * 256 * (size_t)i;
                   t.tiled = is_tiled_on_device(dtype);
                   memset(&a, 0, sizeof a);
                   a.n_tokens = n_tokens, a.n_in = s.n_in, a.n_out = s.rows, a.x = x.device, a.weight = &t, a.out = out.device;
                   a.work.data = work.device, a.work.slice = work_bytes / 4, a.work.n_threads = 1;
                   must(apr_cuda_linear_small_gemm(&a, alone && i > 0, n_multiprocessors, major_version, stream), "linear");
               }
           }) /
           n_copies;
}

/* Inputs, product and joining: what a linear takes; alone: without inputs. */
static void run_times(bool alone)
{
    const double ceiling = read_rate();
    printf("reads: %.0f GB/s%s\n", ceiling, alone ? "; without inputs" : "");
    for (apr_dtype dtype : {APR_Q4_K, APR_Q6_K, APR_Q8_0, APR_MXFP4, APR_F16}) {
        double layer[2][5] = {};
        if (!is_wanted(dtype)) continue;
        for (const named_shape &s : shapes) {
            const bool large = strncmp(s.name, "32b", 3) == 0, head = strstr(s.name, "head") != NULL;
            if (dtype != APR_Q4_K && large) continue;
            printf("%-6s %-13s", apr_dtypes[dtype].name, s.name);
            const int64_t counts[] = {1, 8, 16, 32, 64};
            for (int i = 0; i < 5; i++) {
                const double us = product_us(s, dtype, counts[i], alone), rate = (double)(s.rows * row_bytes_of(dtype, s.n_in)) / us * 1e-3;
                printf("  %2d: %7.1f us %4.0f GB/s %3.0f %%", (int)counts[i], us, rate, 100 * rate / ceiling);
                layer[large][i] += (large ? 64 : head ? 1 : 28) * us;
            }
            printf("\n");
        }
        for (int large = 0; large < 2; large++)
            for (int i = 0; i < 5 && layer[large][i] > 0; i++)
                printf("%s%s %s: %.2f ms of products a step%s", i == 0 ? "" : ", ", i == 0 ? apr_dtypes[dtype].name : "",
                       large ? "32b without head" : "7b", layer[large][i] * 1e-3, i == 4 ? "\n" : "");
    }
}

/* A layer's experts, with other routes each time, so that experts do not wait in L2. */
static void run_expert_times(const char *name, const mixture &s, int n_layers, double ceiling)
{
    enum { LAYERS = 8 };
    const device_mixture d(s);
    for (int64_t n_tokens : {1, 8, 32, 64, 512, 2048}) {
        device_copy<float> *routes[LAYERS];
        double n_read = 0; /* experts of all layers */
        for (device_copy<float> *&r : routes) {
            const std::vector<float> host = random_routes(s, n_tokens);
            std::vector<char> used((size_t)s.n_experts);
            for (int64_t t = 0; t < n_tokens; t++)
                for (int64_t k = 0; k < s.n_used; k++) used[(size_t)host[(size_t)(t * apr_route_row(s.n_used) + k)]] = 1;
            n_read += (double)std::count(used.begin(), used.end(), 1);
            r = new device_copy<float>(host);
        }
        apr_experts_args a = d.args(true, n_tokens);
        const size_t floats = apr_cuda_experts_small_gemm_bytes(&a, std::max<int64_t>(n_tokens, 64), n_multiprocessors) / 4;
        device_copy<float> dx(normals(n_tokens * s.n_in)), out((size_t)(n_tokens * s.n_out)), work(floats);
        a.x = dx.device, a.out = out.device, a.work = apr_workspace{work.device, floats, 1};
        const double us = graph_us([&](cudaStream_t stream) {
                              for (device_copy<float> *r : routes) {
                                  a.routes = r->device;
                                  must(apr_cuda_experts_small_gemm(&a, n_multiprocessors, major_version, stream), "experts");
                              }
                          }) /
                          LAYERS,
                     bytes = (double)(2 * s.n_mid * row_bytes_of(s.dtype, s.n_in) + s.n_out * row_bytes_of(s.down_dtype, s.n_mid)),
                     rate = n_read / LAYERS * bytes / us * 1e-3;
        printf("%s experts %4d tokens: %8.1f us a layer, %4.0f experts, %5.0f GB/s %3.0f %%, %d layers %.2f ms\n", name, (int)n_tokens, us,
               n_read / LAYERS, rate, 100 * rate / ceiling, n_layers, 1e-3 * n_layers * us);
        for (device_copy<float> *r : routes) delete r;
    }
}

static void run_all_expert_times(void)
{
    const double ceiling = read_rate();
    run_expert_times("30b-a3b", {APR_Q4_K, APR_Q4_K, 2048, 768, 2048, 128, 8, false, false, false}, 48, ceiling);
    run_expert_times("30b-a3b, down Q6_K", {APR_Q4_K, APR_Q6_K, 2048, 768, 2048, 128, 8, false, false, false}, 48, ceiling);
    run_expert_times("gpt-oss-20b", {APR_MXFP4, APR_MXFP4, 2880, 2880, 2880, 32, 4, true, false, false}, 24, ceiling);
}

int main(int argc, char **argv)
{
    for (int i = 2; i < argc; i++) wanted.push_back(argv[i]);
    const modes m = start(argc, argv);
    cudaDeviceProp properties;
    must(cudaGetDeviceProperties(&properties, 0), "device");
    n_multiprocessors = properties.multiProcessorCount;
    major_version = properties.major;
    if (m.tests) run_tests(m);
    if (m.times && wanted.empty()) run_all_expert_times();
    if (m.times) run_times(false);
    if (m.times && !wanted.empty()) run_times(true);
    return all_within_bounds(m) ? 0 : 1;
}
