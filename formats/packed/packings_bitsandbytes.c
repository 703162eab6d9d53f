/* packings_bitsandbytes.c - binds bitsandbytes' nf4 and fp4: a matrix is one sequence of nibbles over all rows, high nibble first, in blocks.
 *
 *     X.weight              U8 [N*K/2, 1] (or a float type that stores the same bytes)
 *     X.weight.absmax       F32, one for a block. Nested: U8, absmax[i] = nested_quant_map[u8] * nested_absmax[i / 256] + offset
 *     X.weight.quant_map    F32 [16], the levels
 *     X.weight.quant_state.bitsandbytes__nf4   U8, a JSON text: shape, blocksize, dtype, nested_blocksize, nested_offset, ...
 *
 * LLM.int8 (X.SCB) is not bound: the library computes (q * SCB) * (1 / 127), which differs in rounding from one factor. */
#include "formats/base/bytes.h"
#include "formats/base/json.h"
#include "formats/packed/packings_bind.h"

#include <stdio.h>
#include <string.h>

static const apr_dtype f32[] = {APR_F32, APR_DTYPE_COUNT}, u8[] = {APR_U8, APR_DTYPE_COUNT};

static const char *const states[] = {".weight.quant_state.bitsandbytes__nf4", ".weight.quant_state.bitsandbytes__fp4"};

static bool is_bitsandbytes(const apr_binding *b)
{
    return apr_companion(b, ".weight.absmax") != NULL || apr_companion(b, states[0]) != NULL || apr_companion(b, states[1]) != NULL;
}

/* The contents of the JSON text. */
typedef struct quant_state {
    const char *kind; /* "nf4", "fp4" */
    apr_dtype dtype;
    int rank;
    int64_t dims[APR_MAX_RANK], n; /* n: their product */
    int64_t block, nested_block;
    double nested_offset;
} quant_state;

static apr_status read_dims(const cJSON *json, quant_state *s)
{
    const cJSON *const shape = apr_json_get(json, "shape"), *item;

    s->n = 1;
    if (!cJSON_IsArray(shape) || cJSON_GetArraySize(shape) < 1 || cJSON_GetArraySize(shape) > APR_MAX_RANK) return APR_E_DAMAGED;
    cJSON_ArrayForEach(item, shape)
    {
        if (!apr_json_as_int(item, &s->dims[s->rank]) || s->dims[s->rank] < 1) return APR_E_DAMAGED;
        if (__builtin_mul_overflow(s->n, s->dims[s->rank++], &s->n)) return APR_E_DAMAGED;
    }
    return APR_OK;
}

/* Reads the members. Returns the name of the first invalid one, or NULL. */
static const char *read_members(const cJSON *json, quant_state *s)
{
    static const struct {
        const char *name;
        apr_dtype dtype;
    } dtypes[] = {{"float16", APR_F16}, {"bfloat16", APR_BF16}, {"float32", APR_F32}};
    const char *const dtype = apr_json_get_string(json, "dtype");

    s->dtype = APR_DTYPE_COUNT;
    for (size_t i = 0; dtype != NULL && i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(dtype, dtypes[i].name) == 0) s->dtype = dtypes[i].dtype;
    if (s->dtype == APR_DTYPE_COUNT) return "dtype";
    if (read_dims(json, s) != APR_OK) return "shape";
    if (!apr_json_get_int(json, "blocksize", &s->block) || s->block < 1) return "blocksize";
    s->nested_block = 256;
    if (apr_json_get(json, "nested_blocksize") != NULL &&
        (!apr_json_get_int(json, "nested_blocksize", &s->nested_block) || s->nested_block < 1))
        return "nested_blocksize";
    if (apr_json_get(json, "nested_offset") != NULL && !apr_json_get_real(json, "nested_offset", &s->nested_offset)) return "nested_offset";
    return NULL;
}

static apr_status read_state(apr_binding *b, quant_state *s)
{
    const int at = apr_companion(b, states[0]) == NULL && apr_companion(b, states[1]) != NULL;
    const apr_tensor *text;
    cJSON *json;

    APR_TRY(apr_need_part(b, states[at], &text));
    APR_TRY(apr_check_dtype(b, text, u8, "u8"));
    s->kind = strrchr(states[at], '_') + 1;
    const char *const where = apr_arena_print(b->arena, "%s: '%s'", b->model->path, text->name);
    if (where == NULL) return apr_no_memory(b->err, "packed weights");
    APR_TRY(apr_json_parse(&json, text->n_bytes > 0 ? (const char *)text->data : "", (size_t)text->n_bytes, where, b->err));
    const char *const bad = read_members(json, s);
    cJSON_Delete(json);
    if (bad == NULL) return APR_OK;
    return apr_fail(b->err, APR_E_DAMAGED, "%s: '%s' has no valid \"%s\"", b->model->path, text->name, bad);
}

/* Copies the levels to aligned memory. Equal tables of consecutive matrices share one copy. */
static apr_status read_levels(apr_binding *b)
{
    const apr_tensor *map;
    float levels[16];

    APR_TRY(apr_need_part(b, ".weight.quant_map", &map));
    APR_TRY(apr_check_dtype(b, map, f32, "f32"));
    APR_TRY(apr_check_shape(b, map, 1, (const int64_t[]){16}, "four bits need"));
    memcpy(levels, map->data, sizeof levels);
    if (b->shared->levels == NULL || memcmp(b->shared->levels, levels, sizeof levels) != 0) {
        float *const kept = apr_arena_array(b->arena, 16, sizeof *kept);
        if (kept == NULL) return apr_no_memory(b->err, "packed weights");
        memcpy(kept, levels, sizeof levels);
        b->shared->levels = kept;
    }
    b->packing.levels = b->shared->levels;
    return APR_OK;
}

static apr_status bind_nested(apr_binding *b, const quant_state *s, int64_t n_blocks)
{
    apr_nested_scales *const nested = apr_arena_alloc(b->arena, sizeof *nested);

    if (nested == NULL) return apr_no_memory(b->err, "packed weights");
    APR_TRY(apr_need_part(b, ".weight.nested_absmax", &nested->scales));
    APR_TRY(apr_need_part(b, ".weight.nested_quant_map", &nested->map));
    APR_TRY(apr_check_dtype(b, nested->scales, f32, "f32"));
    APR_TRY(apr_check_dtype(b, nested->map, f32, "f32"));
    APR_TRY(apr_check_shape(b, nested->map, 1, (const int64_t[]){256}, "scales of 8 bits need"));
    APR_TRY(apr_check_shape(b, nested->scales, 1, (const int64_t[]){apr_div_up(n_blocks, s->nested_block)},
                            "scales of scales for its blocks need"));
    nested->block = s->nested_block;
    nested->offset = (float)s->nested_offset;
    b->packing.nested = nested;
    return APR_OK;
}

static apr_status bind_absmax(apr_binding *b, const quant_state *s)
{
    static const apr_dtype dtypes[] = {APR_F32, APR_U8, APR_DTYPE_COUNT};
    const int64_t n_blocks = apr_div_up(s->n, s->block);
    const apr_tensor *scales;

    APR_TRY(apr_need_part(b, ".weight.absmax", &scales));
    APR_TRY(apr_check_dtype(b, scales, dtypes, "f32, or u8 where it is nested"));
    APR_TRY(apr_check_shape(b, scales, 1, &n_blocks, "one scale for each block needs"));
    b->packing.scales = scales;
    b->packing.scale_dtype = scales->dtype;
    return scales->dtype == APR_U8 ? bind_nested(b, s, n_blocks) : APR_OK;
}

/* Blocks cross rows. */
static void set_geometry(apr_binding *b, const quant_state *s)
{
    apr_packing *const p = &b->packing;
    const int64_t columns = s->dims[s->rank - 1];

    b->matrix.dtype = s->dtype;
    b->matrix.rank = s->rank;
    memcpy(b->matrix.dims, s->dims, sizeof b->matrix.dims);
    p->rows = p->matrix_rows = s->n / columns;
    p->columns = columns;
    p->scale_columns = s->block;
}

static apr_status bind_bitsandbytes(apr_binding *b)
{
    quant_state s = {0};

    APR_TRY(read_state(b, &s));
    if (b->codes->n_bytes != (uint64_t)(s.n / 2 + s.n % 2))
        return apr_fail(b->err, APR_E_DAMAGED, "%s: '%s' has %llu bytes, but the %lld numbers that its quant_state states fill %lld",
                        b->model->path, b->codes->name, (unsigned long long)b->codes->n_bytes, (long long)s.n,
                        (long long)(s.n / 2 + s.n % 2));
    APR_TRY(bind_absmax(b, &s));
    APR_TRY(read_levels(b));
    set_geometry(b, &s);
    return apr_set_scheme(b, "bitsandbytes %s, blocks of %lld%s", s.kind, (long long)s.block,
                          b->packing.nested != NULL ? ", nested scales" : "");
}

const apr_packing_layout apr_layouts_bitsandbytes[] = {
    {".weight", is_bitsandbytes, bind_bitsandbytes, {.order = APR_CODES_HIGH_FIRST, .level = APR_LEVEL_TABLE, .bits = 4, .scale_rows = 1}},
    {0}};
