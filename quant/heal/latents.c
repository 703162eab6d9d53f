/* latents.c - latents of blocks and floats: from stored bytes, their gradients, Adam's steps, and back to bytes. */
#include "quant/heal/latents.h"

#include "formats/base/crc32.h"
#include "formats/base/pages.h"
#include "formats/base/threads.h"
#include "formats/number/half.h"
#include "kernels/host/codecs/levels.h"
#include "kernels/rows.h"
#include "quant/feedback/grid.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LATENTS = APR_GRID_ELEMS + 2 * APR_GRID_SUBS + 2 };

/* Of a block's step, which is compiled once for each instruction set: all give the same bits. */
#define INLINE static inline __attribute__((always_inline))

/* ---- the latents of a block, in this order: codes, sub-scales, sub-minimums, ln d, ln dmin ---- */

static bool has_sub_scales(const apr_grid *g) { return g->steps == APR_GRID_SUB_SCALE || g->steps == APR_GRID_E4M3; }
static bool has_sub_mins(const apr_grid *g) { return g->min_low < g->min_high; }
static bool has_scale(const apr_grid *g) { return g->steps == APR_GRID_HALF || g->steps == APR_GRID_SUB_SCALE; }

static int subs_of(const apr_grid *g) { return g->elems / g->sub_elems; }
static int at_sub_scales(const apr_grid *g) { return g->elems; }
static int at_sub_mins(const apr_grid *g) { return at_sub_scales(g) + (has_sub_scales(g) ? subs_of(g) : 0); }
static int at_scale(const apr_grid *g) { return at_sub_mins(g) + (has_sub_mins(g) ? subs_of(g) : 0); }
static int at_min_scale(const apr_grid *g) { return at_scale(g) + has_scale(g); }
static int latents_of(const apr_grid *g) { return g == NULL ? 1 : at_min_scale(g) + g->fits_min; }

static bool is_float(apr_dtype dtype) { return dtype == APR_F32 || dtype == APR_F16 || dtype == APR_BF16; }

/* NULL: the type has no codes that may be chosen one by one. */
static const apr_grid *grid_of(apr_dtype dtype)
{
    const apr_grid *const g = apr_grid_of(dtype);
    return g != NULL && g->steps <= APR_GRID_E4M3 ? g : NULL;
}

bool apr_latents_support(apr_dtype dtype) { return is_float(dtype) || grid_of(dtype) != NULL; }

uint64_t apr_latents_bytes(apr_dtype dtype, int64_t n_elems)
{
    const uint64_t n_blocks = (uint64_t)(n_elems / apr_dtypes[dtype].elems_per_block);
    return n_blocks * (apr_dtypes[dtype].bytes_per_block + (sizeof(float) + 2 * sizeof(uint16_t)) * (uint64_t)latents_of(grid_of(dtype)));
}

/* ---- levels: the codes of a type are all integers of a range, or those of a table ---- */

enum { MOST_LEVELS = 16 };
static const int8_t e2m1_levels[] = {-12, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12};
static const float LEVEL_MARGIN = 0.01f, INTEGER_CELL = 0.49f; /* a latent starts this far inside of its cell */

typedef struct levels {
    const int8_t *at; /* NULL: integers */
    int n;
    float unit;                   /* latent = unit * code: neighbours are about 1 apart */
    float low, high;              /* the range within which codes follow any gradient */
    float above[MOST_LEVELS - 1]; /* between a level and the next higher one: [n - 1] */
} levels;

/* The boundary between a level and the next higher one. Beyond the ends the last gap repeats. */
static float middle_above(const levels *v, int level)
{
    const int low = level < 0 ? 0 : level > v->n - 2 ? v->n - 2 : level;
    const float middle = 0.5f * v->unit * (float)(v->at[low] + v->at[low + 1]);
    return middle + (float)(level - low) * v->unit * (float)(v->at[low + 1] - v->at[low]);
}

static levels levels_of(const apr_grid *g)
{
    levels v = {.unit = 1.0f, .low = (float)g->low - 0.5f, .high = (float)g->high + 0.5f};

    if (g->is_e2m1) v.at = e2m1_levels, v.n = (int)sizeof e2m1_levels, v.unit = 0.5f;
    else if (g->levels != NULL) v.at = g->levels, v.n = g->n_levels, v.unit = (float)(g->n_levels - 1) / (g->high - g->low);
    if (v.at == NULL) return v;
    v.low = middle_above(&v, -1);
    v.high = middle_above(&v, v.n - 1);
    for (int level = 0; level + 1 < v.n; level++) v.above[level] = middle_above(&v, level);
    return v;
}

/* Boundaries ascend: the level is the number of those below the latent. */
INLINE int nearest_level(const levels *v, float latent)
{
    int level = 0;
    for (int k = 0; k + 1 < v->n; k++) level += latent > v->above[k];
    return level;
}

/* To the nearest integer from low to high, which are integers; NaN becomes the low end. Adding 1.5 * 2^23 leaves no place for a fraction;
 * unlike rintf, compilers do it for several numbers at a time. */
INLINE float round_to(float latent, float low, float high)
{
    static const float whole = 0x1.8p23f;
    const float within = latent > high ? high : latent >= low ? latent : low;
    return (within + whole) - whole;
}

INLINE void codes_of(const apr_grid *g, const levels *v, const float *restrict latents, int8_t *restrict codes)
{
    const float low = g->low, high = g->high;
    int8_t level[APR_GRID_ELEMS] = {0};

    for (int i = 0; i < g->elems && v->at == NULL; i++) codes[i] = (int8_t)round_to(latents[i], low, high);
    if (v->at == NULL) return;
    for (int k = 0; k + 1 < v->n; k++)
        for (int i = 0; i < g->elems; i++) level[i] = (int8_t)(level[i] + (latents[i] > v->above[k]));
    for (int i = 0; i < g->elems; i++) codes[i] = v->at[level[i]];
}

/* The latent nearest to `wanted` that is still stored as this code. */
static float within_cell(const levels *v, int8_t code, float wanted)
{
    if (v->at == NULL) return (float)code + fminf(fmaxf(wanted - (float)code, -INTEGER_CELL), INTEGER_CELL);
    const int level = nearest_level(v, v->unit * (float)code);
    return fminf(fmaxf(wanted, middle_above(v, level - 1) + LEVEL_MARGIN), middle_above(v, level) - LEVEL_MARGIN);
}

/* ---- from bytes to latents ---- */

/* -infinity: the scale is 0 and stays so. */
static float log_of_half(uint16_t half)
{
    const float magnitude = fabsf(apr_f16_to_f32(half));
    return magnitude > 0.0f ? logf(magnitude) : -INFINITY;
}

static void fill_block(const apr_latents *l, float unit, int64_t block)
{
    const apr_grid *const g = l->grid;
    float *const to = l->latents + block * l->n_latents;
    apr_grid_block b;

    g->unpack(l->blocks + (size_t)block * l->block_bytes, &b);
    for (int i = 0; i < g->elems; i++) to[i] = unit * (float)b.code[i];
    for (int s = 0; s < l->n_subs && has_sub_scales(g); s++) to[at_sub_scales(g) + s] = (float)b.scale[s];
    for (int s = 0; s < l->n_subs && has_sub_mins(g); s++) to[at_sub_mins(g) + s] = (float)b.min[s];
    if (has_scale(g)) to[at_scale(g)] = log_of_half(b.d);
    if (g->fits_min) to[at_min_scale(g)] = log_of_half(b.dmin);
}

static void fill(apr_latents *l)
{
    if (l->grid == NULL) apr_host_codecs()[l->dtype].decode(l->blocks, l->latents, l->n_blocks);
    if (l->grid == NULL) return;
    const float unit = levels_of(l->grid).unit;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < l->n_blocks; i++) fill_block(l, unit, i);
}

/* On all threads: a model's blocks are gigabytes, and memory that is new is made page by page. */
static void copy_bytes(void *to, const void *from, size_t n)
{
    static const size_t portion = 1 << 20;
    const int64_t n_portions = (int64_t)((n + portion - 1) / portion);

#pragma omp parallel for schedule(static) if (n_portions > 1)
    for (int64_t i = 0; i < n_portions; i++) {
        const size_t at = (size_t)i * portion;
        memcpy((uint8_t *)to + at, (const uint8_t *)from + at, n - at < portion ? n - at : portion);
    }
}

/* Of latents; and of means, or powers. Pages of nothing cannot be asked for. */
static size_t latents_bytes(const apr_latents *l) { return ((size_t)l->n_blocks * (size_t)l->n_latents + 1) * sizeof *l->latents; }
static size_t means_bytes(const apr_latents *l) { return ((size_t)l->n_blocks * (size_t)l->n_latents + 1) * sizeof *l->mean; }

apr_status apr_latents_open(apr_latents *l, apr_dtype dtype, int64_t n_elems, const void *blocks, apr_error *err)
{
    const apr_grid *const g = grid_of(dtype);
    const int elems = (int)apr_dtypes[dtype].elems_per_block;

    *l = (apr_latents){.dtype = dtype, .grid = g, .n_blocks = n_elems / elems, .elems = elems, .n_subs = g != NULL ? subs_of(g) : 0};
    l->n_latents = latents_of(g);
    l->block_bytes = (size_t)apr_dtypes[dtype].bytes_per_block;
    const size_t n = (size_t)l->n_blocks;
    l->blocks = malloc(n * l->block_bytes + 1);
    l->latents = apr_pages_alloc(latents_bytes(l));
    l->mean = apr_pages_alloc(means_bytes(l));
    l->power = apr_pages_alloc(means_bytes(l));
    if (l->blocks == NULL || l->latents == NULL || l->mean == NULL || l->power == NULL) {
        apr_latents_close(l);
        return apr_no_memory(err, "the latents of a tensor");
    }
    copy_bytes(l->blocks, blocks, n * l->block_bytes);
    fill(l);
    return APR_OK;
}

void apr_latents_close(apr_latents *l)
{
    free(l->blocks);
    apr_pages_free(l->latents, latents_bytes(l));
    apr_pages_free(l->mean, means_bytes(l));
    apr_pages_free(l->power, means_bytes(l));
    *l = (apr_latents){0};
}

void apr_latents_start(apr_latents *l, int64_t first, int64_t n, const float *original, float hold)
{
    const apr_grid *const g = l->grid;
    const levels v = g != NULL ? levels_of(g) : (levels){0};
    apr_grid_block b;

    for (int64_t k = 0; k < n && g != NULL; k++) {
        float *const to = l->latents + (first + k) * l->n_latents;
        g->unpack(l->blocks + (size_t)(first + k) * l->block_bytes, &b);
        for (int i = 0; i < g->elems; i++) {
            const int sub = i / g->sub_elems;
            const float step = apr_grid_step(g, b.d, b.scale[sub]) / v.unit, middle = v.unit * (float)b.code[i];
            if (step == 0.0f) continue;
            const float wanted = (original[k * g->elems + i] + apr_grid_offset(b.dmin, b.min[sub])) / step;
            to[i] = middle + hold * (within_cell(&v, b.code[i], wanted) - middle);
        }
    }
}

/* ---- gradients: value = d * scale * code - dmin * min ---- */

/* A latent that is stored as an end of its range does not follow a gradient that pushes it further out. */
INLINE float inward(float gradient, float latent, float low, float high)
{
    return (latent > high && gradient < 0.0f) || (latent < low && gradient > 0.0f) ? 0.0f : gradient;
}

/* How much a step grows with the number that is stored for its sub-block. */
INLINE double step_slope(const apr_grid *g, const apr_grid_block *b, int sub)
{
    const int scale = b->scale[sub], low = scale > g->scale_low ? scale - 1 : scale, high = scale < g->scale_high ? scale + 1 : scale;

    if (g->steps != APR_GRID_E4M3) return apr_f16_to_f32(b->d);
    return ((double)apr_grid_step(g, 0, high) - (double)apr_grid_step(g, 0, low)) / (high - low);
}

/* Sums of a sub-block: of gradients times codes, and of gradients. */
typedef struct sub_sums {
    double codes, all;
} sub_sums;

/* Eight sums of a sub-block, for indexes modulo 8. */
enum { LANES = 8 };
typedef int8_t lanes_of_bytes __attribute__((vector_size(LANES)));
typedef float lanes_of_floats __attribute__((vector_size(LANES * sizeof(float))));
typedef double lanes_of_doubles __attribute__((vector_size(LANES * sizeof(double))));

INLINE double sum_of_lanes(const lanes_of_doubles *s)
{
    return (((*s)[0] + (*s)[4]) + ((*s)[2] + (*s)[6])) + (((*s)[1] + (*s)[5]) + ((*s)[3] + (*s)[7]));
}

INLINE sub_sums sum_sub(const apr_grid *g, const apr_grid_block *b, int sub, const float *of_values)
{
    lanes_of_doubles codes = {0}, all = {0};
    const int first = sub * g->sub_elems;

    for (int i = first; i < first + g->sub_elems; i += LANES) {
        lanes_of_bytes code;
        lanes_of_floats gradient;
        memcpy(&code, b->code + i, sizeof code);
        memcpy(&gradient, of_values + i, sizeof gradient);
        const lanes_of_doubles of_value = __builtin_convertvector(gradient, lanes_of_doubles);
        codes += of_value * __builtin_convertvector(code, lanes_of_doubles);
        all += of_value;
    }
    return (sub_sums){sum_of_lanes(&codes), sum_of_lanes(&all)};
}

/* b: the stored numbers of the block. */
INLINE void block_gradient(const apr_grid *g, const levels *v, const apr_grid_block *b, const float *restrict latents,
                           const float *restrict of_values, float *restrict of)
{
    const double d = apr_f16_to_f32(b->d), dmin = apr_f16_to_f32(b->dmin);
    const float unit = v->unit, low = v->low, high = v->high;
    double of_d = 0.0, of_dmin = 0.0;

    for (int s = 0; s < subs_of(g); s++) {
        const float per_code = apr_grid_step(g, b->d, b->scale[s]) / unit;
        const sub_sums sums = sum_sub(g, b, s, of_values);
        for (int i = s * g->sub_elems; i < (s + 1) * g->sub_elems; i++) of[i] = inward(of_values[i] * per_code, latents[i], low, high);
        float *const sub_scale = of + at_sub_scales(g) + s, *const sub_min = of + at_sub_mins(g) + s;
        if (has_sub_scales(g))
            *sub_scale = inward((float)(step_slope(g, b, s) * sums.codes), latents[at_sub_scales(g) + s], (float)g->scale_low - 0.5f,
                                (float)g->scale_high + 0.5f);
        if (has_sub_mins(g))
            *sub_min = inward((float)(-dmin * sums.all), latents[at_sub_mins(g) + s], (float)g->min_low - 0.5f, (float)g->min_high + 0.5f);
        of_d += b->scale[s] * sums.codes;
        of_dmin -= b->min[s] * sums.all;
    }
    if (has_scale(g)) of[at_scale(g)] = (float)(of_d * d);
    if (g->fits_min) of[at_min_scale(g)] = (float)(of_dmin * dmin);
}

void apr_latents_gradient(const apr_latents *l, int64_t block, const float *of_values, float *of)
{
    apr_grid_block b;

    if (l->grid == NULL) {
        *of = *of_values;
        return;
    }
    const levels v = levels_of(l->grid);
    l->grid->unpack(l->blocks + (size_t)block * l->block_bytes, &b);
    block_gradient(l->grid, &v, &b, l->latents + block * l->n_latents, of_values, of);
}

/* ---- Adam ---- */

static const float MEAN_DECAY = 0.9f, POWER_DECAY = 0.98f, EPSILON = 1e-8f;

typedef struct adam {
    float of_mean, of_power; /* what the decayed sums of the first steps lack */
} adam;

static adam adam_at(int64_t step)
{
    return (adam){(float)(1.0 / (1.0 - pow(MEAN_DECAY, (double)step))), (float)(1.0 / (1.0 - pow(POWER_DECAY, (double)step)))};
}

/* Latents [from, to) of those at `at`. They move by the means as they are before these are rounded. */
INLINE void move(apr_latents *l, int64_t at, int from, int to, const float *restrict gradients, float rate, adam a)
{
    float *restrict const latents = l->latents + at;
    uint16_t *restrict const means = l->mean + at, *restrict const powers = l->power + at;

    if (!(rate > 0.0f)) return;
    for (int i = from; i < to; i++) {
        const float mean = MEAN_DECAY * apr_bf16_to_f32(means[i]) + (1.0f - MEAN_DECAY) * gradients[i];
        const float power = POWER_DECAY * apr_bf16_to_f32(powers[i]) + (1.0f - POWER_DECAY) * gradients[i] * gradients[i];
        means[i] = apr_f32_to_bf16(mean);
        powers[i] = apr_f32_to_bf16(power);
        latents[i] -= rate * (mean * a.of_mean) / (sqrtf(power * a.of_power) + EPSILON);
    }
}

/* ---- from latents to bytes ---- */

static uint16_t half_of_log(float latent, uint16_t before)
{
    static const float smallest = 0x1p-24f, largest = 65504.0f; /* of the magnitudes of halves */
    if (isinf(latent)) return before;
    const float magnitude = fminf(fmaxf(expf(latent), smallest), largest);
    return (uint16_t)(apr_f32_to_f16(magnitude) | (before & 0x8000));
}

/* b: what the block stores now. */
INLINE void store_block(const apr_grid *g, const levels *v, const float *restrict from, apr_grid_block *b, uint8_t *bytes)
{
    codes_of(g, v, from, b->code);
    for (int s = 0; s < subs_of(g) && has_sub_scales(g); s++)
        b->scale[s] = (int16_t)round_to(from[at_sub_scales(g) + s], (float)g->scale_low, (float)g->scale_high);
    for (int s = 0; s < subs_of(g) && has_sub_mins(g); s++)
        b->min[s] = (int16_t)round_to(from[at_sub_mins(g) + s], (float)g->min_low, (float)g->min_high);
    if (has_scale(g)) b->d = half_of_log(from[at_scale(g)], b->d);
    if (g->fits_min) b->dmin = half_of_log(from[at_min_scale(g)], b->dmin);
    g->pack(b, bytes);
}

INLINE void step_blocks(apr_latents *l, int64_t first, int64_t n, const float *gradients, const apr_latent_rates *rates, adam a)
{
    const apr_grid *const g = l->grid;
    const levels v = levels_of(g);
    apr_grid_block b;
    float of[MOST_LATENTS];

    for (int64_t block = first; block < first + n; block++, gradients += l->elems) {
        const int64_t at = block * l->n_latents;
        uint8_t *const bytes = l->blocks + (size_t)block * l->block_bytes;
        g->unpack(bytes, &b);
        block_gradient(g, &v, &b, l->latents + at, gradients, of);
        move(l, at, 0, g->elems, of, rates->code, a);
        move(l, at, at_sub_scales(g), at_scale(g), of, rates->sub_scale, a);
        move(l, at, at_scale(g), l->n_latents, of, rates->scale, a);
        store_block(g, &v, l->latents + at, &b, bytes);
    }
}

typedef void (*blocks_fn)(apr_latents *l, int64_t first, int64_t n, const float *gradients, const apr_latent_rates *rates, adam a);

static void step_plain(apr_latents *l, int64_t first, int64_t n, const float *gradients, const apr_latent_rates *rates, adam a)
{
    step_blocks(l, first, n, gradients, rates, a);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void step_avx2(apr_latents *l, int64_t first, int64_t n, const float *gradients,
                                                      const apr_latent_rates *rates, adam a)
{
    step_blocks(l, first, n, gradients, rates, a);
}

__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2"))) static void
step_avx512(apr_latents *l, int64_t first, int64_t n, const float *gradients, const apr_latent_rates *rates, adam a)
{
    step_blocks(l, first, n, gradients, rates, a);
}

static const blocks_fn steps_of_level[APR_CPU_LEVELS] = {step_plain, step_avx2, step_avx512};
#else
static const blocks_fn steps_of_level[APR_CPU_LEVELS] = {step_plain, step_plain, step_plain};
#endif

void apr_latents_step(apr_latents *l, int64_t first, int64_t n, const float *gradients, const apr_latent_rates *rates, int64_t step)
{
    const adam a = adam_at(step);

    if (l->grid != NULL) {
        steps_of_level[apr_host_level()](l, first, n, gradients, rates, a);
        return;
    }
    move(l, first, 0, (int)n, gradients, rates->plain, a);
    apr_host_codecs()[l->dtype].encode(l->latents + first, l->blocks + (size_t)first * l->block_bytes, n);
}

/* ---- what changed ---- */

/* Returns how many codes are another level; *of_d: the relative change of d. */
static int64_t compare_block(const apr_latents *l, const uint8_t *start, int64_t block, double *of_d)
{
    apr_grid_block now, then;
    int64_t n_turned = 0;

    l->grid->unpack(l->blocks + (size_t)block * l->block_bytes, &now);
    l->grid->unpack(start + (size_t)block * l->block_bytes, &then);
    for (int i = 0; i < l->elems; i++) n_turned += now.code[i] != then.code[i];
    const double d = apr_f16_to_f32(then.d);
    *of_d = has_scale(l->grid) && d != 0.0 ? fabs(apr_f16_to_f32(now.d) / d - 1.0) : 0.0;
    return n_turned;
}

void apr_latents_compare(const apr_latents *l, const void *start, apr_latent_changes *sum)
{
    int64_t n_turned = 0;
    double largest_d = sum->largest_d;

    if (l->grid == NULL) return;
#pragma omp parallel for schedule(static) reduction(+ : n_turned) reduction(max : largest_d)
    for (int64_t i = 0; i < l->n_blocks; i++) {
        double of_d;
        n_turned += compare_block(l, start, i, &of_d);
        if (of_d > largest_d) largest_d = of_d;
    }
    sum->n_codes += l->n_blocks * l->elems;
    sum->n_turned += n_turned;
    sum->largest_d = largest_d;
}

/* ---- the tensors of a model ---- */

/* A vector with a pending step is a column of elements; apr_tensor_row sees it the same way. */
typedef struct rows {
    int64_t n, columns;
    size_t row_bytes;
} rows;

static rows rows_of(const apr_tensor *view)
{
    const bool is_column = view->rank == 1 && view->pending.kind != APR_STEP_NONE;
    const int64_t n = is_column ? view->dims[0] : apr_tensor_rows(view);
    return (rows){n, is_column ? 1 : apr_tensor_columns(view), n > 0 ? (size_t)(view->n_bytes / (uint64_t)n) : 0};
}

static bool holds(const uint8_t *data, uint64_t n_bytes, const uint8_t *row, size_t row_bytes)
{
    const uintptr_t from = (uintptr_t)data, at = (uintptr_t)row;
    return at >= from && at - from < n_bytes && n_bytes - (at - from) >= row_bytes;
}

static bool holds_all(const apr_tensor *t, const apr_tensor *view, rows r)
{
    for (int64_t i = 0; i < r.n; i++)
        if (!holds(t->data, t->n_bytes, apr_tensor_row(view, i), r.row_bytes)) return false;
    return true;
}

size_t apr_trained_find(const apr_tensor *table, size_t n, const apr_tensor *view)
{
    const bool fits = view->rank >= 2 ? grid_of(view->dtype) != NULL : view->rank == 1 && is_float(view->dtype);

    if (!fits || !apr_tensor_is_stored(view) || view->scale != NULL || view->n_bytes == 0) return SIZE_MAX;
    const rows r = rows_of(view);
    for (size_t i = 0; i < n; i++)
        if (table[i].dtype == view->dtype && table[i].n_bytes > 0 && holds_all(&table[i], view, r)) return i;
    return SIZE_MAX;
}

apr_status apr_trained_open(apr_trained *trained, apr_tensor *table, size_t n, const bool *wanted, apr_error *err)
{
    *trained = (apr_trained){.items = calloc(n + 1, sizeof *trained->items)};
    if (trained->items == NULL) return apr_no_memory(err, "the tensors in training");
    for (size_t i = 0; i < n; i++) {
        apr_trained_tensor *const item = &trained->items[trained->n];
        if (!wanted[i]) continue;
        APR_TRY(apr_latents_open(&item->latents, table[i].dtype, apr_tensor_elems(&table[i]), table[i].data, err));
        item->tensor = i;
        trained->n++;
        item->best = malloc(table[i].n_bytes + 1);
        if (item->best == NULL) return apr_no_memory(err, "the best blocks of a tensor");
        copy_bytes(item->best, table[i].data, table[i].n_bytes);
        apr_tensor_set_data(&table[i], item->latents.blocks);
    }
    return APR_OK;
}

void apr_trained_close(apr_trained *trained)
{
    for (size_t i = 0; i < trained->n; i++) {
        apr_latents_close(&trained->items[i].latents);
        free(trained->items[i].best);
    }
    free(trained->items);
    *trained = (apr_trained){0};
}

/* How far from the middle of its cell a code starts: E2M1's cells differ in size, and fewer codes should change. */
static const float E2M1_HOLD = 0.7f;

/* Of a step, for one thread. They go to whichever thread is free, because one may share its core with a thread that waits for a GPU. */
enum { ROWS_AT_ONCE = 4 };

static size_t bytes_of(const apr_latents *l) { return (size_t)l->n_blocks * l->block_bytes; }

static apr_latents *latents_of_view(const apr_trained *trained, const apr_tensor *view)
{
    const uint8_t *const row = apr_tensor_row(view, 0);
    for (size_t i = 0; i < trained->n; i++)
        if (holds(trained->items[i].latents.blocks, bytes_of(&trained->items[i].latents), row, 1)) return &trained->items[i].latents;
    return NULL;
}

static int64_t first_block(const apr_latents *l, const apr_tensor *view, int64_t row)
{
    return (int64_t)((size_t)(apr_tensor_row(view, row) - l->blocks) / l->block_bytes);
}

apr_status apr_trained_start(apr_trained *trained, const apr_tensor *view, const apr_tensor *original, apr_error *err)
{
    apr_latents *const l = latents_of_view(trained, view);
    const rows r = rows_of(view);

    if (l == NULL || l->grid == NULL) return APR_OK;
    const float hold = l->grid->is_e2m1 ? E2M1_HOLD : 1.0f;
    float *const decoded = malloc((size_t)apr_all_threads() * (size_t)r.columns * sizeof *decoded + 1); /* a row for each thread */
    if (decoded == NULL) return apr_no_memory(err, "rows of the original of a tensor");
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < r.n; i++) {
        float *const row = decoded + apr_thread_number() * r.columns;
        apr_decode_rows(original, i, 1, row);
        apr_latents_start(l, first_block(l, view, i), r.columns / l->elems, row, hold);
    }
    free(decoded);
    return APR_OK;
}

void apr_trained_step(apr_trained *trained, const apr_tensor *view, const float *gradient, const apr_latent_rates *rates, int64_t step)
{
    apr_latents *const l = latents_of_view(trained, view);
    const rows r = rows_of(view);

    if (l == NULL) return;
#pragma omp parallel for schedule(dynamic, ROWS_AT_ONCE)
    for (int64_t i = 0; i < r.n; i++)
        apr_latents_step(l, first_block(l, view, i), r.columns / l->elems, gradient + i * r.columns, rates, step);
}

void apr_trained_keep(apr_trained *trained)
{
    for (size_t i = 0; i < trained->n; i++)
        copy_bytes(trained->items[i].best, trained->items[i].latents.blocks, bytes_of(&trained->items[i].latents));
}

void apr_trained_put_back(apr_trained *trained)
{
    for (size_t i = 0; i < trained->n; i++)
        copy_bytes(trained->items[i].latents.blocks, trained->items[i].best, bytes_of(&trained->items[i].latents));
}

/* For each tensor: blocks, best blocks, latents, means and powers; then the CRC-32 of all of these. */
enum { PARTS = 5 };
typedef struct part {
    void *bytes;
    size_t n_bytes;
} part;

static void parts_of(const apr_trained_tensor *item, part parts[PARTS])
{
    const apr_latents *const l = &item->latents;
    const size_t n_blocks = bytes_of(l), n = (size_t)(l->n_blocks * l->n_latents), n_means = n * sizeof *l->mean;
    const part all[PARTS] = {
        {l->blocks, n_blocks}, {item->best, n_blocks}, {l->latents, n * sizeof *l->latents}, {l->mean, n_means}, {l->power, n_means}};
    memcpy(parts, all, sizeof all);
}

bool apr_trained_write(const apr_trained *trained, FILE *file)
{
    bool good = true;

    for (size_t i = 0; i < trained->n && good; i++) {
        uint32_t crc = 0;
        part parts[PARTS];
        parts_of(&trained->items[i], parts);
        for (int k = 0; k < PARTS && good; k++) {
            crc = apr_crc32(crc, parts[k].bytes, parts[k].n_bytes);
            good = fwrite(parts[k].bytes, 1, parts[k].n_bytes, file) == parts[k].n_bytes;
        }
        good = good && fwrite(&crc, sizeof crc, 1, file) == 1;
    }
    return good;
}

bool apr_trained_read(apr_trained *trained, FILE *file)
{
    bool good = true;

    for (size_t i = 0; i < trained->n && good; i++) {
        uint32_t crc = 0, stated;
        part parts[PARTS];
        parts_of(&trained->items[i], parts);
        for (int k = 0; k < PARTS && good; k++) {
            good = fread(parts[k].bytes, 1, parts[k].n_bytes, file) == parts[k].n_bytes;
            if (good) crc = apr_crc32(crc, parts[k].bytes, parts[k].n_bytes);
        }
        good = good && fread(&stated, sizeof stated, 1, file) == 1 && stated == crc;
    }
    return good;
}
