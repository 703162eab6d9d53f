/* Two models on one card, as `aprrun bench --synthetic` and `aprrun kld` have them: forecast before anything is there, measured
 * together, random weights that share memory on the host and not on the device, and a model that is there what it is here. */
#include "kernels/cuda_loader.h"
#include "runtime/check/compare.h"
#include "runtime/session/speed.h"
#include "tools/engine/bench/synthetic.h"
#include "tools/verbs/run/memory_print.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { N_IDS = 256, WINDOW = 128 };

static const char shape[] = "tests/data/shapes/qwen2.5-0.5b.json", tiny[] = "tests/data/tiny-qwen2";

static int fail(const char *what, const char *why)
{
    printf("gpu_together: %s: %s\n", what, why);
    return 1;
}

/* The plan that was forecast without a context is the plan that is made with one. */
static bool same_lines(const apr_plan *a, const apr_plan *b)
{
    bool same = a->n_lines == b->n_lines;
    for (size_t i = 0; same && i < a->n_lines; i++) same = a->lines[i].id == b->lines[i].id && a->lines[i].bytes == b->lines[i].bytes;
    return same;
}

static int check_memory(const apr_session *const *sessions, size_t n)
{
    const apr_footprint f = apr_footprint_of(sessions, n);
    apr_report r;

    apr_report_start(&r, &(apr_answer){.json = false}, NULL);
    apr_footprint_report(&r, &f);
    return apr_footprint_as_planned(&f) ? 0 : fail("memory", "not as planned");
}

static int measure_speed(apr_session *session)
{
    const apr_speed_options options = {.n_runs = 3};
    apr_speed_stage stages[] = {{.n_tokens = 200}, {.depth = 200, .n_tokens = 16, .one_by_one = true}};
    bool finite;
    apr_error err = {0};

    if (apr_speed_measure(session, stages, 2, &options, &finite, &err) != APR_OK) return fail("speed", err.text);
    printf("  random weights: prompt %.0f tokens/s, decoding %.0f tokens/s\n", apr_speed_rates(200, stages[0].seconds, 3).median,
           apr_speed_rates(16, stages[1].seconds, 3).median);
    return finite ? 0 : fail("speed", "logits that are not numbers");
}

/* The card against the host, on the same weights. */
static int compare_with_host(apr_session *on_device, const apr_model *model)
{
    apr_session_options host = apr_session_defaults;
    apr_session *here;
    apr_divergence d;
    apr_error err = {0};
    int32_t ids[N_IDS];

    for (int i = 0; i < N_IDS; i++) ids[i] = (i * 37 + 11) % 2000;
    host.n_ctx = WINDOW;
    if (apr_session_open(&here, model, &host, &err) != APR_OK) return fail("the host", err.text);
    const apr_status status = apr_compare_models(here, on_device, ids, N_IDS, WINDOW, NULL, NULL, &d, &err);
    printf("  card against host: mean divergence %.2g, same top token %.4f\n", d.mean, d.same_top);
    const bool same = status == APR_OK && d.mean < 1e-5 && d.same_top > 0.98;
    apr_divergence_close(&d);
    apr_session_close(here);
    return same ? 0 : fail("card against host", status == APR_OK ? "too far apart" : err.text);
}

static int run(const apr_cuda_api *cuda, apr_synthetic *made, apr_model *model, apr_session *sessions[2], apr_error *err)
{
    apr_session_options options = apr_session_defaults;
    apr_plan forecast;

    options.cuda = cuda;
    options.n_ctx = 256;
    if (apr_synthetic_open(made, shape, "q4_k_m", true, err) != APR_OK ||
        apr_session_forecast(&forecast, &made->model, &options, err) != APR_OK || apr_synthetic_fill(made, 1, NULL, err) != APR_OK ||
        apr_session_open(&sessions[0], &made->model, &options, err) != APR_OK)
        return fail(shape, err->text);
    int bad = same_lines(&forecast, apr_session_plan(sessions[0])) ? 0 : fail("forecast", "another plan than that of opening");
    apr_plan_close(&forecast);
    bad += measure_speed(sessions[0]);
    bad += check_memory((const apr_session *const *)sessions, 1);
    if (apr_model_open(model, tiny, err) != APR_OK || apr_session_open(&sessions[1], model, &options, err) != APR_OK)
        return fail(tiny, err->text);
    bad += compare_with_host(sessions[1], model);
    return bad + check_memory((const apr_session *const *)sessions, 2);
}

int main(void)
{
    const apr_cuda_api *cuda;
    apr_synthetic made = {0};
    apr_model model = {0};
    apr_session *sessions[2] = {NULL, NULL};
    apr_error err = {0};
    int n;

    if (apr_cuda_load(&cuda, &err) != APR_OK || cuda->count(&n, &err) != APR_OK) {
        printf("skipped: no device (%s)\n", err.text);
        return 77;
    }
    const int bad = run(cuda, &made, &model, sessions, &err);
    apr_session_close(sessions[1]);
    apr_session_close(sessions[0]);
    apr_model_close(&model);
    apr_synthetic_close(&made);
    return bad > 0;
}
