/* gguf_imatrix.c - reads and writes importance matrices in llama.cpp's two formats.
 *
 * A GGUF: general.type "imatrix", imatrix.datasets, .chunk_count, .chunk_size, and for each matrix NAME two tensors of float32:
 *     NAME.in_sum2  [n_matrices, n_columns]  sums of squares (rank 1 if there is one matrix)
 *     NAME.counts   [n_matrices, 1]          rows that were summed
 *
 * The older .dat, with numbers of 4 bytes: n_entries, then {length, name, n_calls, n_values, values} for each entry, then optionally
 * n_calls, length and name of the text. Values are means of squares times n_calls. */
#include "formats/base/text.h"
#include "formats/tensor/imatrix.h"

#include "formats/base/bytes.h"
#include "formats/base/crc32.h"
#include "formats/files/out.h"
#include "formats/gguf/gguf.h"

#include <math.h>
#include <stdlib.h>

static const char suffix_sums[] = ".in_sum2", suffix_counts[] = ".counts", terms_key[] = "aprkit.imatrix.terms",
                  seal_key[] = "aprkit.imatrix.seal";
static const int64_t MAX_VALUES = (int64_t)1 << 40;

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static double double_of(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The checksum of an unfinished imatrix, so that a damaged one is not continued. */
static int64_t seal_of(const apr_imatrix *m, const char *terms)
{
    uint32_t crc = apr_crc32(apr_imatrix_sum(m), terms, strlen(terms));
    crc = apr_crc32(crc, &m->chunk_count, sizeof m->chunk_count);
    return apr_crc32(crc, &m->chunk_size, sizeof m->chunk_size);
}

static bool is_sum(double x) { return x >= 0.0 && x <= 1e300; } /* no NaN */

/* --- GGUF, read --- */

/* Reads the numbers of a tensor of float32 or float64. */
static apr_status read_numbers(const apr_imatrix *m, const apr_tensor *t, double *to, apr_error *err)
{
    const int64_t n = apr_tensor_elems(t);

    if (t->dtype != APR_F32 && t->dtype != APR_F64)
        return apr_fail(err, APR_E_DAMAGED, "%s: tensor '%.200s' of the imatrix is %s where sums are f32", m->path, t->name,
                        apr_dtypes[t->dtype].name);
    for (int64_t i = 0; i < n; i++) {
        to[i] = t->dtype == APR_F64 ? double_of(apr_load_le64(t->data + 8 * i)) : (double)float_of(apr_load_le32(t->data + 4 * i));
        if (!is_sum(to[i]))
            return apr_fail(err, APR_E_DAMAGED, "%s: number %lld of the imatrix's tensor '%.200s' is %g, which is not a sum of squares",
                            m->path, (long long)i, t->name, to[i]);
    }
    return APR_OK;
}

/* A single count applies to all matrices of a stack. */
static apr_status read_pair(apr_imatrix *m, const apr_model *file, const apr_tensor *sums, size_t n_stem, apr_error *err)
{
    const char *const stem = apr_arena_copy(&m->arena, sums->name, n_stem);
    const char *const other = stem != NULL ? apr_arena_print(&m->arena, "%s%s", stem, suffix_counts) : NULL;
    if (other == NULL) return apr_no_memory(err, "the names of an imatrix");
    const apr_tensor *const counts = apr_model_find(file, other);

    if (counts == NULL) return apr_fail(err, APR_E_DAMAGED, "%s: the imatrix's '%.200s' has sums and no counts", m->path, stem);
    const int64_t n = apr_tensor_elems(sums), n_counts = apr_tensor_elems(counts);
    const int64_t n_columns = sums->rank > 0 ? sums->dims[sums->rank - 1] : 1, n_matrices = n_columns > 0 ? n / n_columns : 0;
    if (n < 1 || n > MAX_VALUES || n_counts < 1 || (n_counts != 1 && n_counts != n_matrices))
        return apr_fail(err, APR_E_DAMAGED, "%s: the imatrix's '%.200s' has %lld sums in %lld rows and %lld counts, which do not match",
                        m->path, stem, (long long)n, (long long)n_matrices, (long long)n_counts);
    apr_imatrix_entry *const e = apr_imatrix_add(m, stem, n_matrices, n_columns);
    if (e == NULL) return apr_no_memory(err, "an imatrix");
    APR_TRY(read_numbers(m, sums, e->sums, err));
    APR_TRY(read_numbers(m, counts, e->counts, err));
    for (int64_t i = n_counts; i < n_matrices; i++) e->counts[i] = e->counts[0];
    return APR_OK;
}

static const char *copy(apr_imatrix *m, apr_str text)
{
    const bool is_text = apr_str_is_utf8(text) && memchr(text.text, '\0', text.n_bytes) == NULL;
    return is_text ? apr_arena_copy(&m->arena, text.text, text.n_bytes) : "?";
}

static apr_status read_keys(apr_imatrix *m, const apr_kv_list *kv, apr_error *err)
{
    const apr_kv *const names = apr_kv_find(kv, "imatrix.datasets");
    apr_str type, terms;

    if (!apr_kv_get_string(kv, "general.type", &type) || !apr_str_is(type, "imatrix"))
        return apr_fail(err, APR_E_DAMAGED, "%s is a GGUF file, but not an imatrix: its general.type is not \"imatrix\"", m->path);
    (void)apr_kv_get_int(kv, "imatrix.chunk_count", &m->chunk_count);
    (void)apr_kv_get_int(kv, "imatrix.chunk_size", &m->chunk_size);
    if (m->chunk_count < 0 || m->chunk_size < 0)
        return apr_fail(err, APR_E_DAMAGED, "%s: the imatrix states %lld windows of %lld tokens", m->path, (long long)m->chunk_count,
                        (long long)m->chunk_size);
    if (apr_kv_get_string(kv, terms_key, &terms)) m->terms = copy(m, terms);
    if (names == NULL || names->type != APR_KV_ARRAY || names->elem_type != APR_KV_STRING) return APR_OK;
    m->datasets = apr_arena_array(&m->arena, (size_t)names->n_elems + 1, sizeof *m->datasets);
    if (m->datasets == NULL) return apr_no_memory(err, "the texts of an imatrix");
    for (uint64_t i = 0; i < names->n_elems; i++) {
        m->datasets[i] = copy(m, names->value.strings[i]);
        if (m->datasets[i] == NULL) return apr_no_memory(err, "the texts of an imatrix");
    }
    m->n_datasets = (size_t)names->n_elems;
    return APR_OK;
}

static apr_status read_gguf(apr_imatrix *m, const char *path, const apr_model *file, apr_error *err)
{
    int64_t seal;

    APR_TRY(apr_imatrix_start(m, path, file->n_tensors, err));
    APR_TRY(read_keys(m, &file->kv, err));
    for (size_t i = 0; i < file->n_tensors; i++) {
        const apr_tensor *const t = &file->tensors[i];
        const size_t n_sums = apr_stem_of(t->name, suffix_sums), n_counts = apr_stem_of(t->name, suffix_counts);
        if (n_sums > 0) APR_TRY(read_pair(m, file, t, n_sums, err));
        if (n_counts == 0) continue;
        const char *const sums = apr_arena_print(&m->arena, "%.*s%s", (int)n_counts, t->name, suffix_sums);
        if (sums == NULL) return apr_no_memory(err, "the names of an imatrix");
        if (apr_model_find(file, sums) == NULL)
            return apr_fail(err, APR_E_DAMAGED, "%s: the imatrix's '%.*s' has counts and no sums", m->path, (int)n_counts, t->name);
    }
    if (m->n_entries == 0) return apr_fail(err, APR_E_DAMAGED, "%s: the imatrix has no entries", m->path);
    if (m->terms != NULL && (!apr_kv_get_int(&file->kv, seal_key, &seal) || seal != seal_of(m, m->terms)))
        return apr_fail(err, APR_E_DAMAGED, "%s: the unfinished imatrix is damaged; remove it to start again", m->path);
    return apr_imatrix_sort(m, err);
}

static apr_status parse_gguf(apr_imatrix *m, const char *path, const uint8_t *data, size_t n_bytes, apr_error *err)
{
    apr_map map = {.data = data, .n_bytes = n_bytes};
    apr_model file = {.path = path, .maps = &map, .n_maps = 1};

    apr_status status = apr_gguf_parse(&file, err);
    if (status == APR_OK) status = read_gguf(m, path, &file, err);
    file.n_maps = 0; /* the caller owns the bytes */
    file.maps = NULL;
    apr_model_close(&file);
    return status;
}

/* --- .dat, read --- */

static apr_status ends_early(const apr_imatrix *m, size_t entry, apr_error *err)
{
    if (entry == 0) return apr_fail(err, APR_E_DAMAGED, "%s is not an imatrix: neither a GGUF file nor a .dat", m->path);
    return apr_fail(err, APR_E_DAMAGED, "%s: the .dat ends within entry %zu of its imatrix", m->path, entry);
}

static apr_status read_dat_entry(apr_imatrix *m, apr_cursor *c, size_t i, apr_error *err)
{
    const uint32_t n_name = apr_cursor_u32(c);
    const apr_str raw = {(const char *)apr_cursor_take(c, n_name), n_name};
    const uint32_t n_calls = apr_cursor_u32(c), n_values = apr_cursor_u32(c);
    const uint8_t *const values = apr_cursor_take(c, (uint64_t)n_values * 4);

    if (c->failed || n_name > INT32_MAX || n_values > INT32_MAX) return ends_early(m, i, err);
    if (n_name == 0 || !apr_str_is_utf8(raw) || memchr(raw.text, '\0', n_name) != NULL)
        return apr_fail(err, APR_E_DAMAGED, "%s: the name of entry %zu of the .dat's imatrix is not text", m->path, i);
    if (n_values == 0 || n_calls > INT32_MAX)
        return apr_fail(err, APR_E_DAMAGED, "%s: entry %zu of the .dat's imatrix has %u values of %u windows", m->path, i, n_values,
                        n_calls);
    const char *const name = apr_arena_copy(&m->arena, raw.text, n_name);
    apr_imatrix_entry *const e = name != NULL ? apr_imatrix_add(m, name, 1, n_values) : NULL;
    if (e == NULL) return apr_no_memory(err, "an imatrix");
    e->counts[0] = n_calls;
    for (uint32_t j = 0; j < n_values; j++) {
        e->sums[j] = (double)float_of(apr_load_le32(values + 4 * (size_t)j));
        if (!is_sum(e->sums[j]))
            return apr_fail(err, APR_E_DAMAGED, "%s: number %u of the .dat's '%.200s' is %g, which is not a mean of squares", m->path, j,
                            name, e->sums[j]);
    }
    return APR_OK;
}

/* The fields after the entries, which older writers left out. */
static apr_status read_dat_tail(apr_imatrix *m, apr_cursor *c, apr_error *err)
{
    if (apr_cursor_left(c) == 0) return APR_OK;
    m->chunk_count = (int32_t)apr_cursor_u32(c);
    const uint32_t n = apr_cursor_u32(c);
    const apr_str text = {(const char *)apr_cursor_take(c, n), n};
    if (c->failed || apr_cursor_left(c) > 0 || m->chunk_count < 0)
        return apr_fail(err, APR_E_DAMAGED,
                        "%s: the bytes after the entries of the .dat are not a number of windows and the name of a text", m->path);
    m->datasets = apr_arena_array(&m->arena, 2, sizeof *m->datasets);
    if (m->datasets == NULL) return apr_no_memory(err, "the texts of an imatrix");
    if (n > 0 && (m->datasets[m->n_datasets++] = copy(m, text)) == NULL) return apr_no_memory(err, "the texts of an imatrix");
    return APR_OK;
}

static apr_status parse_dat(apr_imatrix *m, const char *path, const uint8_t *data, size_t n_bytes, apr_error *err)
{
    enum { MIN_ENTRY = 4 + 1 + 4 + 4 + 4 };
    apr_cursor c = {.data = data, .n_bytes = n_bytes};
    const uint32_t n = apr_cursor_u32(&c);

    if (c.failed || n == 0 || n > apr_cursor_left(&c) / MIN_ENTRY)
        return apr_fail(err, APR_E_DAMAGED, "%s is not an imatrix: neither a GGUF file nor a .dat with as many entries as it states", path);
    APR_TRY(apr_imatrix_start(m, path, n, err));
    m->is_legacy = true;
    for (size_t i = 0; i < n; i++) APR_TRY(read_dat_entry(m, &c, i, err));
    APR_TRY(read_dat_tail(m, &c, err));
    return apr_imatrix_sort(m, err);
}

apr_status apr_imatrix_parse(apr_imatrix *m, const char *path, const uint8_t *data, size_t n_bytes, apr_error *err)
{
    const bool is_gguf = n_bytes >= 4 && memcmp(data, "GGUF", 4) == 0;

    *m = (apr_imatrix){0};
    const apr_status status = (is_gguf ? parse_gguf : parse_dat)(m, path, data, n_bytes, err);
    if (status != APR_OK) apr_imatrix_close(m);
    return status;
}

apr_status apr_imatrix_open(apr_imatrix *m, const char *path, bool is_ours, apr_error *err)
{
    apr_map map = {0};

    *m = (apr_imatrix){0};
    APR_TRY(apr_map_open(&map, path, err));
    const apr_status status = apr_imatrix_parse(m, path, map.data, map.n_bytes, err);
    (is_ours ? apr_map_forget : apr_map_close)(&map);
    return status;
}

/* --- GGUF, written --- */

static apr_status set_keys(const apr_imatrix *m, const char *terms, apr_arena *arena, apr_kv_list *kv, apr_error *err)
{
    apr_str *const names = apr_arena_array(arena, m->n_datasets + 1, sizeof *names);
    if (names == NULL) return apr_no_memory(err, "the texts of an imatrix");
    for (size_t i = 0; i < m->n_datasets; i++) names[i] = apr_str_of(m->datasets[i]);
    const apr_kv datasets = {.key = apr_str_of("imatrix.datasets"),
                             .type = APR_KV_ARRAY,
                             .elem_type = APR_KV_STRING,
                             .n_elems = m->n_datasets,
                             .value.strings = names};

    *kv = (apr_kv_list){.arena = arena};
    APR_TRY(apr_kv_set_string(kv, "general.type", apr_str_of("imatrix"), err));
    APR_TRY(apr_kv_set(kv, &datasets, err));
    APR_TRY(apr_kv_set_int(kv, "imatrix.chunk_count", APR_KV_U32, m->chunk_count, err));
    APR_TRY(apr_kv_set_int(kv, "imatrix.chunk_size", APR_KV_U32, m->chunk_size, err));
    if (terms == NULL) return APR_OK;
    APR_TRY(apr_kv_set_string(kv, terms_key, apr_str_of(terms), err));
    return apr_kv_set_int(kv, seal_key, APR_KV_U32, seal_of(m, terms), err);
}

/* Adds a tensor without data to the layout. Its rank is 1 if there is one matrix. */
static apr_status lay_tensor(apr_model *layout, const char *name, const char *suffix, int64_t n_matrices, int64_t n, apr_dtype dtype,
                             apr_error *err)
{
    apr_tensor *const t = &layout->tensors[layout->n_tensors++];

    *t = (apr_tensor){.name = apr_arena_print(&layout->arena, "%s%s", name, suffix), .dtype = dtype};
    if (t->name == NULL) return apr_no_memory(err, "the names of an imatrix");
    if (n_matrices > 1) t->dims[t->rank++] = n_matrices;
    t->dims[t->rank++] = n;
    return apr_tensor_size(t, layout->path, err);
}

static apr_status lay_out(apr_model *layout, const apr_imatrix *m, apr_dtype dtype, const char *terms, apr_error *err)
{
    layout->tensors = apr_arena_array(&layout->arena, 2 * m->n_entries + 1, sizeof *layout->tensors);
    if (layout->tensors == NULL) return apr_no_memory(err, "the tensors of an imatrix");
    for (size_t i = 0; i < m->n_entries; i++) {
        const apr_imatrix_entry *const e = &m->entries[i];
        APR_TRY(lay_tensor(layout, e->name, suffix_sums, e->n_matrices, e->n_columns, dtype, err));
        APR_TRY(lay_tensor(layout, e->name, suffix_counts, e->n_matrices, 1, dtype, err));
    }
    return set_keys(m, terms, &layout->arena, &layout->kv, err);
}

static apr_status put_numbers(apr_sink *sink, const double *x, int64_t n, apr_dtype dtype, apr_error *err)
{
    enum { MAX_NUMBERS = 512 };
    const size_t size = dtype == APR_F64 ? 8 : 4;
    uint8_t bytes[8 * MAX_NUMBERS + 8];

    for (int64_t first = 0; first < n; first += MAX_NUMBERS) {
        const size_t now = n - first < MAX_NUMBERS ? (size_t)(n - first) : MAX_NUMBERS;
        for (size_t i = 0; i < now; i++) {
            uint64_t bits = 0;
            if (dtype == APR_F64) memcpy(&bits, &x[first + (int64_t)i], 8);
            else bits = bits_of((float)x[first + (int64_t)i]);
            apr_store_le64(bytes + i * size, bits); /* for f32 the upper half is overwritten by the next number, or not put */
        }
        APR_TRY(apr_sink_put(sink, bytes, now * size, err));
    }
    return APR_OK;
}

static apr_status put_entries(apr_sink *sink, const apr_imatrix *m, apr_dtype dtype, apr_error *err)
{
    for (size_t i = 0; i < m->n_entries; i++) {
        const apr_imatrix_entry *const e = &m->entries[i];
        APR_TRY(put_numbers(sink, e->sums, e->n_matrices * e->n_columns, dtype, err));
        APR_TRY(put_numbers(sink, e->counts, e->n_matrices, dtype, err));
    }
    return APR_OK;
}

static apr_status write_gguf(const apr_imatrix *m, const char *path, const apr_imatrix_out *how, apr_error *err)
{
    const apr_dtype dtype = how->terms != NULL ? APR_F64 : APR_F32;
    const apr_sink_options options = {.overwrite = how->overwrite};
    apr_model layout = {.path = path, .origin.format = APR_FORMAT_GGUF};
    apr_sink *sink = NULL;

    apr_status status = lay_out(&layout, m, dtype, how->terms, err);
    if (status == APR_OK) status = apr_gguf_sink_open(&sink, path, &layout, &options, err);
    if (status == APR_OK) {
        status = put_entries(sink, m, dtype, err);
        if (status == APR_OK) status = apr_sink_finish(sink, err);
        else apr_sink_abandon(sink);
    }
    apr_arena_close(&layout.arena);
    return status;
}

/* --- .dat, written --- */

static apr_status put_u32(apr_out *out, uint32_t x, apr_error *err)
{
    uint8_t bytes[4];
    apr_store_le32(bytes, x);
    return apr_out_write(out, bytes, sizeof bytes, NULL, err);
}

/* A matrix without data gets means of 1. n_calls is the number of windows, rounded up. Entries read from a .dat are written unchanged. */
static apr_status put_dat_entry(apr_out *out, const apr_imatrix *m, const apr_imatrix_entry *e, apr_error *err)
{
    const int64_t chunk = m->is_legacy || m->chunk_size < 1 ? 1 : m->chunk_size;
    double most = 0.0;

    for (int64_t i = 0; i < e->n_matrices; i++) most = fmax(most, e->counts[i]);
    const float calls = (float)ceil(most / (double)chunk);
    APR_TRY(put_u32(out, (uint32_t)strlen(e->name), err));
    APR_TRY(apr_out_write(out, e->name, strlen(e->name), NULL, err));
    APR_TRY(put_u32(out, (uint32_t)calls, err));
    APR_TRY(put_u32(out, (uint32_t)(e->n_matrices * e->n_columns), err));
    for (int64_t i = 0; i < e->n_matrices * e->n_columns; i++) {
        const float count = (float)e->counts[i / e->n_columns];
        const float mean = count == 0.0f ? 1.0f : (float)e->sums[i] / count;
        APR_TRY(put_u32(out, bits_of(m->is_legacy ? (float)e->sums[i] : mean * calls), err));
    }
    return APR_OK;
}

static bool has_data(const apr_imatrix_entry *e)
{
    for (int64_t i = 0; i < e->n_matrices; i++)
        if (e->counts[i] > 0.0) return true;
    return false;
}

static apr_status put_dat(apr_out *out, const apr_imatrix *m, apr_error *err)
{
    const char *const text = m->n_datasets > 0 ? m->datasets[m->n_datasets - 1] : "";
    uint32_t n = 0;

    for (size_t i = 0; i < m->n_entries; i++) n += has_data(&m->entries[i]);
    APR_TRY(put_u32(out, n, err));
    for (size_t i = 0; i < m->n_entries; i++)
        if (has_data(&m->entries[i])) APR_TRY(put_dat_entry(out, m, &m->entries[i], err));
    APR_TRY(put_u32(out, (uint32_t)m->chunk_count, err));
    APR_TRY(put_u32(out, (uint32_t)strlen(text), err));
    return apr_out_write(out, text, strlen(text), NULL, err);
}

static apr_status write_dat(const apr_imatrix *m, const char *path, const apr_imatrix_out *how, apr_error *err)
{
    apr_out *out;

    for (size_t i = 0; i < m->n_entries; i++)
        if (m->entries[i].n_matrices > INT32_MAX / m->entries[i].n_columns)
            return apr_fail(err, APR_E_UNSUPPORTED, "%s: '%.200s' has more numbers than a .dat can count; write a .gguf", path,
                            m->entries[i].name);
    APR_TRY(apr_out_open(&out, path, 0, how->overwrite, err));
    const apr_status status = put_dat(out, m, err);
    if (status == APR_OK) return apr_out_finish(out, err);
    apr_out_abandon(out);
    return status;
}

apr_status apr_imatrix_write(const apr_imatrix *m, const char *path, const apr_imatrix_out *how, apr_error *err)
{
    return (how->as_dat ? write_dat : write_gguf)(m, path, how, err);
}
