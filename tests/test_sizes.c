/* tools/sizes.h: the sizes a plan counts are the sizes of the files that are written. */
#define _XOPEN_SOURCE 700
#include "convert/convert.h"
#include "quant/recipe.h"
#include "tests/work_folder.h"
#include "tools/sizes.h"

static const char checkpoint[] = "tests/data/tiny-qwen2", config[] = "tests/data/tiny-qwen2/config.json";

/* Bytes of the data section of the APR file that a mixture makes of the checkpoint. */
static uint64_t data_bytes_written(const char *mixture)
{
    const apr_convert_options options = {.format = APR_FORMAT_APR, .recipe = {.mixture = mixture}, .sink = {.overwrite = true}};
    apr_model source;
    apr_conversion c;
    apr_map map;
    assert_int_equal(apr_model_open(&source, checkpoint, NULL), APR_OK);
    assert_int_equal(apr_conversion_plan(&c, &source, &options, NULL), APR_OK);
    assert_int_equal(apr_conversion_run(&c, in_work("x.apr"), NULL, NULL), APR_OK);
    apr_conversion_close(&c);
    apr_model_close(&source);
    assert_int_equal(apr_map_open(&map, in_work("x.apr"), NULL), APR_OK);
    const uint64_t data_offset = apr_load_le64(map.data + 32), n = map.n_bytes - data_offset - 4; /* the footer is 4 bytes */
    apr_map_close(&map);
    return n;
}

static uint64_t bytes_planned(const char *mixture, bool from_config)
{
    apr_model source, skeleton = {0};
    apr_program program;
    uint64_t sum = 0;
    assert_int_equal(apr_model_open(&source, from_config ? config : checkpoint, NULL), APR_OK);
    assert_int_equal(source.n_tensors == 0, from_config);
    assert_int_equal(apr_program_emit(&program, &source.hparams, NULL), APR_OK);
    if (from_config) assert_int_equal(apr_skeleton_model(&skeleton, &program, &source.hparams, NULL), APR_OK);
    uint64_t *const bytes = calloc(program.n_weights, sizeof *bytes);
    assert_int_equal(apr_weight_sizes(from_config ? &skeleton : &source, &program, mixture, bytes, NULL), APR_OK);
    for (size_t i = 0; i < program.n_weights; i++) sum += bytes[i];
    free(bytes);
    apr_program_close(&program);
    apr_model_close(&skeleton);
    apr_model_close(&source);
    return sum;
}

static void every_mixture_is_planned_to_the_byte(void **state)
{
    (void)state;
    for (const apr_mixture_name *m = apr_mixture_names; m->name != NULL; m++) {
        const uint64_t written = data_bytes_written(m->name);
        assert_int_equal(bytes_planned(m->name, false), written);
        assert_int_equal(bytes_planned(m->name, true), written); /* from config.json alone */
    }
}

static void a_weight_that_is_missing_is_no_zero(void **state)
{
    (void)state;
    apr_model source;
    apr_program program;
    apr_error err = {0};
    assert_int_equal(apr_model_open(&source, checkpoint, NULL), APR_OK);
    assert_int_equal(apr_program_emit(&program, &source.hparams, NULL), APR_OK);
    uint64_t *const bytes = calloc(program.n_weights, sizeof *bytes);
    source.n_tensors--; /* model.norm.weight is the last */
    assert_int_equal(apr_model_index_names(&source, NULL), APR_OK);
    assert_int_equal(apr_weight_sizes(&source, &program, NULL, bytes, &err), APR_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "model.norm.weight"));
    free(bytes);
    apr_program_close(&program);
    apr_model_close(&source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mixture_is_planned_to_the_byte),
        cmocka_unit_test(a_weight_that_is_missing_is_no_zero),
    };
    return cmocka_run_group_tests_name("sizes", tests, make_work, remove_work);
}
