/* kld_print.c - prints the results of `aprrun kld` as a table and as JSON. */
#include "tools/report/table.h"
#include "tools/report/terminal.h"
#include "tools/report/text.h"
#include "tools/verbs/convert/begin_token.h"
#include "tools/verbs/run/kld_verb.h"
#include "tools/verbs/run/memory_print.h"
#include "tools/verbs/run/verify_verb.h"

#include <math.h>
#include <string.h>

/* A figure with its interval; low is NaN: it has none. */
typedef struct figure {
    const char *title, *key;
    double value;
    apr_interval interval;
} figure;

enum { N_FIGURES = 9 };

static void figures_of(const apr_kld_shown *s, figure figures[N_FIGURES])
{
    const apr_divergence *const d = &s->d;
    const apr_divergence_intervals *const i = &s->intervals;
    const apr_interval none = {NAN, NAN};
    const figure all[N_FIGURES] = {
        {"KL divergence, mean", "kl_mean", d->mean, i->mean},
        {"  median", "kl_median", d->median, none},
        {"  99 %", "kl_p99", d->p99, none},
        {"  largest", "kl_max", d->largest, none},
        {"same top token", "same_top", d->same_top, i->same_top},
        {"perplexity", "perplexity", d->perplexity_other, i->perplexity_other},
        {"  of the reference", "perplexity_ref", d->perplexity_reference, i->perplexity_reference},
        {"  ratio", "perplexity_ratio", d->perplexity_other / d->perplexity_reference, i->ratio},
        {"  difference", "perplexity_difference", d->perplexity_other - d->perplexity_reference, i->difference},
    };
    memcpy(figures, all, sizeof all);
}

static void print_header(const apr_kld_shown *s)
{
    const apr_divergence *const d = &s->d;
    const char *const backend = apr_session_backend_name(s->other->session), *const ref_backend =
                                                                                 apr_session_backend_name(s->reference->session);
    char types[2][256], clean[512];

    printf("%s%s%s  %s\n", apr_bold(stdout), apr_printable(s->other->source.path), apr_plain(stdout),
           apr_verify_types_text(&s->other->model, types[0], sizeof types[0]));
    printf("  against  %s  %s\n", apr_printable(s->reference->source.path),
           apr_verify_types_text(&s->reference->model, types[1], sizeof types[1]));
    printf("  run on %s", backend);
    if (strcmp(backend, ref_backend) != 0) printf(", the reference on %s", ref_backend);
    printf("; %s: %zu window%s of %lld tokens", apr_clean_text(clean, sizeof clean, s->text, strlen(s->text)), d->n_windows,
           d->n_windows == 1 ? "" : "s", (long long)d->window);
    if (s->batch > 0 && s->batch < d->window) printf(", %lld at a time", (long long)s->batch);
    putchar('\n');
    apr_begin_print_both(&s->other->model.vocab, &s->reference->model.vocab, stdout);
    putchar('\n');
}

static void print_largest(const apr_kld_shown *s)
{
    const apr_divergence *const d = &s->d;
    char clean[160];

    printf("\n  largest: window %lld, position %lld", (long long)(d->largest_at / d->window), (long long)(d->largest_at % d->window));
    if (s->before != NULL) printf(", after '%s'", apr_short_text(clean, sizeof clean, s->before, s->n_before, 48));
    if (d->n_windows > 1) printf("\n  intervals: 95 %%, by bootstrap, %d draws of %zu windows\n", APR_BOOTSTRAP_DRAWS, d->n_windows);
    else printf("\n  one window: no intervals\n");
}

static apr_footprint footprint_of(const apr_kld_shown *s)
{
    const apr_session *const sessions[] = {s->other->session, s->reference->session};
    return apr_footprint_of(sessions, 2);
}

static void print_stats(const apr_kld_shown *s)
{
    const apr_footprint footprint = footprint_of(s);

    fprintf(stderr, "%s\n", s->other->source.path);
    apr_session_lines_print(s->other->session, stderr);
    fprintf(stderr, "%s\n", s->reference->source.path);
    apr_session_lines_print(s->reference->session, stderr);
    apr_footprint_print(&footprint, stderr);
}

/* Divergence from rounding alone is too small for six decimals. */
static const char *number_text(char text[32], double value)
{
    if (value != 0.0 && fabs(value) < 0.001) snprintf(text, 32, "%.3g", value);
    else snprintf(text, 32, "%.6f", value);
    return text;
}

static void figure_row(apr_table *table, const figure *f)
{
    char value[32], high[32];

    apr_table_cell(table, "%s", f->title);
    apr_table_cell(table, "%s", number_text(value, f->value));
    if (isnan(f->interval.low)) apr_table_cell(table, "%s", "");
    else apr_table_cell(table, "%s to %s", number_text(value, f->interval.low), number_text(high, f->interval.high));
}

apr_status apr_kld_print(const apr_kld_shown *s, apr_error *err)
{
    static const apr_column columns[] = {{NULL, false}, {NULL, true}, {NULL, false}};
    figure figures[N_FIGURES];
    apr_table table;

    print_header(s);
    figures_of(s, figures);
    apr_table_start(&table, columns, 3);
    for (size_t i = 0; i < N_FIGURES; i++) figure_row(&table, &figures[i]);
    APR_TRY(apr_table_print(&table, stdout, 2, err));
    print_largest(s);
    if (s->stats) print_stats(s);
    return APR_OK;
}

static void figure_json(apr_json_text *json, const figure *f)
{
    char key[64];

    apr_json_real(json, f->key, f->value);
    if (isnan(f->interval.low)) return;
    snprintf(key, sizeof key, "%s_95", f->key);
    apr_json_open(json, key, '[');
    apr_json_real(json, NULL, f->interval.low);
    apr_json_real(json, NULL, f->interval.high);
    apr_json_close(json, ']');
}

/* The mean of each window: two models on the same windows are compared pair by pair. */
static void windows_json(const apr_divergence *d, apr_json_text *json)
{
    apr_json_open(json, "kl_by_window", '[');
    for (size_t i = 0; i < d->n_windows; i++) apr_json_real(json, NULL, d->windows[i].kl / (double)d->windows[i].n_rows);
    apr_json_close(json, ']');
}

void apr_kld_json(const apr_kld_shown *s, apr_json_text *json)
{
    const apr_divergence *const d = &s->d;
    const char *const backend = apr_session_backend_name(s->other->session), *const ref_backend =
                                                                                 apr_session_backend_name(s->reference->session);
    figure figures[N_FIGURES];

    figures_of(s, figures);
    apr_json_string(json, "backend", backend, strlen(backend));
    apr_json_string(json, "backend_ref", ref_backend, strlen(ref_backend));
    if (s->batch > 0) apr_json_int(json, "batch", s->batch);
    apr_json_int(json, "window", d->window);
    apr_json_int(json, "windows", (int64_t)d->n_windows);
    apr_begin_json_both(&s->other->model.vocab, &s->reference->model.vocab, json);
    apr_json_int(json, "positions", d->n_rows);
    apr_json_int(json, "tokens_scored", d->n_scored);
    for (size_t i = 0; i < N_FIGURES; i++) figure_json(json, &figures[i]);
    apr_json_real(json, "kl_mean_second_half", d->second_half);
    apr_json_real(json, "same_top_second_half", d->second_half_top);
    windows_json(d, json);
    apr_json_open(json, "largest", '{');
    apr_json_int(json, "window", d->largest_at / d->window);
    apr_json_int(json, "position", d->largest_at % d->window);
    apr_json_int(json, "token", s->ids[d->largest_at]);
    if (s->before != NULL) apr_json_string(json, "after", s->before, s->n_before);
    apr_json_close(json, '}');
    const apr_footprint footprint = footprint_of(s);
    apr_footprint_json(&footprint, json);
}
