/* gpu_ops.cu - the launchers that read no weights and no cache (angles, rope, norm, glu, add) against kernels/ref on random inputs.
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
    static const struct {
        int64_t width, chunk;
    } shapes[] = {{7, 7}, {896, 896}, {3584, 3584}, {5120, 5120}, {1001, 1001}, {8 * 128, 128}, {14 * 64, 64}, {3 * 80, 80}};
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

int main(int argc, char **argv)
{
    const modes m = start(argc, argv);
    if (m.tests) {
        test_elementwise();
        test_norm();
        test_angles_and_rope();
    }
    return all_within_bounds(m) ? 0 : 1;
}
