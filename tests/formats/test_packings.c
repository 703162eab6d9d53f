/* formats/packed/packings.h: every published layout of packed weights becomes matrices; what config.json and the shapes say about them must
 * agree; what is missing, of another type or of another shape is reported; what is not known here is left alone. */
#define _XOPEN_SOURCE 700
#include "formats/base/bytes.h"
#include "formats/hf/safetensors.h"
#include "formats/packed/fp8_scales.h"
#include "formats/packed/hf_quantization.h"
#include "formats/packed/packings.h"
#include "formats/tensor/packed_weights.h"
#include "kernels/out_of_range.h"
#include "kernels/rows.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* --- checkpoints from one line: "x.qweight I32 8,8; x.scales F16 2,8" ---
 *
 * "." is the shape of a scalar, "@" that of a text. Where any bytes will not do, "=" and a text or numbers follow the shape, or a word:
 * sorted indices of groups of 32, unsorted ones, and ones that were never set. */

static void put_numbers(apr_tensor *t, uint8_t *data, const char *content)
{
    const int size = apr_dtypes[t->dtype].bytes_per_block;
    char *end;
    for (uint8_t *at = data; *content != '\0'; at += size, content = *end == ',' ? end + 1 : end) {
        const int64_t value = strtoll(content, &end, 10);
        for (int b = 0; b < size; b++) at[b] = (uint8_t)((uint64_t)value >> 8 * b);
    }
}

static void put_groups(apr_tensor *t, uint8_t *data, const char *word)
{
    for (int64_t c = 0; c < t->dims[0]; c++) {
        const uint32_t group = (uint32_t)(strcmp(word, "sorted") == 0 ? c / 32 : c % 2);
        apr_store_le32(data + 4 * c, strcmp(word, "unset") == 0 ? UINT32_MAX : group);
    }
}

static void fill(apr_tensor *t, const char *content, apr_arena *arena)
{
    uint8_t *const data = apr_arena_alloc(arena, (size_t)t->n_bytes + 1);
    t->data = t->n_bytes > 0 ? data : NULL;
    for (size_t b = 0; b < t->n_bytes; b++) data[b] = (uint8_t)((b * 37 + 11) & 0x3b); /* no float of these is infinite */
    if (strstr("sorted unsorted unset", content) != NULL && *content != '\0') put_groups(t, data, content);
    else if (t->dtype == APR_U8) memcpy(data, content, strlen(content));
    else put_numbers(t, data, content);
}

/* One tensor; returns what follows its ';'. */
static const char *add_tensor(apr_model *m, const char *text)
{
    char name[64], dtype[16], shape[32], content[256] = "";
    apr_tensor *const t = &m->tensors[m->n_tensors++];
    const size_t n = strcspn(text, ";"), n_before = strcspn(text, "=");

    *t = (apr_tensor){0};
    assert_int_equal(sscanf(text, " %63s %15s %31[0-9,.@]", name, dtype, shape), 3);
    if (n_before < n) snprintf(content, sizeof content, "%.*s", (int)(n - n_before - 1), text + n_before + 1);
    t->name = apr_arena_copy(&m->arena, name, strlen(name));
    t->dtype = apr_dtype_by_safetensors_name(dtype);
    assert_int_not_equal(t->dtype, APR_DTYPE_COUNT);
    if (*shape == '@') t->dims[t->rank++] = (int64_t)strlen(content);
    for (char *p = shape; *p >= '0' && *p <= '9'; p += *p == ',') t->dims[t->rank++] = strtoll(p, &p, 10);
    assert_int_equal(apr_tensor_size(t, "test", NULL), APR_OK);
    fill(t, content, &m->arena);
    return text[n] == ';' ? text + n + 1 : text + n;
}

static apr_status bind(apr_model *m, const char *tensors, const char *config, apr_error *err)
{
    static apr_tensor table[32];
    static apr_attachment attachment;

    attachment = (apr_attachment){"config.json", (const uint8_t *)config, strlen(config)};
    *m = (apr_model){.path = "FILE", .format = APR_FORMAT_SAFETENSORS, .tensors = table};
    if (*config != '\0') m->attachments = &attachment, m->n_attachments = 1;
    while (*tensors != '\0') tensors = add_tensor(m, tensors);
    assert_int_equal(apr_model_index_names(m, NULL), APR_OK);
    assert_int_equal(apr_quantization_read(m, &m->arena, &m->quantization, NULL), APR_OK);
    APR_TRY(apr_bind_scales(m, m->n_attachments > 0 ? &attachment : NULL, err));
    return apr_bind_packings(m, err);
}

#define CONFIG(method, rest) "{\"quantization_config\": {\"quant_method\": \"" method "\", " rest "}}"
#define GPTQ(bits, rest)     CONFIG("gptq", "\"bits\": " #bits ", \"group_size\": 32" rest)
#define CT(weights, format)      \
    CONFIG("compressed-tensors", \
           "\"format\": \"" format "\", \"config_groups\": {\"g\": {\"targets\": [\"Linear\"], \"weights\": {" weights "}}}")
#define CT_INT(bits, rest) CT("\"num_bits\": " #bits ", \"type\": \"int\", " rest, "pack-quantized")
#define BY_GROUPS          "\"strategy\": \"group\", \"group_size\": 32"
#define BY_ROWS            "\"strategy\": \"channel\""

#define GPTQ_PARTS "x.qweight I32 8,8; x.scales F16 2,8; x.qzeros I32 2,1; x.g_idx I32 64 ="
#define CT_PARTS   "x.weight_packed I32 8,8; x.weight_scale BF16 8,2; x.weight_shape I64 2 =8,64"
#define NF4_STATE  "{\"quant_type\": \"nf4\", \"blocksize\": 64, \"dtype\": \"bfloat16\", \"shape\": [8, 64]}"
#define NF4_PARTS                                                           \
    "x.weight U8 256,1; x.weight.absmax F32 8; x.weight.quant_map F32 16; " \
    "x.weight.quant_state.bitsandbytes__nf4 U8 @ =" NF4_STATE
#define NESTED_PARTS                                                                                                                   \
    "x.weight U8 256,1; x.weight.absmax U8 8; x.weight.quant_map F32 16; x.weight.nested_absmax F32 1; x.weight.nested_quant_map F32 " \
    "256; "                                                                                                                            \
    "x.weight.quant_state.bitsandbytes__fp4 U8 @ ={\"blocksize\": 64, \"dtype\": \"float16\", \"shape\": [8, 64], "                    \
    "\"nested_blocksize\": 256, \"nested_offset\": 0.25}"

/* --- what is found --- */

/* "[8, 64] bf16, 4 bits by row, unsigned, bf16 scales 1x32, zeros none + 8, 3 parts" */
static void describe(const apr_tensor *t, char *text, size_t n_bytes)
{
    static const char *const orders[] = {"by row", "high first", "down", "interleaved"},
                             *const levels[] = {"unsigned", "signed", "e2m1", "e4m3", "table"},
                             *const zeros[] = {"none", "by row", "along rows", "interleaved", "down"};
    const apr_packing *const p = t->packing;
    char dims[64];
    snprintf(text, n_bytes, "%s %s, %d bits %s, %s, %s scales %lldx%lld%s%s%s%s, zeros %s + %d, %zu parts%s",
             apr_dims_text(t, dims, sizeof dims), apr_dtypes[t->dtype].name, p->bits, orders[p->order], levels[p->level],
             apr_dtypes[p->scale_dtype].name, (long long)p->scale_rows, (long long)p->scale_columns, p->scales_down ? " down" : "",
             p->nested != NULL ? " nested" : "",
             p->global_scales == NULL ? ""
             : p->divides             ? " / common"
                                      : " * common",
             p->global_scales != NULL && apr_tensor_elems(p->global_scales) > 1 ? "s" : "", zeros[p->zero_order], p->zero_bias, p->n_parts,
             p->groups != NULL ? ", groups" : "");
}

static const struct {
    const char *tensors, *config, *scheme, *is;
} layouts[] = {
    {GPTQ_PARTS "sorted", GPTQ(4, ""), "GPTQ, 4 bits, groups of 32",
     "[8, 64] f16, 4 bits down, unsigned, f16 scales 1x32 down, zeros along rows + 1, 4 parts"},
    {"x.qweight I32 8,8; x.scales F16 2,8; x.qzeros I32 2,1", "", "GPTQ, 4 bits, groups of 32",
     "[8, 64] f16, 4 bits down, unsigned, f16 scales 1x32 down, zeros along rows + 1, 3 parts"},
    {GPTQ_PARTS "unsorted", GPTQ(4, ", \"checkpoint_format\": \"gptq_v2\", \"desc_act\": true"), "GPTQ v2, 4 bits, groups of 32, act order",
     "[8, 64] f16, 4 bits down, unsigned, f16 scales 1x32 down, zeros along rows + 0, 4 parts, groups"},
    {"x.qweight I32 6,8; x.scales BF16 1,8; x.qzeros I32 1,1; x.g_idx I32 64 =unset", CONFIG("gptq", "\"bits\": 3, \"group_size\": -1"),
     NULL, "puts column 0 into group -1, but there are 1 groups"},
    {"x.qweight I32 6,8; x.scales BF16 1,8; x.qzeros I32 1,1", CONFIG("gptq", "\"bits\": 3, \"group_size\": -1"),
     "GPTQ, 3 bits, one scale a row", "[8, 64] bf16, 3 bits down, unsigned, bf16 scales 1x64 down, zeros along rows + 1, 3 parts"},
    {"x.qweight I32 16,8; x.scales F16 2,8; x.qzeros I32 2,2", GPTQ(4, ", \"dynamic\": {\"+:x\": {\"bits\": 8}, \"-:y\": {}}"),
     "GPTQ, 8 bits, groups of 32", "[8, 64] f16, 8 bits down, unsigned, f16 scales 1x32 down, zeros along rows + 1, 3 parts"},
    {"x.qweight I32 4,8; x.scales F16 2,8; x.qzeros I32 2,1",
     CONFIG("auto-round",
            "\"bits\": 4, \"group_size\": 32, \"packing_format\": \"auto_round:gptqmodel\", \"extra_config\": {\"x\": {\"bits\": 2}}"),
     "GPTQ v2, 2 bits, groups of 32", "[8, 64] f16, 2 bits down, unsigned, f16 scales 1x32 down, zeros along rows + 0, 3 parts"},
    {"x.qweight I32 64,2; x.scales F16 2,16; x.qzeros I32 2,2", CONFIG("awq", "\"bits\": 4, \"group_size\": 32, \"version\": \"gemm\""),
     "AWQ, 4 bits, groups of 32", "[16, 64] f16, 4 bits interleaved, unsigned, f16 scales 1x32 down, zeros interleaved + 0, 3 parts"},
    {"x.qweight I32 64,2; x.scales F16 2,16; x.qzeros I32 2,2", "", "AWQ, 4 bits, groups of 32",
     "[16, 64] f16, 4 bits interleaved, unsigned, f16 scales 1x32 down, zeros interleaved + 0, 3 parts"},
    {CT_PARTS, CT_INT(4, BY_GROUPS), "compressed-tensors, 4 bits, groups of 32",
     "[8, 64] bf16, 4 bits by row, unsigned, bf16 scales 1x32, zeros none + 8, 3 parts"},
    {CT_PARTS, "", "compressed-tensors, 4 bits, groups of 32",
     "[8, 64] bf16, 4 bits by row, unsigned, bf16 scales 1x32, zeros none + 8, 3 parts"},
    {CT_PARTS "; x.weight_zero_point I32 1,2", CT_INT(4, BY_GROUPS ", \"symmetric\": false"),
     "compressed-tensors, 4 bits, groups of 32, zero points",
     "[8, 64] bf16, 4 bits by row, unsigned, bf16 scales 1x32, zeros down + 0, 4 parts"},
    {CT_PARTS "; x.weight_g_idx I32 64 =unsorted", CT_INT(4, BY_GROUPS), "compressed-tensors, 4 bits, groups of 32, act order",
     "[8, 64] bf16, 4 bits by row, unsigned, bf16 scales 1x32, zeros none + 8, 4 parts, groups"},
    {CT_PARTS "; x.weight_g_idx I32 64 =unset", CT_INT(4, BY_GROUPS), "compressed-tensors, 4 bits, groups of 32",
     "[8, 64] bf16, 4 bits by row, unsigned, bf16 scales 1x32, zeros none + 8, 4 parts"},
    {"x.weight_packed I32 8,16; x.weight_scale F16 8,1; x.weight_shape I64 2 =8,64", CT_INT(8, BY_ROWS),
     "compressed-tensors, 8 bits, one scale a row", "[8, 64] f16, 8 bits by row, unsigned, f16 scales 1x64, zeros none + 128, 3 parts"},
    {"x.weight_packed I32 8,6; x.weight_scale F32 1; x.weight_shape I64 2 =8,60", CT_INT(3, "\"strategy\": \"tensor\""),
     "compressed-tensors, 3 bits, one scale a matrix", "[8, 60] f32, 3 bits by row, unsigned, f32 scales 8x60, zeros none + 4, 3 parts"},
    {"x.weight_packed I32 3,8,8; x.weight_scale BF16 3,8,2; x.weight_shape I64 3 =3,8,64; x.weight_zero_point I32 3,1,2",
     CT_INT(4, BY_GROUPS), "compressed-tensors, 4 bits, groups of 32, zero points",
     "[3, 8, 64] bf16, 4 bits by row, unsigned, bf16 scales 1x32, zeros down + 0, 4 parts"},
    {"x.weight I8 8,64; x.weight_scale BF16 8,1", CT("\"num_bits\": 8, \"type\": \"int\", " BY_ROWS, "int-quantized"),
     "INT8, one scale a row", "[8, 64] bf16, 8 bits by row, signed, bf16 scales 1x64, zeros none + 0, 2 parts"},
    {"x.weight I8 8,64; x.weight_scale F32 8", "", "INT8, one scale a row",
     "[8, 64] f32, 8 bits by row, signed, f32 scales 1x64, zeros none + 0, 2 parts"},
    {"x.weight I8 8,64; x.weight_scale F32 .", "", "INT8, one scale a matrix",
     "[8, 64] f32, 8 bits by row, signed, f32 scales 8x64, zeros none + 0, 2 parts"},
    {"x.weight I8 8,64; x.weight_scale F32 1,1,1", "", "INT8, one scale a matrix",
     "[8, 64] f32, 8 bits by row, signed, f32 scales 8x64, zeros none + 0, 2 parts"},
    {"x.weight I8 3,8,64; x.weight_scale F32 3", "", "INT8, one scale a matrix",
     "[3, 8, 64] f32, 8 bits by row, signed, f32 scales 8x64, zeros none + 0, 2 parts"},
    {"x.weight I8 3,8,64; x.weight_scale F32 3,8", "", "INT8, one scale a row",
     "[3, 8, 64] f32, 8 bits by row, signed, f32 scales 1x64, zeros none + 0, 2 parts"},
    {"x.weight I8 8,64; x.weight_scale F32 8,2; x.weight_zero_point I8 8,2", "", "INT8, groups of 32, zero points",
     "[8, 64] f32, 8 bits by row, signed, f32 scales 1x32, zeros by row + 0, 3 parts"},
    {"x.weight_packed U8 8,32; x.weight_scale F8_E4M3 8,4; x.weight_global_scale F32 1; x.input_global_scale F32 1",
     CT("\"num_bits\": 4, \"type\": \"float\", \"strategy\": \"tensor_group\", \"group_size\": 16", "nvfp4-pack-quantized"),
     "NVFP4, groups of 16 (compressed-tensors)", "[8, 64] f32, 4 bits by row, e2m1, fp8 scales 1x16 / common, zeros none + 0, 3 parts"},
    {"x.weight U8 8,32; x.weight_scale F8_E4M3 8,4; x.weight_scale_2 F32 .; x.input_scale F32 .",
     CONFIG("modelopt", "\"quant_algo\": \"NVFP4\""), "NVFP4, groups of 16 (modelopt)",
     "[8, 64] f32, 4 bits by row, e2m1, fp8 scales 1x16 * common, zeros none + 0, 3 parts"},
    {"x.weight U8 3,8,32; x.weight_scale F8_E4M3 3,8,4; x.weight_scale_2 F32 3",
     CONFIG("modelopt", "\"quant_algo\": \"MIXED_PRECISION\", \"quantized_layers\": {\"x\": {\"quant_algo\": \"NVFP4\"}}"),
     "NVFP4, groups of 16 (modelopt)", "[3, 8, 64] f32, 4 bits by row, e2m1, fp8 scales 1x16 * commons, zeros none + 0, 3 parts"},
    {"x.weight_packed U8 8,32; x.weight_scale U8 8,2", "", "MXFP4, groups of 32 (compressed-tensors)",
     "[8, 64] bf16, 4 bits by row, e2m1, e8m0 scales 1x32, zeros none + 0, 2 parts"},
    {"x.weight U8 8,32; x.weight_scale U8 8,2", CONFIG("modelopt", "\"quant_algo\": \"MXFP4\""), "MXFP4, groups of 32 (modelopt)",
     "[8, 64] bf16, 4 bits by row, e2m1, e8m0 scales 1x32, zeros none + 0, 2 parts"},
    {"x.weight F8_E4M3 8,64; x.weight_scale U8 8,2", CONFIG("modelopt", "\"quant_algo\": \"MXFP8\""), "MXFP8, groups of 32",
     "[8, 64] bf16, 8 bits by row, e4m3, e8m0 scales 1x32, zeros none + 0, 2 parts"},
    {NF4_PARTS, CONFIG("bitsandbytes", "\"load_in_4bit\": true"), "bitsandbytes nf4, blocks of 64",
     "[8, 64] bf16, 4 bits high first, table, f32 scales 1x64, zeros none + 0, 4 parts"},
    {NESTED_PARTS, "", "bitsandbytes fp4, blocks of 64, nested scales",
     "[8, 64] f16, 4 bits high first, table, u8 scales 1x64 nested, zeros none + 0, 6 parts"},
};
enum { N_LAYOUTS = sizeof layouts / sizeof *layouts };

static void every_layout_is_bound_as_what_it_is(void **state)
{
    (void)state;
    for (int i = 0; i < N_LAYOUTS; i++) {
        apr_model m;
        apr_error err = {0};
        char is[256];
        const char *layout;
        const apr_status status = bind(&m, layouts[i].tensors, layouts[i].config, &err);
        if (layouts[i].scheme == NULL) {
            assert_non_null(strstr(err.text, layouts[i].is));
        } else {
            if (status != APR_OK || m.n_packings != 1) fail_msg("%s: %zu matrices, %s", layouts[i].tensors, m.n_packings, err.text);
            assert_string_equal(m.packings[0].name, "x.weight");
            assert_string_equal(m.packings[0].packing->scheme, layouts[i].scheme);
            describe(&m.packings[0], is, sizeof is);
            if (strcmp(is, layouts[i].is) != 0) fail_msg("%s:\n%s\n%s", layouts[i].tensors, is, layouts[i].is);
            assert_null(apr_find_packed(&m, &layout));
        }
        apr_arena_close(&m.arena);
    }
}

static void what_is_bound_can_be_decoded(void **state)
{
    (void)state;
    for (int i = 0; i < N_LAYOUTS; i++) {
        apr_model m;
        if (layouts[i].scheme == NULL) continue;
        assert_int_equal(bind(&m, layouts[i].tensors, layouts[i].config, NULL), APR_OK);
        const apr_tensor *const t = &m.packings[0];
        float *const values = malloc((size_t)apr_tensor_elems(t) * sizeof *values); /* exact: a sanitizer guards the end */
        apr_decode_rows(t, 0, apr_tensor_rows(t), values);
        assert_int_equal(apr_count_nonfinite(values, apr_tensor_elems(t)), 0);
        free(values);
        apr_arena_close(&m.arena);
    }
}

/* The first two values of each, by hand. Numbers of floats are their bits: 1073741824 is 2.0f. */
static void values_come_from_the_right_places(void **state)
{
    static const struct {
        const char *tensors, *config;
        double values[2]; /* [0][0] and [0][1] */
    } cases[] = {
        {"x.weight I8 1,4 =3,-5,1,1; x.weight_scale F32 1,1 =1077936128; x.weight_zero_point I8 1,1 =1",
         "",
         {(3 - 1) * 3.0, (-5 - 1) * 3.0}},
        {"x.weight_packed I32 1,1 =214; x.weight_scale F32 1,1 =1073741824; x.weight_shape I64 2 =1,8",
         CT_INT(4, BY_ROWS),
         {(6 - 8) * 2.0, (13 - 8) * 2.0}},
        {"x.weight U8 1,8 =E; x.weight_scale F8_E4M3 1,1 =64; x.weight_scale_2 F32 . =1056964608", "", {3.0 * 2 * 0.5, 2.0 * 2 * 0.5}},
        {"x.weight_packed U8 1,8 =E; x.weight_scale F8_E4M3 1,1 =64; x.weight_global_scale F32 1 =1056964608",
         "",
         {3.0 * 2 / 0.5, 2.0 * 2 / 0.5}},
        {"x.weight_packed U8 1,16 =E; x.weight_scale U8 1,1 =~", "", {3.0 / 2, 2.0 / 2}},
        {"x.qweight I32 1,1 =214; x.scales F32 1,1 =1073741824; x.qzeros I32 1,1 =4", "", {(6 - 5) * 2.0, (13 - 5) * 2.0}},
        {"x.qweight I32 1,1 =214; x.scales F32 1,1 =1073741824; x.qzeros I32 1,1 =4",
         GPTQ(4, ", \"checkpoint_format\": \"gptq_v2\""),
         {(6 - 4) * 2.0, (13 - 4) * 2.0}},
        {"x.qweight I32 1,1 =214; x.scales F32 1,1 =1073741824; x.qzeros I32 1,1 =15", "", {6 * 2.0, 13 * 2.0}}, /* 0, less one */
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_model m;
        apr_error err = {0};
        float row[32];
        if (bind(&m, cases[i].tensors, cases[i].config, &err) != APR_OK) fail_msg("%s: %s", cases[i].tensors, err.text);
        apr_decode_rows(&m.packings[0], 0, 1, row);
        if ((double)row[0] != cases[i].values[0] || (double)row[1] != cases[i].values[1])
            fail_msg("%s: %g %g", cases[i].tensors, (double)row[0], (double)row[1]);
        apr_arena_close(&m.arena);
    }
}

/* --- what is damaged --- */

static const struct {
    const char *tensors, *config, *says[3];
} damages[] = {
    /* parts that are missing */
    {"x.qweight I32 8,8; x.qzeros I32 2,1", GPTQ(4, ""), {"'x.scales' is missing; 'x.qweight' cannot"}},
    {"x.qweight I32 8,8; x.scales F16 2,8", GPTQ(4, ""), {"'x.qzeros' is missing; 'x.qweight' cannot"}},
    {"x.qzeros I32 2,1; x.scales F16 2,8", GPTQ(4, ""), {"'x.qzeros' belongs to packed weights, but the weights are missing"}},
    {"x.weight_packed I32 8,8; x.weight_shape I64 2 =8,64", "", {"'x.weight_scale' is missing; 'x.weight_packed' cannot"}},
    {"x.weight_packed I32 8,8; x.weight_scale BF16 8,2", "", {"'x.weight_shape' is missing; 'x.weight_packed' cannot"}},
    {"x.weight_packed U8 8,32; x.weight_scale F8_E4M3 8,4", "", {"'x.weight_global_scale' is missing; 'x.weight_packed' cannot"}},
    {"x.weight U8 8,32; x.weight_scale F8_E4M3 8,4", "", {"'x.weight_scale_2' is missing; 'x.weight' cannot"}},
    {"x.weight U8 8,32; x.weight_scale_2 F32 1", "", {"'x.weight_scale' is missing; 'x.weight' cannot"}},
    {"x.weight_scale F8_E4M3 8,4; x.weight_scale_2 F32 1", "", {"'x.weight_scale_2' belongs to packed weights"}},
    {"x.weight U8 256,1; x.weight.absmax F32 8; x.weight.quant_map F32 16", "", {"'x.weight.quant_state.bitsandbytes__nf4' is missing"}},
    {"x.weight U8 256,1; x.weight.quant_map F32 16; x.weight.quant_state.bitsandbytes__nf4 U8 @ =" NF4_STATE,
     "",
     {"'x.weight.absmax' is missing"}},
    {"x.weight U8 256,1; x.weight.absmax F32 8; x.weight.quant_state.bitsandbytes__nf4 U8 @ =" NF4_STATE,
     "",
     {"'x.weight.quant_map' is missing"}},
    {"x.weight U8 256,1; x.weight.absmax U8 8; x.weight.quant_map F32 16; x.weight.quant_state.bitsandbytes__nf4 U8 @ =" NF4_STATE,
     "",
     {"'x.weight.nested_absmax' is missing"}},
    {"x.weight.absmax F32 8", "", {"'x.weight.absmax' belongs to packed weights"}},
    /* other types */
    {"x.qweight I32 8,8; x.scales I32 2,8; x.qzeros I32 2,1", "", {"'x.scales' is i32", "f16, bf16 or f32"}},
    {"x.qweight I32 8,8; x.scales F16 2,8; x.qzeros I64 2,1", "", {"'x.qzeros' is i64", "must be i32"}},
    {"x.qweight I32 8,8; x.scales F16 2,8; x.qzeros I32 2,1; x.g_idx I64 64", "", {"'x.g_idx' is i64"}},
    {"x.weight_packed I32 8,8; x.weight_scale U8 8,2; x.weight_shape I64 2 =8,64", "", {"'x.weight_scale' is u8"}},
    {"x.weight_packed I32 8,8; x.weight_scale BF16 8,2; x.weight_shape F32 2", "", {"'x.weight_shape' is f32"}},
    {CT_PARTS "; x.weight_zero_point I64 1,2", "", {"'x.weight_zero_point' is i64"}},
    {"x.weight_packed U8 8,32; x.weight_scale BF16 8,4; x.weight_global_scale F32 1", "", {"'x.weight_scale' is bf16", "fp8 for NVFP4"}},
    {"x.weight U8 8,32; x.weight_scale BF16 8,4; x.weight_scale_2 F32 1",
     CONFIG("modelopt", "\"quant_algo\": \"NVFP4\""),
     {"'x.weight_scale' is bf16", "fp8 for NVFP4"}},
    {"x.weight_packed U8 8,32; x.weight_scale F8_E4M3 8,4; x.weight_global_scale BF16 1", "", {"'x.weight_global_scale' is bf16"}},
    {"x.weight U8 256,1; x.weight.absmax BF16 8; x.weight.quant_map F32 16; x.weight.quant_state.bitsandbytes__nf4 U8 @ =" NF4_STATE,
     "",
     {"'x.weight.absmax' is bf16"}},
    {"x.weight I8 8,64; x.weight_scale F32 8,1; x.weight_zero_point I32 8,1", "", {"'x.weight_zero_point' is i32"}},
    /* groups and widths against config.json */
    {GPTQ_PARTS "sorted", CONFIG("gptq", "\"bits\": 4, \"group_size\": 16"), {"'x.scales' has 2 groups", "group size of 16 makes 4"}},
    {GPTQ_PARTS "sorted", GPTQ(8, ""), {"64 columns of 8 bits", "8 rows of words of 'x.qweight'"}},
    {GPTQ_PARTS "sorted", GPTQ(2, ""), {"64 columns of 2 bits"}},
    {"x.qweight I32 8,8; x.scales F16 2,8; x.qzeros I32 2,1", GPTQ(8, ""), {"'x.scales' has 2 groups", "makes 1 of the 32 columns"}},
    {"x.qweight I32 8,8; x.scales F16 3,8; x.qzeros I32 3,1", "", {"'x.scales' has 3 groups", "64 columns"}},
    {"x.qweight I32 64,2; x.scales F16 2,16; x.qzeros I32 2,2",
     CONFIG("awq", "\"bits\": 4, \"group_size\": 64"),
     {"'x.scales' has 2 groups", "64 makes 1"}},
    {"x.qweight I32 64,2; x.scales F16 2,16; x.qzeros I32 2,2", CONFIG("awq", "\"bits\": 8, \"group_size\": 32"), {"AWQ with 8 bits"}},
    {CT_PARTS,
     CT_INT(4, "\"strategy\": \"group\", \"group_size\": 16"),
     {"'x.weight_scale' has the shape [8, 2]", "groups of 16 needs [8, 4]"}},
    {CT_PARTS, CT_INT(4, BY_ROWS), {"'x.weight_scale' has the shape [8, 2]", "one scale a row needs [8, 1]"}},
    {CT_PARTS, CT_INT(8, BY_GROUPS), {"states 64 columns, which with 8 bits do not fill the 8 words"}},
    {"x.weight I8 8,64; x.weight_scale F32 8,2",
     CT("\"num_bits\": 8, \"type\": \"int\", " BY_ROWS, "int-quantized"),
     {"'x.weight_scale' has the shape [8, 2]", "needs [8, 1]"}},
    {"x.weight I8 8,64; x.weight_scale F32 1,1",
     CT("\"num_bits\": 8, \"type\": \"int\", " BY_ROWS, "int-quantized"),
     {"'x.weight_scale' has the shape [1, 1]", "needs [8, 1]"}},
    {"x.weight I8 8,64; x.weight_scale F32 8,1",
     CT("\"num_bits\": 8, \"type\": \"int\", " BY_GROUPS, "int-quantized"),
     {"'x.weight_scale' has the shape [8, 1]", "needs [8, 2]"}},
    {"x.weight I8 8,64; x.weight_scale F32 8,1",
     CT("\"num_bits\": 8, \"type\": \"int\", \"strategy\": \"tensor\"", "int-quantized"),
     {"'x.weight_scale' has the shape [8, 1]", "needs [1, 1]"}},
    /* shapes against each other */
    {"x.qweight I32 8,8; x.scales F16 2,7; x.qzeros I32 2,1", GPTQ(4, ""), {"'x.scales' has the shape [2, 7]", "[2, 8]"}},
    {"x.qweight I32 8,8; x.scales F16 2,8; x.qzeros I32 2,2", GPTQ(4, ""), {"'x.qzeros' has the shape [2, 2]", "[2, 1]"}},
    {"x.qweight I32 8,8; x.scales F16 16; x.qzeros I32 2,1", GPTQ(4, ""), {"'x.scales' has 1 dimensions and 16 numbers"}},
    {"x.qweight I32 8,8; x.scales F16 2,8; x.qzeros I32 2,1; x.g_idx I32 8,8", GPTQ(4, ""), {"'x.g_idx' has the shape [8, 8]", "[64]"}},
    {"x.qweight I32 8,8; x.scales F16 2,8; x.qzeros I32 2,1; x.g_idx I32 65", GPTQ(4, ""), {"the 65 columns of 4 bits of 'x.g_idx'"}},
    {GPTQ_PARTS "0,1,2", GPTQ(4, ""), {"'x.g_idx' puts column 2 into group 2, but there are 2 groups"}},
    {GPTQ_PARTS "0,-1", GPTQ(4, ""), {"column 1 into group -1"}},
    {CT_PARTS "; x.weight_g_idx I32 64 =0,7", "", {"'x.weight_g_idx' puts column 1 into group 7, but there are 2"}},
    {CT_PARTS "; x.weight_g_idx I32 63", "", {"'x.weight_g_idx' has the shape [63]", "[64]"}},
    {"x.qweight I32 64,2; x.scales F16 2,16; x.qzeros I32 1,2",
     CONFIG("awq", "\"bits\": 4, \"group_size\": 32"),
     {"'x.qzeros' has the shape [1, 2]", "[2, 2]"}},
    {"x.qweight I32 64,2; x.scales F16 2,18; x.qzeros I32 2,2",
     CONFIG("awq", "\"bits\": 4, \"group_size\": 32"),
     {"'x.scales' has the shape [2, 18]", "[2, 16]"}},
    {"x.weight_packed I32 8,8; x.weight_scale BF16 8,2; x.weight_shape I64 2 =9,64", "", {"'x.weight_shape' states 9", "has 8"}},
    {"x.weight_packed I32 8,8; x.weight_scale BF16 8,2; x.weight_shape I64 2 =8,128", CT_INT(4, BY_GROUPS), {"states 128 columns"}},
    {"x.weight_packed I32 8,8; x.weight_scale BF16 8,2; x.weight_shape I64 2 =8,-64", "", {"states -64 columns"}},
    {"x.weight_packed I32 8,8; x.weight_scale BF16 8,2; x.weight_shape I64 2 =8,9223372036854775807", "", {"9223372036854775807 columns"}},
    {"x.weight_packed I32 8,8; x.weight_scale BF16 8,2; x.weight_shape I64 3 =8,64,1", "", {"'x.weight_shape' has the shape [3]"}},
    {"x.weight_packed I32 8,8; x.weight_scale BF16 7,2; x.weight_shape I64 2 =8,64", "", {"'x.weight_scale' has the shape [7, 2]"}},
    {"x.weight_packed I32 8,8; x.weight_scale BF16 8,3; x.weight_shape I64 2 =8,64", "", {"'x.weight_scale' has the shape [8, 3]"}},
    /* a stack of three matrices and scales of another number of them */
    {"x.weight_packed I32 3,8,8; x.weight_scale BF16 2,8,2; x.weight_shape I64 3 =3,8,64",
     "",
     {"'x.weight_scale' has the shape [2, 8, 2]", "next to 'x.weight_packed' [3, 8, 8]"}},
    {"x.weight I8 3,8,64; x.weight_scale F32 2", "", {"'x.weight_scale' has the shape [2]", "[3, 8, 1] next to 'x.weight' [3, 8, 64]"}},
    {"x.weight I8 3,8,64; x.weight_scale F32 1", "", {"'x.weight_scale' has the shape [1]", "[3, 8, 1]"}},
    {"x.weight I8 3,8,64; x.weight_scale F32 .", "", {"'x.weight_scale' has the shape []", "[3, 8, 1]"}},
    {"x.weight I8 2,3,8,64; x.weight_scale F32 2,2,8,1", "", {"'x.weight_scale' has the shape [2, 2, 8, 1]", "[2, 3, 8, 1]"}},
    {"x.weight I8 8,64; x.weight_scale F32 8,0", "", {"'x.weight_scale' has the shape [8, 0]", "[8, 1]"}},
    {"x.weight I8 8,64; x.weight_scale F32 8,2,5", "", {"'x.weight_scale' has the shape [8, 2, 5]", "[8, 1]"}},
    {CT_PARTS "; x.weight_zero_point I32 2,2", "", {"'x.weight_zero_point' has the shape [2, 2]", "[1, 2]"}},
    {"x.weight_packed U8 8,32; x.weight_scale F8_E4M3 8,2; x.weight_global_scale F32 1", "", {"groups of 16 need [8, 4]"}},
    {"x.weight_packed U8 8,32; x.weight_scale U8 8,4", "", {"groups of 32 need [8, 2]"}},
    {"x.weight U8 3,8,32; x.weight_scale F8_E4M3 3,8,4; x.weight_scale_2 F32 2",
     "",
     {"'x.weight_scale_2' has 2 numbers for the 3 matrices"}},
    {"x.weight F8_E4M3 8,64; x.weight_scale U8 8,4", "", {"groups of 32 need [8, 2]"}},
    {"x.weight I8 8,64; x.weight_scale F32 8,1; x.weight_zero_point I8 8", "", {"'x.weight_zero_point' has the shape [8]"}},
    {"x.weight U8 255,1; x.weight.absmax F32 8; x.weight.quant_map F32 16; x.weight.quant_state.bitsandbytes__nf4 U8 @ =" NF4_STATE,
     "",
     {"'x.weight' has 255 bytes", "512 numbers", "fill 256"}},
    {"x.weight U8 256,1; x.weight.absmax F32 7; x.weight.quant_map F32 16; x.weight.quant_state.bitsandbytes__nf4 U8 @ =" NF4_STATE,
     "",
     {"'x.weight.absmax' has the shape [7]", "[8]"}},
    {"x.weight U8 256,1; x.weight.absmax F32 8; x.weight.quant_map F32 15; x.weight.quant_state.bitsandbytes__nf4 U8 @ =" NF4_STATE,
     "",
     {"'x.weight.quant_map' has the shape [15]", "[16]"}},
    /* the text of bitsandbytes */
    {"x.weight U8 2,1; x.weight.absmax F32 1; x.weight.quant_state.bitsandbytes__nf4 U8 @ ={",
     "",
     {"FILE: 'x.weight.quant_state", "not valid JSON"}},
    {"x.weight U8 2,1; x.weight.absmax F32 1; x.weight.quant_state.bitsandbytes__nf4 U8 @ ={}", "", {"has no valid \"dtype\""}},
    {"x.weight U8 2,1; x.weight.absmax F32 1; x.weight.quant_state.bitsandbytes__nf4 U8 @ ={\"dtype\": \"float16\", \"shape\": [0, 4]}",
     "",
     {"has no valid \"shape\""}},
    {"x.weight U8 2,1; x.weight.absmax F32 1; x.weight.quant_state.bitsandbytes__nf4 U8 @ ={\"dtype\": \"float16\", \"shape\": "
     "[4294967296, "
     "4294967296]}",
     "",
     {"has no valid \"shape\""}},
    {"x.weight U8 2,1; x.weight.absmax F32 1; x.weight.quant_state.bitsandbytes__nf4 U8 @ ={\"dtype\": \"float16\", \"shape\": [1, 4], "
     "\"blocksize\": 0}",
     "",
     {"has no valid \"blocksize\""}},
};

static void damage_is_reported_with_file_tensor_and_both_numbers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        apr_model m;
        apr_error err = {0};
        const apr_status status = bind(&m, damages[i].tensors, damages[i].config, &err);
        if (status != APR_E_DAMAGED) fail_msg("%s gave %d: %s", damages[i].tensors, (int)status, err.text);
        if (strncmp(err.text, "FILE: ", 6) != 0) fail_msg("%s: no file in '%s'", damages[i].tensors, err.text);
        for (int s = 0; s < 3 && damages[i].says[s] != NULL; s++)
            if (strstr(err.text, damages[i].says[s]) == NULL)
                fail_msg("%s:\n%s\nwithout '%s'", damages[i].tensors, err.text, damages[i].says[s]);
        apr_arena_close(&m.arena);
    }
}

/* --- what is left alone --- */

static void what_is_not_known_is_left_alone_and_still_named(void **state)
{
    static const struct {
        const char *tensors, *config, *named; /* NULL: no weights at all */
    } cases[] = {
        {"x.W_q U8 64; x.scale F16 8", CONFIG("hqq", "\"bits\": 4"), "HQQ"},
        {GPTQ_PARTS "sorted", CONFIG("hqq", "\"bits\": 4"), "GPTQ"},
        {GPTQ_PARTS "sorted", GPTQ(4, ", \"checkpoint_format\": \"marlin\""), "GPTQ"},
        {"x.qweight I32 10,8; x.scales F16 2,8; x.qzeros I32 2,2; x.g_idx I32 64 =sorted", GPTQ(5, ", \"checkpoint_format\": \"gptq_p\""),
         "GPTQ"},
        {"x.qweight I32 16,8; x.scales F16 16,2; x.qzeros I32 16,1",
         CONFIG("awq", "\"bits\": 4, \"group_size\": 32, \"version\": \"gemv\""), "AWQ"},
        {"x.weight I8 8,64; x.SCB F32 8", CONFIG("bitsandbytes", "\"load_in_8bit\": true"), "8-bit bitsandbytes (LLM.int8)"},
        {"x.weight I8 8,64; x.weight_scale F32 8; x.pre_quant_scale BF16 64", CONFIG("modelopt", "\"quant_algo\": \"FP8\""), "INT8"},
        {"x.weight U8 4,64; x.weight_scale F32 8,2; x.pre_quant_scale BF16 64", "", "packed integers"},
        {"x.weight U8 8,32; x.weight_scale F8_E4M3 8,4; x.weight_scale_2 F32 .; x.svdquant_lora_a BF16 8,4", "", "NVFP4 (modelopt)"},
        {"x.weight U8 8,32; x.weight_scale BF16 8,1; x.weight_scale_2 F32 .", "", "NVFP4 (modelopt)"},
        {CT_PARTS,
         CONFIG(
             "compressed-tensors",
             "\"config_groups\": {\"g\": {\"weights\": {\"num_bits\": 4, \"type\": \"int\"}}}, \"transform_config\": {\"config_groups\": "
             "{\"R4\": {\"apply\": [{\"location\": \"input\"}]}}}"),
         "integers, pack-quantized (compressed-tensors)"},
        {"x.weight U8 2,64; x.weight_scale BF16 1", "", "packed integers"}, /* BitNet */
        {"x.weight_packed I32 8,7; x.weight_scale BF16 8,2; x.weight_shape I64 2 =8,64", CT_INT(3, BY_GROUPS),
         "integers, pack-quantized (compressed-tensors)"}, /* ten codes of three bits in a word */
        {"x.up_proj U8 3,32,8; x.up_proj_weight_scale F8_E4M3 3,4,8; x.up_proj_weight_scale_2 F32 .", "",
         "NVFP4, inputs before outputs (modelopt)"},
        {"x.weight U8 0,32; x.weight_scale F8_E4M3 0,4; x.weight_scale_2 F32 .", "", "NVFP4 (modelopt)"}, /* nothing to read */
        {"x.weight BF16 8,64; x.bias BF16 8", "", NULL},
        {"x.weight F8_E4M3 8,64; x.weight_scale F32 8,1", CONFIG("fbgemm_fp8", "\"activation_scale_ub\": 1200"), NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_model m;
        apr_error err = {0};
        const char *layout;
        if (bind(&m, cases[i].tensors, cases[i].config, &err) != APR_OK) fail_msg("%s: %s", cases[i].tensors, err.text);
        assert_int_equal(m.n_packings, 0);
        (void)apr_find_packed(&m, &layout);
        if (cases[i].named == NULL) assert_null(layout);
        else if (layout == NULL || strcmp(layout, cases[i].named) != 0)
            fail_msg("%s: %s", cases[i].tensors, layout != NULL ? layout : "(no)");
        apr_arena_close(&m.arena);
    }
}

/* A scheme by name decides, and tensors that a list leaves out are packed all the same where they are. */
static void matrices_of_several_schemes_are_in_one_checkpoint(void **state)
{
    static const char tensors[] =
        "model.language_model.layers.0.a.weight_packed I32 8,8; model.language_model.layers.0.a.weight_scale BF16 8,2; "
        "model.language_model.layers.0.a.weight_shape I64 2 =8,64; b.weight I8 8,64; b.weight_scale F32 8,1; c.weight F8_E4M3 8,64; "
        "c.weight_scale F32 1; d.weight BF16 8,64; e.weight U8 8,32; e.weight_scale U8 8,2";
    static const char config[] = CONFIG(
        "compressed-tensors",
        "\"config_groups\": {\"g\": {\"format\": \"pack-quantized\", \"targets\": [\"re:model.layers.*\"], \"weights\": {\"num_bits\": 4, "
        "\"type\": \"int\", \"strategy\": \"group\", \"group_size\": 32}}, \"h\": {\"format\": \"float-quantized\", \"targets\": "
        "[\"Linear\"], \"weights\": {\"num_bits\": 8, \"type\": \"float\", \"strategy\": \"tensor\"}}}, \"ignore\": [\"b\", \"d\", "
        "\"re:e$\"]");
    apr_model m;
    apr_error err = {0};
    const char *layout;
    (void)state;
    if (bind(&m, tensors, config, &err) != APR_OK) fail_msg("%s", err.text);
    assert_int_equal(m.n_packings, 3);
    assert_string_equal(m.packings[0].name, "model.language_model.layers.0.a.weight");
    assert_string_equal(m.packings[1].packing->scheme, "INT8, one scale a row");
    assert_string_equal(m.packings[2].packing->scheme, "MXFP4, groups of 32 (modelopt)");
    assert_non_null(apr_model_find(&m, "c.weight")->scale);
    assert_null(apr_find_packed(&m, &layout));
    assert_int_equal(apr_packing_groups(m.packings[0].packing), 2);
    assert_int_equal(apr_packing_bytes(m.packings[0].packing, 8), 8 * 8 * 4 + 8 * 2 * 2 + 16);
    assert_int_equal(apr_packing_bytes(m.packings[0].packing, 4), (8 * 8 * 4 + 8 * 2 * 2 + 16) / 2);
    apr_arena_close(&m.arena);
}

/* --- FP8 next to packed matrices --- */

/* Two matrices of three rows in blocks of two: each begins with a block, and the last one of each is short. */
static void fp8_blocks_begin_with_each_matrix_of_a_stack(void **state)
{
    static const char tensors[] =
        "x.weight F8_E4M3 2,3,4 =56,56,56,56,56,56,56,56,56,56,56,56,56,56,56,56,56,56,56,56,56,56,56,56; "
        "x.weight_scale_inv F32 2,2,2 =1065353216,1073741824,1077936128,1082130432,1084227584,1086324736,1088421888,1090519040";
    static const float blocks[2][2][2] = {{{1, 2}, {3, 4}}, {{5, 6}, {7, 8}}};
    apr_model m;
    apr_error err = {0};
    float values[24];
    (void)state;
    if (bind(&m, tensors, CONFIG("fp8", "\"weight_block_size\": [2, 3]"), &err) != APR_OK) fail_msg("%s", err.text);
    apr_decode_rows(&m.tensors[0], 0, 6, values);
    for (int e = 0; e < 2; e++)
        for (int r = 0; r < 3; r++)
            for (int c = 0; c < 4; c++) assert_true(values[e * 12 + r * 4 + c] == blocks[e][r / 2][c / 3]); /* 56 is 1 */
    apr_arena_close(&m.arena);
}

static void fp8_scales_follow_the_scheme_of_their_module(void **state)
{
    static const char two_sizes[] = CONFIG(
        "compressed-tensors",
        "\"format\": \"float-quantized\", \"config_groups\": {\"g\": {\"targets\": [\"a\"], \"weights\": {\"num_bits\": 8, \"type\": "
        "\"float\", \"strategy\": \"block\", \"block_structure\": [2, 4]}}, \"h\": {\"targets\": [\"b\"], \"weights\": {\"num_bits\": 8, "
        "\"type\": \"float\", \"strategy\": \"group\", \"group_size\": 4}}}");
    apr_model m;
    apr_error err = {0};
    (void)state;
    if (bind(&m, "a.weight F8_E4M3 5,8; a.weight_scale F32 3,2; b.weight F8_E4M3 5,8; b.weight_scale F32 5,2", two_sizes, &err) != APR_OK)
        fail_msg("%s", err.text);
    assert_int_equal(m.tensors[0].scale_rows, 2);
    assert_int_equal(m.tensors[2].scale_rows, 1);
    assert_int_equal(m.tensors[2].scale_columns, 4);
    apr_arena_close(&m.arena);
}

/* A stack of FP8 matrices is bound only to scales of as many matrices: what is read past them is not the file's. */
static void fp8_scales_of_another_shape_are_refused(void **state)
{
    static const struct {
        const char *tensors, *config, *says; /* NULL: it is bound */
    } cases[] = {
        {"x.weight F8_E4M3 3,4,8; x.weight_scale F32 2,4,1", "", "[3, 4, 8] has the scales [2, 4, 1]"},
        {"x.weight F8_E4M3 3,4,8; x.weight_scale F32 2,4", "", "[3, 4, 8] has the scales [2, 4]"},
        {"x.weight F8_E4M3 2,3,4,8; x.weight_scale F32 2,2,4,1", "", "[2, 3, 4, 8] has the scales [2, 2, 4, 1]"},
        {"x.weight F8_E4M3 3,4,8; x.weight_scale F32 2,1,1", "", "[3, 4, 8] has the scales [2, 1, 1]"},
        {"x.weight F8_E4M3 3,4,8; x.weight_scale F32 3,2,1", "", "[3, 4, 8] has the scales [3, 2, 1]"},
        {"x.weight F8_E4M3 3,4,8; x.weight_scale F32 3,1,2", "", "[3, 4, 8] has the scales [3, 1, 2]"},
        {"x.weight F8_E4M3 3,4,8; x.weight_scale F32 3,1,1,2", "", "[3, 4, 8] has the scales [3, 1, 1, 2]"},
        {"x.weight F8_E4M3 3,4,8; x.weight_scale F32 3,1,1,1", "", "[3, 4, 8] has the scales [3, 1, 1, 1]"},
        {"x.weight F8_E4M3 3,4,8; x.weight_scale_inv F32 2,2,2", CONFIG("fp8", "\"weight_block_size\": [2, 4]"),
         "has the scales [2, 2, 2]"},
        {"x.weight F8_E4M3 3,4,8; x.weight_scale_inv F32 3,2", CONFIG("fp8", "\"weight_block_size\": [2, 4]"), "has the scales [3, 2]"},
        {"x.weight F8_E4M3 4,8; x.weight_scale_inv F32 2,1,3,1", CONFIG("fp8", "\"weight_block_size\": [2, 4]"),
         "has the scales [2, 1, 3, 1]"},
        {"x.weight F8_E4M3 4,8; x.weight_scale_inv F32 1,1,2,1", CONFIG("fp8", "\"weight_block_size\": [2, 4]"),
         "has the scales [1, 1, 2, 1]"},
        {"x.weight F8_E4M3 4,8; x.weight_scale_inv F32 2,2,2,1", CONFIG("fp8", "\"weight_block_size\": [2, 4]"),
         "has the scales [2, 2, 2, 1]"},
        {"x.weight F8_E4M3 4,8; x.weight_scale_inv F32 2,1,2,2", CONFIG("fp8", "\"weight_block_size\": [2, 4]"),
         "has the scales [2, 1, 2, 2]"},
        {"x.weight F8_E4M3 4,8; x.weight_scale_inv F32 2,1,2,1", CONFIG("fp8", "\"weight_block_size\": [2, 4]"), NULL},
        {"x.weight F8_E4M3 3,4,8; x.weight_scale F32 3,4", "", NULL},
        {"x.weight F8_E4M3 3,4,8; x.weight_scale F32 3,1,1", "", NULL},
        {"x.weight F8_E4M3 3,4,8; x.weight_scale F32 3", "", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_model m;
        apr_error err = {0};
        const apr_status status = bind(&m, cases[i].tensors, cases[i].config, &err);
        if (status != (cases[i].says == NULL ? APR_OK : APR_E_DAMAGED)) fail_msg("%s gave %d: %s", cases[i].tensors, (int)status, err.text);
        if (cases[i].says != NULL && strstr(err.text, cases[i].says) == NULL) fail_msg("%s: '%s'", cases[i].tensors, err.text);
        apr_arena_close(&m.arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_is_bound_as_what_it_is),
        cmocka_unit_test(what_is_bound_can_be_decoded),
        cmocka_unit_test(values_come_from_the_right_places),
        cmocka_unit_test(damage_is_reported_with_file_tensor_and_both_numbers),
        cmocka_unit_test(what_is_not_known_is_left_alone_and_still_named),
        cmocka_unit_test(matrices_of_several_schemes_are_in_one_checkpoint),
        cmocka_unit_test(fp8_blocks_begin_with_each_matrix_of_a_stack),
        cmocka_unit_test(fp8_scales_follow_the_scheme_of_their_module),
        cmocka_unit_test(fp8_scales_of_another_shape_are_refused),
    };
    return cmocka_run_group_tests_name("packings", tests, NULL, NULL);
}
