/* html.c - the frame of an HTML report, its style sheet, and HTML escapes. */
#include "tools/report/html.h"

#include "tools/report/text.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const char style[] =
    ":root{--bg:#fafaf8;--card:#fff;--ink:#1d2024;--soft:#5b626b;--line:#e3e4e1;--grid:#ecedea;--one:#2b6cb0;--one-soft:#bcd3ea;"
    "--two:#c2701c;--pass:#1b7f4d;--pass-bg:#e4f4ea;--fail:#b8322a;--fail-bg:#fbe7e5;--note:#5b626b;--note-bg:#eef0f2}\n"
    "@media(prefers-color-scheme:dark){:root{--bg:#15171a;--card:#1c1f23;--ink:#e7e8ea;--soft:#9aa2ac;--line:#2d3238;--grid:#262a30;"
    "--one:#6fa8e6;--one-soft:#2f4a68;--two:#e5a15a;--pass:#6fd39d;--pass-bg:#173626;--fail:#f08a80;--fail-bg:#43201d;--note:#a3abb5;"
    "--note-bg:#2a2f35}}\n"
    "*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,"
    "sans-serif;-webkit-font-smoothing:antialiased;-webkit-text-size-adjust:100%}main{max-width:1000px;margin:0 auto;padding:40px 24px "
    "64px}"
    "h1{font-size:26px;line-height:1.25;margin:14px 0 6px;overflow-wrap:anywhere}h2{font-size:18px;margin:44px 0 4px}p{margin:4px 0 12px;"
    "overflow-wrap:anywhere}.soft{color:var(--soft)}.small{font-size:13px}"
    "code{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;overflow-wrap:anywhere}a{color:var(--one)}\n"
    ".pill{display:inline-block;white-space:nowrap;padding:2px "
    "10px;border-radius:99px;font-size:13px;font-weight:600}.big{font-size:15px;padding:5px 16px}"
    ".pass{color:var(--pass);background:var(--pass-bg)}.fail{color:var(--fail);background:var(--fail-bg)}"
    ".note{color:var(--note);background:var(--note-bg)}\n"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(190px,1fr));gap:12px;margin:24px 0 8px}.tile,.card{background:"
    "var(--card);border:1px solid var(--line);border-radius:10px}.tile{padding:14px 16px}.tile b{display:block;font-size:24px;line-height:"
    "1.3;font-variant-numeric:tabular-nums;font-weight:600}.card{padding:16px;margin:12px 0}.finding{display:block;font-weight:600;"
    "margin-bottom:2px;overflow-wrap:anywhere}\n"
    "table{border-collapse:collapse;width:100%;font-size:14px}td,th{text-align:left;padding:8px 16px 8px 0;border-top:1px solid "
    "var(--line);vertical-align:top}td:last-child,th:last-child{padding-right:0}tr:first-child>*{border-top:0}th{font-weight:600;color:"
    "var(--soft);font-size:13px}td{overflow-wrap:anywhere}td.number,th.number{text-align:right;font-variant-numeric:tabular-nums;"
    "overflow-wrap:normal}.tensors td:nth-child(4),.tensors "
    "th:nth-child(4){text-align:right;white-space:nowrap}.where{color:var(--fail);font-size:13px;overflow-wrap:anywhere}.best{font-weight:"
    "700}\n"
    ".broken{border-left:4px solid var(--fail);background:var(--fail-bg);padding:12px 16px;border-radius:6px;margin:16px 0;"
    "overflow-wrap:anywhere}\n"
    "details{margin:8px 0}summary{cursor:pointer;color:var(--soft);font-size:13px;overflow-wrap:anywhere}details[open]>summary{margin-"
    "bottom:6px}.about{display:grid;grid-template-columns:1fr 1fr;gap:4px 32px;font-size:13px;margin:16px 0;padding:12px 0;border-top:1px "
    "solid var(--line);border-bottom:1px solid var(--line)}.about dl{margin:0;display:grid;grid-template-columns:max-content 1fr;gap:0 "
    "12px;align-content:start}.about dt{color:var(--soft)}.about dd{margin:0;overflow-wrap:anywhere}.about b{grid-column:1/3}"
    ".contents{font-size:13px;line-height:1.9}.contents a{margin-right:16px;white-space:nowrap}\n"
    "svg{display:block;width:100%;height:auto}svg text{font:13px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;fill:var(--soft)}"
    "svg .ink{fill:var(--ink)}svg .best{font-weight:700}.grid{stroke:var(--grid)}.axis{stroke:var(--line)}.bound{stroke:var(--fail);"
    "stroke-dasharray:5 4}"
    "svg .bound-text{fill:var(--fail);stroke:var(--card);stroke-width:4px;paint-order:stroke}svg .halo{stroke:var(--card);stroke-width:"
    "3px;paint-order:stroke}"
    "svg .on-bar{fill:var(--card)}.fill-fail{fill:var(--fail)}.fill-one{fill:var(--one)}.fill-soft{fill:var(--one-soft)}"
    ".fill-two{fill:var(--two)}.line-one{stroke:var(--one);fill:none;stroke-width:1.8;stroke-linejoin:round}.line-two{stroke:var(--two);"
    "fill:none;stroke-width:1.8;stroke-linejoin:round}.hollow{fill:none;stroke:var(--one);stroke-width:1.5}svg.narrow{display:none}\n"
    ".answer{display:grid;grid-template-columns:1fr 1fr;gap:16px}.answer pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:4px 0 0;"
    "font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}mark{background:var(--fail-bg);color:inherit;border-bottom:2px "
    "solid var(--fail)}\n"
    ".legend{display:flex;flex-wrap:wrap;gap:4px 20px;font-size:13px;color:var(--soft);margin:2px 0 10px}.legend i{display:inline-block;"
    "width:12px;height:12px;border-radius:3px;margin-right:6px;vertical-align:-1px}footer{margin-top:48px;color:var(--soft);"
    "font-size:13px}\n"
    "@media(max-width:899px){svg.wide{display:none}svg.narrow{display:block;max-width:560px;margin:0 auto}}\n"
    "@media(min-width:560px) and (max-width:899px){.narrow text{font-size:9.5px}}\n"
    "@media(max-width:640px){main{padding:20px 12px 40px}.card{padding:12px 10px}h2{margin-top:32px}.answer,.about{grid-template-columns:"
    "1fr}.tiles{grid-template-columns:1fr 1fr}.tile{padding:10px 12px}.tile b{font-size:19px}"
    "table,tbody,tr,td,td.number{display:block;width:auto;text-align:left;padding:0;border:0}tr{border-top:1px solid "
    "var(--line)!important;padding:8px "
    "0}tr:first-child,tr.titles+tr{border-top:0!important}tr.titles{display:none}td[data-title=\"\"]{justify-content:flex-start}td{display:"
    "flex!important;gap:12px;"
    "justify-content:space-between;padding:1px 0!important}td::before{content:attr(data-title);color:var(--soft);flex:none;max-width:"
    "45%}td:empty{display:none!important}.tensors td:first-child{justify-content:flex-start;font-weight:600}.tensors "
    "td:nth-child(2)::before{content:\"from\"}.tensors td:nth-child(3)::before{content:"
    "\"to\"}.tensors td:nth-child(4)::before{content:\"error\"}.tensors td:nth-child(5)::before{content:\"why\"}}\n";

static void escape(FILE *out, const char *text, size_t n)
{
    char *const clean = malloc(4 * n + 1); /* invalid UTF-8 becomes \xnn */

    if (clean == NULL) return;
    apr_clean_text(clean, 4 * n + 1, text, n);
    for (const char *c = clean; *c != '\0'; c++) {
        if (*c == '<') fputs("&lt;", out);
        else if (*c == '>') fputs("&gt;", out);
        else if (*c == '&') fputs("&amp;", out);
        else if (*c == '"') fputs("&quot;", out);
        else fputc(*c, out);
    }
    free(clean);
}

void apr_html_text(FILE *out, const char *text) { escape(out, text, strlen(text)); }

void apr_html_lines(FILE *out, const char *text, size_t n_bytes)
{
    for (size_t at = 0; at < n_bytes;) {
        size_t n = 0;
        while (at + n < n_bytes && text[at + n] != '\n' && text[at + n] != '\t') n++;
        escape(out, text + at, n);
        at += n;
        if (at < n_bytes) fputc(text[at++], out);
    }
}

/* Writes the argument of the directive that `format` begins with, such as %s or %.3g. Returns what follows the directive. */
static const char *print_argument(FILE *out, const char *format, va_list *args)
{
    const size_t n = strcspn(format + 1, "%sdufgx") + 2;
    char directive[16];

    snprintf(directive, sizeof directive, "%.*s", (int)n, format);
    if (format[n - 1] == '%') fputc('%', out);
    else if (format[n - 1] == 's') apr_html_text(out, va_arg(*args, const char *));
    else if (strchr("fg", format[n - 1]) != NULL) fprintf(out, directive, va_arg(*args, double));
    else if (strstr(directive, "ll") != NULL) fprintf(out, directive, va_arg(*args, long long));
    else if (strchr(directive, 'z') != NULL) fprintf(out, directive, va_arg(*args, size_t));
    else fprintf(out, directive, va_arg(*args, int));
    return format + n;
}

void apr_html_print(FILE *out, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    while (*format != '\0') {
        const size_t n = strcspn(format, "%");
        fwrite(format, 1, n, out);
        format += n;
        if (*format == '%') format = print_argument(out, format, &args);
    }
    va_end(args);
}

const char *apr_html_base_name(const char *path)
{
    const char *const slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

void apr_html_open(FILE *out, const char *mark, const char *name, const char *what)
{
    fprintf(out,
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"generator\" %s><meta name=\"viewport\" "
            "content=\"width=device-width,initial-scale=1\">\n"
            "<meta name=\"color-scheme\" content=\"light dark\"><title>",
            mark);
    apr_html_print(out, "%s - %s", name, what);
    fprintf(out, "</title>\n<style>\n%s</style></head><body><main>\n", style);
}

void apr_html_tile(FILE *out, const char *figure, const char *what)
{
    fprintf(out, "<div class=\"tile\"><b>%s</b><span class=\"soft small\">%s</span></div>\n", figure, what);
}

/* --- sections and their list --- */

static const char section[] = "<h2 id=\"", contents[] = "<nav class=\"contents\"></nav>\n";

void apr_html_section(FILE *out, const char *title)
{
    fputs(section, out);
    for (const char *c = title; *c != '\0'; c++)
        if (*c >= 'A' && *c <= 'Z') fputc(*c - 'A' + 'a', out);
        else if ((*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9')) fputc(*c, out);
        else if (*c == ' ') fputc('-', out);
    apr_html_print(out, "\">%s</h2>\n", title);
}

void apr_html_contents(FILE *out) { fputs(contents, out); }

/* Writes a link for the heading at `at`: <h2 id="ID">TITLE</h2>. */
static void write_link(FILE *out, const char *at)
{
    const char *const id = at + sizeof section - 1, *const title = strchr(id, '>') + 1;

    fprintf(out, "<a href=\"#%.*s\">%.*s</a> ", (int)strcspn(id, "\""), id, (int)strcspn(title, "<"), title);
}

/* Writes the text of a whole page with its list of contents. */
static void list_sections(FILE *out, const void *written)
{
    enum { FEW = 3 };
    const char *const page = written, *const place = strstr(page, contents);
    int n = 0;

    for (const char *at = strstr(page, section); at != NULL; at = strstr(at + 1, section)) n++;
    if (place == NULL || n <= FEW) {
        const size_t n_before = place != NULL ? (size_t)(place - page) : 0;
        fwrite(page, 1, n_before, out);
        fputs(page + n_before + (place != NULL ? sizeof contents - 1 : 0), out);
        return;
    }
    fwrite(page, 1, (size_t)(place - page), out);
    fputs("<nav class=\"contents\">", out);
    for (const char *at = strstr(page, section); at != NULL; at = strstr(at + 1, section)) write_link(out, at);
    fprintf(out, "</nav>\n%s", place + sizeof contents - 1);
}

static apr_status write_in_memory(void (*write)(FILE *out, const void *shown), const void *shown, char **text, size_t *n_bytes,
                                  apr_error *err)
{
    FILE *const out = open_memstream(text, n_bytes);

    if (out == NULL) return apr_no_memory(err, "the page");
    write(out, shown);
    const bool is_written = ferror(out) == 0;
    return fclose(out) == 0 && is_written ? APR_OK : apr_no_memory(err, "the page");
}

apr_status apr_html_page(void (*write)(FILE *out, const void *shown), const void *shown, char **text, size_t *n_bytes, apr_error *err)
{
    char *plain = NULL;
    size_t n;

    *text = NULL;
    apr_status status = write_in_memory(write, shown, &plain, &n, err);
    if (status == APR_OK) status = write_in_memory(list_sections, plain, text, n_bytes, err);
    free(plain);
    if (status == APR_OK) return APR_OK;
    free(*text);
    *text = NULL;
    return status;
}

/* --- tables --- */

void apr_html_titles(FILE *out, const apr_column *columns, size_t n_columns)
{
    fputs("<tr class=\"titles\">", out);
    for (size_t c = 0; c < n_columns; c++)
        apr_html_print(out, columns[c].right ? "<th class=\"number\">%s</th>" : "<th>%s</th>", columns[c].title);
    fputs("</tr>\n", out);
}

void apr_html_cell(FILE *out, const apr_column *column)
{
    apr_html_print(out, column->right ? "<td class=\"number\" data-title=\"%s\">" : "<td data-title=\"%s\">", column->title);
}

void apr_html_table(FILE *out, const apr_table *table)
{
    fputs("<table>\n", out);
    apr_html_titles(out, table->columns, table->n_columns);
    for (size_t i = 0; i < table->n_cells; i++) {
        const size_t c = i % table->n_columns;
        fputs(c == 0 ? "<tr>" : "", out);
        apr_html_cell(out, &table->columns[c]);
        apr_html_print(out, "%s</td>", table->cells[i]);
        fputs(c + 1 == table->n_columns ? "</tr>\n" : "", out);
    }
    fputs("</table>\n", out);
}

void apr_html_values(FILE *out, apr_table *table)
{
    if (!table->failed) {
        fputs("<details><summary>Values</summary>\n", out);
        apr_html_table(out, table);
        fputs("</details>\n", out);
    }
    apr_table_close(table);
}

apr_status apr_html_close(apr_out *page, apr_status status, apr_error *err)
{
    apr_error own = {0};

    if (page == NULL || status > APR_E_NO) {
        apr_out_abandon(page);
        return status;
    }
    if (apr_out_finish(page, &own) == APR_OK) return status;
    *err = own;
    return own.status;
}
