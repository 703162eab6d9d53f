/* packings_bind.c - finds parts by name, and checks types and shapes. */
#include "formats/packed/packings_bind.h"

#include "formats/base/bytes.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* --- parts --- */

const apr_tensor *apr_companion(const apr_binding *b, const char *suffix)
{
    char name[1024];
    const int n = snprintf(name, sizeof name, "%.*s%s", (int)b->n_stem, b->codes->name, suffix);
    return n > 0 && (size_t)n < sizeof name ? apr_model_find(b->model, name) : NULL;
}

const apr_tensor *apr_binding_part(apr_binding *b, const char *suffix)
{
    const apr_tensor *const part = apr_companion(b, suffix);
    if (part != NULL && b->packing.n_parts < APR_MAX_PARTS) b->parts[b->packing.n_parts++] = part;
    return part;
}

apr_status apr_need_part(apr_binding *b, const char *suffix, const apr_tensor **part)
{
    *part = apr_binding_part(b, suffix);
    if (*part != NULL) return APR_OK;
    return apr_fail(b->err, APR_E_DAMAGED, "%s: '%.*s%s' is missing; '%s' cannot be read without it", b->model->path, (int)b->n_stem,
                    b->codes->name, suffix, b->codes->name);
}

/* --- what config.json says --- */

const apr_quant_scheme *apr_stated_scheme(const apr_binding *b, apr_quant_layout layout)
{
    const apr_quant_scheme *const scheme = apr_quantization_of_tensor(b->model->quantization, b->codes->name, b->n_stem, layout);
    (void)apr_quantization_check(b->model->quantization, b->err); /* sets the message; apr_bind_packings returns the status */
    return scheme;
}

/* --- checks --- */

apr_status apr_check_dtype(const apr_binding *b, const apr_tensor *part, const apr_dtype *dtypes, const char *names)
{
    for (; *dtypes != APR_DTYPE_COUNT; dtypes++)
        if (part->dtype == *dtypes) return APR_OK;
    return apr_fail(b->err, APR_E_DAMAGED, "%s: '%s' is %s, but next to '%s' it must be %s", b->model->path, part->name,
                    apr_dtypes[part->dtype].name, b->codes->name, names);
}

static apr_status wrong_shape(const apr_binding *b, const apr_tensor *part, int rank, const int64_t *dims, const char *why)
{
    char actual[128], expected[128], codes[128];
    apr_tensor wanted = {.rank = rank};

    memcpy(wanted.dims, dims, (size_t)rank * sizeof *dims);
    apr_dims_text(part, actual, sizeof actual);
    apr_dims_text(&wanted, expected, sizeof expected);
    apr_dims_text(b->codes, codes, sizeof codes);
    return apr_fail(b->err, APR_E_DAMAGED, "%s: '%s' has the shape %s where %s %s%s%s%s%s", b->model->path, part->name, actual, why,
                    expected, part == b->codes ? "" : " next to '", part == b->codes ? "" : b->codes->name, part == b->codes ? "" : "' ",
                    part == b->codes ? "" : codes);
}

apr_status apr_check_shape(const apr_binding *b, const apr_tensor *part, int rank, const int64_t *dims, const char *why)
{
    bool fits = part->rank == rank;
    for (int i = 0; i < rank && fits; i++) fits = part->dims[i] == dims[i];
    return fits ? APR_OK : wrong_shape(b, part, rank, dims, why);
}

apr_status apr_need_scales(apr_binding *b, const char *suffix)
{
    static const apr_dtype dtypes[] = {APR_F16, APR_BF16, APR_F32, APR_DTYPE_COUNT};
    const apr_tensor *scales;

    APR_TRY(apr_need_part(b, suffix, &scales));
    APR_TRY(apr_check_dtype(b, scales, dtypes, "f16, bf16 or f32"));
    b->packing.scales = scales;
    b->packing.scale_dtype = b->matrix.dtype = scales->dtype;
    return APR_OK;
}

apr_status apr_bind_index(apr_binding *b, const apr_tensor *indices, int64_t n_groups)
{
    static const apr_dtype dtypes[] = {APR_I32, APR_DTYPE_COUNT};
    apr_packing *const p = &b->packing;

    APR_TRY(apr_check_dtype(b, indices, dtypes, "i32"));
    APR_TRY(apr_check_shape(b, indices, 1, &p->columns, "one index for each column needs"));
    for (int64_t i = 0; i < p->columns; i++) {
        const int32_t index = (int32_t)apr_load_le32(indices->data + 4 * i);
        if (index < 0 || index >= n_groups)
            return apr_fail(b->err, APR_E_DAMAGED, "%s: '%s' puts column %lld into group %d, but there are %lld groups", b->model->path,
                            indices->name, (long long)i, index, (long long)n_groups);
        if (index != i / p->scale_columns) p->groups = indices;
    }
    return APR_OK;
}

/* --- shapes --- */

int64_t apr_words_of(int64_t n, int64_t bits) { return n / 32 * bits + apr_div_up(n % 32 * bits, 32); }

static int64_t n_matrices_of(const apr_binding *b)
{
    int64_t n = 1;
    for (int i = 0; i + 2 < b->codes->rank; i++) n *= b->codes->dims[i];
    return n;
}

void apr_set_dims(apr_binding *b, int64_t rows, int64_t columns)
{
    const int n_leading = b->codes->rank - 2;

    b->matrix.rank = n_leading + 2;
    memcpy(b->matrix.dims, b->codes->dims, (size_t)n_leading * sizeof *b->codes->dims);
    b->matrix.dims[n_leading] = rows;
    b->matrix.dims[n_leading + 1] = columns;
    b->packing.matrix_rows = rows;
    b->packing.rows = n_matrices_of(b) * rows;
    b->packing.columns = columns;
}

/* --- scales of rows --- */

/* The last two dimensions of scales [matrices, rows, columns]; false: the leading dimensions differ from the codes'. */
static bool scale_grid(const apr_binding *b, const apr_tensor *scales, int64_t *rows, int64_t *columns)
{
    const int n_leading = b->codes->rank - 2;

    *rows = *columns = 1;
    if (apr_tensor_elems(scales) == 1 && n_matrices_of(b) == 1) return true;
    if (scales->rank < n_leading || scales->rank > n_leading + 2) return false;
    for (int i = 0; i < n_leading; i++)
        if (scales->dims[i] != b->codes->dims[i]) return false;
    if (scales->rank > n_leading) *rows = scales->dims[n_leading];
    if (scales->rank > n_leading + 1) *columns = scales->dims[n_leading + 1];
    return true;
}

/* The rows or columns that one scale covers if there are n scales for `size`: all, the stated block, or equal shares. 0: n does not fit. */
static int64_t share_of(int64_t size, int64_t n, int64_t stated)
{
    if (n == 1) return size;
    if (stated > 0) return apr_div_up(size, stated) == n ? stated : 0;
    return n > 0 && size % n == 0 ? size / n : 0;
}

apr_status apr_bind_row_scales(apr_binding *b, int64_t group, const apr_quant_scheme *scheme)
{
    apr_packing *const p = &b->packing;
    const apr_tensor *const scales = p->scales;
    const int64_t matrix_rows = p->matrix_rows, columns = p->columns;
    int64_t n_down, n_across, dims[APR_MAX_RANK];
    char why[96] = "these rows need";

    int64_t block_rows = 0;
    if (scheme != NULL) {
        block_rows = scheme->block_rows > 0 ? scheme->block_rows : matrix_rows;
        group = scheme->block_columns > 0 ? scheme->block_columns : columns;
        char text[64];
        apr_quant_text(scheme, text, sizeof text);
        snprintf(why, sizeof why, "config.json's %s needs", text);
    } else if (group > 0) {
        block_rows = 1;
        snprintf(why, sizeof why, "groups of %lld need", (long long)group);
    }
    const bool is_grid = scale_grid(b, scales, &n_down, &n_across);
    p->scale_rows = is_grid ? share_of(matrix_rows, n_down, block_rows) : 0;
    p->scale_columns = is_grid ? share_of(columns, n_across, group) : 0;
    const bool as_stated =
        (block_rows == 0 || n_down == apr_div_up(matrix_rows, block_rows)) && (group == 0 || n_across == apr_div_up(columns, group));
    if (p->scale_rows > 0 && p->scale_columns > 0 && as_stated) return APR_OK;

    const int n_leading = b->codes->rank - 2;
    memcpy(dims, b->codes->dims, (size_t)n_leading * sizeof *dims);
    dims[n_leading] = block_rows > 0 ? apr_div_up(matrix_rows, block_rows) : matrix_rows;
    dims[n_leading + 1] = group > 0 ? apr_div_up(columns, group) : 1;
    return wrong_shape(b, scales, n_leading + 2, dims, why);
}

/* --- texts --- */

char *apr_scales_text(const apr_packing *p, char *text, size_t n_bytes)
{
    const bool whole_row = p->scale_columns >= p->columns, whole_column = p->scale_rows >= p->matrix_rows;

    if (whole_row && whole_column && p->matrix_rows > 1) snprintf(text, n_bytes, "one scale a matrix");
    else if (whole_row && p->scale_rows == 1) snprintf(text, n_bytes, "one scale a row");
    else if (p->scale_rows == 1) snprintf(text, n_bytes, "groups of %lld", (long long)p->scale_columns);
    else snprintf(text, n_bytes, "blocks of %lldx%lld", (long long)p->scale_rows, (long long)p->scale_columns);
    return text;
}

apr_status apr_set_scheme(apr_binding *b, const char *format, ...)
{
    char text[128];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    b->packing.scheme = apr_arena_copy(b->arena, text, strlen(text));
    return b->packing.scheme != NULL ? APR_OK : apr_no_memory(b->err, "packed weights");
}
