/* compare_print.c - the comparison as text and as JSON; which value is the best, and what that means in a sentence. */
#include "tools/verbs/check/compare.h"

#include "tools/report/html.h"
#include "tools/report/report.h"
#include "tools/report/terminal.h"
#include "tools/report/text.h"

#include <math.h>
#include <string.h>

/* The values of a column, larger is better. NaN: there is none. */
static double value_of(const apr_compare_shown *s, const apr_compare_row *r, apr_compare_column column)
{
    const apr_compare_figures *const f = &r->figures;
    const double values[APR_COMPARE_COLUMNS] = {
        [APR_COMPARE_SIZE] = -(double)r->n_bytes,
        [APR_COMPARE_BITS] = -r->bits,
        [APR_COMPARE_KL] = -f->kl,
        [APR_COMPARE_TOP] = f->same_top,
        [APR_COMPARE_PERPLEXITY] = -f->perplexity,
        [APR_COMPARE_DECODE] = s->has_speed ? f->decode : (double)NAN,
        [APR_COMPARE_PROMPT] = s->has_speed ? f->prompt : (double)NAN,
        [APR_COMPARE_CONTEXT] = s->gpu != NULL ? (double)r->max_ctx : (double)NAN,
    };
    return values[column];
}

size_t apr_compare_best(const apr_compare_shown *s, apr_compare_column column)
{
    size_t best = SIZE_MAX;
    bool differ = false;

    for (size_t i = 0; i < s->n; i++) {
        const double value = value_of(s, &s->rows[i], column);
        if (!isfinite(value)) continue;
        differ = differ || (best != SIZE_MAX && value != value_of(s, &s->rows[best], column));
        if (best == SIZE_MAX || value > value_of(s, &s->rows[best], column)) best = i;
    }
    return differ ? best : SIZE_MAX;
}

bool apr_compare_on_frontier(const apr_compare_shown *s, size_t row)
{
    const apr_compare_row *const r = &s->rows[row];

    for (size_t i = 0; i < s->n; i++) {
        const apr_compare_row *const other = &s->rows[i];
        const bool is_no_worse = other->n_bytes <= r->n_bytes && other->figures.kl <= r->figures.kl;
        if (is_no_worse && (other->n_bytes < r->n_bytes || other->figures.kl < r->figures.kl)) return false;
    }
    return isfinite(r->figures.kl);
}

/* The one to take: of those that fit (without a GPU: of all) the closest to the reference, and of equals the smallest. */
static size_t choice_of(const apr_compare_shown *s)
{
    size_t best = SIZE_MAX;

    for (size_t i = 0; i < s->n; i++) {
        if ((s->gpu != NULL && !s->rows[i].fits) || !isfinite(s->rows[i].figures.kl)) continue;
        if (best == SIZE_MAX || s->rows[i].figures.kl < s->rows[best].figures.kl) best = i;
    }
    return best;
}

/* The largest on the frontier that is smaller than `row`. */
static size_t next_smaller(const apr_compare_shown *s, size_t row)
{
    for (size_t i = row; i-- > 0;)
        if (apr_compare_on_frontier(s, i) && s->rows[i].n_bytes < s->rows[row].n_bytes) return i;
    return SIZE_MAX;
}

void apr_compare_sentence(const apr_compare_shown *s, char *text, size_t capacity)
{
    const size_t best = choice_of(s), next = best != SIZE_MAX ? next_smaller(s, best) : SIZE_MAX;
    char size[APR_SMALL_TEXT];

    if (best == SIZE_MAX && s->gpu != NULL) {
        snprintf(text, capacity, "none fits %s; the smallest, %.80s, needs %s", s->gpu, apr_html_base_name(s->rows[0].path),
                 apr_size_text(size, s->rows[0].needed_bytes));
        return;
    }
    if (best == SIZE_MAX) {
        snprintf(text, capacity, "none has finite predictions");
        return;
    }
    const apr_compare_row *const r = &s->rows[best];
    size_t n = (size_t)snprintf(text, capacity, "%.80s is the closest to the reference%s%s", apr_html_base_name(r->path),
                                s->gpu != NULL ? " that fits " : "", s->gpu != NULL ? s->gpu : "");
    if (next == SIZE_MAX || n >= capacity) return;
    const apr_compare_row *const smaller = &s->rows[next];
    const double saved = 100.0 * (1.0 - (double)smaller->n_bytes / (double)r->n_bytes), ratio = smaller->figures.kl / r->figures.kl;
    if (r->figures.kl > 0.0 && isfinite(ratio))
        snprintf(text + n, capacity - n, "; %.80s is %.0f %% smaller and loses %.*f times as much", apr_html_base_name(smaller->path),
                 saved, ratio < 10.0, ratio);
    else snprintf(text + n, capacity - n, "; %.80s is %.0f %% smaller", apr_html_base_name(smaller->path), saved);
}

/* --- the table --- */

static void report_row(apr_report *r, const apr_compare_shown *s, const apr_compare_row *row, int decimals)
{
    const apr_compare_figures *const f = &row->figures;
    const apr_json_value none = apr_as_absent();
    char name[64], text[APR_SMALL_TEXT];

    apr_report_row(r);
    apr_middle_text(name, sizeof name, apr_html_base_name(row->path), 24);
    apr_report_cell(r, apr_as_text(row->path), "%s", name);
    apr_report_member(r, "types", apr_as_text(row->types));
    apr_report_member(r, "sha256_of_head", apr_as_text(row->sum));
    apr_report_cell(r, apr_as_uint(row->n_bytes), "%s", apr_size_text(text, row->n_bytes));
    apr_report_cell(r, apr_as_real(row->bits), "%.2f", row->bits);
    apr_report_cell(r, apr_as_real(f->kl), "%s", apr_number_text(text, f->kl, decimals));
    if (!isnan(f->kl_95.low)) apr_report_cell(r, none, "%s", apr_number_text(text, (f->kl_95.high - f->kl_95.low) / 2.0, decimals));
    else apr_report_cell(r, none, "-");
    if (!isnan(f->kl_95.low)) apr_report_reals(r, "kl_mean_95", (const double[]){f->kl_95.low, f->kl_95.high}, 2);
    apr_report_cell(r, apr_as_real(f->same_top), "%.2f %%", 100.0 * f->same_top);
    apr_report_cell(r, apr_as_real(f->perplexity), "%s", apr_number_text(text, f->perplexity, 3));
    if (s->has_speed) {
        apr_report_cell(r, apr_as_real(f->decode), "%s", apr_number_text(text, f->decode, 1));
        apr_report_cell(r, apr_as_real(f->prompt), "%s", apr_number_text(text, f->prompt, 1));
    }
    if (s->gpu != NULL) {
        apr_report_cell(r, apr_as_int(row->max_ctx), "%s", row->fits ? apr_count_text(text, row->max_ctx) : "no");
        apr_report_member(r, "fits", apr_as_bool(row->fits));
        apr_report_member(r, "needed_bytes", apr_as_uint(row->needed_bytes));
    }
    apr_report_member(r, "perplexity_ref", apr_as_real(f->perplexity_ref));
    apr_report_member(r, "positions", apr_as_int(f->n_positions));
    apr_report_member(r, "kept", apr_as_bool(row->was_kept));
    apr_report_member(r, "on_frontier", apr_as_bool(apr_compare_on_frontier(s, (size_t)(row - s->rows))));
}

static void report_table(apr_report *r, const apr_compare_shown *s)
{
    static const apr_column all[] = {{"model", .key = "model"},
                                     {"size", true, .key = "bytes"},
                                     {"bits", true, .drops = true, .key = "bits_per_weight"},
                                     {"KL", true, .key = "kl_mean"},
                                     {"+-", true, .drops = true},
                                     {"same top", true, .key = "same_top"},
                                     {"perplexity", true, .drops = true, .key = "perplexity"},
                                     {"decode/s", true, .key = "decode_per_second"},
                                     {"prompt/s", true, .drops = true, .key = "prompt_per_second"},
                                     {"largest ctx", true, .key = "max_ctx"}};
    apr_column columns[sizeof all / sizeof *all];
    double largest = 0.0;
    size_t n = 0;

    for (size_t c = 0; c < sizeof all / sizeof *all; c++) {
        const bool is_speed = c == 7 || c == 8;
        if ((is_speed && !s->has_speed) || (c == 9 && s->gpu == NULL)) continue;
        columns[n++] = all[c];
    }
    for (size_t i = 0; i < s->n; i++)
        if (isfinite(s->rows[i].figures.kl)) largest = fmax(largest, s->rows[i].figures.kl);
    apr_report_table(r, "", "candidates", columns, n);
    for (size_t i = 0; i < s->n; i++) report_row(r, s, &s->rows[i], apr_decimals_of(largest, 4));
    apr_report_close(r);
}

static void report_best(apr_report *r, const apr_compare_shown *s)
{
    static const char *const keys[APR_COMPARE_COLUMNS] = {"bytes",      "bits_per_weight",   "kl_mean",           "same_top",
                                                          "perplexity", "decode_per_second", "prompt_per_second", "max_ctx"};

    apr_report_open(r, "best", '{');
    for (int c = 0; c < APR_COMPARE_COLUMNS; c++) {
        const size_t best = apr_compare_best(s, (apr_compare_column)c);
        if (best != SIZE_MAX) apr_report_member(r, keys[c], apr_as_text(s->rows[best].path));
    }
    apr_report_shut(r, '}');
}

static apr_status print_sentence(const char *sentence, apr_error *err)
{
    static const apr_column column = {0};
    apr_table table;

    putchar('\n');
    apr_table_start(&table, &column, 1);
    apr_table_cell(&table, "%s.", sentence);
    return apr_table_print(&table, stdout, 0, err);
}

apr_status apr_compare_report(const apr_compare_shown *s, apr_answer *answer, apr_error *err)
{
    char sentence[512];
    apr_report r;

    apr_compare_sentence(s, sentence, sizeof sentence);
    apr_report_start(&r, answer, err);
    apr_report_print(&r, "Against %s, on %s in windows of %lld tokens, run on %s%s%s\n", apr_printable(s->ref), apr_printable(s->text),
                     (long long)s->window, s->backend, s->gpu != NULL ? "; context on " : "", s->gpu != NULL ? s->gpu : "");
    apr_report_member(&r, "ref", apr_as_text(s->ref));
    apr_report_member(&r, "text", apr_as_text(s->text));
    apr_report_member(&r, "window", apr_as_int(s->window));
    apr_report_member(&r, "backend", apr_as_text(s->backend));
    apr_report_member(&r, "gpu", apr_as_text(s->gpu));
    report_table(&r, s);
    report_best(&r, s);
    apr_report_member(&r, "sentence", apr_as_text(sentence));
    APR_TRY(apr_report_end(&r));
    return answer->json ? APR_OK : print_sentence(sentence, err);
}
