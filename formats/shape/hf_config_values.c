/* hf_config_values.c - reads and writes single values of a config.json. */
#include "formats/shape/hf_config_values.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef apr_config_reading reading;

const cJSON *apr_config_find(const reading *r, const char *key)
{
    const cJSON *item = apr_json_get(r->text, key);
    if (item == NULL || cJSON_IsNull(item)) item = apr_json_get(r->root, key);
    return cJSON_IsNull(item) ? NULL : item;
}

bool apr_config_has(const reading *r, const char *key) { return apr_json_get(r->text, key) != NULL || apr_json_get(r->root, key) != NULL; }

apr_status apr_config_refuse(const reading *r, const char *format, ...)
{
    char text[400];
    va_list arguments;

    if (r->h->refusal != NULL) return APR_OK;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    r->h->refusal = apr_arena_copy(r->arena, text, strlen(text));
    return r->h->refusal != NULL ? APR_OK : apr_no_memory(r->err, "a config");
}

/* True: a list of equal numbers, one per layer. */
static bool is_uniform(const cJSON *list, int64_t *value)
{
    const cJSON *item;
    int64_t first = 0, other = 0;

    if (list->child == NULL || !apr_json_as_int(list->child, &first)) return false;
    cJSON_ArrayForEach(item, list) if (!apr_json_as_int(item, &other) || other != first) return false;
    *value = first;
    return true;
}

apr_status apr_config_int(const reading *r, const char *key, int64_t *value)
{
    const cJSON *const item = apr_config_find(r, key);
    if (item == NULL || apr_json_as_int(item, value)) return APR_OK;
    if (cJSON_IsString(item) && strcmp(item->valuestring, "auto") == 0) return APR_OK;
    if (cJSON_IsArray(item)) return is_uniform(item, value) ? APR_OK : apr_config_refuse(r, "its \"%s\" differs from layer to layer", key);
    return apr_fail(r->err, APR_E_DAMAGED, "%s: \"%s\" is not an integer", r->where, key);
}

apr_status apr_config_real(const reading *r, const cJSON *item, const char *key, double *value)
{
    if (item == NULL || cJSON_IsNull(item)) return APR_OK;
    if (!cJSON_IsNumber(item) || !isfinite(item->valuedouble))
        return apr_fail(r->err, APR_E_DAMAGED, "%s: \"%s\" is not a number", r->where, key);
    *value = item->valuedouble;
    return APR_OK;
}

apr_status apr_config_bool(const reading *r, const char *key, bool *value)
{
    const cJSON *const item = apr_config_find(r, key);
    if (item == NULL) return APR_OK;
    if (!cJSON_IsBool(item)) return apr_fail(r->err, APR_E_DAMAGED, "%s: \"%s\" is neither true nor false", r->where, key);
    *value = cJSON_IsTrue(item);
    return APR_OK;
}

void apr_config_put_text(apr_json_text *out, const char *key, const char *text) { apr_json_string(out, key, text, strlen(text)); }

void apr_config_put_positive(apr_json_text *out, const char *key, double value)
{
    if (value > 0) apr_json_real(out, key, value);
}
