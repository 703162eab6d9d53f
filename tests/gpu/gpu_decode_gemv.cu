/* gpu_decode_gemv.cu - decode GEMVs (decode_gemv.cuh) against the decoded weights in float64.
 *
 * gpu_decode_gemv [quick]. Two bounds: against the rounded int16 inputs only float32 sums may differ; against the inputs
 * themselves, 15 bits for each group of 16 as well. Exit code 0: within bounds, 1: not, 77: no device. Outputs begin as NaN. */
#include "kernels/cuda/gemv/decode_gemv.cuh"
#include "tests/gpu/gpu_weights.cuh"

static int n_multiprocessors, major_version;

/* --- what a product should be --- */

static std::vector<float> decoded_activations(const std::vector<uint8_t> &activations, int64_t n)
{
    std::vector<float> x((size_t)n);
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *const tile = activations.data() + i / I16_TILE * I16_TILE_BYTES;
        const int64_t c = i % I16_TILE;
        float scale;
        memcpy(&scale, tile + I16_SCALES_AT + c / I16_GROUP * 4, 4);
        x[(size_t)i] = scale * (float)(256 * (int8_t)tile[c] + (int8_t)tile[I16_LOW_AT + c]);
    }
    return x;
}

/* A matrix as products that stream read it: in items, where its type is put into them. */
static const apr_tensor *tiled_of(const matrix *m)
{
    const int64_t rows = m->host.dims[0], n_in = m->host.dims[1];
    apr_tensor *const t = new apr_tensor(m->device);
    if (apr_tile_columns(t->dtype) == 0) return t;
    const std::vector<uint8_t> items = items_of(m->bytes, t->dtype, rows, n_in);
    device_copy<uint8_t> *const made = new device_copy<uint8_t>(items.size());
    must(apr_cuda_to_tiles(t->dtype, t->data, rows, n_in, made->device, 0), "to items");
    note("into items (bytes that differ)", differing(made->get().data(), items.data(), items.size()), 0, "");
    t->data = made->device;
    t->tiled = true;
    return t;
}

/* Every kernel that reads packed weights also reads them tiled. */
static void test_readers(const matrix *m, const apr_tensor *t, const char *what)
{
    const int64_t rows = t->dims[0], columns = t->dims[1];
    device_copy<uint16_t> a((size_t)(rows * columns)), b((size_t)(rows * columns));
    must(apr_cuda_decode_to_half(&m->device, 0, rows, (__half *)a.device, 0), "decode");
    must(apr_cuda_decode_to_half(t, 0, rows, (__half *)b.device, 0), "decode");
    note("decode in items (bytes that differ)", differing(a.get().data(), b.get().data(), a.n * 2), 0, what);
    for (int64_t n_tokens : {1, 3, 8}) {
        device_copy<float> x(normals(n_tokens * columns)), one((size_t)(n_tokens * rows)), other((size_t)(n_tokens * rows));
        apr_linear_args args;
        memset(&args, 0, sizeof args);
        args.n_tokens = n_tokens, args.n_in = columns, args.n_out = rows, args.x = x.device;
        args.weight = &m->device, args.out = one.device;
        must(apr_cuda_linear_few(&args, 0), "linear");
        args.weight = t, args.out = other.device;
        must(apr_cuda_linear_few(&args, 0), "linear");
        note("linear in items (bytes that differ)", differing(one.get().data(), other.get().data(), one.n * 4), 0, what);
    }
}

/* Some numbers much larger than the others, as hidden states have them. */
static std::vector<float> uneven(int64_t n)
{
    std::vector<float> x = normals(n);
    for (int64_t i = 0; i < n / 100 + 1; i++) x[random_bits() % (size_t)n] *= 60.0f;
    return x;
}

static std::vector<double> product(const matrix *m, const std::vector<float> &x)
{
    const int64_t rows = m->host.dims[0], columns = m->host.dims[1];
    std::vector<double> y((size_t)rows);
    std::vector<float> w((size_t)columns);
    for (int64_t r = 0; r < rows; r++) {
        apr_decode_rows(&m->host, r, 1, w.data());
        double sum = 0;
        for (int64_t i = 0; i < columns; i++) sum += (double)w[(size_t)i] * x[(size_t)i];
        y[(size_t)r] = sum;
    }
    return y;
}

static double off(const std::vector<float> &got, const std::vector<double> &want)
{
    std::vector<float> ref(want.begin(), want.end());
    return distance(got, ref.data());
}

/* --- tests --- */

struct inputs {
    std::vector<float> x, seen; /* as given; as int16 activations have it */
    device_copy<uint8_t> activations;
    explicit inputs(const std::vector<float> &values)
        : x(values), activations((size_t)apr_activations_i16_bytes((int64_t)values.size()), false)
    {
        device_copy<float> device(x);
        must(cudaMemset(activations.device, 0, activations.n), "clear");
        apr_decode_gemv_inputs a = {};
        a.n = (int64_t)x.size(), a.x = device.device, a.activations_out = activations.device;
        must(apr_cuda_decode_gemv_prepare(&a, 0), "prepare");
        seen = decoded_activations(activations.get(), (int64_t)x.size());
        double worst = 0;
        for (size_t g = 0; g < x.size(); g += I16_GROUP) {
            float most = 0;
            for (size_t i = g; i < g + I16_GROUP; i++) most = fmaxf(most, fabsf(x[i]));
            for (size_t i = g; i < g + I16_GROUP; i++) worst = fmax(worst, most > 0 ? fabs((double)x[i] - seen[i]) / most : fabs(seen[i]));
        }
        note("activations, of the largest of 16", worst, 0.5 / I16_MAX * 1.01, "");
    }
};

static std::vector<double> biased(std::vector<double> y, double factor, const std::vector<float> &bias)
{
    for (size_t i = 0; i < y.size(); i++) y[i] = y[i] * factor + bias[i];
    return y;
}

/* Three matrices that share inputs after a norm: as queries, keys, values. */
static void test_store(apr_dtype dtype, int64_t n_in, const char *what)
{
    const int64_t rows[3] = {112, 32, 48};
    const inputs in(uneven(n_in));
    std::vector<float> squares((size_t)(n_in / 16));
    double all = 0;
    for (int64_t i = 0; i < n_in; i++)
        squares[(size_t)(i / 16)] += in.x[(size_t)i] * in.x[(size_t)i], all += (double)in.x[(size_t)i] * in.x[(size_t)i];
    const double factor = 1 / sqrt(all / (double)n_in + 1e-6);
    device_copy<float> dsquares(squares);
    matrix *m[3];
    const apr_tensor *t[3];
    device_copy<float> *bias[3], *out[3];
    std::vector<float> biases[3];
    apr_decode_gemv_args a = {};
    a.epilogue = APR_EPILOGUE_STORE, a.n_parts = 3, a.n_in = n_in, a.activations = in.activations.device;
    a.squares = dsquares.device, a.eps = 1e-6f;
    for (int i = 0; i < 3; i++) {
        m[i] = new_matrix(dtype, rows[i], n_in, 0, 0, 0, APR_F32);
        t[i] = tiled_of(m[i]);
        if (i == 0) test_readers(m[i], t[i], what);
        biases[i] = normals(rows[i]);
        bias[i] = new device_copy<float>(biases[i]);
        out[i] = new device_copy<float>((size_t)rows[i]);
        a.parts[i] = apr_decode_gemv_part{t[i], bias[i]->device, out[i]->device};
    }
    for (int blocks : {n_multiprocessors, 5, 1}) {
        for (int i = 0; i < 3; i++) must(cudaMemset(out[i]->device, 0xff, out[i]->n * 4), "clear");
        must(apr_cuda_decode_gemv(&a, blocks, 0), "decode GEMV");
        for (int i = 0; i < 3; i++) {
            note("gemv, store", off(out[i]->get(), biased(product(m[i], in.seen), factor, biases[i])), 2e-6, what);
            note("gemv, of the inputs themselves", off(out[i]->get(), biased(product(m[i], in.x), factor, biases[i])), 1e-4, what);
        }
    }
}

/* Residual, next gains, int16 activations and squares: as the output projection. */
static void test_add(apr_dtype dtype, int64_t n_in, int64_t rows, const char *what)
{
    const inputs in(uneven(n_in));
    matrix *const m = new_matrix(dtype, rows, n_in, 0, 0, 0, APR_F32);
    const std::vector<float> residual = normals(rows), gain = normals(rows);
    device_copy<float> dresidual(residual), dgain(gain), squares((size_t)(rows / 16));
    device_copy<uint8_t> activations((size_t)apr_activations_i16_bytes(rows), false);
    must(cudaMemset(activations.device, 0, activations.n), "clear");
    apr_decode_gemv_args a = {};
    a.epilogue = APR_EPILOGUE_ADD, a.n_parts = 1, a.n_in = n_in, a.activations = in.activations.device;
    a.parts[0] = apr_decode_gemv_part{tiled_of(m), NULL, dresidual.device};
    a.residual = dresidual.device, a.gain = dgain.device, a.activations_out = activations.device, a.out_squares = squares.device;
    must(apr_cuda_decode_gemv(&a, n_multiprocessors, 0), "decode GEMV");
    const std::vector<float> out = dresidual.get(), sums = squares.get(), next = decoded_activations(activations.get(), rows);
    note("gemv, add", off(out, biased(product(m, in.seen), 1, residual)), 2e-6, what);
    double worst_square = 0, worst_activation = 0;
    for (int64_t u = 0; u < rows / 16; u++) {
        double s = 0, most = 0;
        for (int64_t r = 16 * u; r < 16 * u + 16; r++)
            s += (double)out[(size_t)r] * out[(size_t)r], most = fmax(most, fabs((double)out[(size_t)r] * gain[(size_t)r]));
        worst_square = fmax(worst_square, fabs(s - sums[(size_t)u]) / s);
        for (int64_t r = 16 * u; r < 16 * u + 16; r++)
            worst_activation = fmax(worst_activation, fabs((double)out[(size_t)r] * gain[(size_t)r] - next[(size_t)r]) / most);
    }
    note("gemv, squares", worst_square, 1e-6, what);
    note("gemv, activations out", worst_activation, 0.5 / I16_MAX * 1.01, what);
}

static void test_glu(apr_dtype dtype, int64_t n_in, int64_t rows, const char *what)
{
    const inputs in(uneven(n_in));
    matrix *const gate = new_matrix(dtype, rows, n_in, 0, 0, 0, APR_F32), *const up = new_matrix(dtype, rows, n_in, 0, 0, 0, APR_F32);
    device_copy<float> out((size_t)rows);
    device_copy<uint8_t> activations((size_t)apr_activations_i16_bytes(rows), false);
    must(cudaMemset(activations.device, 0, activations.n), "clear");
    apr_decode_gemv_args a = {};
    a.epilogue = APR_EPILOGUE_GLU, a.n_parts = 2, a.n_in = n_in, a.activations = in.activations.device;
    a.parts[0] = apr_decode_gemv_part{tiled_of(gate), NULL, out.device};
    a.parts[1] = apr_decode_gemv_part{tiled_of(up), NULL, NULL};
    a.glu.activation = APR_ACT_SILU, a.activations_out = activations.device;
    must(apr_cuda_decode_gemv(&a, n_multiprocessors, 0), "decode GEMV");
    const std::vector<double> g = product(gate, in.seen), u = product(up, in.seen);
    std::vector<double> want((size_t)rows);
    for (int64_t i = 0; i < rows; i++) want[(size_t)i] = g[(size_t)i] / (1 + exp(-g[(size_t)i])) * u[(size_t)i];
    note("gemv, glu", off(out.get(), want), 4e-6, what);
    note("gemv, glu as activations", off(decoded_activations(activations.get(), rows), want), 1e-4, what);
}

/* Queries and keys of one type, values of another, from the same inputs at the same time; with many blocks and with few. */
static void test_two_types(apr_dtype one, apr_dtype other, int64_t n_in, const char *what)
{
    const int64_t rows[3] = {304, 64, 48};
    const apr_dtype dtypes[3] = {one, one, other};
    const inputs in(uneven(n_in));
    double all = 0;
    std::vector<float> squares((size_t)(n_in / 16));
    for (int64_t i = 0; i < n_in; i++)
        squares[(size_t)(i / 16)] += in.x[(size_t)i] * in.x[(size_t)i], all += (double)in.x[(size_t)i] * in.x[(size_t)i];
    const double factor = 1 / sqrt(all / (double)n_in + 1e-6);
    device_copy<float> dsquares(squares);
    device_copy<float> *out[3], *bias[3];
    std::vector<double> want[3];
    apr_decode_gemv_args a = {}, b = {};
    for (apr_decode_gemv_args *args : {&a, &b}) {
        args->epilogue = APR_EPILOGUE_STORE, args->n_in = n_in, args->activations = in.activations.device;
        args->squares = dsquares.device, args->eps = 1e-6f;
    }
    a.n_parts = 2, b.n_parts = 1, a.concurrent = &b;
    for (int i = 0; i < 3; i++) {
        matrix *const m = new_matrix(dtypes[i], rows[i], n_in, 0, 0, 0, APR_F32);
        const std::vector<float> biases = normals(rows[i]);
        bias[i] = new device_copy<float>(biases);
        out[i] = new device_copy<float>((size_t)rows[i]);
        want[i] = biased(product(m, in.seen), factor, biases);
        (i < 2 ? a.parts[i] : b.parts[0]) = apr_decode_gemv_part{tiled_of(m), bias[i]->device, out[i]->device};
    }
    for (int blocks : {n_multiprocessors, 5, 2, 1}) {
        for (int i = 0; i < 3; i++) must(cudaMemset(out[i]->device, 0xff, out[i]->n * 4), "clear");
        must(apr_cuda_decode_gemv(&a, blocks, 0), "decode GEMV");
        for (int i = 0; i < 3; i++) note("decode GEMV, concurrent", off(out[i]->get(), want[i]), 2e-6, what);
    }
}

/* Each row has an exponent of its own, from the smallest to the largest, and NaN. */
static void test_exponents(void)
{
    static const uint8_t exponents[16] = {0, 1, 2, 3, 4, 64, 126, 127, 128, 129, 190, 245, 0, 1, 118, 255};
    const int64_t n_in = 512, rows = 16;
    const inputs in(normals(n_in));
    matrix *const m = new_matrix(APR_MXFP4, rows, n_in, 0, 0, 0, APR_F32);
    for (size_t i = 0; i < m->bytes.size(); i += 17) m->bytes[i] = exponents[i / (m->bytes.size() / rows)];
    must(cudaMemcpy(m->data->device, m->bytes.data(), m->bytes.size(), cudaMemcpyHostToDevice), "copy");
    m->host.data = m->bytes.data();
    device_copy<float> out((size_t)rows);
    apr_decode_gemv_args a = {};
    a.epilogue = APR_EPILOGUE_STORE, a.n_parts = 1, a.n_in = n_in, a.activations = in.activations.device;
    a.parts[0] = apr_decode_gemv_part{tiled_of(m), NULL, out.device};
    must(apr_cuda_decode_gemv(&a, n_multiprocessors, 0), "decode GEMV");
    const std::vector<float> got = out.get();
    const std::vector<double> want = product(m, in.seen);
    double worst = 0;
    for (int r = 0; r < 15; r++) /* of the unit in which a row's sum of absolute products is about 600 */
        worst = fmax(worst, fabs(got[(size_t)r] - want[(size_t)r]) / ldexp(600, exponents[r] - 127));
    note("gemv, exponents of all sizes", worst, 1e-6, "mxfp4");
    note("gemv, an exponent that is NaN", isnan(got[15]) && isnan(want[15]) ? 0 : 1, 0, "mxfp4");
}

static const apr_dtype types[] = {APR_Q4_K, APR_Q6_K, APR_Q8_0, APR_MXFP4, APR_F16, APR_BF16, APR_F32};

static void run_tests(void)
{
    for (apr_dtype dtype : types)
        for (int64_t n_in : {256, 512, 1024, 3584, 8960, 18944}) {
            char what[64];
            snprintf(what, sizeof what, "%s x %d", apr_dtypes[dtype].name, (int)n_in);
            if (!apr_has_decode_gemv(dtype, 16, n_in, major_version)) continue;
            test_store(dtype, n_in, what);
            test_add(dtype, n_in, 112, what);
            test_glu(dtype, n_in, 80, what);
        }
    for (int64_t n_in : {256, 2048, 3584}) {
        test_two_types(APR_Q4_K, APR_Q6_K, n_in, "q4_k and q6_k");
        test_two_types(APR_Q6_K, APR_Q4_K, n_in, "q6_k and q4_k");
        test_two_types(APR_Q8_0, APR_MXFP4, n_in, "q8_0 and mxfp4");
        test_two_types(APR_MXFP4, APR_F16, n_in, "mxfp4 and f16");
        test_two_types(APR_Q4_K, APR_F32, n_in, "q4_k and f32");
    }
    test_exponents();
    test_add(APR_Q4_K, 1024, 3584, "many units");
    test_glu(APR_MXFP4, 512, 4736, "many units");
}

int main(int argc, char **argv)
{
    const modes m = start(argc, argv);
    cudaDeviceProp properties;
    must(cudaGetDeviceProperties(&properties, 0), "device");
    n_multiprocessors = properties.multiProcessorCount;
    major_version = properties.major;
    if (m.tests) run_tests();
    return all_within_bounds(m) ? 0 : 1;
}
