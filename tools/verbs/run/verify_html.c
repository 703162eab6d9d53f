/* verify_html.c - the report as one HTML page: no scripts, no external files, light and dark. */
#include "tools/report/html.h"
#include "tools/report/text.h"
#include "tools/verbs/run/verify_pictures.h"
#include "tools/verbs/run/verify_verb.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void write_head(FILE *out, const apr_verify_shown *shown)
{
    const apr_verify_report *const r = shown->report;
    char types[256];

    apr_html_open(out, APR_VERIFY_HTML_MARK, apr_html_base_name(shown->other->source.path), "verified");
    fprintf(out, "<span class=\"pill big %s\">%s</span>\n<h1>", r->failed ? "fail" : "pass",
            r->failed ? "Not the same model" : "Still the same model");
    apr_html_text(out, apr_html_base_name(shown->other->source.path));
    fputs("</h1>\n<p class=\"soft\"><code>", out);
    apr_html_text(out, shown->other->source.path);
    fprintf(out, "</code> (%s)<br>against <code>", apr_verify_types_text(&shown->other->model, types, sizeof types));
    apr_html_text(out, shown->reference->source.path);
    fprintf(out, "</code> (%s)<br>", apr_verify_types_text(&shown->reference->model, types, sizeof types));
    apr_html_text(out, apr_session_program(r->input->other.session)->architecture);
    fprintf(out, ", run on %s</p>\n", r->backend);
}

static void write_first_failure(FILE *out, const apr_verify_report *r)
{
    const apr_verify_check *const failure = apr_verify_first_failure(r);

    if (failure == NULL) return;
    const apr_verify_line line = apr_verify_line_of(r, failure);
    fprintf(out, "<div class=\"broken\"><b>First to fail: %s.</b> ", line.title);
    apr_html_text(out, line.found);
    if (line.where[0] != '\0') fputs("<br>", out);
    apr_html_text(out, line.where);
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
        fprintf(out, "<tr><td><span class=\"pill %s\">%s</span></td><td>%s</td><td>", names[c->verdict], names[c->verdict], line.title);
        apr_html_text(out, line.found);
        if (line.where[0] != '\0') {
            fprintf(out, "<div class=\"%s\">", c->verdict == APR_VERDICT_FAIL ? "where" : "soft small");
            apr_html_text(out, line.where);
            fputs("</div>", out);
        }
        fputs("</td><td class=\"soft\">", out);
        apr_html_text(out, line.bound);
        fputs("</td></tr>\n", out);
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
        fputs("<div class=\"card\"><b>", out);
        apr_html_text(out, r->texts[i].name);
        fprintf(out,
                "</b> <span class=\"soft small\">&ensp;%lld positions in windows of %lld: mean %.3g, median %.3g, 99th percentile %.3g, "
                "largest %.3g</span>\n"
                "<div class=\"legend\"><span><i class=\"swatch\" style=\"background:var(--one)\"></i>mean</span><span><i "
                "style=\"background:var(--one-soft)\"></i>up to the largest</span><span><i style=\"background:var(--fail);height:2px;"
                "vertical-align:4px\"></i>bound of the mean</span></div>\n",
                (long long)d->n_rows, (long long)d->window, d->mean, d->median, d->p99, d->largest);
        apr_picture_divergence(out, d, r->texts[i].bound);
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
                "<h2>Backend by layer</h2>\n<p class=\"soft\">The same weights on %s and in the plain reference code: the worst operation "
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
    apr_picture_memory(out, parts, APR_VERIFY_MEMORY_PARTS + 1);
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
        fputs("<div class=\"card\"><b>", out);
        apr_html_text(out, a->prompt);
        if (a->same) fputs("</b> <span class=\"pill pass\">word for word</span>", out);
        else
            fprintf(out, "</b> <span class=\"pill note\">the same for %lld of %lld tokens</span>", (long long)a->n_same,
                    (long long)a->n_reference);
        fputs("<div class=\"answer\"><div><span class=\"soft small\">reference</span><pre>", out);
        apr_html_text(out, a->reference);
        fputs("</pre></div><div><span class=\"soft small\">this model</span><pre>", out);
        apr_html_text(out, a->other);
        fputs("</pre></div></div></div>\n", out);
    }
}

static void write_page(FILE *out, const void *of)
{
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
    return apr_html_write(write_page, shown, page, err);
}
