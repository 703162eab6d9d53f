/* family_model.c - writes model.safetensors by formula, with nothing of the product but its JSON and its roundings. */
#include "tests/support/family_model.h"

#include "formats/shape/family.h"
#include "formats/tensor/model.h"

#include "formats/base/json.h"
#include "formats/files/map.h"
#include "formats/number/half.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_RANK = 5 };

typedef struct family_tensor {
    const char *name;
    int64_t dims[MAX_RANK], n_elems;
    int rank;
    double mean, deviation;
} family_tensor;

typedef struct family {
    const char *path; /* of tensors.json */
    cJSON *json;
    const cJSON *tensors;
    const char *dtype; /* BF16, F16 or F32 */
    uint64_t seed;
} family;

static uint64_t hash_name(const char *name)
{
    uint64_t z = 0xcbf29ce484222325u;
    for (; *name != '\0'; name++) z = (z ^ (uint8_t)*name) * 0x100000001b3u;
    return z;
}

/* Four bytes of splitmix64 summed up: near enough to a normal distribution of deviation 1. */
static double noise(uint64_t hash, uint64_t seed, uint64_t i)
{
    uint64_t z = hash + seed + (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    const int sum = (int)(z & 255) + (int)(z >> 8 & 255) + (int)(z >> 16 & 255) + (int)(z >> 24 & 255) - 510;
    return (double)sum / 147.8;
}

static size_t value_bytes(const family *f) { return strcmp(f->dtype, "F32") == 0 ? 4 : 2; }

static void round_values(const family *f, const float *values, int64_t n, uint8_t *bytes)
{
    for (int64_t i = 0; i < n; i++) {
        if (value_bytes(f) == 4) {
            memcpy(bytes + 4 * i, &values[i], 4);
            continue;
        }
        const uint16_t half = strcmp(f->dtype, "BF16") == 0 ? apr_f32_to_bf16(values[i]) : apr_f32_to_f16(values[i]);
        memcpy(bytes + 2 * i, &half, 2);
    }
}

static apr_status parse_tensor(const family *f, const cJSON *item, family_tensor *t, apr_error *err)
{
    const cJSON *const shape = cJSON_GetArrayItem(item, 0), *const mean = cJSON_GetArrayItem(item, 1),
                       *const deviation = cJSON_GetArrayItem(item, 2);
    const cJSON *dim;

    *t = (family_tensor){.name = item->string, .n_elems = 1};
    if (!cJSON_IsArray(shape) || cJSON_GetArraySize(shape) > MAX_RANK || !cJSON_IsNumber(mean) || !cJSON_IsNumber(deviation))
        return apr_fail(err, APR_E_DAMAGED, "%s: '%s' is not [shape, mean, deviation]", f->path, t->name);
    cJSON_ArrayForEach(dim, shape)
    {
        if (!apr_json_as_int(dim, &t->dims[t->rank]) || t->dims[t->rank] < 0 || t->dims[t->rank] > 1 << 20)
            return apr_fail(err, APR_E_DAMAGED, "%s: the shape of '%s'", f->path, t->name);
        t->n_elems *= t->dims[t->rank++];
        if (t->n_elems > 1 << 26) return apr_fail(err, APR_E_DAMAGED, "%s: '%s' is too large for a test", f->path, t->name);
    }
    t->mean = mean->valuedouble;
    t->deviation = deviation->valuedouble;
    return APR_OK;
}

/* The header of the file, padded with spaces to a multiple of 8. */
static apr_status write_header(const family *f, FILE *out, apr_error *err)
{
    apr_json_text json = {0};
    const cJSON *item;
    uint64_t at = 0;
    size_t n_header;

    apr_json_open(&json, NULL, '{');
    cJSON_ArrayForEach(item, f->tensors)
    {
        family_tensor t;
        const apr_status status = parse_tensor(f, item, &t, err);
        if (status != APR_OK) {
            apr_json_text_free(&json);
            return status;
        }
        apr_json_open(&json, t.name, '{');
        apr_json_string(&json, "dtype", f->dtype, strlen(f->dtype));
        apr_json_open(&json, "shape", '[');
        for (int i = 0; i < t.rank; i++) apr_json_int(&json, NULL, t.dims[i]);
        apr_json_close(&json, ']');
        apr_json_open(&json, "data_offsets", '[');
        apr_json_uint(&json, NULL, at);
        apr_json_uint(&json, NULL, at += (uint64_t)t.n_elems * value_bytes(f));
        apr_json_close(&json, ']');
        apr_json_close(&json, '}');
    }
    apr_json_close(&json, '}');
    char *const text = apr_json_text_take(&json, &n_header);
    if (text == NULL) return apr_no_memory(err, "the header");
    const int padding = (int)((8 - n_header % 8) % 8);
    const uint64_t n_padded = n_header + (uint64_t)padding;
    for (int i = 0; i < 8; i++) fputc((int)(n_padded >> 8 * i & 255), out);
    fprintf(out, "%s%*s", text, padding, "");
    free(text);
    return APR_OK;
}

static apr_status write_tensor(const family *f, const cJSON *item, const family_edit *edit, FILE *out, apr_error *err)
{
    family_tensor t;

    APR_TRY(parse_tensor(f, item, &t, err));
    float *const values = malloc((size_t)t.n_elems * sizeof *values + 1);
    uint8_t *const bytes = malloc((size_t)t.n_elems * value_bytes(f) + 1);
    const bool there = values != NULL && bytes != NULL;
    if (there) {
        const uint64_t hash = hash_name(t.name);
        for (int64_t i = 0; i < t.n_elems; i++) values[i] = (float)(t.mean + t.deviation * noise(hash, f->seed, (uint64_t)i));
        if (edit != NULL && edit->tensor != NULL) edit->tensor(edit->user, t.name, t.dims, t.rank, values);
        round_values(f, values, t.n_elems, bytes);
        fwrite(bytes, value_bytes(f), (size_t)t.n_elems, out);
    }
    free(values);
    free(bytes);
    return there ? APR_OK : apr_no_memory(err, t.name);
}

static apr_status write_model(const family *f, const char *path, const family_edit *edit, apr_error *err)
{
    const cJSON *item;
    FILE *const out = fopen(path, "wb");

    if (out == NULL) return apr_fail(err, APR_E_IO, "%s: %s", path, strerror(errno));
    apr_status status = write_header(f, out, err);
    cJSON_ArrayForEach(item, f->tensors) if (status == APR_OK) status = write_tensor(f, item, edit, out, err);
    const bool failed = ferror(out) != 0;
    if ((fclose(out) != 0 || failed) && status == APR_OK) status = apr_fail(err, APR_E_IO, "%s: could not be written", path);
    return status;
}

static apr_status open_family(family *f, apr_error *err)
{
    apr_map map;
    int64_t seed;

    APR_TRY(apr_map_open(&map, f->path, err));
    const apr_status status = apr_json_parse(&f->json, map.data, map.n_bytes, f->path, err);
    apr_map_close(&map);
    APR_TRY(status);
    f->tensors = apr_json_get(f->json, "tensors");
    f->dtype = apr_json_get_string(f->json, "dtype");
    if (f->dtype == NULL || (strcmp(f->dtype, "BF16") != 0 && strcmp(f->dtype, "F16") != 0 && strcmp(f->dtype, "F32") != 0) ||
        !apr_json_get_int(f->json, "seed", &seed) || !cJSON_IsObject(f->tensors))
        return apr_fail(err, APR_E_DAMAGED, "%s: states no seed, dtype (BF16, F16, F32) or tensors", f->path);
    f->seed = (uint64_t)seed;
    return APR_OK;
}

static apr_status copy_file(const char *from, const char *to, apr_error *err)
{
    apr_map map;

    APR_TRY(apr_map_open(&map, from, err));
    FILE *const out = fopen(to, "wb");
    const bool written = out != NULL && fwrite(map.data, 1, map.n_bytes, out) == map.n_bytes;
    const bool closed = out != NULL && fclose(out) == 0;
    apr_map_close(&map);
    return written && closed ? APR_OK : apr_fail(err, APR_E_IO, "%s: could not be written", to);
}

apr_status family_write(const char *dir, const char *out, const family_edit *edit, apr_error *err)
{
    char tensors[512], path[512], config[512];
    family f = {.path = tensors};

    snprintf(tensors, sizeof tensors, "%s/tensors.json", dir);
    snprintf(path, sizeof path, "%s/model.safetensors", out);
    if (mkdir(out, 0777) != 0 && errno != EEXIST) return apr_fail(err, APR_E_IO, "%s: %s", out, strerror(errno));
    apr_status status = open_family(&f, err);
    if (status == APR_OK) status = write_model(&f, path, edit, err);
    cJSON_Delete(f.json);
    snprintf(config, sizeof config, "%s/config.json", dir);
    snprintf(path, sizeof path, "%s/config.json", out);
    return status == APR_OK ? copy_file(config, path, err) : status;
}

bool family_is_in_gguf(const char *dir)
{
    char path[512];
    apr_model config;

    snprintf(path, sizeof path, "%s/config.json", dir);
    if (apr_model_open(&config, path, NULL) != APR_OK) return false;
    const bool is_in = apr_family_translated(config.hparams.architecture) != NULL;
    apr_model_close(&config);
    return is_in;
}
