/* template.c - renders a chat template: converts the JSON variables, then parses and evaluates the source. */
#include "runtime/template/template.h"

#include "formats/tensor/kv.h"
#include "runtime/template/template_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Removes one newline at the end; \r\n and \r become \n. */
static apr_status normalize(apr_tpl_vm *vm, const char *source, apr_tpl_text *out)
{
    const size_t n = strlen(source);
    char *text;
    if (n > APR_TEMPLATE_MAX_BYTES)
        return apr_tpl_fail(vm, APR_E_UNSUPPORTED, "the template has %zu bytes, more than %d", n, APR_TEMPLATE_MAX_BYTES);
    if (!apr_str_is_utf8((apr_str){source, n})) return apr_tpl_fail(vm, APR_E_DAMAGED, "the template is not valid UTF-8");
    APR_TRY(apr_tpl_alloc(vm, n + 1, 1, &text));
    size_t n_bytes = 0;
    for (size_t i = 0; i < n; i++) {
        if (source[i] == '\n' && i > 0 && source[i - 1] == '\r') continue;
        text[n_bytes++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (n_bytes > 0 && text[n_bytes - 1] == '\n') n_bytes--;
    *out = (apr_tpl_text){text, n_bytes};
    return APR_OK;
}

static apr_status text_of(apr_tpl_vm *vm, const char *text, apr_tpl_value *out)
{
    if (!apr_str_is_utf8(apr_str_of(text))) return apr_tpl_fail(vm, APR_E_DAMAGED, "a variable is not valid UTF-8");
    *out = apr_tpl_string(text, strlen(text)); /* borrowed: the variables outlive the rendering */
    return APR_OK;
}

static apr_tpl_value number_of(double x)
{
    const double exact = 9007199254740992.0; /* 2^53 */
    return x == floor(x) && fabs(x) <= exact ? apr_tpl_int((int64_t)x) : apr_tpl_real(x);
}

static apr_status value_of(apr_tpl_vm *vm, const cJSON *json, apr_tpl_value *out)
{
    *out = apr_tpl_none();
    if (cJSON_IsBool(json)) *out = apr_tpl_bool(cJSON_IsTrue(json));
    if (cJSON_IsNumber(json)) *out = number_of(json->valuedouble);
    if (cJSON_IsString(json)) return text_of(vm, json->valuestring, out);
    if (!cJSON_IsArray(json) && !cJSON_IsObject(json)) return APR_OK;

    const cJSON *item;
    const bool is_dict = cJSON_IsObject(json);
    APR_TRY(apr_tpl_descend(vm));
    APR_TRY(is_dict ? apr_tpl_dict_make(vm, TPL_DICT, out) : apr_tpl_list_make(vm, TPL_LIST, 0, out));
    cJSON_ArrayForEach(item, json)
    {
        apr_tpl_value key, value;
        APR_TRY(value_of(vm, item, &value));
        if (!is_dict) {
            APR_TRY(apr_tpl_list_add(vm, out->as.list, value));
            continue;
        }
        APR_TRY(text_of(vm, item->string, &key));
        APR_TRY(apr_tpl_dict_add(vm, out->as.dict, key, value));
    }
    vm->depth--;
    return APR_OK;
}

static apr_status set_globals(apr_tpl_vm *vm, const cJSON *variables)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, variables)
    {
        apr_tpl_value key, value;
        if (item->string == NULL) return apr_tpl_fail(vm, APR_E_DAMAGED, "the variables are not a JSON object");
        if (strcmp(item->string, "strftime_now_unix") == 0) {
            if (!cJSON_IsNumber(item) || !(fabs(item->valuedouble) < 1e11)) /* the year 5138 */
                return apr_tpl_fail(vm, APR_E_DAMAGED, "the variable strftime_now_unix is not a time in seconds");
            vm->has_now = true;
            vm->now = (int64_t)floor(item->valuedouble);
            continue;
        }
        APR_TRY(text_of(vm, item->string, &key));
        APR_TRY(value_of(vm, item, &value));
        APR_TRY(apr_tpl_set_global(vm, key.as.text, value));
    }
    return APR_OK;
}

static apr_status render(apr_tpl_vm *vm, const char *source, const cJSON *variables)
{
    apr_tpl_text text;
    apr_tpl_node *root;
    APR_TRY(set_globals(vm, variables));
    APR_TRY(normalize(vm, source, &text));
    APR_TRY(apr_tpl_parse(vm, text, &root));
    APR_TRY(apr_tpl_run(vm, root));
    return apr_tpl_put(vm, "", 0); /* allocates at least the byte for the NUL */
}

apr_status apr_template_render(const char *source, const cJSON *variables, char **text, size_t *n_bytes, apr_error *err)
{
    apr_tpl_vm vm = {.err = err, .line = 1};
    *text = NULL;
    *n_bytes = 0;
    const apr_status status = render(&vm, source, variables);
    apr_arena_close(&vm.arena);
    if (status != APR_OK) {
        free(vm.out.bytes);
        return status;
    }
    vm.out.bytes[vm.out.n_bytes] = '\0';
    *text = vm.out.bytes;
    *n_bytes = vm.out.n_bytes;
    return APR_OK;
}
