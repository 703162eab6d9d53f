/* gpu_ops.cu - every launcher of kernels/cuda/ops.cuh against kernels/ref on random inputs, and how fast the large ones are.
 *
 * gpu_ops [quick]: prints the worst error of each operation; "quick" leaves the timings out. Exit code 0: all within bounds, 1: not,
 * 77: no device. Outputs begin as NaN, and so does what the cache does not hold yet. */
#include "kernels/cuda/ops.cuh"

extern "C" {
#include "formats/half.h"
#include "kernels/ref/ref_ops.h"
}

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

static int n_failed, n_checks;

static void must(cudaError_t error, const char *what)
{
    if (error == cudaSuccess) return;
    printf("%s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}

/* --- random numbers --- */

static uint64_t seed = 88172645463325252ull;
static uint32_t random_bits(void)
{
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (uint32_t)(seed >> 16);
}
static float uniform(float low, float high) { return low + (high - low) * (float)(random_bits() & 0xffffff) / 16777216.0f; }
static float normal(void) { return (uniform(-1, 1) + uniform(-1, 1) + uniform(-1, 1)) * 1.0f; }
static std::vector<float> normals(int64_t n)
{
    std::vector<float> x((size_t)n);
    for (float &v : x) v = normal();
    return x;
}

/* --- memory: host arrays and their device twins, exact in size but for the rounding that weights are promised --- */

template <typename T> struct twin {
    T *device;
    size_t n;
    explicit twin(size_t count, bool poison = true) : device(NULL), n(count)
    {
        must(cudaMalloc((void **)&device, n > 0 ? n * sizeof(T) : 1), "cudaMalloc");
        if (poison) must(cudaMemset(device, 0xff, n * sizeof(T)), "cudaMemset");
    }
    explicit twin(const std::vector<T> &host) : twin(host.size(), false)
    {
        must(cudaMemcpy(device, host.data(), n * sizeof(T), cudaMemcpyHostToDevice), "upload");
    }
    std::vector<T> get() const
    {
        std::vector<T> host(n);
        must(cudaDeviceSynchronize(), "kernel");
        must(cudaMemcpy(host.data(), device, n * sizeof(T), cudaMemcpyDeviceToHost), "download");
        return host;
    }
    twin(const twin &) = delete;
    ~twin() { cudaFree(device); }
};

/* --- errors --- */

typedef struct worst {
    const char *name;
    double error, bound;
    int64_t n;
} worst;
static worst worsts[32];
static int n_worsts;

static void note(const char *name, double error, double bound, const char *what)
{
    int i = 0;
    while (i < n_worsts && strcmp(worsts[i].name, name) != 0) i++;
    if (i == n_worsts) worsts[n_worsts++] = worst{name, 0, bound, 0};
    worsts[i].n++;
    n_checks++;
    if (!(error <= worsts[i].error)) worsts[i].error = error;
    if (error <= bound) return;
    if (n_failed++ < 40) printf("FAIL %s %s: %g (at most %g)\n", name, what, error, bound);
}

/* |out - ref| / |ref|, as vectors; NaN when one has a NaN. */
static double distance(const std::vector<float> &out, const float *ref)
{
    double difference = 0, norm = 0;
    for (size_t i = 0; i < out.size(); i++) {
        difference += ((double)out[i] - ref[i]) * ((double)out[i] - ref[i]);
        norm += (double)ref[i] * ref[i];
    }
    return norm > 0 ? sqrt(difference / norm) : sqrt(difference);
}

static double differing(const void *a, const void *b, size_t n_bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < n_bytes; i++) n += ((const uint8_t *)a)[i] != ((const uint8_t *)b)[i];
    return (double)n;
}

/* --- weights --- */

static void put_half(uint8_t *p, float low, float high)
{
    const uint16_t bits = apr_f32_to_f16(random_bits() & 1 ? uniform(low, high) : -uniform(low, high));
    memcpy(p, &bits, 2);
}

/* Where a block's halves are; -1: none. */
static void half_fields(apr_dtype dtype, int *a, int *b)
{
    *a = *b = -1;
    switch ((int)dtype) {
    case APR_Q4_1: case APR_Q5_1: case APR_Q4_K: case APR_Q5_K: *a = 0, *b = 2; break;
    case APR_Q4_0: case APR_Q5_0: case APR_Q8_0: case APR_IQ4_NL: case APR_IQ4_XS: case APR_APR_Q4: *a = 0; break;
    case APR_Q2_K: *a = 80, *b = 82; break;
    case APR_Q3_K: *a = 108; break;
    case APR_Q6_K: *a = 208; break;
    case APR_TQ2_0: *a = 64; break;
    default: break;
    }
}

/* Random bytes, with halves and exponents of usual sizes. */
static void random_block(apr_dtype dtype, uint8_t *block)
{
    int a, b;
    for (int i = 0; i < apr_dtypes[dtype].bytes_per_block; i++) block[i] = (uint8_t)random_bits();
    half_fields(dtype, &a, &b);
    if (a >= 0) put_half(block + a, 0.001f, 0.02f);
    if (b >= 0) put_half(block + b, 0.001f, 0.02f);
    const float x = normal() * 0.05f;
    const uint16_t f16 = apr_f32_to_f16(x), bf16 = apr_f32_to_bf16(x);
    if (dtype == APR_F32) memcpy(block, &x, 4);
    if (dtype == APR_F16) memcpy(block, &f16, 2);
    if (dtype == APR_BF16) memcpy(block, &bf16, 2);
    if (dtype == APR_MXFP4) block[0] = (uint8_t)(118 + random_bits() % 8);
    for (int i = 0; i < 4 && dtype == APR_NVFP4; i++) block[i] -= block[i] == 0xff; /* NaN */
    if (dtype == APR_F8_E4M3 && (block[0] & 0x7f) == 0x7f) block[0] ^= 1;
    if (dtype == APR_F8_E5M2) block[0] = apr_f32_to_e5m2(x);
}

typedef struct matrix {
    apr_tensor host, device, host_scale, device_scale;
    std::vector<uint8_t> bytes, scale_bytes;
    twin<uint8_t> *data, *scale_data;
} matrix;

static void set_up(apr_tensor *t, apr_dtype dtype, int64_t rows, int64_t columns)
{
    memset(t, 0, sizeof *t);
    t->name = "test";
    t->dtype = dtype;
    t->rank = 2;
    t->dims[0] = rows;
    t->dims[1] = columns;
}

static std::vector<uint8_t> padded(const std::vector<uint8_t> &bytes)
{
    std::vector<uint8_t> more(bytes);
    more.resize((bytes.size() + 15) / 16 * 16, 0xff);
    return more;
}

/* heads > 0: rows of llama's pairs, pending. scale_rows > 0: factors for blocks of scale_rows x scale_columns; -1: one for all. */
static matrix *new_matrix(apr_dtype dtype, int64_t rows, int64_t columns, int64_t heads, int64_t scale_rows, int64_t scale_columns,
                          apr_dtype scale_dtype)
{
    matrix *const m = new matrix;
    const bool is_flat = dtype == APR_APR_Q4 || dtype == APR_APR_Q8;
    const int64_t elems = apr_dtypes[dtype].elems_per_block, n_bytes = apr_dtypes[dtype].bytes_per_block;
    const int64_t n_blocks = is_flat ? (rows * columns + elems - 1) / elems : rows * (columns / elems);
    const size_t head = dtype == APR_APR_Q8 ? 4 : 0;
    m->bytes.resize(head + (size_t)(n_blocks * n_bytes));
    for (int64_t i = 0; i < n_blocks; i++) random_block(dtype, m->bytes.data() + head + i * n_bytes);
    const float flat_scale = 0.003f;
    if (head) memcpy(m->bytes.data(), &flat_scale, 4);
    set_up(&m->host, dtype, rows, columns);
    m->host.data = m->bytes.data();
    m->host.n_bytes = m->bytes.size();
    if (heads > 0) m->host.pending.kind = APR_STEP_PAIRS_TO_HALVES, m->host.pending.n_heads = heads;
    m->device = m->host;
    m->data = new twin<uint8_t>(padded(m->bytes));
    m->device.data = m->data->device;
    m->scale_data = NULL;
    if (scale_rows != 0) {
        const bool one = scale_rows < 0;
        const int64_t high = one ? 1 : (rows + scale_rows - 1) / scale_rows, wide = one ? 1 : (columns + scale_columns - 1) / scale_columns;
        set_up(&m->host_scale, scale_dtype, high, wide);
        m->scale_bytes.resize((size_t)(high * wide * apr_dtypes[scale_dtype].bytes_per_block));
        for (int64_t i = 0; i < high * wide; i++) {
            const float f = uniform(0.001f, 0.01f);
            apr_ref_codecs[scale_dtype].encode(&f, m->scale_bytes.data() + i * apr_dtypes[scale_dtype].bytes_per_block, 1);
        }
        m->host_scale.data = m->scale_bytes.data();
        m->host_scale.n_bytes = m->scale_bytes.size();
        m->device_scale = m->host_scale;
        m->scale_data = new twin<uint8_t>(padded(m->scale_bytes));
        m->device_scale.data = m->scale_data->device;
        m->host.scale = &m->host_scale;
        m->device.scale = &m->device_scale;
        m->host.scale_rows = m->device.scale_rows = one ? rows : scale_rows;
        m->host.scale_columns = m->device.scale_columns = one ? columns : scale_columns;
    }
    return m;
}

static void free_matrix(matrix *m)
{
    delete m->data;
    delete m->scale_data;
    delete m;
}

/* --- tests of matrices --- */

static void test_decode(const matrix *m, const char *what)
{
    const int64_t rows = m->host.dims[0], columns = m->host.dims[1], first = rows > 3 ? 1 : 0, n = rows - first;
    std::vector<float> ref((size_t)(n * columns));
    apr_decode_rows(&m->host, first, n, ref.data());
    twin<float> f32(ref.size());
    twin<uint16_t> f16(ref.size()), bf16(ref.size());
    must(apr_cuda_decode(&m->device, first, n, APR_F32, f32.device, 0), "decode");
    must(apr_cuda_decode_half(&m->device, first, n, (__half *)f16.device, 0), "decode");
    must(apr_cuda_decode(&m->device, first, n, APR_BF16, bf16.device, 0), "decode");
    const std::vector<float> a = f32.get();
    const std::vector<uint16_t> b = f16.get(), c = bf16.get();
    int64_t n_wrong = 0, n_wrong_small = 0;
    for (size_t i = 0; i < ref.size(); i++) {
        n_wrong += !(a[i] == ref[i]);
        n_wrong_small += b[i] != apr_f32_to_f16(a[i]) || c[i] != apr_f32_to_bf16(a[i]);
    }
    note("decode f32 (values that differ)", (double)n_wrong, 0, what);
    note("decode f16, bf16 (values that differ)", (double)n_wrong_small, 0, what);

    const std::vector<int32_t> ids = {(int32_t)(rows - 1), 0, (int32_t)(rows / 2)};
    std::vector<float> rows_ref(ids.size() * (size_t)columns);
    apr_op_args args;
    args.embed.n_tokens = (int64_t)ids.size();
    args.embed.width = columns;
    args.embed.ids = ids.data();
    args.embed.table = &m->host;
    args.embed.out = rows_ref.data();
    apr_ref_embed(&args);
    twin<int32_t> device_ids(ids);
    twin<float> out(rows_ref.size());
    args.embed.ids = device_ids.device;
    args.embed.table = &m->device;
    args.embed.out = out.device;
    must(apr_cuda_embed(&args.embed, 0), "embed");
    const std::vector<float> got = out.get();
    n_wrong = 0;
    for (size_t i = 0; i < got.size(); i++) n_wrong += !(got[i] == rows_ref[i]);
    note("embed (values that differ)", (double)n_wrong, 0, what);
}

/* Errors relative to the sum of magnitudes of the products: what float32 sums may lose. */
static void test_linear(const matrix *m, int64_t n_tokens, bool with_bias, const char *what)
{
    const int64_t rows = m->host.dims[0], columns = m->host.dims[1];
    std::vector<float> w((size_t)(rows * columns));
    apr_decode_rows(&m->host, 0, rows, w.data());
    const std::vector<float> x = normals(n_tokens * columns), bias = normals(rows);
    twin<float> dx(x), dbias(bias), out((size_t)(n_tokens * rows));
    apr_linear_args a;
    memset(&a, 0, sizeof a);
    a.n_tokens = n_tokens;
    a.n_in = columns;
    a.n_out = rows;
    a.x = dx.device;
    a.weight = &m->device;
    a.bias = with_bias ? dbias.device : NULL;
    a.out = out.device;
    must(apr_cuda_linear_few(&a, 0), what);
    const std::vector<float> got = out.get();
    double most = 0;
    for (int64_t t = 0; t < n_tokens; t++)
        for (int64_t r = 0; r < rows; r++) {
            double sum = with_bias ? bias[(size_t)r] : 0, magnitude = fabs(sum);
            for (int64_t i = 0; i < columns; i++) {
                const double product = (double)x[(size_t)(t * columns + i)] * w[(size_t)(r * columns + i)];
                sum += product;
                magnitude += fabs(product);
            }
            const double error = fabs(got[(size_t)(t * rows + r)] - sum) / (magnitude + 1e-30);
            if (!(error <= most)) most = error;
        }
    note("linear (of the products' magnitude)", most, 3e-6, what);
    for (int run = 0; run < 3; run++) {
        must(cudaMemset(out.device, 0xff, out.n * 4), "memset");
        must(apr_cuda_linear_few(&a, 0), what);
        note("linear again (bytes that differ)", differing(out.get().data(), got.data(), got.size() * 4), 0, what);
    }
}

static void test_matrix(apr_dtype dtype, int64_t rows, int64_t columns, int64_t heads, int64_t scale_rows, int64_t scale_columns,
                        apr_dtype scale_dtype)
{
    static const int64_t tokens[] = {1, 2, 4, 5, 8};
    char what[200];
    snprintf(what, sizeof what, "%s [%lld, %lld], %lld heads, scales %lld x %lld", apr_dtypes[dtype].name, (long long)rows,
             (long long)columns, (long long)heads, (long long)scale_rows, (long long)scale_columns);
    matrix *const m = new_matrix(dtype, rows, columns, heads, scale_rows, scale_columns, scale_dtype);
    test_decode(m, what);
    for (int64_t n : tokens) test_linear(m, n, n % 2 == 1, what);
    free_matrix(m);
}

static void test_matrices(void)
{
    for (int d = 0; d < APR_DTYPE_COUNT; d++) {
        const apr_dtype dtype = (apr_dtype)d;
        if (!apr_cuda_has_kernel(dtype)) continue;
        test_matrix(dtype, 1, 256, 0, 0, 0, APR_F32);
        test_matrix(dtype, 37, 768, 0, 0, 0, APR_F32);
        test_matrix(dtype, 6, 18944 / 256 * 256, 0, 0, 0, APR_F32);
        test_matrix(dtype, 24, 512, 3, 0, 0, APR_F32);
    }
    static const apr_dtype any_length[] = {APR_F32, APR_F16, APR_BF16, APR_F8_E4M3, APR_F8_E5M2, APR_APR_Q4, APR_APR_Q8};
    for (apr_dtype dtype : any_length) {
        test_matrix(dtype, 5, 7, 0, 0, 0, APR_F32);
        test_matrix(dtype, 9, 100, 0, 0, 0, APR_F32);
        test_matrix(dtype, 8, 61, 2, 0, 0, APR_F32);
    }
    static const apr_dtype scale_dtypes[] = {APR_F32, APR_BF16, APR_F16};
    for (apr_dtype scale : scale_dtypes) {
        test_matrix(APR_F8_E4M3, 300, 200, 0, 128, 128, scale);
        test_matrix(APR_F8_E4M3, 130, 257, 0, 128, 128, scale);
        test_matrix(APR_F8_E4M3, 20, 384, 0, 1, 384, scale);
        test_matrix(APR_F8_E4M3, 20, 384, 0, -1, 0, scale);
        test_matrix(APR_F8_E4M3, 20, 99, 0, -1, 0, scale);
        test_matrix(APR_F8_E5M2, 256, 384, 4, 128, 128, scale);
    }
}

/* --- the other operations --- */

static void test_angles_and_rope(void)
{
    static const int64_t positions[] = {0, 5, 4095, 131071, 1000003};
    static const struct { int64_t n_heads, head_dim, n_freqs; } shapes[] = {{4, 64, 32}, {3, 128, 64}, {2, 80, 16}, {1, 6, 3}};
    for (auto s : shapes)
        for (int64_t position : positions) {
            const int64_t n_tokens = 5;
            std::vector<float> freqs((size_t)s.n_freqs), angles((size_t)(n_tokens * 2 * s.n_freqs));
            for (int64_t j = 0; j < s.n_freqs; j++) freqs[(size_t)j] = powf(1e6f, -(float)j / (float)s.n_freqs);
            apr_op_args args;
            args.angles = apr_angles_args{n_tokens, position, s.n_freqs, freqs.data(), 1.25f, angles.data()};
            apr_ref_angles(&args);
            twin<float> df(freqs), dangles(angles.size());
            args.angles.freqs = df.device;
            args.angles.out = dangles.device;
            must(apr_cuda_angles(&args.angles, 0), "angles");
            note("angles", distance(dangles.get(), angles.data()), 2e-7, "");

            const std::vector<float> x = normals(n_tokens * s.n_heads * s.head_dim);
            std::vector<float> ref(x.size());
            args.rope = apr_rope_args{n_tokens, s.n_heads, s.head_dim, s.n_freqs, x.data(), angles.data(), ref.data()};
            apr_ref_rope(&args);
            twin<float> dx(x), out(x.size()), dref(angles);
            args.rope.x = dx.device;
            args.rope.angles = dref.device;
            args.rope.out = out.device;
            must(apr_cuda_rope(&args.rope, 0), "rope");
            note("rope", distance(out.get(), ref.data()), 2e-7, "");
            args.rope.out = dx.device;
            must(apr_cuda_rope(&args.rope, 0), "rope");
            note("rope in place", distance(dx.get(), ref.data()), 2e-7, "");
        }
}

static void test_norm(void)
{
    static const struct { int64_t width, chunk; } shapes[] = {{7, 7}, {896, 896}, {3584, 3584}, {5120, 5120}, {1001, 1001}, {8 * 128, 128}, {14 * 64, 64}, {3 * 80, 80}};
    for (auto s : shapes)
        for (int64_t n_tokens : {1, 13}) {
            const std::vector<float> x = normals(n_tokens * s.width), weight = normals(s.chunk);
            std::vector<float> ref(x.size());
            apr_op_args args;
            args.rmsnorm = apr_rmsnorm_args{n_tokens, s.width, s.chunk, 1e-6f, x.data(), weight.data(), ref.data()};
            apr_ref_rmsnorm(&args);
            twin<float> dx(x), dw(weight), out(x.size());
            args.rmsnorm.x = dx.device;
            args.rmsnorm.weight = dw.device;
            args.rmsnorm.out = out.device;
            must(apr_cuda_rmsnorm(&args.rmsnorm, 0), "rmsnorm");
            note("rmsnorm", distance(out.get(), ref.data()), 1e-6, "");
            args.rmsnorm.out = dx.device;
            must(apr_cuda_rmsnorm(&args.rmsnorm, 0), "rmsnorm");
            note("rmsnorm in place", distance(dx.get(), ref.data()), 1e-6, "");
        }
}

static void test_elementwise(void)
{
    for (int64_t width : {1, 7, 64, 3584})
        for (int64_t n_tokens : {1, 3}) {
            const std::vector<float> a = normals(n_tokens * width), b = normals(n_tokens * width);
            std::vector<float> ref(a.size());
            twin<float> da(a), db(b), out(a.size());
            apr_op_args args;
            args.add = apr_add_args{n_tokens, width, a.data(), b.data(), ref.data()};
            apr_ref_add(&args);
            args.add = apr_add_args{n_tokens, width, da.device, db.device, out.device};
            must(apr_cuda_add(&args.add, 0), "add");
            note("add", distance(out.get(), ref.data()), 0, "");
            args.glu = apr_glu_args{n_tokens, width, a.data(), b.data(), ref.data(), 1};
            apr_ref_glu(&args);
            args.glu = apr_glu_args{n_tokens, width, da.device, db.device, da.device, 1};
            must(apr_cuda_glu(&args.glu, 0), "glu");
            note("glu", distance(da.get(), ref.data()), 3e-7, "");
        }
}

/* --- attention --- */

typedef struct attend_case {
    int64_t n_heads, n_kv_heads, head_dim, n_tokens, position, window, n_cells;
} attend_case;

static int64_t row_bytes_of(apr_dtype dtype, int64_t n) { return n / apr_dtypes[dtype].elems_per_block * apr_dtypes[dtype].bytes_per_block; }

/* Stores the keys and values of `n_tokens` tokens from `position` on, on host and device, and compares the bytes. */
static void store(const attend_case &c, apr_dtype dtype, int64_t position, int64_t n_tokens, std::vector<uint8_t> *host, twin<uint8_t> *const *device)
{
    const int64_t row_bytes = row_bytes_of(dtype, c.head_dim);
    std::vector<float> k = normals(n_tokens * c.n_kv_heads * c.head_dim), v = normals(n_tokens * c.n_kv_heads * c.head_dim);
    if (position == 0) { /* what a block format makes of these is part of the definition */
        k[0] = 1e30f;
        v[1] = -1e-30f;
        v[2] = 0.0f;
        k[0] = dtype == APR_Q8_0 ? NAN : 4.0f;
    }
    apr_op_args args;
    args.kv_store = apr_kv_store_args{position >= 0 ? n_tokens : 0, position, c.n_kv_heads, c.head_dim, k.data(), v.data(),
                                      apr_cache{dtype, host[0].data(), c.n_cells, row_bytes}, apr_cache{dtype, host[1].data(), c.n_cells, row_bytes}};
    apr_ref_kv_store(&args);
    twin<float> dk(k), dv(v);
    args.kv_store.k = dk.device;
    args.kv_store.v = dv.device;
    args.kv_store.keys.data = device[0]->device;
    args.kv_store.values.data = device[1]->device;
    must(apr_cuda_kv_store(&args.kv_store, 0), "kv store");
    must(cudaDeviceSynchronize(), "kv store");
}

static void test_attend(const attend_case &c, apr_dtype dtype)
{
    const int64_t row_bytes = row_bytes_of(dtype, c.head_dim), n_seen = c.position + c.n_tokens;
    const size_t cache_bytes = (size_t)(c.n_cells * c.n_kv_heads * row_bytes);
    std::vector<uint8_t> host[2] = {std::vector<uint8_t>(cache_bytes, 0xff), std::vector<uint8_t>(cache_bytes, 0xff)};
    twin<uint8_t> keys(cache_bytes), values(cache_bytes);
    twin<uint8_t> *const device[2] = {&keys, &values};
    char what[200];
    snprintf(what, sizeof what, "%s, heads %lld on %lld of %lld, %lld tokens at %lld, window %lld, cells %lld", apr_dtypes[dtype].name,
             (long long)c.n_heads, (long long)c.n_kv_heads, (long long)c.head_dim, (long long)c.n_tokens, (long long)c.position,
             (long long)c.window, (long long)c.n_cells);

    const int64_t begin = n_seen > c.n_cells ? n_seen - c.n_cells : 0;
    for (int64_t p = begin; p < n_seen; p += 1000) store(c, dtype, p, n_seen - p < 1000 ? n_seen - p : 1000, host, device);
    note("kv store (bytes that differ)", differing(keys.get().data(), host[0].data(), cache_bytes) + differing(values.get().data(), host[1].data(), cache_bytes), 0, what);

    const int64_t n = c.n_tokens * c.n_heads * c.head_dim;
    std::vector<float> q = normals(n), ref((size_t)n), scratch((size_t)c.head_dim);
    for (float &x : q) x *= 2.0f;
    apr_op_args args;
    memset(&args, 0, sizeof args);
    args.attend = apr_attend_args{c.n_tokens, c.position, c.n_heads, c.n_kv_heads, c.head_dim, c.window, 1.0f / sqrtf((float)c.head_dim), q.data(),
                                  apr_cache{dtype, host[0].data(), c.n_cells, row_bytes}, apr_cache{dtype, host[1].data(), c.n_cells, row_bytes},
                                  ref.data(), apr_workspace{scratch.data(), scratch.size(), 1}};
    apr_ref_attend(&args);
    const size_t floats = apr_cuda_attend_bytes(c.n_heads, c.head_dim) / 4;
    twin<float> dq(q), out((size_t)n), work(floats);
    args.attend.q = dq.device;
    args.attend.keys.data = keys.device;
    args.attend.values.data = values.device;
    args.attend.out = out.device;
    args.attend.work = apr_workspace{work.device, floats, 1};
    must(apr_cuda_attend(&args.attend, 0), what);
    const std::vector<float> got = out.get();
    note("attend", distance(got, ref.data()), 3e-6, what);
    for (int run = 0; run < 3; run++) {
        must(cudaMemset(out.device, 0xff, out.n * 4), "memset");
        must(apr_cuda_attend(&args.attend, 0), what);
        note("attend again (bytes that differ)", differing(out.get().data(), got.data(), got.size() * 4), 0, what);
    }
    must(cudaMemset(out.device, 0xff, out.n * 4), "memset");
    args.attend.work = apr_workspace{NULL, 0, 0};
    must(apr_cuda_attend(&args.attend, 0), what);
    note("attend without workspace", distance(out.get(), ref.data()), 3e-6, what);
}

static void test_attends(bool quick)
{
    static const attend_case cases[] = {
        {4, 4, 64, 1, 0, 0, 64},       {7, 1, 64, 1, 299, 0, 512},    {14, 2, 64, 3, 5, 0, 64},     {14, 2, 64, 70, 0, 0, 128},
        {28, 4, 128, 1, 1000, 0, 1024}, {28, 4, 128, 40, 77, 0, 256},  {8, 1, 128, 8, 63, 0, 128},   {16, 1, 128, 2, 200, 0, 256},
        {5, 5, 96, 33, 10, 0, 64},     {6, 3, 256, 1, 100, 0, 128},   {6, 3, 256, 21, 30, 0, 64},   {4, 2, 32, 9, 9, 0, 32},
        {8, 2, 128, 1, 700, 100, 1024}, {8, 2, 64, 20, 700, 100, 128}, {8, 2, 128, 5, 250, 64, 70},  {4, 2, 512, 3, 40, 0, 64},
        {2, 1, 1024, 2, 33, 16, 64},
    };
    static const attend_case far[] = {{14, 2, 64, 1, 4500, 0, 4608}, {8, 2, 128, 3, 5000, 0, 5120}, {8, 1, 128, 9, 4200, 0, 4352}, {4, 2, 256, 2, 4100, 4000, 4200}};
    for (apr_dtype dtype : {APR_F16, APR_F32, APR_Q8_0}) {
        for (const attend_case &c : cases) test_attend(c, dtype);
        for (const attend_case &c : far)
            if (!quick || dtype == APR_F16) test_attend(c, dtype);
    }
    /* rows that the tiles do not take */
    test_attend(attend_case{6, 2, 42, 11, 50, 0, 64}, APR_F16);
    test_attend(attend_case{6, 2, 42, 2, 50, 20, 64}, APR_F32);
    test_attend(attend_case{4, 2, 80, 33, 50, 0, 128}, APR_F16);
    test_attend(attend_case{8, 2, 128, 2, 150, 0, 256}, APR_F8_E4M3);
    test_attend(attend_case{8, 2, 64, 20, 150, 0, 256}, APR_BF16);
}

/* --- timings --- */

struct timer {
    cudaEvent_t begin, end;
    timer() { cudaEventCreate(&begin), cudaEventCreate(&end), cudaEventRecord(begin); }
    double ms()
    {
        float passed;
        cudaEventRecord(end), must(cudaEventSynchronize(end), "timing"), cudaEventElapsedTime(&passed, begin, end);
        cudaEventDestroy(begin), cudaEventDestroy(end);
        return passed;
    }
};

/* Copies of the weights, in turn, so that they do not come from the L2 cache. */
static void time_linear(apr_dtype dtype, int64_t rows, int64_t columns)
{
    const int64_t row_bytes = row_bytes_of(dtype, columns), one = (rows * row_bytes + 255) / 256 * 256, copies = (600 << 20) / one + 1;
    std::vector<uint8_t> some((size_t)(64 * row_bytes));
    for (size_t i = 0; i < some.size(); i += (size_t)apr_dtypes[dtype].bytes_per_block) random_block(dtype, some.data() + i);
    twin<uint8_t> data((size_t)(one * copies));
    for (int64_t at = 0; at + (int64_t)some.size() <= (int64_t)data.n; at += (int64_t)some.size())
        cudaMemcpyAsync(data.device + at, some.data(), some.size(), cudaMemcpyHostToDevice);
    twin<float> x(normals(8 * columns)), out((size_t)(8 * rows));
    apr_tensor t;
    set_up(&t, dtype, rows, columns);
    t.n_bytes = (uint64_t)(rows * row_bytes);
    for (int64_t n_tokens : {1, 4, 8}) {
        apr_linear_args a;
        memset(&a, 0, sizeof a);
        a.n_tokens = n_tokens, a.n_in = columns, a.n_out = rows, a.x = x.device, a.weight = &t, a.out = out.device;
        double best = 1e30;
        for (int repeat = 0; repeat < 3; repeat++) {
            const int n = 60;
            must(cudaDeviceSynchronize(), "timing");
            timer clock;
            for (int i = 0; i < n; i++) {
                t.data = data.device + i % copies * one;
                must(apr_cuda_linear_few(&a, 0), "linear");
            }
            const double ms = clock.ms() / n;
            if (ms < best) best = ms;
        }
        printf("linear %-7s [%6lld, %6lld] x %lld: %8.2f us %7.0f GB/s\n", apr_dtypes[dtype].name, (long long)rows, (long long)columns,
               (long long)n_tokens, best * 1e3, (double)(rows * row_bytes) / best / 1e6);
    }
    twin<uint16_t> tile((size_t)(rows * columns));
    double best = 1e30;
    for (int repeat = 0; repeat < 3; repeat++) {
        timer clock;
        for (int i = 0; i < 10; i++) {
            t.data = data.device + i % copies * one;
            must(apr_cuda_decode_half(&t, 0, rows, (__half *)tile.device, 0), "decode");
        }
        const double ms = clock.ms() / 10;
        if (ms < best) best = ms;
    }
    printf("decode %-7s [%6lld, %6lld] to f16: %8.2f us %7.0f GB/s read and written\n", apr_dtypes[dtype].name, (long long)rows,
           (long long)columns, best * 1e3, (double)(rows * (row_bytes + 2 * columns)) / best / 1e6);
}

static void time_attend(int64_t n_tokens, int64_t position)
{
    const int64_t n_heads = 28, n_kv = 4, dim = 128, cells = position + n_tokens;
    twin<uint16_t> keys(std::vector<uint16_t>((size_t)(cells * n_kv * dim), 0x3000)), values(std::vector<uint16_t>((size_t)(cells * n_kv * dim), 0x3400));
    twin<float> q(normals(n_tokens * n_heads * dim)), out((size_t)(n_tokens * n_heads * dim)), work(apr_cuda_attend_bytes(n_heads, dim) / 4);
    apr_attend_args a;
    memset(&a, 0, sizeof a);
    a.n_tokens = n_tokens, a.position = position, a.n_heads = n_heads, a.n_kv_heads = n_kv, a.head_dim = dim, a.scale = 0.088f, a.q = q.device;
    a.keys = apr_cache{APR_F16, (uint8_t *)keys.device, cells, dim * 2};
    a.values = apr_cache{APR_F16, (uint8_t *)values.device, cells, dim * 2};
    a.out = out.device;
    a.work = apr_workspace{work.device, work.n, 1};
    double best = 1e30;
    for (int repeat = 0; repeat < 5; repeat++) {
        timer clock;
        for (int i = 0; i < 5; i++) must(apr_cuda_attend(&a, 0), "attend");
        const double ms = clock.ms() / 5;
        if (ms < best) best = ms;
    }
    const double seen = (double)n_tokens * position + 0.5 * n_tokens * (n_tokens + 1);
    printf("attend 28 on 4 heads of 128, %lld tokens at %lld: %9.2f us %6.1f TFLOP/s %7.0f GB/s\n", (long long)n_tokens, (long long)position,
           best * 1e3, seen * n_heads * dim * 4 / best / 1e9, (double)cells * n_kv * dim * 4 / best / 1e6);
}

int main(int argc, char **argv)
{
    int n_devices = 0;
    const bool quick = argc > 1 && strcmp(argv[1], "quick") == 0;
    if (cudaGetDeviceCount(&n_devices) != cudaSuccess || n_devices == 0) {
        printf("skipped: no device\n");
        return 77;
    }
    must(cudaDeviceSetLimit(cudaLimitStackSize, 256), "stack limit");
    test_elementwise();
    test_norm();
    test_angles_and_rope();
    test_matrices();
    test_attends(quick);
    for (int i = 0; i < n_worsts; i++)
        printf("%-40s worst %-10.3g bound %-8.2g %lld checks\n", worsts[i].name, worsts[i].error, worsts[i].bound, (long long)worsts[i].n);
    printf("%d of %d checks failed\n", n_failed, n_checks);
    if (!quick && n_failed == 0) {
        for (apr_dtype dtype : {APR_Q8_0, APR_Q4_K, APR_MXFP4, APR_F16, APR_BF16, APR_Q6_K, APR_Q4_0, APR_F8_E4M3, APR_Q5_K, APR_NVFP4, APR_F32}) {
            time_linear(dtype, 18944, 3584);
            time_linear(dtype, 3584, 18944 / 256 * 256);
        }
        for (int64_t position : {100, 1000, 4096, 32768}) time_attend(1, position);
        time_attend(8, 4096);
        time_attend(512, 0);
        time_attend(2048, 0);
    }
    return n_failed != 0;
}
