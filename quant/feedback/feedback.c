/* feedback.c - error feedback on the host: rounding, coordinate descent and refit of sixteen rows in parallel, and the encoder, which
 * gives sixteen rows to each thread. */
#include "quant/feedback/feedback.h"

#include "formats/base/threads.h"
#include "formats/number/half.h"
#include "quant/feedback/lane_rows.h"
#include "quant/feedback/points_search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { L = APR_LANES, PANEL = 32, SUB = APR_GRID_ELEMS /* the largest sub-block */, MAX_NUDGES = 24 };

/* Bytes of heap of an apr_lane_rows. */
static uint64_t memory_bytes(const apr_grid *grid, int64_t n)
{
    const uint64_t columns = (uint64_t)n, subs = columns / (uint64_t)grid->sub_elems, blocks = columns / (uint64_t)grid->elems;
    return L * (4 * columns * sizeof(float) + 3 * subs * sizeof(float) + blocks * sizeof(apr_grid_block));
}

apr_status apr_lane_rows_open(apr_lane_rows *r, const apr_feedback *feedback, const apr_grid *grid, apr_error *err)
{
    const size_t n = (size_t)feedback->n, n_subs = n / (size_t)grid->sub_elems, n_blocks = n / (size_t)grid->elems;

    *r = (apr_lane_rows){.grid = grid, .feedback = feedback, .n = feedback->n, .n_blocks = (int64_t)n_blocks, .n_subs = (int64_t)n_subs};
    r->memory = calloc(1, (size_t)memory_bytes(grid, feedback->n));
    if (r->memory == NULL) return apr_no_memory(err, "rows of weights");
    float *at = r->memory;
    float **const by_column[] = {&r->weight, &r->error, &r->code, &r->gathered}, **const by_sub[] = {&r->step, &r->offset, &r->inverse};
    for (size_t i = 0; i < sizeof by_column / sizeof *by_column; i++, at += L * n) *by_column[i] = at;
    for (size_t i = 0; i < sizeof by_sub / sizeof *by_sub; i++, at += L * n_subs) *by_sub[i] = at;
    r->blocks = (apr_grid_block *)at;
    return APR_OK;
}

void apr_lane_rows_close(apr_lane_rows *r)
{
    free(r->memory);
    *r = (apr_lane_rows){0};
}

/* ---- steps and errors of sub-blocks ---- */

static apr_grid_block *block_of(const apr_lane_rows *r, int64_t block, int lane) { return &r->blocks[block * L + lane]; }
static int64_t subs_per_block(const apr_lane_rows *r) { return r->grid->elems / r->grid->sub_elems; }
static float inverse_of(float step) { return step > 0x1p-126f || step < -0x1p-126f ? 1.0f / step : 0.0f; }

static void set_step(apr_lane_rows *r, int64_t sub, int lane)
{
    const int64_t n = subs_per_block(r), at = sub * L + lane;
    const apr_grid_block *const b = block_of(r, sub / n, lane);

    r->step[at] = apr_grid_step(r->grid, b->d, b->scale[sub % n]);
    r->offset[at] = apr_grid_offset(b->dmin, b->min[sub % n]);
    r->inverse[at] = inverse_of(r->step[at]);
}

/* Computes the errors of a sub-block from its codes and scales. */
static void find_errors(apr_lane_rows *r, int64_t sub)
{
    const float *const step = r->step + sub * L, *const offset = r->offset + sub * L;
    for (int64_t i = sub * r->grid->sub_elems * L; i < (sub + 1) * r->grid->sub_elems * L; i += L)
        for (int v = 0; v < L; v++) r->error[i + v] = r->weight[i + v] - (step[v] * r->code[i + v] - offset[v]);
}

void apr_lane_rows_load(apr_lane_rows *r, const float *weights, const uint8_t *blocks, int64_t row_bytes, int n_rows)
{
    const int64_t block_bytes = row_bytes / r->n_blocks;

    r->n_rows = n_rows;
    for (int lane = 0; lane < L; lane++)
        for (int64_t b = 0; b < r->n_blocks; b++) {
            apr_grid_block *const block = block_of(r, b, lane);
            if (lane < n_rows) r->grid->unpack(blocks + lane * row_bytes + b * block_bytes, block);
            else *block = (apr_grid_block){0};
            for (int i = 0; i < r->grid->elems; i++) {
                const int64_t column = b * r->grid->elems + i;
                r->code[column * L + lane] = (float)block->code[i];
                r->weight[column * L + lane] = lane < n_rows ? weights[lane * r->n + column] : 0.0f;
            }
        }
    for (int64_t sub = 0; sub < r->n_subs; sub++) {
        for (int lane = 0; lane < L; lane++) set_step(r, sub, lane);
        find_errors(r, sub);
    }
}

void apr_lane_rows_store(const apr_lane_rows *r, uint8_t *blocks, int64_t row_bytes)
{
    const int64_t block_bytes = row_bytes / r->n_blocks;

    for (int lane = 0; lane < r->n_rows; lane++)
        for (int64_t b = 0; b < r->n_blocks; b++) {
            apr_grid_block block = *block_of(r, b, lane);
            for (int i = 0; i < r->grid->elems; i++) block.code[i] = (int8_t)r->code[(b * r->grid->elems + i) * L + lane];
            r->grid->pack(&block, blocks + lane * row_bytes + b * block_bytes);
        }
}

double apr_lane_rows_objective(const apr_lane_rows *r)
{
    double sum = 0.0;

    for (int64_t first = 0; first < r->n; first += PANEL) {
        const int64_t now = r->n - first < PANEL ? r->n - first : PANEL;
        float g[PANEL * L] = {0};
        apr_lane_products(r->feedback->h + first * r->n, r->n, now, r->error, r->n, g);
        for (int64_t i = 0; i < now * L; i++) sum += (double)g[i] * (double)r->error[first * L + i];
    }
    return sum;
}

/* ---- the nearest code ---- */

/* Rounds a magnitude to 0 1 2 3 4 6 8 12; ties go to the lower one. */
static inline float nearest_e2m1(float a)
{
    const float below_4 = (a > 0.5f ? 1.0f : 0.0f) + (a > 1.5f ? 1.0f : 0.0f) + (a > 2.5f ? 1.0f : 0.0f) + (a > 3.5f ? 1.0f : 0.0f);
    return below_4 + (a > 5.0f ? 2.0f : 0.0f) + (a > 7.0f ? 2.0f : 0.0f) + (a > 10.0f ? 4.0f : 0.0f);
}

/* The level nearest to u: each middle between two of them that u is beyond adds the distance from one to the next. */
static inline void nearest_level(const apr_grid *grid, const float *restrict u, float *restrict code)
{
    for (int v = 0; v < L; v++) code[v] = (float)grid->levels[0];
    for (int k = 1; k < grid->n_levels; k++) {
        const float below = (float)grid->levels[k - 1], above = (float)grid->levels[k], middle = 0.5f * (below + above);
        for (int v = 0; v < L; v++) code[v] += u[v] > middle ? above - below : 0.0f;
    }
}

/* The nearest codes of sixteen values, and the values that a decoder reads from them. */
static inline void nearest(const apr_grid *grid, const float *restrict x, const float *restrict step, const float *restrict inverse,
                           const float *restrict offset, float *restrict code, float *restrict value)
{
    const float low = grid->low, high = grid->high;

    if (grid->is_e2m1)
        for (int v = 0; v < L; v++) {
            const float u = x[v] * inverse[v], a = nearest_e2m1(u < 0.0f ? -u : u);
            code[v] = u < 0.0f ? -a : a;
        }
    else if (grid->levels != NULL) {
        float u[L];
        for (int v = 0; v < L; v++) u[v] = x[v] * inverse[v];
        nearest_level(grid, u, code);
    } else
        for (int v = 0; v < L; v++) {
            const float u = (x[v] + offset[v]) * inverse[v], bounded = u > low ? u : low, inside = bounded < high ? bounded : high;
            code[v] = (inside + 12582912.0f) - 12582912.0f; /* 1.5 * 2^23: rounds to the nearest integer */
        }
    for (int v = 0; v < L; v++) value[v] = step[v] * code[v] - offset[v];
}

/* ---- feedback ---- */

/* Sets S, and one over its diagonal. */
static void set_metric(points_search *p, float (*s)[POINTS])
{
    memcpy(p->s, s, sizeof p->s);
    for (int i = 0; i < POINTS; i++) p->inverse[i] = 1.0f / s[i][i];
}

/* What rounding the group of columns order[k] to order[k + 7] costs: with T the factors of pull inside of the group and 1 on the diagonal,
 * |D (T e + x)|^2 for errors e, the sums x over the columns before and pivots D. */
static void set_metric_of_factors(const apr_feedback *f, int64_t k, points_search *p)
{
    float t[POINTS][POINTS] = {{0.0f}}, s[POINTS][POINTS] = {{0.0f}};

    for (int i = 0; i < POINTS; i++) {
        for (int j = 0; j < i; j++) t[i][j] = f->pull[(k + i) * f->n + k + j];
        t[i][i] = 1.0f;
        for (int a = 0; a <= i; a++)
            for (int b = 0; b <= i; b++) s[a][b] += t[i][a] * t[i][b] * f->pivot[k + i] * f->pivot[k + i];
    }
    set_metric(p, s);
}

/* Rounds a group. x: the sums over the columns before, which become the wanted values: the weights plus T^-1 x. */
static void round_group(apr_lane_rows *r, points_search *p, int64_t k, float *x)
{
    const apr_feedback *const f = r->feedback;
    const int64_t first = f->order[k], n_subs = subs_per_block(r), sub = first / r->grid->sub_elems;
    int shift[L];
    float value[POINTS * L];

    set_metric_of_factors(f, k, p);
    for (int i = 0; i < POINTS; i++)
        for (int j = 0; j < i; j++)
            for (int v = 0; v < L; v++) x[i * L + v] -= f->pull[(k + i) * f->n + k + j] * x[j * L + v];
    for (int i = 0; i < POINTS * L; i++) x[i] += r->weight[first * L + i];
    for (int v = 0; v < L; v++) shift[v] = block_of(r, sub / n_subs, v)->min[sub % n_subs];
    points_of_lanes(p, &(points_lanes){.x = x,
                                       .step = r->step + sub * L,
                                       .inverse = r->inverse + sub * L,
                                       .shift = shift,
                                       .code = r->code + first * L,
                                       .value = value});
    for (int i = 0; i < POINTS * L; i++) r->gathered[k * L + i] = r->error[first * L + i] = r->weight[first * L + i] - value[i];
}

static void round_groups(apr_lane_rows *r)
{
    const apr_feedback *const f = r->feedback;
    points_search p = points_search_of(r->grid->points);

    for (int64_t first = 0; first < r->n; first += PANEL) {
        float wanted[PANEL * L] = {0};
        apr_lane_products(f->pull + first * r->n, r->n, PANEL, r->gathered, first, wanted);
        for (int64_t k = first; k < first + PANEL; k += POINTS) {
            float *const x = wanted + (k - first) * L;
            for (int i = 0; i < POINTS; i++)
                for (int64_t j = first; j < k; j++)
                    for (int v = 0; v < L; v++) x[i * L + v] += f->pull[(k + i) * r->n + j] * r->gathered[j * L + v];
            round_group(r, &p, k, x);
        }
    }
}

static void round_columns(apr_lane_rows *r)
{
    const apr_feedback *const f = r->feedback;
    const int64_t n = r->n;

    for (int64_t first = 0; first < n; first += PANEL) {
        const int64_t end = first + PANEL < n ? first + PANEL : n;
        float wanted[PANEL * L] = {0};
        apr_lane_products(f->pull + first * n, n, end - first, r->gathered, first, wanted);
        for (int64_t k = first; k < end; k++) {
            const int64_t column = f->order[k], sub = column / r->grid->sub_elems * L;
            const float *const weight = r->weight + column * L, *const pull = f->pull + k * n;
            float *const x = wanted + (k - first) * L;
            float value[L];
            for (int64_t j = first; j < k; j++)
                for (int v = 0; v < L; v++) x[v] += pull[j] * r->gathered[j * L + v];
            for (int v = 0; v < L; v++) x[v] += weight[v];
            nearest(r->grid, x, r->step + sub, r->inverse + sub, r->offset + sub, r->code + column * L, value);
            for (int v = 0; v < L; v++) r->gathered[k * L + v] = r->error[column * L + v] = weight[v] - value[v];
        }
    }
}

void apr_lane_rows_round(apr_lane_rows *r)
{
    if (r->grid->points != NULL) round_groups(r);
    else round_columns(r);
}

/* ---- descent ---- */

/* A sub-block with other scales and codes, and how much it lowers the error. */
typedef struct trial {
    float step[L], inverse[L], offset[L];
    int shift[L]; /* of IQ1_S */
    float code[SUB * L], error[SUB * L], gain[L];
} trial;

/* How much a trial lowers the error: a change x of the values lowers it by x (2 g - H x); H x is g minus its current value. */
static void find_gain(const apr_lane_rows *r, int64_t first, const float *restrict g, const float *restrict now, trial *t)
{
    for (int v = 0; v < L; v++) t->gain[v] = 0.0f;
    for (int k = 0; k < r->grid->sub_elems; k++)
        for (int v = 0; v < L; v++) t->gain[v] += (r->error[(first + k) * L + v] - t->error[k * L + v]) * (g[k * L + v] + now[k * L + v]);
}

/* Sets codes one after another, each to the best one given those before. g: E H of the sub-block before any change. */
static void try_codes(const apr_lane_rows *r, int64_t first, const float *restrict g, trial *t)
{
    const int n_columns = r->grid->sub_elems;
    float now[SUB * L];

    memcpy(now, g, (size_t)(n_columns * L) * sizeof *now);
    for (int k = 0; k < n_columns; k++) {
        const float *const h = r->feedback->h + (first + k) * r->n + first, *const weight = r->weight + (first + k) * L;
        const float *const error = r->error + (first + k) * L, inverse = 1.0f / h[k];
        float x[L], value[L], change[L];
        for (int v = 0; v < L; v++) x[v] = weight[v] - error[v] + now[k * L + v] * inverse;
        nearest(r->grid, x, t->step, t->inverse, t->offset, t->code + k * L, value);
        for (int v = 0; v < L; v++) {
            t->error[k * L + v] = weight[v] - value[v];
            change[v] = error[v] - t->error[k * L + v];
        }
        for (int j = 0; j < n_columns; j++)
            for (int v = 0; v < L; v++) now[j * L + v] -= h[j] * change[v];
    }
    find_gain(r, first, g, now, t);
}

/* The inverse of a symmetric, positive definite matrix (Gauss-Jordan). */
static void invert(const float (*s)[POINTS], float (*inverse)[POINTS])
{
    double a[POINTS][2 * POINTS] = {{0.0}};

    for (int i = 0; i < POINTS; i++) {
        for (int j = 0; j < POINTS; j++) a[i][j] = (double)s[i][j];
        a[i][POINTS + i] = 1.0;
    }
    for (int k = 0; k < POINTS; k++)
        for (int i = 0; i < POINTS; i++) {
            const double factor = a[i][k] / a[k][k];
            for (int j = k + 1; j < 2 * POINTS && i != k; j++) a[i][j] -= factor * a[k][j];
        }
    for (int i = 0; i < POINTS; i++)
        for (int j = 0; j < POINTS; j++) inverse[i][j] = (float)(a[i][POINTS + j] / a[i][i]);
}

/* The wanted values of a group: what would be best for it alone, without rounding. now: its part of E H. */
static void want_values(const apr_lane_rows *r, int64_t first, const float (*s)[POINTS], const float *restrict now, float *restrict x)
{
    float inverse[POINTS][POINTS];

    invert(s, inverse);
    for (int i = 0; i < POINTS; i++) {
        for (int v = 0; v < L; v++) x[i * L + v] = r->weight[(first + i) * L + v] - r->error[(first + i) * L + v];
        for (int j = 0; j < POINTS; j++)
            for (int v = 0; v < L; v++) x[i * L + v] += inverse[i][j] * now[j * L + v];
    }
}

/* try_codes for types with codebooks: one group after another. */
static void try_points(const apr_lane_rows *r, int64_t first, const float *restrict g, trial *t)
{
    const int n_columns = r->grid->sub_elems;
    points_search p = points_search_of(r->grid->points);
    float now[SUB * L];

    memcpy(now, g, (size_t)(n_columns * L) * sizeof *now);
    memcpy(t->code, r->code + first * L, (size_t)(n_columns * L) * sizeof *now);
    for (int k = 0; k < n_columns; k += POINTS) {
        const int64_t at = first + k;
        float s[POINTS][POINTS], x[POINTS * L], value[POINTS * L], change[POINTS * L];
        for (int i = 0; i < POINTS; i++) memcpy(s[i], r->feedback->h + (at + i) * r->n + at, sizeof s[i]);
        set_metric(&p, s);
        want_values(r, at, s, now + k * L, x);
        points_of_lanes(&p, &(points_lanes){x, t->step, t->inverse, t->shift, t->code + k * L, value});
        for (int i = 0; i < POINTS * L; i++) {
            t->error[k * L + i] = r->weight[at * L + i] - value[i];
            change[i] = r->error[at * L + i] - t->error[k * L + i];
        }
        for (int i = 0; i < POINTS; i++)
            for (int j = 0; j < n_columns; j++)
                for (int v = 0; v < L; v++) now[j * L + v] -= r->feedback->h[(at + i) * r->n + first + j] * change[i * L + v];
    }
    find_gain(r, first, g, now, t);
}

static void try_all(const apr_lane_rows *r, int64_t first, const float *g, trial *t)
{
    if (r->grid->points != NULL) try_points(r, first, g, t);
    else try_codes(r, first, g, t);
}

/* A change of a sub-block's scale and minimum; for types with d alone, a factor of d. */
typedef struct nudge {
    int scale, min;
    float factor;
} nudge;

static const nudge whole_numbers[] = {{1, 0, 1.0f}, {-1, 0, 1.0f}, {0, 1, 1.0f}, {0, -1, 1.0f}, {1, 1, 1.0f}, {-1, -1, 1.0f}};
static const nudge factors[] = {{0, 0, 0.94f}, {0, 0, 0.97f}, {0, 0, 1.03f}, {0, 0, 1.06f}};

/* All changes of a scale and a minimum within the type's reach. */
static int nudges_within_reach(const apr_grid *grid, nudge *list)
{
    int n = 0;
    for (int scale = -grid->scale_reach; scale <= grid->scale_reach; scale++)
        for (int min = -grid->min_reach; min <= grid->min_reach; min++)
            if (scale != 0 || min != 0) list[n++] = (nudge){scale, min, 1.0f};
    return n;
}

static int between(int x, int low, int high) { return x < low ? low : x > high ? high : x; }

/* The block after a nudge. */
static apr_grid_block nudged(const apr_lane_rows *r, int64_t sub, int lane, const nudge *by)
{
    const apr_grid *const grid = r->grid;
    const int64_t n = subs_per_block(r), i = sub % n;
    apr_grid_block b = *block_of(r, sub / n, lane);

    b.scale[i] = (int16_t)between(b.scale[i] + by->scale, grid->scale_low, grid->scale_high);
    b.min[i] = (int16_t)between(b.min[i] + by->min, grid->min_low, grid->min_high);
    if (by->factor != 1.0f) {
        const uint16_t d = apr_f32_to_f16(apr_f16_to_f32(b.d) * by->factor);
        if ((d & 0x7c00) != 0x7c00) b.d = d;
    }
    return b;
}

/* Lanes in which trial t is better take it. */
static void keep_better(trial *best, const trial *t, const nudge *by, const nudge **kept, int n_columns)
{
    for (int v = 0; v < L; v++) {
        if (!(t->gain[v] > best->gain[v])) continue;
        kept[v] = by;
        best->gain[v] = t->gain[v];
        for (int k = 0; k < n_columns; k++) {
            best->code[k * L + v] = t->code[k * L + v];
            best->error[k * L + v] = t->error[k * L + v];
        }
    }
}

static void try_nudge(const apr_lane_rows *r, int64_t sub, const float *g, const nudge *by, trial *best, const nudge **kept)
{
    const int64_t n = subs_per_block(r);
    trial t;

    for (int v = 0; v < L; v++) {
        const apr_grid_block b = nudged(r, sub, v, by);
        t.step[v] = apr_grid_step(r->grid, b.d, b.scale[sub % n]);
        t.offset[v] = apr_grid_offset(b.dmin, b.min[sub % n]);
        t.inverse[v] = inverse_of(t.step[v]);
        t.shift[v] = b.min[sub % n];
    }
    try_all(r, sub * r->grid->sub_elems, g, &t);
    keep_better(best, &t, by, kept, r->grid->sub_elems);
}

static void descend(apr_lane_rows *r, int64_t sub, const nudge *nudges, int n_nudges)
{
    const int n_columns = r->grid->sub_elems;
    const int64_t first = sub * n_columns;
    const nudge *kept[L] = {NULL};
    float g[SUB * L];
    trial best;

    memset(g, 0, (size_t)(n_columns * L) * sizeof *g);
    apr_lane_products(r->feedback->h + first * r->n, r->n, n_columns, r->error, r->n, g);
    memcpy(best.step, r->step + sub * L, sizeof best.step);
    memcpy(best.offset, r->offset + sub * L, sizeof best.offset);
    memcpy(best.inverse, r->inverse + sub * L, sizeof best.inverse);
    for (int v = 0; v < L; v++) best.shift[v] = block_of(r, sub / subs_per_block(r), v)->min[sub % subs_per_block(r)];
    try_all(r, first, g, &best);
    for (int i = 0; i < n_nudges; i++) try_nudge(r, sub, g, &nudges[i], &best, kept);
    for (int v = 0; v < L; v++) {
        if (!(best.gain[v] > 0.0f)) continue;
        if (kept[v] != NULL) {
            *block_of(r, sub / subs_per_block(r), v) = nudged(r, sub, v, kept[v]);
            set_step(r, sub, v);
        }
        for (int k = 0; k < n_columns; k++) {
            r->code[(first + k) * L + v] = best.code[k * L + v];
            r->error[(first + k) * L + v] = best.error[k * L + v];
        }
    }
}

void apr_lane_rows_descend(apr_lane_rows *r, bool rescale)
{
    const apr_grid *const grid = r->grid;
    const int n_whole = grid->min_low < grid->min_high ? 6 : 2;
    const nudge *nudges = grid->steps == APR_GRID_HALF ? factors : whole_numbers;
    int n = grid->steps == APR_GRID_HALF ? 4 : n_whole;
    nudge list[MAX_NUDGES];

    if (grid->scale_reach > 0) n = nudges_within_reach(grid, list), nudges = list;
    for (int64_t sub = 0; sub < r->n_subs; sub++) descend(r, sub, nudges, rescale ? n : 0);
}

/* ---- refit ---- */

/* Products with g and H of a block's values, which are d * a - dmin * c. */
typedef struct fit_sums {
    double ga, gc, aa, ac, cc;
} fit_sums;

typedef struct fit_memory {
    float g[APR_GRID_ELEMS * L], a[APR_GRID_ELEMS * L], c[APR_GRID_ELEMS * L], ha[APR_GRID_ELEMS * L], hc[APR_GRID_ELEMS * L];
} fit_memory;

static void fill_fit(const apr_lane_rows *r, int64_t block, fit_memory *m)
{
    const int n = r->grid->elems;
    const int64_t first = block * n;
    const float *const h = r->feedback->h + first * r->n;

    for (int i = 0; i < n; i++)
        for (int v = 0; v < L; v++) {
            const apr_grid_block *const b = block_of(r, block, v);
            m->a[i * L + v] = apr_grid_multiple(r->grid, b->scale[i / r->grid->sub_elems]) * r->code[(first + i) * L + v];
            m->c[i * L + v] = (float)b->min[i / r->grid->sub_elems];
        }
    memset(m->g, 0, (size_t)(n * L) * sizeof *m->g);
    memset(m->ha, 0, (size_t)(n * L) * sizeof *m->ha);
    memset(m->hc, 0, (size_t)(n * L) * sizeof *m->hc);
    apr_lane_products(h, r->n, n, r->error, r->n, m->g);
    apr_lane_products(h + first, r->n, n, m->a, n, m->ha);
    if (r->grid->fits_min) apr_lane_products(h + first, r->n, n, m->c, n, m->hc);
}

static fit_sums sum_fit(const fit_memory *m, int n, int lane)
{
    fit_sums s = {0};
    for (int i = lane; i < n * L; i += L) {
        s.ga += (double)m->g[i] * (double)m->a[i];
        s.gc += (double)m->g[i] * (double)m->c[i];
        s.aa += (double)m->ha[i] * (double)m->a[i];
        s.ac += (double)m->hc[i] * (double)m->a[i];
        s.cc += (double)m->hc[i] * (double)m->c[i];
    }
    return s;
}

/* How much the error falls if d grows by x and dmin by y. */
static double gain_of(const fit_sums *s, double x, double y)
{
    return 2.0 * (x * s->ga - y * s->gc) - (x * x * s->aa - 2.0 * x * y * s->ac + y * y * s->cc);
}

static bool is_finite_half(uint16_t half) { return (half & 0x7c00) != 0x7c00; }

/* Sets d and dmin to the FP16 numbers nearest to the least-squares solution; false if they would be infinite or not better. */
static bool refit_block(const apr_grid *grid, const fit_sums *s, apr_grid_block *b)
{
    const double d = (double)apr_f16_to_f32(b->d), dmin = (double)apr_f16_to_f32(b->dmin);
    const double det = grid->fits_min ? s->aa * s->cc - s->ac * s->ac : 0.0;
    double x = s->aa > 0.0 ? s->ga / s->aa : 0.0, y = 0.0;

    if (det > 1e-9 * s->aa * s->cc) {
        x = (s->ga * s->cc - s->gc * s->ac) / det;
        y = (s->ga * s->ac - s->gc * s->aa) / det;
    }
    if (!grid->min_is_signed && dmin + y < 0.0) y = -dmin;
    const uint16_t new_d = apr_f32_to_f16((float)(d + x)), new_dmin = apr_f32_to_f16((float)(dmin + y));
    if (!is_finite_half(new_d) || !is_finite_half(new_dmin) || (new_d == b->d && new_dmin == b->dmin)) return false;
    if (!(gain_of(s, (double)apr_f16_to_f32(new_d) - d, (double)apr_f16_to_f32(new_dmin) - dmin) > 0.0)) return false;
    b->d = new_d;
    b->dmin = new_dmin;
    return true;
}

void apr_lane_rows_refit(apr_lane_rows *r)
{
    const int64_t n = subs_per_block(r);
    fit_memory m;

    if (r->grid->steps == APR_GRID_EXPONENT || r->grid->steps == APR_GRID_E4M3) return; /* without d */
    for (int64_t block = 0; block < r->n_blocks; block++) {
        fill_fit(r, block, &m);
        for (int v = 0; v < r->n_rows; v++) {
            const fit_sums s = sum_fit(&m, r->grid->elems, v);
            if (!refit_block(r->grid, &s, block_of(r, block, v))) continue;
            for (int64_t sub = block * n; sub < (block + 1) * n; sub++) set_step(r, sub, v);
        }
        for (int64_t sub = block * n; sub < (block + 1) * n; sub++) find_errors(r, sub);
    }
}

/* ---- the encoder ---- */

bool apr_feedback_supports(apr_dtype dtype) { return apr_grid_of(dtype) != NULL; }

int apr_feedback_group(apr_dtype dtype)
{
    const apr_grid *const grid = apr_grid_of(dtype);
    return grid != NULL && grid->points != NULL ? APR_GRID_GROUP : 1;
}

apr_status apr_feedback_check(apr_dtype dtype, int64_t n, const float *weights, int64_t n_rows, const char *what, apr_error *err)
{
    const apr_grid *const grid = apr_grid_of(dtype);

    if (grid == NULL || n % grid->elems != 0)
        return apr_fail(err, APR_E_UNSUPPORTED, "tensor '%s': error feedback does not support %s for rows of %lld", what,
                        apr_dtypes[dtype].name, (long long)n);
    int64_t bad = INT64_MAX; /* index of the first weight that is not finite */
#pragma omp parallel for schedule(static) reduction(min : bad)
    for (int64_t i = 0; i < n_rows * n; i++)
        if (!isfinite(weights[i]) && i < bad) bad = i;
    if (bad == INT64_MAX) return APR_OK;
    return apr_fail(err, APR_E_DAMAGED,
                    "tensor '%s': row %lld, column %lld is NaN or infinite, so its error cannot be fed back; use --method search", what,
                    (long long)(bad / n), (long long)(bad % n));
}

static void search(apr_lane_rows *rows, int rounds, apr_feedback_errors *errors)
{
    errors->start = apr_lane_rows_objective(rows);
    apr_lane_rows_round(rows);
    errors->rounded = apr_lane_rows_objective(rows);
    for (int i = 0; i < rounds; i++) {
        apr_lane_rows_descend(rows, true);
        apr_lane_rows_refit(rows);
    }
    if (rounds > 0) apr_lane_rows_descend(rows, false);
    errors->end = apr_lane_rows_objective(rows);
}

static void encode_group(apr_lane_rows *rows, const float *weights, int64_t n_rows, int64_t first, int64_t row_bytes, int rounds,
                         uint8_t *encoded, apr_feedback_errors *errors)
{
    const int64_t left = n_rows - first;
    uint8_t *const blocks = encoded + first * row_bytes;

    apr_lane_rows_load(rows, weights + first * rows->n, blocks, row_bytes, (int)(left < APR_LANES ? left : APR_LANES));
    search(rows, rounds, errors);
    apr_lane_rows_store(rows, blocks, row_bytes);
}

static apr_status open_all(apr_lane_rows *rows, int n, const apr_feedback *feedback, const apr_grid *grid, apr_error *err)
{
    for (int i = 0; i < n; i++) APR_TRY(apr_lane_rows_open(&rows[i], feedback, grid, err));
    return APR_OK;
}

apr_status apr_feedback_encode(const apr_feedback *feedback, apr_dtype dtype, const float *weights, int64_t n_rows,
                               const apr_feedback_options *options, const char *what, void *encoded, apr_feedback_errors *errors,
                               apr_error *err)
{
    const apr_grid *const grid = apr_grid_of(dtype);
    const int64_t n_groups = (n_rows + APR_LANES - 1) / APR_LANES;
    const int n_threads = n_groups < apr_all_threads() ? (int)n_groups : apr_all_threads();
    const int rounds = options->rounds == 0 ? APR_FEEDBACK_ROUNDS : options->rounds;

    *errors = (apr_feedback_errors){0};
    APR_TRY(apr_feedback_check(dtype, feedback->n, weights, n_rows, what, err));
    if (n_groups == 0) return APR_OK;
    const int64_t row_bytes = apr_row_bytes(dtype, feedback->n);
    apr_lane_rows *const rows = calloc((size_t)n_threads, sizeof *rows);
    apr_feedback_errors *const found = calloc((size_t)n_groups, sizeof *found);
    apr_status status =
        rows != NULL && found != NULL ? open_all(rows, n_threads, feedback, grid, err) : apr_no_memory(err, "rows of weights");
    if (status == APR_OK) {
#pragma omp parallel for schedule(dynamic) num_threads(n_threads)
        for (int64_t g = 0; g < n_groups; g++)
            encode_group(&rows[apr_thread_number()], weights, n_rows, g * APR_LANES, row_bytes, rounds, encoded, &found[g]);
    }
    for (int64_t g = 0; g < n_groups && status == APR_OK; g++) { /* in order: sums do not depend on threads */
        errors->start += found[g].start;
        errors->rounded += found[g].rounded;
        errors->end += found[g].end;
    }
    for (int i = 0; rows != NULL && i < n_threads; i++) apr_lane_rows_close(&rows[i]);
    free(rows);
    free(found);
    return status;
}
