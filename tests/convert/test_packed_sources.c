/* Checkpoints in every quantized layout, made with the layouts' own libraries (tests/data/packed/README.md): each matrix decodes to what
 * its library decodes it to, bit for bit. A zero may have either sign: libraries differ in what a code for -0 becomes. */
#define _XOPEN_SOURCE 700
#include "convert/convert.h"
#include "convert/naming.h"
#include "formats/base/crc32.h"
#include "formats/base/json.h"
#include "formats/files/map.h"
#include "formats/number/half.h"
#include "formats/tensor/packing.h"
#include "kernels/rows.h"
#include "tests/support/conversion.h"
#include "tests/support/work_folder.h"

#include <dirent.h>

static const char folder[] = "tests/data/packed";
enum { LEAST_SOURCES = 37 };

static cJSON *golden_of(const char *source)
{
    char path[320];
    apr_error err = {0};
    apr_map map;
    cJSON *json;

    snprintf(path, sizeof path, "%s/%s/golden.json", folder, source);
    if (apr_map_open(&map, path, &err) != APR_OK) fail_msg("%s", err.text);
    if (apr_json_parse(&json, map.data, map.n_bytes, path, &err) != APR_OK) fail_msg("%s", err.text);
    apr_map_close(&map);
    return json;
}

/* --- values --- */

static float *values_of(const apr_tensor *t)
{
    float *const values = malloc((size_t)apr_tensor_elems(t) * sizeof *values + 1);
    apr_decode_rows(t, 0, apr_tensor_rows(t), values);
    return values;
}

static void round_to(const char *dtype, float *values, int64_t n)
{
    const bool is_half = strcmp(dtype, "F16") == 0, is_bf16 = strcmp(dtype, "BF16") == 0;
    for (int64_t i = 0; i < n; i++) {
        if (is_half) values[i] = apr_f16_to_f32(apr_f32_to_f16(values[i]));
        if (is_bf16) values[i] = apr_bf16_to_f32(apr_f32_to_bf16(values[i]));
    }
}

/* Of the values' bytes in that type, every zero being +0. */
static uint32_t crc_of(const char *dtype, const float *values, int64_t n)
{
    uint32_t crc = 0;
    for (int64_t i = 0; i < n; i++) {
        const float value = values[i] == 0.0f ? 0.0f : values[i];
        const uint16_t bits = strcmp(dtype, "F16") == 0 ? apr_f32_to_f16(value) : apr_f32_to_bf16(value);
        crc = strcmp(dtype, "F32") == 0 ? apr_crc32(crc, &value, sizeof value) : apr_crc32(crc, &bits, sizeof bits);
    }
    return crc;
}

static uint32_t stated_crc(const cJSON *golden, const char *key)
{
    const char *const text = apr_json_get_string(golden, key);
    if (text == NULL) fail_msg("golden.json has no %s", key);
    return (uint32_t)strtoul(text, NULL, 16);
}

static void assert_dims(const char *source, const apr_tensor *t, const cJSON *dims)
{
    const cJSON *dim;
    int i = 0;
    if (cJSON_GetArraySize(dims) != t->rank) fail_msg("%s: '%s' has %d dimensions", source, t->name, t->rank);
    cJSON_ArrayForEach(dim, dims)
    {
        if (t->dims[i] != (int64_t)dim->valuedouble) fail_msg("%s: '%s': dimension %d is %lld", source, t->name, i, (long long)t->dims[i]);
        i++;
    }
}

/* The library's own type, and its products before it rounds them to that type: what stays of them is the tensor's dtype's business. */
static void assert_decodes(const char *source, const apr_tensor *t, const cJSON *golden)
{
    const char *const dtype = apr_json_get_string(golden, "dtype");
    const int64_t n = apr_tensor_elems(t);

    assert_dims(source, t, apr_json_get(golden, "dims"));
    float *const values = values_of(t);
    const uint32_t crc_f32 = crc_of("F32", values, n);
    round_to(dtype, values, n);
    const uint32_t crc = crc_of(dtype, values, n);
    if (crc != stated_crc(golden, "crc32"))
        fail_msg("%s: '%s' as %s is not what the library decodes (first values %.9g %.9g)", source, t->name, dtype, (double)values[0],
                 (double)values[1]);
    if (crc_f32 != stated_crc(golden, "crc32_f32")) fail_msg("%s: '%s' has the library's %s, but other products", source, t->name, dtype);
    free(values);
}

static void assert_source_decodes(const char *source, const char *path)
{
    cJSON *const golden = golden_of(source);
    const cJSON *matrix;
    apr_model model, view;
    apr_error err = {0};

    if (apr_model_open(&model, path, &err) != APR_OK) fail_msg("%s: %s", source, err.text);
    if (apr_canonical(&view, &model, &err) != APR_OK) fail_msg("%s: %s", source, err.text);
    cJSON_ArrayForEach(matrix, apr_json_get(golden, "matrices"))
    {
        const apr_tensor *const t = apr_model_find(&view, matrix->string);
        if (t == NULL) fail_msg("%s: no '%s'", source, matrix->string);
        assert_decodes(source, t, matrix);
    }
    cJSON_ArrayForEach(matrix, apr_json_get(golden, "plain"))
    {
        const apr_tensor *const t = apr_model_find(&view, matrix->valuestring);
        if (t == NULL) fail_msg("%s: no '%s'", source, matrix->valuestring);
        if (t->packing != NULL || t->scale != NULL || t->dtype != APR_BF16) fail_msg("%s: '%s' is not plain, but skipped", source, t->name);
    }
    apr_model_close(&view);
    apr_model_close(&model);
    cJSON_Delete(golden);
}

/* --- every source --- */

static void for_each_source(void (*check_difference)(const char *source))
{
    struct dirent *entry;
    int n = 0;
    DIR *const dir = opendir(folder);

    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL) {
        if (strchr(entry->d_name, '.') != NULL) continue; /* README.md, make.py */
        check_difference(entry->d_name);
        n++;
    }
    closedir(dir);
    assert_true(n >= LEAST_SOURCES);
}

static void decode_source(const char *source)
{
    char path[320];
    snprintf(path, sizeof path, "%s/%s", folder, source);
    assert_source_decodes(source, path);
}

static void a_source_decodes_to_its_librarys_values(void **state)
{
    (void)state;
    for_each_source(decode_source);
}

static void convert(const char *in, const char *out) { must_convert(in, out, &(apr_convert_options){0}); }

static void carry_source(const char *source)
{
    char path[320], back[64];

    snprintf(path, sizeof path, "%s/%s", folder, source);
    convert(path, in_work("source.apr"));
    assert_source_decodes(source, in_work("source.apr"));
    snprintf(back, sizeof back, "%.40s/", source);
    convert(in_work("source.apr"), in_work(back));
    snprintf(back, sizeof back, "%.40s/model.safetensors", source);
    snprintf(path, sizeof path, "%s/%s/model.safetensors", folder, source);
    assert_same_file(path, in_work(back));
}

static void a_source_in_an_apr_decodes_to_the_same_and_comes_back_byte_for_byte(void **state)
{
    (void)state;
    for_each_source(carry_source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_source_decodes_to_its_librarys_values),
        cmocka_unit_test(a_source_in_an_apr_decodes_to_the_same_and_comes_back_byte_for_byte),
    };
    return cmocka_run_group_tests_name("packed sources", tests, make_work, remove_work);
}
