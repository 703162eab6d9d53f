/* html.c - the frame of an HTML report, its style sheet, and HTML escapes. */
#include "tools/report/html.h"

#include "tools/report/text.h"

#include <stdarg.h>
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
    "top}tr:first-child td{border-top:0}td:first-child{width:64px}.wide "
    "td:first-child{width:auto;min-width:220px}.where{color:var(--fail);font-size:13px;overflow-wrap:anywhere}\n"
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
    "border-radius:3px;margin-right:6px;vertical-align:-1px}.number{text-align:right;font-variant-numeric:tabular-nums}footer{margin-top:"
    "48px;color:var(--soft);font-size:13px}\n";

void apr_html_text(FILE *out, const char *text)
{
    char *const clean = malloc(4 * strlen(text) + 1); /* invalid UTF-8 becomes \xnn */

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

void apr_html_table(FILE *out, const apr_table *table)
{
    fputs("<table>\n<tr>", out);
    for (size_t c = 0; c < table->n_columns; c++)
        apr_html_print(out, table->columns[c].right ? "<th class=\"number\">%s</th>" : "<th>%s</th>", table->columns[c].title);
    for (size_t i = 0; i < table->n_cells; i++) {
        const size_t c = i % table->n_columns;
        fputs(c == 0 ? "</tr>\n<tr>" : "", out);
        apr_html_print(out, table->columns[c].right ? "<td class=\"number\">%s</td>" : "<td>%s</td>", table->cells[i]);
    }
    fputs("</tr>\n</table>\n", out);
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
