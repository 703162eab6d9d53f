/* pickle.h - parses a pickle of weights into a tree of nodes that describes it. Nothing is imported and nothing is called.
 *
 * A pickle is a program for a stack machine that may call any Python function. Weights need only dicts, lists, numbers, text, and
 * calls of a few known functions, which become nodes here (APR_PICKLE_CALL). Any other request of a pickle is APR_E_UNSUPPORTED,
 * and the message names it. Input that is not a pickle is APR_E_DAMAGED.
 *
 * Protocols 2 to 5. Nodes may be shared and may form cycles, so a caller that walks them must bound the depth. Memory is bounded by
 * the pickle's length: no operation allocates more than the pickle has bytes for. Nodes live in the arena; texts point into the pickle. */
#ifndef APR_FORMATS_PICKLE_H
#define APR_FORMATS_PICKLE_H

#include "formats/base/arena.h"
#include "formats/base/bytes.h"
#include "formats/base/status.h"
#include "formats/tensor/kv.h"

typedef enum {
    APR_PICKLE_NONE,
    APR_PICKLE_BOOL,
    APR_PICKLE_INT,
    APR_PICKLE_REAL,
    APR_PICKLE_BIG, /* an integer outside int64_t */
    APR_PICKLE_TEXT,
    APR_PICKLE_LIST,      /* or a tuple */
    APR_PICKLE_DICT,      /* gathered or not */
    APR_PICKLE_GLOBAL,    /* a name in a module */
    APR_PICKLE_CALL,      /* a call of a GLOBAL with arguments */
    APR_PICKLE_PERSISTENT /* a description of data outside the pickle (a persistent id) */
} apr_pickle_kind;

typedef struct apr_pickle_node apr_pickle_node;
struct apr_pickle_node {
    apr_pickle_kind kind;
    int64_t integer;               /* BOOL, INT */
    double real;                   /* REAL */
    apr_str text;                  /* TEXT; GLOBAL: "module name"; CALL: the function's "module name" */
    const apr_pickle_node **items; /* [n_items] LIST: items; DICT: key, value, ...; CALL: arguments; STORED: the description */
    size_t n_items, capacity;
};

typedef struct apr_pickle_rules {
    /* May the pickle refer to this name ("torch FloatStorage", the module first)? Otherwise it is refused. */
    bool (*may_name)(apr_str name);
    /* May the pickle call it? Asked only for names that may_name allows. */
    bool (*may_call)(apr_str name);
} apr_pickle_rules;

typedef struct apr_pickle {
    const apr_pickle_node *root;
    const apr_pickle_node **stored; /* [n_stored] every STORED node */
    size_t n_stored, capacity;
} apr_pickle;

/* Reads one pickle at the cursor and moves the cursor after it. collections.OrderedDict is always allowed. */
apr_status apr_pickle_read(apr_pickle *pickle, apr_cursor *in, const apr_pickle_rules *rules, const char *where, apr_arena *arena,
                           apr_error *err);

static inline bool apr_pickle_is_text(const apr_pickle_node *node, const char *text)
{
    return node->kind == APR_PICKLE_TEXT && apr_str_is(node->text, text);
}

#endif
