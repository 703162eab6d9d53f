/* gpu_feedback.cu - error feedback on a device against quant/feedback, which defines it.
 *
 *     gpu_feedback              checks
 *     gpu_feedback quick        fewer rows and columns
 *     gpu_feedback TYPE         of one type
 *     gpu_feedback bench        and the time of each step for the matrices of a 7B layer, as a share of what the chip could do
 *
 * Sums: off by at most 2^-9 of the sum of their products' magnitudes. Factors: by cuSOLVER and by the kernels that stand in for it, the
 * host's to float32. Each step, from the same numbers: the same codes but for a named share, where a sum's last bits decide. The whole: the
 * weighed error of a matrix, taken anew in float64 from the bytes, at most 1.001 of the host's; 1.005 where products round their inputs to
 * TF32, and 1.001 for the mean of all. That rounding turns a few codes of these small matrices: 18 rows of 256 are left with 0.9986 to 1.0024
 * of the host's error. Of 36 matrices in one or two bits it was 0.9932 to 1.0040, 0.9996 on average; without the rounding it is 1.000000 of
 * each type. The search of codebooks alone, where wanted values do not depend on the order of sums: the host's codes. */
#include "kernels/cuda/feedback/feedback.cuh"

extern "C" {
#include "kernels/rows.h"
#include "quant/feedback/device_rows.h"
#include "quant/feedback/feedback_device.h"
#include "quant/feedback/lane_rows.h"
const apr_cuda_api *apr_cuda_plugin(uint64_t abi);
}

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <vector>

static const apr_dtype all_types[] = {APR_Q4_0,    APR_Q4_1,   APR_Q5_0,  APR_Q5_1,    APR_Q8_0,   APR_Q4_K,  APR_Q5_K,
                                      APR_Q6_K,    APR_MXFP4,  APR_NVFP4, APR_IQ4_NL,  APR_IQ4_XS, APR_Q2_K,  APR_Q3_K,
                                      APR_IQ2_XXS, APR_IQ2_XS, APR_IQ2_S, APR_IQ3_XXS, APR_IQ3_S,  APR_IQ1_S, APR_IQ1_M,
                                      APR_Q1_0,    APR_Q2_0,   APR_TQ1_0, APR_TQ2_0};

static const apr_cuda_api *api;
static apr_cuda_device *device;
static apr_error err;
static int n_failed, n_checks;

static void must(apr_status status, const char *what)
{
    if (status == APR_OK) return;
    printf("gpu_feedback: %s: %s\n", what, err.text);
    exit(1);
}

static void check(bool good, const char *what, const char *of, double found, double bound)
{
    n_checks++;
    if (!good) n_failed++;
    printf("  %-5s %-34s %-6s %.6g (bound %.6g)\n", good ? "pass" : "FAIL", what, of, found, bound);
}

static uint32_t seed = 1;
static float noise(void)
{
    float sum = 0.0f;
    for (int i = 0; i < 4; i++) {
        seed = seed * 1664525u + 1013904223u;
        sum += (float)(seed >> 8) * 0x1p-24f - 0.5f;
    }
    return sum;
}

/* Inputs that hang together, some much larger, some always zero. */
static std::vector<float> inputs(int64_t n, int64_t n_tokens)
{
    std::vector<float> x((size_t)(n * n_tokens));
    for (int64_t t = 0; t < n_tokens; t++) {
        float drift = 0.0f;
        for (int64_t j = 0; j < n; j++) {
            drift = 0.8f * drift + noise();
            x[(size_t)(t * n + j)] = drift * (j % 37 == 5 ? 6.0f : j % 61 == 7 ? 0.0f : 1.0f);
        }
    }
    return x;
}

/* The third row is zeros. */
static std::vector<float> weights_of(int64_t n, int64_t n_rows)
{
    std::vector<float> w((size_t)(n * n_rows));
    for (int64_t i = 0; i < n * n_rows; i++) w[(size_t)i] = i / n == 2 ? 0.0f : 0.05f * noise();
    return w;
}

template <typename T> static std::vector<T> fetch(const T *from, int64_t n)
{
    std::vector<T> to((size_t)n);
    must(api->download(device, to.data(), from, (uint64_t)n * sizeof(T), &err), "download");
    return to;
}

template <typename T> static T *bring(int64_t n, const T *from)
{
    void *p;
    must(api->alloc(device, (uint64_t)n * sizeof(T), "a test", &p, &err), "memory");
    if (from != NULL) must(api->upload(device, p, from, (uint64_t)n * sizeof(T), &err), "upload");
    return (T *)p;
}

/* ---- a bench: a solver, and the factors of some inputs ---- */

struct bench {
    apr_cuda_solver *solver;
    const char *name;
    uint8_t *libraries;
    uint64_t workspace_bytes;
    apr_cuda_factors factors;
    double *l;
    float *sums;
};

static bench open_bench(int64_t n)
{
    bench b = {};
    b.workspace_bytes = (uint64_t)32 << 20;
    b.libraries = bring<uint8_t>((int64_t)(b.workspace_bytes + apr_cuda_solver_bytes(n)), NULL);
    must(api->feedback->open(device, b.libraries, b.workspace_bytes, &b.solver, &b.name, &err), "solver");
    b.factors.n = n;
    b.factors.h = bring<float>(n * n, NULL);
    b.factors.pull = bring<float>(n * n, NULL);
    b.factors.diagonal = bring<float>(n, NULL);
    b.factors.pivot = bring<float>(n, NULL);
    b.factors.order = bring<int32_t>(n, NULL);
    b.l = bring<double>(n * n, NULL);
    b.sums = bring<float>(n * n, NULL);
    must(api->clear(device, b.sums, (uint64_t)(n * n) * 4, &err), "zeros");
    return b;
}

static void close_bench(bench *b)
{
    api->feedback->close(b->solver);
    void *const all[] = {b->libraries,     b->factors.h, b->factors.pull, b->factors.diagonal, b->factors.pivot,
                         b->factors.order, b->l,         b->sums};
    for (void *p : all) api->release(device, p);
}

/* The host's view of what the device has. */
struct row_copy {
    std::vector<float> h, pull, diagonal, pivot;
    std::vector<int32_t> order;
    apr_feedback feedback;
};

static void read_rows(const bench *b, row_copy *t)
{
    const int64_t n = b->factors.n;
    const std::vector<float> pull = fetch(b->factors.pull, n * n);
    t->h = fetch(b->factors.h, n * n);
    t->diagonal = fetch(b->factors.diagonal, n);
    t->pivot = fetch(b->factors.pivot, n);
    t->order = fetch(b->factors.order, n);
    t->pull.resize(pull.size());
    for (int64_t j = 0; j < n; j++)
        for (int64_t k = 0; k < n; k++) t->pull[(size_t)(k * n + j)] = pull[(size_t)(j * n + k)];
    t->feedback = {};
    t->feedback.n = n;
    t->feedback.h = t->h.data();
    t->feedback.pull = t->pull.data();
    t->feedback.diagonal = t->diagonal.data();
    t->feedback.pivot = t->pivot.data();
    t->feedback.order = t->order.data();
}

/* ---- sums ---- */

static void check_sums(bench *b, const std::vector<float> &x, int64_t n_tokens)
{
    const int64_t n = b->factors.n, half = n_tokens / 2;
    float *const there = bring<float>(n * n_tokens, x.data());
    must(api->feedback->add(b->solver, b->sums, n, there, half, &err), "sums");
    must(api->feedback->add(b->solver, b->sums, n, there + half * n, n_tokens - half, &err), "sums");
    const std::vector<float> sums = fetch(b->sums, n * n);
    double worst = 0.0;
    for (int64_t i = 0; i < n; i += 7)
        for (int64_t j = 0; j <= i; j += 5) {
            double sum = 0.0, size = 0.0;
            for (int64_t t = 0; t < n_tokens; t++) {
                const double v = (double)x[(size_t)(t * n + i)] * (double)x[(size_t)(t * n + j)];
                sum += v, size += fabs(v);
            }
            worst = fmax(worst, fabs((double)sums[(size_t)(i * n + j)] - sum) / (size > 0.0 ? size : 1.0));
        }
    check(worst <= 0x1p-9, "sums of inputs", "", worst, 0x1p-9);
    api->release(device, there);
}

/* ---- factors ---- */

static double mean_of(const std::vector<float> &sums, int64_t n)
{
    double sum = 0.0;
    for (int64_t j = 0; j < n; j++) sum += (double)sums[(size_t)(j * (n + 1))];
    return sum / (double)n;
}

static void factorise(bench *b, const std::vector<float> &sums, const int32_t *order, double damping)
{
    const int64_t n = b->factors.n;
    bool done = false;
    must(api->upload(device, b->factors.order, order, (uint64_t)n * 4, &err), "order");
    must(api->feedback->merge(b->solver, b->factors.h, b->sums, n, true, &err), "merging");
    const double scale = 1.0 / mean_of(sums, n);
    must(api->feedback->factorise(b->solver, &b->factors, scale, damping, b->l, b->libraries + b->workspace_bytes, &done, &err), "factors");
    check(done, "there are factors", "", done, 1.0);
    must(api->feedback->finish(b->solver, &b->factors, scale, damping, b->l, &err), "factors");
}

/* group: columns that stay together in the order. */
static void check_factors(bench *b, const char *by, int group)
{
    const int64_t n = b->factors.n;
    const std::vector<float> sums = fetch(b->sums, n * n);
    apr_feedback_options options = {};
    apr_hessian h;
    apr_feedback f;
    row_copy t;
    double worst = 0.0, worst_h = 0.0, largest = 0.0, worst_pivot = 0.0;

    options.group = group;
    must(apr_hessian_open(&h, n, &err), "a Hessian");
    for (int64_t i = 0; i < n * n; i++) h.sum[i] = (double)sums[(size_t)i];
    h.n_tokens = 1;
    must(apr_feedback_prepare(&f, &h, &options, "a test", &err), "factors of the host");
    factorise(b, sums, f.order, f.damping);
    read_rows(b, &t);
    for (int64_t k = 0; k < n; k++) {
        worst_pivot = fmax(worst_pivot, fabs((double)t.pivot[(size_t)k] / (double)f.pivot[k] - 1.0));
        for (int64_t j = 0; j < n; j++) {
            worst_h = fmax(worst_h, fabs((double)t.h[(size_t)(k * n + j)] - (double)f.h[k * n + j]) /
                                        sqrt((double)f.h[k * (n + 1)] * (double)f.h[j * (n + 1)]));
            if (j >= k) continue;
            worst = fmax(worst, fabs((double)t.pull[(size_t)(k * n + j)] - (double)f.pull[k * n + j]));
            largest = fmax(largest, fabs((double)f.pull[k * n + j]));
        }
    }
    check(worst_pivot <= 1e-6, "pivots", by, worst_pivot, 1e-6);
    check(worst <= 1e-5 * largest, "factors by", by, worst / largest, 1e-5);
    check(worst_h <= 1e-6, "sums, damped", "", worst_h, 1e-6);
    apr_feedback_close(&f);
    apr_hessian_close(&h);
}

/* Not positive: no damping, and a column that says the opposite of another. */
static void check_refusal(bench *b)
{
    const int64_t n = b->factors.n;
    std::vector<float> h((size_t)(n * n), 0.0f);
    bool done = true;
    for (int64_t i = 0; i < n; i++) h[(size_t)(i * (n + 1))] = 1.0f;
    h[(size_t)(70 * n + 3)] = h[(size_t)(3 * n + 70)] = 2.0f;
    must(api->upload(device, b->factors.h, h.data(), (uint64_t)(n * n) * 4, &err), "upload");
    must(api->feedback->factorise(b->solver, &b->factors, 1.0, 0.0, b->l, b->libraries + b->workspace_bytes, &done, &err), "factors");
    check(!done, "what has no factors is said to", "", done, 0.0);
}

/* ---- single steps ---- */

enum { STEP_ROUND, STEP_DESCEND, STEP_RESCALE, STEP_REFIT, STEPS };
static const char *const step_names[STEPS] = {"round: codes that differ", "descend: codes that differ", "descend with scales: codes",
                                              "refit: blocks that differ"};

static void host_step(int step, const apr_feedback *f, apr_dtype dtype, const std::vector<float> &w, int64_t n_rows,
                      std::vector<uint8_t> *bytes)
{
    const int64_t row_bytes = apr_row_bytes(dtype, f->n);
    apr_lane_rows rows;
    must(apr_lane_rows_open(&rows, f, apr_grid_of(dtype), &err), "rows");
    for (int64_t first = 0; first < n_rows; first += APR_LANES) {
        const int now = (int)(n_rows - first < APR_LANES ? n_rows - first : (int64_t)APR_LANES);
        apr_lane_rows_load(&rows, w.data() + first * f->n, bytes->data() + first * row_bytes, row_bytes, now);
        if (step == STEP_ROUND) apr_lane_rows_round(&rows);
        if (step == STEP_DESCEND || step == STEP_RESCALE) apr_lane_rows_descend(&rows, step == STEP_RESCALE);
        if (step == STEP_REFIT) apr_lane_rows_refit(&rows);
        apr_lane_rows_store(&rows, bytes->data() + first * row_bytes, row_bytes);
    }
    apr_lane_rows_close(&rows);
}

static void device_step(int step, apr_cuda_solver *solver, const apr_cuda_feedback_rows *lanes)
{
    const apr_cuda_feedback *const f = api->feedback;
    if (step == STEP_ROUND) must(f->round(solver, lanes, &err), "round");
    if (step == STEP_DESCEND || step == STEP_RESCALE) must(f->descend(solver, lanes, step == STEP_RESCALE, &err), "descend");
    if (step == STEP_REFIT) must(f->refit(solver, lanes, &err), "refit");
}

static std::vector<uint8_t> encoded_by(apr_dtype dtype, const std::vector<float> &w, const float *importance, int64_t n)
{
    std::vector<uint8_t> bytes((size_t)apr_row_bytes(dtype, (int64_t)w.size()));
    const int64_t row_bytes = apr_row_bytes(dtype, n);
    for (int64_t r = 0; r < (int64_t)w.size() / n; r++) {
        if (apr_ref_codecs[dtype].encode_by != NULL)
            apr_ref_codecs[dtype].encode_by(w.data() + r * n, importance, bytes.data() + r * row_bytes, n);
        else apr_ref_codecs[dtype].encode(w.data() + r * n, bytes.data() + r * row_bytes, n);
    }
    return bytes;
}

/* All steps of one type one after another, each from what the host has come to. */
static void check_steps(bench *b, apr_dtype dtype, int64_t n_rows)
{
    const int64_t n = b->factors.n;
    const apr_grid *const grid = apr_grid_of(dtype);
    const std::vector<float> w = weights_of(n, n_rows);
    row_copy t;
    apr_device_rows m, host_m;

    if (n % grid->elems != 0) return;
    read_rows(b, &t);
    uint8_t *const memory = bring<uint8_t>((int64_t)apr_lane_bytes_of(grid, dtype, n, n_rows), NULL);
    must(apr_device_rows_open(&m, grid, dtype, &b->factors, n_rows, memory, &err), "rows");
    must(apr_device_rows_open(&host_m, grid, dtype, &b->factors, n_rows, memory, &err), "rows");
    must(api->upload(device, m.on_device.weight, w.data(), (uint64_t)(n * n_rows) * 4, &err), "weights");
    must(api->feedback->start(b->solver, dtype, &m.on_device, m.blocks, &err), "start");
    std::vector<uint8_t> bytes = encoded_by(dtype, w, t.diagonal.data(), n);
    const bool same = fetch(m.blocks, (int64_t)bytes.size()) == bytes;
    check(same, "start: the encoder's bytes", apr_dtypes[dtype].name, same ? 0.0 : 1.0, 0.0);
    for (int step = 0; step < STEPS; step++) {
        const bool scales_only = step == STEP_REFIT;
        apr_lanes_unpack(dtype, &m.on_host, bytes.data());
        must(api->upload(device, m.on_device.code, m.on_host.code, m.parts_bytes, &err), "codes");
        must(api->feedback->errors(b->solver, &m.on_device, &err), "errors");
        device_step(step, b->solver, &m.on_device);
        must(api->download(device, m.on_host.code, m.on_device.code, m.parts_bytes, &err), "codes");
        host_step(step, &t.feedback, dtype, w, n_rows, &bytes);
        apr_lanes_unpack(dtype, &host_m.on_host, bytes.data());
        int64_t n_different = 0;
        const int64_t n_all = scales_only ? n * n_rows / grid->elems : n * n_rows;
        for (int64_t i = 0; i < n_all; i++)
            n_different += scales_only ? m.on_host.d[i] != host_m.on_host.d[i] || m.on_host.dmin[i] != host_m.on_host.dmin[i]
                                       : m.on_host.code[i] != host_m.on_host.code[i];
        check((double)n_different <= 0.01 * (double)n_all, step_names[step], apr_dtypes[dtype].name, (double)n_different / (double)n_all,
              0.01);
    }
    apr_device_rows_close(&m);
    apr_device_rows_close(&host_m);
    api->release(device, memory);
}

/* ---- the whole ---- */

static double true_error(const apr_feedback *f, apr_dtype dtype, const std::vector<float> &w, const uint8_t *bytes)
{
    std::vector<float> values(w.size());
    std::vector<double> e((size_t)f->n);
    double sum = 0.0;
    apr_ref_codecs[dtype].decode(bytes, values.data(), (int64_t)w.size());
    for (size_t r = 0; r < w.size(); r += (size_t)f->n) {
        for (size_t i = 0; i < (size_t)f->n; i++) e[i] = (double)w[r + i] - (double)values[r + i];
        for (size_t i = 0; i < (size_t)f->n; i++) {
            double row = 0.0;
            for (size_t j = 0; j < (size_t)f->n; j++) row += (double)f->h[i * (size_t)f->n + j] * e[j];
            sum += e[i] * row;
        }
    }
    return sum;
}

static double log_ratios; /* of weighed errors, to the host's */
static int n_ratios;

static void check_whole(apr_dtype dtype, int64_t n, int64_t n_rows, const std::vector<float> &x, int64_t n_tokens)
{
    const std::vector<float> w = weights_of(n, n_rows);
    apr_feedback_options options = {};
    apr_feedback_plan plan = {};
    apr_feedback_device *gpu;
    apr_device_sums sums = {};
    const apr_device_sums *const all[] = {&sums};
    apr_feedback_errors e, host_e;
    bool is_empty;

    if (n % apr_grid_of(dtype)->elems != 0) return;
    options.group = apr_feedback_group(dtype);
    must(apr_feedback_plan_item(&plan, dtype, n_rows, n, &err), "plan");
    must(apr_feedback_device_open(&gpu, api, device, &plan, &err), "opening");
    must(apr_device_sums_add(gpu, &sums, n, x.data(), false, n_tokens, &err), "sums");
    must(apr_feedback_device_prepare(gpu, all, 1, &options, "a test", &is_empty, &err), "factors");
    std::vector<uint8_t> there((size_t)apr_row_bytes(dtype, n * n_rows));
    must(apr_feedback_device_encode(gpu, dtype, w.data(), n_rows, &options, "a test", there.data(), &e, &err), "encoding");

    apr_hessian h;
    apr_feedback f;
    const std::vector<float> read = fetch(sums.at, n * n);
    must(apr_hessian_open(&h, n, &err), "a Hessian");
    for (int64_t i = 0; i < n * n; i++) h.sum[i] = (double)read[(size_t)i];
    must(apr_feedback_prepare(&f, &h, &options, "a test", &err), "factors of the host");
    std::vector<uint8_t> here = encoded_by(dtype, w, f.diagonal, n);
    must(apr_feedback_encode(&f, dtype, w.data(), n_rows, &options, "a test", here.data(), &host_e, &err), "the host");
    const double ours = true_error(&f, dtype, w, there.data()), theirs = true_error(&f, dtype, w, here.data());
    const double bound = apr_feedback_group(dtype) == 8 ? 1.001 : 1.005;
    check(ours <= bound * theirs, "weighed error, of the host's", apr_dtypes[dtype].name, ours / theirs, bound);
    log_ratios += log(ours / theirs);
    n_ratios++;
    check(fabs(e.end / ours - 1.0) < 1e-3, "what it says of it, of what it is", apr_dtypes[dtype].name, e.end / ours, 1.001);
    check(e.end <= e.rounded && e.rounded < e.start, "no step is worse", apr_dtypes[dtype].name, e.end / e.start, 1.0);
    apr_feedback_close(&f);
    apr_hessian_close(&h);
    apr_device_sums_drop(gpu, &sums);
    apr_feedback_device_close(gpu);
}

/* ---- time ---- */

static double now(void)
{
    struct timespec t;
    must(api->check(device, "a bench", &err), "waiting");
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void say(const char *what, double seconds, double flops, double peak)
{
    printf("  bench %-44s %9.2f ms", what, 1e3 * seconds);
    if (flops > 0.0) printf("  %7.1f TFLOP/s, %3.0f %% of %.0f", flops / seconds * 1e-12, 100.0 * flops / seconds * 1e-12 / peak, peak);
    printf("\n");
    fflush(stdout);
}

/* One matrix of the 7B shape. Peaks are an H200's: 67 TFLOP/s in float32 and in float64 by tensor cores, 495 in TF32. */
static void measure(int64_t n, int64_t n_rows, apr_dtype dtype)
{
    const apr_grid *const grid = apr_grid_of(dtype);
    const double square = (double)n * (double)n, pass = 2.0 * square * (double)n_rows;
    const std::vector<float> x = inputs(n, 512);
    bench b = open_bench(n);
    char name[96];

    printf("  bench %lld rows of %lld to %s, factors by %s\n", (long long)n_rows, (long long)n, apr_dtypes[dtype].name, b.name);
    float *const there = bring<float>(n * 512, x.data());
    must(api->feedback->add(b.solver, b.sums, n, there, 512, &err), "sums"); /* warms up */
    double start = now();
    for (int i = 0; i < 40; i++) must(api->feedback->add(b.solver, b.sums, n, there, 512, &err), "sums");
    say("sums of 20,480 tokens", now() - start, 40.0 * 2.0 * 512.0 * square, 495.0);
    const std::vector<float> sums = fetch(b.sums, n * n);
    std::vector<double> diagonal((size_t)n);
    std::vector<int32_t> order((size_t)n);
    for (int64_t j = 0; j < n; j++) diagonal[(size_t)j] = (double)sums[(size_t)(j * (n + 1))];
    must(apr_feedback_order(diagonal.data(), n, apr_feedback_group(dtype), false, order.data(), &err), "order");
    for (int i = 0; i < 2; i++) {
        start = now();
        factorise(&b, sums, order.data(), 0.01);
        say(i == 0 ? "factors, the first time" : "factors", now() - start, square * (double)n / 3.0, 67.0);
    }
    const uint64_t bytes = apr_lane_bytes_of(grid, dtype, n, n_rows);
    uint8_t *const memory = bring<uint8_t>((int64_t)bytes, NULL);
    const std::vector<float> w = weights_of(n, n_rows);
    apr_device_rows m;
    must(apr_device_rows_open(&m, grid, dtype, &b.factors, n_rows, memory, &err), "rows");
    std::vector<uint8_t> blocks((size_t)apr_row_bytes(dtype, n * n_rows));
    start = now();
    must(api->upload(device, m.on_device.weight, w.data(), (uint64_t)(n * n_rows) * 4, &err), "weights");
    say("weights to the device", now() - start, 0.0, 1.0);
    start = now();
    must(api->feedback->start(b.solver, dtype, &m.on_device, m.blocks, &err), "start");
    say("the encoder", now() - start, 0.0, 1.0);
    start = now();
    must(api->download(device, blocks.data(), m.blocks, blocks.size(), &err), "blocks");
    apr_lanes_unpack(dtype, &m.on_host, blocks.data());
    must(api->upload(device, m.on_device.code, m.on_host.code, m.parts_bytes, &err), "codes");
    say("blocks to the host, codes back", now() - start, 0.0, 1.0);
    must(api->feedback->errors(b.solver, &m.on_device, &err), "errors");
    for (int step = 0; step <= STEPS; step++) {
        start = now();
        if (step == STEPS) must(api->feedback->objective(b.solver, &m.on_device, &err), "objective");
        else device_step(step, b.solver, &m.on_device);
        snprintf(name, sizeof name, "%s", step == STEPS ? "the error of outputs" : step_names[step]);
        say(name, now() - start, step == STEP_ROUND ? pass / 2.0 : pass, 67.0);
    }
    apr_device_rows_close(&m);
    api->release(device, memory);
    api->release(device, there);
    close_bench(&b);
}

/* ---- the search of codebooks ---- */

/* Factors in which only columns of a group of eight pull each other. Then wanted values do not depend on the order of sums, and codes must
 * be the host's, of ordinary rows, of rows of zeros, and of rows too large or too small for their steps. */
static void check_search(apr_dtype dtype, int64_t n, int64_t n_rows)
{
    enum { GROUP = 8 };
    static const float sizes[] = {1.0f, 1.0f, 0.0f, 30.0f, 1e-3f, 1e12f};
    const apr_grid *const grid = apr_grid_of(dtype);
    std::vector<float> pull((size_t)(n * n), 0.0f), pivot((size_t)n), w = weights_of(n, n_rows), small = w;
    std::vector<int32_t> order((size_t)n);
    bench b = open_bench(n);
    row_copy t;
    apr_device_rows m;

    for (int64_t k = 0; k < n; k++) {
        const int64_t first = k / GROUP * GROUP;
        order[(size_t)k] = (int32_t)(n - GROUP - first + k % GROUP);
        pivot[(size_t)k] = 0.02f + noise() * noise();
        for (int64_t j = first; j < k; j++) pull[(size_t)(j * n + k)] = noise();
    }
    for (int64_t i = 0; i < n * n_rows; i++) w[(size_t)i] *= sizes[i / n % (int64_t)(sizeof sizes / sizeof *sizes)];
    must(api->upload(device, b.factors.pull, pull.data(), (uint64_t)(n * n) * 4, &err), "pull");
    must(api->upload(device, b.factors.pivot, pivot.data(), (uint64_t)n * 4, &err), "pivots");
    must(api->upload(device, b.factors.order, order.data(), (uint64_t)n * 4, &err), "order");
    read_rows(&b, &t);
    uint8_t *const memory = bring<uint8_t>((int64_t)apr_lane_bytes_of(grid, dtype, n, n_rows), NULL);
    must(apr_device_rows_open(&m, grid, dtype, &b.factors, n_rows, memory, &err), "rows");
    must(api->upload(device, m.on_device.weight, w.data(), (uint64_t)(n * n_rows) * 4, &err), "weights");
    const std::vector<float> even((size_t)n, 1.0f);
    std::vector<uint8_t> bytes = encoded_by(dtype, small, even.data(), n); /* steps of rows of the first size */
    apr_lanes_unpack(dtype, &m.on_host, bytes.data());
    for (int64_t block = 0; block < n * n_rows / grid->elems; block += 7) m.on_host.d[block] = 0; /* codes stay as they are */
    std::vector<uint16_t> d(m.on_host.d, m.on_host.d + n * n_rows / grid->elems);
    must(api->upload(device, m.on_device.code, m.on_host.code, m.parts_bytes, &err), "codes");
    device_step(STEP_ROUND, b.solver, &m.on_device);
    must(api->download(device, m.on_host.code, m.on_device.code, m.parts_bytes, &err), "codes");
    const std::vector<float> left = fetch(m.on_device.error, n * n_rows);
    int64_t n_different = 0;
    const int64_t row_bytes = apr_row_bytes(dtype, n);
    apr_lane_rows rows;
    must(apr_lane_rows_open(&rows, &t.feedback, grid, &err), "rows");
    for (int64_t first = 0; first < n_rows; first += APR_LANES) {
        const int now = (int)(n_rows - first < APR_LANES ? n_rows - first : (int64_t)APR_LANES);
        apr_lane_rows_load(&rows, w.data() + first * n, bytes.data() + first * row_bytes, row_bytes, now);
        for (int lane = 0; lane < now; lane++)
            for (int64_t sub = 0; sub < rows.n_subs; sub++)
                if (d[(size_t)((first + lane) * rows.n_blocks + sub * grid->sub_elems / grid->elems)] == 0)
                    rows.step[sub * APR_LANES + lane] = rows.inverse[sub * APR_LANES + lane] = 0.0f;
        apr_lane_rows_round(&rows);
        for (int lane = 0; lane < now; lane++)
            for (int64_t i = 0; i < n; i++)
                n_different += (float)m.on_host.code[(first + lane) * n + i] != rows.code[i * APR_LANES + lane] ||
                               left[(size_t)((first + lane) * n + i)] != rows.error[i * APR_LANES + lane];
    }
    check(n_different == 0, "search: values that differ", apr_dtypes[dtype].name, (double)n_different / (double)(n * n_rows), 0.0);
    apr_lane_rows_close(&rows);
    apr_device_rows_close(&m);
    api->release(device, memory);
    close_bench(&b);
}

/* only: the name of the one type that is checked, or NULL. */
static bool is_chosen(apr_dtype dtype, const char *only) { return only == NULL || strcmp(only, apr_dtypes[dtype].name) == 0; }

/* least: types with fewer columns of a sub-block are left out. */
static void check_all(int64_t n, int64_t n_rows, const char *only, int least)
{
    const int64_t n_tokens = 2 * n;
    const std::vector<float> x = inputs(n, n_tokens);
    bench b = open_bench(n);

    printf("%lld inputs, %lld rows\n", (long long)n, (long long)n_rows);
    check_sums(&b, x, n_tokens);
    printf("  factors by %s\n", b.name);
    check_factors(&b, b.solver->dense != NULL ? "cuSOLVER" : "own", 1);
    void *const dense = b.solver->dense;
    b.solver->dense = NULL;
    check_refusal(&b);
    check_factors(&b, "own kernels", 1);
    b.solver->dense = dense;
    std::vector<apr_dtype> types;
    for (apr_dtype dtype : all_types)
        if (is_chosen(dtype, only) && apr_grid_of(dtype)->sub_elems >= least) types.push_back(dtype);
    for (apr_dtype dtype : types)
        if (apr_feedback_group(dtype) == 1) check_steps(&b, dtype, n_rows);
    if (n % 8 == 0) check_factors(&b, "of groups", 8);
    for (apr_dtype dtype : types)
        if (apr_feedback_group(dtype) == 8) check_steps(&b, dtype, n_rows);
    close_bench(&b);
    for (apr_dtype dtype : types) check_whole(dtype, n, n_rows, x, n_tokens);
}

int main(int argc, char **argv)
{
    const apr_cuda_options options = {};
    const bool is_bench = argc > 1 && strcmp(argv[1], "bench") == 0;
    const bool is_quick = argc > 1 && strcmp(argv[1], "quick") == 0;
    const char *const only = argc > 1 && !is_bench && !is_quick ? argv[1] : NULL;
    int n_devices = 0;

    api = apr_cuda_plugin(apr_cuda_build.abi);
    if (api == NULL || api->count(&n_devices, &err) != APR_OK) {
        printf("skipped: no device\n");
        return 77;
    }
    must(api->open(&device, 0, &options, &err), "the device");
    for (apr_dtype dtype : all_types)
        if (is_chosen(dtype, only) && apr_feedback_group(dtype) == 8) check_search(dtype, 256, 33);
    if (is_quick) check_all(256, 18, NULL, 0);
    else {
        check_all(512, 100, only, 0);
        check_all(416, 33, only, 0); /* a panel that is not full; no K-quants */
        for (apr_dtype dtype : all_types)
            if (is_chosen(dtype, only) && apr_feedback_group(dtype) == 8) check_search(dtype, 768, 19);
    }
    check_all(384, is_quick ? 19 : 75, only, 64); /* a panel of one block of Q1_0, or two of Q2_0 */
    check_all(448, is_quick ? 17 : 75, only, 64); /* of three of Q2_0 */
    if (is_bench) {
        measure(3584, 18944, APR_Q4_K);
        measure(18944, 3584, APR_Q6_K);
        for (apr_dtype dtype : all_types)
            if (apr_feedback_group(dtype) == 8) measure(3584, 18944, dtype);
        measure(18944, 3584, APR_IQ2_XXS);
        for (apr_dtype dtype : {APR_Q1_0, APR_Q2_0, APR_TQ2_0}) measure(3584, 18944, dtype);
        measure(18944, 3584, APR_TQ2_0);
    }
    const double mean = exp(log_ratios / fmax(n_ratios, 1));
    check(mean <= 1.001, "weighed error, mean of all", "", mean, 1.001);
    printf("gpu_feedback: %d checks, %d failed\n", n_checks, n_failed);
    api->close(device);
    return n_failed > 0 || n_checks == 0;
}
