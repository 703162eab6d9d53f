/* gpu_ops.cu - the launchers that read no weights, no cache and no state (angles, rope, norm, glu, add, ranges, gates), and sparse attention,
 * against kernels/ref on random inputs.
 *
 * gpu_ops: prints the worst error of each operation. Exit code 0: all within bounds, 1: not, 77: no device. Outputs begin as NaN. */
#include "tests/gpu/gpu_check.cuh"

static void test_angles_and_rope(void)
{
    static const int64_t positions[] = {0, 5, 4095, 131071, 1000003};
    static const struct {
        int64_t n_heads, head_dim, n_freqs;
    } shapes[] = {{4, 64, 32}, {3, 128, 64}, {2, 80, 16}, {1, 6, 3}};
    for (auto s : shapes)
        for (int64_t position : positions) {
            const int64_t n_tokens = 5;
            std::vector<float> freqs((size_t)s.n_freqs), angles((size_t)(n_tokens * 2 * s.n_freqs));
            for (int64_t j = 0; j < s.n_freqs; j++) freqs[(size_t)j] = powf(1e6f, -(float)j / (float)s.n_freqs);
            apr_op_args args;
            args.angles = apr_angles_args{n_tokens, position, s.n_freqs, NULL, false, freqs.data(), 1.25f, angles.data()};
            apr_ref_angles(&args);
            device_copy<float> df(freqs), dangles(angles.size());
            args.angles.freqs = df.device;
            args.angles.out = dangles.device;
            must(apr_cuda_angles(&args.angles, 0), "angles");
            note("angles", distance(dangles.get(), angles.data()), 2e-7, "");
            const std::vector<float> given = dangles.get();
            const device_copy<int64_t> where(std::vector<int64_t>{position});
            args.angles.position = -77; /* not what is read */
            args.angles.position_at = where.device;
            must(apr_cuda_angles(&args.angles, 0), "angles");
            note("angles, position in memory", differing(dangles.get().data(), given.data(), given.size() * 4), 0, "");

            const std::vector<float> x = normals(n_tokens * s.n_heads * s.head_dim);
            std::vector<float> ref(x.size());
            for (apr_rope_mode mode : {APR_ROPE_HALVES, APR_ROPE_NEIGHBOURS})
                for (int64_t begin = 0; begin + 2 * s.n_freqs <= s.head_dim; begin += 24) {
                    args.rope = apr_rope_args{n_tokens, s.n_heads, s.head_dim, s.n_freqs, begin, mode, x.data(), angles.data(), ref.data()};
                    apr_ref_rope(&args);
                    device_copy<float> dx(x), out(x.size()), dref(angles);
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
}

static void test_norm_of(const apr_norm_args &shape, bool has_weight, bool has_bias)
{
    const std::vector<float> x = normals(shape.n_tokens * shape.width), weight = normals(shape.n_weight), bias = normals(shape.n_weight);
    std::vector<float> ref(x.size());
    apr_op_args args;
    args.norm = shape;
    args.norm.x = x.data();
    args.norm.weight = has_weight ? weight.data() : NULL;
    args.norm.bias = has_bias ? bias.data() : NULL;
    args.norm.out = ref.data();
    apr_ref_norm(&args);
    device_copy<float> dx(x), dw(weight), db(bias), out(x.size());
    args.norm.x = dx.device;
    args.norm.weight = has_weight ? dw.device : NULL;
    args.norm.bias = has_bias ? db.device : NULL;
    args.norm.out = out.device;
    must(apr_cuda_norm(&args.norm, 0), "norm");
    note("norm", distance(out.get(), ref.data()), 3e-6, ""); /* ref adds up one after the other */
    args.norm.out = dx.device;
    must(apr_cuda_norm(&args.norm, 0), "norm");
    note("norm in place", distance(dx.get(), ref.data()), 3e-6, "");
}

static void test_norm(void)
{
    static const struct {
        int64_t width, chunk;
    } shapes[] = {{7, 7}, {896, 896}, {3584, 3584}, {5120, 5120}, {1001, 1001}, {8 * 128, 128}, {14 * 64, 64}, {3 * 80, 80}, {6144, 2048}};
    for (auto s : shapes)
        for (int64_t n_tokens : {1, 13})
            for (int kind = 0; kind < APR_NORM_KINDS; kind++)
                for (int has = 0; has < 4; has++)
                    for (int64_t n_weight : {s.chunk, s.width}) {
                        apr_norm_args a;
                        memset(&a, 0, sizeof a);
                        a.kind = (apr_norm_kind)kind, a.n_tokens = n_tokens, a.width = s.width, a.chunk = s.chunk, a.n_weight = n_weight;
                        a.eps = 1e-6f, a.offset = (float)(has % 2);
                        test_norm_of(a, has > 0, has > 2);
                    }
}

/* What has one or two inputs and an output: `from` and `to` say where its arguments have them; `second` may be NULL. */
template <typename ARGS>
static void against_ref(const char *name, ARGS a, ARGS apr_op_args::*member, const float *ARGS::*from, const float *ARGS::*second,
                        float *ARGS::*to, int64_t n_x, int64_t n_y, int64_t n_out, void (*ref)(const apr_op_args *),
                        cudaError_t (*start)(const ARGS *, cudaStream_t), double bound)
{
    const std::vector<float> x = normals(n_x), y = normals(n_y);
    std::vector<float> expected((size_t)n_out);
    device_copy<float> dx(x), dy(y), out((size_t)n_out);
    apr_op_args args;
    a.*from = x.data();
    if (second != NULL) a.*second = y.data();
    a.*to = expected.data();
    args.*member = a;
    ref(&args);
    a.*from = dx.device;
    if (second != NULL) a.*second = dy.device;
    a.*to = out.device;
    must(start(&a, 0), name);
    note(name, distance(out.get(), expected.data()), bound, "");
}

static void test_ranges(int64_t n_tokens, int64_t n_heads, int64_t head_dim)
{
    const int64_t n_rows = n_tokens * n_heads, width = n_heads * head_dim, n = n_tokens * width;
    apr_slice_args slice = {n_tokens, n_heads, head_dim, head_dim / 3, head_dim - head_dim / 3, NULL, NULL};
    against_ref("slice", slice, &apr_op_args::slice, &apr_slice_args::x, (const float *apr_slice_args::*)NULL, &apr_slice_args::out, n, 0,
                n_rows * slice.n, apr_ref_slice, apr_cuda_slice, 0);
    apr_join_args join = {n_tokens, n_heads, head_dim, 5, NULL, NULL, NULL};
    against_ref("join", join, &apr_op_args::join, &apr_join_args::a, &apr_join_args::b, &apr_join_args::out, n, n_rows * 5,
                n_rows * (head_dim + 5), apr_ref_join, apr_cuda_join, 0);
    apr_scale_args scale = {n_tokens, width, 8190, NULL, false, 0.3f, 0.1f, 1.0f, 8192.0f, NULL, NULL};
    against_ref("scale", scale, &apr_op_args::scale, &apr_scale_args::x, (const float *apr_scale_args::*)NULL, &apr_scale_args::out, n, 0,
                n, apr_ref_scale, apr_cuda_scale, 1e-6);
    apr_softcap_args cap = {n_tokens, width, 0.7f, NULL, NULL};
    against_ref("softcap", cap, &apr_op_args::softcap, &apr_softcap_args::x, (const float *apr_softcap_args::*)NULL, &apr_softcap_args::out,
                n, 0, n, apr_ref_softcap, apr_cuda_softcap, 1e-6);
    for (bool is_vector : {false, true})
        for (int64_t y_width : {width, (int64_t)1}) {
            apr_mul_args mul = {n_tokens, width, y_width, is_vector, NULL, NULL, NULL};
            against_ref("mul", mul, &apr_op_args::mul, &apr_mul_args::x, &apr_mul_args::y, &apr_mul_args::out, n,
                        (is_vector ? 1 : n_tokens) * y_width, n, apr_ref_mul, apr_cuda_mul, 0);
        }
    for (int activation = 0; activation < APR_ACT_COUNT; activation++) {
        apr_gate_args gate = {n_tokens, n_heads, head_dim, (apr_activation)activation, NULL, NULL, NULL};
        against_ref("gate", gate, &apr_op_args::gate, &apr_gate_args::x, &apr_gate_args::gate, &apr_gate_args::out, n, n_rows, n,
                    apr_ref_gate, apr_cuda_gate, 1e-6);
    }
}

/* Streams of hidden states, as Gemma 3n predicts them, corrects them, and adds to all but the first. */
static void test_altup(int64_t n_tokens, int64_t n_streams, int64_t width)
{
    const std::vector<float> x = normals(n_tokens * n_streams * width), y = normals(n_tokens * width),
                             routed = normals(n_tokens * n_streams), coefs = normals(n_streams * n_streams * n_streams);
    const device_copy<float> dx(x), dy(y), drouted(routed), dcoefs(coefs);
    for (int form = 0; form < 3; form++) {
        std::vector<float> expected(x.size());
        device_copy<float> out(x.size());
        const int64_t n_y = form == 0 ? n_streams : 1;
        apr_op_args args;
        apr_altup_args a = {n_tokens, n_streams, n_y, width, form == 2, form == 1 ? n_streams - 1 : -1, 0.6f, form == 0 ? 0.0f : 1.0f};
        args.altup = a;
        args.altup.x = x.data(), args.altup.y = form == 0 ? x.data() : y.data();
        args.altup.routed = form == 2 ? NULL : routed.data(), args.altup.coefs = form == 2 ? NULL : coefs.data();
        args.altup.out = expected.data();
        apr_ref_altup(&args);
        a.x = dx.device, a.y = form == 0 ? dx.device : dy.device;
        a.routed = form == 2 ? NULL : drouted.device, a.coefs = form == 2 ? NULL : dcoefs.device;
        a.out = out.device;
        must(apr_cuda_altup(&a, 0), "altup");
        note("altup", distance(out.get(), expected.data()), 1e-6, "");
    }
}

static void test_streams(void)
{
    test_altup(1, 2, 5);
    test_altup(3, 4, 256);
    test_altup(5, 16, 300);
    for (int64_t width : {1, 7, 256, 3000})
        for (int64_t n_tokens : {1, 3})
            for (float parameter : {0.0f, 1.3f, 4.0f}) {
                const int64_t n = n_tokens * width;
                apr_rescale_args rescale = {n_tokens, width, parameter};
                against_ref("rescale", rescale, &apr_op_args::rescale, &apr_rescale_args::x, &apr_rescale_args::like,
                            &apr_rescale_args::out, n, n, n, apr_ref_rescale, apr_cuda_rescale, 3e-6);
                apr_gauss_topk_args topk = {n_tokens, width, parameter};
                against_ref("gaussian top-k", topk, &apr_op_args::gauss_topk, &apr_gauss_topk_args::x,
                            (const float *apr_gauss_topk_args::*)NULL, &apr_gauss_topk_args::out, n, 0, n, apr_ref_gauss_topk,
                            apr_cuda_gauss_topk, 1e-5);
            }
}

/* The temperature of a position that only the device knows. */
static void test_scale_of_a_position_in_memory(void)
{
    const int64_t n_tokens = 3, width = 33;
    const std::vector<float> x = normals(n_tokens * width);
    const device_copy<float> dx(x), out(x.size());
    const device_copy<int64_t> where(std::vector<int64_t>{8190});
    apr_scale_args scale = {n_tokens, width, 8190, NULL, false, 0.3f, 0.1f, 1.0f, 8192.0f, dx.device, out.device};
    must(apr_cuda_scale(&scale, 0), "scale");
    const std::vector<float> given = out.get();
    scale.position = 0;
    must(apr_cuda_scale(&scale, 0), "scale");
    note("scale of another position (is it other?)", differing(out.get().data(), given.data(), given.size() * 4) > 0 ? 0 : 1, 0, "");
    scale.position_at = where.device;
    must(apr_cuda_scale(&scale, 0), "scale");
    note("scale, position in memory", differing(out.get().data(), given.data(), given.size() * 4), 0, "");
}

static void test_elementwise(void)
{
    for (int64_t width : {1, 7, 64, 3584})
        for (int64_t n_tokens : {1, 3}) {
            const int64_t n = n_tokens * width;
            apr_add_args add = {n_tokens, width, NULL, NULL, NULL};
            against_ref("add", add, &apr_op_args::add, &apr_add_args::a, &apr_add_args::b, &apr_add_args::out, n, n, n, apr_ref_add,
                        apr_cuda_add, 0);
            for (int activation = 0; activation < APR_ACT_COUNT; activation++)
                for (float limit : {0.0f, 0.7f}) {
                    const apr_glu_shape shape = {(apr_activation)activation, limit, limit * 2.0f, limit};
                    apr_glu_args glu = {n_tokens, width, shape, NULL, NULL, NULL, 1};
                    against_ref("glu", glu, &apr_op_args::glu, &apr_glu_args::gate, &apr_glu_args::up, &apr_glu_args::out, n, n, n,
                                apr_ref_glu, apr_cuda_glu_floats, 1e-6);
                    against_ref("activation", glu, &apr_op_args::glu, &apr_glu_args::gate, (const float *apr_glu_args::*)NULL,
                                &apr_glu_args::out, n, 0, n, apr_ref_glu, apr_cuda_glu_floats, 1e-6);
                }
        }
    test_ranges(1, 1, 5);
    test_ranges(3, 7, 33);
    test_ranges(40, 16, 128);
    test_scale_of_a_position_in_memory();
    test_streams();
}

/* --- sparse attention: the index, and attention to the positions that it chose --- */

/* A cache of float32 rows, its cells in a ring or, in reverse order, in pages. */
struct test_cache {
    std::vector<float> rows;
    std::vector<int32_t> pages;
    device_copy<float> device_rows;
    device_copy<int32_t> device_pages;
    int64_t n_cells, dim;

    test_cache(int64_t cells, int64_t width)
        : rows(normals(cells * width)), pages(reversed(cells / APR_PAGE_CELLS)), device_rows(rows), device_pages(pages), n_cells(cells),
          dim(width)
    {
    }
    static std::vector<int32_t> reversed(int64_t n)
    {
        std::vector<int32_t> list;
        for (int64_t i = 0; i < n; i++) list.push_back((int32_t)(n - 1 - i));
        return list;
    }
    apr_cache on(bool device, bool paged) const
    {
        apr_cache cache = {APR_F32, (uint8_t *)(device ? device_rows.device : rows.data()), n_cells, dim * 4};
        if (paged) cache.pages = device ? device_pages.device : pages.data();
        return cache;
    }
};

/* The same call for tokens of several sequences, which here share one cache; the positions are in device memory. */
template <typename ARGS> static ARGS as_sequences(const ARGS &args, const int64_t *position_at)
{
    ARGS a = args;
    a.position_at = position_at;
    a.per_sequence = true;
    a.position = args.position + args.n_tokens - 1;
    return a;
}

static std::vector<int64_t> positions_from(int64_t first, int64_t n)
{
    std::vector<int64_t> at;
    for (int64_t i = 0; i < n; i++) at.push_back(first + i);
    return at;
}

/* Rows without their gaps, which are sums in another order. */
static size_t n_chosen_otherwise(const std::vector<float> &a, const std::vector<float> &b, int64_t n_chosen)
{
    size_t n = 0;
    for (size_t i = 0; i < b.size(); i++)
        n += (int64_t)i % apr_index_row(n_chosen) == n_chosen ? !(fabsf(a[i] - b[i]) <= 1e-5f * fmaxf(1.0f, fabsf(b[i]))) : a[i] != b[i];
    return n;
}

static std::vector<float> test_index(int64_t n_heads, int64_t dim, int64_t n_chosen, int64_t position, int64_t n_tokens, bool paged)
{
    const test_cache cache(256, dim);
    const std::vector<float> q = normals(n_tokens * n_heads * dim), weights = normals(n_tokens * n_heads);
    const device_copy<float> dq(q), dweights(weights);
    const device_copy<int64_t> where(positions_from(position, n_tokens));
    std::vector<float> ref((size_t)(n_tokens * apr_index_row(n_chosen))), work(apr_index_slice(n_chosen, dim));
    const device_copy<float> out(ref.size()), again(ref.size()), each(ref.size());
    apr_op_args args;
    args.index = apr_index_args{n_tokens,
                                position,
                                n_heads,
                                dim,
                                n_chosen,
                                NULL,
                                false,
                                0.25f,
                                q.data(),
                                weights.data(),
                                cache.on(false, paged),
                                ref.data(),
                                apr_workspace{work.data(), work.size(), 1}};
    apr_ref_index(&args);
    apr_index_args &a = args.index;
    a.q = dq.device, a.weights = dweights.device, a.keys = cache.on(true, paged), a.out = out.device;
    must(apr_cuda_index(&a, 0), "index");
    note("index (positions and gaps that differ)", (double)n_chosen_otherwise(out.get(), ref, n_chosen), 0, "");
    apr_index_args b = as_sequences(a, where.device);
    b.out = each.device;
    must(apr_cuda_index(&b, 0), "index");
    note("index of sequences (bytes that differ)", differing(each.get().data(), out.get().data(), ref.size() * 4), 0, "");
    b = a;
    b.position = 0, b.position_at = where.device, b.out = again.device;
    must(apr_cuda_index(&b, 0), "index");
    note("index, position in memory (bytes that differ)", differing(again.get().data(), out.get().data(), ref.size() * 4), 0, "");
    return ref;
}

static void test_sparse_attention(int64_t n_heads, int64_t key_dim, int64_t value_dim, int64_t n_chosen, int64_t position, int64_t n_tokens,
                                  bool paged)
{
    const std::vector<float> chosen = test_index(5, 48, n_chosen, position, n_tokens, paged);
    const test_cache cache(256, key_dim);
    const std::vector<float> q = normals(n_tokens * n_heads * key_dim);
    const device_copy<float> dq(q), dchosen(chosen), work(apr_cuda_attend_bytes(n_heads, value_dim) / 4);
    const device_copy<int64_t> where(positions_from(position, n_tokens));
    std::vector<float> ref((size_t)(n_tokens * n_heads * value_dim)), row((size_t)key_dim);
    const device_copy<float> out(ref.size()), each(ref.size());
    apr_op_args args;
    memset(&args, 0, sizeof args);
    apr_attend_args &a = args.attend;
    a.n_tokens = n_tokens, a.position = position, a.n_heads = n_heads, a.n_kv_heads = 1, a.key_dim = key_dim, a.value_dim = value_dim;
    a.scale = 0.2f, a.n_chosen = n_chosen, a.chosen = chosen.data(), a.q = q.data(), a.out = ref.data();
    a.keys = a.values = cache.on(false, paged);
    a.work = apr_workspace{row.data(), row.size(), 1};
    apr_ref_attend(&args);
    a.chosen = dchosen.device, a.q = dq.device, a.out = out.device, a.keys = a.values = cache.on(true, paged);
    a.work = apr_workspace{work.device, work.n, 1};
    must(apr_cuda_attend(&a, 0), "attend to chosen positions");
    note("attend to chosen positions", distance(out.get(), ref.data()), 2e-5, "");
    apr_attend_args b = as_sequences(a, where.device);
    b.out = each.device;
    must(apr_cuda_attend(&b, 0), "attend to chosen positions");
    note("attend to chosen positions of sequences", distance(each.get(), ref.data()), 2e-5, "");
}

/* The shapes that apr_index_fits_device takes have a kernel, and no others: the plan relies on it. */
static void test_index_limits(void)
{
    const int64_t shapes[][2] = {{2048, 512}, {2048, 513}, {2049, 32}, {1025, 512}, {1025, 513}, {1024, 1024}, {1024, 1025}, {1, 1520}};
    for (const auto &shape : shapes) {
        const test_cache cache(64, shape[1]);
        const device_copy<float> q(normals(shape[1])), weights(normals(1)), out((size_t)apr_index_row(shape[0]));
        apr_index_args a = {};
        a.n_tokens = a.n_heads = 1, a.head_dim = shape[1], a.n_chosen = shape[0], a.position = 40;
        a.q = q.device, a.weights = weights.device, a.keys = cache.on(true, false), a.out = out.device;
        const bool ran = apr_cuda_index(&a, 0) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess;
        note("index limits (verdicts that differ)", ran != apr_index_fits_device(shape[0], shape[1]), 0, "");
    }
}

static void test_sparse(void)
{
    test_index_limits();
    test_sparse_attention(4, 40, 32, 7, 60, 5, false);
    test_sparse_attention(6, 40, 32, 64, 61, 6, true); /* the first tokens attend to all positions */
    test_sparse_attention(3, 24, 16, 33, 200, 1, true);
}

int main(int argc, char **argv)
{
    const modes m = start(argc, argv);
    if (m.tests) {
        test_elementwise();
        test_norm();
        test_angles_and_rope();
        test_sparse();
    }
    return all_within_bounds(m) ? 0 : 1;
}
