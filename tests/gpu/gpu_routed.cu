/* gpu_routed.cu - the choice of experts and their products against kernels/ref on random inputs.
 *
 * gpu_routed [quick|times]: prints the worst error of each operation. Exit code 0: all within bounds, 1: not, 77: no device. Outputs
 * begin as NaN. */
#include "kernels/cuda/gemv/decode_gemv.cuh"
#include "tests/gpu/gpu_weights.cuh"

/* --- routes --- */

static apr_route_shape shape_of(apr_score_kind score, int64_t n_experts, int64_t n_used, int64_t n_groups, int64_t n_groups_used,
                                bool group_by_best, float filler, bool normalise)
{
    apr_route_shape s;
    memset(&s, 0, sizeof s);
    s.score = score, s.n_experts = n_experts, s.n_used = n_used, s.n_groups = n_groups, s.n_groups_used = n_groups_used;
    s.group_by_best = group_by_best, s.filler = filler, s.normalise = normalise, s.norm_eps = 1e-20f, s.scale = 2.5f;
    return s;
}

/* The choice must be the same: logits and biases are multiples of 1/4, so that scores are equal or clearly different. */
static void test_route(const apr_route_shape &shape, int64_t n_tokens, bool has_bias, bool has_scales)
{
    std::vector<float> logits = normals(n_tokens * shape.n_experts), bias = normals(shape.n_experts);
    const std::vector<float> scales = normals(shape.n_experts);
    for (float &x : logits) x = roundf(x * 4.0f) / 4.0f;
    for (float &x : bias) x = roundf(x * 4.0f) / 64.0f;
    const size_t row = (size_t)apr_route_row(shape.n_used), n = (size_t)n_tokens * row;
    std::vector<float> ref(n), work(apr_route_slice(shape.n_experts));
    apr_op_args args;
    memset(&args, 0, sizeof args);
    args.route.n_tokens = n_tokens;
    args.route.shape = shape;
    args.route.logits = logits.data();
    args.route.bias = has_bias ? bias.data() : NULL;
    args.route.expert_scale = has_scales ? scales.data() : NULL;
    args.route.out = ref.data();
    args.route.work = apr_workspace{work.data(), work.size(), 1};
    apr_ref_route(&args);
    device_copy<float> dl(logits), db(bias), ds(scales), out(n);
    args.route.logits = dl.device;
    args.route.bias = has_bias ? db.device : NULL;
    args.route.expert_scale = has_scales ? ds.device : NULL;
    args.route.out = out.device;
    char what[120];
    snprintf(what, sizeof what, "score %d, %lld of %lld, %lld of %lld groups", (int)shape.score, (long long)shape.n_used,
             (long long)shape.n_experts, (long long)shape.n_groups_used, (long long)shape.n_groups);
    must(apr_cuda_route(&args.route, 0), what);
    std::vector<float> got = out.get();
    int64_t n_wrong = 0;
    double gap = 0;
    for (size_t i = row - 1; i < n; i += row) { /* of scores up to 1, or without bound where nothing is left to choose */
        gap = fmax(gap, fabs((double)got[i] - ref[i]) / fmax(1.0, fabs((double)ref[i])));
        got[i] = ref[i] = 0;
    }
    note("route, gap", gap, 1e-6, what);
    for (size_t i = 0; i < n; i++) n_wrong += i % row < (size_t)shape.n_used && !(got[i] == ref[i]);
    note("route (experts that differ)", (double)n_wrong, 0, what);
    note("route", distance(got, ref.data()), 1e-6, what);
}

static void test_routes(void)
{
    const apr_route_shape shapes[] = {
        shape_of(APR_SCORE_SOFTMAX, 8, 2, 0, 0, false, 0, true),           shape_of(APR_SCORE_SOFTMAX, 160, 6, 8, 3, true, 0.0f, false),
        shape_of(APR_SCORE_SIGMOID, 256, 8, 8, 4, false, -INFINITY, true), shape_of(APR_SCORE_SIGMOID, 512, 10, 1, 1, false, 0, true),
        shape_of(APR_SCORE_TOPK_SOFTMAX, 32, 4, 0, 0, false, 0, false),    shape_of(APR_SCORE_TOPK_SIGMOID, 16, 1, 0, 0, false, 0, false),
        shape_of(APR_SCORE_SQRT_SOFTPLUS, 128, 6, 0, 0, false, 0, true),   shape_of(APR_SCORE_SOFTMAX, 3, 3, 0, 0, false, 0, false),
        shape_of(APR_SCORE_SOFTMAX, 128, 8, 0, 0, false, 0, true),         shape_of(APR_SCORE_SOFTMAX, 256, 32, 0, 0, false, 0, true),
        shape_of(APR_SCORE_SIGMOID, 100, 33, 0, 0, false, 0, true),        shape_of(APR_SCORE_SOFTMAX, 700, 8, 0, 0, false, 0, true),
        shape_of(APR_SCORE_SOFTMAX, 60, 4, 0, 0, false, 0, false),         shape_of(APR_SCORE_TOPK_SOFTMAX, 512, 10, 0, 0, false, 0, true),
    };
    for (const apr_route_shape &s : shapes)
        for (int64_t n_tokens : {1, 65})
            for (int has = 0; has < 4; has++) test_route(s, n_tokens, has % 2 != 0, has > 1);
}

/* --- experts --- */

typedef struct experts_shape {
    apr_dtype dtype;
    int64_t n_in, n_mid, n_out, n_experts, n_used;
    apr_glu_shape glu;
    bool no_gate, has_biases, weight_on_input;
    int64_t scale_rows; /* FP8: blocks of so many rows and columns, -1: one scale an expert */
} experts_shape;

/* A stack on the device, its matrices side by side on the host. */
struct expert_stack {
    matrix *all;
    apr_tensor device, scale;
    std::vector<apr_tensor> host, host_scales;

    expert_stack(const experts_shape &s, int64_t rows, int64_t columns) : host((size_t)s.n_experts), host_scales((size_t)s.n_experts)
    {
        /* one scale an expert is stored like one for all its rows and columns */
        const int64_t high = s.scale_rows < 0 ? rows : s.scale_rows, wide = s.scale_rows < 0 ? columns : s.scale_rows;
        all = new_matrix(s.dtype, s.n_experts * rows, columns, 0, high, wide, APR_F32);
        device = all->device;
        device.rank = 3, device.dims[0] = s.n_experts, device.dims[1] = rows, device.dims[2] = columns;
        const size_t each = all->bytes.size() / (size_t)s.n_experts, each_scale = all->scale_bytes.size() / (size_t)s.n_experts;
        for (size_t e = 0; e < host.size(); e++) {
            host[e] = all->host;
            host[e].dims[0] = rows;
            host[e].data = all->bytes.data() + e * each;
            host[e].n_bytes = each;
            if (all->host.scale == NULL) continue;
            host_scales[e] = all->host_scale;
            host_scales[e].dims[0] /= s.n_experts;
            host_scales[e].data = all->scale_bytes.data() + e * each_scale;
            host[e].scale = &host_scales[e];
        }
    }
    ~expert_stack() { free_matrix(all); }
};

static std::vector<float> random_routes(const experts_shape &s, int64_t n_tokens)
{
    std::vector<float> routes = normals(n_tokens * apr_route_row(s.n_used));
    for (int64_t t = 0; t < n_tokens; t++) {
        const int64_t first = random_bits() % s.n_experts;
        for (int64_t k = 0; k < s.n_used; k++) routes[(size_t)(t * apr_route_row(s.n_used) + k)] = (float)((first + k) % s.n_experts);
    }
    return routes;
}

static void test_experts(const experts_shape &s, int64_t n_tokens, int64_t room_for)
{
    const expert_stack gate(s, s.n_mid, s.n_in), up(s, s.n_mid, s.n_in), down(s, s.n_out, s.n_mid);
    const std::vector<float> x = normals(n_tokens * s.n_in), routes = random_routes(s, n_tokens),
                             gate_bias = normals(s.n_experts * s.n_mid), up_bias = normals(s.n_experts * s.n_mid),
                             down_bias = normals(s.n_experts * s.n_out);
    std::vector<float> ref((size_t)(n_tokens * s.n_out)), work(apr_experts_slice(s.n_in, s.n_mid));
    const bool has_gate_bias = s.has_biases && !s.no_gate;
    apr_op_args args;
    memset(&args, 0, sizeof args);
    apr_experts_args &a = args.experts;
    a.n_tokens = n_tokens, a.n_in = s.n_in, a.n_mid = s.n_mid, a.n_out = s.n_out, a.n_experts = s.n_experts, a.n_used = s.n_used;
    a.glu = s.glu, a.weight_on_input = s.weight_on_input;
    a.x = x.data(), a.routes = routes.data();
    a.gate = s.no_gate ? NULL : gate.host.data(), a.up = up.host.data(), a.down = down.host.data();
    a.gate_bias = has_gate_bias ? gate_bias.data() : NULL;
    a.up_bias = s.has_biases ? up_bias.data() : NULL, a.down_bias = s.has_biases ? down_bias.data() : NULL;
    a.out = ref.data();
    a.work = apr_workspace{work.data(), work.size(), 1};
    apr_ref_experts(&args);

    const size_t floats = apr_cuda_experts_bytes(room_for, s.n_in, s.n_mid, s.n_out, s.n_used) / 4;
    device_copy<float> dx(x), dr(routes), dg(gate_bias), du(up_bias), dd(down_bias), out(ref.size()), dwork(floats);
    a.x = dx.device, a.routes = dr.device;
    a.gate = s.no_gate ? NULL : &gate.device, a.up = &up.device, a.down = &down.device;
    a.gate_bias = has_gate_bias ? dg.device : NULL;
    a.up_bias = s.has_biases ? du.device : NULL, a.down_bias = s.has_biases ? dd.device : NULL;
    a.out = out.device;
    a.work = apr_workspace{dwork.device, floats, 1};
    char what[160];
    snprintf(what, sizeof what, "%s, %lld of %lld experts, %lld -> %lld -> %lld, %lld tokens%s%s%s", apr_dtypes[s.dtype].name,
             (long long)s.n_used, (long long)s.n_experts, (long long)s.n_in, (long long)s.n_mid, (long long)s.n_out, (long long)n_tokens,
             s.no_gate ? ", no gate" : "", s.has_biases ? ", biases" : "", s.weight_on_input ? ", weights on the input" : "");
    must(apr_cuda_experts(&a, 0), what);
    const std::vector<float> got = out.get();
    note("experts", distance(got, ref.data()), 3e-5, what); /* three products one after the other */
    must(cudaMemset(out.device, 0xff, out.n * 4), "memset");
    must(apr_cuda_experts(&a, 0), what);
    note("experts again (bytes that differ)", differing(out.get().data(), got.data(), got.size() * 4), 0, what);
}

static void test_all_experts(void)
{
    const apr_glu_shape silu = {APR_ACT_SILU, 0, 0, 0}, relu2 = {APR_ACT_RELU2, 0, 0, 0}, gpt_oss = {APR_ACT_SILU, 7.0f, 1.702f, 1.0f};
    for (int d = 0; d < APR_DTYPE_COUNT; d++) {
        const apr_dtype dtype = (apr_dtype)d;
        if (!apr_cuda_has_kernel(dtype) || apr_dtypes[d].flat) continue; /* a flat type's rows have no bytes of their own */
        const experts_shape s = {dtype, 512, 256, 512, 6, 3, silu, false, false, false, 0};
        for (int64_t n_tokens : {1, 9}) test_experts(s, n_tokens, n_tokens);
    }
    const experts_shape shapes[] = {
        {APR_MXFP4, 2880 / 32 * 32, 64, 96, 5, 4, gpt_oss, false, true, false, 0},
        {APR_BF16, 128, 96, 128, 8, 2, relu2, true, false, false, 0},
        {APR_F16, 128, 96, 128, 8, 2, relu2, true, true, false, 0},
        {APR_BF16, 128, 96, 128, 4, 1, silu, false, false, true, 0},
        {APR_F32, 33, 17, 31, 4, 2, silu, false, true, true, 0},
        {APR_F8_E4M3, 256, 384, 256, 4, 2, silu, false, false, false, 128},
        {APR_F8_E4M3, 256, 384, 256, 4, 2, silu, false, false, false, -1},
    };
    for (const experts_shape &s : shapes) {
        test_experts(s, 1, 1);
        test_experts(s, 130, 512);
        test_experts(s, 7, 2); /* workspace for two tokens at a time */
    }
}

/* --- experts whose products stream --- */

static size_t tiled_bytes(const experts_shape &s, int64_t rows, int64_t columns)
{
    return (size_t)(s.n_experts * rows * apr_tiled_row_bytes(s.dtype, true, columns));
}

/* A stack in items; `bytes` keeps them. */
static apr_tensor tiled(const expert_stack &stack, int64_t rows, int64_t columns, device_copy<uint8_t> &bytes)
{
    apr_tensor t = stack.device;
    must(apr_cuda_to_tiles(t.dtype, t.data, t.dims[0] * rows, columns, bytes.device, 0), "to items");
    t.data = bytes.device;
    t.tiled = true;
    return t;
}

/* int16 activations as the product before leaves them: x times gains, the division by x' root mean square left to the reader, so that
 * experts' inputs are x again; ended by a sum, and by its int16 activations. Else x as it is, and nothing after. The bound is for inputs
 * that are rounded twice, each time to 15 bits of the largest of 16: x, and what stands between the products; 1.14e-4 has been seen (Q6_K,
 * one expert). Early: all but the routes is there when the kernels begin. */
static void check_streamed(apr_experts_args a, const std::vector<float> &x, const std::vector<float> &ref, int blocks, bool is_normed,
                           bool inputs_ready_early, const char *what)
{
    const size_t n_in = (size_t)a.n_in, n_out = (size_t)a.n_out;
    const float eps = 1e-5f;
    std::vector<float> raw(n_in), gains(n_in), squares(n_in / 16, 0.0f), wanted(ref), wanted_squares(n_out / 16, 0.0f);
    const std::vector<float> residual = normals(a.n_out), out_gains = normals(a.n_out);
    double sum = 0.0;
    for (size_t i = 0; i < n_in; i++) raw[i] = (float)(3.0 + i % 7) * (i % 2 != 0 ? 1.0f : -1.0f), sum += (double)raw[i] * raw[i];
    const float rms = (float)sqrt(sum / (double)n_in + eps);
    for (size_t i = 0; i < n_in; i++) gains[i] = x[i] * rms / raw[i] - 1.0f, squares[i / 16] += raw[i] * raw[i];
    for (size_t i = 0; i < n_out && is_normed; i++) wanted[i] += residual[i], wanted_squares[i / 16] += wanted[i] * wanted[i];
    device_copy<float> dx(is_normed ? raw : x), dgains(gains), dsquares(squares), sums(residual), dout_gains(out_gains), out(n_out),
        out_squares(n_out / 16);
    device_copy<uint8_t> activations((size_t)apr_activations_i16_bytes(a.n_in)),
        activations_out((size_t)apr_activations_i16_bytes(a.n_out));
    apr_decode_gemv_inputs inputs = {};
    inputs.n = a.n_in, inputs.x = dx.device, inputs.activations_out = activations.device;
    apr_decode_gemv_args gemv = {};
    gemv.epilogue = APR_EPILOGUE_STORE, gemv.n_parts = 1, gemv.activations = activations.device, gemv.parts[0].out = out.device;
    if (is_normed) {
        inputs.gain = dgains.device, inputs.gain_offset = 1.0f;
        gemv.squares = dsquares.device, gemv.eps = eps;
        gemv.epilogue = APR_EPILOGUE_ADD, gemv.residual = gemv.parts[0].out = sums.device;
        gemv.gain = dout_gains.device, gemv.gain_offset = 0.5f, gemv.activations_out = activations_out.device,
        gemv.out_squares = out_squares.device;
    }
    a.x = NULL, a.out = NULL;
    gemv.inputs_ready_early = inputs_ready_early;
    must(apr_cuda_decode_gemv_prepare(&inputs, 0), what);
    if (inputs_ready_early) must(cudaDeviceSynchronize(), what);
    must(apr_cuda_decode_gemv_experts(&a, &gemv, blocks, 0), what);
    if (!is_normed) {
        note("experts that stream", distance(out.get(), wanted.data()), 2e-4, what);
        return;
    }
    note("experts that stream, normed and added", distance(sums.get(), wanted.data()), 2e-4, what);
    note("their squares", distance(out_squares.get(), wanted_squares.data()), 4e-4, what);
    std::vector<float> left((size_t)a.n_out);
    const std::vector<uint8_t> bytes = activations_out.get();
    for (size_t i = 0; i < n_out; i++) {
        const uint8_t *const tile = bytes.data() + i / I16_TILE * I16_TILE_BYTES;
        const size_t c = i % I16_TILE;
        float scale;
        memcpy(&scale, tile + I16_SCALES_AT + c / I16_GROUP * 4, 4);
        left[i] = scale * (float)(256 * (int8_t)tile[c] + (int8_t)tile[I16_LOW_AT + c]);
        wanted[i] *= out_gains[i] + 0.5f;
    }
    note("their activations", distance(left, wanted.data()), 3e-4, what);
}

static void test_streamed(apr_dtype dtype, apr_dtype down_dtype, const experts_shape &shape)
{
    experts_shape s = shape, of_down = shape;
    s.dtype = dtype, of_down.dtype = down_dtype;
    const expert_stack gate(s, s.n_mid, s.n_in), up(s, s.n_mid, s.n_in), down(of_down, s.n_out, s.n_mid);
    device_copy<uint8_t> gate_items(tiled_bytes(s, s.n_mid, s.n_in)), up_items(tiled_bytes(s, s.n_mid, s.n_in)),
        down_tiles(tiled_bytes(of_down, s.n_out, s.n_mid));
    const apr_tensor g = tiled(gate, s.n_mid, s.n_in, gate_items), u = tiled(up, s.n_mid, s.n_in, up_items),
                     d = tiled(down, s.n_out, s.n_mid, down_tiles);
    const std::vector<float> x = normals(s.n_in), routes = random_routes(s, 1), gate_bias = normals(s.n_experts * s.n_mid),
                             up_bias = normals(s.n_experts * s.n_mid), down_bias = normals(s.n_experts * s.n_out);
    std::vector<float> ref((size_t)s.n_out), work(apr_experts_slice(s.n_in, s.n_mid));
    const size_t floats = apr_cuda_experts_bytes(1, s.n_in, s.n_mid, s.n_out, s.n_used) / 4;
    device_copy<float> dx(x), dr(routes), dg(gate_bias), du(up_bias), dd(down_bias), out(ref.size()), dwork(floats);
    apr_op_args args;
    memset(&args, 0, sizeof args);
    apr_experts_args &a = args.experts;
    a.n_tokens = 1, a.n_in = s.n_in, a.n_mid = s.n_mid, a.n_out = s.n_out, a.n_experts = s.n_experts, a.n_used = s.n_used, a.glu = s.glu;
    a.x = x.data(), a.routes = routes.data(), a.gate = gate.host.data(), a.up = up.host.data(), a.down = down.host.data();
    if (s.has_biases) a.gate_bias = gate_bias.data(), a.up_bias = up_bias.data(), a.down_bias = down_bias.data();
    a.out = ref.data(), a.work = apr_workspace{work.data(), work.size(), 1};
    apr_ref_experts(&args);

    a.x = dx.device, a.routes = dr.device, a.gate = &g, a.up = &u, a.down = &d, a.out = out.device;
    if (s.has_biases) a.gate_bias = dg.device, a.up_bias = du.device, a.down_bias = dd.device;
    a.work = apr_workspace{dwork.device, floats, 1};
    char what[120];
    snprintf(what, sizeof what, "%s and %s, %lld of %lld experts, %lld -> %lld -> %lld%s", apr_dtypes[dtype].name,
             apr_dtypes[down_dtype].name, (long long)s.n_used, (long long)s.n_experts, (long long)s.n_in, (long long)s.n_mid,
             (long long)s.n_out, s.has_biases ? ", biases" : "");
    for (int blocks : {132, 7, 1})
        for (bool is_normed : {false, true})
            for (bool inputs_ready_early : {false, true}) check_streamed(a, x, ref, blocks, is_normed, inputs_ready_early, what);
    must(cudaMemset(out.device, 0xff, out.n * 4), "memset");
    must(apr_cuda_experts(&a, 0), what);
    note("experts in items", distance(out.get(), ref.data()), 3e-5, what);
}

static void test_all_streamed(void)
{
    const apr_glu_shape silu = {APR_ACT_SILU, 0, 0, 0}, gpt_oss = {APR_ACT_SILU, 7.0f, 1.702f, 1.0f};
    const experts_shape shapes[] = {{APR_Q4_K, 512, 256, 512, 6, 3, silu, false, false, false, 0},
                                    {APR_Q4_K, 2048, 768, 2048, 16, 8, silu, false, false, false, 0},
                                    {APR_Q4_K, 256, 512, 48, 5, 1, gpt_oss, false, true, false, 0}};
    for (const experts_shape &s : shapes)
        for (apr_dtype dtype : {APR_Q4_K, APR_Q6_K, APR_Q8_0, APR_MXFP4}) {
            test_streamed(dtype, dtype, s);
            test_streamed(dtype, APR_Q6_K, s);
        }
    /* rows that end within an item */
    const experts_shape filled[] = {{APR_MXFP4, 320, 160, 96, 5, 4, gpt_oss, false, true, false, 0},
                                    {APR_MXFP4, 2880, 224, 48, 4, 3, gpt_oss, false, true, false, 0},
                                    {APR_MXFP4, 64, 2880, 32, 3, 2, silu, false, false, false, 0}};
    for (const experts_shape &s : filled)
        for (apr_dtype dtype : {APR_Q8_0, APR_MXFP4})
            for (apr_dtype down : {APR_Q8_0, APR_MXFP4}) test_streamed(dtype, down, s);
    test_streamed(APR_Q4_K, APR_MXFP4, experts_shape{APR_Q4_K, 512, 96, 64, 5, 4, silu, false, true, false, 0});
}

/* --- timings --- */

static void time_experts(apr_dtype dtype, int64_t n_tokens)
{
    const experts_shape s = {
        dtype, 2880 / 256 * 256, 2880 / 256 * 256, 2880 / 256 * 256, 32, 4, {APR_ACT_SILU, 0, 0, 0}, false, false, false, 0};
    const expert_stack gate(s, s.n_mid, s.n_in), up(s, s.n_mid, s.n_in), down(s, s.n_out, s.n_mid);
    const size_t floats = apr_cuda_experts_bytes(n_tokens, s.n_in, s.n_mid, s.n_out, s.n_used) / 4;
    device_copy<float> x(normals(n_tokens * s.n_in)), routes(random_routes(s, n_tokens)), out((size_t)(n_tokens * s.n_out)), work(floats);
    apr_experts_args a;
    memset(&a, 0, sizeof a);
    a.n_tokens = n_tokens, a.n_in = s.n_in, a.n_mid = s.n_mid, a.n_out = s.n_out, a.n_experts = s.n_experts, a.n_used = s.n_used;
    a.glu = s.glu, a.x = x.device, a.routes = routes.device, a.gate = &gate.device, a.up = &up.device, a.down = &down.device;
    a.out = out.device, a.work = apr_workspace{work.device, floats, 1};
    double best = 1e30;
    for (int repeat = 0; repeat < 5; repeat++) {
        timer clock;
        for (int i = 0; i < 10; i++) must(apr_cuda_experts(&a, 0), "experts");
        const double ms = clock.ms() / 10;
        if (ms < best) best = ms;
    }
    printf("experts %-7s 4 of 32, 2816 -> 2816 -> 2816, %4lld tokens: %8.2f us\n", apr_dtypes[dtype].name, (long long)n_tokens, best * 1e3);
}

static int major_version(void)
{
    cudaDeviceProp properties;
    must(cudaGetDeviceProperties(&properties, 0), "device");
    return properties.major;
}

int main(int argc, char **argv)
{
    const modes m = start(argc, argv);
    if (m.tests) {
        test_routes();
        test_all_experts();
        if (major_version() >= APR_DECODE_GEMV_CAPABILITY) test_all_streamed();
    }
    if (!all_within_bounds(m)) return 1;
    if (!m.times) return 0;
    for (apr_dtype dtype : {APR_MXFP4, APR_BF16, APR_Q4_K})
        for (int64_t n_tokens : {1, 64, 512}) time_experts(dtype, n_tokens);
    return 0;
}
