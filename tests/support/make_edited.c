/* make_edited.c - usage: make_edited IN HOW N OUT. Makes OUT, the safetensors file IN with one tensor that is not as it should be: the
 * N-th one (counted on from the first again where N is larger) for which HOW changes anything.
 *
 * HOW: drop (the tensor is missing), empty (its shape is [0], as ZeRO-3 leaves them), fewer (its last row is missing), transposed (the
 * numbers are the same, the shape is reversed), renamed (a name that no model knows), integers (its type says I32 or I16). */
#include "formats/base/bytes.h"
#include "formats/base/json.h"
#include "formats/files/map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Changes name (a buffer of 300 bytes) and tensor; false: of this tensor there is nothing to change. */
typedef bool (*edit_fn)(char *name, cJSON *tensor);

static void *must(void *pointer)
{
    if (pointer == NULL) exit(APR_E_MEMORY);
    return pointer;
}

static cJSON *shape_of(const cJSON *tensor) { return cJSON_GetObjectItemCaseSensitive(tensor, "shape"); }

static bool drop(char *name, cJSON *tensor)
{
    name[0] = '\0';
    return tensor != NULL;
}

/* The data of the tensor become n bytes. */
static void cut_data(const cJSON *tensor, double n)
{
    const cJSON *const offsets = cJSON_GetObjectItemCaseSensitive(tensor, "data_offsets");
    cJSON_SetNumberValue(cJSON_GetArrayItem(offsets, 1), cJSON_GetArrayItem(offsets, 0)->valuedouble + n);
}

static bool empty(char *name, cJSON *tensor)
{
    static const int none[] = {0};
    (void)name;
    cJSON_ReplaceItemInObjectCaseSensitive(tensor, "shape", must(cJSON_CreateIntArray(none, 1)));
    cut_data(tensor, 0);
    return true;
}

static bool fewer(char *name, cJSON *tensor)
{
    cJSON *const rows = cJSON_GetArrayItem(shape_of(tensor), 0);
    const cJSON *const offsets = cJSON_GetObjectItemCaseSensitive(tensor, "data_offsets");

    (void)name;
    if (rows == NULL || rows->valuedouble < 2) return false;
    const double n = rows->valuedouble, n_bytes = cJSON_GetArrayItem(offsets, 1)->valuedouble - cJSON_GetArrayItem(offsets, 0)->valuedouble;
    cut_data(tensor, n_bytes / n * (n - 1));
    cJSON_SetNumberValue(rows, n - 1);
    return true;
}

static bool transposed(char *name, cJSON *tensor)
{
    const cJSON *const shape = shape_of(tensor);
    cJSON *const first = cJSON_GetArrayItem(shape, 0), *const last = cJSON_GetArrayItem(shape, cJSON_GetArraySize(shape) - 1);

    (void)name;
    if (cJSON_GetArraySize(shape) < 2 || first->valuedouble == last->valuedouble) return false;
    const double n = first->valuedouble;
    cJSON_SetNumberValue(first, last->valuedouble);
    cJSON_SetNumberValue(last, n);
    return true;
}

static bool renamed(char *name, cJSON *tensor)
{
    snprintf(name + strlen(name), 300 - strlen(name), "_of_another_kind");
    return tensor != NULL;
}

static bool integers(char *name, cJSON *tensor)
{
    const cJSON *const type = cJSON_GetObjectItemCaseSensitive(tensor, "dtype");
    const bool is_wide = strcmp(type->valuestring, "F32") == 0;

    (void)name;
    if (!is_wide && strcmp(type->valuestring, "BF16") != 0 && strcmp(type->valuestring, "F16") != 0) return false;
    cJSON_ReplaceItemInObjectCaseSensitive(tensor, "dtype", must(cJSON_CreateString(is_wide ? "I32" : "I16")));
    return true;
}

static const struct {
    const char *name;
    edit_fn fn;
} edits[] = {{"drop", drop}, {"empty", empty}, {"fewer", fewer}, {"transposed", transposed}, {"renamed", renamed}, {"integers", integers}};

/* A tensor after those in `out`, with its data. */
static void add(cJSON *out, const char *name, cJSON *tensor, const uint8_t *data, FILE *bytes)
{
    const cJSON *const offsets = cJSON_GetObjectItemCaseSensitive(tensor, "data_offsets");
    const uint64_t begin = (uint64_t)cJSON_GetArrayItem(offsets, 0)->valuedouble,
                   end = (uint64_t)cJSON_GetArrayItem(offsets, 1)->valuedouble;
    const double at = (double)ftell(bytes), range[] = {at, at + (double)(end - begin)};

    if (fwrite(data + begin, 1, end - begin, bytes) != end - begin) exit(APR_E_IO);
    cJSON_ReplaceItemInObjectCaseSensitive(tensor, "data_offsets", must(cJSON_CreateDoubleArray(range, 2)));
    cJSON_AddItemToObject(out, name, tensor);
}

/* What HOW makes of a tensor, under its name from then on; NULL: it changes nothing. */
static cJSON *edited(const cJSON *tensor, edit_fn edit, char name[300])
{
    cJSON *const changed = must(cJSON_Duplicate(tensor, true));

    snprintf(name, 300, "%s", tensor->string);
    if (strcmp(name, "__metadata__") != 0 && edit(name, changed)) return changed;
    cJSON_Delete(changed);
    return NULL;
}

static int count(const cJSON *header, edit_fn edit)
{
    const cJSON *item;
    char name[300];
    int n = 0;

    cJSON_ArrayForEach(item, header)
    {
        cJSON *const changed = edited(item, edit, name);
        n += changed != NULL;
        cJSON_Delete(changed);
    }
    return n;
}

/* All tensors, and the `wanted`-th of those that can be changed as it is then. */
static void make(const cJSON *header, const uint8_t *data, edit_fn edit, int wanted, cJSON *out, FILE *bytes)
{
    const cJSON *item;
    char name[300];
    int n = 0;

    cJSON_ArrayForEach(item, header)
    {
        if (strcmp(item->string, "__metadata__") == 0) continue;
        cJSON *changed = edited(item, edit, name);
        if (changed == NULL || n++ != wanted) {
            add(out, item->string, must(cJSON_Duplicate(item, true)), data, bytes);
            cJSON_Delete(changed);
        } else if (name[0] != '\0') add(out, name, changed, data, bytes);
        else cJSON_Delete(changed);
    }
}

static void write_file(const char *path, const cJSON *header, FILE *bytes)
{
    char *const text = must(cJSON_PrintUnformatted(header)), block[4096];
    const size_t n = strlen(text), n_padded = (n + 7) / 8 * 8;
    FILE *const out = fopen(path, "wb");

    if (out == NULL) exit(APR_E_IO);
    for (int i = 0; i < 8; i++) fputc((int)((uint64_t)n_padded >> 8 * i & 255), out);
    fprintf(out, "%s%*s", text, (int)(n_padded - n), "");
    rewind(bytes);
    for (size_t got; (got = fread(block, 1, sizeof block, bytes)) > 0;) fwrite(block, 1, got, out);
    if (ferror(out) != 0 || ferror(bytes) != 0 || fclose(out) != 0) exit(APR_E_IO);
    free(text);
}

int main(int argc, char **argv)
{
    apr_map file;
    apr_error err = {0};
    cJSON *header = NULL;
    edit_fn edit = NULL;

    for (size_t i = 0; argc == 5 && i < sizeof edits / sizeof *edits; i++)
        if (strcmp(edits[i].name, argv[2]) == 0) edit = edits[i].fn;
    if (edit == NULL) {
        fprintf(stderr, "usage: make_edited IN drop|empty|fewer|transposed|renamed|integers N OUT\n");
        return APR_E_USAGE;
    }
    if (apr_map_open(&file, argv[1], &err) != APR_OK) return APR_E_IO;
    const uint64_t n_header = apr_load_le64(file.data);
    if (apr_json_parse(&header, file.data + 8, n_header, argv[1], &err) != APR_OK) return APR_E_DAMAGED;
    const uint8_t *const data = file.data + 8 + n_header;
    const int n = count(header, edit);
    cJSON *const out = must(cJSON_CreateObject());
    FILE *const bytes = must(tmpfile());
    if (n > 0) make(header, data, edit, (int)strtol(argv[3], NULL, 10) % n, out, bytes);
    if (n > 0) write_file(argv[4], out, bytes);
    cJSON_Delete(out);
    cJSON_Delete(header);
    fclose(bytes);
    apr_map_close(&file);
    return n > 0 ? APR_OK : APR_E_NO;
}
