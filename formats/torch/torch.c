/* torch.c - finds the pickle and the storages in both layouts of torch.save, and makes tensors of the saved dict; decodes no weights. */
#include "formats/torch/torch.h"

#include "formats/base/text.h"
#include "formats/number/dtype.h"
#include "formats/tensor/composed.h"
#include "formats/torch/pickle.h"
#include "formats/torch/zip.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct torch_storage {
    apr_str key;     /* "0", or an address of the process that saved it */
    apr_dtype dtype; /* APR_DTYPE_COUNT: bytes without a type */
    int64_t n_elems; /* bytes, if there is no type */
    const uint8_t *data;
} torch_storage;

typedef struct torch_file {
    const apr_pickle_node *root;
    torch_storage *storages; /* [n_storages] sorted by key, no duplicates; checked to be inside the file */
    size_t n_storages;
} torch_file;

static const uint8_t MAGIC[] = {0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, '.'};

bool apr_is_torch_start(const uint8_t *head, size_t n)
{
    if (n >= 4 && memcmp(head, "PK\3\4", 4) == 0) return true;
    return n >= 3 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5;
}

/* --- names that a pickle of weights may use and call --- */

static const struct {
    const char *storage, *dtype; /* names in the module torch; NULL: none */
    apr_dtype is;
} types[] = {
    {"FloatStorage", "float32", APR_F32},
    {"HalfStorage", "float16", APR_F16},
    {"BFloat16Storage", "bfloat16", APR_BF16},
    {"DoubleStorage", "float64", APR_F64},
    {"CharStorage", "int8", APR_I8},
    {"ShortStorage", "int16", APR_I16},
    {"IntStorage", "int32", APR_I32},
    {"LongStorage", "int64", APR_I64},
    {"ByteStorage", "uint8", APR_U8},
    {NULL, "uint16", APR_U16},
    {NULL, "uint32", APR_U32},
    {NULL, "uint64", APR_U64},
    {"BoolStorage", "bool", APR_BOOL},
    {"ComplexFloatStorage", "complex64", APR_C64},
    {NULL, "float8_e4m3fn", APR_F8_E4M3},
    {NULL, "float8_e5m2", APR_F8_E5M2},
    {NULL, "float8_e8m0fnu", APR_E8M0},
    {"UntypedStorage", NULL, APR_DTYPE_COUNT},
};
enum { N_TYPES = sizeof types / sizeof *types };

/* The name without its module; empty if it is of another module. */
static apr_str in_module(apr_str name, const char *module)
{
    const size_t n = strlen(module);
    if (name.n_bytes <= n || memcmp(name.text, module, n) != 0) return (apr_str){"", 0};
    return (apr_str){name.text + n, name.n_bytes - n};
}

static bool storage_type(apr_str name, apr_dtype *dtype)
{
    static const char *const modules[] = {"torch ", "torch.cuda ", "torch.storage "};

    for (size_t m = 0; m < sizeof modules / sizeof *modules; m++)
        for (size_t i = 0; i < N_TYPES; i++)
            if (types[i].storage != NULL && apr_str_is(in_module(name, modules[m]), types[i].storage)) return *dtype = types[i].is, true;
    return false;
}

/* The dtype for a type's name in a pickle ("torch float8_e4m3fn"); APR_DTYPE_COUNT: not a type, or not supported. */
static apr_dtype dtype_of(apr_str name)
{
    for (size_t i = 0; i < N_TYPES; i++)
        if (types[i].dtype != NULL && apr_str_is(in_module(name, "torch "), types[i].dtype)) return types[i].is;
    return APR_DTYPE_COUNT;
}

static bool may_call(apr_str name)
{
    static const char *const functions[] = {"_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_parameter",
                                            "_rebuild_parameter_with_state"};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (apr_str_is(in_module(name, "torch._utils "), functions[i])) return true;
    return false;
}

static bool may_name(apr_str name)
{
    apr_dtype dtype;
    return may_call(name) || dtype_of(name) != APR_DTYPE_COUNT || storage_type(name, &dtype);
}

static const apr_pickle_rules weights_only = {may_name, may_call};

/* --- storages --- */

static uint64_t elem_bytes(apr_dtype dtype) { return dtype == APR_DTYPE_COUNT ? 1 : (uint64_t)apr_dtypes[dtype].bytes_per_block; }

/* Parses ("storage", type, key, device, number of elements); before 1.6 a sixth item tells which part of another storage it is. */
static apr_status describe(const apr_pickle_node *stored, torch_storage *s, const char *where, apr_error *err)
{
    const apr_pickle_node *const d = stored->items[0], *const *const f = d->items;
    uint64_t n_bytes;

    *s = (torch_storage){0};
    if (d->kind != APR_PICKLE_LIST || d->n_items < 5 || !apr_pickle_is_text(f[0], "storage") || f[1]->kind != APR_PICKLE_GLOBAL ||
        f[2]->kind != APR_PICKLE_TEXT || f[4]->kind != APR_PICKLE_INT || !storage_type(f[1]->text, &s->dtype))
        return apr_fail(err, APR_E_DAMAGED, "%s: its pickle describes a storage in a way that torch.save does not", where);
    if (d->n_items > 5 && f[5]->kind != APR_PICKLE_NONE)
        return apr_fail(err, APR_E_UNSUPPORTED, "%s: a storage in it is a part of another one; load it with torch and save it again",
                        where);
    s->key = f[2]->text;
    s->n_elems = f[4]->integer;
    if (s->n_elems < 0 || __builtin_mul_overflow((uint64_t)s->n_elems, elem_bytes(s->dtype), &n_bytes))
        return apr_fail(err, APR_E_DAMAGED, "%s: a storage in it has %" PRId64 " elements", where, s->n_elems);
    return APR_OK;
}

static int by_key(const void *a, const void *b)
{
    const apr_str x = ((const torch_storage *)a)->key, y = ((const torch_storage *)b)->key;
    const int order = memcmp(x.text, y.text, x.n_bytes < y.n_bytes ? x.n_bytes : y.n_bytes);
    return order != 0 ? order : x.n_bytes < y.n_bytes ? -1 : x.n_bytes > y.n_bytes;
}

static torch_storage *find_storage(const torch_file *file, apr_str key)
{
    const torch_storage wanted = {.key = key};
    return file->n_storages > 0 ? bsearch(&wanted, file->storages, file->n_storages, sizeof wanted, by_key) : NULL;
}

/* Lists every storage that the pickle mentions, once, sorted by key. */
static apr_status list_storages(torch_file *file, const apr_pickle *p, const char *where, apr_arena *arena, apr_error *err)
{
    torch_storage *const all = apr_arena_array(arena, p->n_stored + 1, sizeof *all);
    size_t n = 0;

    if (all == NULL) return apr_no_memory(err, "the storages of a file");
    for (size_t i = 0; i < p->n_stored; i++) APR_TRY(describe(p->stored[i], &all[i], where, err));
    if (p->n_stored > 0) qsort(all, p->n_stored, sizeof *all, by_key);
    for (size_t i = 0; i < p->n_stored; i++) {
        if (n == 0 || by_key(&all[n - 1], &all[i]) != 0) all[n++] = all[i];
        else if (all[n - 1].dtype != all[i].dtype || all[n - 1].n_elems != all[i].n_elems)
            return apr_fail(err, APR_E_DAMAGED, "%s: the storage '%.*s' in it has two sizes or types", where,
                            (int)(all[i].key.n_bytes < 40 ? all[i].key.n_bytes : 40), all[i].key.text);
    }
    file->storages = all;
    file->n_storages = n;
    return APR_OK;
}

/* The storage of a node of kind APR_PICKLE_PERSISTENT. */
static apr_status storage_of(const torch_file *file, const apr_pickle_node *stored, const torch_storage **storage, const char *where,
                             apr_error *err)
{
    torch_storage described;
    APR_TRY(describe(stored, &described, where, err));
    *storage = find_storage(file, described.key);
    return *storage != NULL ? APR_OK : apr_fail(err, APR_E_DAMAGED, "%s: a storage in it is missing", where);
}

static apr_status wrong_size(const torch_storage *s, uint64_t n_bytes, const char *where, apr_error *err)
{
    return apr_fail(err, APR_E_DAMAGED,
                    "%s: the storage '%.*s' in it should have %" PRId64 " elements of %" PRIu64 " bytes, but has %" PRIu64 " bytes", where,
                    (int)(s->key.n_bytes < 40 ? s->key.n_bytes : 40), s->key.text, s->n_elems, elem_bytes(s->dtype), n_bytes);
}

/* --- since 1.6 --- */

/* The prefix "NAME/" of "NAME/data.pkl"; an archive must have exactly one such name. */
static apr_status find_prefix(const apr_zip *zip, apr_str *prefix, const char *where, apr_error *err)
{
    static const char pickle[] = "/data.pkl";
    const size_t n = sizeof pickle - 1;
    size_t n_found = 0;

    for (size_t i = 0; i < zip->n; i++) {
        const apr_zip_member *const m = &zip->members[i];
        if (m->n_name < n || memcmp(m->name + m->n_name - n, pickle, n) != 0) continue;
        *prefix = (apr_str){m->name, m->n_name - n + 1};
        n_found++;
    }
    if (n_found == 1) return APR_OK;
    return apr_fail(err, APR_E_DAMAGED, "%s: a zip archive with %zu files called data.pkl; torch.save writes exactly one", where, n_found);
}

static const apr_zip_member *find_file(const apr_zip *zip, apr_str prefix, const char *name)
{
    return apr_zip_find(zip, prefix.text, prefix.n_bytes, name, strlen(name));
}

static apr_status check_archive(const apr_zip *zip, apr_str prefix, const char *where, apr_error *err)
{
    const apr_zip_member *const order = find_file(zip, prefix, "byteorder");

    if (find_file(zip, prefix, "constants.pkl") != NULL)
        return apr_fail(err, APR_E_UNSUPPORTED, "%s: is a TorchScript program, not a file of weights; nothing is executed", where);
    if (order != NULL && (order->n_bytes != 6 || memcmp(order->data, "little", 6) != 0))
        return apr_fail(err, APR_E_UNSUPPORTED,
                        "%s: was saved on a machine with the other byte order; load it with torch and save it again", where);
    return APR_OK;
}

static apr_status read_archive(torch_file *file, const uint8_t *data, size_t n_bytes, const char *where, apr_arena *arena, apr_error *err)
{
    apr_zip zip;
    apr_str prefix = {"", 0};
    apr_pickle pickle;

    APR_TRY(apr_zip_read(&zip, data, n_bytes, where, arena, err));
    APR_TRY(find_prefix(&zip, &prefix, where, err));
    APR_TRY(check_archive(&zip, prefix, where, err));
    const apr_zip_member *const program = find_file(&zip, prefix, "data.pkl");
    apr_cursor in = {.data = program->data, .n_bytes = (size_t)program->n_bytes};
    APR_TRY(apr_pickle_read(&pickle, &in, &weights_only, where, arena, err));
    APR_TRY(list_storages(file, &pickle, where, arena, err));
    file->root = pickle.root;
    char *const folder = apr_arena_alloc(arena, prefix.n_bytes + 6);
    if (folder == NULL) return apr_no_memory(err, "a name");
    memcpy(folder, prefix.text, prefix.n_bytes);
    memcpy(folder + prefix.n_bytes, "data/", 5);
    for (size_t i = 0; i < file->n_storages; i++) {
        torch_storage *const s = &file->storages[i];
        const apr_zip_member *const m = apr_zip_find(&zip, folder, prefix.n_bytes + 5, s->key.text, s->key.n_bytes);
        if (m == NULL || m->n_bytes != (uint64_t)s->n_elems * elem_bytes(s->dtype))
            return wrong_size(s, m != NULL ? m->n_bytes : 0, where, err);
        s->data = m->data;
    }
    return APR_OK;
}

/* --- before 1.6 --- */

static apr_status check_machine(const apr_pickle_node *machine, const char *where, apr_error *err)
{
    for (size_t i = 0; machine->kind == APR_PICKLE_DICT && i + 1 < machine->n_items; i += 2)
        if (apr_pickle_is_text(machine->items[i], "little_endian") && machine->items[i + 1]->kind == APR_PICKLE_BOOL)
            return machine->items[i + 1]->integer != 0
                       ? APR_OK
                       : apr_fail(err, APR_E_UNSUPPORTED,
                                  "%s: was saved on a machine with the other byte order; load it with torch and save it again", where);
    return apr_fail(err, APR_E_DAMAGED, "%s: does not state its byte order", where);
}

/* The storages are after the pickles, in the order of the keys. */
static apr_status place_storages(torch_file *file, const apr_pickle_node *keys, apr_cursor *in, const char *where, apr_error *err)
{
    if (keys->kind != APR_PICKLE_LIST) return apr_fail(err, APR_E_DAMAGED, "%s: has no list of its storages", where);
    for (size_t i = 0; i < keys->n_items; i++) {
        torch_storage *const s = keys->items[i]->kind == APR_PICKLE_TEXT ? find_storage(file, keys->items[i]->text) : NULL;
        if (s == NULL || s->data != NULL) return apr_fail(err, APR_E_DAMAGED, "%s: its list of storages does not match its tensors", where);
        const uint64_t n_stated = apr_cursor_u64(in), n_left = apr_cursor_left(in);
        s->data = apr_cursor_take(in, (uint64_t)s->n_elems * elem_bytes(s->dtype));
        if (s->data == NULL || n_stated != (uint64_t)s->n_elems) return wrong_size(s, n_left, where, err);
    }
    for (size_t i = 0; i < file->n_storages; i++)
        if (file->storages[i].data == NULL) return wrong_size(&file->storages[i], 0, where, err);
    return APR_OK;
}

static apr_status read_pickles(torch_file *file, const uint8_t *data, size_t n_bytes, const char *where, apr_arena *arena, apr_error *err)
{
    apr_cursor in = {.data = data, .n_bytes = n_bytes, .at = sizeof MAGIC};
    apr_pickle version, machine, saved, keys;

    if (n_bytes < sizeof MAGIC || memcmp(data, MAGIC, sizeof MAGIC) != 0) {
        in.at = 0; /* another program's pickle: parse it to report what it asks for */
        APR_TRY(apr_pickle_read(&saved, &in, &weights_only, where, arena, err));
        return apr_fail(err, APR_E_UNSUPPORTED, "%s: is a pickle, but not one of torch.save", where);
    }
    APR_TRY(apr_pickle_read(&version, &in, &weights_only, where, arena, err));
    APR_TRY(apr_pickle_read(&machine, &in, &weights_only, where, arena, err));
    APR_TRY(check_machine(machine.root, where, err));
    APR_TRY(apr_pickle_read(&saved, &in, &weights_only, where, arena, err));
    APR_TRY(apr_pickle_read(&keys, &in, &weights_only, where, arena, err));
    APR_TRY(list_storages(file, &saved, where, arena, err));
    file->root = saved.root;
    return place_storages(file, keys.root, &in, where, err);
}

/* `data` is borrowed; tables live in the arena. */
static apr_status read_file(torch_file *file, const uint8_t *data, size_t n_bytes, const char *where, apr_arena *arena, apr_error *err)
{
    *file = (torch_file){0};
    if (n_bytes >= 2 && data[0] == 'P') return read_archive(file, data, n_bytes, where, arena, err);
    return read_pickles(file, data, n_bytes, where, arena, err);
}

/* --- tensors of the saved dict --- */

typedef apr_pickle_node node;

typedef struct reading {
    apr_model *model;
    const torch_file *file;
    const char *where;
    apr_error *err;
} reading;

/* --- finding the weights --- */

/* The call that rebuilds a tensor, or NULL. A parameter is a call with such a tensor as its first argument. */
static const node *tensor_in(const node *value)
{
    if (value->kind != APR_PICKLE_CALL) return NULL;
    if (apr_begins_with(value->text.text, "torch._utils _rebuild_tensor")) return value;
    const node *const inside = value->n_items > 0 ? value->items[0] : NULL;
    return inside != NULL && inside->kind == APR_PICKLE_CALL && apr_begins_with(inside->text.text, "torch._utils _rebuild_tensor") ? inside
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
static apr_status set_data(const reading *r, apr_tensor *t, const torch_storage *storage, int64_t offset)
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
    const torch_storage *storage;
    int64_t strides[APR_MAX_RANK] = {0};
    int n_strides;

    if (call->n_items < (states_type ? 7 : 4) || a[0]->kind != APR_PICKLE_PERSISTENT || a[1]->kind != APR_PICKLE_INT || a[1]->integer < 0)
        return damaged(r, t, "is described in a way that torch.save does not");
    APR_TRY(storage_of(r->file, a[0], &storage, r->where, r->err));
    t->dtype = states_type && a[6]->kind == APR_PICKLE_GLOBAL ? dtype_of(a[6]->text) : storage->dtype;
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
    torch_file file;

    APR_TRY(set_format_key(model, err));
    APR_TRY(read_file(&file, data, n_bytes, where, &model->arena, err));
    return read_dict(&(reading){model, &file, where, err}, file.root);
}
