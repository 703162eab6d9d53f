/* gpu_prompt.cu - a layer's steps of many tokens against its operations one by one: the same bits of everything that is left as floats, and
 * of the cache. Where gate and up are FP16: these are off by what rounding to 11 bits does, and everything after them has the bits that the
 * operations make of these numbers.
 *
 * gpu_prompt [quick]: exit code 0: all the same, 1: not, 77: no device. Outputs begin as NaN; "quick" leaves the widest rows out. */
#include "kernels/cuda/device/device.cuh"
#include "tests/gpu/gpu_weights.cuh"

extern "C" const apr_cuda_api *apr_cuda_plugin(uint64_t abi);

enum { BLAS_BYTES = 32 << 20 };
static const apr_cuda_api *cuda;
static apr_cuda_device *device;

typedef struct layer_case {
    const char *name;
    int64_t n_tokens, hidden, n_heads, n_kv_heads, head_dim, wide, n_freqs;
    apr_rope_mode mode;
    apr_dtype dtype, kv_dtype;
    apr_activation activation;
    bool biased, normed_heads, in_place, in_pages;
    float offset;
    bool tight; /* not enough workspace for q, k and v at once */
} layer_case;

static void well(apr_status status, const apr_error *err)
{
    if (status == APR_OK) return;
    printf("%s\n", err->text);
    exit(1);
}

/* What a layer computes with; the same for both ways. */
struct layer {
    const layer_case c;
    int64_t q_wide, kv_wide;
    matrix *q, *k, *v, *o, *gate, *up, *down;
    device_copy<float> x, attended, gain, q_bias, k_bias, v_bias, q_gain, k_gain, angles, work;
    explicit layer(const layer_case &given)
        : c(given), q_wide(c.n_heads * c.head_dim), kv_wide(c.n_kv_heads * c.head_dim), q(take(q_wide, c.hidden)),
          k(take(kv_wide, c.hidden)), v(take_value()), o(take(c.hidden, q_wide)), gate(take(c.wide, c.hidden)), up(take(c.wide, c.hidden)),
          down(take(c.hidden, c.wide)), x(rows()), attended(normals(c.n_tokens * q_wide)), gain(normals(c.hidden)), q_bias(normals(q_wide)),
          k_bias(normals(kv_wide)), v_bias(normals(kv_wide)), q_gain(normals(c.head_dim)), k_gain(normals(c.head_dim)),
          angles(normals(c.n_tokens * 2 * c.n_freqs)), work(work_floats())
    {
    }
    ~layer()
    {
        for (matrix *m : {q, k, v, o, gate, up, down}) free_matrix(m);
    }
    matrix *take(int64_t n_out, int64_t n_in) const { return new_matrix(c.dtype, n_out, n_in, 0, 0, 0, APR_F32); }
    matrix *take_value(void) const /* as Q4_K_M has it */
    {
        return c.dtype == APR_Q4_K ? new_matrix(APR_Q6_K, kv_wide, c.hidden, 0, 0, 0, APR_F32) : take(kv_wide, c.hidden);
    }
    /* Are q, k and v of a QKV epilogue one product? */
    bool joins(void) const { return c.dtype != APR_F16 && !c.tight; }
    size_t work_floats(void) const
    {
        const int64_t widest = std::max(c.wide, std::max(c.hidden, q_wide));
        const size_t n_joined = (size_t)(q_wide + 2 * kv_wide), joined = n_joined * (size_t)(2 * c.hidden + 4 * c.n_tokens);
        return (apr_cuda_linear_bytes(c.n_tokens, widest, widest, false) + joined + 512) / sizeof(float);
    }
    /* Rows of all sizes: zero, and so small that what a norm adds is more. */
    std::vector<float> rows(void) const
    {
        std::vector<float> all = normals(c.n_tokens * c.hidden);
        for (int64_t i = 0; i < (int64_t)all.size(); i++) all[(size_t)i] *= row_size(i / c.hidden);
        return all;
    }
    float row_size(int64_t row) const
    {
        if (c.biased) return 1.0f; /* all rows may share a power of two */
        return row % 7 == 3 ? 0.0f : row % 5 == 4 ? 1e-9f : row % 11 == 6 ? 1e6f : 1.0f;
    }
    apr_workspace workspace(void) const { return apr_workspace{work.device, work.n, 1}; }
    apr_linear_args linear(const matrix *m, const float *in, const float *bias, float *out) const
    {
        apr_linear_args a;
        memset(&a, 0, sizeof a);
        a.n_tokens = c.n_tokens, a.n_in = m->device.dims[1], a.n_out = m->device.dims[0];
        a.x = in, a.weight = &m->device, a.bias = bias, a.out = out, a.work = workspace();
        return a;
    }
    apr_norm_args norm(int64_t width, int64_t chunk, const device_copy<float> &by, const float *in, float *out) const
    {
        apr_norm_args a;
        memset(&a, 0, sizeof a);
        a.kind = APR_NORM_RMS, a.n_tokens = c.n_tokens, a.width = width, a.chunk = a.n_weight = chunk;
        a.eps = 1e-6f, a.offset = c.offset, a.x = in, a.weight = by.device, a.out = out;
        return a;
    }
    apr_rope_args rope(int64_t n_heads, const float *in, float *out) const
    {
        apr_rope_args a;
        memset(&a, 0, sizeof a);
        a.n_tokens = c.n_tokens, a.n_heads = n_heads, a.head_dim = c.head_dim, a.n_freqs = c.n_freqs, a.mode = c.mode;
        a.x = in, a.angles = angles.device, a.out = out;
        return a;
    }
    apr_glu_args glu(const float *g, const float *u, float *out) const
    {
        apr_glu_args a;
        memset(&a, 0, sizeof a);
        a.n_tokens = c.n_tokens, a.width = c.wide, a.shape.activation = c.activation;
        a.gate = g, a.up = u, a.out = out, a.work = workspace();
        return a;
    }
};

/* What one way of running it leaves. */
struct results {
    const layer &l;
    const int64_t n_cells;
    device_copy<float> sum, last, q, k, v, rotated_q, normed_q, normed_k, rotated_k, normed, addend, gate, up, gated, next_q, next_k,
        next_v;
    device_copy<uint8_t> keys, values;
    device_copy<int32_t> pages;
    explicit results(const layer &of)
        : l(of), n_cells((l.c.n_tokens + 40) / 64 * 64 + 64), sum(l.x.n), last(l.x.n), q(wide(l.q_wide)), k(wide(l.kv_wide)),
          v(wide(l.kv_wide)), rotated_q(wide(l.q_wide)), normed_q(wide(l.q_wide)), normed_k(wide(l.kv_wide)), rotated_k(wide(l.kv_wide)),
          normed(l.x.n), addend(l.x.n), gate(wide(l.c.wide)), up(wide(l.c.wide)), gated(wide(l.c.wide)), next_q(wide(l.q_wide)),
          next_k(wide(l.kv_wide)), next_v(wide(l.kv_wide)), keys(cache_bytes()), values(cache_bytes()), pages(page_numbers())
    {
    }
    size_t wide(int64_t n) const { return (size_t)(l.c.n_tokens * n); }
    int64_t row(void) const { return row_bytes_of(l.c.kv_dtype, l.c.head_dim); }
    size_t cache_bytes(void) const { return (size_t)(n_cells * l.c.n_kv_heads * row()); }
    std::vector<int32_t> page_numbers(void) const
    {
        std::vector<int32_t> numbers;
        for (int64_t i = n_cells / APR_PAGE_CELLS; i-- > 0;) numbers.push_back((int32_t)i);
        return numbers;
    }
    apr_kv_store_args store(const float *keys_of, const float *values_of) const
    {
        apr_kv_store_args a;
        memset(&a, 0, sizeof a);
        a.n_tokens = l.c.n_tokens, a.position = 17, a.n_kv_heads = l.c.n_kv_heads, a.key_dim = a.value_dim = l.c.head_dim;
        a.k = keys_of, a.v = values_of;
        a.keys = apr_cache{l.c.kv_dtype, keys.device, n_cells, row()};
        a.values = apr_cache{l.c.kv_dtype, values.device, n_cells, row()};
        a.keys.pages = a.values.pages = l.c.in_pages ? pages.device : NULL;
        return a;
    }
    const float *bias(const device_copy<float> &b) const { return l.c.biased ? b.device : NULL; }
};

template <auto MEMBER, typename ARGS> static void run(apr_op_kind kind, const ARGS &a)
{
    apr_op_args args;
    apr_error err = {};
    memset(&args, 0, sizeof args);
    args.*MEMBER = a;
    well(cuda->run(device, kind, &args, &err), &err);
}

static void run_linear(const apr_linear_args &a) { run<&apr_op_args::linear>(APR_OP_LINEAR, a); }
static void run_norm(const apr_norm_args &a) { run<&apr_op_args::norm>(APR_OP_NORM, a); }

static void run_add(const layer &l, const float *a, const float *b, float *out)
{
    const apr_add_args args = {l.c.n_tokens, l.c.hidden, a, b, out, 1};
    run<&apr_op_args::add>(APR_OP_ADD, args);
}

static void multiply_per_sequence(const layer &l, const results &r, float *q, float *k, float *v)
{
    run_linear(l.linear(l.q, r.normed.device, r.bias(l.q_bias), q));
    run_linear(l.linear(l.k, r.normed.device, r.bias(l.k_bias), k));
    run_linear(l.linear(l.v, r.normed.device, r.bias(l.v_bias), v));
}

/* Of q, k and v: nothing, where there are none, as -0 for all, with which a product is finished row by row as one with biases is. */
static std::vector<float> joined_bias(const layer &l)
{
    std::vector<float> all;
    for (const device_copy<float> *b : {&l.q_bias, &l.k_bias, &l.v_bias})
        for (float v : b->get()) all.push_back(l.c.biased ? v : -0.0f);
    return all;
}

/* cuBLAS may add in another order where a matrix has more rows. So the single operation also gets one matrix of all rows, in FP16. */
static void multiply_joined(const layer &l, const results &r)
{
    const int64_t n_rows = l.q_wide + 2 * l.kv_wide;
    const device_copy<uint16_t> weights((size_t)(n_rows * l.c.hidden));
    const device_copy<float> bias(joined_bias(l)), out((size_t)(l.c.n_tokens * n_rows));
    const bool together = apr_prompt_shares_scale(l.c.n_tokens, l.c.hidden, l.q_wide, l.c.biased);
    float *const parts[] = {r.q.device, r.k.device, r.v.device};
    int64_t row = 0;
    apr_error err = {};
    matrix all;

    for (const matrix *m : {l.q, l.k, l.v}) {
        well(cuda->decode_f16(device, &m->device, 0, m->device.dims[0], weights.device + row * l.c.hidden, &err), &err);
        row += m->device.dims[0];
    }
    set_up(&all.device, APR_F16, n_rows, l.c.hidden);
    all.device.data = (uint8_t *)weights.device;
    all.device.n_bytes = weights.n * sizeof(uint16_t);
    run_linear(l.linear(&all, r.normed.device, together ? NULL : bias.device, out.device));
    row = 0;
    for (int i = 0; i < 3; i++) {
        const int64_t n = i == 0 ? l.q_wide : l.kv_wide;
        run<&apr_op_args::slice>(APR_OP_SLICE, apr_slice_args{l.c.n_tokens, 1, n_rows, row, n, out.device, parts[i]});
        row += n;
    }
    well(cuda->check(device, "the products", &err), &err);
}

/* From gate and up on. */
static void after_products(const layer &l, const results &r)
{
    const layer_case &c = l.c;
    run<&apr_op_args::glu>(APR_OP_GLU, l.glu(r.gate.device, r.up.device, r.gated.device));
    run_linear(l.linear(l.down, r.gated.device, NULL, r.addend.device));
    run_add(l, r.addend.device, r.sum.device, r.last.device);
    run_norm(l.norm(c.hidden, c.hidden, l.gain, r.last.device, r.normed.device));
    multiply_per_sequence(l, r, r.next_q.device, r.next_k.device, r.next_v.device);
}

/* As a program has it. */
static void one_by_one(const layer &l, const results &r)
{
    const layer_case &c = l.c;
    const float *q = r.q.device, *k = r.k.device;
    run_norm(l.norm(c.hidden, c.hidden, l.gain, l.x.device, r.normed.device));
    if (l.joins()) multiply_joined(l, r);
    else multiply_per_sequence(l, r, r.q.device, r.k.device, r.v.device);
    if (c.normed_heads) {
        run_norm(l.norm(l.q_wide, c.head_dim, l.q_gain, q, r.normed_q.device));
        run_norm(l.norm(l.kv_wide, c.head_dim, l.k_gain, k, r.normed_k.device));
        q = r.normed_q.device, k = r.normed_k.device;
    }
    run<&apr_op_args::rope>(APR_OP_ROPE, l.rope(c.n_heads, q, r.rotated_q.device));
    run<&apr_op_args::rope>(APR_OP_ROPE, l.rope(c.n_kv_heads, k, r.rotated_k.device));
    run<&apr_op_args::kv_store>(APR_OP_KV_STORE, r.store(r.rotated_k.device, r.v.device));
    run_linear(l.linear(l.o, l.attended.device, NULL, r.addend.device));
    run_add(l, l.x.device, r.addend.device, r.sum.device);
    run_norm(l.norm(c.hidden, c.hidden, l.gain, r.sum.device, r.normed.device));
    run_linear(l.linear(l.gate, r.normed.device, NULL, r.gate.device));
    run_linear(l.linear(l.up, r.normed.device, NULL, r.up.device));
    after_products(l, r);
}

static apr_prompt_args step(apr_prompt_epilogue epilogue)
{
    apr_prompt_args a;
    memset(&a, 0, sizeof a);
    a.epilogue = epilogue;
    return a;
}

static void put_qkv(const layer &l, const results &r, float *q, float *k, float *v, apr_prompt_args *a)
{
    a->n_parts = 3;
    a->parts[0] = l.linear(l.q, r.normed.device, r.bias(l.q_bias), q);
    a->parts[1] = l.linear(l.k, r.normed.device, r.bias(l.k_bias), k);
    a->parts[2] = l.linear(l.v, r.normed.device, r.bias(l.v_bias), v);
}

static void put_sum(const layer &l, const results &r, const float *residual, float *sum, apr_prompt_args *a)
{
    a->has_sum = a->has_norm = a->addend_is_unscaled = true;
    a->residual = residual, a->addend = r.addend.device, a->sum = sum;
    a->norm = l.norm(l.c.hidden, l.c.hidden, l.gain, sum, r.normed.device);
}

static void go(const apr_prompt_args &a)
{
    apr_error err = {};
    well(cuda->prompt(device, &a, &err), &err);
}

static void qkv_step(const layer &l, const results &r)
{
    const layer_case &c = l.c;
    apr_prompt_args a = step(APR_PROMPT_QKV);
    a.has_norm = true;
    a.norm = l.norm(c.hidden, c.hidden, l.gain, l.x.device, r.normed.device);
    put_qkv(l, r, c.in_place ? r.rotated_q.device : r.q.device, r.k.device, r.v.device, &a);
    for (int i = 0; i < 3 && c.tight; i++)
        a.parts[i].work.slice = apr_cuda_linear_bytes(c.n_tokens, c.hidden, l.q_wide, false) / sizeof(float);
    a.qkv.q = l.rope(c.n_heads, a.parts[0].out, r.rotated_q.device);
    a.qkv.k = l.rope(c.n_kv_heads, r.k.device, NULL);
    a.qkv.store = r.store(NULL, r.v.device);
    if (c.normed_heads) {
        a.qkv.q_norm = l.norm(l.q_wide, c.head_dim, l.q_gain, a.parts[0].out, NULL);
        a.qkv.k_norm = l.norm(l.kv_wide, c.head_dim, l.k_gain, r.k.device, NULL);
    }
    go(a);
}

/* In place of the residual, where it says so. row_sums: NULL: gate and up are left as floats. */
static void in_steps(const layer &l, const results &r, float *row_sums)
{
    float *const last = l.c.in_place ? r.sum.device : r.last.device;
    qkv_step(l, r);
    apr_prompt_args a = step(APR_PROMPT_UNSCALED);
    a.n_parts = 1;
    a.parts[0] = l.linear(l.o, l.attended.device, NULL, r.addend.device);
    go(a);
    a = step(APR_PROMPT_GLU);
    put_sum(l, r, l.x.device, r.sum.device, &a);
    a.n_parts = 2;
    a.parts[0] = l.linear(l.gate, r.normed.device, NULL, r.gate.device);
    a.parts[1] = l.linear(l.up, r.normed.device, NULL, r.up.device);
    a.glu = l.glu(r.gate.device, r.up.device, r.gated.device);
    a.row_sums = row_sums;
    go(a);
    a = step(APR_PROMPT_UNSCALED);
    a.n_parts = 1;
    a.input_is_glu = true;
    a.parts[0] = l.linear(l.down, r.gated.device, NULL, r.addend.device);
    go(a);
    a = step(APR_PROMPT_STORE);
    put_sum(l, r, r.sum.device, last, &a);
    put_qkv(l, r, r.next_q.device, r.next_k.device, r.next_v.device, &a);
    go(a);
}

static void compare(const char *what, const device_copy<float> &got, const device_copy<float> &wanted, const char *name)
{
    const std::vector<float> a = got.get(), b = wanted.get();
    double n_unsaid = 0;
    for (float v : b) n_unsaid += !(v == v);
    note(what, differing(a.data(), b.data(), a.size() * sizeof(float)), 0, name);
    note("values that are not numbers", n_unsaid, 0, name);
}

static void note_unread(const device_copy<float> &made, const char *name)
{
    const std::vector<float> floats = made.get();
    note("floats that no step reads (numbers)", (double)std::count_if(floats.begin(), floats.end(), [](float v) { return v == v; }), 0,
         name);
}

static void compare_layer(const layer &l, const results &got, const results &wanted)
{
    const layer_case &c = l.c;
    compare("rotated query (bytes that differ)", got.rotated_q, wanted.rotated_q, c.name);
    if (!c.in_place) compare("sum behind attention (bytes that differ)", got.sum, wanted.sum, c.name);
    compare("sum after the GLU (bytes that differ)", c.in_place ? got.sum : got.last, wanted.last, c.name);
    compare("next query (bytes that differ)", got.next_q, wanted.next_q, c.name);
    compare("next key (bytes that differ)", got.next_k, wanted.next_k, c.name);
    compare("next value (bytes that differ)", got.next_v, wanted.next_v, c.name);
    note("keys (bytes that differ)", differing(got.keys.get().data(), wanted.keys.get().data(), wanted.keys.n), 0, c.name);
    note("values (bytes that differ)", differing(got.values.get().data(), wanted.values.get().data(), wanted.values.n), 0, c.name);
    for (const device_copy<float> *made : {&got.normed, &got.gated, &got.rotated_k}) note_unread(*made, c.name);
    for (const device_copy<float> *made : {&got.q, &got.k, &got.v})
        if (l.joins()) note_unread(*made, c.name);
}

/* What the magnitudes of a row of its FP16 numbers add up to, at most. */
static double row_sum_of(const matrix *m)
{
    const int64_t n_in = m->device.dims[1];
    const device_copy<uint16_t> halves((size_t)(m->device.dims[0] * n_in));
    double most = 0, sum = 0;
    apr_error err = {};
    well(cuda->decode_f16(device, &m->device, 0, m->device.dims[0], halves.device, &err), &err);
    const std::vector<uint16_t> numbers = halves.get();
    for (size_t i = 0; i < numbers.size(); i++) {
        sum = (i % (size_t)n_in == 0 ? 0 : sum) + fabs((double)apr_f16_to_f32(numbers[i]));
        most = std::max(most, sum);
    }
    return most;
}

/* The power of two that a row of inputs was divided by. */
static float scale_of(const float *row, int64_t n)
{
    float most = 0;
    for (int64_t i = 0; i < n; i++) most = std::max(most, fabsf(row[i]));
    return most > 0x1p-106f ? ldexpf(1.0f, ilogbf(most) - 13) : 1.0f;
}

/* Gate or up as floats from what a step left of it as FP16, into the place of what a product by itself made, with which it is compared. */
static void take_f16(const layer &l, const matrix *m, const device_copy<float> &unscaled, float row_sum, const device_copy<float> &normed,
                     const device_copy<float> &floats)
{
    const std::vector<float> words = unscaled.get(), rows = normed.get(), wanted = floats.get();
    std::vector<uint16_t> halves(wanted.size());
    std::vector<float> got(wanted.size());
    const double right = row_sum_of(m);
    double off = 0;
    int exponent = 0;

    memcpy(halves.data(), words.data(), halves.size() * sizeof(uint16_t));
    note("largest sum of a row (relative)", fabs((double)row_sum - right) / right, 1e-5, l.c.name);
    note("row sums that are too large", !apr_prompt_f16_exponent(row_sum, l.c.hidden, &exponent), 0, l.c.name);
    for (int64_t t = 0; t < l.c.n_tokens; t++) {
        const float scale = scale_of(rows.data() + t * l.c.hidden, l.c.hidden);
        double most = 0, more = 0; /* of what rounding to 11 bits does */
        for (size_t i = (size_t)(t * l.c.wide); i < (size_t)((t + 1) * l.c.wide); i++) {
            got[i] = apr_f16_to_f32(halves[i]) * ldexpf(1.0f, -exponent) * scale;
            most = std::max(most, fabs((double)wanted[i]));
            more = got[i] == got[i] ? std::max(more, fabs((double)got[i] - wanted[i]) - 0x1p-11 * fabs((double)wanted[i])) : INFINITY;
        }
        off = std::max(off, most > 0 ? more / most : more);
    }
    note("gate and up as FP16 (more than 2^-11, of the largest of a row)", off, 1e-5, l.c.name);
    must(cudaMemcpy(floats.device, got.data(), got.size() * sizeof(float), cudaMemcpyHostToDevice), "upload"), filled();
}

static void test_layer(const layer_case &c)
{
    const layer l(c);
    const results wanted(l), got(l), rounded(l);
    float row_sums[2] = {0, 0};

    one_by_one(l, wanted);
    in_steps(l, got, NULL);
    compare_layer(l, got, wanted);
    in_steps(l, rounded, row_sums);
    run_norm(l.norm(c.hidden, c.hidden, l.gain, wanted.sum.device, wanted.normed.device));
    take_f16(l, l.gate, rounded.gate, row_sums[0], wanted.normed, wanted.gate);
    take_f16(l, l.up, rounded.up, row_sums[1], wanted.normed, wanted.up);
    after_products(l, wanted);
    compare_layer(l, rounded, wanted);
    const float before[2] = {row_sums[0], row_sums[1]};
    in_steps(l, got, row_sums);
    compare_layer(l, got, wanted);
    note("row sums that are found again", memcmp(before, row_sums, sizeof before) != 0, 0, c.name);
}

/* Of rows of one size: the largest error, relative to the largest number. */
static void compare_nearly(const char *what, const device_copy<float> &got, const device_copy<float> &wanted, const char *name)
{
    const std::vector<float> a = got.get(), b = wanted.get();
    double most = 0, off = 0;
    for (size_t i = 0; i < b.size(); i++) {
        most = std::max(most, fabs((double)b[i]));
        off = a[i] == a[i] ? std::max(off, fabs((double)a[i] - (double)b[i])) : INFINITY;
    }
    note(what, off / most, 2e-3, name); /* sums in another order round some inputs of the next product otherwise, by 2^-11 */
}

/* What a step has made of its inputs is not there as floats: where cuBLAS refuses, it goes on without. */
static void test_refused_products(const layer_case &c)
{
    const layer l(c);
    const results wanted(l), got(l);
    float row_sums[2] = {0, 0};
    one_by_one(l, wanted);
    device->refuses = true;
    in_steps(l, got, c.in_place ? row_sums : NULL);
    device->refuses = false;
    compare_nearly("rotated query without cuBLAS (of the largest)", got.rotated_q, wanted.rotated_q, c.name);
    compare_nearly("sum after the GLU without cuBLAS (of the largest)", c.in_place ? got.sum : got.last, wanted.last, c.name);
    compare_nearly("next query without cuBLAS (of the largest)", got.next_q, wanted.next_q, c.name);
    compare_nearly("next key without cuBLAS (of the largest)", got.next_k, wanted.next_k, c.name);
}

static void run_tests(bool quick)
{
    static const layer_case cases[] = {
        {"a warp a row", 130, 64, 4, 2, 16, 256, 8, APR_ROPE_HALVES, APR_F16, APR_F16, APR_ACT_SILU, false, false, false, false, 0},
        {"biases", 129, 256, 4, 1, 64, 512, 32, APR_ROPE_HALVES, APR_Q4_K, APR_F16, APR_ACT_SILU, true, false, true, false, 0},
        {"normed heads, pages", 140, 256, 8, 2, 32, 512, 16, APR_ROPE_HALVES, APR_Q8_0, APR_Q8_0, APR_ACT_SILU, false, true, false, true,
         0},
        {"neighbours", 131, 512, 8, 8, 64, 768, 16, APR_ROPE_NEIGHBOURS, APR_Q6_K, APR_BF16, APR_ACT_GELU_TANH, false, true, true, false,
         1},
        {"a block a row", 133, 1280, 4, 2, 64, 2816, 32, APR_ROPE_HALVES, APR_F16, APR_F8_E4M3, APR_ACT_SILU, true, false, false, true, 0},
        {"wider", 129, 3072, 2, 1, 64, 1792, 32, APR_ROPE_HALVES, APR_MXFP4, APR_F32, APR_ACT_RELU2, false, false, true, false, 0},
        {"shared powers", 129, 64, 4, 4, 32, 256, 16, APR_ROPE_HALVES, APR_Q8_0, APR_F16, APR_ACT_SILU, false, false, false, false, 0},
        {"no room", 129, 256, 8, 2, 32, 512, 16, APR_ROPE_HALVES, APR_Q4_K, APR_F16, APR_ACT_SILU, true, false, false, false, 0, true},
        {"a GLU wider than shared memory", 129, 64, 2, 1, 32, 60000, 16, APR_ROPE_HALVES, APR_F16, APR_F16, APR_ACT_SILU, false, false,
         false, false, 0},
    };
    static const layer_case wide[] = {
        {"7B", 300, 3584, 28, 4, 128, 18944, 64, APR_ROPE_HALVES, APR_Q4_K, APR_F16, APR_ACT_SILU, true, false, true, false, 0},
        {"32B", 300, 5120, 40, 8, 128, 27648, 64, APR_ROPE_HALVES, APR_Q4_K, APR_F16, APR_ACT_SILU, true, false, true, false, 0},
        {"wide rows", 150, 8192, 64, 8, 128, 28672, 64, APR_ROPE_HALVES, APR_F16, APR_F16, APR_ACT_SILU, false, false, false, true, 0},
    };
    for (const layer_case &c : cases) test_layer(c);
    for (const layer_case &c : cases)
        if (c.biased) test_refused_products(c);
    for (const layer_case &c : wide)
        if (!quick) test_layer(c);
}

/* --- weights and inputs of every size: nothing overflows --- */

typedef struct extreme {
    const char *name;
    uint16_t weight, one; /* of all of gate; of its last one */
    bool is_finite;
} extreme;

/* A matrix of FP16 numbers on the device. */
struct plain_matrix {
    device_copy<uint16_t> data;
    apr_tensor tensor;
    plain_matrix(int64_t rows, int64_t columns, const std::vector<uint16_t> &numbers) : data(numbers)
    {
        set_up(&tensor, APR_F16, rows, columns);
        tensor.data = (uint8_t *)data.device;
        tensor.n_bytes = data.n * sizeof(uint16_t);
    }
};

enum { FEW = 130, SIDE_IN = 256, SIDE_OUT = 512 };

/* down of the GLU, outputs of whose gate all have the sign of x. */
static std::vector<float> run_extreme(const extreme &e, const device_copy<float> &x, float *row_sums)
{
    std::vector<uint16_t> gates(SIDE_IN * SIDE_OUT, e.weight), ups(SIDE_IN * SIDE_OUT), downs(SIDE_IN * SIDE_OUT);
    gates.back() = e.one;
    for (size_t i = 0; i < ups.size(); i++)
        ups[i] = apr_f32_to_f16((float)(i % 3) * 0x1p-12f), downs[i] = apr_f32_to_f16((float)(i % 5) - 2);
    const plain_matrix gate(SIDE_OUT, SIDE_IN, gates), up(SIDE_OUT, SIDE_IN, ups), down(SIDE_IN, SIDE_OUT, downs);
    const device_copy<float> work(apr_cuda_linear_bytes(FEW, SIDE_OUT, SIDE_OUT, true) / sizeof(float) + 64), gated(FEW * SIDE_OUT),
        gate_out(FEW * SIDE_OUT), up_out(FEW * SIDE_OUT), out(FEW * SIDE_IN);
    const apr_workspace workspace = {work.device, work.n, 1};
    const apr_tensor *const tensors[] = {&gate.tensor, &up.tensor, &down.tensor};
    const float *const from[] = {x.device, x.device, gated.device};
    float *const to[] = {gate_out.device, up_out.device, out.device};
    apr_prompt_args glu = step(APR_PROMPT_GLU), last = step(APR_PROMPT_STORE);

    glu.n_parts = 2, last.n_parts = 1, last.input_is_glu = true, glu.row_sums = row_sums;
    for (int i = 0; i < 3; i++) {
        apr_linear_args *const a = i < 2 ? &glu.parts[i] : &last.parts[0];
        a->n_tokens = FEW, a->n_out = tensors[i]->dims[0], a->n_in = tensors[i]->dims[1];
        a->x = from[i], a->weight = tensors[i], a->out = to[i], a->work = workspace;
    }
    glu.glu.n_tokens = FEW, glu.glu.width = SIDE_OUT, glu.glu.shape.activation = APR_ACT_SILU;
    glu.glu.gate = gate_out.device, glu.glu.up = up_out.device, glu.glu.out = gated.device, glu.glu.work = workspace;
    go(glu);
    go(last);
    return out.get();
}

static void test_extremes(void)
{
    static const extreme extremes[] = {
        {"largest weights", 0x7bff, 0x7bff, true}, {"smallest weights", 0x0001, 0x0001, true},    {"no weights", 0, 0, true},
        {"one of many", 0, 0x7bff, true},          {"an infinite weight", 0x2000, 0x7c00, false}, {"no number", 0x2000, 0x7e00, false},
    };
    for (const extreme &e : extremes)
        for (float size : {1e-30f, 1.0f, 1e20f}) {
            float row_sums[2] = {0, 0};
            double most = 0, off = 0;
            const device_copy<float> x(std::vector<float>(FEW * SIDE_IN, size * 0x1.fffffep0f)); /* that round to 2^14 */
            const std::vector<float> floats = run_extreme(e, x, NULL), halves = run_extreme(e, x, row_sums);
            for (size_t i = 0; i < floats.size(); i++) {
                most = std::max(most, isfinite(floats[i]) ? fabs((double)floats[i]) : 0);
                if (isfinite(floats[i])) off = isfinite(halves[i]) ? std::max(off, fabs((double)halves[i] - floats[i])) : INFINITY;
                else off = isfinite(halves[i]) ? INFINITY : off;
            }
            note("GLU of extreme weights (of the largest)", most > 0 ? off / most : off, 2e-3, e.name);
            note("row sums that are not numbers", isfinite(row_sums[0]) != e.is_finite, 0, e.name);
        }
}

/* A step that is none says so, and does nothing. */
static void test_refusals(void)
{
    const layer_case c = {"few tokens", 128,     64,           2,     1,     32,    128,   16, APR_ROPE_HALVES,
                          APR_F16,      APR_F16, APR_ACT_SILU, false, false, false, false, 0};
    const layer l(c);
    const results r(l);
    apr_error err = {};
    apr_prompt_args a = step(APR_PROMPT_UNSCALED);
    a.n_parts = 1;
    a.parts[0] = l.linear(l.o, l.attended.device, NULL, r.addend.device);
    note("steps of few tokens that are run", cuda->prompt(device, &a, &err) != APR_E_USAGE, 0, c.name);
    a.parts[0].n_tokens = 129, a.input_is_glu = true; /* no product left it */
    note("GLU outputs that no step left", cuda->prompt(device, &a, &err) == APR_OK, 0, c.name);
}

int main(int argc, char **argv)
{
    const modes m = start(argc, argv);
    apr_cuda_options options = {};
    apr_error err = {};
    void *blas;
    int version;

    cuda = apr_cuda_plugin(apr_cuda_build.abi);
    well(cuda->open(&device, 0, &options, &err), &err);
    well(cuda->alloc(device, BLAS_BYTES, "workspace", &blas, &err), &err);
    well(cuda->start_blas(device, blas, BLAS_BYTES, &version, &err), &err);
    if (m.tests) run_tests(m.quick);
    if (m.tests) test_extremes();
    if (m.tests) test_refusals();
    cuda->close(device);
    return all_within_bounds(m) ? 0 : 1;
}
