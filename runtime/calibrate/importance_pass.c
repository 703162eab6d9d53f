/* importance_pass.c - sums the squares of inputs by column. */
#include "runtime/calibrate/importance_pass.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

apr_status apr_importance_pass_open(apr_importance_pass *p, const apr_layer_inputs *inputs, apr_error *err)
{
    *p = (apr_importance_pass){.inputs = inputs, .of = calloc(inputs->n_inputs + 1, sizeof *p->of)};
    bool has_all = p->of != NULL;
    for (size_t i = 0; i < inputs->n_inputs && has_all; i++) {
        const apr_layer_input *const f = &inputs->inputs[i];
        apr_layer_input_sums *const s = &p->of[i];
        s->n_matrices = f->n_experts > 0 ? f->n_experts : 1;
        s->sums = calloc((size_t)(s->n_matrices * f->width) + 1, sizeof *s->sums);
        s->counts = calloc((size_t)s->n_matrices + 1, sizeof *s->counts);
        has_all = s->sums != NULL && s->counts != NULL;
    }
    if (has_all) return APR_OK;
    apr_importance_pass_close(p);
    return apr_no_memory(err, "sums of squares");
}

void apr_importance_pass_close(apr_importance_pass *p)
{
    for (size_t i = 0; p->of != NULL && i < p->inputs->n_inputs; i++) {
        free(p->of[i].sums);
        free(p->of[i].counts);
    }
    free(p->of);
    *p = (apr_importance_pass){0};
}

/* Sums in the memory of a GPU, during some windows. */
typedef struct gpu_sums {
    const apr_importance_pass *pass;
    const apr_cuda_api *cuda;
    apr_cuda_device *device;
    double *sums;   /* on the device: the sums of all inputs without experts, one after another */
    int64_t *first; /* [n_inputs] of each; -1: an input of experts */
    int64_t n;
} gpu_sums;

static apr_status not_finite(const apr_importance_pass *p, size_t input, apr_error *err)
{
    return apr_fail(err, APR_E_NO,
                    "an input of layer %d is not finite: the importance of this model's weights cannot be measured with this text",
                    p->inputs->inputs[input].layer);
}

static bool is_finite(const double *sums, int64_t n)
{
    double all = 0.0;
    for (int64_t j = 0; j < n; j++) all += sums[j];
    return isfinite(all);
}

static apr_status add(void *user, size_t input, int64_t expert, int64_t n_rows, const float *rows, apr_error *err)
{
    const apr_importance_pass *const p = ((const gpu_sums *)user)->pass;
    const int64_t width = p->inputs->inputs[input].width, e = expert >= 0 ? expert : 0;
    double *const sums = p->of[input].sums + e * width;

    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t j = 0; j < width; j++) sums[j] += (double)rows[r * width + j] * (double)rows[r * width + j];
    p->of[input].counts[e] += (double)n_rows;
    return is_finite(sums, width) ? APR_OK : not_finite(p, input, err);
}

/* --- on a GPU: the sums are where the rows are, during some windows --- */

/* Allocates them; sums stays NULL if the session is not on one GPU, or the GPU has no memory left for it: then the host adds. */
static apr_status open_on_gpu(gpu_sums *g, const apr_importance_pass *p, const apr_session *session, apr_error *err)
{
    void *there = NULL;

    *g = (gpu_sums){.pass = p, .first = calloc(p->inputs->n_inputs + 1, sizeof *g->first)};
    if (g->first == NULL) return apr_no_memory(err, "sums of squares");
    for (size_t i = 0; i < p->inputs->n_inputs; i++) {
        const bool has_experts = p->inputs->inputs[i].n_experts > 0;
        g->first[i] = has_experts ? -1 : g->n;
        if (!has_experts) g->n += p->inputs->inputs[i].width;
    }
    g->device = apr_session_n_places(session) == 1 ? apr_trace_device(session, &g->cuda) : NULL;
    if (g->device == NULL || g->n == 0) return APR_OK;
    if (g->cuda->alloc(g->device, (uint64_t)g->n * sizeof *g->sums, "sums of squares", &there, NULL) == APR_OK) g->sums = there;
    return APR_OK;
}

static void close_on_gpu(gpu_sums *g)
{
    if (g->sums != NULL) g->cuda->release(g->device, g->sums);
    free(g->first);
}

/* Copies all sums to the device before the windows, and back after them, in one piece. */
static apr_status copy_sums(const gpu_sums *g, bool back, apr_error *err)
{
    const size_t n_bytes = (size_t)g->n * sizeof(double);
    double *const all = malloc(n_bytes + 1);
    apr_status status = all == NULL ? apr_no_memory(err, "sums of squares")
                        : back      ? g->cuda->download(g->device, all, g->sums, n_bytes, err)
                                    : APR_OK;

    for (size_t i = 0; i < g->pass->inputs->n_inputs && status == APR_OK; i++) {
        const int64_t width = g->pass->inputs->inputs[i].width;
        double *const here = g->pass->of[i].sums, *const there = all + g->first[i];
        if (g->first[i] < 0) continue;
        memcpy(back ? here : there, back ? there : here, (size_t)width * sizeof *here);
        if (back && !is_finite(here, width)) status = not_finite(g->pass, i, err);
    }
    if (status == APR_OK && !back) status = g->cuda->upload(g->device, g->sums, all, n_bytes, err);
    free(all);
    return status;
}

static apr_status add_on_gpu(void *user, size_t input, int64_t n_rows, const float *rows, apr_error *err)
{
    const gpu_sums *const g = user;
    g->pass->of[input].counts[0] += (double)n_rows;
    return g->cuda->column_squares(g->device, rows, n_rows, g->pass->inputs->inputs[input].width, g->sums + g->first[input], err);
}

apr_status apr_importance_pass_add(apr_importance_pass *p, apr_session *session, const bool *wanted, const int32_t *ids, int64_t n_ids,
                                   int64_t n_windows, apr_error *err)
{
    gpu_sums g;
    apr_status status = open_on_gpu(&g, p, session, err);
    const apr_pass pass = {.wanted = wanted, .visit = add, .visit_device = g.sums != NULL ? add_on_gpu : NULL, .queues = true, .user = &g};

    if (status == APR_OK && g.sums != NULL) status = copy_sums(&g, false, err);
    for (int64_t i = 0; i < n_windows && status == APR_OK; i++)
        status = apr_layer_inputs_visit(p->inputs, session, &pass, ids + i * n_ids, n_ids, err);
    if (status == APR_OK && g.sums != NULL) status = copy_sums(&g, true, err);
    close_on_gpu(&g);
    return status;
}
