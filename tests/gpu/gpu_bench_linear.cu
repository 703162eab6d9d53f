/* gpu_bench_linear.cu - linear layers of many tokens with the shapes of a 7B model: how fast their parts are, and that they are right.
 *
 * gpu_bench_linear [quick|times|ways]: for each type, shape and number of tokens the milliseconds of decoding the weights to FP16 (and its
 * rate as a share of what a copy on the device reads and writes), of the product alone (and its rate as a share of that of a square
 * product), of the inputs' way to FP16, of the pass over the outputs, and of the whole layer as run() makes it. Medians; weights in
 * turn, so that none comes from the L2 cache. First the layer's outputs are compared with those of a few tokens at a time; "quick" leaves
 * the timings out, "times" the comparison; "ways" times nothing but each way that cuBLASLt proposes for the products of 7B and 32B. Exit
 * code 0: all within bounds, 1: not, 77: no device. */
#include "kernels/cuda/gemm/activations_f16.cuh"
#include "kernels/cuda/gemm/blaslt.cuh"
#include "tests/gpu/gpu_weights.cuh"

#include <algorithm>

extern "C" const apr_cuda_api *apr_cuda_plugin(uint64_t abi);

enum { BLAS_BYTES = 32 << 20, N_TIMES = 7, COLD_BYTES = 300 << 20 };

static const struct {
    const char *role;
    int64_t n_out, n_in;
} shapes[] = {{"o", 3584, 3584}, {"qkv", 4608, 3584}, {"gate+up", 37888, 3584}, {"down", 3584, 18944}};
static const apr_dtype dtypes[] = {APR_F16, APR_Q8_0, APR_Q4_K, APR_Q6_K, APR_MXFP4};

static const apr_cuda_api *cuda;
static apr_cuda_device *device;
static double copy_rate, product_rate; /* bytes and operations a second, the best that was seen */

static void must_be(apr_status status, const apr_error *err)
{
    if (status == APR_OK) return;
    printf("%s\n", err->text);
    exit(1);
}

/* Milliseconds: the median of N_TIMES, after one that is not counted. */
template <typename WORK> static double median_ms(WORK work)
{
    std::vector<double> ms;
    for (int i = 0; i <= N_TIMES; i++) {
        cudaEvent_t begin, end;
        float passed;
        must(cudaEventCreate(&begin), "timing");
        must(cudaEventCreate(&end), "timing");
        must(cudaEventRecord(begin, device->stream), "timing");
        work(i);
        must(cudaEventRecord(end, device->stream), "timing");
        must(cudaEventSynchronize(end), "timing");
        must(cudaEventElapsedTime(&passed, begin, end), "timing");
        if (i > 0) ms.push_back(passed);
        cudaEventDestroy(begin);
        cudaEventDestroy(end);
    }
    std::sort(ms.begin(), ms.end());
    return ms[ms.size() / 2];
}

/* --- a layer of random weights and inputs --- */

typedef struct layer {
    int64_t n_out, n_in, n_tokens, one, n_copies; /* bytes of a copy of the weights, padded */
    device_copy<uint8_t> *data, *work;
    device_copy<float> *x, *out;
    apr_tensor weight;
} layer;

static layer new_layer(apr_dtype dtype, int64_t n_out, int64_t n_in, int64_t n_tokens)
{
    const int64_t row_bytes = row_bytes_of(dtype, n_in), some_rows = 64;
    std::vector<uint8_t> some((size_t)(some_rows * row_bytes));
    layer l = {};

    for (size_t i = 0; i < some.size(); i += (size_t)apr_dtypes[dtype].bytes_per_block) random_block(dtype, some.data() + i);
    l.n_out = n_out, l.n_in = n_in, l.n_tokens = n_tokens;
    l.one = (n_out * row_bytes + 255) / 256 * 256;
    l.n_copies = COLD_BYTES / l.one + 2;
    l.data = new device_copy<uint8_t>((size_t)(l.one * l.n_copies));
    for (int64_t at = 0; at + (int64_t)some.size() <= (int64_t)l.data->n; at += (int64_t)some.size())
        must(cudaMemcpyAsync(l.data->device + at, some.data(), some.size(), cudaMemcpyHostToDevice), "upload");
    std::vector<float> x = normals(n_tokens * n_in);
    l.x = new device_copy<float>(x);
    l.out = new device_copy<float>((size_t)(n_tokens * n_out));
    l.work = new device_copy<uint8_t>(apr_cuda_linear_bytes(n_tokens, n_in, n_out, dtype == APR_F16));
    set_up(&l.weight, dtype, n_out, n_in);
    l.weight.n_bytes = (uint64_t)(n_out * row_bytes);
    l.weight.data = l.data->device;
    must(cudaDeviceSynchronize(), "upload");
    return l;
}

static void free_layer(layer *l)
{
    delete l->data;
    delete l->work;
    delete l->x;
    delete l->out;
}

static apr_op_args args_of(const layer *l)
{
    apr_op_args args;
    memset(&args, 0, sizeof args);
    args.linear.n_tokens = l->n_tokens;
    args.linear.n_in = l->n_in;
    args.linear.n_out = l->n_out;
    args.linear.x = l->x->device;
    args.linear.weight = &l->weight;
    args.linear.out = l->out->device;
    args.linear.work.data = (float *)l->work->device;
    args.linear.work.slice = l->work->n / sizeof(float);
    args.linear.work.n_threads = 1;
    return args;
}

static void run(const apr_op_args *args)
{
    apr_error err = {};
    must_be(cuda->run(device, APR_OP_LINEAR, args, &err), &err);
}

/* --- is it right? --- */

/* The first tokens' outputs against those made without FP16 inputs, by the largest output of a token. */
static void check_layer(const layer *l, const char *what)
{
    const apr_op_args args = args_of(l);
    apr_op_args few = args;
    apr_error err = {};
    double most = 0;

    run(&args);
    must_be(cuda->check(device, what, &err), &err);
    const std::vector<float> many = l->out->get();
    few.linear.n_tokens = APR_CUDA_FEW_TOKENS;
    run(&few);
    must_be(cuda->check(device, what, &err), &err);
    const std::vector<float> right = l->out->get();
    for (int64_t t = 0; t < APR_CUDA_FEW_TOKENS; t++) {
        double largest = 0, off = 0;
        for (int64_t r = t * l->n_out; r < (t + 1) * l->n_out; r++) {
            largest = fmax(largest, fabs(right[(size_t)r]));
            off = fmax(off, fabs((double)many[(size_t)r] - right[(size_t)r]));
            if (!isfinite(many[(size_t)r])) off = INFINITY;
        }
        most = fmax(most, off / largest);
    }
    note("linear of many tokens (of a token's largest)", most, 1e-3, what);
}

/* --- how fast is it? --- */

static double time_decode(layer *l, __half *tile)
{
    return median_ms([&](int i) {
        l->weight.data = l->data->device + i % l->n_copies * l->one;
        must(apr_cuda_decode_to_half(&l->weight, 0, l->n_out, tile, device->stream), "decode");
    });
}

static double time_product(const layer *l, const void *tile, const apr_cuda_activations_f16 *inputs)
{
    const apr_cuda_gemm p = {CUDA_R_16F,     l->n_out,       l->n_tokens, l->n_in, l->n_in,        tile,
                             inputs->values, l->out->device, l->n_out,    false,   inputs->factors};
    return median_ms([&](int) {
        if (apr_cuda_multiply(device, &p) != CUBLAS_STATUS_SUCCESS) must(cudaErrorUnknown, "product");
    });
}

static double time_layer(layer *l)
{
    apr_op_args args = args_of(l);
    return median_ms([&](int i) {
        l->weight.data = l->data->device + i % l->n_copies * l->one;
        apr_cuda_count_write(device); /* inputs are made each time */
        run(&args);
    });
}

static void time_parts(apr_dtype dtype, size_t shape, int64_t n_tokens)
{
    layer l = new_layer(dtype, shapes[shape].n_out, shapes[shape].n_in, n_tokens);
    const bool is_f16 = dtype == APR_F16, together = l.n_out >= 2 * l.n_in;
    const double weights = (double)l.n_out * (double)l.n_in, operations = 2 * weights * (double)n_tokens;
    device_copy<__half> tile((size_t)(l.n_out * l.n_in)), values((size_t)(n_tokens * l.n_in));
    device_copy<float> scales((size_t)n_tokens), largest((size_t)n_tokens), factors(3);
    const apr_cuda_activations_f16 inputs = {values.device, NULL, scales.device, largest.device, together ? factors.device : NULL};

    const double decode = is_f16 ? 0 : time_decode(&l, tile.device);
    if (is_f16) must(apr_cuda_decode_to_half(&l.weight, 0, l.n_out, tile.device, device->stream), "decode");
    const double halve = median_ms([&](int) { must(apr_cuda_make_f16(l.x->device, &inputs, n_tokens, l.n_in, device->stream), "halve"); });
    const double product = time_product(&l, tile.device, &inputs);
    const double finish =
        median_ms([&](int) { must(apr_cuda_finish(l.out->device, &inputs, NULL, n_tokens, l.n_out, device->stream), "finish"); });
    const double whole = time_layer(&l), read_written = (double)l.weight.n_bytes + 2 * weights;
    const double least = operations / product_rate * 1e3 + (is_f16 ? 0 : read_written / copy_rate * 1e3);
    printf("%-6s %-8s %4lld tokens: decode %7.4f ms %5.2f TB/s %4.0f %%   product %7.4f ms %6.1f TFLOP/s %4.0f %%   inputs %7.4f   "
           "finish %7.4f   whole %7.4f ms %6.1f TFLOP/s, %3.0f %% of the bound\n",
           apr_dtypes[dtype].name, shapes[shape].role, (long long)n_tokens, decode, decode > 0 ? read_written / decode / 1e9 : 0,
           decode > 0 ? 100 * read_written / decode * 1e3 / copy_rate : 0, product, operations / product / 1e9,
           100 * operations / product * 1e3 / product_rate, halve, finish, whole, operations / whole / 1e9, 100 * least / whole);
    fflush(stdout);
    free_layer(&l);
}

/* The activation between gate and up and down: its floats alone, those and then FP16 of them, and both at once. */
static void time_glu(int64_t n_tokens)
{
    const int64_t width = 18944, n = n_tokens * width;
    device_copy<float> gate(normals(n)), up(normals(n)), out((size_t)n), scales((size_t)n_tokens);
    device_copy<__half> values((size_t)n);
    const apr_cuda_activations_f16 to = {values.device, NULL, scales.device, NULL, NULL};
    apr_glu_args a;

    memset(&a, 0, sizeof a);
    a.n_tokens = n_tokens, a.width = width, a.shape.activation = APR_ACT_SILU;
    a.gate = gate.device, a.up = up.device, a.out = out.device;
    const double floats = median_ms([&](int) { must(apr_cuda_glu_floats(&a, device->stream), "glu"); });
    const double apart = median_ms([&](int) {
        must(apr_cuda_glu_floats(&a, device->stream), "glu");
        must(apr_cuda_make_f16(a.out, &to, n_tokens, width, device->stream), "halve");
    });
    const double together = median_ms([&](int) { must(apr_cuda_glu_f16(&a, NULL, &to, device->stream), "glu"); });
    a.out = NULL;
    const double alone = median_ms([&](int) { must(apr_cuda_glu_f16(&a, NULL, &to, device->stream), "glu"); });
    const apr_cuda_gated gated = {scales.device, true, {1.0f, 1.0f}};
    const double of_halves = median_ms([&](int) { must(apr_cuda_glu_f16(&a, &gated, &to, device->stream), "glu"); });
    printf("glu of %4lld tokens: floats %.4f ms, and FP16 of them %.4f ms, both at once %.4f ms %.2f TB/s, FP16 alone %.4f ms, of FP16 "
           "%.4f ms %.2f TB/s\n",
           (long long)n_tokens, floats, apart, together, 14.0 * (double)n / together / 1e9, alone, of_halves,
           6.0 * (double)n / of_halves / 1e9);
}

/* What this device copies and multiplies at best. */
static void measure_rates(void)
{
    const size_t n_bytes = 512 << 20;
    const int64_t n = 8192;
    device_copy<uint8_t> a(n_bytes), b(n_bytes);
    std::vector<__half> some(1 << 20);

    copy_rate = 0;
    for (size_t i = 0; i < some.size(); i++) some[i] = __float2half(normal());
    for (size_t at = 0; at < n_bytes; at += some.size() * 2)
        must(cudaMemcpy(a.device + at, some.data(), some.size() * 2, cudaMemcpyHostToDevice), "upload");
    const double copy =
        median_ms([&](int) { must(cudaMemcpyAsync(b.device, a.device, n_bytes, cudaMemcpyDeviceToDevice, device->stream), "copy"); });
    const apr_cuda_gemm p = {CUDA_R_16F, n, n, n, n, a.device, a.device + n * n * 2, (float *)b.device, n, false, NULL};
    const double product = median_ms([&](int) {
        if (apr_cuda_multiply(device, &p) != CUBLAS_STATUS_SUCCESS) must(cudaErrorUnknown, "product");
    });
    copy_rate = 2.0 * (double)n_bytes / copy * 1e3;
    product_rate = 2.0 * (double)(n * n * n) / product * 1e3;
    printf("a copy reads and writes %.2f TB/s, a product of %lld^3 makes %.0f TFLOP/s\n", copy_rate / 1e12, (long long)n,
           product_rate / 1e12);
}

static void open_all(void)
{
    apr_cuda_options options = {};
    apr_error err = {};
    void *blas;
    int version;

    options.stack_bytes = 256;
    cuda = apr_cuda_plugin(apr_cuda_build.abi);
    must_be(cuda->open(&device, 0, &options, &err), &err);
    must_be(cuda->alloc(device, BLAS_BYTES, "workspace", &blas, &err), &err);
    must_be(cuda->start_blas(device, blas, BLAS_BYTES, &version, &err), &err);
    printf("%s, cuBLAS %d\n", device->facts.name, version);
}

/* Every algorithm that is proposed for a product of 2,048 tokens (*: to FP16); the first is the one that is taken. Operands are of random
 * numbers: power also limits what the large ones make. */
static void time_algorithms(void)
{
    static const struct {
        const char *role;
        int64_t n_out, n_in;
    } products[] = {{"7B q or o", 3584, 3584}, {"7B k", 512, 3584},        {"7B q, k, v", 4608, 3584}, {"7B gate", 18944, 3584},
                    {"7B down", 3584, 18944},  {"32B q or o", 5120, 5120}, {"32B k", 1024, 5120},      {"32B q, k, v", 7168, 5120},
                    {"32B gate", 27648, 5120}, {"32B down", 5120, 27648},  {"7B gate*", 18944, 3584},  {"32B gate*", 27648, 5120}};
    const int64_t n_tokens = 2048, most = 27648 * 5120;
    std::vector<__half> some((size_t)most);
    for (__half &h : some) h = __float2half(normal());
    const device_copy<__half> weights(some), inputs(some);
    const device_copy<float> out((size_t)(n_tokens * 27648));

    for (const auto &s : products) {
        const apr_cuda_gemm p = {CUDA_R_16F, s.n_out,        n_tokens,      s.n_in,
                                 s.n_in,     weights.device, inputs.device, out.device,
                                 s.n_out,    false,          NULL,          strchr(s.role, '*') != NULL,
                                 0};
        float waves = 0;
        for (int way = 0; way < apr_cuda_force_gemm_algorithm(device, &p, way, &waves); way++) {
            const double ms = median_ms([&](int) {
                                  for (int i = 0; i < 20; i++)
                                      if (apr_cuda_multiply(device, &p) != CUBLAS_STATUS_SUCCESS) must(cudaErrorUnknown, "product");
                              }) /
                              20;
            printf("%-12s way %d: %6.2f waves %8.4f ms %6.1f TFLOP/s\n", s.role, way, waves, ms,
                   2e-9 * (double)(s.n_out * s.n_in * n_tokens) / ms);
        }
    }
}

int main(int argc, char **argv)
{
    const bool ways = argc > 1 && strcmp(argv[1], "ways") == 0;
    const modes m = start(argc, argv);
    open_all();
    if (ways) {
        time_algorithms();
        cuda->close(device);
        return 0;
    }
    for (apr_dtype dtype : dtypes)
        for (size_t i = 0; m.tests && i < sizeof shapes / sizeof *shapes; i++) {
            layer l = new_layer(dtype, shapes[i].n_out, shapes[i].n_in, 512);
            check_layer(&l, shapes[i].role);
            free_layer(&l);
        }
    if (!all_within_bounds(m)) return 1;
    if (m.times) measure_rates();
    for (int64_t n_tokens : {512, 2048})
        if (m.times) time_glu(n_tokens);
    for (apr_dtype dtype : dtypes)
        for (size_t i = 0; m.times && i < sizeof shapes / sizeof *shapes; i++)
            for (int64_t n_tokens : {512, 2048}) time_parts(dtype, i, n_tokens);
    cuda->close(device);
    return 0;
}
