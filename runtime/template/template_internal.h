/* template_internal.h - shared by the files of the template renderer: syntax tree nodes, and the interpreter (vm) that walks the tree.
 * Everything is allocated in the vm's arena. From the bottom up:
 *
 *   template_value.c     limits, UTF-8 text, values (template_value.h)
 *   template_text.c      output, values as text
 *   template_builtins.c  how a built-in is found and called
 *   template_methods.c   methods, members, formatting
 *   template_ops.c       operators and slices
 *   template_filters.c   filters, tests, functions
 *   template_parse.c, template_eval.c, template.c   the steps of a rendering */
#ifndef APR_RUNTIME_TEMPLATE_INTERNAL_H
#define APR_RUNTIME_TEMPLATE_INTERNAL_H

#include "runtime/template/template.h"
#include "runtime/template/template_value.h"

/* ---- nodes ---- */

typedef enum {
    /* expressions */
    NODE_CONST,   /* value */
    NODE_NAME,    /* text */
    NODE_LIST,    /* list */
    NODE_TUPLE,   /* list */
    NODE_DICT,    /* list: key, value, key, value, ... */
    NODE_ATTR,    /* a.text */
    NODE_ITEM,    /* a[b] */
    NODE_SLICE,   /* a[list[0]:list[1]:list[2]], each may be NULL */
    NODE_CALL,    /* a(args) */
    NODE_FILTER,  /* a | text(args); a is NULL in a filter block: the block's text */
    NODE_TEST,    /* a is text(args) */
    NODE_UNARY,   /* op a */
    NODE_BINARY,  /* a op b */
    NODE_COMPARE, /* a, then list of NODE_OPERAND: a < b < c */
    NODE_OPERAND, /* op a */
    NODE_CHOICE,  /* a if b else c; c may be NULL */
    /* statements */
    NODE_DATA,         /* text */
    NODE_PRINT,        /* a */
    NODE_BLOCK,        /* list */
    NODE_IF,           /* a: condition, b: then, c: else or NULL */
    NODE_FOR,          /* list[0] target; a: iterable, b: body, c: else or NULL, d: filter or NULL */
    NODE_SET,          /* list[0] target; a: value */
    NODE_SET_BLOCK,    /* list[0] target; b: body, a: filters of the body's text, or NULL */
    NODE_WITH,         /* list: target, value, ...; b: body */
    NODE_MACRO,        /* text, macro */
    NODE_CALL_BLOCK,   /* a: the call, macro: the caller */
    NODE_FILTER_BLOCK, /* a: filters, b: body */
    NODE_SCOPE,        /* b: body, in a new scope (generation) */
    NODE_BREAK,
    NODE_CONTINUE,
    NODE_KIND_COUNT
} apr_tpl_node_kind;

typedef enum {
    OP_NOT,
    OP_NEG,
    OP_POS,
    OP_AND,
    OP_OR,
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOORDIV,
    OP_MOD,
    OP_POW,
    OP_CONCAT,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOT_IN,
    OP_NONE
} apr_tpl_op;

typedef struct apr_tpl_node_list {
    struct apr_tpl_node **items;
    size_t n_items, capacity;
} apr_tpl_node_list;

typedef struct apr_tpl_arg {
    apr_tpl_text name; /* n_bytes 0: positional */
    char spread;       /* '*' for *list, '2' for **dict, 0 else */
    const struct apr_tpl_node *value;
} apr_tpl_arg;

typedef struct apr_tpl_arg_nodes {
    apr_tpl_arg *items;
    size_t n_items, capacity;
} apr_tpl_arg_nodes;

typedef struct apr_tpl_node {
    apr_tpl_node_kind kind;
    apr_tpl_op op;
    int line;
    int height; /* of the subtree; limits the recursion of the interpreter */
    apr_tpl_text text;
    apr_tpl_value value;
    struct apr_tpl_node *a, *b, *c, *d;
    apr_tpl_node_list list;
    apr_tpl_arg_nodes args;
    const struct apr_tpl_builtin *builtin; /* FILTER, TEST */
    struct apr_tpl_macro_def *macro;
} apr_tpl_node;

typedef struct apr_tpl_macro_def {
    apr_tpl_text name;
    apr_tpl_text *params;
    apr_tpl_node **defaults; /* NULL: none */
    size_t n_params, capacity;
    bool uses_varargs, uses_kwargs;
    apr_tpl_node *body;
} apr_tpl_macro_def;

/* ---- the interpreter ---- */

typedef struct apr_tpl_scope apr_tpl_scope; /* variables; template_eval.c */

typedef struct apr_tpl_macro {
    const apr_tpl_macro_def *def;
    apr_tpl_scope *scope; /* the scope of the definition */
    apr_tpl_value caller; /* a MACRO if it is called by a call block; else ABSENT */
} apr_tpl_macro;

typedef struct apr_tpl_loop {
    const apr_tpl_list *items;
    size_t index0;
} apr_tpl_loop;

typedef enum { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE } apr_tpl_flow;

typedef struct apr_tpl_vm {
    apr_arena arena;
    apr_error *err;
    apr_tpl_out out;
    apr_tpl_scope *scope;
    int64_t n_steps;
    int line, depth, n_calls;
    apr_tpl_flow flow;
    apr_tpl_value block_text; /* input of the innermost filter of a filter block */
    bool has_now;
    int64_t now; /* seconds since 1970 */
} apr_tpl_vm;

enum { APR_TPL_MAX_DEPTH = 1200 }; /* of C recursion in the interpreter: expressions, statements, macros, nested values */

apr_status apr_tpl_fail(apr_tpl_vm *vm, apr_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* For %.*s of a name in a message: at most 60 bytes of it. */
static inline int apr_tpl_short(apr_tpl_text text) { return text.n_bytes > 60 ? 60 : (int)text.n_bytes; }
apr_status apr_tpl_steps(apr_tpl_vm *vm, size_t n);                         /* counts steps; UNSUPPORTED when the limit is reached */
apr_status apr_tpl_descend(apr_tpl_vm *vm);                                 /* enters a recursion level; leave it with vm->depth-- */
apr_status apr_tpl_alloc(apr_tpl_vm *vm, size_t n, size_t size, void *out); /* out: a pointer to a pointer */
/* Makes *array, a pointer to n elements, long enough for one more. Arrays double when they are full. */
apr_status apr_tpl_grow(apr_tpl_vm *vm, size_t n, size_t *capacity, size_t size, void *array);

/* "'name' is undefined"; v is an UNDEFINED. */
apr_status apr_tpl_fail_undefined(apr_tpl_vm *vm, const apr_tpl_value *v);
/* Check the type of a parameter; `what` names the parameter in the message. ABSENT and none give the fallback. */
apr_status apr_tpl_want_int(apr_tpl_vm *vm, const apr_tpl_value *v, const char *what, int64_t fallback, int64_t *out);
apr_status apr_tpl_want_text(apr_tpl_vm *vm, const apr_tpl_value *v, const char *what, apr_tpl_text *out);

/* ---- changes of a text that filters and methods share: template_text.c ---- */

/* chars: a STRING; any other kind: white space */
apr_tpl_text apr_tpl_strip(apr_tpl_text text, const apr_tpl_value *chars, bool left, bool right);
apr_status apr_tpl_strip_chars(apr_tpl_vm *vm, apr_tpl_text text, const apr_tpl_value *chars, bool left, bool right, apr_tpl_value *out);
typedef enum { CASE_UPPER, CASE_LOWER, CASE_CAPITALIZE, CASE_TITLE, CASE_TITLE_FILTER, CASE_SWAP, CASE_FOLD } apr_tpl_case;
apr_status apr_tpl_change_case(apr_tpl_vm *vm, apr_tpl_text text, apr_tpl_case how, apr_tpl_value *out);
apr_status apr_tpl_replace(apr_tpl_vm *vm, apr_tpl_text text, apr_tpl_text old, apr_tpl_text new, int64_t max, apr_tpl_value *out);
apr_status apr_tpl_escape(apr_tpl_vm *vm, apr_tpl_text text, apr_tpl_value *out);           /* & < > ' " as entities; marked safe */
apr_status apr_tpl_escape_other(apr_tpl_vm *vm, const apr_tpl_value *v, apr_tpl_text *out); /* escapes text that is not marked safe */
apr_status apr_tpl_center(apr_tpl_vm *vm, apr_tpl_text text, int64_t width, apr_tpl_text fill, apr_tpl_value *out);
apr_status apr_tpl_split_lines(apr_tpl_vm *vm, apr_tpl_text text, bool keep_ends, apr_tpl_value *out);

/* ---- built-ins: filters, tests, functions, methods ---- */

/* The evaluated arguments of a call. */
typedef struct apr_tpl_args {
    apr_tpl_list list;
    apr_tpl_dict named; /* keys are STRINGs */
} apr_tpl_args;

/* a[0] is the input of the filter or test, or the method's object (ABSENT for functions). The parameters follow in the order of `params`,
 * ABSENT if not given. `args` are the original arguments. */
typedef apr_status apr_tpl_builtin_fn(apr_tpl_vm *vm, const apr_tpl_value *a, const apr_tpl_args *args, apr_tpl_value *out);
/* The head of one. Most need only some of what they are given. */
#define BUILTIN(name)                                                                                              \
    static apr_status name(apr_tpl_vm *vm __attribute__((unused)), const apr_tpl_value *a __attribute__((unused)), \
                           const apr_tpl_args *args __attribute__((unused)), apr_tpl_value *out __attribute__((unused)))

/* A row of a table. Tables end with a row without a name. */
typedef struct apr_tpl_builtin {
    const char *name;
    const char *params; /* names, separated by spaces; `?` after a name: optional; NULL: the function reads args itself */
    apr_tpl_builtin_fn *fn;
    bool keeps_markup; /* if the input is marked safe, so is the output */
} apr_tpl_builtin;

const apr_tpl_builtin *apr_tpl_builtin_find(const apr_tpl_builtin *table, apr_tpl_text name); /* NULL: not found */
apr_status apr_tpl_builtin_call(apr_tpl_vm *vm, const apr_tpl_builtin *f, const apr_tpl_value *self, const apr_tpl_args *args,
                                apr_tpl_value *out);

/* ---- methods, members, formatting: template_methods.c ---- */

apr_status apr_tpl_attribute(apr_tpl_vm *vm, const apr_tpl_value *a, apr_tpl_text name, apr_tpl_value *out);
apr_status apr_tpl_subscript(apr_tpl_vm *vm, const apr_tpl_value *a, const apr_tpl_value *key, apr_tpl_value *out);
apr_status apr_tpl_format_percent(apr_tpl_vm *vm, const apr_tpl_value *text, const apr_tpl_value *values, apr_tpl_value *out);

/* ---- operators: template_ops.c ---- */

apr_status apr_tpl_unary(apr_tpl_vm *vm, apr_tpl_op op, const apr_tpl_value *a, apr_tpl_value *out);
apr_status apr_tpl_binary(apr_tpl_vm *vm, apr_tpl_op op, const apr_tpl_value *a, const apr_tpl_value *b, apr_tpl_value *out);
apr_status apr_tpl_compare(apr_tpl_vm *vm, apr_tpl_op op, const apr_tpl_value *a, const apr_tpl_value *b, bool *out);
apr_status apr_tpl_slice(apr_tpl_vm *vm, const apr_tpl_value *a, const apr_tpl_value bounds[3], apr_tpl_value *out);

/* ---- filters, tests and functions by name: template_filters.c ---- */

typedef enum { APR_TPL_FILTER, APR_TPL_TEST, APR_TPL_FUNCTION } apr_tpl_builtin_kind;
const apr_tpl_builtin *apr_tpl_builtin_named(apr_tpl_builtin_kind kind, apr_tpl_text name); /* NULL: not supported */

/* ---- the steps of a rendering ---- */

apr_status apr_tpl_parse(apr_tpl_vm *vm, apr_tpl_text source, apr_tpl_node **root);
apr_status apr_tpl_set_global(apr_tpl_vm *vm, apr_tpl_text name, apr_tpl_value value); /* before apr_tpl_run */
apr_status apr_tpl_run(apr_tpl_vm *vm, const apr_tpl_node *root);

#endif
