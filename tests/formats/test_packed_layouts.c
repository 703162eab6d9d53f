/* formats/packed/packed_layouts.h: what a row of the table makes of a matrix is what the readers of that layout bind, with the config.json that
 * is written next to it; what cannot be written is refused with the names of what can. */
#include "formats/packed/packed_layouts.h"

#include "formats/base/bytes.h"
#include "formats/packed/fp8_scales.h"
#include "formats/packed/fused_modules.h"
#include "formats/packed/hf_quantization.h"
#include "formats/packed/packings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 128, COLUMNS = 256 };

/* A model of the tensors of one matrix, in memory, with its config.json. */
typedef struct folder {
    apr_model model;
    apr_packed_target target;
    apr_packed_matrix matrix;
    apr_tensor tensors[APR_LAYOUT_PARTS];
    apr_attachment config;
    char *text, *file;
    uint8_t *bytes[APR_LAYOUT_PARTS];
} folder;

static void fill(folder *f, size_t i)
{
    const apr_packed_content content = f->target.layout->parts[i].content;
    uint8_t *const data = f->bytes[i];

    memset(data, 0x31, (size_t)f->tensors[i].n_bytes);
    if (content == APR_PACKED_SHAPE) apr_store_le64(data, ROWS), apr_store_le64(data + 8, COLUMNS);
    for (int c = 0; content == APR_PACKED_INDEX && c < COLUMNS; c++) apr_store_le32(data + 4 * c, (uint32_t)(c / f->target.group));
}

static void make(folder *f, const apr_packed_layout *layout, int group)
{
    static const char *const ignored[] = {"lm_head", "model.layers.0.mlp.gate"};
    const apr_tensor weight = {.name = "model.layers.0.self_attn.q_proj.weight", .rank = 2, .dims = {ROWS, COLUMNS}};
    char *whole;

    memset(f, 0, sizeof *f);
    assert_int_equal(apr_packed_target_find(&f->target, layout->type, layout->name, group, NULL), APR_OK);
    assert_ptr_equal(f->target.layout, layout);
    assert_int_equal(apr_packed_matrix_make(&f->matrix, &f->target, &weight, &f->model.arena, NULL), APR_OK);
    const apr_packed_config config = {&f->target, ignored, 2};
    assert_int_equal(apr_packed_config_text(&config, &f->text, &f->file, NULL), APR_OK);
    whole = apr_arena_print(&f->model.arena, "{\"quantization_config\": %s}", f->text);
    f->config = (apr_attachment){"config.json", (const uint8_t *)whole, strlen(whole)};
    f->model.path = "FILE";
    f->model.format = APR_FORMAT_SAFETENSORS;
    f->model.tensors = f->tensors;
    f->model.n_tensors = f->matrix.packing.n_parts;
    f->model.attachments = &f->config;
    f->model.n_attachments = 1;
    for (size_t i = 0; i < f->model.n_tensors; i++) {
        f->tensors[i] = f->matrix.parts[i];
        f->tensors[i].data = f->bytes[i] = malloc((size_t)f->tensors[i].n_bytes);
        fill(f, i);
    }
    assert_int_equal(apr_model_index_names(&f->model, NULL), APR_OK);
    assert_int_equal(apr_quantization_read(&f->model, &f->model.arena, &f->model.quantization, NULL), APR_OK);
}

static void drop(folder *f)
{
    for (int i = 0; i < APR_LAYOUT_PARTS; i++) free(f->bytes[i]);
    free(f->text);
    free(f->file);
    apr_arena_close(&f->model.arena);
}

static void same_packing(const apr_packing *read, const apr_packing *written)
{
    assert_int_equal(read->rows, written->rows);
    assert_int_equal(read->columns, written->columns);
    assert_int_equal(read->order, written->order);
    assert_int_equal(read->level, written->level);
    assert_int_equal(read->bits, written->bits);
    assert_int_equal(read->scale_dtype, written->scale_dtype);
    assert_int_equal(read->scales_down, written->scales_down);
    assert_int_equal(read->scale_rows, written->scale_rows);
    assert_int_equal(read->scale_columns, written->scale_columns);
    assert_int_equal(read->divides, written->divides);
    assert_int_equal(read->zero_order, written->zero_order);
    assert_int_equal(read->zero_bias, written->zero_bias);
    assert_int_equal(read->n_parts, written->n_parts);
    assert_null(read->groups);
}

/* The stated scheme covers the matrix, and not what is left out. */
static void states_the_matrix(const folder *f)
{
    const apr_quantization *const q = f->model.quantization;

    assert_non_null(q);
    assert_null(q->problem);
    const apr_quant_scheme *const s = apr_quantization_of(q, "model.layers.0.self_attn.q_proj", APR_MODULE_LINEAR);
    assert_non_null(s);
    assert_int_equal(s->bits, f->matrix.packing.bits);
    assert_int_equal(s->block_columns, f->target.group);
    assert_null(apr_quantization_of(q, "model.layers.0.mlp.gate", APR_MODULE_LINEAR));
    assert_null(apr_quantization_of(q, "lm_head", APR_MODULE_HEAD));
}

static void readers_bind_what_is_written(void **unused)
{
    (void)unused;
    for (const apr_packed_layout *l = apr_packed_layouts; l->type != NULL; l++)
        for (int g = 0; g < APR_LAYOUT_GROUPS && l->groups[g] > 0; g++) {
            folder f;
            make(&f, l, l->groups[g]);
            assert_int_equal(apr_bind_scales(&f.model, &f.config, NULL), APR_OK);
            assert_int_equal(apr_bind_packings(&f.model, NULL), APR_OK);
            states_the_matrix(&f);
            assert_int_equal(f.file != NULL, strcmp(l->name, "modelopt") == 0);
            if (l->dtype == APR_F8_E4M3) { /* read as a tensor with scales */
                assert_ptr_equal(f.tensors[0].scale, &f.tensors[1]);
                assert_int_equal(f.tensors[0].scale_rows, 128);
                assert_int_equal(f.tensors[0].scale_columns, 128);
            } else {
                assert_int_equal(f.model.n_packings, 1);
                same_packing(f.model.packings[0].packing, &f.matrix.packing);
            }
            drop(&f);
        }
}

static const struct {
    const char *type, *layout;
    int group;
    const char *message;
} refused[] = {
    {"q4_k", "gptq", 0, "--layout is for the types nvfp4, mxfp4, fp8 and int4, not q4_k"},
    {"int4", "modelopt", 0, "--layout modelopt does not exist for int4; it can be compressed-tensors, gptq or awq"},
    {"mxfp4", "gptq", 0, "it can be compressed-tensors"},
    {"int4", "gptq", 48, "--group 48: int4 as gptq has groups of 128, 64 or 32"},
    {"nvfp4", NULL, 32, "--group 32: nvfp4 as compressed-tensors has groups of 16"},
    {"fp8", "compressed-tensors", 128, "has a scale for each row"},
};

static void what_does_not_exist_is_refused(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        apr_packed_target target;
        apr_error err = {0};
        assert_int_equal(apr_packed_target_find(&target, refused[i].type, refused[i].layout, refused[i].group, &err), APR_E_USAGE);
        if (strstr(err.text, refused[i].message) == NULL) fail_msg("'%s' instead of '%s'", err.text, refused[i].message);
    }
}

static void shapes_that_kernels_refuse_are_named(void **unused)
{
    apr_packed_target int4, fp8;
    apr_arena arena = {0};
    (void)unused;

    assert_int_equal(apr_packed_target_find(&int4, "INT4", NULL, 0, NULL), APR_OK);
    assert_int_equal(apr_packed_target_find(&fp8, "fp8", "fp8", 0, NULL), APR_OK);
    assert_null(apr_packed_obstacle(&int4, 64, 128, true, &arena));
    assert_non_null(strstr(apr_packed_obstacle(&int4, 8608, 128, false, &arena), "8608 rows are not a multiple of 64"));
    assert_non_null(strstr(apr_packed_obstacle(&int4, 64, 192, false, &arena), "192 columns are not a multiple of 128"));
    assert_null(apr_packed_obstacle(&fp8, 100, 30, false, &arena));
    assert_non_null(strstr(apr_packed_obstacle(&fp8, 64, 128, true, &arena), "64 rows are not a multiple of 128"));
    apr_arena_close(&arena);
}

static void fused_modules_are_known(void **unused)
{
    size_t n;
    (void)unused;

    assert_string_equal(apr_packed_fused("model.layers.3.mlp.experts.7.w3.weight", &n)->name, "w13");
    assert_int_equal(n, strlen("model.layers.3.mlp.experts.7."));
    assert_string_equal(apr_packed_fused("model.layers.3.self_attn.v_proj", &n)->name, "qkv_proj");
    assert_null(apr_packed_fused("model.layers.3.self_attn.o_proj.weight", &n));
    assert_null(apr_packed_fused("model.layers.3.mlp.big_up_proj.weight", &n));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(readers_bind_what_is_written),
        cmocka_unit_test(what_does_not_exist_is_refused),
        cmocka_unit_test(shapes_that_kernels_refuse_are_named),
        cmocka_unit_test(fused_modules_are_known),
    };
    return cmocka_run_group_tests_name("packed_layouts", tests, NULL, NULL);
}
