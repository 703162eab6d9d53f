/* fuzz_config_edit.c - any bytes as config.json, edited as a conversion edits it: refused with a sentence, or JSON in which
 * only what is to change has changed. */
#include "formats/base/json.h"
#include "formats/hf/safetensors.h"
#include "formats/shape/hf_config.h"
#include "tests/fuzz/fuzz_target.h"

static bool is_touched(const cJSON *item)
{
    static const char *const touched[] = {"dtype", "torch_dtype", "quantization_config", "compression_config"};
    for (size_t i = 0; i < sizeof touched / sizeof *touched; i++)
        if (strcmp(item->string, touched[i]) == 0) return true;
    return false;
}

static const cJSON *next_kept(const cJSON *item)
{
    while (item != NULL && is_touched(item)) item = item->next;
    return item;
}

/* As text: cJSON_Compare calls infinity unequal to itself. */
static bool is_same(const cJSON *a, const cJSON *b)
{
    char *const x = cJSON_PrintUnformatted(a), *const y = cJSON_PrintUnformatted(b);
    const bool same = x != NULL && y != NULL && strcmp(x, y) == 0;
    free(x);
    free(y);
    return same;
}

/* Are the members that no edit touches the same, in the same order, in both objects and in their text_config? */
static bool keeps_the_rest(const cJSON *a, const cJSON *b, bool is_top)
{
    const cJSON *x = next_kept(a->child), *y = next_kept(b->child);

    for (; x != NULL && y != NULL; x = next_kept(x->next), y = next_kept(y->next)) {
        const bool descends = is_top && strcmp(x->string, "text_config") == 0 && cJSON_IsObject(x);
        if (strcmp(x->string, y->string) != 0) return false;
        if (descends ? !keeps_the_rest(x, y, false) : !is_same(x, y)) return false;
    }
    return x == y;
}

/* How many of the two members, at the top and in text_config, say this dtype; -1 when one says another. */
static int says_dtype(const cJSON *json, const char *dtype)
{
    const cJSON *const objects[] = {json, apr_json_get(json, "text_config")};
    int n = 0;

    for (int i = 0; i < 4; i++) {
        const cJSON *const item = apr_json_get(objects[i / 2], i % 2 ? "dtype" : "torch_dtype");
        if (item != NULL && (!cJSON_IsString(item) || strcmp(item->valuestring, dtype) != 0)) return -1;
        n += item != NULL;
    }
    return n;
}

static void edit(const apr_attachment *config, const cJSON *before, const char *dtype, apr_config_quantization quantization)
{
    apr_error err = {0};
    cJSON *after = NULL;
    char *text;
    size_t n_text;

    const apr_status status = apr_hf_config_edit(config, dtype, quantization, &text, &n_text, &err);
    claim_sentence(status, err);
    if (dtype == NULL && quantization == APR_CONFIG_KEEP)
        claim(status == APR_OK && n_text == config->n_bytes && (n_text == 0 || memcmp(text, config->data, n_text) == 0));
    else claim((status == APR_OK) == cJSON_IsObject(before));
    if (status == APR_OK && cJSON_IsObject(before)) {
        claim(apr_json_parse(&after, text, n_text, "edited", &err) == APR_OK);
        claim(keeps_the_rest(before, after, true));
        claim(dtype == NULL || says_dtype(after, dtype) > 0);
        const cJSON *const stated = apr_json_get(after, "quantization_config");
        if (quantization == APR_CONFIG_UNQUANTIZED) claim(stated == NULL);
        if (quantization == APR_CONFIG_FP8_CHANNEL)
            claim(cJSON_IsObject(stated) || cJSON_IsObject(apr_json_get(apr_json_get(after, "text_config"), "quantization_config")));
    }
    cJSON_Delete(after);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    const apr_attachment config = {"config.json", data, n_bytes};
    cJSON *json;

    if (apr_json_parse(&json, data, n_bytes, "fuzz", NULL) != APR_OK) json = NULL;
    edit(&config, json, NULL, APR_CONFIG_KEEP);
    edit(&config, json, "float16", APR_CONFIG_KEEP);
    edit(&config, json, NULL, APR_CONFIG_UNQUANTIZED);
    edit(&config, json, "bfloat16", APR_CONFIG_FP8_CHANNEL);
    cJSON_Delete(json);
    return 0;
}
