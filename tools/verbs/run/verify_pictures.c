/* verify_pictures.c - divergence by position, error by layer, memory predicted and measured. */
#include "tools/verbs/run/verify_pictures.h"

#include "tools/report/chart.h"
#include "tools/report/text.h"

#include <math.h>
#include <stdlib.h>

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

void apr_picture_divergence(FILE *out, const apr_divergence *d, double bound)
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

void apr_picture_memory(FILE *out, const apr_verify_memory_part *parts, size_t n_parts)
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
