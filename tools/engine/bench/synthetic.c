/* synthetic.c - lays out a model's tensors, and fills them with a repeated pattern of random blocks. */
#include "tools/engine/bench/synthetic.h"

#include "formats/base/bytes.h"
#include "formats/base/random.h"
#include "formats/base/threads.h"
#include "kernels/rows.h"
#include "quant/recipe.h"
#include "runtime/program/program.h"
#include "runtime/session/heap.h"
#include "tools/engine/plan/sizes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* How a tensor's numbers are distributed. */
typedef enum { MATRIX, GAIN, SCALE } number_kind;

/* Tensors of one type and kind. They have one pattern. Their memory is consecutive or, when shared, overlapping. */
struct apr_synthetic_pool {
    apr_dtype dtype;
    number_kind kind;
    uint64_t at, n_bytes; /* in the memory; shared: the size of the largest tensor, plus the last start */
    uint64_t used;        /* bytes given out, not shared */
    uint8_t *pattern;     /* [pattern_bytes] whole blocks, only while filling */
    size_t pattern_bytes;
    float scale; /* FP8: the scale of the pattern */
};

/* --- patterns --- */

/* About as many numbers as a pattern has. Its number of blocks is prime, so that rows of round lengths do not repeat in step with it. */
enum { PATTERN_ELEMS = 1 << 18 };

static size_t largest_prime(size_t most)
{
    for (size_t n = most; n > 2; n--) {
        size_t d = 2;
        while (d * d <= n && n % d != 0) d++;
        if (d * d > n) return n;
    }
    return 2;
}

static size_t pattern_blocks(apr_dtype dtype) { return largest_prime((size_t)(PATTERN_ELEMS / apr_dtypes[dtype].elems_per_block)); }

/* About normal, with a deviation of 0.02 as models are initialised; gains are about 1. */
static void draw(float *x, size_t n, number_kind kind, uint64_t seed)
{
    uint64_t state = seed;
    for (size_t i = 0; i < n; i++) {
        const uint64_t bits = apr_random(&state);
        const int32_t sum = (int32_t)(bits & 0xffff) + (int32_t)(bits >> 16 & 0xffff) + (int32_t)(bits >> 32 & 0xffff) +
                            (int32_t)(bits >> 48) - 2 * 0xffff; /* of four, each with a deviation of 65536 / sqrt(12) */
        x[i] = (kind == GAIN ? 1.0f : 0.0f) + 0.02f * (float)sum / 37837.0f;
    }
}

/* How far a block's numbers are from a deviation of 0.02, in powers of two; INFINITY: some are not finite, or all are 0. */
static double distance_of(apr_dtype dtype, const uint8_t *block, float *values)
{
    const int64_t n = apr_dtypes[dtype].elems_per_block;
    double squares = 0.0;

    apr_host_codecs()[dtype].decode(block, values, n);
    for (int64_t i = 0; i < n; i++) squares += (double)values[i] * (double)values[i];
    return isfinite(squares) && squares > 0.0 ? fabs(log2(sqrt(squares / (double)n) / 0.02)) : INFINITY;
}

/* One try at a block: random bytes are changed one by one, as long as the numbers come nearer to a usual size. */
static double try_block(apr_dtype dtype, uint8_t *block, float *values, uint64_t *state)
{
    enum { MOST_CHANGES = 2000 };
    const size_t n_bytes = (size_t)apr_dtypes[dtype].bytes_per_block;

    for (size_t i = 0; i < n_bytes; i++) block[i] = (uint8_t)apr_random(state);
    double distance = distance_of(dtype, block, values);
    for (int i = 0; i < MOST_CHANGES && distance > 0.3; i++) {
        const uint64_t bits = apr_random(state);
        const size_t at = (size_t)(bits >> 8) % n_bytes;
        const uint8_t before = block[at];
        block[at] = (uint8_t)bits;
        const double now = distance_of(dtype, block, values);
        if (now <= distance) distance = now;
        else block[at] = before;
    }
    return distance;
}

/* A block of a type that has no encoder here. A try may end with a large scale and offset that cancel; then it tries again. */
static void make_block(apr_dtype dtype, uint8_t *block, float *values, uint64_t *state)
{
    enum { MOST_TRIES = 100 };

    for (int i = 0; i < MOST_TRIES; i++)
        if (try_block(dtype, block, values, state) <= 0.3) return;
    memset(block, 0, (size_t)apr_dtypes[dtype].bytes_per_block);
}

/* Makes some blocks, and fills the pattern with random repeats of them. */
static bool fill_with_blocks(struct apr_synthetic_pool *pool, size_t n_blocks, uint64_t seed)
{
    enum { MADE = 61 };
    const size_t each = (size_t)apr_dtypes[pool->dtype].bytes_per_block;
    float *const values = malloc((size_t)apr_dtypes[pool->dtype].elems_per_block * sizeof *values);
    uint64_t state = seed;

    for (size_t i = 0; values != NULL && i < n_blocks; i++) {
        if (i < MADE) make_block(pool->dtype, pool->pattern + i * each, values, &state);
        else memcpy(pool->pattern + i * each, pool->pattern + apr_random(&state) % MADE * each, each);
    }
    free(values);
    return values != NULL;
}

static apr_status make_pattern(struct apr_synthetic_pool *pool, uint64_t seed, float fp8_scale, apr_error *err)
{
    const apr_dtype_facts *const facts = &apr_dtypes[pool->dtype];
    const size_t n_blocks = pattern_blocks(pool->dtype), n = n_blocks * (size_t)facts->elems_per_block;
    float *const values = malloc(n * sizeof *values);

    pool->pattern_bytes = n_blocks * (size_t)facts->bytes_per_block;
    pool->pattern = malloc(pool->pattern_bytes);
    bool ok = values != NULL && pool->pattern != NULL;
    const bool is_encoded = apr_can_encode(pool->dtype);
    if (ok && !is_encoded) ok = fill_with_blocks(pool, n_blocks, seed);
    else if (ok && pool->kind == SCALE)
        for (size_t i = 0; i < n; i++) values[i] = fp8_scale;
    else if (ok) draw(values, n, pool->kind, seed);
    if (ok && is_encoded && pool->dtype == APR_F8_E4M3) apr_encode_fp8_row(values, pool->pattern, &pool->scale, (int64_t)n);
    else if (ok && is_encoded) apr_host_codecs()[pool->dtype].encode(values, pool->pattern, (int64_t)n);
    free(values);
    return ok ? APR_OK : apr_no_memory(err, "a pattern of random weights");
}

/* --- the layout --- */

static const uint8_t no_data_yet[1]; /* data of tensors without memory yet: a plan requires that there is a pointer */

static number_kind kind_of(const char *name) { return strstr(name, "norm") != NULL ? GAIN : MATRIX; }

/* The pool of a type and kind; adds it if there is none. The table has capacity for all. */
static size_t pool_for(apr_synthetic *s, apr_dtype dtype, number_kind kind)
{
    for (size_t i = 0; i < s->n_pools; i++)
        if (s->pools[i].dtype == dtype && s->pools[i].kind == kind) return i;
    s->pools[s->n_pools] = (struct apr_synthetic_pool){.dtype = dtype, .kind = kind};
    return s->n_pools++;
}

static apr_status add_tensor(apr_synthetic *s, const char *name, apr_dtype dtype, int rank, const int64_t *dims, number_kind kind,
                             apr_error *err)
{
    apr_tensor *const t = &s->model.tensors[s->model.n_tensors];

    if (!apr_can_encode(dtype) && !apr_can_decode(dtype))
        return apr_fail(err, APR_E_UNSUPPORTED, "tensor '%s': random weights of type %s cannot be made", name, apr_dtypes[dtype].name);
    *t = (apr_tensor){.name = apr_arena_copy(&s->model.arena, name, strlen(name)), .dtype = dtype, .rank = rank, .data = no_data_yet};
    if (t->name == NULL) return apr_no_memory(err, "a table of tensors");
    memcpy(t->dims, dims, (size_t)rank * sizeof *dims);
    APR_TRY(apr_tensor_size(t, s->model.path, err));
    s->pool_of[s->model.n_tensors++] = pool_for(s, dtype, kind);
    s->weights_bytes = apr_saturating_add(s->weights_bytes, apr_pad64(t->n_bytes));
    return APR_OK;
}

/* One scale for each row, in a tensor after the weight's. */
static apr_status add_scale(apr_synthetic *s, apr_error *err)
{
    apr_tensor *const weight = &s->model.tensors[s->model.n_tensors - 1];
    int64_t dims[APR_MAX_RANK];
    char name[300];

    memcpy(dims, weight->dims, sizeof dims);
    dims[weight->rank - 1] = 1;
    snprintf(name, sizeof name, "%s_scale", weight->name);
    weight->scale_rows = 1;
    weight->scale_columns = apr_tensor_columns(weight);
    weight->scale = weight + 1;
    return add_tensor(s, name, APR_F32, weight->rank, dims, SCALE, err);
}

static apr_status add_slot(apr_synthetic *s, const apr_weight_slot *slot, apr_dtype dtype, apr_error *err)
{
    const bool scaled = apr_dtypes[dtype].scales == APR_SCALES_SEPARATE;
    char name[256];

    for (int64_t j = 0; j < slot->count; j++) {
        apr_slot_name(slot, j, name, sizeof name);
        APR_TRY(add_tensor(s, name, dtype, slot->rank, slot->dims, kind_of(name), err));
        s->n_elems += apr_tensor_elems(&s->model.tensors[s->model.n_tensors - 1]);
        if (scaled) APR_TRY(add_scale(s, err));
    }
    return APR_OK;
}

/* Capacity for every tensor and its scale, and for a pool of each type and kind. */
static apr_status allocate_tables(apr_synthetic *s, const apr_program *program, apr_error *err)
{
    uint64_t n = 0;
    for (size_t i = 0; i < program->n_weights; i++) n = apr_saturating_add(n, (uint64_t)program->weights[i].count);
    if (n > 1u << 22)
        return apr_fail(err, APR_E_UNSUPPORTED, "%s: a model of %llu tensors is too large to make", s->source.path, (unsigned long long)n);
    s->model.tensors = apr_arena_array(&s->model.arena, 2 * n + 1, sizeof *s->model.tensors);
    s->pool_of = apr_arena_array(&s->model.arena, 2 * n + 1, sizeof *s->pool_of);
    s->pools = apr_arena_array(&s->model.arena, (SCALE + 1) * APR_DTYPE_COUNT, sizeof *s->pools);
    return s->model.tensors != NULL && s->pool_of != NULL && s->pools != NULL ? APR_OK : apr_no_memory(err, "a table of tensors");
}

/* For a type that is not a mixture's name: this recipe, with that type in place of MXFP4. Rows that do not divide into the type's blocks
 * get Q8_0 or FP16. */
static const char base_mixture[] = "mxfp4";

static apr_dtype type_of(const apr_recipe_line *line, apr_dtype instead)
{
    const int64_t n_columns = apr_tensor_columns(line->tensor);
    if (instead == APR_DTYPE_COUNT || line->to != APR_MXFP4) return line->to;
    if (n_columns % apr_dtypes[instead].elems_per_block == 0) return instead;
    return n_columns % apr_dtypes[APR_Q8_0].elems_per_block == 0 ? APR_Q8_0 : APR_F16;
}

/* The type of that name, if it is not a mixture's name and can be decoded; else APR_DTYPE_COUNT. */
static apr_dtype find_instead(const char *name)
{
    for (const apr_mixture_name *m = apr_mixture_names; m->name != NULL; m++)
        if (strcasecmp(m->name, name) == 0) return APR_DTYPE_COUNT;
    const apr_dtype dtype = apr_dtype_by_name(name);
    const bool is_good = dtype != APR_DTYPE_COUNT && apr_dtype_is_weights(dtype) && !apr_dtypes[dtype].flat && apr_can_decode(dtype);
    return is_good ? dtype : APR_DTYPE_COUNT;
}

/* The skeleton has a tensor for each slot that is not left out, in their order, and the recipe a line for each of those. */
static apr_status add_slots(apr_synthetic *s, const apr_program *program, const apr_recipe *recipe, apr_dtype instead, apr_error *err)
{
    size_t line = 0;

    APR_TRY(allocate_tables(s, program, err));
    for (size_t i = 0; i < program->n_weights; i++) {
        if (line == recipe->n_lines || strcmp(recipe->lines[line].tensor->name, program->weights[i].name) != 0) continue;
        APR_TRY(add_slot(s, &program->weights[i], type_of(&recipe->lines[line], instead), err));
        line++;
    }
    return apr_model_index_names(&s->model, err);
}

static apr_status lay_out(apr_synthetic *s, const char *mixture, apr_error *err)
{
    const apr_dtype instead = find_instead(mixture);
    const apr_recipe_options options = {.mixture = instead != APR_DTYPE_COUNT ? base_mixture : mixture, .limits = {.container = "APR"}};
    apr_program program = {0};
    apr_model skeleton = {0};
    apr_recipe recipe = {0};

    apr_status status = apr_program_emit(&program, &s->source.hparams, err);
    if (status == APR_OK) status = apr_skeleton_model(&skeleton, &program, &s->source, err);
    if (status == APR_OK) status = apr_recipe_make(&recipe, &skeleton, &options, err);
    if (status == APR_OK) status = add_slots(s, &program, &recipe, instead, err);
    apr_recipe_close(&recipe);
    apr_model_close(&skeleton);
    apr_program_close(&program);
    return status;
}

/* --- memory --- */

enum { STARTS = 509 }; /* starts of tensors in a shared pool, a few blocks apart */

static uint64_t start_of(const struct apr_synthetic_pool *pool, size_t tensor)
{
    return tensor % STARTS * 7 * (uint64_t)apr_dtypes[pool->dtype].bytes_per_block;
}

static apr_status allocate_memory(apr_synthetic *s, apr_error *err)
{
    for (size_t i = 0; i < s->model.n_tensors; i++) {
        struct apr_synthetic_pool *const pool = &s->pools[s->pool_of[i]];
        const uint64_t padded = apr_pad64(s->model.tensors[i].n_bytes), with_start = apr_saturating_add(padded, start_of(pool, STARTS - 1));
        if (!s->shared) pool->n_bytes = apr_saturating_add(pool->n_bytes, padded);
        else if (with_start > pool->n_bytes) pool->n_bytes = apr_pad64(with_start);
    }
    for (size_t i = 0; i < s->n_pools; i++) {
        s->pools[i].at = s->memory_bytes;
        s->memory_bytes = apr_saturating_add(s->memory_bytes, s->pools[i].n_bytes);
    }
    const uint64_t before = apr_heap_in_use();
    s->memory = s->memory_bytes <= SIZE_MAX / 2 ? aligned_alloc(64, (size_t)apr_pad64(s->memory_bytes)) : NULL;
    if (s->memory == NULL)
        return apr_fail(err, APR_E_MEMORY, "%s: not enough memory for %.1f MiB of weights", s->model.path,
                        (double)s->memory_bytes / 0x1p20);
    s->heap_bytes = before == UINT64_MAX ? UINT64_MAX : apr_heap_in_use() - before;
    for (size_t i = 0; i < s->model.n_tensors; i++) {
        struct apr_synthetic_pool *const pool = &s->pools[s->pool_of[i]];
        s->model.tensors[i].data = s->memory + pool->at + (s->shared ? start_of(pool, i) : pool->used);
        pool->used += apr_pad64(s->model.tensors[i].n_bytes);
    }
    return APR_OK;
}

apr_status apr_synthetic_open(apr_synthetic *s, const char *config, const char *mixture, bool shared, apr_error *err)
{
    *s = (apr_synthetic){.shared = shared};
    APR_TRY(apr_model_open(&s->source, config, err));
    s->model = (apr_model){.path = s->source.path, .format = APR_FORMAT_APR, .naming = APR_NAMING_HF, .hparams = s->source.hparams};
    return lay_out(s, mixture, err);
}

/* --- bytes --- */

/* Copies n bytes of the repeated pattern, from its byte `at` on. */
static void repeat(uint8_t *to, uint64_t n, const struct apr_synthetic_pool *pool, uint64_t at)
{
    for (uint64_t done = 0; done < n;) {
        const uint64_t from = (at + done) % pool->pattern_bytes, left = pool->pattern_bytes - from;
        const uint64_t n_bytes = left < n - done ? left : n - done;
        memcpy(to + done, pool->pattern + from, (size_t)n_bytes);
        done += n_bytes;
    }
}

enum { PORTION_BYTES = 1 << 22 };

/* Fills n bytes of a pool, from a block of its pattern on; on all threads. */
static void fill(uint8_t *to, uint64_t n, const struct apr_synthetic_pool *pool, uint64_t first_block)
{
    const uint64_t begin = first_block * (uint64_t)apr_dtypes[pool->dtype].bytes_per_block;
    const int64_t n_portions = (int64_t)((n + PORTION_BYTES - 1) / PORTION_BYTES);

#pragma omp parallel for schedule(static) num_threads(apr_threads(apr_all_threads(), n_portions, (double)n))
    for (int64_t i = 0; i < n_portions; i++) {
        const uint64_t at = (uint64_t)i * PORTION_BYTES, left = n - at;
        repeat(to + at, left < PORTION_BYTES ? left : PORTION_BYTES, pool, begin + at);
    }
}

static void fill_tensors(apr_synthetic *s, uint64_t seed, const apr_progress *progress)
{
    uint64_t state = ~seed, done = 0;

    for (size_t i = 0; i < s->model.n_tensors; i++) {
        const struct apr_synthetic_pool *const pool = &s->pools[s->pool_of[i]];
        const apr_tensor *const t = &s->model.tensors[i];
        fill(s->memory + (t->data - s->memory), t->n_bytes, pool, apr_random(&state) % pattern_blocks(pool->dtype));
        apr_progress_report(progress, done += t->n_bytes, s->weights_bytes, "weights made");
    }
}

/* For shared pools: fills each once. Its tensors begin at different blocks of it. */
static void fill_pools(apr_synthetic *s)
{
    for (size_t i = 0; i < s->n_pools; i++) fill(s->memory + s->pools[i].at, s->pools[i].n_bytes, &s->pools[i], 0);
}

apr_status apr_synthetic_fill(apr_synthetic *s, uint64_t seed, const apr_progress *progress, apr_error *err)
{
    apr_status status = APR_OK;
    float fp8_scale = 1.0f; /* the pool of scales comes after the pool that they scale */

    APR_TRY(allocate_memory(s, err));
    for (size_t i = 0; i < s->n_pools && status == APR_OK; i++) {
        status = make_pattern(&s->pools[i], seed + i, fp8_scale, err);
        if (s->pools[i].dtype == APR_F8_E4M3) fp8_scale = s->pools[i].scale;
    }
    if (status == APR_OK && s->shared) fill_pools(s);
    else if (status == APR_OK) fill_tensors(s, seed, progress);
    for (size_t i = 0; i < s->n_pools; i++) {
        free(s->pools[i].pattern);
        s->pools[i].pattern = NULL;
    }
    return status;
}

void apr_synthetic_close(apr_synthetic *s)
{
    free(s->memory);
    apr_model_close(&s->model);
    apr_model_close(&s->source);
    *s = (apr_synthetic){0};
}
