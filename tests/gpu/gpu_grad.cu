/* gpu_grad.cu - training on a device against kernels/host/grad: each operation forward and backward, the loss, what is refused.
 *
 * Gradients are added to numbers that are there already, and begin in memory of exactly their size; scratch memory begins as NaNs. Each pass
 * runs twice, and once without each kind of gradient: the same bits.
 *
 * gpu_grad [quick | times]: times are those of a 7B layer. Exit code 0: as it should be, 1: not, 77: no device. */
#include "kernels/cuda/device/device.cuh"
#include "tests/gpu/gpu_check.cuh"

#include <functional>

extern "C" const apr_cuda_api *apr_cuda_plugin(uint64_t abi);

enum { BLAS_BYTES = 32 << 20, INPUTS = APR_GRAD_MAX_IN, WEIGHTS = APR_GRAD_MAX_WEIGHTS };
/* What may differ from float32. Products that give the gradients of a layer's input and weight round theirs to 11 bits. */
static const double of_products = 5e-4, of_others = 2e-5;
static const apr_cuda_api *cuda;
static apr_cuda_device *device;

static void well(apr_status status, const apr_error *err)
{
    if (status == APR_OK) return;
    printf("%s\n", err->text);
    exit(1);
}

/* --- an operation in one shape --- */

struct grad_case {
    const char *name, *what;
    apr_op_kind kind;
    int64_t n_rows, n_positions, width_out;
    apr_op_args args;
    std::vector<int64_t> in, weight; /* numbers of each; 0: absent */
    int64_t n_fixed;                 /* inputs from this one on have no gradient */
    double bound;                    /* of gradients */
};

static grad_case case_of(const char *what, apr_op_kind kind, int64_t n_rows, int64_t n_positions, int64_t width_out,
                         std::vector<int64_t> in, std::vector<int64_t> weight)
{
    grad_case g = {apr_op_name(kind), what, kind, n_rows, n_positions, width_out, {}, in, weight, INPUTS, of_others};
    memset(&g.args, 0, sizeof g.args);
    g.in.resize(INPUTS);
    g.weight.resize(WEIGHTS);
    return g;
}

struct memory_pass {
    std::vector<float> out;
    std::vector<std::vector<float>> d_in, d_weight;
};

/* What both passes begin with. */
struct inputs_pass {
    std::vector<std::vector<float>> in, weight;
    std::vector<float> d_out;
    memory_pass start;
};

static inputs_pass inputs_of(const grad_case &g)
{
    inputs_pass p;
    for (int64_t n : g.in) p.in.push_back(normals(n)), p.start.d_in.push_back(normals(n));
    for (int64_t n : g.weight) p.weight.push_back(normals(n)), p.start.d_weight.push_back(normals(n));
    p.start.out.resize((size_t)(g.n_rows * g.width_out));
    p.d_out = normals(g.n_rows * g.width_out);
    return p;
}

static apr_grad_call call_of(const grad_case &g, const apr_op_args *args)
{
    apr_grad_call c = {};
    c.args = args;
    c.n_rows = g.n_rows, c.n_positions = g.n_positions;
    c.width_in = g.in[0] / g.n_rows, c.width_out = g.width_out;
    c.n_threads = 1;
    return c;
}

static memory_pass on_host(const grad_case &g, const inputs_pass &p)
{
    const apr_grad_op &op = apr_grad_float32.ops[g.kind];
    memory_pass m = p.start;
    apr_grad_call c = call_of(g, &g.args);
    std::vector<float> tiles(apr_grad_tiles());

    for (int i = 0; i < INPUTS; i++)
        if (g.in[(size_t)i] > 0) c.in[i] = p.in[(size_t)i].data(), c.d_in[i] = i < g.n_fixed ? m.d_in[(size_t)i].data() : NULL;
    for (int i = 0; i < WEIGHTS; i++)
        if (g.weight[(size_t)i] > 0) c.weight[i] = p.weight[(size_t)i].data(), c.d_weight[i] = m.d_weight[(size_t)i].data();
    c.out = m.out.data(), c.d_out = p.d_out.data(), c.tiles = tiles.data();
    std::vector<float> work(op.work != NULL ? op.work(&c) : 0);
    c.work = work.data();
    op.forward(&c);
    if (op.backward != NULL) op.backward(&c);
    return m;
}

/* --- the same on the device --- */

/* The numbers of each, the absent ones as one. */
struct device_arrays {
    std::vector<device_copy<float> *> all;
    explicit device_arrays(const std::vector<std::vector<float>> &from)
    {
        for (const std::vector<float> &x : from) all.push_back(x.empty() ? NULL : new device_copy<float>(x));
    }
    float *at(int i) const { return all[(size_t)i] != NULL ? all[(size_t)i]->device : NULL; }
    std::vector<std::vector<float>> get() const
    {
        std::vector<std::vector<float>> host;
        for (const device_copy<float> *x : all) host.push_back(x != NULL ? x->get() : std::vector<float>());
        return host;
    }
    device_arrays(const device_arrays &) = delete;
    ~device_arrays()
    {
        for (device_copy<float> *x : all) delete x;
    }
};

/* Ids and frequencies, on the device. */
struct device_args {
    apr_op_args args;
    device_copy<int32_t> ids;
    device_copy<float> freqs;
    explicit device_args(const grad_case &g)
        : args(g.args),
          ids(g.kind == APR_OP_EMBED ? std::vector<int32_t>(g.args.embed.ids, g.args.embed.ids + g.n_rows) : std::vector<int32_t>()),
          freqs(g.kind == APR_OP_ANGLES ? std::vector<float>(g.args.angles.freqs, g.args.angles.freqs + g.args.angles.n_freqs)
                                        : std::vector<float>())
    {
        if (g.kind == APR_OP_EMBED) args.embed.ids = ids.device;
        if (g.kind == APR_OP_ANGLES) args.angles.freqs = freqs.device;
    }
};

static memory_pass on_device(const grad_case &g, const inputs_pass &p, bool by_inputs, bool by_weights)
{
    const device_args args(g);
    const device_arrays in(p.in), weight(p.weight), d_in(p.start.d_in), d_weight(p.start.d_weight);
    const device_copy<float> out((size_t)(g.n_rows * g.width_out)), d_out(p.d_out);
    apr_grad_call c = call_of(g, &args.args);
    apr_error err = {};

    for (int i = 0; i < INPUTS; i++) c.in[i] = in.at(i), c.d_in[i] = by_inputs && i < g.n_fixed ? d_in.at(i) : NULL;
    for (int i = 0; i < WEIGHTS; i++) c.weight[i] = weight.at(i), c.d_weight[i] = by_weights ? d_weight.at(i) : NULL;
    c.out = out.device, c.d_out = d_out.device;
    const device_copy<float> work(cuda->grad->work(g.kind, &c));
    c.work = work.device;
    well(cuda->grad->forward(device, g.kind, &c, &err), &err);
    if (by_inputs || by_weights) well(cuda->grad->backward(device, g.kind, &c, &err), &err);
    well(cuda->check(device, "a pass", &err), &err);
    return memory_pass{out.get(), d_in.get(), d_weight.get()};
}

/* --- comparisons --- */

/* Of what was added. */
static void compare_added(const grad_case &g, const char *what, const std::vector<float> &start, std::vector<float> found,
                          std::vector<float> wanted)
{
    char text[128];
    for (size_t i = 0; i < start.size(); i++) found[i] -= start[i], wanted[i] -= start[i];
    snprintf(text, sizeof text, "%s: %s", g.what, what);
    if (!start.empty()) note(g.bound > of_others ? "gradients by TF32" : g.name, distance(found, wanted.data()), g.bound, text);
}

static void compare_bits(const grad_case &g, const std::vector<float> &one, const std::vector<float> &other)
{
    note("the same bits again", differing(one.data(), other.data(), one.size() * sizeof(float)), 0, g.what);
}

static void compare_again(const grad_case &g, const inputs_pass &p, const memory_pass &found)
{
    const memory_pass again = on_device(g, p, true, true), inputs = on_device(g, p, true, false), weights = on_device(g, p, false, true);
    compare_bits(g, found.out, again.out);
    for (size_t i = 0; i < g.in.size(); i++) compare_bits(g, found.d_in[i], again.d_in[i]), compare_bits(g, found.d_in[i], inputs.d_in[i]);
    for (size_t i = 0; i < g.weight.size(); i++)
        compare_bits(g, found.d_weight[i], again.d_weight[i]), compare_bits(g, found.d_weight[i], weights.d_weight[i]);
}

static void check_case(const grad_case &g)
{
    const inputs_pass p = inputs_of(g);
    const memory_pass wanted = on_host(g, p), found = on_device(g, p, true, true);

    if (g.kind != APR_OP_KV_STORE) note(g.name, distance(found.out, wanted.out.data()), of_others, g.what);
    for (size_t i = 0; i < g.in.size(); i++)
        if (g.kind == APR_OP_ANGLES || (int64_t)i >= g.n_fixed) compare_bits(g, found.d_in[i], p.start.d_in[i]);
        else compare_added(g, "an input's gradient", p.start.d_in[i], found.d_in[i], wanted.d_in[i]);
    for (size_t i = 0; i < g.weight.size(); i++)
        compare_added(g, "a weight's gradient", p.start.d_weight[i], found.d_weight[i], wanted.d_weight[i]);
    compare_again(g, p, found);
}

/* --- the operations --- */

static void test_lookups(void)
{
    static const int32_t ids[6] = {3, 0, 3, 6, 3, 1};
    static const float freqs[5] = {1.0f, 0.5f, 0.25f, 0.1f, 0.01f};
    grad_case embed = case_of("repeated ids", APR_OP_EMBED, 6, 6, 300, {}, {7 * 300});
    grad_case positions = case_of("two windows", APR_OP_POSITIONS, 6, 3, 5, {}, {5 * 5});
    grad_case angles = case_of("two windows", APR_OP_ANGLES, 14, 7, 10, {}, {});

    embed.args.embed.ids = ids;
    check_case(embed);
    positions.args.positions.first = 2;
    check_case(positions);
    angles.args.angles.n_freqs = 5, angles.args.angles.freqs = freqs, angles.args.angles.magnitude = 1.5f;
    check_case(angles);
}

static void test_norm(const char *what, apr_norm_kind kind, int64_t width, int64_t chunk, int64_t n_weight, float offset,
                      std::vector<int64_t> weight)
{
    grad_case g = case_of(what, APR_OP_NORM, 37, 37, width, {37 * width}, weight);
    g.args.norm.kind = kind, g.args.norm.width = width, g.args.norm.chunk = chunk, g.args.norm.n_weight = n_weight;
    g.args.norm.eps = 1e-3f, g.args.norm.offset = offset;
    check_case(g);
}

static void test_norms(void)
{
    test_norm("rms", APR_NORM_RMS, 300, 300, 300, 0, {300});
    test_norm("rms, weight - 1", APR_NORM_RMS, 12, 12, 12, 1, {12});
    test_norm("rms of heads", APR_NORM_RMS, 96, 32, 32, 0, {32});
    test_norm("rms of groups", APR_NORM_RMS, 96, 32, 96, 0, {96});
    test_norm("layer norm", APR_NORM_LAYER, 100, 100, 100, 0, {100, 100});
    test_norm("without weights", APR_NORM_LAYER, 12, 6, 6, 0, {});
    test_norm("l2", APR_NORM_L2, 12, 6, 6, 0, {});
}

static void test_linear(const char *what, int64_t n_rows, int64_t n_in, int64_t n_out, apr_linear_heads heads, std::vector<int64_t> weight)
{
    const int64_t n = heads.n > 0 ? heads.n : 1;
    grad_case g = case_of(what, APR_OP_LINEAR, n_rows, n_rows, n * n_out, {n_rows * n * n_in}, weight);
    g.args.linear.n_in = n_in, g.args.linear.n_out = n_out, g.args.linear.heads = heads;
    if (!device->exact) g.bound = of_products;
    check_case(g);
}

static void test_products(void)
{
    test_linear("small", 5, 7, 9, apr_linear_heads{}, {63, 9});
    test_linear("without a bias", 5, 7, 9, apr_linear_heads{}, {63});
    test_linear("large", 200, 150, 140, apr_linear_heads{}, {140 * 150, 140});
    test_linear("of heads", 6, 4, 3, apr_linear_heads{3, 8, 5, false}, {24 * 4});
    test_linear("of heads, transposed", 6, 4, 3, apr_linear_heads{3, 8, 2, true}, {24 * 3});
    test_linear("long rows", 3, 8200, 5, apr_linear_heads{}, {5 * 8200, 5}); /* in three parts */
}

static void test_exact_products(void)
{
    cuda->use_exact(device, true);
    test_products();
    cuda->use_exact(device, false);
}

static std::vector<float> forward_of(const grad_case &g, inputs_pass p, double x_base, double weight_base)
{
    const int64_t n_in = g.args.linear.n_in;
    for (size_t i = 0; i < p.in[0].size(); i++) p.in[0][i] *= (float)pow(x_base, (double)((int64_t)i / n_in));
    for (size_t i = 0; i < p.weight[0].size(); i++) p.weight[0][i] *= (float)pow(weight_base, (double)((int64_t)i / n_in));
    return on_device(g, p, false, false).out;
}

/* Rows of inputs and of the weight that are larger or smaller by powers of two change no bits of outputs. Zeros give zeros. */
static void test_row_scales(void)
{
    enum { ROWS = 5, OUT = 7 };
    grad_case g = case_of("rows of other sizes", APR_OP_LINEAR, ROWS, ROWS, OUT, {ROWS * 16}, {OUT * 16});
    g.args.linear.n_in = 16, g.args.linear.n_out = OUT;
    inputs_pass p = inputs_of(g);
    std::fill(p.in[0].begin() + 2 * 16, p.in[0].begin() + 3 * 16, 0.0f);
    const std::vector<float> plain = forward_of(g, p, 1, 1);
    std::vector<float> scaled = forward_of(g, p, 0x1p-18, 0x1p15);

    for (int i = 0; i < ROWS * OUT; i++) scaled[(size_t)i] = ldexpf(scaled[(size_t)i], 18 * (i / OUT) - 15 * (i % OUT));
    compare_bits(g, plain, scaled);
    note("linear", (double)std::count(plain.begin(), plain.end(), 0.0f) - OUT, 0, "a row of zeros");
}

static void test_rope(const char *what, apr_rope_mode mode, int64_t n_freqs, int64_t start)
{
    grad_case g = case_of(what, APR_OP_ROPE, 4, 4, 20, {80, 8 * n_freqs}, {});
    g.args.rope.n_heads = 2, g.args.rope.head_dim = 10, g.args.rope.n_freqs = n_freqs, g.args.rope.start = start, g.args.rope.mode = mode;
    g.n_fixed = 1;
    check_case(g);
}

static void test_heads(void)
{
    grad_case slice = case_of("of heads", APR_OP_SLICE, 4, 4, 6, {40}, {}), join = case_of("of heads", APR_OP_JOIN, 4, 4, 10, {24, 16}, {});

    test_rope("halves", APR_ROPE_HALVES, 5, 0);
    test_rope("a part", APR_ROPE_HALVES, 3, 2);
    test_rope("neighbours", APR_ROPE_NEIGHBOURS, 3, 1);
    slice.args.slice.n_heads = 2, slice.args.slice.head_dim = 5, slice.args.slice.start = 1, slice.args.slice.n = 3;
    check_case(slice);
    join.args.join.n_heads = 2, join.args.join.n_a = 3, join.args.join.n_b = 2;
    check_case(join);
}

static void test_attend(const char *what, int64_t n_rows, int64_t n_positions, apr_attend_args shape, bool has_sinks, bool own_values)
{
    const int64_t keys = n_rows * shape.n_kv_heads * shape.key_dim, values = n_rows * shape.n_kv_heads * shape.value_dim;
    grad_case g = case_of(what, APR_OP_ATTEND, n_rows, n_positions, shape.n_heads * shape.value_dim,
                          {n_rows * shape.n_heads * shape.key_dim, keys, own_values ? values : 0}, {has_sinks ? shape.n_heads : 0});
    g.args.attend = shape;
    check_case(g);
}

static void test_attention(void)
{
    apr_attend_args a = {};
    a.n_heads = 4, a.n_kv_heads = 2, a.key_dim = 6, a.value_dim = 5, a.scale = 0.4f;
    test_attend("grouped heads", 300, 150, a, false, true);
    a.window = 5;
    test_attend("a window and sinks", 300, 150, a, true, true);
    a.window = 0, a.chunk = 4;
    test_attend("chunks", 20, 10, a, false, true);
    a.chunk = 0, a.softcap = 0.8f;
    test_attend("a cap", 20, 10, a, true, true);
    a.softcap = 2.0f;
    test_attend("values in the keys", 20, 10, a, false, false);
    a.softcap = 0.0f, a.n_heads = a.n_kv_heads = 1;
    test_attend("many windows at a time, and some", 260 * 8, 8, a, false, true); /* 256, then 4 */
}

/* The key/value heads of windows that have few tokens are more than a grid has in its second dimension. */
static void test_many_heads(void)
{
    enum { ROWS = 2048, HEADS = 33, WIDTH = 2 * HEADS };
    grad_case g = case_of("heads of 2048 windows", APR_OP_ATTEND, ROWS, 1, WIDTH, {ROWS * WIDTH, ROWS * WIDTH, ROWS * WIDTH}, {});
    apr_attend_args *const a = &g.args.attend;
    a->n_heads = a->n_kv_heads = HEADS, a->key_dim = a->value_dim = 2, a->scale = 0.4f;
    const inputs_pass p = inputs_of(g);
    note(g.name, distance(on_device(g, p, false, false).out, on_host(g, p).out.data()), of_others, g.what);
}

static void test_activations(void)
{
    for (int activation = 0; activation < APR_ACT_COUNT; activation++) {
        grad_case glu = case_of("glu", APR_OP_GLU, 50, 50, 6, {300, 300}, {}), alone = case_of("alone", APR_OP_GLU, 50, 50, 6, {300}, {});
        grad_case gate = case_of("of heads", APR_OP_GATE, 50, 50, 6, {300, 100}, {});
        glu.args.glu.width = 6, glu.args.glu.shape.activation = (apr_activation)activation;
        alone.args = glu.args;
        gate.args.gate.n_heads = 2, gate.args.gate.head_dim = 3, gate.args.gate.activation = (apr_activation)activation;
        check_case(glu), check_case(alone), check_case(gate);
    }
    grad_case limited = case_of("a limit", APR_OP_GLU, 50, 50, 6, {300, 300}, {});
    limited.args.glu.width = 6, limited.args.glu.shape = apr_glu_shape{APR_ACT_NONE, 0.6f, 1.702f, 1.0f};
    check_case(limited);
}

static void test_mul(const char *what, int64_t y_width, bool is_vector, std::vector<int64_t> in, std::vector<int64_t> weight)
{
    grad_case g = case_of(what, APR_OP_MUL, 40, 40, 50, in, weight);
    g.args.mul.width = 50, g.args.mul.y_width = y_width, g.args.mul.y_is_vector = is_vector;
    check_case(g);
}

static void test_numbers(void)
{
    grad_case scale = case_of("a factor", APR_OP_SCALE, 4, 4, 5, {20}, {}),
              warm = case_of("a temperature", APR_OP_SCALE, 12, 6, 5, {60}, {});
    grad_case softcap = case_of("a cap", APR_OP_SOFTCAP, 4, 4, 5, {20}, {}), add = case_of("a sum", APR_OP_ADD, 4, 4, 5, {20, 20}, {});

    scale.args.scale.width = 5, scale.args.scale.factor = 0.3f;
    check_case(scale);
    warm.args.scale.width = 5, warm.args.scale.factor = 0.3f, warm.args.scale.warmth = 0.1f;
    warm.args.scale.shift = 1, warm.args.scale.period = 2;
    check_case(warm);
    test_mul("rows", 50, false, {2000, 2000}, {});
    test_mul("a number a row", 1, false, {2000, 40}, {});
    test_mul("a vector", 50, true, {2000}, {50});
    test_mul("a scalar", 1, true, {2000}, {1});
    softcap.args.softcap.width = 5, softcap.args.softcap.cap = 0.7f;
    check_case(softcap);
    add.args.add.width = 5;
    check_case(add);
}

/* --- the loss, and what is refused --- */

static void check_divergence(std::vector<float> teacher, std::vector<float> student, int64_t n_rows, int64_t width, bool gradient,
                             const char *what)
{
    const device_copy<float> teacher_there(teacher), student_there(student);
    const device_copy<double> kl_there((size_t)n_rows);
    std::vector<double> kl((size_t)n_rows);
    apr_error err = {};

    well(cuda->grad->divergence(device, teacher_there.device, student_there.device, n_rows, width, 0.25, gradient, kl_there.device, &err),
         &err);
    well(cuda->check(device, "the loss", &err), &err);
    apr_grad_float32.divergence(teacher.data(), student.data(), n_rows, width, 0.25, gradient, kl.data(), 1);
    const std::vector<double> found = kl_there.get();
    for (size_t r = 0; r < kl.size(); r++) note("divergence", fabs(found[r] - kl[r]) / fmax(fabs(kl[r]), 1e-3), of_others, what);
    note("divergence", distance(student_there.get(), student.data()), gradient ? of_others : 0, gradient ? "its gradient" : "without one");
}

static void test_divergence(void)
{
    enum { ROWS = 5, WIDTH = 4999 };
    std::vector<float> teacher = normals(ROWS * WIDTH), student = normals(ROWS * WIDTH);

    for (float &x : student) x *= 3.0f;
    for (size_t i = 0; i < 100; i++) teacher[i * 7] = -INFINITY;
    check_divergence(teacher, student, ROWS, WIDTH, true, "a row");
    check_divergence(teacher, student, ROWS, WIDTH, false, "a row");
    for (float &x : teacher) x = isinf(x) ? 0.0f : x;
    check_divergence(teacher, teacher, ROWS, WIDTH, false, "the same rows");
}

static void check_not_finite(const std::vector<float> &x, int64_t wanted)
{
    const device_copy<float> there(x);
    const device_copy<uint64_t> found(1);
    apr_error err = {};

    well(cuda->grad->first_not_finite(device, there.device, (int64_t)x.size(), found.device, &err), &err);
    note("not finite", (double)llabs((int64_t)~found.get()[0] - wanted), 0, "the first one");
}

static void test_not_finite(void)
{
    std::vector<float> x = normals(10000);
    check_not_finite(x, -1);
    x[9999] = INFINITY;
    check_not_finite(x, 9999);
    x[5000] = NAN;
    check_not_finite(x, 5000);
    x[0] = -INFINITY;
    check_not_finite(x, 0);
}

static void test_refusals(void)
{
    const apr_grad_call call = {};
    apr_error err = {};
    note("refusals", cuda->grad->has(APR_OP_SSD) || !cuda->grad->has(APR_OP_KV_STORE), 0, "what there is");
    note("refusals", cuda->grad->forward(device, APR_OP_SSD, &call, &err) != APR_E_UNSUPPORTED, 0, "forward");
    note("refusals", cuda->grad->backward(device, APR_OP_SSD, &call, &err) != APR_E_UNSUPPORTED, 0, "backward");
    note("refusals", strstr(err.text, "'state-space duality' has no backward pass") == NULL, 0, err.text);
}

/* --- times --- */

static double median_ms(const std::function<void()> &work)
{
    std::vector<double> times;
    for (int i = 0; i < 9; i++) {
        cudaEvent_t a, b;
        cudaEventCreate(&a), cudaEventCreate(&b);
        cudaEventRecord(a, device->stream), work(), cudaEventRecord(b, device->stream);
        must(cudaEventSynchronize(b), "timing");
        float ms;
        cudaEventElapsedTime(&ms, a, b);
        if (i >= 2) times.push_back(ms);
        cudaEventDestroy(a), cudaEventDestroy(b);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

/* Numbers as products of layers see them: not all of them the same, which would need less power. */
static void time_case(const grad_case &g, double forward_flops, double backward_flops)
{
    const inputs_pass p = inputs_of(g);
    const device_args args(g);
    const device_arrays in(p.in), weight(p.weight), d_in(p.start.d_in), d_weight(p.start.d_weight);
    const device_copy<float> out(p.start.out), d_out(p.d_out);
    apr_grad_call c = call_of(g, &args.args);
    apr_error err = {};

    for (int i = 0; i < INPUTS; i++) c.in[i] = in.at(i), c.d_in[i] = i < g.n_fixed ? d_in.at(i) : NULL;
    for (int i = 0; i < WEIGHTS; i++) c.weight[i] = weight.at(i), c.d_weight[i] = d_weight.at(i);
    c.out = out.device, c.d_out = d_out.device;
    const device_copy<float> work(cuda->grad->work(g.kind, &c));
    c.work = work.device;
    const double forward = median_ms([&] { well(cuda->grad->forward(device, g.kind, &c, &err), &err); });
    const double backward = median_ms([&] { well(cuda->grad->backward(device, g.kind, &c, &err), &err); });
    well(cuda->check(device, "timing", &err), &err);
    printf("%-8s %-28s forward %8.3f ms %6.1f TFLOP/s   backward %8.3f ms %6.1f TFLOP/s   scratch %.2f GB\n", g.name, g.what, forward,
           forward_flops / forward / 1e9, backward, backward_flops / backward / 1e9, (double)work.n * 4e-9);
    fflush(stdout);
}

static void time_linear(const char *what, int64_t n_rows, int64_t n_in, int64_t n_out)
{
    const double flops = 2.0 * (double)n_rows * (double)n_in * (double)n_out;
    grad_case g = case_of(what, APR_OP_LINEAR, n_rows, n_rows, n_out, {n_rows * n_in}, {n_in * n_out});
    g.args.linear.n_in = n_in, g.args.linear.n_out = n_out;
    time_case(g, flops, 2 * flops);
}

static void time_all(void)
{
    const int64_t n = 2048;
    time_linear("3584 to 18944, 2048 rows", n, 3584, 18944);
    time_linear("18944 to 3584, 2048 rows", n, 18944, 3584);
    time_linear("3584 to 18944, 8192 rows", 4 * n, 3584, 18944);

    grad_case a = case_of("28 heads of 128, 2048", APR_OP_ATTEND, n, n, 28 * 128, {n * 28 * 128, n * 4 * 128, n * 4 * 128}, {});
    a.args.attend.n_heads = 28, a.args.attend.n_kv_heads = 4, a.args.attend.key_dim = a.args.attend.value_dim = 128;
    a.args.attend.scale = 0.088f;
    const double pairs = (double)n * (double)n / 2 * 28; /* of a query and a key: what is masked does not count */
    time_case(a, pairs * 4 * 128, pairs * 10 * 128);

    grad_case norm = case_of("3584, 2048 rows", APR_OP_NORM, n, n, 3584, {n * 3584}, {3584});
    norm.args.norm.width = norm.args.norm.chunk = norm.args.norm.n_weight = 3584, norm.args.norm.eps = 1e-6f;
    time_case(norm, 0, 0);
    grad_case glu = case_of("18944, 2048 rows", APR_OP_GLU, n, n, 18944, {n * 18944, n * 18944}, {});
    glu.args.glu.width = 18944, glu.args.glu.shape.activation = APR_ACT_SILU;
    time_case(glu, 0, 0);
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
    if (m.tests) {
        test_lookups();
        test_norms();
        test_products();
        test_exact_products();
        test_row_scales();
        test_heads();
        test_attention();
        test_many_heads();
        test_activations();
        test_numbers();
        test_divergence();
        test_not_finite();
        test_refusals();
    }
    if (m.times) time_all();
    cuda->close(device);
    return all_within_bounds(m) ? 0 : 1;
}
