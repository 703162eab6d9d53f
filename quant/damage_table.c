/* damage_table.c - the table in memory, and its JSON form. */
#include "quant/damage_table.h"

#include "formats/base/grow.h"
#include "formats/base/json.h"

#include <math.h>
#include <string.h>

apr_status apr_damage_table_start(apr_damage_table *t, const char *terms, apr_error *err)
{
    *t = (apr_damage_table){0};
    t->terms = apr_arena_copy(&t->arena, terms, strlen(terms));
    return t->terms != NULL ? APR_OK : apr_no_memory(err, "a table of damages");
}

void apr_damage_table_close(apr_damage_table *t)
{
    apr_arena_close(&t->arena);
    *t = (apr_damage_table){0};
}

apr_damage_row *apr_damage_table_find(const apr_damage_table *t, const char *name)
{
    for (size_t i = 0; i < t->n_rows; i++)
        if (strcmp(t->rows[i].name, name) == 0) return &t->rows[i];
    return NULL;
}

apr_damage_row *apr_damage_table_row(apr_damage_table *t, const char *name)
{
    apr_damage_row *const found = apr_damage_table_find(t, name);
    if (found != NULL) return found;
    const char *const own = apr_arena_copy(&t->arena, name, strlen(name));
    apr_damage_row *const rows = apr_arena_grow(&t->arena, t->rows, &t->capacity, t->n_rows + 1, sizeof *rows);
    if (own == NULL || rows == NULL) return NULL;
    t->rows = rows;
    apr_damage_row *const row = &t->rows[t->n_rows++];
    row->name = own;
    for (int i = 0; i < APR_DTYPE_COUNT; i++) row->kl[i] = NAN;
    return row;
}

static apr_status read_figure(apr_damage_row *row, const cJSON *item, const char *where, apr_error *err)
{
    const apr_dtype type = apr_dtype_by_name(item->string);

    if (type == APR_DTYPE_COUNT)
        return apr_fail(err, APR_E_DAMAGED, "%s: row '%.200s' has a figure of '%.40s', which is not a type", where, row->name,
                        item->string);
    if (!cJSON_IsNumber(item) || !isfinite(item->valuedouble) || item->valuedouble < 0.0)
        return apr_fail(err, APR_E_DAMAGED, "%s: row '%.200s': the figure of %s is not a divergence", where, row->name,
                        apr_dtypes[type].name);
    row->kl[type] = item->valuedouble;
    return APR_OK;
}

static apr_status read_row(apr_damage_table *t, const cJSON *json, const char *where, apr_error *err)
{
    const char *const name = apr_json_get_string(json, "name");

    if (name == NULL) return apr_fail(err, APR_E_DAMAGED, "%s: row %zu of the damages has no name", where, t->n_rows);
    if (apr_damage_table_find(t, name) != NULL) return apr_fail(err, APR_E_DAMAGED, "%s: two rows are called '%.200s'", where, name);
    apr_damage_row *const row = apr_damage_table_row(t, name);
    if (row == NULL) return apr_no_memory(err, "a table of damages");
    for (const cJSON *item = json->child; item != NULL; item = item->next)
        if (strcmp(item->string, "name") != 0) APR_TRY(read_figure(row, item, where, err));
    return APR_OK;
}

static apr_status read_rows(apr_damage_table *t, const cJSON *json, const char *where, apr_error *err)
{
    enum { MOST_ROWS = 100000 };
    const cJSON *const damages = apr_json_get(json, "damages"), *const rows = apr_json_get(damages, "rows");
    const char *const terms = apr_json_get_string(damages, "terms");

    if (terms == NULL || !cJSON_IsArray(rows))
        return apr_fail(err, APR_E_DAMAGED, "%s is not a table of damages: it has no 'damages' with 'terms' and 'rows'", where);
    if (cJSON_GetArraySize(rows) > MOST_ROWS) return apr_fail(err, APR_E_DAMAGED, "%s: more than %d rows", where, MOST_ROWS);
    APR_TRY(apr_damage_table_start(t, terms, err));
    for (const cJSON *row = rows->child; row != NULL; row = row->next) APR_TRY(read_row(t, row, where, err));
    return APR_OK;
}

apr_status apr_damage_table_read(apr_damage_table *t, const char *text, size_t n_bytes, const char *where, apr_error *err)
{
    cJSON *json = NULL;

    *t = (apr_damage_table){0};
    APR_TRY(apr_json_parse(&json, text, n_bytes, where, err));
    const apr_status status = read_rows(t, json, where, err);
    cJSON_Delete(json);
    return status;
}

char *apr_damage_table_write(const apr_damage_table *t, size_t *n_bytes)
{
    apr_json_text json = {0};

    apr_json_open(&json, NULL, '{');
    apr_json_open(&json, "damages", '{');
    apr_json_string(&json, "terms", t->terms, strlen(t->terms));
    apr_json_open(&json, "rows", '[');
    for (size_t i = 0; i < t->n_rows; i++) {
        apr_json_open(&json, NULL, '{');
        apr_json_string(&json, "name", t->rows[i].name, strlen(t->rows[i].name));
        for (int k = 0; k < APR_DTYPE_COUNT; k++)
            if (!isnan(t->rows[i].kl[k])) apr_json_real(&json, apr_dtypes[k].name, t->rows[i].kl[k]);
        apr_json_close(&json, '}');
    }
    apr_json_close(&json, ']');
    apr_json_close(&json, '}');
    apr_json_close(&json, '}');
    return apr_json_text_take(&json, n_bytes);
}
