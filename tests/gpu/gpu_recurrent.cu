/* gpu_recurrent.cu - operations that remember (convolution, delta rule, state-space duality) against kernels/ref, and a long text token by
 * token against the same text as one prompt.
 *
 * gpu_recurrent [quick|times]: prints the worst error of each operation; "quick" leaves the timings out, and a long text is a shorter one.
 * Exit code 0: all within bounds, 1: not, 77: no device. Outputs begin as NaN, states as zeros. */
#include "tests/gpu/gpu_check.cuh"

/* One text of one operation: what it reads, on host and device, and the state that it leaves. */
struct text {
    std::vector<std::vector<float>> inputs; /* the first n_of_tokens have a row a token */
    std::vector<device_copy<float> *> copies;
    void add(const std::vector<float> &values)
    {
        inputs.push_back(values);
        copies.push_back(new device_copy<float>(values));
    }
    ~text()
    {
        for (device_copy<float> *t : copies) delete t;
    }
};

static std::vector<float> rates(int64_t n)
{
    std::vector<float> x = normals(n);
    for (float &v : x) v = expf(2.0f * v - 2.0f); /* from what stays for thousands of tokens to what is gone at once */
    return x;
}

/* --- delta rule --- */

typedef struct delta_shape {
    int64_t n_key_heads, n_value_heads, key_dim, value_dim;
    bool tiled, by_channel;
    float floor;
} delta_shape;

static int64_t gates_of(const delta_shape &s) { return s.by_channel ? s.key_dim : 1; }

static int64_t delta_width(const delta_shape &s) { return 2 * s.n_key_heads * s.key_dim + s.n_value_heads * s.value_dim; }

static void make_delta(const delta_shape &s, int64_t n_tokens, text *t)
{
    t->add(normals(n_tokens * delta_width(s)));
    t->add(normals(n_tokens * s.n_value_heads * gates_of(s)));
    t->add(normals(n_tokens * s.n_value_heads));
    t->add(rates(s.n_value_heads));
    t->add(normals(s.n_value_heads * gates_of(s)));
}

static apr_delta_args delta_args(const delta_shape &s, const text &t, bool on_device, int64_t first, int64_t n_tokens)
{
    const float *in[5];
    for (size_t i = 0; i < 5; i++) in[i] = on_device ? t.copies[i]->device : t.inputs[i].data();
    apr_delta_args a;
    memset(&a, 0, sizeof a);
    a.n_tokens = n_tokens, a.n_key_heads = s.n_key_heads, a.n_value_heads = s.n_value_heads, a.key_dim = s.key_dim,
    a.value_dim = s.value_dim, a.tiled = s.tiled, a.by_channel = s.by_channel, a.floor = s.floor, a.eps = 1e-6f;
    a.qkv = in[0] + first * delta_width(s), a.a = in[1] + first * s.n_value_heads * gates_of(s), a.b = in[2] + first * s.n_value_heads;
    a.rate = in[3], a.dt_bias = in[4];
    return a;
}

static void test_delta(const delta_shape &s, int64_t n_tokens)
{
    const size_t n_state = (size_t)(s.n_value_heads * s.key_dim * s.value_dim), n_out = (size_t)(n_tokens * s.n_value_heads * s.value_dim);
    text t;
    make_delta(s, n_tokens, &t);
    std::vector<float> ref(n_out), state = normals((int64_t)n_state), work(apr_delta_slice(s.key_dim, s.value_dim));
    device_copy<float> device_state(state), out(n_out);
    apr_op_args args;
    args.delta = delta_args(s, t, false, 0, n_tokens);
    args.delta.state = state.data(), args.delta.out = ref.data(), args.delta.work = apr_workspace{work.data(), work.size(), 1};
    apr_ref_delta(&args);
    apr_delta_args a = delta_args(s, t, true, 0, n_tokens);
    a.state = device_state.device, a.out = out.device;
    char what[120];
    snprintf(what, sizeof what, "%lld tokens, %lld heads on %lld of %lld and %lld%s", (long long)n_tokens, (long long)s.n_value_heads,
             (long long)s.n_key_heads, (long long)s.key_dim, (long long)s.value_dim,
             s.by_channel ? ", by channel"
             : s.tiled    ? ", tiled"
                          : "");
    must(apr_cuda_delta(&a, 0), what);
    note("delta rule", distance(out.get(), ref.data()), 2e-5, what);
    note("delta rule, state", distance(device_state.get(), state.data()), 2e-5, what);
}

/* Tokens of a sequence each, whose states are in slots in another order, as if each were alone. */
static void test_delta_per_sequence(const delta_shape &s)
{
    enum { N = 5, GAP = 64 };
    const int64_t row = s.n_value_heads * s.value_dim, n_state = row * s.key_dim, slot = (n_state + GAP) / 4 * 4;
    text t;
    make_delta(s, N, &t);
    const std::vector<float> states = normals(N * slot);
    device_copy<float> alone(states), together(states), out_alone((size_t)(N * row)), out_together((size_t)(N * row));
    device_copy<int32_t> slots(std::vector<int32_t>{3, 0, 4, 1, 2});
    const std::vector<int32_t> of = slots.get();
    for (int64_t i = 0; i < N; i++) {
        apr_delta_args a = delta_args(s, t, true, i, 1);
        a.state = alone.device + of[(size_t)i] * slot, a.out = out_alone.device + i * row;
        must(apr_cuda_delta(&a, 0), "delta rule");
    }
    apr_delta_args a = delta_args(s, t, true, 0, N);
    a.state = together.device, a.slots = slots.device, a.slot_bytes = (uint64_t)slot * sizeof(float), a.out = out_together.device;
    must(apr_cuda_delta(&a, 0), "delta rule of tokens apart");
    char what[60];
    snprintf(what, sizeof what, "%lld and %lld", (long long)s.key_dim, (long long)s.value_dim);
    note("delta rule, tokens apart and alone", distance(out_together.get(), out_alone.get().data()), 0, what);
    note("delta rule, states apart and alone", distance(together.get(), alone.get().data()), 0, what);
}

/* Token by token on the device, and at once: on the device and in the reference. */
static void test_long_delta(const delta_shape &s, int64_t n_tokens)
{
    const int64_t row = s.n_value_heads * s.value_dim;
    const size_t n_state = (size_t)(row * s.key_dim), n_out = (size_t)(n_tokens * row);
    text t;
    make_delta(s, n_tokens, &t);
    std::vector<float> ref(n_out), state(n_state), work(apr_delta_slice(s.key_dim, s.value_dim));
    device_copy<float> one(std::vector<float>(n_state, 0.0f)), many(std::vector<float>(n_state, 0.0f)), by_one(n_out), at_once(n_out);
    for (int64_t i = 0; i < n_tokens; i++) {
        apr_delta_args a = delta_args(s, t, true, i, 1);
        a.state = one.device, a.out = by_one.device + i * row;
        must(apr_cuda_delta(&a, 0), "delta rule");
    }
    apr_delta_args a = delta_args(s, t, true, 0, n_tokens);
    a.state = many.device, a.out = at_once.device;
    must(apr_cuda_delta(&a, 0), "delta rule");
    const std::vector<float> stepped = by_one.get();
    note("delta rule, a prompt against its tokens", distance(at_once.get(), stepped.data()), 1e-6, "");
    note("delta rule, their states", distance(many.get(), one.get().data()), 1e-6, "");
    apr_op_args args;
    args.delta = delta_args(s, t, false, 0, n_tokens);
    args.delta.state = state.data(), args.delta.out = ref.data(), args.delta.work = apr_workspace{work.data(), work.size(), 1};
    apr_ref_delta(&args);
    note("delta rule over a long text", distance(stepped, ref.data()), 1e-4, "");
}

/* --- state-space duality --- */

typedef struct ssd_shape {
    int64_t n_heads, head_dim, n_groups, state_dim;
} ssd_shape;

static int64_t ssd_width(const ssd_shape &s) { return s.n_heads * s.head_dim + 2 * s.n_groups * s.state_dim; }

static void make_ssd(const ssd_shape &s, int64_t n_tokens, text *t)
{
    t->add(normals(n_tokens * ssd_width(s)));
    t->add(normals(n_tokens * s.n_heads));
    t->add(rates(s.n_heads));
    t->add(normals(s.n_heads));
    t->add(normals(s.n_heads));
}

static apr_ssd_args ssd_args(const ssd_shape &s, const text &t, bool on_device, int64_t first, int64_t n_tokens)
{
    const float *in[5];
    for (size_t i = 0; i < 5; i++) in[i] = on_device ? t.copies[i]->device : t.inputs[i].data();
    apr_ssd_args a;
    memset(&a, 0, sizeof a);
    a.n_tokens = n_tokens, a.n_heads = s.n_heads, a.head_dim = s.head_dim, a.n_groups = s.n_groups, a.state_dim = s.state_dim;
    a.xbc = in[0] + first * ssd_width(s), a.dt = in[1] + first * s.n_heads, a.rate = in[2], a.dt_bias = in[3], a.skip = in[4];
    a.n_threads = 1;
    return a;
}

static void test_ssd(const ssd_shape &s, int64_t n_tokens, bool by_tokens)
{
    const int64_t row = s.n_heads * s.head_dim;
    const size_t n_state = (size_t)(row * s.state_dim), n_out = (size_t)(n_tokens * row);
    text t;
    make_ssd(s, n_tokens, &t);
    std::vector<float> ref(n_out), state(n_state);
    device_copy<float> device_state(state), out(n_out);
    apr_op_args args;
    args.ssd = ssd_args(s, t, false, 0, n_tokens);
    args.ssd.state = state.data(), args.ssd.out = ref.data();
    apr_ref_ssd(&args);
    char what[120];
    snprintf(what, sizeof what, "%lld tokens%s, %lld heads of %lld in %lld groups, states of %lld", (long long)n_tokens,
             by_tokens ? " one by one" : "", (long long)s.n_heads, (long long)s.head_dim, (long long)s.n_groups, (long long)s.state_dim);
    for (int64_t first = 0, n = by_tokens ? 1 : n_tokens; first < n_tokens; first += n) {
        apr_ssd_args a = ssd_args(s, t, true, first, n);
        a.state = device_state.device, a.out = out.device + first * row;
        must(apr_cuda_ssd(&a, 0), what);
    }
    note("state-space duality", distance(out.get(), ref.data()), 2e-5, what);
    note("state-space duality, state", distance(device_state.get(), state.data()), 2e-5, what);
}

/* --- convolution --- */

static void test_conv(int64_t width, int64_t n_taps, int64_t n_tokens, bool has_bias, int64_t at_a_time)
{
    const std::vector<float> x = normals(n_tokens * width), weight = normals(width * n_taps), bias = normals(width);
    std::vector<float> state = normals((n_taps - 1) * width), ref(x.size());
    device_copy<float> dx(x), dw(weight), db(bias), ds(state), out(x.size());
    apr_op_args args;
    memset(&args, 0, sizeof args);
    apr_conv_args &a = args.conv;
    a.n_tokens = n_tokens, a.width = width, a.n_taps = n_taps, a.activation = has_bias ? APR_ACT_SILU : APR_ACT_NONE, a.x = x.data();
    a.weight = weight.data(), a.bias = has_bias ? bias.data() : NULL, a.state = state.data(), a.out = ref.data(), a.n_threads = 1;
    apr_ref_conv(&args);
    char what[100];
    snprintf(what, sizeof what, "%lld channels, %lld taps, %lld tokens, %lld at a time", (long long)width, (long long)n_taps,
             (long long)n_tokens, (long long)at_a_time);
    a.weight = dw.device, a.bias = has_bias ? db.device : NULL, a.state = ds.device;
    for (int64_t first = 0; first < n_tokens; first += at_a_time) {
        a.n_tokens = n_tokens - first < at_a_time ? n_tokens - first : at_a_time;
        a.x = dx.device + first * width;
        a.out = out.device + first * width;
        must(apr_cuda_conv(&a, 0), what);
    }
    note("conv", distance(out.get(), ref.data()), 1e-6, what);
    note("conv, state", distance(ds.get(), state.data()), 0, what);
}

/* --- timings --- */

static void time_delta(int64_t n_tokens)
{
    const delta_shape s = {16, 32, 128, 128, false};
    text t;
    make_delta(s, n_tokens, &t);
    device_copy<float> state(std::vector<float>((size_t)(32 * 128 * 128), 0.0f)), out((size_t)(n_tokens * 32 * 128));
    apr_delta_args a = delta_args(s, t, true, 0, n_tokens);
    a.state = state.device, a.out = out.device;
    double best = 1e30;
    for (int repeat = 0; repeat < 3; repeat++) {
        timer clock;
        for (int i = 0; i < 5; i++) must(apr_cuda_delta(&a, 0), "delta rule");
        const double ms = clock.ms() / 5;
        if (ms < best) best = ms;
    }
    printf("delta rule, 32 heads on 16 of 128, %5lld tokens: %10.2f us, %.2f us a token\n", (long long)n_tokens, best * 1e3,
           best * 1e3 / (double)n_tokens);
}

static void time_ssd(int64_t n_tokens)
{
    const ssd_shape s = {128, 64, 8, 128};
    text t;
    make_ssd(s, n_tokens, &t);
    device_copy<float> state(std::vector<float>((size_t)(128 * 64 * 128), 0.0f)), out((size_t)(n_tokens * 128 * 64));
    apr_ssd_args a = ssd_args(s, t, true, 0, n_tokens);
    a.state = state.device, a.out = out.device;
    double best = 1e30;
    for (int repeat = 0; repeat < 3; repeat++) {
        timer clock;
        for (int i = 0; i < 5; i++) must(apr_cuda_ssd(&a, 0), "state-space duality");
        const double ms = clock.ms() / 5;
        if (ms < best) best = ms;
    }
    printf("state-space duality, 128 heads of 64, states of 128, %5lld tokens: %10.2f us, %.2f us a token\n", (long long)n_tokens,
           best * 1e3, best * 1e3 / (double)n_tokens);
}

int main(int argc, char **argv)
{
    const modes m = start(argc, argv);
    static const delta_shape deltas[] = {{1, 1, 8, 8, false},
                                         {2, 6, 16, 24, false},
                                         {2, 6, 16, 24, true},
                                         {4, 4, 33, 17, false},
                                         {3, 9, 64, 64, true},
                                         {16, 32, 128, 128, false},
                                         {2, 4, 64, 40, false},
                                         {2, 6, 128, 72, true},
                                         {2, 4, 128, 18, false},
                                         {2, 6, 16, 24, true, true},
                                         {4, 4, 33, 17, false, true, -5.0f},
                                         {3, 3, 128, 128, false, true}};
    static const ssd_shape ssds[] = {{1, 4, 1, 8}, {6, 16, 2, 24}, {8, 17, 8, 16}, {6, 33, 3, 20}, {128, 64, 8, 128}, {64, 64, 1, 256}};
    for (int64_t n_tokens : {1, 2, 63, 64, 65, 130}) {
        if (!m.tests) break;
        for (const delta_shape &s : deltas) test_delta(s, n_tokens);
        for (const ssd_shape &s : ssds) test_ssd(s, n_tokens, false);
        for (int64_t taps : {1, 2, 4, 5})
            for (int64_t width : {1, 300})
                for (int64_t at_a_time : {1, 7, 1000}) test_conv(width, taps, n_tokens, taps % 2 == 0, at_a_time);
    }
    if (m.tests) {
        for (const delta_shape &s : deltas) test_delta_per_sequence(s);
        const int64_t n_long = m.quick ? 300 : 4096;
        test_long_delta(delta_shape{2, 4, 128, 128, false}, n_long);
        test_ssd(ssd_shape{8, 64, 2, 128}, n_long, true);
        test_ssd(ssd_shape{8, 64, 2, 128}, n_long, false);
    }
    if (!all_within_bounds(m)) return 1;
    if (!m.times) return 0;
    for (int64_t n_tokens : {1, 64, 512, 4096}) time_delta(n_tokens);
    for (int64_t n_tokens : {1, 64, 512, 4096}) time_ssd(n_tokens);
    return 0;
}
