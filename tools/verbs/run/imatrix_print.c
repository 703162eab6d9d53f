/* imatrix_print.c - what an imatrix holds, as text and as JSON. */
#include "tools/verbs/run/imatrix_print.h"

#include "tools/report/report.h"
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

static void report_head(apr_report *r, const apr_imatrix *m)
{
    apr_report_member(r, "file", apr_as_text(m->path));
    apr_report_member(r, "format", apr_as_text(m->is_legacy ? "dat" : "gguf"));
    apr_report_open(r, "texts", '[');
    for (size_t i = 0; i < m->n_datasets; i++) apr_report_member(r, NULL, apr_as_text(m->datasets[i]));
    apr_report_shut(r, ']');
    apr_report_member(r, "windows", apr_as_int(m->chunk_count));
    apr_report_member(r, "window", apr_as_int(m->chunk_size));
    apr_report_member(r, "entries", apr_as_int((int64_t)m->n_entries));
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
    const int64_t n_tokens = m->chunk_count * m->chunk_size;
    size_t n_partly;
    const int64_t n_unseen = count_unseen(m, &n_partly);
    apr_report r;

    apr_report_start(&r, call->answer, err);
    report_head(&r, m);
    apr_report_member(&r, "tokens", apr_as_int(n_tokens));
    apr_report_member(&r, "experts_without_tokens", apr_as_int(n_unseen));
    apr_report_member(&r, "matrices_without_name", apr_as_int((int64_t)n_nameless));
    apr_report_member(&r, "seconds", apr_as_real(seconds));
    apr_report_print(&r, "%s: %zu entries from %lld windows of %lld tokens\n", m->path, m->n_entries, (long long)m->chunk_count,
                     (long long)m->chunk_size);
    if (n_unseen > 0)
        apr_report_print(&r, "  %lld experts in %zu entries had no tokens: they will be encoded without importance\n", (long long)n_unseen,
                         n_partly);
    if (n_nameless > 0) apr_report_print(&r, "  %zu matrices have no name in ggml and are left out\n", n_nameless);
    apr_report_print(&r, "  %.2f s, %.0f tokens/s\n", seconds, seconds > 0.0 ? (double)n_tokens / seconds : 0.0);
    return apr_report_end(&r);
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

static void report_entry(apr_report *r, const apr_imatrix_entry *e)
{
    const spread s = spread_of(e);

    apr_report_row(r);
    apr_report_cell(r, apr_as_text(e->name), "%s", e->name);
    apr_report_cell(r, apr_as_int(e->n_matrices), "%lld", (long long)e->n_matrices);
    apr_report_cell(r, apr_as_int(e->n_columns), "%lld", (long long)e->n_columns);
    apr_report_cell(r, apr_as_real(s.rows), "%.0f", s.rows);
    apr_report_cell(r, apr_as_int(s.n_unseen), "%lld", (long long)s.n_unseen);
    apr_report_cell(r, apr_as_real(s.mean), "%.4g", s.mean);
    apr_report_cell(r, apr_as_real(s.largest), "%.4g", s.mean > 0.0 ? s.largest / s.mean : 0.0);
}

apr_status apr_imatrix_show(const apr_call *call, const apr_imatrix *m, const apr_pattern *filter, apr_error *err)
{
    static const apr_column columns[] = {{"tensor", false, .key = "name"},
                                         {"matrices", true, .drops = true, .key = "matrices"},
                                         {"columns", true, .key = "columns"},
                                         {"rows", true, .drops = true, .key = "rows"},
                                         {"no tokens", true, .drops = true, .key = "without_tokens"},
                                         {"mean square", true, .key = "mean_square"},
                                         {"largest / mean", true, .key = "largest"}};
    char clean[512], windows[64];
    apr_report r;

    APR_TRY(try_filter(filter, m, err));
    apr_report_start(&r, call->answer, err);
    apr_report_member(&r, "container", apr_as_text("imatrix"));
    report_head(&r, m);
    apr_report_print(&r, "%s: imatrix (%s), %zu entries from %s%s\n", m->path, m->is_legacy ? ".dat" : "GGUF", m->n_entries,
                     windows_text(m, windows), m->terms != NULL ? ", unfinished" : "");
    for (size_t i = 0; i < m->n_datasets; i++)
        apr_report_print(&r, "  made from %s\n", apr_clean_text(clean, sizeof clean, m->datasets[i], strlen(m->datasets[i])));
    apr_report_table(&r, "", "tensors", columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < m->n_entries; i++)
        if (is_shown(filter, &m->entries[i])) report_entry(&r, &m->entries[i]);
    apr_report_close(&r);
    return apr_report_end(&r);
}
