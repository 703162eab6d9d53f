/* torch_file.c - finds the pickle and the storages in both layouts of torch.save; reads no tensor. */
#include "formats/torch/torch_file.h"

#include "formats/torch/torch.h"
#include "formats/torch/zip.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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

apr_dtype apr_torch_dtype(apr_str name)
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
    return may_call(name) || apr_torch_dtype(name) != APR_DTYPE_COUNT || storage_type(name, &dtype);
}

static const apr_pickle_rules weights_only = {may_name, may_call};

/* --- storages --- */

static uint64_t elem_bytes(apr_dtype dtype) { return dtype == APR_DTYPE_COUNT ? 1 : (uint64_t)apr_dtypes[dtype].bytes_per_block; }

/* Parses ("storage", type, key, device, number of elements); before 1.6 a sixth item tells which part of another storage it is. */
static apr_status describe(const apr_pickle_node *stored, apr_torch_storage *s, const char *where, apr_error *err)
{
    const apr_pickle_node *const d = stored->items[0], *const *const f = d->items;
    uint64_t n_bytes;

    *s = (apr_torch_storage){0};
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
    const apr_str x = ((const apr_torch_storage *)a)->key, y = ((const apr_torch_storage *)b)->key;
    const int order = memcmp(x.text, y.text, x.n_bytes < y.n_bytes ? x.n_bytes : y.n_bytes);
    return order != 0 ? order : x.n_bytes < y.n_bytes ? -1 : x.n_bytes > y.n_bytes;
}

static apr_torch_storage *find_storage(const apr_torch_file *file, apr_str key)
{
    const apr_torch_storage wanted = {.key = key};
    return file->n_storages > 0 ? bsearch(&wanted, file->storages, file->n_storages, sizeof wanted, by_key) : NULL;
}

/* Lists every storage that the pickle mentions, once, sorted by key. */
static apr_status list_storages(apr_torch_file *file, const apr_pickle *p, const char *where, apr_arena *arena, apr_error *err)
{
    apr_torch_storage *const all = apr_arena_array(arena, p->n_stored + 1, sizeof *all);
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

apr_status apr_torch_storage_of(const apr_torch_file *file, const apr_pickle_node *stored, const apr_torch_storage **storage,
                                const char *where, apr_error *err)
{
    apr_torch_storage described;
    APR_TRY(describe(stored, &described, where, err));
    *storage = find_storage(file, described.key);
    return *storage != NULL ? APR_OK : apr_fail(err, APR_E_DAMAGED, "%s: a storage in it is missing", where);
}

static apr_status wrong_size(const apr_torch_storage *s, uint64_t n_bytes, const char *where, apr_error *err)
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

static apr_status read_archive(apr_torch_file *file, const uint8_t *data, size_t n_bytes, const char *where, apr_arena *arena,
                               apr_error *err)
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
        apr_torch_storage *const s = &file->storages[i];
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
static apr_status place_storages(apr_torch_file *file, const apr_pickle_node *keys, apr_cursor *in, const char *where, apr_error *err)
{
    if (keys->kind != APR_PICKLE_LIST) return apr_fail(err, APR_E_DAMAGED, "%s: has no list of its storages", where);
    for (size_t i = 0; i < keys->n_items; i++) {
        apr_torch_storage *const s = keys->items[i]->kind == APR_PICKLE_TEXT ? find_storage(file, keys->items[i]->text) : NULL;
        if (s == NULL || s->data != NULL) return apr_fail(err, APR_E_DAMAGED, "%s: its list of storages does not match its tensors", where);
        const uint64_t n_stated = apr_cursor_u64(in), n_left = apr_cursor_left(in);
        s->data = apr_cursor_take(in, (uint64_t)s->n_elems * elem_bytes(s->dtype));
        if (s->data == NULL || n_stated != (uint64_t)s->n_elems) return wrong_size(s, n_left, where, err);
    }
    for (size_t i = 0; i < file->n_storages; i++)
        if (file->storages[i].data == NULL) return wrong_size(&file->storages[i], 0, where, err);
    return APR_OK;
}

static apr_status read_pickles(apr_torch_file *file, const uint8_t *data, size_t n_bytes, const char *where, apr_arena *arena,
                               apr_error *err)
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

apr_status apr_torch_file_read(apr_torch_file *file, const uint8_t *data, size_t n_bytes, const char *where, apr_arena *arena,
                                apr_error *err)
{
    *file = (apr_torch_file){0};
    if (n_bytes >= 2 && data[0] == 'P') return read_archive(file, data, n_bytes, where, arena, err);
    return read_pickles(file, data, n_bytes, where, arena, err);
}
