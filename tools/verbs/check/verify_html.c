/* verify_html.c - the report as one HTML page: no scripts, no external files, light and dark. */
#include "tools/verbs/check/verify.h"

#include "tools/report/chart.h"
#include "tools/report/html.h"
#include "tools/report/report.h"
#include "tools/report/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The drawing area of a picture with a logarithmic y axis: decades from low to high. */
typedef struct plane {
    double left, right, top, bottom;
    int low, high; /* powers of ten */
} plane;

static double clamp(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

/* Zero and less are at the bottom, values that are not finite at the top. */
static double height_of(const plane *p, double value)
{
    const double decade = isfinite(value) ? value > 0.0 ? log10(value) : p->low : p->high;
    return p->bottom - (p->bottom - p->top) * clamp((decade - p->low) / (p->high - p->low), 0.0, 1.0);
}

/* Chooses decades for values in (0, largest]: at least one, at most `most`. */
static void set_decades(plane *p, double smallest, double largest, int most)
{
    p->high = largest > 0.0 && isfinite(largest) ? (int)ceil(log10(largest) + 0.02) : 1;
    p->low = smallest > 0.0 && smallest < largest ? (int)floor(log10(smallest)) : p->high - 1;
    if (p->low < p->high - most) p->low = p->high - most;
    if (p->low >= p->high) p->low = p->high - 1;
}

static void draw_decades(FILE *out, const plane *p)
{
    for (int d = p->low; d <= p->high; d++) {
        const double y = height_of(p, pow(10.0, d));
        fprintf(out, "<line class=\"%s\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", d == p->low ? "axis" : "grid", p->left,
                p->right, y, y);
        if (d >= -2 && d <= 2)
            fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n", p->left - 8, y + 4, pow(10.0, d));
        else
            fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">10<tspan dy=\"-5\" font-size=\"9\">%s%d</tspan></text>\n",
                    p->left - 8, y + 4, d < 0 ? "\u2212" : "", abs(d));
    }
}

static void draw_bound(FILE *out, const plane *p, double bound, const char *what)
{
    if (!(bound > pow(10.0, p->low)) || bound > pow(10.0, p->high)) return;
    const double y = height_of(p, bound);
    fprintf(out,
            "<line class=\"bound\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/><text class=\"bound-text\" x=\"%.1f\" y=\"%.1f\" "
            "text-anchor=\"end\">%s %.2g</text>\n",
            p->left, p->right, y, y, p->right, y - 5, what, bound);
}

static void say_nothing(FILE *out, const char *sentence) { fprintf(out, "<p class=\"soft\">%s</p>\n", sentence); }

/* --- divergence --- */

typedef struct bin {
    double mean, high;
    int64_t first, last;
} bin;

enum { MAX_BINS = 240 };

static size_t make_bins(const apr_divergence *d, bin bins[MAX_BINS])
{
    const size_t n = d->n_rows < MAX_BINS ? (size_t)d->n_rows : MAX_BINS;

    for (size_t b = 0; b < n; b++) {
        const int64_t first = d->n_rows * (int64_t)b / (int64_t)n, last = d->n_rows * ((int64_t)b + 1) / (int64_t)n;
        bins[b] = (bin){.first = first, .last = last - 1};
        for (int64_t i = first; i < last; i++) {
            const double kl = isfinite(d->kl[i]) ? (double)d->kl[i] : INFINITY;
            bins[b].mean += kl / (double)(last - first);
            bins[b].high = fmax(bins[b].high, kl);
        }
    }
    return n;
}

static void draw_positions(FILE *out, const plane *p, const apr_divergence *d)
{
    const double step = fmax(apr_chart_step((double)d->n_rows, 10), 1.0);

    for (double at = 0; at <= (double)d->n_rows; at += step) {
        const double x = p->left + (p->right - p->left) * at / (double)d->n_rows;
        fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%.0f</text>\n", x, p->bottom + 18, at);
    }
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">token of the text</text>\n", p->right, p->bottom + 34);
}

static void picture_divergence(FILE *out, const apr_divergence *d, double bound)
{
    plane p = {.left = 52, .right = 940, .top = 14, .bottom = 236};
    bin *const bins = malloc(MAX_BINS * sizeof *bins);
    double smallest = INFINITY;

    if (bins == NULL) return;
    if (d->largest == 0.0) {
        say_nothing(out, "No difference at any position: the same numbers.");
        free(bins);
        return;
    }
    if (isnan(d->largest)) {
        fprintf(out, "<p class=\"soft\">Logits that are not finite, first after token %lld: there is nothing to draw.</p>\n",
                (long long)d->largest_at);
        free(bins);
        return;
    }
    const size_t n = make_bins(d, bins);
    for (size_t b = 0; b < n; b++)
        if (bins[b].mean > 0.0) smallest = fmin(smallest, bins[b].mean);
    set_decades(&p, smallest, isfinite(d->largest) ? fmax(d->largest, bound) : 100.0, 6);
    apr_chart_open(out, 960, 276, "KL divergence by position");
    draw_decades(out, &p);
    const double step = (p.right - p.left) / (double)n;
    for (size_t b = 0; b < n; b++) {
        const double top = height_of(&p, bins[b].high), bottom = height_of(&p, bins[b].mean);
        fprintf(out,
                "<rect class=\"fill-soft\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"1\"><title>tokens %lld to %lld: mean "
                "%.3g, largest %.3g</title></rect>\n",
                p.left + step * (double)b, top, fmax(step - 0.6, 0.6), fmax(bottom - top, 1.0), (long long)bins[b].first,
                (long long)bins[b].last, bins[b].mean, bins[b].high);
    }
    fputs("<polyline class=\"line-one\" points=\"", out);
    for (size_t b = 0; b < n; b++) fprintf(out, "%.1f,%.1f ", p.left + step * ((double)b + 0.5), height_of(&p, bins[b].mean));
    fputs("\"/>\n", out);
    draw_bound(out, &p, bound, "bound");
    draw_positions(out, &p, d);
    fputs("</svg>\n", out);
    free(bins);
}

/* --- layers --- */

/* Column 0: embeddings and head, whose worst operations are counted together. Then the layers. */
static void draw_layer_names(FILE *out, const plane *p, double step, int64_t n_layers)
{
    const int64_t every = n_layers <= 24 ? 1 : n_layers <= 48 ? 2 : n_layers <= 100 ? 5 : 10;

    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">ends</text>\n", p->left + 0.5 * step, p->bottom + 18);
    for (int64_t i = 0; i < n_layers; i += every)
        fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%lld</text>\n", p->left + step * ((double)i + 1.5), p->bottom + 18,
                (long long)i);
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">layer (ends: embeddings and output head)</text>\n", p->right,
            p->bottom + 34);
}

static void draw_line(FILE *out, const plane *p, double step, const double *line, size_t n_line)
{
    fputs("<polyline class=\"line-two\" points=\"", out);
    for (size_t i = 0; i < n_line; i++) fprintf(out, "%.1f,%.1f ", p->left + step * ((double)i + 0.5), height_of(p, line[i]));
    fputs("\"/>\n", out);
    for (size_t i = 0; i < n_line; i++)
        fprintf(out, "<circle class=\"fill-two\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.2\"><title>hidden states: %.3g</title></circle>\n",
                p->left + step * ((double)i + 0.5), height_of(p, line[i]), line[i]);
}

static void span_of(const double *values, int64_t n, double *smallest, double *largest)
{
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(values[i]) || values[i] <= 0.0) continue;
        *smallest = fmin(*smallest, values[i]);
        *largest = fmax(*largest, values[i]);
    }
}

void apr_picture_layers(FILE *out, const double *bars, int64_t n_layers, const double *line, size_t n_line, double bound)
{
    plane p = {.left = 52, .right = 940, .top = 14, .bottom = 216};
    const double step = (p.right - p.left) / (double)(n_layers + 1), wide = fmin(0.62 * step, 64.0);
    double smallest = INFINITY, largest = 0.0;
    bool any = false;

    for (int64_t i = 0; i <= n_layers; i++) any |= bars[i] != 0.0;
    span_of(bars, n_layers + 1, &smallest, &largest);
    span_of(line, (int64_t)n_line, &smallest, &largest);
    if (!any && largest == 0.0) {
        say_nothing(out, "No difference in any layer: the same numbers.");
        return;
    }
    set_decades(&p, smallest * 0.5, isnan(bound) ? largest : fmax(largest, bound), 7);
    apr_chart_open(out, 960, 256, "error by layer");
    draw_decades(out, &p);
    for (int64_t c = 0; c <= n_layers; c++) {
        const double value = c == 0 ? bars[n_layers] : bars[c - 1], y = height_of(&p, value), x = p.left + step * ((double)c + 0.5);
        char text[64];
        if (value == 0.0) continue;
        if (isfinite(value)) snprintf(text, sizeof text, "%.2g", value);
        else snprintf(text, sizeof text, "not finite");
        fprintf(out, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"2\"><title>%s</title></rect>\n",
                value <= bound || isnan(bound) ? "fill-one" : "fill-fail", x - wide / 2, y, wide, p.bottom - y, text);
        if (step >= 60 && p.bottom - y > 20)
            fprintf(out, "<text class=\"on-bar\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n", x, p.bottom - 7, text);
    }
    if (line != NULL && n_line > 0) draw_line(out, &p, step, line, n_line < (size_t)n_layers + 1 ? n_line : (size_t)n_layers + 1);
    if (!isnan(bound)) draw_bound(out, &p, bound, "bound");
    draw_layer_names(out, &p, step, n_layers);
    fputs("</svg>\n", out);
}

/* --- memory --- */

static void picture_memory(FILE *out, const apr_verify_memory_part *parts, size_t n_parts)
{
    const double left = 190, right = 690, row = 34;
    uint64_t largest = 1;
    char text[2][APR_SMALL_TEXT];

    for (size_t i = 0; i < n_parts; i++) {
        if (parts[i].predicted > largest) largest = parts[i].predicted;
        if (parts[i].measured > largest) largest = parts[i].measured;
    }
    apr_chart_open(out, 960, row * (double)n_parts + 4, "memory, predicted and measured");
    for (size_t i = 0; i < n_parts; i++) {
        const double y = row * (double)i + 5;
        const double predicted = (right - left) * (double)parts[i].predicted / (double)largest,
                     measured = (right - left) * (double)parts[i].measured / (double)largest;
        fprintf(out, "<text class=\"ink\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", left - 12, y + 16, parts[i].label);
        if (parts[i].measured > 0)
            fprintf(out, "<rect class=\"fill-one\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"12\" rx=\"2\"/>\n", left, y + 6,
                    fmax(measured, 1.0));
        fprintf(out, "<rect class=\"hollow\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"20\" rx=\"3\"/>\n", left, y + 2,
                fmax(predicted, 1.0));
        apr_size_text(text[0], parts[i].predicted);
        apr_size_text(text[1], parts[i].measured);
        fprintf(out, "<text x=\"%.1f\" y=\"%.1f\">%s predicted, %s</text>\n", left + fmax(predicted, measured) + 12, y + 16, text[0],
                parts[i].measured > 0 ? text[1] : "not measured");
    }
    fputs("</svg>\n", out);
}

/* --- the page --- */

static void write_head(FILE *out, const apr_verify_shown *shown)
{
    const apr_verify_report *const r = shown->report;
    char types[2][256];

    apr_html_open(out, APR_VERIFY_HTML_MARK, apr_html_base_name(shown->other->source.path), "verified");
    apr_html_print(out,
                   "<span class=\"pill big %s\">%s</span>\n<h1>%s</h1>\n<p class=\"soft\"><code>%s</code> (%s)<br>against <code>%s</code> "
                   "(%s)<br>%s, run on %s</p>\n",
                   r->failed ? "fail" : "pass", r->failed ? "Not the same model" : "Still the same model",
                   apr_html_base_name(shown->other->source.path), shown->other->source.path,
                   apr_verify_types_text(&shown->other->model, types[0], sizeof types[0]), shown->reference->source.path,
                   apr_verify_types_text(&shown->reference->model, types[1], sizeof types[1]),
                   apr_session_program(r->input->other.session)->architecture, r->backend);
}

static void write_first_failure(FILE *out, const apr_verify_report *r)
{
    const apr_verify_check *const failure = apr_verify_first_failure(r);

    if (failure == NULL) return;
    const apr_verify_line line = apr_verify_line_of(r, failure);
    apr_html_print(out, "<div class=\"broken\"><b>First to fail: %s.</b> %s", line.title, line.found);
    if (line.where[0] != '\0') apr_html_print(out, "<br>%s", line.where);
    fputs("</div>\n", out);
}

static void write_tiles(FILE *out, const apr_verify_report *r)
{
    char text[APR_SMALL_TEXT], figure[64], what[200];

    fputs("<div class=\"tiles\">\n", out);
    if (r->n_texts > 0) {
        const apr_divergence *const d = &r->texts[r->n_texts - 1].d;
        snprintf(figure, sizeof figure, "%.3g", d->mean);
        apr_html_tile(out, figure, "mean KL divergence, nats");
        snprintf(figure, sizeof figure, "%.*f %%", d->same_top == 1.0 ? 0 : 2, 100.0 * d->same_top);
        apr_html_tile(out, figure, "same most likely token");
        snprintf(figure, sizeof figure, "%.3f", d->perplexity_other);
        snprintf(what, sizeof what, "perplexity; reference %.3f", d->perplexity_reference);
        apr_html_tile(out, figure, what);
    }
    snprintf(what, sizeof what, "of memory to run with %lld tokens", (long long)apr_session_plan(r->input->other.session)->n_ctx);
    apr_html_tile(out, apr_size_text(text, apr_verify_memory_total(r).predicted), what);
    fputs("</div>\n", out);
}

static void write_checks(FILE *out, const apr_verify_report *r)
{
    static const char *const names[] = {"note", "pass", "fail"};

    fputs("<h2>Checks</h2>\n<div class=\"card\"><table>\n", out);
    for (size_t i = 0; i < r->n_checks; i++) {
        const apr_verify_check *const c = &r->checks[i];
        const apr_verify_line line = apr_verify_line_of(r, c);
        apr_html_print(out, "<tr><td><span class=\"pill %s\">%s</span></td><td>%s</td><td>%s", names[c->verdict], names[c->verdict],
                       line.title, line.found);
        if (line.where[0] != '\0')
            apr_html_print(out, "<div class=\"%s\">%s</div>", c->verdict == APR_VERDICT_FAIL ? "where" : "soft small", line.where);
        apr_html_print(out, "</td><td class=\"soft\">%s</td></tr>\n", line.bound);
    }
    fputs("</table></div>\n", out);
}

static void write_texts(FILE *out, const apr_verify_report *r)
{
    if (r->n_texts == 0) return;
    fputs("<h2>Divergence by position</h2>\n<p class=\"soft\">How far the model&#39;s distribution of the next token is from the "
          "reference&#39;s, "
          "after each token of the text.</p>\n",
          out);
    for (size_t i = 0; i < r->n_texts; i++) {
        const apr_divergence *const d = &r->texts[i].d;
        apr_html_print(
            out,
            "<div class=\"card\"><b>%s</b> <span class=\"soft small\">&ensp;%lld positions in windows of %lld: mean %.3g, median %.3g, "
            "99th percentile %.3g, "
            "largest %.3g</span>\n"
            "<div class=\"legend\"><span><i class=\"swatch\" style=\"background:var(--one)\"></i>mean</span><span><i "
            "style=\"background:var(--one-soft)\"></i>up to the largest</span><span><i style=\"background:var(--fail);height:2px;"
            "vertical-align:4px\"></i>bound of the mean</span></div>\n",
            r->texts[i].name, (long long)d->n_rows, (long long)d->window, d->mean, d->median, d->p99, d->largest);
        picture_divergence(out, d, r->texts[i].bound);
        fputs("</div>\n", out);
    }
}

static void write_layers(FILE *out, const apr_verify_report *r)
{
    if (r->operations.n_checked > 0) {
        fputs("<h2>Error by layer</h2>\n<p class=\"soft\">Bars: the worst operation of the layer when its input is the reference&#39;s, "
              "so a "
              "tall bar belongs to that layer alone. Line: hidden states when each model runs on its own.</p>\n<div class=\"card\"><div "
              "class=\"legend\">"
              "<span><i style=\"background:var(--one)\"></i>worst operation, same input</span><span><i "
              "style=\"background:var(--two)\"></i>hidden states, errors add "
              "up</span></div>\n",
              out);
        apr_picture_layers(out, r->operations.worst_relative, r->operations.n_layers, r->drift, r->n_drift, NAN);
        fputs("</div>\n", out);
    }
    if (r->backends.n_checked > 0) {
        fprintf(out,
                "<h2>Backend by layer</h2>\n<p class=\"soft\">The same weights on %s and in float64 on the host: the worst operation "
                "of each layer "
                "from the same "
                "input, at %lld positions up to %lld.</p>\n<div class=\"card\">\n",
                r->backend, (long long)r->backends.n_positions, (long long)r->backends.last_position);
        apr_picture_layers(out, r->backends.worst_relative, r->backends.n_layers, NULL, 0, NAN);
        fputs("</div>\n", out);
    }
}

static void write_memory(FILE *out, const apr_verify_report *r)
{
    apr_verify_memory_part parts[APR_VERIFY_MEMORY_PARTS + 1];

    apr_verify_memory_parts(r, parts);
    parts[APR_VERIFY_MEMORY_PARTS] = apr_verify_memory_total(r);
    fputs("<h2>Memory, predicted and measured</h2>\n<div class=\"card\"><div class=\"legend\"><span><i style=\"border:1.5px solid "
          "var(--one)\"></i>predicted</span><span><i style=\"background:var(--one)\"></i>measured</span></div>\n",
          out);
    picture_memory(out, parts, APR_VERIFY_MEMORY_PARTS + 1);
    fputs("</div>\n", out);
}

static void write_answers(FILE *out, const apr_verify_report *r)
{
    if (r->n_answers == 0) return;
    fputs(
        "<h2>Greedy answers</h2>\n<p class=\"soft\">A near tie can go the other way, and then the texts differ. That alone is not damage; "
        "nonsense is.</p>\n",
        out);
    for (size_t i = 0; i < r->n_answers; i++) {
        const apr_verify_answer *const a = &r->answers[i];
        apr_html_print(out, "<div class=\"card\"><b>%s</b> ", a->prompt);
        if (a->same) fputs("<span class=\"pill pass\">word for word</span>", out);
        else
            fprintf(out, "<span class=\"pill note\">the same for %lld of %lld tokens</span>", (long long)a->n_same,
                    (long long)a->n_reference);
        apr_html_print(out,
                       "<div class=\"answer\"><div><span class=\"soft small\">reference</span><pre>%s</pre></div><div><span class=\"soft "
                       "small\">this model</span><pre>%s</pre></div></div></div>\n",
                       a->reference, a->other);
    }
}

static void write_page(apr_report *page, const void *of)
{
    FILE *const out = page->out;
    const apr_verify_shown *const shown = of;
    const apr_verify_report *const r = shown->report;

    write_head(out, shown);
    write_first_failure(out, r);
    write_tiles(out, r);
    write_checks(out, r);
    write_texts(out, r);
    write_layers(out, r);
    write_memory(out, r);
    write_answers(out, r);
    fprintf(out,
            "<footer>aprkit %s, aprrun verify. KL divergence of float32 logits summed in double, not "
            "clipped.</footer>\n</main></body></html>\n",
            APR_VERSION);
}

apr_status apr_verify_html(const apr_verify_shown *shown, apr_out *page, apr_error *err)
{
    return apr_report_page(write_page, shown, page, err);
}
