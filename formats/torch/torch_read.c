/* torch_read.c - converts the saved dict of names and tensors to tensors of a model; decodes no weights. */
#include "formats/torch/torch.h"

#include "formats/tensor/composed.h"
#include "formats/torch/torch_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef apr_pickle_node node;

typedef struct reading {
    apr_model *model;
    const apr_torch_file *file;
    const char *where;
    apr_error *err;
} reading;

/* --- finding the weights --- */

/* The call that rebuilds a tensor, or NULL. A parameter is a call with such a tensor as its first argument. */
static const node *tensor_in(const node *value)
{
    if (value->kind != APR_PICKLE_CALL) return NULL;
    if (strncmp(value->text.text, "torch._utils _rebuild_tensor", 28) == 0) return value;
    const node *const inside = value->n_items > 0 ? value->items[0] : NULL;
    return inside != NULL && inside->kind == APR_PICKLE_CALL && strncmp(inside->text.text, "torch._utils _rebuild_tensor", 28) == 0 ? inside
                                                                                                                                    : NULL;
}

static bool has_tensors(const node *dict)
{
    for (size_t i = 1; dict->kind == APR_PICKLE_DICT && i < dict->n_items; i += 2)
        if (tensor_in(dict->items[i]) != NULL) return true;
    return false;
}

/* The dict itself, or the nested dict under one of the names that trainers use. */
static const node *find_weights(const node *root)
{
    static const char *const names[] = {"state_dict", "model_state_dict", "model", "module", "net", "params"};

    if (has_tensors(root) || root->kind != APR_PICKLE_DICT) return root;
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        for (size_t i = 0; i + 1 < root->n_items; i += 2)
            if (apr_pickle_is_text(root->items[i], names[n]) && has_tensors(root->items[i + 1])) return root->items[i + 1];
    return root;
}

/* --- one tensor --- */

static apr_status damaged(const reading *r, const apr_tensor *t, const char *what)
{
    return apr_fail(r->err, APR_E_DAMAGED, "%s: tensor '%s' %s", r->where, t->name, what);
}

static apr_status read_numbers(const reading *r, const apr_tensor *t, const node *list, int64_t *numbers, int *n)
{
    if (list->kind != APR_PICKLE_LIST) return damaged(r, t, "has no list of sizes");
    if (list->n_items > APR_MAX_RANK)
        return apr_fail(r->err, APR_E_UNSUPPORTED, "%s: tensor '%s' has more than %d dimensions", r->where, t->name, APR_MAX_RANK);
    *n = (int)list->n_items;
    for (int i = 0; i < *n; i++) {
        if (list->items[i]->kind != APR_PICKLE_INT || list->items[i]->integer < 0) return damaged(r, t, "has an invalid size");
        numbers[i] = list->items[i]->integer;
    }
    return APR_OK;
}

/* Are the elements contiguous in row-major order? The stride of an axis of length 1 does not matter. */
static bool is_contiguous(const apr_tensor *t, const int64_t *strides)
{
    int64_t expected = 1;
    for (int i = t->rank; i-- > 0;) {
        if (t->dims[i] == 0) return true;
        if (t->dims[i] != 1 && strides[i] != expected) return false;
        if (__builtin_mul_overflow(expected, t->dims[i], &expected)) return false;
    }
    return true;
}

static void swap_last_two(int64_t *numbers, int rank)
{
    const int64_t last = numbers[rank - 1];
    numbers[rank - 1] = numbers[rank - 2];
    numbers[rank - 2] = last;
}

/* Makes a composed tensor: the stored matrix with a transpose step. */
static apr_status transpose_last_axes(const reading *r, apr_tensor *t)
{
    const apr_chain chain = apr_chain_of((apr_step){.kind = APR_STEP_TRANSPOSE});
    apr_tensor *const stored = apr_arena_alloc(&r->model->arena, sizeof *stored);
    const apr_tensor *const parts[] = {stored};

    if (stored == NULL) return apr_no_memory(r->err, "a tensor");
    *stored = *t;
    return apr_tensor_compose(t, parts, 1, &chain, &r->model->arena, r->where, r->err);
}

static apr_status refuse_strides(const reading *r, const apr_tensor *t, const int64_t *strides)
{
    apr_tensor seen = {.rank = t->rank};
    char dims[128], steps[128];

    memcpy(seen.dims, strides, sizeof seen.dims);
    return apr_fail(r->err, APR_E_UNSUPPORTED,
                    "%s: tensor '%s' %s has strides %s, which are not contiguous; load it with torch and save .contiguous() "
                    "copies",
                    r->where, t->name, apr_dims_text(t, dims, sizeof dims), apr_dims_text(&seen, steps, sizeof steps));
}

/* Sets size and data; name and dims are set, and the elements are contiguous from `offset` on in the storage. */
static apr_status set_data(const reading *r, apr_tensor *t, const apr_torch_storage *storage, int64_t offset)
{
    const uint64_t elem_bytes = (uint64_t)apr_dtypes[t->dtype].bytes_per_block;
    const uint64_t n_storage = storage->dtype == APR_DTYPE_COUNT ? (uint64_t)storage->n_elems / elem_bytes : (uint64_t)storage->n_elems;

    APR_TRY(apr_tensor_size(t, r->where, r->err));
    if ((uint64_t)offset > n_storage || t->n_bytes / elem_bytes > n_storage - (uint64_t)offset)
        return damaged(r, t, "extends past the end of its storage");
    t->data = t->n_bytes > 0 ? storage->data + (uint64_t)offset * elem_bytes : NULL;
    return APR_OK;
}

/* Does an argument mark a conjugated or negated view? */
static bool is_marked_view(const node *call, size_t at)
{
    return call->n_items > at && call->items[at]->kind != APR_PICKLE_NONE &&
           (call->items[at]->kind != APR_PICKLE_DICT || call->items[at]->n_items > 0);
}

/* The arguments are: storage, offset, dims, strides, requires_grad, hooks, and for _v3 the type. */
static apr_status read_tensor(const reading *r, const node *call, apr_tensor *t)
{
    const bool states_type = apr_str_is(call->text, "torch._utils _rebuild_tensor_v3");
    const node *const *const a = call->items;
    const apr_torch_storage *storage;
    int64_t strides[APR_MAX_RANK] = {0};
    int n_strides;

    if (call->n_items < (states_type ? 7 : 4) || a[0]->kind != APR_PICKLE_PERSISTENT || a[1]->kind != APR_PICKLE_INT || a[1]->integer < 0)
        return damaged(r, t, "is described in a way that torch.save does not");
    APR_TRY(apr_torch_storage_of(r->file, a[0], &storage, r->where, r->err));
    t->dtype = states_type && a[6]->kind == APR_PICKLE_GLOBAL ? apr_torch_dtype(a[6]->text) : storage->dtype;
    if (t->dtype == APR_DTYPE_COUNT || (storage->dtype != APR_DTYPE_COUNT && t->dtype != storage->dtype))
        return damaged(r, t, "has no type, or a type different from its storage");
    APR_TRY(read_numbers(r, t, a[2], t->dims, &t->rank));
    APR_TRY(read_numbers(r, t, a[3], strides, &n_strides));
    if (n_strides != t->rank) return damaged(r, t, "has a different number of strides and sizes");
    if (is_marked_view(call, states_type ? 7 : 6))
        return apr_fail(r->err, APR_E_UNSUPPORTED, "%s: tensor '%s' is a conjugated or negated view", r->where, t->name);
    if (is_contiguous(t, strides)) return set_data(r, t, storage, a[1]->integer);
    if (t->rank < 2) return refuse_strides(r, t, strides);
    swap_last_two(t->dims, t->rank);
    swap_last_two(strides, t->rank);
    const bool is_transposed = is_contiguous(t, strides);
    if (is_transposed) APR_TRY(set_data(r, t, storage, a[1]->integer));
    if (is_transposed) return transpose_last_axes(r, t);
    swap_last_two(t->dims, t->rank);
    swap_last_two(strides, t->rank);
    return refuse_strides(r, t, strides);
}

/* --- all tensors --- */

static apr_status read_name(const reading *r, const node *key, const char **name)
{
    const bool is_name = key->kind == APR_PICKLE_TEXT && key->text.n_bytes > 0 && key->text.n_bytes < 4096 && apr_str_is_utf8(key->text) &&
                         memchr(key->text.text, '\0', key->text.n_bytes) == NULL;

    if (!is_name) return apr_fail(r->err, APR_E_DAMAGED, "%s: a tensor in it has no name, or a name that is not a text", r->where);
    *name = apr_arena_copy(&r->model->arena, key->text.text, key->text.n_bytes);
    return *name != NULL ? APR_OK : apr_no_memory(r->err, "a tensor's name");
}

/* Adds the other entries to model->not_copied: "epoch, optimizer and 3 more, of pytorch_model.bin". */
static apr_status note_other_entries(const reading *r, const node *dict, const node *weights)
{
    enum { MOST = 8 };
    const char *const slash = strrchr(r->where, '/'), *text = NULL;
    size_t n = 0;

    for (size_t i = 0; i + 1 < dict->n_items; i += 2) {
        const node *const key = dict->items[i];
        if (dict->items[i + 1] == weights || tensor_in(dict->items[i + 1]) != NULL || n++ >= MOST) continue;
        const bool is_text = key->kind == APR_PICKLE_TEXT && apr_str_is_utf8(key->text);
        const int n_shown = !is_text ? 0 : key->text.n_bytes < 80 ? (int)key->text.n_bytes : 80;
        text = apr_arena_print(&r->model->arena, "%s%s%.*s", text != NULL ? text : "", text != NULL ? ", " : "", is_text ? n_shown : 1,
                               is_text ? key->text.text : "?");
        if (text == NULL) return apr_no_memory(r->err, "the list of other entries");
    }
    if (text == NULL) return APR_OK;
    char more[40] = "";
    if (n > MOST) snprintf(more, sizeof more, " and %zu more", n - MOST);
    const char *const before = r->model->not_copied;
    r->model->not_copied = apr_arena_print(&r->model->arena, "%s%s%s%s of %s", before != NULL ? before : "", before != NULL ? ", " : "",
                                            text, more, slash != NULL ? slash + 1 : r->where);
    return r->model->not_copied != NULL ? APR_OK : apr_no_memory(r->err, "the list of other entries");
}

static apr_status read_dict(const reading *r, const node *root)
{
    const node *const weights = find_weights(root);
    apr_model *const model = r->model;

    if (!has_tensors(weights))
        return apr_fail(r->err, APR_E_UNSUPPORTED,
                        "%s: holds no dict of names and tensors, neither at the top nor as \"state_dict\" or \"model\"", r->where);
    APR_TRY(apr_model_grow(model, weights->n_items / 2, r->err));
    for (size_t i = 0; i + 1 < weights->n_items; i += 2) {
        const node *const call = tensor_in(weights->items[i + 1]);
        apr_tensor *const t = &model->tensors[model->n_tensors];
        if (call == NULL) continue;
        *t = (apr_tensor){0};
        APR_TRY(read_name(r, weights->items[i], &t->name));
        APR_TRY(read_tensor(r, call, t));
        model->n_tensors++;
    }
    APR_TRY(note_other_entries(r, weights, NULL));
    return weights != root ? note_other_entries(r, root, weights) : APR_OK;
}

/* Loaders require this key in a checkpoint's metadata before they accept PyTorch tensors. */
static apr_status set_format_key(apr_model *model, apr_error *err)
{
    const apr_kv format = {.key = apr_str_of("format"), .type = APR_KV_STRING, .value.string = apr_str_of("pt")};

    model->kv.arena = &model->arena;
    return apr_kv_set(&model->kv, &format, err);
}

apr_status apr_torch_parse(apr_model *model, const uint8_t *data, size_t n_bytes, const char *where, apr_error *err)
{
    apr_torch_file file;

    APR_TRY(set_format_key(model, err));
    APR_TRY(apr_torch_file_read(&file, data, n_bytes, where, &model->arena, err));
    return read_dict(&(reading){model, &file, where, err}, file.root);
}
