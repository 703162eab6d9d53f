/* quant/damage_table.h - how far each type alone takes a model from itself, tensor by tensor: what has been measured so far, as JSON.
 *
 *     {"damages":{"terms":"...","rows":[{"name":"blk.0.ffn_down.weight","q4_k":0.0123,"q6_k":0.0011}, ...]}}
 *
 * Terms say by what it was measured (model, text, windows): figures of other terms have no place in one table. */
#ifndef APR_QUANT_DAMAGE_TABLE_H
#define APR_QUANT_DAMAGE_TABLE_H

#include "formats/base/arena.h"
#include "formats/base/status.h"
#include "formats/number/dtype.h"

/* Of a tensor, or of tensors that are quantized together. */
typedef struct apr_damage_row {
    const char *name;
    double kl[APR_DTYPE_COUNT]; /* >= 0; NaN: not measured */
} apr_damage_row;

typedef struct apr_damage_table {
    const char *terms;
    apr_damage_row *rows; /* [n_rows] */
    size_t n_rows, capacity;
    apr_arena arena;
} apr_damage_table;

#define APR_DAMAGE_MARK "{\"damages\":" /* how such a file begins */

/* An empty table may be closed, and so must one whose reading failed. */
apr_status apr_damage_table_start(apr_damage_table *table, const char *terms, apr_error *err);
void apr_damage_table_close(apr_damage_table *table);

/* APR_E_DAMAGED for what is no such table: a figure that is no number or below 0, a type that is not known, a name twice. `where` names
 * the file. */
apr_status apr_damage_table_read(apr_damage_table *table, const char *text, size_t n_bytes, const char *where, apr_error *err);
/* malloc'ed; NULL: no memory. */
char *apr_damage_table_write(const apr_damage_table *table, size_t *n_bytes);

/* NULL when there is no such row. */
apr_damage_row *apr_damage_table_find(const apr_damage_table *table, const char *name);
/* The row of that name, made where it is missing; NULL: no memory. Rows found before may have moved. */
apr_damage_row *apr_damage_table_row(apr_damage_table *table, const char *name);

#endif
