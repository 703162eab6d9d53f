/* gpu_qkv_epilogue.cu - a token's heads normed, rotated and stored by one kernel against the kernels that it replaces, and attention that
 * leaves int16 activations against attention and their conversion: the same bytes.
 *
 * gpu_qkv_epilogue: exit code 0: all the same, 1: not, 77: no device. Outputs begin as NaN. */
#include "kernels/cuda/attention/attend.cuh"
#include "kernels/cuda/gemv/decode_gemv.cuh"
#include "tests/gpu/gpu_check.cuh"

typedef struct qkv_case {
    int64_t n_heads, n_kv_heads, key_dim, value_dim, n_freqs, start;
    apr_rope_mode mode;
    bool q_normed, k_normed, wide_gain, in_place;
} qkv_case;

static apr_norm_args norm_of(int64_t n_heads, int64_t dim, bool wide, const device_copy<float> &x, const device_copy<float> &gain)
{
    apr_norm_args a;
    memset(&a, 0, sizeof a);
    a.kind = APR_NORM_RMS, a.n_tokens = 1, a.width = n_heads * dim, a.chunk = dim, a.n_weight = wide ? n_heads * dim : dim;
    a.eps = 1e-6f, a.offset = wide ? 1.0f : 0.0f, a.x = x.device, a.weight = gain.device;
    return a;
}

static apr_rope_args rope_of(const qkv_case &c, int64_t n_heads, const float *x, const device_copy<float> &angles, float *out)
{
    apr_rope_args a;
    memset(&a, 0, sizeof a);
    a.n_tokens = 1, a.n_heads = n_heads, a.head_dim = c.key_dim, a.n_freqs = c.n_freqs, a.start = c.start, a.mode = c.mode;
    a.x = x, a.angles = angles.device, a.out = out;
    return a;
}

/* A cache of a few cells, on the device. */
struct cells {
    device_copy<uint8_t> keys, values;
    int64_t key_bytes, value_bytes, n;
    apr_dtype dtype;
    cells(const qkv_case &c, apr_dtype d, int64_t n_cells = 5)
        : keys((size_t)(n_cells * c.n_kv_heads * row_bytes_of(d, c.key_dim))),
          values((size_t)(n_cells * c.n_kv_heads * row_bytes_of(d, c.value_dim))), key_bytes(row_bytes_of(d, c.key_dim)),
          value_bytes(row_bytes_of(d, c.value_dim)), n(n_cells), dtype(d)
    {
    }
    apr_kv_store_args store(const qkv_case &c, const float *k, const float *v, const int64_t *position) const
    {
        apr_kv_store_args a;
        memset(&a, 0, sizeof a);
        a.n_tokens = 1, a.position = 3, a.position_at = position, a.n_kv_heads = c.n_kv_heads, a.key_dim = c.key_dim;
        a.value_dim = c.value_dim, a.k = k, a.v = v;
        a.keys = apr_cache{dtype, keys.device, n, key_bytes};
        a.values = apr_cache{dtype, values.device, n, value_bytes};
        return a;
    }
};

/* One after the other, as a token runs without a QKV epilogue. */
static void run_separately(const qkv_case &c, apr_norm_args qn, apr_norm_args kn, apr_rope_args q, apr_rope_args k, apr_kv_store_args store)
{
    const device_copy<float> normed_q((size_t)(c.n_heads * c.key_dim)), normed_k((size_t)(c.n_kv_heads * c.key_dim)),
        rotated_k((size_t)(c.n_kv_heads * c.key_dim));
    qn.out = normed_q.device, kn.out = normed_k.device;
    if (c.q_normed) must(apr_cuda_norm(&qn, 0), "norm"), q.x = normed_q.device;
    if (c.k_normed) must(apr_cuda_norm(&kn, 0), "norm"), k.x = normed_k.device;
    k.out = rotated_k.device;
    must(apr_cuda_rope(&q, 0), "rope");
    must(apr_cuda_rope(&k, 0), "rope");
    store.k = rotated_k.device;
    must(apr_cuda_kv_store(&store, 0), "kv store");
    must(cudaDeviceSynchronize(), "separately");
}

static void test_qkv_epilogue(const qkv_case &c, apr_dtype dtype)
{
    const size_t n_q = (size_t)(c.n_heads * c.key_dim), n_k = (size_t)(c.n_kv_heads * c.key_dim);
    const device_copy<float> q(normals((int64_t)n_q)), k(normals((int64_t)n_k)), v(normals(c.n_kv_heads * c.value_dim));
    const device_copy<float> q_gain(normals((int64_t)n_q)), k_gain(normals((int64_t)n_k)), angles(normals(2 * c.n_freqs)), one(n_q),
        other(n_q);
    const device_copy<int64_t> position(std::vector<int64_t>(1, 13));
    const cells before(c, dtype), after(c, dtype);
    const apr_norm_args qn = norm_of(c.n_heads, c.key_dim, c.wide_gain, q, q_gain), kn = norm_of(c.n_kv_heads, c.key_dim, false, k, k_gain);
    run_separately(c, qn, kn, rope_of(c, c.n_heads, q.device, angles, one.device), rope_of(c, c.n_kv_heads, k.device, angles, NULL),
                   before.store(c, NULL, v.device, position.device));
    apr_qkv_epilogue_args a;
    memset(&a, 0, sizeof a);
    if (c.q_normed) a.q_norm = qn;
    if (c.k_normed) a.k_norm = kn;
    a.q = rope_of(c, c.n_heads, c.q_normed ? NULL : q.device, angles, c.in_place ? q.device : other.device);
    a.k = rope_of(c, c.n_kv_heads, c.k_normed ? NULL : k.device, angles, NULL);
    a.store = after.store(c, NULL, v.device, position.device);
    must(apr_cuda_qkv_epilogue(&a, 0), "QKV epilogue");
    const std::vector<float> got = c.in_place ? q.get() : other.get();
    note("rotated query (bytes that differ)", differing(got.data(), one.get().data(), n_q * 4), 0, apr_dtypes[dtype].name);
    note("keys (bytes that differ)", differing(after.keys.get().data(), before.keys.get().data(), after.keys.n), 0, apr_dtypes[dtype].name);
    note("values (bytes that differ)", differing(after.values.get().data(), before.values.get().data(), after.values.n), 0,
         apr_dtypes[dtype].name);
}

/* At a position and in a cache of so many cells: one part, a cluster's, several clusters', parts that the last block joins. */
static void test_attend(int64_t n_heads, int64_t n_kv, int64_t dim, int64_t position, int64_t n_cells, bool sinks)
{
    const int64_t width = n_heads * dim;
    std::vector<uint16_t> random((size_t)(n_cells * n_kv * dim));
    for (uint16_t &h : random) h = apr_f32_to_f16(normal());
    const device_copy<uint16_t> keys(random), values(random);
    const device_copy<float> q(normals(width)), sink(normals(n_heads)), out((size_t)width), again((size_t)width);
    const device_copy<float> work(apr_cuda_attend_bytes(n_heads, dim) / 4);
    const device_copy<uint8_t> want((size_t)apr_activations_i16_bytes(width)), got((size_t)apr_activations_i16_bytes(width));
    apr_attend_args a;
    memset(&a, 0, sizeof a);
    a.n_tokens = 1, a.position = position, a.n_heads = n_heads, a.n_kv_heads = n_kv, a.key_dim = a.value_dim = dim;
    a.scale = 1.0f / sqrtf((float)dim), a.q = q.device, a.work = apr_workspace{work.device, work.n, 1}, a.out = out.device;
    a.sinks = sinks ? sink.device : NULL;
    a.keys = apr_cache{APR_F16, (uint8_t *)keys.device, n_cells, dim * 2};
    a.values = apr_cache{APR_F16, (uint8_t *)values.device, n_cells, dim * 2};
    must(apr_cuda_attend(&a, 0), "attend");
    apr_decode_gemv_inputs inputs;
    memset(&inputs, 0, sizeof inputs);
    inputs.n = width, inputs.x = out.device, inputs.activations_out = want.device;
    must(apr_cuda_decode_gemv_prepare(&inputs, 0), "prepare");
    a.out = again.device;
    must(apr_cuda_attend_to_i16(&a, got.device, 0), "attend to activations");
    char what[80];
    snprintf(what, sizeof what, "%lld heads on %lld of %lld at %lld of %lld", (long long)n_heads, (long long)n_kv, (long long)dim,
             (long long)position, (long long)n_cells);
    note("attention and int16 activations (bytes that differ)", differing(again.get().data(), out.get().data(), out.n * 4), 0, what);
    note("attention's activations (bytes that differ)", differing(got.get().data(), want.get().data(), got.n), 0, what);
}

/* A cache that has been written, of FP16. */
static void fill(const cells &to)
{
    std::vector<uint16_t> random(to.keys.n / 2), more(to.values.n / 2);
    for (uint16_t &h : random) h = apr_f32_to_f16(normal());
    for (uint16_t &h : more) h = apr_f32_to_f16(normal());
    must(cudaMemcpy(to.keys.device, random.data(), to.keys.n, cudaMemcpyHostToDevice), "fill");
    must(cudaMemcpy(to.values.device, more.data(), to.values.n, cudaMemcpyHostToDevice), "fill");
}

/* QKV epilogue and attention one after the other, and both by one kernel: the same caches and activations. */
static void test_both(const qkv_case &c, int64_t position, int64_t n_cells, int64_t window)
{
    const int64_t width = c.n_heads * c.value_dim;
    const size_t n_q = (size_t)(c.n_heads * c.key_dim), n_k = (size_t)(c.n_kv_heads * c.key_dim);
    const device_copy<float> q(normals((int64_t)n_q)), k(normals((int64_t)n_k)), v(normals(c.n_kv_heads * c.value_dim)), rotated(n_q);
    const device_copy<float> q_gain(normals((int64_t)n_q)), k_gain(normals((int64_t)n_k)), angles(normals(2 * c.n_freqs)),
        out((size_t)width);
    const device_copy<float> sinks(normals(c.n_heads)), work(apr_cuda_attend_bytes(c.n_heads, c.key_dim) / 4);
    const device_copy<int64_t> at(std::vector<int64_t>(1, position));
    const device_copy<uint8_t> want((size_t)apr_activations_i16_bytes(width)), got((size_t)apr_activations_i16_bytes(width));
    const cells before(c, APR_F16, n_cells), after(c, APR_F16, n_cells);
    fill(before);
    must(cudaMemcpy(after.keys.device, before.keys.device, before.keys.n, cudaMemcpyDeviceToDevice), "copy");
    must(cudaMemcpy(after.values.device, before.values.device, before.values.n, cudaMemcpyDeviceToDevice), "copy");
    apr_qkv_epilogue_args t;
    memset(&t, 0, sizeof t);
    if (c.q_normed) t.q_norm = norm_of(c.n_heads, c.key_dim, c.wide_gain, q, q_gain);
    if (c.k_normed) t.k_norm = norm_of(c.n_kv_heads, c.key_dim, false, k, k_gain);
    t.q = rope_of(c, c.n_heads, c.q_normed ? NULL : q.device, angles, rotated.device);
    t.k = rope_of(c, c.n_kv_heads, c.k_normed ? NULL : k.device, angles, NULL);
    apr_attend_args a;
    memset(&a, 0, sizeof a);
    a.n_tokens = 1, a.position_at = at.device, a.n_heads = c.n_heads, a.n_kv_heads = c.n_kv_heads, a.key_dim = c.key_dim;
    a.value_dim = c.value_dim, a.scale = 1.0f / sqrtf((float)c.key_dim), a.window = window, a.q = rotated.device;
    a.work = apr_workspace{work.device, work.n, 1}, a.out = out.device, a.sinks = position % 2 != 0 ? sinks.device : NULL;
    char what[120];
    snprintf(what, sizeof what, "%lld heads on %lld of %lld at %lld of %lld, window %lld", (long long)c.n_heads, (long long)c.n_kv_heads,
             (long long)c.key_dim, (long long)position, (long long)n_cells, (long long)window);
    t.store = before.store(c, NULL, v.device, at.device), a.keys = t.store.keys, a.values = t.store.values;
    must(apr_cuda_qkv_epilogue(&t, 0), what);
    must(apr_cuda_attend_to_i16(&a, want.device, 0), what);
    must(cudaMemset(rotated.device, 0xff, rotated.n * 4), what);
    t.store = after.store(c, NULL, v.device, at.device), a.keys = t.store.keys, a.values = t.store.values;
    must(apr_cuda_qkv_and_attend(&t, &a, got.device, 0), what);
    note("both at once, activations (bytes that differ)", differing(got.get().data(), want.get().data(), got.n), 0, what);
    note("both at once, keys (bytes that differ)", differing(after.keys.get().data(), before.keys.get().data(), after.keys.n), 0, what);
    note("both at once, values (bytes that differ)", differing(after.values.get().data(), before.values.get().data(), after.values.n), 0,
         what);
}

static void run_tests(void)
{
    static const qkv_case cases[] = {
        {28, 4, 128, 128, 64, 0, APR_ROPE_HALVES, false, false, false, true},
        {28, 4, 128, 128, 64, 0, APR_ROPE_HALVES, false, false, false, false},
        {16, 8, 128, 128, 64, 0, APR_ROPE_HALVES, true, true, false, true},
        {16, 8, 128, 128, 64, 0, APR_ROPE_NEIGHBOURS, true, true, true, false},
        {8, 2, 256, 256, 32, 0, APR_ROPE_HALVES, true, false, false, false},
        {5, 5, 96, 64, 16, 64, APR_ROPE_NEIGHBOURS, false, true, false, true},
        {3, 1, 512, 512, 256, 0, APR_ROPE_HALVES, true, true, false, false},
        {4, 2, 64, 32, 10, 8, APR_ROPE_HALVES, false, false, false, false},
    };
    for (apr_dtype dtype : {APR_F16, APR_F32, APR_BF16, APR_Q8_0, APR_F8_E4M3})
        for (const qkv_case &c : cases) test_qkv_epilogue(c, dtype);
    static const qkv_case both[] = {
        {28, 4, 128, 128, 64, 0, APR_ROPE_HALVES, false, false, false, false},
        {32, 8, 128, 128, 64, 0, APR_ROPE_NEIGHBOURS, true, true, true, false},
        {16, 1, 64, 64, 32, 0, APR_ROPE_HALVES, false, false, false, false},
        {8, 2, 256, 256, 32, 0, APR_ROPE_HALVES, true, true, false, false},
        {4, 4, 96, 64, 16, 64, APR_ROPE_NEIGHBOURS, false, true, false, false},
    };
    for (const qkv_case &c : both)
        for (int64_t position : {0, 1, 15, 16, 127, 128, 511, 2000, 4095}) {
            test_both(c, position, 4096, 0);
            test_both(c, position, 256, 200);
        }
    test_both(both[0], 30001, 32768, 0);
    for (bool sinks : {false, true}) {
        test_attend(28, 4, 128, 0, 256, sinks);
        test_attend(28, 4, 128, 127, 2304, sinks);
        test_attend(28, 4, 128, 2000, 2304, sinks);
        test_attend(28, 4, 128, 16384, 16640, sinks);
        test_attend(32, 8, 64, 5000, 8192, sinks);
        test_attend(16, 4, 96, 700, 1024, sinks);
        test_attend(8, 1, 256, 3000, 4096, sinks);
        test_attend(8, 2, 80, 900, 1024, sinks);
    }
}

int main(int argc, char **argv)
{
    const modes m = start(argc, argv);
    if (m.tests) run_tests();
    return all_within_bounds(m) ? 0 : 1;
}
