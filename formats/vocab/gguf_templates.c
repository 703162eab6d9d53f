/* gguf_templates.c - writes named chat templates: tokenizer.chat_template.NAME, and the list of the names. */
#include "formats/base/json.h"
#include "formats/files/checkpoint_names.h"
#include "formats/tensor/metadata.h"
#include "formats/vocab/gguf_vocab.h"

#include <string.h>

enum { MAX_TEMPLATES = 64 };

typedef struct listing {
    apr_kv_list *kv;
    apr_error *err;
    apr_str names[MAX_TEMPLATES];
    size_t n;
} listing;

/* Characters other than letters, digits and "_" become "_". The default template has another key. Of equal names the first is kept. */
static apr_status put_template(listing *l, const char *name, size_t n_name, const char *text, size_t n_text)
{
    const bool is_usual = n_name == 7 && memcmp(name, "default", 7) == 0;
    char *const key = apr_arena_print(l->kv->arena, APR_TEMPLATE_KEY "%.*s", (int)n_name, name);

    if (key == NULL) return apr_no_memory(l->err, "a chat template");
    for (char *c = key + strlen(APR_TEMPLATE_KEY); *c != '\0'; c++) {
        const bool is_plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') || *c == '_';
        if (!is_plain) *c = '_';
    }
    if (is_usual || n_name == 0 || l->n == MAX_TEMPLATES || apr_kv_find(l->kv, key) != NULL) return APR_OK;
    const char *const copy = apr_arena_copy(l->kv->arena, text, n_text);
    if (copy == NULL) return apr_no_memory(l->err, "a chat template");
    l->names[l->n++] = apr_str_of(key + strlen(APR_TEMPLATE_KEY));
    return apr_kv_set_string(l->kv, key, (apr_str){copy, n_text}, l->err);
}

/* "chat_template": [{"name": "default", "template": "..."}, ...] */
static apr_status put_list(listing *l, const apr_attachment *file)
{
    cJSON *json = NULL;
    const cJSON *item;
    apr_status status = apr_json_parse(&json, file->data, file->n_bytes, file->name, l->err);

    if (status == APR_OK && cJSON_IsArray(apr_json_get(json, "chat_template")))
        cJSON_ArrayForEach(item, apr_json_get(json, "chat_template"))
        {
            const char *const name = apr_json_get_string(item, "name"), *const text = apr_json_get_string(item, "template");
            if (status == APR_OK && name != NULL && text != NULL) status = put_template(l, name, strlen(name), text, strlen(text));
        }
    cJSON_Delete(json);
    return status;
}

apr_status apr_gguf_put_templates(const apr_model *layout, apr_kv_list *kv, apr_error *err)
{
    const apr_attachment *const config = apr_model_attachment(layout, "tokenizer_config.json");
    listing l = {.kv = kv, .err = err};

    for (size_t i = 0; i < layout->n_attachments; i++) {
        const apr_attachment *const file = &layout->attachments[i];
        size_t n_name = 0;
        const char *const name = apr_template_name(file->name, &n_name);
        const apr_str text = {(const char *)file->data, file->n_bytes};
        if (name != NULL && apr_str_is_utf8(text)) APR_TRY(put_template(&l, name, n_name, text.text, text.n_bytes));
    }
    if (config != NULL) APR_TRY(put_list(&l, config));
    if (l.n == 0) return APR_OK;
    apr_str *const names = apr_arena_array(kv->arena, l.n, sizeof *names);
    if (names == NULL) return apr_no_memory(err, "the names of chat templates");
    memcpy(names, l.names, l.n * sizeof *names);
    const apr_kv item = {.key = apr_str_of("tokenizer.chat_templates"),
                         .type = APR_KV_ARRAY,
                         .elem_type = APR_KV_STRING,
                         .n_elems = l.n,
                         .value.strings = names};
    return apr_kv_set(kv, &item, err);
}
