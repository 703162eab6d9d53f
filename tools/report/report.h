/* report.h - what a verb answers, written once and rendered in the form that was asked for: text for people, JSON for programs, tables of a page.
 *
 * A verb walks over its answer once and states each fact with both of its faces: a label or a column's title for people, a key for programs.
 * Where one of them is NULL, that form leaves the fact out. So a fact that has another shape in JSON is stated twice, next to each other,
 * and nothing is forgotten. A report is a series of blocks, which are facts (a name and a value each) or the rows of a table; between them
 * and within them there may be lines that only text has, and members, arrays and objects that only JSON has.
 *
 *     apr_report_start(&r, call->answer, err);
 *     apr_report_facts(&r, "Tokenizer", "tokenizer");
 *     apr_report_fact(&r, "n_tokens", apr_as_uint(n), "tokens", "%zu, %zu of them control tokens", n, n_control);
 *     apr_report_close(&r);
 *     return apr_report_end(&r);
 *
 * After a failure (memory runs out) blocks and members do nothing, and apr_report_end returns it. */
#ifndef APR_TOOLS_REPORT_H
#define APR_TOOLS_REPORT_H

#include "formats/files/out.h"
#include "tools/report/answer.h"
#include "tools/report/table.h"

/* A value as JSON has it. */
typedef struct apr_json_value {
    enum { APR_JSON_ABSENT, APR_JSON_NULL, APR_JSON_TEXT, APR_JSON_INT, APR_JSON_UINT, APR_JSON_REAL, APR_JSON_BOOL } kind;
    const char *text;
    union {
        int64_t i;
        uint64_t u;
        double real;
        bool b;
        size_t n_bytes; /* of text */
    } number;
} apr_json_value;

static inline apr_json_value apr_as_absent(void) { return (apr_json_value){.kind = APR_JSON_ABSENT}; }
static inline apr_json_value apr_as_bytes(const char *text, size_t n_bytes)
{
    return (apr_json_value){.kind = APR_JSON_TEXT, .text = text, .number.n_bytes = n_bytes};
}
/* text NULL: the member is left out. */
static inline apr_json_value apr_as_text(const char *text) { return text != NULL ? apr_as_bytes(text, strlen(text)) : apr_as_absent(); }
static inline apr_json_value apr_as_null(void) { return (apr_json_value){.kind = APR_JSON_NULL}; }
static inline apr_json_value apr_as_text_or_null(const char *text) { return text != NULL ? apr_as_text(text) : apr_as_null(); }
/* "": the member is left out. */
static inline apr_json_value apr_as_filled(const char *text) { return text[0] != '\0' ? apr_as_text(text) : apr_as_absent(); }
static inline apr_json_value apr_as_int(int64_t i) { return (apr_json_value){.kind = APR_JSON_INT, .number.i = i}; }
static inline apr_json_value apr_as_uint(uint64_t u) { return (apr_json_value){.kind = APR_JSON_UINT, .number.u = u}; }
static inline apr_json_value apr_as_real(double real) { return (apr_json_value){.kind = APR_JSON_REAL, .number.real = real}; }
static inline apr_json_value apr_as_bool(bool b) { return (apr_json_value){.kind = APR_JSON_BOOL, .number.b = b}; }

typedef struct apr_report {
    FILE *out;           /* of text and of a page */
    apr_json_text *json; /* NULL: text or a page */
    bool is_page;        /* only tables are shown */
    apr_table table;     /* of the open block, in text */
    int indent;          /* of the table */
    int label_columns;   /* of a block of lines; 0: the block is a table */
    bool is_off;         /* the open block is not in this form */
    bool has_row;
    size_t column;    /* of the next cell */
    char bracket;     /* that closes the open block in JSON; 0: none */
    bool has_printed; /* something, in text */
    apr_status status;
    apr_error *err;
} apr_report;

void apr_report_start(apr_report *r, apr_answer *answer, apr_error *err);
apr_status apr_report_end(apr_report *r);
/* Writes a page (html.h) with the output of `write`: its HTML to r->out, and tables. APR_E_MEMORY, or the status of writing. */
apr_status apr_report_page(void (*write)(apr_report *r, const void *shown), const void *shown, apr_out *page, apr_error *err);

/* --- what only one form has --- */

/* printf, in text. */
void apr_report_print(apr_report *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A member of what is open in JSON. */
void apr_report_member(apr_report *r, const char *key, apr_json_value value);
void apr_report_reals(apr_report *r, const char *key, const double *values, size_t n);
/* An array or object in JSON: '[' or '{', and ']' or '}'. */
void apr_report_open(apr_report *r, const char *key, char bracket);
void apr_report_shut(apr_report *r, char bracket);

/* --- blocks --- */

/* Begins a block of facts, in text a table of two columns. heading "": none. key "": members of what is open. */
void apr_report_facts(apr_report *r, const char *heading, const char *key);
/* The same with columns of their own: one of labels, one of values, and others for cells. */
void apr_report_facts_in(apr_report *r, const char *heading, const char *key, const apr_column *columns, size_t n_columns);
/* Without heading and key: a line for each fact, printed at once. Labels take `label_columns`. */
void apr_report_lines(apr_report *r, int label_columns);
/* Begins a table, in JSON an array of objects. Each column has its key in JSON, or NULL (table.h). */
void apr_report_table(apr_report *r, const char *heading, const char *key, const apr_column *columns, size_t n_columns);
/* In JSON the next rows are another array, with the keys of these columns; in text the table goes on. */
void apr_report_continue(apr_report *r, const char *key, const apr_column *columns);
void apr_report_row(apr_report *r);
/* Ends a block. */
void apr_report_close(apr_report *r);

/* A fact. The format is that of its text. */
void apr_report_fact(apr_report *r, const char *key, apr_json_value value, const char *label, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* A fact that has the same value in both forms; NULL: it is left out of both. */
void apr_report_string(apr_report *r, const char *key, const char *label, const char *text);
/* A number of things, in text with separators: 1,234,567. */
void apr_report_count(apr_report *r, const char *key, const char *label, int64_t n);
/* The next cell of a row. */
void apr_report_cell(apr_report *r, apr_json_value value, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The same for a number with the column's decimals. */
void apr_report_real(apr_report *r, double value);

#endif
