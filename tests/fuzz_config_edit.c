/* fuzz_config_edit.c - any JSON object as config.json, edited as a conversion edits it: only what changes is changed. */
#include "formats/json.h"
#include "formats/safetensors.h"
#include "tests/fuzz_target.h"

/* Are all members of `a` but the two that an edit may touch in `b` too, in the same order? */
static bool keeps_the_rest(const cJSON *a, const cJSON *b)
{
    static const char *const touched[] = {"dtype", "torch_dtype", "quantization_config"};
    const cJSON *x = a->child, *y = b->child;

    for (;;) {
        for (size_t i = 0; i < 3; i++) {
            while (x != NULL && strcmp(x->string, touched[i]) == 0) x = x->next, i = 0;
            while (y != NULL && strcmp(y->string, touched[i]) == 0) y = y->next, i = 0;
        }
        if (x == NULL || y == NULL) return x == y;
        if (strcmp(x->string, y->string) != 0 || !cJSON_Compare(x, y, true)) return false;
        x = x->next, y = y->next;
    }
}

static void edit(const apr_attachment *config, const cJSON *before, const char *dtype, apr_config_quantization quantization)
{
    apr_error err = {0};
    cJSON *after;
    char *const text = apr_hf_config_edit(config, dtype, quantization);

    if (text == NULL) return; /* no memory */
    claim(apr_json_parse(&after, text, strlen(text), "edited", &err) == APR_OK);
    claim(keeps_the_rest(before, after));
    const char *const key = apr_json_get(before, "dtype") != NULL ? "dtype" : "torch_dtype";
    if (dtype != NULL) claim(strcmp(apr_json_get_string(after, key), dtype) == 0);
    if (quantization == APR_CONFIG_UNQUANTIZED) claim(apr_json_get(after, "quantization_config") == NULL);
    if (quantization == APR_CONFIG_FP8_CHANNEL) claim(cJSON_IsObject(apr_json_get(after, "quantization_config")));
    if (dtype == NULL && quantization == APR_CONFIG_KEEP)
        claim(strlen(text) == config->n_bytes && memcmp(text, config->data, config->n_bytes) == 0);
    cJSON_Delete(after);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    const apr_attachment config = {"config.json", data, n_bytes};
    cJSON *json;

    if (apr_json_parse(&json, data, n_bytes, "fuzz", NULL) != APR_OK) return 0;
    if (cJSON_IsObject(json)) {
        edit(&config, json, NULL, APR_CONFIG_KEEP);
        edit(&config, json, "float16", APR_CONFIG_KEEP);
        edit(&config, json, NULL, APR_CONFIG_UNQUANTIZED);
        edit(&config, json, "bfloat16", APR_CONFIG_FP8_CHANNEL);
    }
    cJSON_Delete(json);
    return 0;
}
