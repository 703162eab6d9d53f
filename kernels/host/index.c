/* index.c - the index of sparse attention on the host.
 *
 * A thread takes tokens or, where there are fewer tokens than threads, a part of the positions of a token. Which positions are the best does
 * not depend on how they are divided. */
#include "kernels/host/host_ops.h"
#include "kernels/host/lanes.h"
#include "kernels/ref/choose.h"

/* Positions [first, end) of a token. */
typedef struct part {
    const apr_index_args *a;
    int64_t token, first, end;
    bool in_float64;
    float *key;
    apr_choice choice;
} part;

LANES_INLINE float score_of(const lanes_shape shape, const part *p)
{
    const apr_index_args *const a = p->a;
    const int64_t dim = a->head_dim;
    const float *const q = a->q + p->token * a->n_heads * dim, *const weights = a->weights + p->token * a->n_heads;
    double score = 0.0;
    float dots[4][6];

    for (int64_t h = 0; h < a->n_heads; h++) {
        if (!p->in_float64) lanes_dots(shape, 1, 1, p->key, dim, q + h * dim, dim, dim, dots);
        const double dot = p->in_float64 ? lanes_dot_f64(shape, q + h * dim, p->key, dim) : (double)dots[0][0];
        score += dot > 0.0 ? (double)weights[h] * dot : 0.0;
    }
    return (float)(score * (double)a->scale);
}

LANES_INLINE void choose_body(const lanes_shape shape, part *p)
{
    const apr_cache *const keys = &p->a->keys;

    for (int64_t at = p->first; at < p->end; at++) {
        apr_host_codecs()[keys->dtype].decode(keys->data + apr_cache_cell(keys, at) * keys->row_bytes, p->key, p->a->head_dim);
        apr_choice_add(&p->choice, score_of(shape, p), (float)at);
    }
}

LANES_CLONES(choose_part, choose_body, (part * p), p)

static float *slice_of(const apr_index_args *a, int64_t i) { return a->work.data + (size_t)i * a->work.slice; }

/* Part i of n_parts of a token's positions, in slice `slice` of the workspace. */
static part part_of(const apr_index_args *a, int64_t token, int64_t i, int64_t n_parts, int64_t slice)
{
    const int64_t n = a->position + token + 1;
    return (part){.a = a,
                  .token = token,
                  .first = n * i / n_parts,
                  .end = n * (i + 1) / n_parts,
                  .key = slice_of(a, slice) + 2 * a->n_chosen,
                  .choice = apr_choice_of(slice_of(a, slice), a->n_chosen)};
}

static void merge(apr_choice *all, const apr_choice *other)
{
    for (int64_t i = 0; i < other->n; i++) apr_choice_add(all, other->scores[i], other->positions[i]);
    all->next = fmaxf(all->next, other->next);
}

static float *row_of(const apr_index_args *a, int64_t token) { return a->out + token * apr_index_row(a->n_chosen); }

/* All threads choose for one token. */
static void index_together(const apr_index_args *a, int64_t token, int n_threads, bool in_float64)
{
    enum { MOST = 256 };
    const int n_parts = n_threads < MOST ? n_threads : MOST;
    apr_choice of_parts[MOST];

#pragma omp parallel for schedule(static) num_threads(n_parts)
    for (int i = 0; i < n_parts; i++) {
        part p = part_of(a, token, i, n_parts, i);
        p.in_float64 = in_float64;
        choose_part(&p);
        of_parts[i] = p.choice;
    }
    for (int i = 1; i < n_parts; i++) merge(&of_parts[0], &of_parts[i]);
    apr_choice_write(&of_parts[0], row_of(a, token));
}

static void index_alone(const apr_index_args *a, int64_t token, bool in_float64)
{
    part p = part_of(a, token, 0, 1, omp_get_thread_num());
    p.in_float64 = in_float64;
    choose_part(&p);
    apr_choice_write(&p.choice, row_of(a, token));
}

static void choose(const apr_index_args *a, bool in_float64)
{
    const double each = (double)(a->position + a->n_tokens) * (double)(a->n_heads * a->head_dim);
    const int64_t n_all = a->n_chosen - a->position, first = n_all < 0 ? 0 : n_all < a->n_tokens ? n_all : a->n_tokens;
    const int64_t n_left = a->n_tokens - first;
    const int n_threads = apr_threads(a->work.n_threads, a->work.n_threads, (double)n_left * each);

    for (int64_t t = 0; t < first; t++) apr_choice_write_all(row_of(a, t), a->position + t, a->n_chosen);
    if (n_left < n_threads) {
        for (int64_t t = first; t < a->n_tokens; t++) index_together(a, t, n_threads, in_float64);
        return;
    }
#pragma omp parallel for schedule(dynamic, 1) num_threads(n_threads)
    for (int64_t t = first; t < a->n_tokens; t++) index_alone(a, t, in_float64);
}

void apr_host_index(const apr_op_args *args) { choose(&args->index, false); }
void apr_float64_index(const apr_op_args *args) { choose(&args->index, true); }
