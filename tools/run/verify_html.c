/* verify_html.c - the report as one HTML page: no script, nothing from elsewhere, light and dark. */
#include "tools/cli/text.h"
#include "tools/run/verify_pictures.h"
#include "tools/run/verify_verb.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char style[] =
    ":root{--bg:#fafaf8;--card:#fff;--ink:#1d2024;--soft:#636a73;--line:#e3e4e1;--grid:#ecedea;--one:#2b6cb0;--one-soft:#bcd3ea;--two:#"
    "c2701c;"
    "--pass:#1b7f4d;--pass-bg:#e4f4ea;--fail:#b8322a;--fail-bg:#fbe7e5;--note:#6b7280;--note-bg:#eef0f2}\n"
    "@media(prefers-color-scheme:dark){:root{--bg:#15171a;--card:#1c1f23;--ink:#e7e8ea;--soft:#9aa2ac;--line:#2d3238;--grid:#262a30;--one:#"
    "6fa8e6;"
    "--one-soft:#2f4a68;--two:#e5a15a;--pass:#6fd39d;--pass-bg:#173626;--fail:#f08a80;--fail-bg:#43201d;--note:#a3abb5;--note-bg:#2a2f35}}"
    "\n"
    "*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,'Segoe "
    "UI',Roboto,sans-serif;"
    "-webkit-font-smoothing:antialiased}\n"
    "main{max-width:1000px;margin:0 auto;padding:40px 24px 64px}h1{font-size:26px;line-height:1.25;margin:14px 0 "
    "6px;overflow-wrap:anywhere}\n"
    "h2{font-size:18px;margin:44px 0 4px}p{margin:4px 0 12px}.soft{color:var(--soft)}.small{font-size:13px}code{font:13px/1.5 ui-monospace,"
    "SFMono-Regular,Menlo,Consolas,monospace;overflow-wrap:anywhere}\n"
    ".pill{display:inline-block;padding:2px 10px;border-radius:99px;font-size:13px;font-weight:600}.big{font-size:15px;padding:5px 16px}\n"
    ".pass{color:var(--pass);background:var(--pass-bg)}.fail{color:var(--fail);background:var(--fail-bg)}.note{color:var(--note);"
    "background:var(--note-bg)}\n"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(190px,1fr));gap:12px;margin:24px 0 "
    "8px}.tile,.card{background:var(--card);"
    "border:1px solid var(--line);border-radius:10px}.tile{padding:14px 16px}.tile "
    "b{display:block;font-size:24px;line-height:1.3;font-variant-numeric:"
    "tabular-nums;font-weight:600}.card{padding:16px;margin:12px 0;overflow-x:auto}\n"
    "table{border-collapse:collapse;width:100%;font-size:14px}td,th{text-align:left;padding:8px 12px 8px 0;border-top:1px solid "
    "var(--line);vertical-align:"
    "top}tr:first-child td{border-top:0}td:first-child{width:64px}.where{color:var(--fail);font-size:13px;overflow-wrap:anywhere}\n"
    ".broken{border-left:4px solid var(--fail);background:var(--fail-bg);padding:12px 16px;border-radius:6px;margin:16px "
    "0;overflow-wrap:anywhere}\n"
    "svg{display:block;width:100%;height:auto}svg text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;fill:var(--soft)}svg "
    ".ink{fill:"
    "var(--ink)}.grid{stroke:var(--grid)}.axis{stroke:var(--line)}.bound{stroke:var(--fail);stroke-dasharray:5 4}svg "
    ".bound-text{fill:var(--fail);stroke:var(--card);stroke-width:4px;paint-order:stroke}svg "
    ".on-bar{fill:var(--card)}.fill-fail{fill:var(--fail)}\n"
    ".fill-one{fill:var(--one)}.fill-soft{fill:var(--one-soft)}.fill-two{fill:var(--two)}.line-one{stroke:var(--one);fill:none;stroke-"
    "width:1.8;"
    "stroke-linejoin:round}.line-two{stroke:var(--two);fill:none;stroke-width:1.8;stroke-linejoin:round}.hollow{fill:none;stroke:var(--one)"
    ";stroke-width:1.5}\n"
    ".answer{display:grid;grid-template-columns:1fr 1fr;gap:16px}.answer pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:4px 0 "
    "0;font:13px/1.5 "
    "ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}@media(max-width:640px){.answer{grid-template-columns:1fr}}\n"
    ".legend{display:flex;flex-wrap:wrap;gap:4px 20px;font-size:13px;color:var(--soft);margin:2px 0 10px}.legend "
    "i{display:inline-block;width:12px;height:12px;"
    "border-radius:3px;margin-right:6px;vertical-align:-1px}footer{margin-top:48px;color:var(--soft);font-size:13px}\n";

void apr_html_text(FILE *out, const char *text)
{
    char *const clean = malloc(4 * strlen(text) + 1); /* what is not UTF-8 becomes \xnn */

    if (clean == NULL) return;
    apr_clean_text(clean, 4 * strlen(text) + 1, text, strlen(text));
    for (const char *c = clean; *c != '\0'; c++) {
        if (*c == '<') fputs("&lt;", out);
        else if (*c == '>') fputs("&gt;", out);
        else if (*c == '&') fputs("&amp;", out);
        else if (*c == '"') fputs("&quot;", out);
        else fputc(*c, out);
    }
    free(clean);
}

static const char *base_name(const char *path)
{
    const char *const slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

static void write_head(FILE *out, const apr_verify_shown *shown)
{
    const apr_verify_report *const r = shown->report;
    char types[256];

    fputs("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"generator\" " APR_VERIFY_PAGE_MARK
          "><meta name=\"viewport\" "
          "content=\"width=device-width,initial-scale=1\">\n"
          "<meta name=\"color-scheme\" content=\"light dark\"><title>",
          out);
    apr_html_text(out, base_name(shown->other->source.path));
    fprintf(out, " - verified</title>\n<style>\n%s</style></head><body><main>\n", style);
    fprintf(out, "<span class=\"pill big %s\">%s</span>\n<h1>", r->failed ? "fail" : "pass",
            r->failed ? "Not the same model" : "Still the same model");
    apr_html_text(out, base_name(shown->other->source.path));
    fputs("</h1>\n<p class=\"soft\"><code>", out);
    apr_html_text(out, shown->other->source.path);
    fprintf(out, "</code> (%s)<br>against <code>", apr_verify_types_text(&shown->other->model, types, sizeof types));
    apr_html_text(out, shown->truth->source.path);
    fprintf(out, "</code> (%s)<br>%s, run on %s</p>\n", apr_verify_types_text(&shown->truth->model, types, sizeof types),
            apr_session_program(r->input->other.session)->architecture, r->backend);
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

static void tile(FILE *out, const char *figure, const char *what)
{
    fprintf(out, "<div class=\"tile\"><b>%s</b><span class=\"soft small\">%s</span></div>\n", figure, what);
}

static void write_tiles(FILE *out, const apr_verify_report *r)
{
    char text[APR_SMALL_TEXT], figure[64], what[200];

    fputs("<div class=\"tiles\">\n", out);
    if (r->n_texts > 0) {
        const apr_divergence *const d = &r->texts[r->n_texts - 1].d;
        snprintf(figure, sizeof figure, "%.3g", d->mean);
        tile(out, figure, "mean KL divergence, nats");
        snprintf(figure, sizeof figure, "%.*f %%", d->same_top == 1.0 ? 0 : 2, 100.0 * d->same_top);
        tile(out, figure, "same most likely token");
        snprintf(figure, sizeof figure, "%.3f", d->perplexity_other);
        snprintf(what, sizeof what, "perplexity; reference %.3f", d->perplexity_truth);
        tile(out, figure, what);
    }
    snprintf(what, sizeof what, "of memory to run with %lld tokens", (long long)apr_session_plan(r->input->other.session)->n_ctx);
    tile(out, apr_size_text(text, apr_verify_memory_total(r).predicted), what);
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
    if (r->operations.n_judged > 0) {
        fputs("<h2>Error by layer</h2>\n<p class=\"soft\">Bars: the worst operation of the layer when it begins with the reference&#39;s "
              "numbers, so a "
              "tall bar belongs to that layer alone. Line: hidden states when both models go their own way.</p>\n<div class=\"card\"><div "
              "class=\"legend\">"
              "<span><i style=\"background:var(--one)\"></i>worst operation, same input</span><span><i "
              "style=\"background:var(--two)\"></i>hidden states, adding "
              "up</span></div>\n",
              out);
        apr_picture_layers(out, r->operations.worst_relative, r->operations.n_layers, r->drift, r->n_drift, NAN);
        fputs("</div>\n", out);
    }
    if (r->backends.n_judged > 0) {
        fprintf(out,
                "<h2>Backend by layer</h2>\n<p class=\"soft\">The same weights on %s and in plain loops: the worst operation of each layer "
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
    fputs("<h2>Greedy answers</h2>\n<p class=\"soft\">One near tie decides otherwise, and the texts part: that alone is no damage. "
          "Nonsense is.</p>\n",
          out);
    for (size_t i = 0; i < r->n_answers; i++) {
        const apr_verify_answer *const a = &r->answers[i];
        fputs("<div class=\"card\"><b>", out);
        apr_html_text(out, a->prompt);
        if (a->same) fputs("</b> <span class=\"pill pass\">word for word</span>", out);
        else
            fprintf(out, "</b> <span class=\"pill note\">the first %lld of %lld tokens</span>", (long long)a->n_same,
                    (long long)a->n_truth);
        fputs("<div class=\"answer\"><div><span class=\"soft small\">reference</span><pre>", out);
        apr_html_text(out, a->truth);
        fputs("</pre></div><div><span class=\"soft small\">this model</span><pre>", out);
        apr_html_text(out, a->other);
        fputs("</pre></div></div></div>\n", out);
    }
}

static void write_page(FILE *out, const apr_verify_shown *shown)
{
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
            "<footer>aprkit %s, aprrun verify. KL divergence of float32 logits summed in double, nothing "
            "clipped.</footer>\n</main></body></html>\n",
            APR_VERSION);
}

apr_status apr_verify_html(const apr_verify_shown *shown, apr_out *page, apr_error *err)
{
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *const stream = open_memstream(&text, &n_bytes);

    if (stream == NULL) return apr_no_memory(err, "the page");
    write_page(stream, shown);
    const bool failed = ferror(stream) != 0;
    if (fclose(stream) != 0 || failed) {
        free(text);
        return apr_no_memory(err, "the page");
    }
    const apr_status status = apr_out_write(page, text, n_bytes, NULL, err);
    free(text);
    return status;
}
