/* quant/damage_table.h - a JSON table of measurements: how much each type, applied to one tensor alone, changes the model (KL divergence).
 *
 *     {"damages":{"terms":"...","rows":[{"name":"blk.0.ffn_down.weight","q4_k":0.0123,"q6_k":0.0011}, ...]}}
 *
 * Terms say how it was measured (model, text, windows): figures measured under other terms must not be in the same table. */
#ifndef APR_QUANT_DAMAGE_TABLE_H
#define APR_QUANT_DAMAGE_TABLE_H

#include "formats/base/arena.h"
#include "formats/base/status.h"
#include "formats/number/dtype.h"

/* The figures of a tensor, or of tensors that are quantized together. */
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

#define APR_DAMAGE_MARK "{\"damages\":" /* the first bytes of such a file */

/* An empty table may be closed; a table whose reading failed must be closed. */
apr_status apr_damage_table_start(apr_damage_table *table, const char *terms, apr_error *err);
void apr_damage_table_close(apr_damage_table *table);

/* APR_E_DAMAGED if it is not such a table: a figure that is not a number or is below 0, an unknown type, a duplicate name. `where` names
 * the file. */
apr_status apr_damage_table_read(apr_damage_table *table, const char *text, size_t n_bytes, const char *where, apr_error *err);
/* Returns the JSON, malloc'ed; NULL: no memory. */
char *apr_damage_table_write(const apr_damage_table *table, size_t *n_bytes);

/* NULL when there is no such row. */
apr_damage_row *apr_damage_table_find(const apr_damage_table *table, const char *name);
/* The row of that name, added if it is missing; NULL: no memory. Pointers to rows become invalid. */
apr_damage_row *apr_damage_table_row(apr_damage_table *table, const char *name);

#endif
