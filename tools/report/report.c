/* report.c - writes each fact to a table, a line, or the answer's JSON. */
#include "tools/report/report.h"

#include "tools/report/html.h"
#include "tools/report/terminal.h"
#include "tools/report/text.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { FACT_TEXT = 1024 };

static const apr_column fact_columns[] = {{NULL, false}, {NULL, false}};

void apr_report_start(apr_report *r, apr_answer *answer, apr_error *err)
{
    *r = (apr_report){.out = stdout, .json = answer->json ? &answer->body : NULL, .err = err};
}

apr_status apr_report_end(apr_report *r) { return r->status; }

/* A page that is made of a report. */
typedef struct report_page {
    void (*write)(apr_report *r, const void *shown);
    const void *shown;
    apr_report *report;
} report_page;

static void write_page(FILE *out, const void *of)
{
    const report_page *const page = of;

    page->report->out = out;
    page->write(page->report, page->shown);
}

apr_status apr_report_page(void (*write)(apr_report *r, const void *shown), const void *shown, apr_out *page, apr_error *err)
{
    apr_report r = {.is_page = true, .err = err};
    char *text;
    size_t n;

    APR_TRY(apr_html_page(write_page, &(report_page){write, shown, &r}, &text, &n, err));
    if (r.status == APR_OK) r.status = apr_out_write(page, text, n, NULL, err);
    free(text);
    return r.status;
}

/* --- blocks --- */

static void print_heading(apr_report *r, const char *heading)
{
    if (heading[0] != '\0') fprintf(r->out, "%s%s%s%s\n", r->has_printed ? "\n" : "", apr_bold(r->out), heading, apr_plain(r->out));
    r->has_printed = true;
}

/* Begins a block: in JSON with a bracket, unless its members go to what is open; in text with a heading. */
static void open_block(apr_report *r, const char *heading, const char *key, char bracket)
{
    r->is_off = r->status != APR_OK || (r->json != NULL ? key : heading) == NULL;
    r->has_row = false;
    r->bracket = 0;
    r->label_columns = 0;
    if (r->is_off) return;
    if (r->json == NULL) {
        print_heading(r, heading);
    } else if (key[0] != '\0') {
        apr_json_open(r->json, key, bracket);
        r->bracket = bracket == '[' ? ']' : '}';
    }
}

void apr_report_facts_in(apr_report *r, const char *heading, const char *key, const apr_column *columns, size_t n_columns)
{
    open_block(r, heading, key, '{');
    apr_table_start(&r->table, columns, n_columns);
    r->indent = 2;
}

void apr_report_facts(apr_report *r, const char *heading, const char *key) { apr_report_facts_in(r, heading, key, fact_columns, 2); }

void apr_report_lines(apr_report *r, int label_columns)
{
    open_block(r, "", "", '{');
    r->label_columns = label_columns;
}

void apr_report_table(apr_report *r, const char *heading, const char *key, const apr_column *columns, size_t n_columns)
{
    open_block(r, heading, key, '[');
    apr_table_start(&r->table, columns, n_columns);
    r->indent = 2;
}

static void close_row(apr_report *r)
{
    if (r->has_row && r->json != NULL) apr_json_close(r->json, '}');
    r->has_row = false;
}

void apr_report_continue(apr_report *r, const char *key, const apr_column *columns)
{
    if (r->is_off || r->json == NULL) return;
    close_row(r);
    apr_json_close(r->json, ']');
    apr_json_open(r->json, key, '[');
    r->table.columns = columns;
}

void apr_report_row(apr_report *r)
{
    if (r->is_off) return;
    close_row(r);
    if (r->json != NULL) apr_json_open(r->json, NULL, '{');
    r->has_row = true;
    r->column = 0;
}

static void show_table(apr_report *r)
{
    if (!r->is_page) {
        r->status = apr_table_print(&r->table, r->out, r->indent, r->err);
        return;
    }
    if (r->table.failed) r->status = apr_no_memory(r->err, "a table");
    else apr_html_table(r->out, &r->table);
    apr_table_close(&r->table);
}

void apr_report_close(apr_report *r)
{
    close_row(r);
    if (r->bracket != 0) apr_json_close(r->json, r->bracket);
    if (!r->is_off && r->json == NULL && r->label_columns == 0) show_table(r);
    r->bracket = 0;
    r->is_off = r->status != APR_OK;
}

/* --- facts --- */

static void put_json(apr_report *r, const char *key, const apr_json_value *value)
{
    switch (value->kind) {
    case APR_JSON_ABSENT: break;
    case APR_JSON_NULL: apr_json_null(r->json, key); break;
    case APR_JSON_TEXT: apr_json_string(r->json, key, value->text, value->number.n_bytes); break;
    case APR_JSON_INT: apr_json_int(r->json, key, value->number.i); break;
    case APR_JSON_UINT: apr_json_uint(r->json, key, value->number.u); break;
    case APR_JSON_REAL: apr_json_real(r->json, key, value->number.real); break;
    case APR_JSON_BOOL: apr_json_bool(r->json, key, value->number.b); break;
    }
}

static void put_text(apr_report *r, const char *label, const char *format, va_list args)
{
    char text[FACT_TEXT];

    vsnprintf(text, sizeof text, format, args);
    if (r->label_columns > 0) {
        fprintf(r->out, "  %-*s  %s\n", r->label_columns, label, apr_printable(text));
        return;
    }
    apr_table_cell(&r->table, "%s", label);
    apr_table_cell(&r->table, "%s", text);
}

void apr_report_fact(apr_report *r, const char *key, apr_json_value value, const char *label, const char *format, ...)
{
    va_list args;

    r->column = 2; /* after its label and its value */
    if (key != NULL) apr_report_member(r, key, value);
    if (r->is_off || r->json != NULL || label == NULL) return;
    va_start(args, format);
    put_text(r, label, format, args);
    va_end(args);
}

void apr_report_string(apr_report *r, const char *key, const char *label, const char *text)
{
    if (text != NULL) apr_report_fact(r, key, apr_as_text(text), label, "%s", text);
}

void apr_report_count(apr_report *r, const char *key, const char *label, int64_t n)
{
    char text[APR_SMALL_TEXT];
    apr_report_fact(r, key, apr_as_int(n), label, "%s", apr_count_text(text, n));
}

void apr_report_cell(apr_report *r, apr_json_value value, const char *format, ...)
{
    char text[FACT_TEXT];
    va_list args;

    if (r->is_off) return;
    const char *const key = r->table.columns[r->column++].key;
    if (r->json != NULL) {
        if (key != NULL) put_json(r, key, &value);
        return;
    }
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    apr_table_cell(&r->table, "%s", text);
}

void apr_report_real(apr_report *r, double value)
{
    if (!r->is_off) apr_report_cell(r, apr_as_real(value), "%.*f", r->table.columns[r->column].decimals, value);
}

/* --- what only one form has --- */

void apr_report_print(apr_report *r, const char *format, ...)
{
    va_list args;

    if (r->json != NULL || r->is_page) return;
    va_start(args, format);
    vfprintf(r->out, format, args);
    va_end(args);
}

void apr_report_member(apr_report *r, const char *key, apr_json_value value)
{
    if (!r->is_off && r->json != NULL) put_json(r, key, &value);
}

void apr_report_reals(apr_report *r, const char *key, const double *values, size_t n)
{
    if (!r->is_off && r->json != NULL) apr_json_reals(r->json, key, values, n);
}

void apr_report_open(apr_report *r, const char *key, char bracket)
{
    if (!r->is_off && r->json != NULL) apr_json_open(r->json, key, bracket);
}

void apr_report_shut(apr_report *r, char bracket)
{
    if (!r->is_off && r->json != NULL) apr_json_close(r->json, bracket);
}
