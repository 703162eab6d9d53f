/* gpu_bench_decode_gemv.cu - how fast the products of a single token are: of each type and each matrix of a layer, and of a whole token.
 *
 * gpu_bench_decode_gemv [TYPE ...]: for shapes of three models, all layers' products of one role in one CUDA graph, each following the one
 * before, weights of every layer at another place: microseconds a product; GB/s of weights; their share of what a kernel reads that does
 * nothing else; what more a product takes than its bytes at that rate; and how much longer the busiest multiprocessor is busy than the
 * average one, since units are whole. It checks nothing. Exit code 77: no device. */
#include "kernels/cuda/gemv/decode_gemv.cuh"
#include "tests/gpu/gpu_weights.cuh"

#include <algorithm>

enum { READ_THREADS = 512, MOST_USED = 8 };

static int n_multiprocessors;
static size_t memory_bytes;
static double read_rate; /* bytes a second */

struct shape {
    const char *name;
    int64_t hidden, qkv, heads, inner, vocabulary; /* heads: the numbers that attention gives */
    int layers;
    int64_t n_experts, n_used; /* inner is one expert's; 0: none */
};

static const shape shapes[] = {{"7B", 3584, 4608, 3584, 18944, 152064, 28, 0, 0},
                               {"32B", 5120, 7168, 5120, 27648, 152064, 64, 0, 0},
                               {"30B-A3B", 2048, 5120, 4096, 768, 151936, 48, 128, 8}};
static const apr_dtype types[] = {APR_Q4_K, APR_MXFP4, APR_Q6_K, APR_Q8_0, APR_F16};

enum role { QKV, O, GATE_UP, DOWN, HEAD, ROLES };
static const char *const role_names[ROLES] = {"qkv", "o", "gate and up", "down", "head"};

/* --- reading --- */

static __global__ void __launch_bounds__(READ_THREADS) k_read(const uint4 *data, size_t n, uint32_t *sink)
{
    uint32_t any = 0;
    for (size_t i = (size_t)blockIdx.x * READ_THREADS + threadIdx.x; i < n; i += (size_t)gridDim.x * READ_THREADS) {
        const uint4 v = __ldcs(data + i);
        any |= v.x | v.y | v.z | v.w;
    }
    if (any != 0) *sink = any; /* never: all are 0 */
}

static void measure_reading(void)
{
    const size_t n_bytes = (size_t)2 << 30;
    device_copy<uint8_t> data(n_bytes, false);
    device_copy<uint32_t> sink(1);
    must(cudaMemset(data.device, 0, n_bytes), "clear");
    const double us = graph_us([&](cudaStream_t stream) {
        k_read<<<(unsigned)n_multiprocessors * 4, READ_THREADS, 0, stream>>>((const uint4 *)data.device, n_bytes / 16, sink.device);
    });
    read_rate = (double)n_bytes / us * 1e6;
    printf("%d multiprocessors; a kernel that reads 2 GiB: %.2f TB/s\n", n_multiprocessors, read_rate * 1e-12);
}

/* --- a token's products --- */

struct chain {
    shape s;
    apr_dtype dtype;
    size_t layer_bytes, head_bytes, role_bytes[ROLES]; /* read of one layer */
    uint8_t *weights, *xa, *xb, *xc, *act;
    float *h, *qkv, *gain, *logits, *squares_a, *squares_b, *routes, *work;
    size_t work_floats;
    std::vector<apr_tensor *> tensors;

    static size_t bytes_of(apr_dtype type, int64_t rows, int64_t columns) { return (size_t)rows * (size_t)row_bytes_of(type, columns); }

    static size_t total_bytes(apr_dtype type, const shape &s)
    {
        const int64_t n = s.n_experts > 0 ? s.n_experts : 1;
        return (size_t)s.layers * (bytes_of(type, s.qkv, s.hidden) + bytes_of(type, s.hidden, s.heads) +
                                   (size_t)n * (bytes_of(type, 2 * s.inner, s.hidden) + bytes_of(type, s.hidden, s.inner))) +
               bytes_of(type, s.vocabulary, s.hidden);
    }

    chain(apr_dtype type, const shape &sh) : s(sh), dtype(type)
    {
        const size_t n_used = (size_t)(s.n_experts > 0 ? s.n_used : 1), total = total_bytes(type, s);
        head_bytes = bytes_of(type, s.vocabulary, s.hidden);
        layer_bytes = (total - head_bytes) / (size_t)s.layers;
        role_bytes[QKV] = bytes_of(type, s.qkv, s.hidden);
        role_bytes[O] = bytes_of(type, s.hidden, s.heads);
        role_bytes[GATE_UP] = n_used * bytes_of(type, 2 * s.inner, s.hidden);
        role_bytes[DOWN] = n_used * bytes_of(type, s.hidden, s.inner);
        role_bytes[HEAD] = head_bytes;
        must(cudaMalloc((void **)&weights, total + 256), "weights");
        const matrix *const m = new_matrix(type, 1024, 2048, 0, 0, 0, APR_F32); /* the same blocks again and again */
        for (size_t at = 0; at < total; at += m->bytes.size())
            must(cudaMemcpyAsync(weights + at, m->device.data, std::min(m->bytes.size(), total - at), cudaMemcpyDeviceToDevice), "fill");
        must(cudaDeviceSynchronize(), "fill");
        const int64_t widest = std::max({s.inner, s.heads, s.hidden});
        for (uint8_t **p : {&xa, &xb, &xc, &act})
            must(cudaMalloc((void **)p, (size_t)apr_activations_i16_bytes(widest)), "activations"),
                must(cudaMemset(*p, 0, (size_t)apr_activations_i16_bytes(widest)), "clear");
        for (float **p : {&h, &qkv, &gain, &logits, &squares_a, &squares_b, &routes})
            must(cudaMalloc((void **)p, (size_t)s.vocabulary * 4), "vectors"), must(cudaMemset(*p, 0, (size_t)s.vocabulary * 4), "clear");
        work_floats = apr_cuda_experts_bytes(1, s.hidden, s.inner, s.hidden, MOST_USED) / 4;
        must(cudaMalloc((void **)&work, work_floats * 4), "workspace");
        std::vector<float> choice;
        for (int k = 0; k < 2 * MOST_USED + 1; k++) choice.push_back(k < MOST_USED ? (float)(k * 15) : 0.125f);
        must(cudaMemcpy(routes, choice.data(), choice.size() * 4, cudaMemcpyHostToDevice), "routes");
        delete m->data;
    }
    ~chain()
    {
        for (void *p : {(void *)weights, (void *)xa, (void *)xb, (void *)xc, (void *)act, (void *)h, (void *)qkv, (void *)gain,
                        (void *)logits, (void *)squares_a, (void *)squares_b, (void *)routes, (void *)work})
            cudaFree(p);
        for (apr_tensor *t : tensors) delete t;
    }
    apr_tensor *matrix_at(const uint8_t *data, int64_t rows, int64_t columns)
    {
        apr_tensor *const t = new apr_tensor;
        set_up(t, dtype, rows, columns);
        t->data = data;
        t->tiled = apr_tile_columns(dtype) > 0;
        tensors.push_back(t);
        return t;
    }
    apr_decode_gemv_args product_of(const uint8_t *w, apr_epilogue epilogue, int64_t rows, int64_t n_in, const uint8_t *x,
                                    const float *squares, float *out)
    {
        apr_decode_gemv_args a = {};
        a.epilogue = epilogue, a.n_parts = epilogue == APR_EPILOGUE_GLU ? 2 : 1, a.n_in = n_in, a.activations = x;
        a.squares = squares, a.eps = 1e-6f;
        a.parts[0] = apr_decode_gemv_part{matrix_at(w, rows, n_in), NULL, out};
        a.parts[1] = apr_decode_gemv_part{matrix_at(w + bytes_of(dtype, rows, n_in), rows, n_in), NULL, NULL};
        a.glu.activation = APR_ACT_SILU;
        return a;
    }
    void add(apr_decode_gemv_args a, const float *residual, uint8_t *activations, float *squares, cudaStream_t stream)
    {
        a.residual = residual, a.gain = gain, a.activations_out = activations, a.out_squares = squares;
        must(apr_cuda_decode_gemv(&a, n_multiprocessors, stream), "decode GEMV");
    }
    /* All experts' gates, then their ups, then their downs. */
    void choose(const uint8_t *w, cudaStream_t stream)
    {
        const size_t each = bytes_of(dtype, s.inner, s.hidden) * (size_t)s.n_experts;
        apr_experts_args a;
        memset(&a, 0, sizeof a);
        a.n_tokens = 1, a.n_in = a.n_out = s.hidden, a.n_mid = s.inner, a.n_experts = s.n_experts, a.n_used = s.n_used;
        a.glu.activation = APR_ACT_SILU, a.x = qkv, a.routes = routes, a.out = logits;
        a.gate = matrix_at(w, s.inner, s.hidden), a.up = matrix_at(w + each, s.inner, s.hidden);
        a.down = matrix_at(w + 2 * each, s.hidden, s.inner);
        a.work = apr_workspace{work, work_floats, 1};
        apr_decode_gemv_args gemv = {};
        gemv.epilogue = APR_EPILOGUE_ADD, gemv.n_parts = 1, gemv.n_in = s.hidden, gemv.activations = xc, gemv.squares = squares_a,
        gemv.eps = 1e-6f;
        gemv.parts[0].out = h, gemv.residual = h, gemv.gain = gain, gemv.activations_out = xa, gemv.out_squares = squares_b;
        must(apr_cuda_decode_gemv_experts(&a, &gemv, n_multiprocessors, stream), "experts");
    }
    void enqueue(int roles, cudaStream_t stream)
    {
        for (int i = 0; i < s.layers; i++) {
            const uint8_t *w = weights + layer_bytes * (size_t)i;
            if (roles & 1 << QKV) {
                const apr_decode_gemv_args a = product_of(w, APR_EPILOGUE_STORE, s.qkv, s.hidden, xa, squares_b, qkv);
                must(apr_cuda_decode_gemv(&a, n_multiprocessors, stream), "decode GEMV");
            }
            w += role_bytes[QKV];
            if (roles & 1 << O) add(product_of(w, APR_EPILOGUE_ADD, s.hidden, s.heads, xb, NULL, h), h, xc, squares_a, stream);
            w += role_bytes[O];
            if (s.n_experts > 0) {
                if (roles & 1 << GATE_UP) choose(w, stream);
                continue;
            }
            if (roles & 1 << GATE_UP) {
                apr_decode_gemv_args a = product_of(w, APR_EPILOGUE_GLU, s.inner, s.hidden, xc, squares_a, NULL);
                a.activations_out = act;
                must(apr_cuda_decode_gemv(&a, n_multiprocessors, stream), "decode GEMV");
            }
            w += role_bytes[GATE_UP];
            if (roles & 1 << DOWN) add(product_of(w, APR_EPILOGUE_ADD, s.hidden, s.inner, act, NULL, h), h, xa, squares_b, stream);
        }
        if ((roles & 1 << HEAD) == 0) return;
        const apr_decode_gemv_args a =
            product_of(weights + layer_bytes * (size_t)s.layers, APR_EPILOGUE_STORE, s.vocabulary, s.hidden, xa, squares_b, logits);
        must(apr_cuda_decode_gemv(&a, n_multiprocessors, stream), "decode GEMV");
    }
    /* Units of a role's kernel, whole for each multiprocessor. */
    double imbalance(int role) const
    {
        const int64_t rows = role == QKV       ? s.qkv
                             : role == HEAD    ? s.vocabulary
                             : role == GATE_UP ? s.inner * (s.n_experts > 0 ? s.n_used : 1)
                                               : s.hidden;
        const int64_t n_units = rows / APR_ROW_GROUP, most = (n_units + n_multiprocessors - 1) / n_multiprocessors;
        return (double)(most * n_multiprocessors) / (double)n_units - 1;
    }
};

static void line(const char *shape_name, apr_dtype dtype, const char *role, double us, double bytes, double imbalance)
{
    printf("%-8s %-6s %-12s %9.2f us %6.0f GB/s %5.1f %% of reading, %6.2f us more", shape_name, apr_dtypes[dtype].name, role, us,
           bytes / us * 1e-3, 100 * bytes / us * 1e6 / read_rate, us - bytes / read_rate * 1e6);
    if (imbalance >= 0) printf("; busiest %+.0f %%\n", 100 * imbalance);
}

static void run_chain(apr_dtype dtype, const shape &s)
{
    if (chain::total_bytes(dtype, s) > memory_bytes / 2) return; /* also what other programs need */
    chain c(dtype, s);
    const bool has_experts = s.n_experts > 0;
    double all = 0;
    for (int role = 0; role < ROLES; role++) {
        if (has_experts && role == DOWN) continue;
        const double n = role == HEAD ? 1 : s.layers, us = graph_us([&](cudaStream_t stream) { c.enqueue(1 << role, stream); }) / n;
        const double bytes = (double)(c.role_bytes[role] + (has_experts && role == GATE_UP ? c.role_bytes[DOWN] : 0));
        line(s.name, dtype, has_experts && role == GATE_UP ? "experts" : role_names[role], us, bytes, c.imbalance(role));
        all += n * bytes;
    }
    const double us = graph_us([&](cudaStream_t stream) { c.enqueue((1 << ROLES) - 1, stream); });
    line(s.name, dtype, "all", us, all, -1);
    printf(" = %.0f tokens/s of products alone (%.0f at the rate of reading)\n", 1e6 / us, read_rate / all);
}

static bool is_wanted(int argc, char **argv, apr_dtype dtype)
{
    bool any = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], apr_dtypes[dtype].name) == 0) return true;
        any |= strcmp(argv[i], "times") != 0;
    }
    return !any;
}

int main(int argc, char **argv)
{
    const modes m = start(argc, argv);
    cudaDeviceProp properties;
    size_t n_free;
    must(cudaGetDeviceProperties(&properties, 0), "device");
    must(cudaMemGetInfo(&n_free, &memory_bytes), "memory");
    n_multiprocessors = properties.multiProcessorCount;
    if (m.quick || properties.major < APR_DECODE_GEMV_CAPABILITY) return 0; /* nothing to check */
    measure_reading();
    for (const shape &s : shapes)
        for (apr_dtype dtype : types)
            if (is_wanted(argc, argv, dtype) && apr_has_decode_gemv(dtype, s.hidden, s.heads, properties.major) &&
                apr_has_decode_gemv(dtype, s.hidden, s.inner, properties.major) && (s.n_experts == 0 || dtype != APR_F16))
                run_chain(dtype, s);
    return 0;
}
