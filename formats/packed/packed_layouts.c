/* packed_layouts.c - the table of layouts that are written, and what follows from a row: the tensors of a matrix, and which matrices servers
 * can load. */
#include "formats/packed/packed_layouts.h"

#include "formats/base/bytes.h"
#include "formats/base/text.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Marlin, the kernel of vLLM and SGLang for weights of 4 bits, takes tiles of so many rows and columns (verify_marlin_supports_shape). */
#define MARLIN     .row_multiple = 64, .column_multiple = 128, .kernel = "the Marlin kernels of vLLM and SGLang"
#define MODEL_TYPE APR_DTYPE_COUNT

const apr_packed_layout apr_packed_layouts[] = {
    {.type = "nvfp4",
     .name = "compressed-tensors",
     .about = "E2M1 with an E4M3 scale for 16 and one for the matrix; weights only",
     .dtype = APR_NVFP4,
     .packing = {.level = APR_LEVEL_E2M1, .bits = 4, .scale_rows = 1, .scale_dtype = APR_F8_E4M3, .divides = true},
     .parts = {{".weight_packed", APR_U8, APR_PACKED_CODES},
               {".weight_scale", APR_F8_E4M3, APR_PACKED_SCALES},
               {".weight_global_scale", APR_F32, APR_PACKED_GLOBAL_SCALE}},
     .groups = {16},
     .shares_global_scale = true,
     .config = APR_CONFIG_COMPRESSED_NVFP4,
     MARLIN},
    {.type = "nvfp4",
     .name = "modelopt",
     .about = "the same as modelopt's W4A16_NVFP4",
     .dtype = APR_NVFP4,
     .packing = {.level = APR_LEVEL_E2M1, .bits = 4, .scale_rows = 1, .scale_dtype = APR_F8_E4M3},
     .parts = {{".weight", APR_U8, APR_PACKED_CODES},
               {".weight_scale", APR_F8_E4M3, APR_PACKED_SCALES},
               {".weight_scale_2", APR_F32, APR_PACKED_GLOBAL_SCALE}},
     .groups = {16},
     .shares_global_scale = true,
     .config = APR_CONFIG_MODELOPT,
     MARLIN},
    {.type = "mxfp4",
     .name = "compressed-tensors",
     .about = "E2M1 with a power of two for 32; weights only",
     .dtype = APR_MXFP4,
     .packing = {.level = APR_LEVEL_E2M1, .bits = 4, .scale_rows = 1, .scale_dtype = APR_E8M0},
     .parts = {{".weight_packed", APR_U8, APR_PACKED_CODES}, {".weight_scale", APR_U8, APR_PACKED_SCALES}},
     .groups = {32},
     .config = APR_CONFIG_COMPRESSED_MXFP4,
     MARLIN},
    {.type = "fp8", .name = "compressed-tensors", .about = "E4M3 with a scale for each row", .dtype = APR_F8_E4M3, .by_row = true},
    {.type = "fp8",
     .name = "fp8",
     .about = "E4M3 with a scale for 128 x 128, as DeepSeek publishes it",
     .dtype = APR_F8_E4M3,
     .packing = {.level = APR_LEVEL_E4M3, .bits = 8, .scale_rows = 128, .scale_dtype = APR_F32},
     .parts = {{".weight", APR_F8_E4M3, APR_PACKED_CODES}, {".weight_scale_inv", APR_F32, APR_PACKED_SCALES}},
     .groups = {128},
     .fused_row_multiple = 128, /* a block must not cross from one matrix into the next (validate_fp8_block_shape) */
     .kernel = "the block scales of fused matrices in vLLM and SGLang",
     .config = APR_CONFIG_FP8},
    {.type = "int4",
     .name = "compressed-tensors",
     .about = "symmetric integers with a scale for a group (pack-quantized, W4A16)",
     .dtype = APR_I32,
     .packing = {.level = APR_LEVEL_UNSIGNED, .bits = 4, .scale_rows = 1, .zero_bias = 8},
     .parts = {{".weight_packed", APR_I32, APR_PACKED_CODES},
               {".weight_scale", MODEL_TYPE, APR_PACKED_SCALES},
               {".weight_shape", APR_I64, APR_PACKED_SHAPE}},
     .groups = {128, 64, 32},
     .config = APR_CONFIG_COMPRESSED_INT4,
     MARLIN},
    {.type = "int4",
     .name = "gptq",
     .about = "symmetric integers as GPTQ stores them (v1)",
     .dtype = APR_I32,
     .packing = {.order = APR_CODES_DOWN,
                 .level = APR_LEVEL_UNSIGNED,
                 .bits = 4,
                 .scales_down = true,
                 .scale_rows = 1,
                 .scale_dtype = APR_F16,
                 .zero_order = APR_ZEROS_ALONG_ROWS,
                 .zero_bias = 1},
     .parts = {{".qweight", APR_I32, APR_PACKED_CODES},
               {".qzeros", APR_I32, APR_PACKED_ZEROS},
               {".scales", APR_F16, APR_PACKED_SCALES},
               {".g_idx", APR_I32, APR_PACKED_INDEX}},
     .groups = {128, 64, 32},
     .config = APR_CONFIG_GPTQ,
     MARLIN},
    {.type = "int4",
     .name = "awq",
     .about = "integers with zero points as AutoAWQ stores them",
     .dtype = APR_I32,
     .packing = {.order = APR_CODES_INTERLEAVED,
                 .level = APR_LEVEL_UNSIGNED,
                 .bits = 4,
                 .scales_down = true,
                 .scale_rows = 1,
                 .scale_dtype = APR_F16,
                 .zero_order = APR_ZEROS_INTERLEAVED},
     .parts = {{".qweight", APR_I32, APR_PACKED_CODES}, {".qzeros", APR_I32, APR_PACKED_ZEROS}, {".scales", APR_F16, APR_PACKED_SCALES}},
     .groups = {128, 64, 32},
     .config = APR_CONFIG_AWQ,
     MARLIN},
    {0}};

/* ---- finding one ---- */

bool apr_packed_is_type(const char *type)
{
    for (const apr_packed_layout *l = apr_packed_layouts; l->type != NULL; l++)
        if (strcasecmp(l->type, type) == 0) return true;
    return false;
}

/* "compressed-tensors, gptq or awq": the layouts of a type, or the groups of a layout. */
typedef struct word_list {
    char text[160];
    size_t n;
} word_list;

static void add_word(word_list *list, bool is_last, const char *word)
{
    const char *const before = list->n == 0 ? "" : is_last ? " or " : ", ";
    if (list->n < sizeof list->text) list->n += (size_t)snprintf(list->text + list->n, sizeof list->text - list->n, "%s%s", before, word);
}

static apr_status refuse_layout(const char *type, const char *name, apr_error *err)
{
    const apr_packed_layout *last = NULL;
    word_list list = {.n = 0};

    for (const apr_packed_layout *l = apr_packed_layouts; l->type != NULL; l++)
        if (strcasecmp(l->type, type) == 0) last = l;
    if (last == NULL)
        return apr_fail(err, APR_E_USAGE, "--layout is for the types nvfp4, mxfp4, fp8 and int4, not %s ('aprquant --list' shows them)",
                        type);
    for (const apr_packed_layout *l = apr_packed_layouts; l->type != NULL; l++)
        if (strcasecmp(l->type, type) == 0) add_word(&list, l == last, l->name);
    return apr_fail(err, APR_E_USAGE, "--layout %s does not exist for %s; it can be %s", name, type, list.text);
}

static apr_status set_group(apr_packed_target *target, int64_t group, apr_error *err)
{
    const int *const groups = target->layout->groups;
    word_list list = {.n = 0};
    char word[16];

    target->group = groups[0];
    if (group == 0) return APR_OK;
    for (int i = 0; i < APR_LAYOUT_GROUPS && groups[i] > 0; i++)
        if (groups[i] == group) {
            target->group = groups[i];
            return APR_OK;
        }
    if (target->layout->by_row)
        return apr_fail(err, APR_E_USAGE, "--group: %s as %s has a scale for each row", target->layout->type, target->layout->name);
    for (int i = 0; i < APR_LAYOUT_GROUPS && groups[i] > 0; i++) {
        snprintf(word, sizeof word, "%d", groups[i]);
        add_word(&list, i + 1 == APR_LAYOUT_GROUPS || groups[i + 1] == 0, word);
    }
    return apr_fail(err, APR_E_USAGE, "--group %lld: %s as %s has groups of %s", (long long)group, target->layout->type,
                    target->layout->name, list.text);
}

apr_status apr_packed_target_find(apr_packed_target *target, const char *type, const char *name, int64_t group, apr_error *err)
{
    *target = (apr_packed_target){.scale16 = APR_BF16};
    for (const apr_packed_layout *l = apr_packed_layouts; l->type != NULL && target->layout == NULL; l++)
        if (strcasecmp(l->type, type) == 0 && (name == NULL || strcmp(l->name, name) == 0)) target->layout = l;
    if (target->layout == NULL) return refuse_layout(type, name != NULL ? name : "", err);
    return set_group(target, group, err);
}

/* ---- which matrices ---- */

const char *apr_packed_obstacle(const apr_packed_target *target, int64_t rows, int64_t columns, bool is_fused, apr_arena *arena)
{
    const apr_packed_layout *const l = target->layout;
    const int row_multiple = is_fused && l->fused_row_multiple > 0 ? l->fused_row_multiple : l->row_multiple;
    const int column_multiple = l->column_multiple > 0 && l->column_multiple < target->group ? target->group : l->column_multiple;

    if (row_multiple > 0 && rows % row_multiple != 0)
        return apr_arena_print(arena, "%lld rows are not a multiple of %d, which %s need", (long long)rows, row_multiple, l->kernel);
    if (column_multiple > 0 && columns % column_multiple != 0)
        return apr_arena_print(arena, "%lld columns are not a multiple of %d, which %s need", (long long)columns, column_multiple,
                               l->kernel);
    return NULL;
}

/* ---- the tensors of a matrix ---- */

static void set_shape(apr_tensor *t, int rank, int64_t first, int64_t second)
{
    t->rank = rank;
    t->dims[0] = first;
    t->dims[1] = second;
}

/* As many numbers of `bits` as a number of the part holds. */
static int64_t per_number(const apr_packing *p, apr_dtype dtype) { return 8 * apr_dtypes[dtype].bytes_per_block / p->bits; }

static void shape_codes(apr_tensor *t, const apr_packing *p)
{
    const int64_t each = per_number(p, t->dtype);
    if (p->order == APR_CODES_DOWN) set_shape(t, 2, p->columns / each, p->rows);
    else if (p->order == APR_CODES_INTERLEAVED) set_shape(t, 2, p->columns, p->rows / each);
    else set_shape(t, 2, p->rows, p->columns / each);
}

static void shape_scales(apr_tensor *t, const apr_packing *p)
{
    const int64_t groups = apr_packing_groups(p);
    if (p->scales_down) set_shape(t, 2, groups, p->rows);
    else set_shape(t, 2, apr_packing_scale_rows(p), groups);
}

static void shape_part(apr_tensor *t, apr_packed_content content, const apr_packing *p)
{
    switch (content) {
    case APR_PACKED_CODES: return shape_codes(t, p);
    case APR_PACKED_SCALES: return shape_scales(t, p);
    case APR_PACKED_ZEROS: return set_shape(t, 2, apr_packing_groups(p), p->rows / per_number(p, t->dtype));
    case APR_PACKED_GLOBAL_SCALE: return set_shape(t, p->divides ? 1 : 0, p->divides, 0);
    case APR_PACKED_SHAPE: return set_shape(t, 1, 2, 0);
    case APR_PACKED_INDEX: return set_shape(t, 1, p->columns, 0);
    }
}

static void bind_part(apr_packing *p, apr_packed_content content, const apr_tensor *t)
{
    if (content == APR_PACKED_CODES) p->codes = t;
    if (content == APR_PACKED_SCALES) p->scales = t;
    if (content == APR_PACKED_ZEROS) p->zeros = t;
    if (content == APR_PACKED_GLOBAL_SCALE) p->global_scales = t;
}

apr_status apr_packed_matrix_make(apr_packed_matrix *m, const apr_packed_target *target, const apr_tensor *weight, apr_arena *arena,
                                  apr_error *err)
{
    const apr_packed_layout *const l = target->layout;
    const size_t stem = apr_stem_of(weight->name, ".weight");
    apr_packing *const p = &m->packing;

    *m = (apr_packed_matrix){.layout = l, .packing = l->packing};
    p->rows = p->matrix_rows = weight->dims[0];
    p->columns = weight->dims[1];
    p->scale_columns = target->group;
    if (p->scale_dtype == APR_F32 && l->dtype == APR_I32) p->scale_dtype = target->scale16;
    for (int i = 0; i < APR_LAYOUT_PARTS && l->parts[i].suffix != NULL; i++) {
        apr_tensor *const t = &m->parts[i];
        t->name = apr_arena_print(arena, "%.*s%s", (int)(stem > 0 ? stem : strlen(weight->name)), weight->name, l->parts[i].suffix);
        if (t->name == NULL) return apr_no_memory(err, "a tensor's name");
        t->dtype = l->parts[i].dtype == MODEL_TYPE ? target->scale16 : l->parts[i].dtype;
        shape_part(t, l->parts[i].content, p);
        APR_TRY(apr_tensor_size(t, weight->name, err));
        bind_part(p, l->parts[i].content, t);
        m->list[p->n_parts++] = t;
    }
    p->parts = m->list;
    p->scheme = l->about;
    return APR_OK;
}
