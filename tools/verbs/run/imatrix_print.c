/* imatrix_print.c - what an imatrix holds, as text and as JSON. */
#include "tools/verbs/run/imatrix_print.h"

#include "tools/report/table.h"
#include "tools/report/text.h"

#include <math.h>
#include <string.h>

/* Statistics of an entry's columns, over all matrices that have tokens. */
typedef struct spread {
    int64_t n_unseen; /* matrices without tokens */
    double mean, largest;
    double rows; /* input rows that all matrices had */
} spread;

static double mean_square(const apr_imatrix_entry *e, int64_t i)
{
    const double count = e->counts[i / e->n_columns];
    return count > 0.0 ? e->sums[i] / count : 0.0;
}

static spread spread_of(const apr_imatrix_entry *e)
{
    const int64_t n = e->n_matrices * e->n_columns;
    double sum = 0.0;
    spread s = {0};

    for (int64_t i = 0; i < e->n_matrices; i++) s.n_unseen += e->counts[i] == 0.0, s.rows += e->counts[i];
    for (int64_t i = 0; i < n; i++) {
        const double x = mean_square(e, i);
        sum += x;
        s.largest = fmax(s.largest, x);
    }
    const int64_t n_seen = (e->n_matrices - s.n_unseen) * e->n_columns;
    s.mean = n_seen > 0 ? sum / (double)n_seen : 0.0;
    return s;
}

static void head_json(apr_json_text *json, const apr_imatrix *m)
{
    apr_json_string(json, "file", m->path, strlen(m->path));
    apr_json_string(json, "format", m->is_legacy ? "dat" : "gguf", m->is_legacy ? 3 : 4);
    apr_json_open(json, "texts", '[');
    for (size_t i = 0; i < m->n_datasets; i++) apr_json_string(json, NULL, m->datasets[i], strlen(m->datasets[i]));
    apr_json_close(json, ']');
    apr_json_int(json, "windows", m->chunk_count);
    apr_json_int(json, "window", m->chunk_size);
    apr_json_int(json, "entries", (int64_t)m->n_entries);
}

static int64_t count_unseen(const apr_imatrix *m, size_t *n_entries)
{
    int64_t n = 0;
    *n_entries = 0;
    for (size_t i = 0; i < m->n_entries; i++) {
        const int64_t here = spread_of(&m->entries[i]).n_unseen;
        *n_entries += here > 0;
        n += here;
    }
    return n;
}

apr_status apr_imatrix_answer(const apr_call *call, const apr_imatrix *m, size_t n_nameless, double seconds, apr_error *err)
{
    apr_json_text *const json = &call->answer->body;
    size_t n_partly;
    const int64_t n_unseen = count_unseen(m, &n_partly);

    (void)err;
    if (call->answer->json) {
        head_json(json, m);
        apr_json_int(json, "tokens", m->chunk_count * m->chunk_size);
        apr_json_int(json, "experts_without_tokens", n_unseen);
        apr_json_int(json, "matrices_without_name", (int64_t)n_nameless);
        apr_json_real(json, "seconds", seconds);
        return APR_OK;
    }
    printf("%s: %zu entries from %lld windows of %lld tokens\n", m->path, m->n_entries, (long long)m->chunk_count,
           (long long)m->chunk_size);
    if (n_unseen > 0)
        printf("  %lld experts in %zu entries had no tokens: they will be encoded without importance\n", (long long)n_unseen, n_partly);
    if (n_nameless > 0) printf("  %zu matrices have no name in ggml and are left out\n", n_nameless);
    printf("  %.2f s, %.0f tokens/s\n", seconds, seconds > 0.0 ? (double)(m->chunk_count * m->chunk_size) / seconds : 0.0);
    return APR_OK;
}

static bool is_shown(const apr_pattern *filter, const apr_imatrix_entry *e)
{
    bool found = true;
    return filter == NULL || (apr_pattern_find(filter, e->name, &found, NULL) == APR_OK && found);
}

/* Before a line is printed: an expression that takes too long on a name is refused. */
static apr_status try_filter(const apr_pattern *filter, const apr_imatrix *m, apr_error *err)
{
    bool found;
    for (size_t i = 0; filter != NULL && i < m->n_entries; i++) APR_TRY(apr_pattern_find(filter, m->entries[i].name, &found, err));
    return APR_OK;
}

/* "4 windows of 64 tokens"; a .dat does not say how long they were. */
static char *windows_text(const apr_imatrix *m, char text[64])
{
    const int n = snprintf(text, 64, "%lld windows", (long long)m->chunk_count);
    if (m->chunk_size > 0) snprintf(text + n, 64 - (size_t)n, " of %lld tokens", (long long)m->chunk_size);
    return text;
}

static void entries_json(apr_json_text *json, const apr_imatrix *m, const apr_pattern *filter)
{
    apr_json_open(json, "tensors", '[');
    for (size_t i = 0; i < m->n_entries; i++) {
        const apr_imatrix_entry *const e = &m->entries[i];
        const spread s = spread_of(e);
        if (!is_shown(filter, e)) continue;
        apr_json_open(json, NULL, '{');
        apr_json_string(json, "name", e->name, strlen(e->name));
        apr_json_int(json, "matrices", e->n_matrices);
        apr_json_int(json, "columns", e->n_columns);
        apr_json_real(json, "rows", s.rows);
        apr_json_int(json, "without_tokens", s.n_unseen);
        apr_json_real(json, "mean_square", s.mean);
        apr_json_real(json, "largest", s.largest);
        apr_json_close(json, '}');
    }
    apr_json_close(json, ']');
}

apr_status apr_imatrix_show(const apr_call *call, const apr_imatrix *m, const apr_pattern *filter, apr_error *err)
{
    static const apr_column columns[] = {{"tensor", false},
                                         {"matrices", true, .drops = true},
                                         {"columns", true},
                                         {"rows", true, .drops = true},
                                         {"no tokens", true, .drops = true},
                                         {"mean square", true},
                                         {"largest / mean", true}};
    char clean[512], windows[64];
    apr_table table;

    APR_TRY(try_filter(filter, m, err));
    if (call->answer->json) {
        apr_json_string(&call->answer->body, "container", "imatrix", sizeof "imatrix" - 1);
        head_json(&call->answer->body, m);
        entries_json(&call->answer->body, m, filter);
        return APR_OK;
    }
    printf("%s: imatrix (%s), %zu entries from %s%s\n", m->path, m->is_legacy ? ".dat" : "GGUF", m->n_entries, windows_text(m, windows),
           m->terms != NULL ? ", unfinished" : "");
    for (size_t i = 0; i < m->n_datasets; i++)
        printf("  made from %s\n", apr_clean_text(clean, sizeof clean, m->datasets[i], strlen(m->datasets[i])));
    apr_table_start(&table, columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < m->n_entries; i++) {
        const apr_imatrix_entry *const e = &m->entries[i];
        const spread s = spread_of(e);
        if (!is_shown(filter, e)) continue;
        apr_table_cell(&table, "%s", e->name);
        apr_table_cell(&table, "%lld", (long long)e->n_matrices);
        apr_table_cell(&table, "%lld", (long long)e->n_columns);
        apr_table_cell(&table, "%.0f", s.rows);
        apr_table_cell(&table, "%lld", (long long)s.n_unseen);
        apr_table_cell(&table, "%.4g", s.mean);
        apr_table_cell(&table, "%.4g", s.mean > 0.0 ? s.largest / s.mean : 0.0);
    }
    return apr_table_print(&table, stdout, 2, err);
}
