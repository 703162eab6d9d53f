/* gpu_attend.cu - the cache and attention against kernels/ref on random inputs. (How fast it is: gpu_bench_attend.)
 *
 * gpu_attend [quick]: prints the worst error of each operation; "quick" leaves out what takes long. Exit code 0: all within bounds,
 * 1: not, 77: no device. Outputs begin as NaN, and so does what the cache does not hold yet. */
#include "kernels/cuda/attention/attend.cuh"
#include "tests/gpu/gpu_check.cuh"

typedef struct attend_case {
    int64_t n_heads, n_kv_heads, head_dim, n_tokens, position, window, n_cells;
    int64_t value_dim, chunk; /* 0: as wide as keys; no chunks */
    float softcap;
    bool has_sinks, values_in_keys;
} attend_case;

static int64_t value_dim_of(const attend_case &c) { return c.value_dim > 0 ? c.value_dim : c.head_dim; }

/* Stores the keys and values of `n_tokens` tokens from `position` on, on host and device, and compares the bytes. */
static void store(const attend_case &c, apr_dtype dtype, int64_t position, int64_t n_tokens, std::vector<uint8_t> *host,
                  device_copy<uint8_t> *const *device)
{
    const int64_t key_bytes = row_bytes_of(dtype, c.head_dim), value_bytes = row_bytes_of(dtype, value_dim_of(c));
    std::vector<float> k = normals(n_tokens * c.n_kv_heads * c.head_dim), v = normals(n_tokens * c.n_kv_heads * value_dim_of(c));
    if (position == 0) { /* what a block format makes of these is part of the definition */
        k[0] = dtype == APR_Q8_0 ? NAN : 4.0f;
        v[1] = -1e-30f;
        v[2] = 0.0f;
        if (dtype == APR_F8_E4M3) v[3] = 1e30f; /* saturates */
    }
    apr_op_args args;
    args.kv_store = apr_kv_store_args{position >= 0 ? n_tokens : 0,
                                      position,
                                      c.n_kv_heads,
                                      c.head_dim,
                                      value_dim_of(c),
                                      NULL,
                                      false,
                                      k.data(),
                                      c.values_in_keys ? NULL : v.data(),
                                      apr_cache{dtype, host[0].data(), c.n_cells, key_bytes},
                                      apr_cache{dtype, host[1].data(), c.n_cells, value_bytes}};
    apr_ref_kv_store(&args);
    device_copy<float> dk(k), dv(v);
    args.kv_store.k = dk.device;
    args.kv_store.v = c.values_in_keys ? NULL : dv.device;
    args.kv_store.keys.data = device[0]->device;
    args.kv_store.values.data = device[1]->device;
    static int turn;
    const device_copy<int64_t> where(std::vector<int64_t>{position});
    if (++turn % 2 == 0) args.kv_store.position_at = where.device, args.kv_store.position = 1; /* which is not read then */
    must(apr_cuda_kv_store(&args.kv_store, 0), "kv store");
    must(cudaDeviceSynchronize(), "kv store");
}

typedef cudaError_t (*attend_fn)(const apr_attend_args *args, cudaStream_t stream);

static std::vector<float> attend_by(attend_fn attend, apr_attend_args a, const char *what)
{
    const device_copy<float> out((size_t)(a.n_tokens * a.n_heads * a.value_dim));
    a.out = out.device;
    must(attend(&a, 0), what);
    return out.get();
}

/* Where one FP16 part of queries and weights has to do, each is right to 2^-12, and scores reach some ten. */
static const double careful_bound = 3e-6, fast_bound = 1e-3;

/* All ways to the result: as it is called, again, without workspace, with the position in device memory, by each kernel. */
static void compare(const apr_attend_args &a, const std::vector<float> &ref, const char *what)
{
    const bool is_careful = a.n_tokens <= APR_CUDA_CAREFUL_TOKENS;
    const size_t n_bytes = ref.size() * sizeof(float);
    const std::vector<float> got = attend_by(apr_cuda_attend, a, what);
    note(is_careful ? "attend" : "attend, one FP16 part", distance(got, ref.data()), is_careful ? careful_bound : fast_bound, what);
    for (int run = 0; run < 3; run++)
        note("attend again (bytes that differ)", differing(attend_by(apr_cuda_attend, a, what).data(), got.data(), n_bytes), 0, what);
    if (!is_careful) note("attend, exact", distance(attend_by(apr_cuda_attend_exact, a, what), ref.data()), careful_bound, what);
    if (a.n_tokens > APR_CUDA_FEW_TOKENS) return;
    const device_copy<int64_t> position(std::vector<int64_t>(1, a.position));
    apr_attend_args b = a;
    b.position_at = position.device;
    b.position = apr_attend_split_end(a.position) - 1; /* another one, for which the context is split in the same way */
    note("attend, position on the device (bytes that differ)", differing(attend_by(apr_cuda_attend, b, what).data(), got.data(), n_bytes),
         0, what);
    b.work = apr_workspace{NULL, 0, 0};
    note("attend without workspace", distance(attend_by(apr_cuda_attend, b, what), ref.data()), careful_bound, what);
}

static void test_attend(const attend_case &c, apr_dtype dtype)
{
    if (dtype == APR_Q8_0 && (c.head_dim % 32 != 0 || value_dim_of(c) % 32 != 0)) return; /* no such cache */
    const int64_t key_bytes = row_bytes_of(dtype, c.head_dim), value_dim = value_dim_of(c), value_bytes = row_bytes_of(dtype, value_dim);
    const int64_t n_seen = c.position + c.n_tokens;
    const size_t n_keys = (size_t)(c.n_cells * c.n_kv_heads * key_bytes), n_values = (size_t)(c.n_cells * c.n_kv_heads * value_bytes);
    std::vector<uint8_t> host[2] = {std::vector<uint8_t>(n_keys, 0xff), std::vector<uint8_t>(n_values, 0xff)};
    device_copy<uint8_t> keys(n_keys), values(n_values);
    device_copy<uint8_t> *const device[2] = {&keys, &values};
    char what[200];
    snprintf(what, sizeof what,
             "%s, heads %lld on %lld of %lld, %lld tokens at %lld, window %lld, cells %lld, values of %lld%s, chunk %lld, cap %g%s",
             apr_dtypes[dtype].name, (long long)c.n_heads, (long long)c.n_kv_heads, (long long)c.head_dim, (long long)c.n_tokens,
             (long long)c.position, (long long)c.window, (long long)c.n_cells, (long long)value_dim, c.values_in_keys ? " in the keys" : "",
             (long long)c.chunk, (double)c.softcap, c.has_sinks ? ", sinks" : "");

    const int64_t begin = n_seen > c.n_cells ? n_seen - c.n_cells : 0;
    for (int64_t p = begin; p < n_seen; p += 1000) store(c, dtype, p, n_seen - p < 1000 ? n_seen - p : 1000, host, device);
    note("kv store (bytes that differ)",
         differing(keys.get().data(), host[0].data(), n_keys) + differing(values.get().data(), host[1].data(), n_values), 0, what);

    const int64_t n = c.n_tokens * c.n_heads * value_dim;
    std::vector<float> q = normals(c.n_tokens * c.n_heads * c.head_dim), ref((size_t)n), scratch((size_t)(c.head_dim + value_dim));
    const std::vector<float> sinks = normals(c.n_heads);
    const device_copy<float> device_sinks(sinks);
    for (float &x : q) x *= 2.0f;
    apr_op_args args;
    memset(&args, 0, sizeof args);
    apr_attend_args &a = args.attend;
    a.n_tokens = c.n_tokens, a.position = c.position, a.n_heads = c.n_heads, a.n_kv_heads = c.n_kv_heads;
    a.key_dim = c.head_dim, a.value_dim = value_dim, a.window = c.window, a.chunk = c.chunk;
    a.scale = 1.0f / sqrtf((float)c.head_dim), a.softcap = c.softcap;
    a.sinks = c.has_sinks ? sinks.data() : NULL;
    a.q = q.data();
    a.keys = apr_cache{dtype, host[0].data(), c.n_cells, key_bytes};
    a.values = c.values_in_keys ? a.keys : apr_cache{dtype, host[1].data(), c.n_cells, value_bytes};
    a.out = ref.data();
    a.work = apr_workspace{scratch.data(), scratch.size(), 1};
    apr_ref_attend(&args);
    const size_t floats = apr_cuda_attend_bytes(c.n_heads, value_dim) / 4;
    device_copy<float> dq(q), work(floats);
    a.q = dq.device;
    a.sinks = c.has_sinks ? device_sinks.device : NULL;
    a.keys.data = keys.device;
    a.values.data = c.values_in_keys ? keys.device : values.device;
    a.work = apr_workspace{work.device, floats, 1};
    compare(a, ref, what);
}

/* Values that are the first numbers of the keys, one head for all: the cache of latent attention. */
static const attend_case latents[] = {
    {16, 1, 576, 1, 700, 0, 1024, 512, 0, 0, false, true}, {16, 1, 576, 40, 70, 0, 128, 512, 0, 0, false, true},
    {128, 1, 576, 3, 90, 0, 128, 512, 0, 0, false, true},  {20, 1, 576, 1, 0, 0, 64, 512, 0, 0, false, true},
    {20, 1, 576, 1, 161, 70, 90, 512, 0, 0, true, true},   {32, 1, 320, 2, 130, 0, 256, 256, 0, 0, false, true},
    {3, 1, 576, 129, 0, 0, 160, 512, 0, 0, false, true},   {20, 1, 576, 131, 70, 100, 231, 512, 0, 0, true, true},
    {4, 1, 320, 140, 33, 0, 256, 256, 64, 0, false, true}, {2, 1, 544, 130, 5, 0, 256, 480, 0, 0, false, true},
};

static void test_attends(bool quick)
{
    static const attend_case cases[] = {
        {4, 4, 64, 1, 0, 0, 64},        {7, 1, 64, 1, 299, 0, 512},    {14, 2, 64, 3, 5, 0, 64},    {14, 2, 64, 70, 0, 0, 128},
        {28, 4, 128, 1, 1000, 0, 1024}, {28, 4, 128, 40, 77, 0, 256},  {8, 1, 128, 8, 63, 0, 128},  {16, 1, 128, 2, 200, 0, 256},
        {5, 5, 96, 33, 10, 0, 64},      {6, 3, 256, 1, 100, 0, 128},   {6, 3, 256, 21, 30, 0, 64},  {4, 2, 32, 9, 9, 0, 32},
        {8, 2, 128, 1, 700, 100, 1024}, {8, 2, 64, 20, 700, 100, 128}, {8, 2, 128, 5, 250, 64, 70}, {4, 2, 512, 3, 40, 0, 64},
        {2, 1, 1024, 2, 33, 16, 64},
    };
    static const attend_case far[] = {
        {14, 2, 64, 1, 4500, 0, 4608}, {8, 2, 128, 3, 5000, 0, 5120}, {8, 1, 128, 9, 4200, 0, 4352}, {4, 2, 256, 2, 4100, 4000, 4200}};
    static const attend_case kinds[] = {
        /* keys and values of other widths, of 192 and 128 as latent attention has them at a prompt */
        {4, 4, 192, 1, 300, 0, 512, 128},
        {4, 4, 192, 70, 30, 0, 128, 128},
        {6, 2, 64, 33, 5, 0, 64, 96},
        /* sinks, also in a window */
        {8, 2, 64, 1, 500, 0, 512, 0, 0, 0, true},
        {8, 2, 64, 70, 60, 32, 160, 0, 0, 0, true},
        {64, 8, 64, 5, 0, 128, 128, 0, 0, 0, true},
        /* chunks */
        {8, 2, 128, 1, 700, 0, 1024, 0, 256},
        {8, 2, 128, 70, 700, 0, 1024, 0, 64},
        {8, 2, 128, 70, 60, 0, 256, 0, 64},
        /* caps */
        {8, 4, 128, 1, 300, 0, 512, 0, 0, 50.0f},
        {8, 4, 256, 40, 90, 64, 256, 0, 0, 1.0f},
        /* groups of any size, widths between those of the kernels */
        {4, 4, 128, 1, 130, 0, 256},
        {8, 1, 96, 1, 333, 0, 512},
        {16, 1, 64, 1, 600, 0, 640},
        {24, 1, 80, 1, 600, 0, 640},
        {40, 2, 112, 7, 90, 0, 128},
        {14, 2, 72, 8, 1030, 0, 1100},
        {48, 1, 128, 2, 290, 0, 300},
        /* as few cells as there are tokens and more, several times around */
        {8, 2, 64, 1, 40, 0, 41},
        {8, 2, 64, 1, 1000, 33, 35},
        {8, 2, 128, 30, 1000, 40, 71},
        {8, 2, 128, 3, 100000, 700, 703},
        {8, 2, 192, 1, 5, 2, 3, 128},
        {4, 1, 64, 2, 0, 0, 2},
        /* more than the careful can do */
        {7, 1, 128, 150, 0, 0, 256},
        {8, 2, 64, 200, 70, 0, 512},
        {8, 2, 64, 200, 1000, 0, 1234, 0, 0, 30.0f, true},
        {6, 2, 96, 161, 350, 100, 261},
        {4, 4, 192, 140, 30, 0, 170, 128},
        {6, 3, 256, 140, 200, 0, 512, 0, 128},
        {6, 2, 80, 133, 50, 0, 512, 48, 64, 2.0f, true},
        /* everything at once */
        {6, 2, 96, 37, 150, 50, 256, 32, 64, 2.0f, true},
        {6, 2, 96, 2, 150, 50, 256, 32, 64, 2.0f, true, true},
    };
    for (apr_dtype dtype : {APR_F16, APR_F32, APR_Q8_0, APR_F8_E4M3}) {
        for (const attend_case &c : cases) test_attend(c, dtype);
        for (const attend_case &c : kinds) test_attend(c, dtype);
        for (const attend_case &c : latents) test_attend(c, dtype);
        for (const attend_case &c : far)
            if (!quick || dtype == APR_F16) test_attend(c, dtype);
    }
    /* rows that the tiles do not take */
    test_attend(attend_case{6, 2, 42, 11, 50, 0, 64}, APR_F16);
    test_attend(attend_case{6, 2, 42, 2, 50, 20, 64}, APR_F32);
    test_attend(attend_case{4, 2, 80, 33, 50, 0, 128}, APR_F16);
    test_attend(attend_case{8, 2, 64, 20, 150, 0, 256}, APR_BF16);
}

/* --- longer than the host can check: against tiles in float32 --- */

static std::vector<uint16_t> random_halves(int64_t n)
{
    std::vector<uint16_t> x((size_t)n);
    for (uint16_t &h : x) h = apr_f32_to_f16(normal());
    return x;
}

static void test_long(int64_t n_tokens, int64_t position, int64_t n_heads, int64_t n_kv, int64_t dim)
{
    const int64_t cells = position + n_tokens;
    char what[100];
    snprintf(what, sizeof what, "f16, heads %lld on %lld of %lld, %lld tokens at %lld", (long long)n_heads, (long long)n_kv, (long long)dim,
             (long long)n_tokens, (long long)position);
    const device_copy<uint16_t> keys(random_halves(cells * n_kv * dim)), values(random_halves(cells * n_kv * dim));
    const device_copy<float> q(normals(n_tokens * n_heads * dim)), work(apr_cuda_attend_bytes(n_heads, dim) / 4);
    apr_attend_args a;
    memset(&a, 0, sizeof a);
    a.n_tokens = n_tokens, a.position = position, a.n_heads = n_heads, a.n_kv_heads = n_kv, a.key_dim = a.value_dim = dim;
    a.scale = 2.0f / sqrtf((float)dim), a.q = q.device, a.work = apr_workspace{work.device, work.n, 1};
    a.keys = apr_cache{APR_F16, (uint8_t *)keys.device, cells, dim * 2};
    a.values = apr_cache{APR_F16, (uint8_t *)values.device, cells, dim * 2};
    const std::vector<float> ref = attend_by(apr_cuda_attend_tiles, a, what);
    const bool is_careful = n_tokens <= APR_CUDA_CAREFUL_TOKENS;
    note(is_careful ? "attend, long" : "attend, long, one FP16 part", distance(attend_by(apr_cuda_attend, a, what), ref.data()),
         is_careful ? 2 * careful_bound : fast_bound, what);
    if (!is_careful) note("attend, long, exact", distance(attend_by(apr_cuda_attend_exact, a, what), ref.data()), 2 * careful_bound, what);
}

int main(int argc, char **argv)
{
    const modes m = start(argc, argv);
    test_attends(m.quick);
    if (!m.quick) {
        test_long(1, 16383, 28, 4, 128);
        test_long(8, 16376, 28, 4, 128);
        test_long(2048, 0, 28, 4, 128);
        test_long(512, 14336, 14, 2, 64);
    }
    return all_within_bounds(m) ? 0 : 1;
}
