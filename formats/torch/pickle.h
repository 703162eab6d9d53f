/* pickle.h - a pickle of weights, described: what it would build, without building it. Nothing is imported and nothing is called.
 *
 * A pickle is a program for a stack machine that may call anything of Python's. Weights need little of it: dicts, lists, numbers,
 * text, and calls of a few functions that are known by name, which here become nodes that say so (APR_PICKLE_CALL). Everything else
 * that a pickle may ask for is APR_E_UNSUPPORTED with the name of what it asks for; what is no pickle is APR_E_DAMAGED.
 *
 * Protocols 2 to 5. Nodes may be shared, and may hold each other in a circle: whoever walks them bounds the depth. Memory is bounded by
 * the pickle's length: no operation makes more than it has bytes for. Nodes live in the arena; texts are borrowed from the pickle. */
#ifndef APR_FORMATS_PICKLE_H
#define APR_FORMATS_PICKLE_H

#include "formats/base/arena.h"
#include "formats/base/bytes.h"
#include "formats/base/status.h"
#include "formats/model/kv.h"

typedef enum {
    APR_PICKLE_NONE,
    APR_PICKLE_BOOL,
    APR_PICKLE_INT,
    APR_PICKLE_REAL,
    APR_PICKLE_BIG, /* an integer that no int64_t holds */
    APR_PICKLE_TEXT,
    APR_PICKLE_LIST,   /* and tuples */
    APR_PICKLE_DICT,   /* ordered or not */
    APR_PICKLE_GLOBAL, /* something of a module's, by name */
    APR_PICKLE_CALL,   /* such a thing with its arguments */
    APR_PICKLE_STORED  /* what lies outside the pickle, by a description */
} apr_pickle_kind;

typedef struct apr_pickle_node apr_pickle_node;
struct apr_pickle_node {
    apr_pickle_kind kind;
    int64_t integer;               /* BOOL, INT */
    double real;                   /* REAL */
    apr_str text;                  /* TEXT; of a GLOBAL "module name", of a CALL the function's */
    const apr_pickle_node **items; /* [n_items]: of a LIST; of a DICT keys and values in turn; a CALL's arguments; of STORED one */
    size_t n_items, capacity;
};

typedef struct apr_pickle_rules {
    /* May the pickle name this ("torch FloatStorage", the module first)? Otherwise it is refused. */
    bool (*may_name)(apr_str name);
    /* May it call it? Of what it may name. */
    bool (*may_call)(apr_str name);
} apr_pickle_rules;

typedef struct apr_pickle {
    const apr_pickle_node *root;
    const apr_pickle_node **stored; /* [n_stored] every node of that kind */
    size_t n_stored, capacity;
} apr_pickle;

/* Reads one pickle from the cursor on, which then stands behind it. collections.OrderedDict is known without the rules. */
apr_status apr_pickle_read(apr_pickle *pickle, apr_cursor *in, const apr_pickle_rules *rules, const char *where, apr_arena *arena,
                           apr_error *err);

bool apr_pickle_is_text(const apr_pickle_node *node, const char *text);

#endif
