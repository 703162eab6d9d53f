/* gpu_matrices.cu - what reads packed weights (decoding, embedding, products of few tokens) against kernels/ref, and how fast it is.
 *
 * gpu_matrices [quick|times]: prints the worst error of each operation; "quick" leaves the timings out, "times" the tests. Exit code 0: all
 * within bounds, 1: not, 77: no device. Outputs begin as NaN. */
#include "tests/gpu/gpu_weights.cuh"

/* --- tests of matrices --- */

static void test_decode_rows(const matrix *m, int64_t first, int64_t n, const char *what)
{
    const int64_t columns = apr_tensor_columns(&m->host);
    std::vector<float> ref((size_t)(n * columns));
    apr_decode_rows(&m->host, first, n, ref.data());
    device_copy<float> f32(ref.size());
    device_copy<uint16_t> f16(ref.size()), bf16(ref.size());
    must(apr_cuda_decode(&m->device, first, n, APR_F32, f32.device, 0), "decode");
    must(apr_cuda_decode_to_half(&m->device, first, n, (__half *)f16.device, 0), "decode");
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
}

static void test_decode(const matrix *m, const char *what)
{
    const int64_t rows = m->host.dims[0], columns = m->host.dims[1], first = rows > 3 ? 1 : 0;
    int64_t n_wrong = 0;
    test_decode_rows(m, first, rows - first, what);
    const std::vector<int32_t> ids = {(int32_t)(rows - 1), 0, (int32_t)(rows / 2)};
    std::vector<float> rows_ref(ids.size() * (size_t)columns);
    apr_op_args args;
    args.embed.n_tokens = (int64_t)ids.size();
    args.embed.width = columns;
    args.embed.ids = ids.data();
    args.embed.table = &m->host;
    args.embed.out = rows_ref.data();
    apr_ref_embed(&args);
    device_copy<int32_t> device_ids(ids);
    device_copy<float> out(rows_ref.size());
    args.embed.ids = device_ids.device;
    args.embed.table = &m->device;
    args.embed.out = out.device;
    must(apr_cuda_embed(&args.embed, 0), "embed");
    const std::vector<float> got = out.get();
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
    device_copy<float> dx(x), dbias(bias), out((size_t)(n_tokens * rows));
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

/* What is meant, in double: rows first and on of each head's share, transposed or not; and the magnitude of its products. */
static void sum_of_heads(const apr_linear_args *a, const float *x, const float *w, std::vector<double> *sums,
                         std::vector<double> *magnitudes)
{
    const int64_t columns = a->heads.transposed ? a->n_out : a->n_in;
    for (int64_t pair = 0; pair < a->n_tokens * a->heads.n; pair++)
        for (int64_t o = 0; o < a->n_out; o++)
            for (int64_t i = 0; i < a->n_in; i++) {
                const int64_t row = apr_linear_first_row(a, pair % a->heads.n) + (a->heads.transposed ? i : o);
                const double product = (double)x[pair * a->n_in + i] * w[row * columns + (a->heads.transposed ? o : i)];
                (*sums)[(size_t)(pair * a->n_out + o)] += product;
                (*magnitudes)[(size_t)(pair * a->n_out + o)] += fabs(product);
            }
}

static void test_heads_of(const matrix *m, const apr_linear_heads &heads, int64_t n_tokens, int64_t n_rows, const char *what)
{
    const int64_t columns = m->host.dims[1];
    apr_linear_args a;
    memset(&a, 0, sizeof a);
    a.n_tokens = n_tokens;
    a.n_in = heads.transposed ? n_rows : columns;
    a.n_out = heads.transposed ? columns : n_rows;
    a.heads = heads;
    a.weight = &m->device;
    std::vector<float> w((size_t)(m->host.dims[0] * columns));
    apr_decode_rows(&m->host, 0, m->host.dims[0], w.data());
    const std::vector<float> x = normals(n_tokens * heads.n * a.n_in);
    device_copy<float> dx(x), out((size_t)(n_tokens * heads.n * a.n_out));
    a.x = dx.device;
    a.out = out.device;
    must(apr_cuda_linear_heads_few(&a, 0), what);
    const std::vector<float> got = out.get();
    std::vector<double> sums(got.size()), magnitudes(got.size());
    sum_of_heads(&a, x.data(), w.data(), &sums, &magnitudes);
    double most = 0;
    for (size_t i = 0; i < got.size(); i++) {
        const double error = fabs(got[i] - sums[i]) / (magnitudes[i] + 1e-30);
        if (!(error <= most)) most = error;
    }
    note(heads.transposed ? "linear of heads, transposed" : "linear of heads", most, 5e-6, what);
}

/* Rows 0 to 39 of each head one way, 40 to 63 the other. */
static void test_heads(apr_dtype dtype, int64_t columns)
{
    char what[100];
    for (int64_t n_heads : {1, 3, 16}) {
        matrix *const m = new_matrix(dtype, n_heads * 64, columns, 0, 0, 0, APR_F32);
        for (int64_t n_tokens : {1, 5}) {
            snprintf(what, sizeof what, "%s, %lld heads, %lld columns, %lld tokens", apr_dtypes[dtype].name, (long long)n_heads,
                     (long long)columns, (long long)n_tokens);
            test_heads_of(m, apr_linear_heads{n_heads, 64, 0, true}, n_tokens, 40, what);
            /* where the inputs go along columns, a head's rows begin anywhere; where blocks are read, everything is whole */
            test_heads_of(m, apr_linear_heads{n_heads, 64, 40, false}, n_tokens, 24, what);
        }
        free_matrix(m);
    }
}

/* Matrices one after another, each with its own blocks of factors, the last of which are not whole: 150 rows in blocks of 128. */
static void test_stack(apr_dtype scale_dtype)
{
    matrix *const m = new_matrix(APR_F8_E4M3, 3 * 150, 200, 0, 75, 128, scale_dtype); /* as many factors */
    for (apr_tensor *t : {&m->host, &m->device}) t->rank = 3, t->dims[0] = 3, t->dims[1] = 150, t->dims[2] = 200, t->scale_rows = 128;
    for (apr_tensor *t : {&m->host_scale, &m->device_scale}) t->rank = 3, t->dims[0] = 3, t->dims[1] = t->dims[2] = 2;
    for (int64_t first : {0, 1, 149, 151, 300}) test_decode_rows(m, first, 450 - first, "a stack of f8_e4m3");
    free_matrix(m);
}

/* Several blocks of threads, the last not full. */
static void test_long_decode(apr_dtype dtype)
{
    matrix *const m = new_matrix(dtype, 2053, 256, 0, 0, 0, APR_F32);
    test_decode(m, apr_dtypes[dtype].name);
    free_matrix(m);
}

static void test_matrices(void)
{
    for (int d = 0; d < APR_DTYPE_COUNT; d++) {
        const apr_dtype dtype = (apr_dtype)d;
        if (!apr_cuda_has_kernel(dtype)) continue;
        test_matrix(dtype, 1, 256, 0, 0, 0, APR_F32);
        test_matrix(dtype, 37, 768, 0, 0, 0, APR_F32);
        test_long_decode(dtype);
        test_matrix(dtype, 6, 18944 / 256 * 256, 0, 0, 0, APR_F32);
        test_matrix(dtype, 24, 512, 3, 0, 0, APR_F32);
        test_heads(dtype, 512);
    }
    static const apr_dtype any_length[] = {APR_F32, APR_F16, APR_BF16, APR_F8_E4M3, APR_F8_E5M2, APR_APR_Q4, APR_APR_Q8};
    for (apr_dtype dtype : any_length) {
        test_matrix(dtype, 5, 7, 0, 0, 0, APR_F32);
        test_matrix(dtype, 9, 100, 0, 0, 0, APR_F32);
        test_matrix(dtype, 8, 61, 2, 0, 0, APR_F32);
        test_heads(dtype, 33);
    }
    static const apr_dtype scale_dtypes[] = {APR_F32, APR_BF16, APR_F16, APR_E8M0};
    for (apr_dtype scale : scale_dtypes) {
        test_stack(scale);
        test_matrix(APR_F8_E4M3, 300, 200, 0, 128, 128, scale);
        test_matrix(APR_F8_E4M3, 130, 257, 0, 128, 128, scale);
        test_matrix(APR_F8_E4M3, 20, 384, 0, 1, 384, scale);
        test_matrix(APR_F8_E4M3, 40, 160, 0, 1, 32, scale);
        test_matrix(APR_F8_E4M3, 20, 384, 0, -1, 0, scale);
        test_matrix(APR_F8_E4M3, 20, 99, 0, -1, 0, scale);
        test_matrix(APR_F8_E5M2, 256, 384, 4, 128, 128, scale);
    }
}

/* --- timings --- */

/* Copies of the weights, in turn, so that they do not come from the L2 cache. */
static void time_linear(apr_dtype dtype, int64_t rows, int64_t columns)
{
    const int64_t row_bytes = row_bytes_of(dtype, columns), one = (rows * row_bytes + 255) / 256 * 256, copies = (600 << 20) / one + 1;
    std::vector<uint8_t> some((size_t)(64 * row_bytes));
    for (size_t i = 0; i < some.size(); i += (size_t)apr_dtypes[dtype].bytes_per_block) random_block(dtype, some.data() + i);
    device_copy<uint8_t> data((size_t)(one * copies));
    for (int64_t at = 0; at + (int64_t)some.size() <= (int64_t)data.n; at += (int64_t)some.size())
        cudaMemcpyAsync(data.device + at, some.data(), some.size(), cudaMemcpyHostToDevice);
    device_copy<float> x(normals(8 * columns)), out((size_t)(8 * rows));
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
    device_copy<uint16_t> tile((size_t)(rows * columns));
    double best = 1e30;
    for (int repeat = 0; repeat < 3; repeat++) {
        timer clock;
        for (int i = 0; i < 10; i++) {
            t.data = data.device + i % copies * one;
            must(apr_cuda_decode_to_half(&t, 0, rows, (__half *)tile.device, 0), "decode");
        }
        const double ms = clock.ms() / 10;
        if (ms < best) best = ms;
    }
    printf("decode %-7s [%6lld, %6lld] to f16: %8.2f us %7.0f GB/s read and written\n", apr_dtypes[dtype].name, (long long)rows,
           (long long)columns, best * 1e3, (double)(rows * (row_bytes + 2 * columns)) / best / 1e6);
}

int main(int argc, char **argv)
{
    const modes m = start(argc, argv);
    if (m.tests) test_matrices();
    if (!all_within_bounds(m)) return 1;
    if (!m.times) return 0;
    for (apr_dtype dtype :
         {APR_Q8_0, APR_Q4_K, APR_MXFP4, APR_F16, APR_BF16, APR_Q6_K, APR_Q4_0, APR_F8_E4M3, APR_Q5_K, APR_NVFP4, APR_F32}) {
        time_linear(dtype, 18944, 3584);
        time_linear(dtype, 3584, 18944 / 256 * 256);
    }
    return 0;
}
