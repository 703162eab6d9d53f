/* importance_pass.c - sums the squares of inputs by column. */
#include "runtime/calibrate/importance_pass.h"

#include <math.h>
#include <stdlib.h>

apr_status apr_importance_pass_open(apr_importance_pass *p, const apr_layer_inputs *feeds, apr_error *err)
{
    *p = (apr_importance_pass){.feeds = feeds, .of = calloc(feeds->n_feeds + 1, sizeof *p->of)};
    bool has_all = p->of != NULL;
    for (size_t i = 0; i < feeds->n_feeds && has_all; i++) {
        const apr_layer_input *const f = &feeds->feeds[i];
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
    for (size_t i = 0; p->of != NULL && i < p->feeds->n_feeds; i++) {
        free(p->of[i].sums);
        free(p->of[i].counts);
    }
    free(p->of);
    *p = (apr_importance_pass){0};
}

static apr_status add(void *user, size_t feed, int64_t expert, int64_t n_rows, const float *rows, apr_error *err)
{
    const apr_importance_pass *const p = user;
    const int64_t width = p->feeds->feeds[feed].width, e = expert >= 0 ? expert : 0;
    double *const sums = p->of[feed].sums + e * width;
    double all = 0.0;

    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t j = 0; j < width; j++) sums[j] += (double)rows[r * width + j] * (double)rows[r * width + j];
    p->of[feed].counts[e] += (double)n_rows;
    for (int64_t j = 0; j < width; j++) all += sums[j];
    if (isfinite(all)) return APR_OK;
    return apr_fail(err, APR_E_NO,
                    "an input of layer %d is not finite: the importance of this model's weights cannot be measured with this text",
                    p->feeds->feeds[feed].layer);
}

apr_status apr_importance_pass_add(apr_importance_pass *p, apr_session *session, const bool *wanted, const int32_t *ids, int64_t n_ids,
                                   apr_error *err)
{
    const apr_pass pass = {.wanted = wanted, .visit = add, .user = p};
    return apr_layer_inputs_visit(p->feeds, session, &pass, ids, n_ids, err);
}
