/* metadata.c - the table of names that both formats know. */
#include "formats/tensor/metadata.h"

#include <string.h>

/* "general.NAME" is a string in GGUF. */
static const char *const general_names[] = {"author", "version",      "organization", "description", "license",
                                            "url",    "quantized_by", "doi",          "uuid",        "repo_url"};

apr_status apr_metadata_gguf_key(const apr_kv *item, apr_arena *arena, const char **key, apr_error *err)
{
    *key = NULL;
    if (item->type != APR_KV_STRING || apr_str_is(item->key, "format")) return APR_OK;
    if (apr_kv_is_about(item) || apr_metadata_own_name(item) != NULL) {
        *key = item->key.text;
        return APR_OK;
    }
    const char *head = APR_METADATA_PREFIX;
    for (size_t i = 0; i < sizeof general_names / sizeof *general_names; i++)
        if (apr_str_is(item->key, general_names[i])) head = "general.";
    *key = apr_arena_print(arena, "%s%.*s", head, (int)item->key.n_bytes, item->key.text);
    return *key != NULL ? APR_OK : apr_no_memory(err, "a key of the metadata");
}

/* The part of a string item's key that follows the prefix `head`; NULL: it has another prefix. */
static const char *after_prefix(const apr_kv *item, const char *head)
{
    const size_t n = strlen(head);
    const bool has_head = item->type == APR_KV_STRING && item->key.n_bytes > n && memcmp(item->key.text, head, n) == 0;
    return has_head ? item->key.text + n : NULL;
}

const char *apr_metadata_own_name(const apr_kv *item) { return after_prefix(item, APR_METADATA_PREFIX); }
const char *apr_named_template(const apr_kv *item) { return after_prefix(item, APR_TEMPLATE_KEY); }
