/* gpu_reuse.cu - products that follow one another share inputs that were converted to FP16, and never inputs of before a write.
 *
 * Whether a product converted its inputs is found out by overwriting them with a plain copy that the device object does not know of. A
 * product that shares what the one before converted gives the numbers of the old inputs, one that converts those of the new.
 *
 * gpu_reuse [quick]: exit code 0: as it should be, 1: not, 77: no device. */
#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/small_gemm/small_gemm.cuh"
#include "tests/gpu/gpu_weights.cuh"

#include <functional>

extern "C" const apr_cuda_api *apr_cuda_plugin(uint64_t abi);

enum { BLAS_BYTES = 32 << 20, N_IN = 256, N_OUT = 256, OTHER = 1024 };
static const apr_cuda_api *cuda;
static apr_cuda_device *device, *second; /* two on one card */

static void well(apr_status status, const apr_error *err)
{
    if (status == APR_OK) return;
    printf("%s\n", err->text);
    exit(1);
}

/* A product of so many tokens, with two different inputs, and what it makes of each when it begins from nothing. */
struct product_case {
    const int64_t n_tokens;
    matrix *m;
    std::vector<float> first, second, of_first, of_second;
    device_copy<float> x, out, work;
    product_case(apr_dtype dtype, int64_t n)
        : n_tokens(n), m(new_matrix(dtype, N_OUT, N_IN, 0, 0, 0, APR_F32)), first(normals(n * N_IN)), second(normals(n * N_IN)),
          x((size_t)(n * N_IN)), out((size_t)(n * N_OUT)), work(work_floats(n))
    {
        of_second = fresh(second);
        of_first = fresh(first);
    }
    ~product_case() { free_matrix(m); }
    product_case(const product_case &) = delete;
    static size_t work_floats(int64_t n)
    {
        return (apr_cuda_linear_bytes(n, N_IN, N_OUT, false) + apr_cuda_linear_small_gemm_bytes(n, N_IN, 256)) / sizeof(float);
    }
    apr_linear_args args(float *to) const
    {
        apr_linear_args a;
        memset(&a, 0, sizeof a);
        a.n_tokens = n_tokens, a.n_in = N_IN, a.n_out = N_OUT, a.x = x.device, a.weight = &m->device, a.out = to;
        a.work = apr_workspace{work.device, work.n, 1};
        return a;
    }
    void run(float *to) const
    {
        apr_op_args all;
        apr_error err = {};
        memset(&all, 0, sizeof all);
        all.linear = args(to);
        well(cuda->run(device, APR_OP_LINEAR, &all, &err), &err);
    }
    void give(const std::vector<float> &numbers) const
    {
        apr_error err = {};
        well(cuda->upload(device, x.device, numbers.data(), numbers.size() * sizeof(float), &err), &err);
    }
    std::vector<float> fresh(const std::vector<float> &numbers) const
    {
        give(numbers);
        run(out.device);
        return out.get();
    }
    /* Are a product's inputs those that the one before converted, `between` the two? */
    bool shares(const std::function<void(void)> &between) const
    {
        fresh(first);
        between();
        must(cudaDeviceSynchronize(), "between");
        must(cudaMemcpy(x.device, second.data(), second.size() * sizeof(float), cudaMemcpyHostToDevice), "behind the device's back"),
            filled();
        run(out.device);
        const std::vector<float> got = out.get();
        const bool old = differing(got.data(), of_first.data(), got.size() * 4) == 0,
                   now = differing(got.data(), of_second.data(), got.size() * 4) == 0;
        note("numbers of one of the two inputs", old != now ? 0 : 1, 0, "");
        return old;
    }
};

/* What the calls between two products are given; none of it is a product's inputs or workspace. */
static device_copy<float> *buffers[3];
static float *pinned;
static uint8_t host[OTHER * 4];

static void add_buffers(void)
{
    apr_op_args all;
    apr_error err = {};
    memset(&all, 0, sizeof all);
    all.add.n_tokens = 1, all.add.width = OTHER;
    all.add.a = buffers[0]->device, all.add.b = buffers[1]->device, all.add.out = buffers[2]->device;
    well(cuda->run(device, APR_OP_ADD, &all, &err), &err);
}

static apr_cuda_graph *record(const std::function<void(void)> &what)
{
    apr_cuda_graph *graph;
    apr_error err = {};
    well(cuda->record(device, &err), &err);
    what();
    well(cuda->end_record(device, &graph, &err), &err);
    return graph;
}

static void allocate_and_release(bool release)
{
    static void *p;
    apr_error err = {};
    if (release) cuda->release(device, p);
    else well(cuda->alloc(device, 256, "a test", &p, &err), &err);
}

static void prepare_activations_i16(void)
{
    apr_decode_gemv_inputs inputs = {};
    apr_error err = {};
    inputs.n = 256, inputs.x = buffers[0]->device, inputs.activations_out = (uint8_t *)buffers[1]->device;
    well(cuda->decode_gemv_inputs(device, &inputs, &err), &err);
}

/* Refused, as a step of nothing: counts all the same. */
static void refused_prompt(void)
{
    static apr_prompt_args args;
    apr_error err = {};
    note("a prompt's step of nothing is refused", cuda->prompt(device, &args, &err) == APR_E_USAGE ? 0 : 1, 0, "");
}

typedef struct call_between {
    const char *name;
    bool writes;
    std::function<void(apr_error *)> call;
} call_between;

static std::vector<call_between> calls_between(const product_case &p, apr_cuda_graph *graph)
{
    const size_t n = sizeof host;
    float *const a = buffers[0]->device, *const b = buffers[1]->device;
    matrix *const m = p.m;
    return {
        {"nothing", false, [](apr_error *) {}},
        {"a product with other outputs", false, [&p](apr_error *) { p.run(buffers[2]->device); }},
        {"download", false, [=](apr_error *e) { well(cuda->download(device, host, a, n, e), e); }},
        {"receive", false, [=](apr_error *e) { well(cuda->receive(device, pinned, a, n, e), e); }},
        {"check", false, [](apr_error *e) { well(cuda->check(device, "a test", e), e); }},
        {"mark", false, [](apr_error *e) { well(cuda->mark(device, 0, e), e); }},
        {"memory", false,
         [](apr_error *e) {
             uint64_t f, t;
             well(cuda->memory(device, &f, &t, e), e);
         }},
        {"transfer to another", false, [=](apr_error *e) { well(cuda->transfer(device, a, second, b, n, e), e); }},
        {"upload", true, [=](apr_error *e) { well(cuda->upload(device, a, host, n, e), e); }},
        {"upload of these inputs", true, [&p](apr_error *) { p.give(p.first); }},
        {"send", true, [=](apr_error *e) { well(cuda->send(device, a, pinned, n, e), e); }},
        {"clear", true, [=](apr_error *e) { well(cuda->clear(device, a, n, e), e); }},
        {"transfer from another", true, [=](apr_error *e) { well(cuda->transfer(second, a, device, b, n, e), e); }},
        {"transfer within", true, [=](apr_error *e) { well(cuda->transfer(device, a, device, b, n, e), e); }},
        {"an operation", true, [](apr_error *) { add_buffers(); }},
        {"a product in place", true, [&p](apr_error *) { p.run(p.x.device); }},
        {"flow_inputs", true, [](apr_error *) { prepare_activations_i16(); }},
        {"prompt", true, [](apr_error *) { refused_prompt(); }},
        {"decode_f16", true, [=](apr_error *e) { well(cuda->decode_f16(device, &m->device, 0, 1, b, e), e); }},
        {"to_items", true, [=](apr_error *e) { well(cuda->to_tiles(device, APR_Q8_0, b, a, 16, 128, e), e); }},
        {"find_best", true,
         [=](apr_error *e) { well(cuda->topk(device, a, 64, 1, 0, b, (apr_cuda_topk_result *)buffers[2]->device, e), e); }},
        {"column_squares", true, [=](apr_error *e) { well(cuda->column_squares(device, a, 1, 16, (double *)(void *)b, e), e); }},
        {"compare_logits", true,
         [=](apr_error *e) {
             well(cuda->compare_logits(device, a, a, 16, 1, (const int32_t *)(const void *)a,
                                       (apr_cuda_logits_difference *)buffers[2]->device, e),
                  e);
         }},
        {"record", true, [](apr_error *) { cuda->forget(record(add_buffers)); }},
        {"replay", true, [=](apr_error *e) { well(cuda->replay(graph, e), e); }},
        {"alloc", true, [](apr_error *) { allocate_and_release(false); }},
        {"release", true, [](apr_error *) { allocate_and_release(true); }},
    };
}

/* A product that is recorded converts its inputs each time, whatever was there when it was recorded. */
static void test_recorded(const product_case &p)
{
    apr_error err = {};
    p.fresh(p.first);
    apr_cuda_graph *const graph = record([&p] { p.run(p.out.device); });
    p.give(p.second);
    well(cuda->replay(graph, &err), &err);
    note("a recorded product converts what is there when it runs",
         differing(p.out.get().data(), p.of_second.data(), p.of_second.size() * 4), 0, "");
    cuda->forget(graph);
}

static void test_product(apr_dtype dtype, int64_t n_tokens)
{
    const product_case p(dtype, n_tokens);
    apr_cuda_graph *const graph = record(add_buffers);
    for (const call_between &c : calls_between(p, graph)) {
        apr_error err = {};
        char what[96];
        snprintf(what, sizeof what, "%s, %s, %d tokens", c.name, apr_dtypes[dtype].name, (int)n_tokens);
        const bool shares = p.shares([&] { c.call(&err); });
        note(c.writes ? "inputs are converted again after a write" : "inputs are shared", shares == c.writes ? 1 : 0, 0, what);
    }
    test_recorded(p);
    cuda->forget(graph);
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
    well(cuda->open(&second, 0, &options, &err), &err);
    well(cuda->alloc(device, BLAS_BYTES, "workspace", &blas, &err), &err);
    well(cuda->start_blas(device, blas, BLAS_BYTES, &version, &err), &err);
    well(cuda->pin(device, sizeof host, "a test", (void **)&pinned, &err), &err);
    for (device_copy<float> *&b : buffers) b = new device_copy<float>(normals(256 * N_OUT));
    memset(pinned, 0, sizeof host);
    test_product(APR_Q4_K, 16);  /* from packed weights: fragments */
    test_product(APR_F16, 160);  /* through cuBLAS */
    test_product(APR_Q8_0, 160); /* through cuBLAS, in tiles */
    cuda->close(second);
    cuda->close(device);
    for (device_copy<float> *b : buffers) delete b;
    return all_within_bounds(m) ? 0 : 1;
}
