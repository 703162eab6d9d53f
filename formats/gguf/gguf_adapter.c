/* gguf_adapter.c - reads LoRA adapters in llama.cpp's GGUF form: pairs of tensors X.lora_a [rank, in] and X.lora_b [out, rank], where X is
 * ggml's name of the weight. For the embedding lora_a is [tokens, rank] and lora_b [width, rank]. */
#include "formats/base/text.h"
#include "formats/gguf/gguf.h"

#include <stdlib.h>
#include <string.h>

static const char suffix_a[] = ".lora_a", suffix_b[] = ".lora_b";
enum { SUFFIX = sizeof suffix_a - 1 };

static apr_status refuse(const apr_adapter *adapter, apr_status status, const char *tensor, const char *what, apr_error *err)
{
    return apr_fail(err, status, "%s: the adapter's tensor '%s' %s", adapter->path, tensor, what);
}

static bool is_matrix(const apr_tensor *t) { return t->rank == 2 && t->dims[0] > 0 && t->dims[1] > 0; }

/* Reads the pair whose lora_a is `a`. */
static apr_status read_pair(apr_adapter *adapter, const apr_tensor *a, apr_adapter_change *change, apr_error *err)
{
    apr_arena *const arena = &adapter->files.arena;
    const char *const name = apr_arena_copy(arena, a->name, strlen(a->name) - SUFFIX), *const other = name != NULL
                                                                                                          ? apr_arena_print(arena, "%s%s",
                                                                                                                            name, suffix_b)
                                                                                                          : NULL;
    const apr_tensor *const b = other != NULL ? apr_model_find(&adapter->files, other) : NULL;

    if (other == NULL) return apr_no_memory(err, "the names of an adapter");
    if (b == NULL) return refuse(adapter, APR_E_DAMAGED, a->name, "has no lora_b", err);
    if (a->rank > 2 || b->rank > 2)
        return refuse(adapter, APR_E_UNSUPPORTED, a->name, "is a stack of experts, which cannot be merged", err);
    if (!is_matrix(a) || !is_matrix(b)) return refuse(adapter, APR_E_DAMAGED, a->name, "and its lora_b are not two matrices", err);
    if (!apr_dtype_is_weights(a->dtype) || !apr_dtype_is_weights(b->dtype))
        return refuse(adapter, APR_E_UNSUPPORTED, a->name, "or its lora_b does not hold floats", err);
    const bool is_embedding = strcmp(name, "token_embd.weight") == 0;
    const int64_t rank = is_embedding ? a->dims[1] : a->dims[0];
    if (b->dims[1] != rank) return refuse(adapter, APR_E_DAMAGED, a->name, "and its lora_b have different ranks", err);
    change->name = name;
    change->a = is_embedding ? b : a;
    change->b = is_embedding ? a : b;
    change->scale = change->alpha != 0.0 ? change->alpha / (double)rank : 1.0; /* as in llama.cpp */
    return is_embedding ? apr_adapter_transpose(adapter, &change->a, err) : APR_OK;
}

static apr_status read_pairs(apr_adapter *adapter, double alpha, apr_error *err)
{
    const apr_model *const files = &adapter->files;

    adapter->changes = apr_arena_array(&adapter->files.arena, files->n_tensors + 1, sizeof *adapter->changes);
    if (adapter->changes == NULL) return apr_no_memory(err, "the tensors of an adapter");
    for (size_t i = 0; i < files->n_tensors; i++) {
        const apr_tensor *const t = &files->tensors[i];
        if (apr_stem_of(t->name, suffix_b) > 0) {
            const char *const other = apr_arena_print(&adapter->files.arena, "%.*s%s", (int)(strlen(t->name) - SUFFIX), t->name, suffix_a);
            if (other == NULL) return apr_no_memory(err, "the names of an adapter");
            if (apr_model_find(files, other) == NULL) return refuse(adapter, APR_E_DAMAGED, t->name, "has no lora_a", err);
            continue;
        }
        if (apr_stem_of(t->name, suffix_a) == 0)
            return refuse(adapter, APR_E_UNSUPPORTED, t->name, "is neither a lora_a nor a lora_b", err);
        adapter->changes[adapter->n_changes] = (apr_adapter_change){.alpha = alpha};
        APR_TRY(read_pair(adapter, t, &adapter->changes[adapter->n_changes++], err));
    }
    return adapter->n_changes > 0 ? APR_OK : apr_fail(err, APR_E_DAMAGED, "%s: the adapter has no tensors", adapter->path);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const apr_adapter_change *)a)->name, ((const apr_adapter_change *)b)->name);
}

static apr_status read_adapter(apr_adapter *adapter, apr_error *err)
{
    const apr_kv_list *const kv = &adapter->files.kv;
    apr_str type, kind, base;
    double alpha = 0.0;

    if (!apr_kv_get_string(kv, "general.type", &type) || !apr_str_is(type, "adapter"))
        return apr_fail(err, APR_E_USAGE, "%s is a model, not an adapter", adapter->path);
    if (!apr_kv_get_string(kv, "adapter.type", &kind) || !apr_str_is(kind, "lora"))
        return apr_fail(err, APR_E_UNSUPPORTED, "%s: adapter.type is not 'lora'; only LoRA adapters can be merged", adapter->path);
    if (apr_kv_find(kv, "adapter.alora.invocation_tokens") != NULL)
        return apr_fail(err, APR_E_UNSUPPORTED, "%s: the adapter acts only after certain tokens (aLoRA), so it cannot be merged",
                        adapter->path);
    (void)apr_kv_get_real(kv, "adapter.lora.alpha", &alpha);
    if (!(alpha - alpha == 0.0)) return apr_fail(err, APR_E_DAMAGED, "%s: adapter.lora.alpha is not a finite number", adapter->path);
    if (apr_kv_get_string(kv, "general.base_model.0.name", &base) && apr_str_is_utf8(base) &&
        memchr(base.text, '\0', base.n_bytes) == NULL) {
        adapter->base = apr_arena_copy(&adapter->files.arena, base.text, base.n_bytes);
        if (adapter->base == NULL) return apr_no_memory(err, "the name of a model");
    }
    APR_TRY(read_pairs(adapter, alpha, err));
    qsort(adapter->changes, adapter->n_changes, sizeof *adapter->changes, by_name);
    return APR_OK;
}

apr_status apr_gguf_adapter_open(apr_adapter *adapter, const char *path, apr_error *err)
{
    *adapter = (apr_adapter){.naming = APR_NAMING_GGML};
    APR_TRY(apr_gguf_open(&adapter->files, path, err));
    adapter->path = adapter->files.path;
    const apr_status status = read_adapter(adapter, err);
    if (status != APR_OK) apr_adapter_close(adapter);
    return status;
}
