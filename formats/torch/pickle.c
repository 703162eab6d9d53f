/* pickle.c - the pickle stack machine, with a table of the operations that weights need; executes no Python code. */
#include "formats/torch/pickle.h"
#include "formats/base/grow.h"

#include <inttypes.h>
#include <string.h>

typedef apr_pickle_node node;

typedef struct machine {
    apr_cursor *in;
    size_t begin; /* offset of the pickle */
    const apr_pickle_rules *rules;
    apr_pickle *pickle;
    node **stack, **memo; /* memo: NULL for entries that were not set */
    size_t n_stack, stack_capacity, n_memo, memo_capacity, n_puts;
    size_t *marks; /* stack heights at MARK operations */
    size_t n_marks, marks_capacity;
    size_t n_copied; /* items of lists copied into dicts */
    bool stopped;
    const char *where;
    apr_arena *arena;
    apr_error *err;
} machine;

static apr_status damaged(const machine *m, const char *what)
{
    return apr_fail(m->err, APR_E_DAMAGED, "%s: its pickle %s, at byte %zu", m->where, what, m->in->at - m->begin);
}

static apr_status refused(const machine *m, const char *verb, apr_str name)
{
    char text[200];
    const size_t n = name.n_bytes < sizeof text ? name.n_bytes : sizeof text - 1;

    for (size_t i = 0; i < n; i++) text[i] = name.text[i] == ' ' ? '.' : name.text[i];
    text[n] = '\0';
    return apr_fail(m->err, APR_E_UNSUPPORTED, "%s: its pickle asks to %s %s, which weights do not need; refused: nothing is executed",
                    m->where, verb, text);
}

/* --- stack, marks, memo --- */

/* Makes space for one more entry in an arena array. */
static apr_status grow(const machine *m, void **array, size_t n, size_t *capacity, size_t size)
{
    void *const grown = apr_arena_grow(m->arena, *array, capacity, n + 1, size);
    if (grown == NULL) return apr_no_memory(m->err, "a pickle");
    *array = grown;
    return APR_OK;
}

static apr_status push(machine *m, node *pushed)
{
    APR_TRY(grow(m, (void **)&m->stack, m->n_stack, &m->stack_capacity, sizeof *m->stack));
    m->stack[m->n_stack++] = pushed;
    return APR_OK;
}

static apr_status push_new(machine *m, const node *value)
{
    node *const made = apr_arena_alloc(m->arena, sizeof *made);
    if (made == NULL) return apr_no_memory(m->err, "a pickle");
    *made = *value;
    return push(m, made);
}

/* The lowest stack index that may be popped: entries below the last mark belong to an object that is still being built. */
static size_t floor_of(const machine *m) { return m->n_marks > 0 ? m->marks[m->n_marks - 1] : 0; }

/* NULL: no entry above the last mark. */
static node *pop(machine *m) { return m->n_stack > floor_of(m) ? m->stack[--m->n_stack] : NULL; }
static node *top(const machine *m) { return m->n_stack > floor_of(m) ? m->stack[m->n_stack - 1] : NULL; }

static apr_status empty(const machine *m) { return damaged(m, "pops more than its stack holds"); }

/* Pops the last mark and the items above it. */
static apr_status pop_mark(machine *m, node ***items, size_t *n)
{
    if (m->n_marks == 0) return damaged(m, "uses a mark that it did not set");
    const size_t height = m->marks[--m->n_marks];
    *items = m->stack + height;
    *n = m->n_stack - height;
    m->n_stack = height;
    return APR_OK;
}

static apr_status memo_put(machine *m, uint64_t place, node *value)
{
    if (value == NULL) return empty(m);
    if (place >= m->in->at - m->begin) return damaged(m, "has a memo index larger than its length");
    APR_TRY(grow(m, (void **)&m->memo, place, &m->memo_capacity, sizeof *m->memo));
    m->memo[place] = value;
    m->n_puts++;
    return APR_OK;
}

static apr_status memo_get(machine *m, uint64_t place)
{
    if (place >= m->memo_capacity || m->memo[place] == NULL) return damaged(m, "reads a memo entry that was not set");
    return push(m, m->memo[place]);
}

/* --- lists and dicts --- */

static apr_status append(machine *m, node *list, node *const *items, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        APR_TRY(grow(m, (void **)&list->items, list->n_items, &list->capacity, sizeof *list->items));
        list->items[list->n_items++] = items[i];
    }
    return APR_OK;
}

/* `items` may be entries that were just popped: they are copied before anything is pushed. */
static apr_status push_list(machine *m, apr_pickle_kind kind, node *const *items, size_t n)
{
    node *const made = apr_arena_alloc(m->arena, sizeof *made);
    if (made == NULL) return apr_no_memory(m->err, "a pickle");
    made->kind = kind;
    APR_TRY(append(m, made, items, n));
    return push(m, made);
}

static apr_status op_mark(machine *m, int n)
{
    (void)n;
    APR_TRY(grow(m, (void **)&m->marks, m->n_marks, &m->marks_capacity, sizeof *m->marks));
    m->marks[m->n_marks++] = m->n_stack;
    return APR_OK;
}

static apr_status op_empty(machine *m, int kind) { return push_new(m, &(node){.kind = (apr_pickle_kind)kind}); }

static apr_status op_tuple(machine *m, int n)
{
    if (m->n_stack - floor_of(m) < (size_t)n) return empty(m);
    m->n_stack -= (size_t)n;
    return push_list(m, APR_PICKLE_LIST, m->stack + m->n_stack, (size_t)n);
}

static apr_status op_marked(machine *m, int kind)
{
    node **items = NULL;
    size_t n = 0;

    APR_TRY(pop_mark(m, &items, &n));
    if (kind == APR_PICKLE_DICT && n % 2 != 0) return damaged(m, "has a key without a value");
    return push_list(m, (apr_pickle_kind)kind, items, n);
}

/* Adds to the list or dict below: the items above the mark, or the last `single` items. */
static apr_status add(machine *m, apr_pickle_kind kind, int single)
{
    node **items = NULL;
    size_t n = (size_t)single;

    if (single == 0) {
        APR_TRY(pop_mark(m, &items, &n));
    } else {
        if (m->n_stack - floor_of(m) < n) return empty(m);
        m->n_stack -= n;
        items = m->stack + m->n_stack;
    }
    node *const whole = top(m);
    if (whole == NULL || whole->kind != kind) return damaged(m, "adds to something that is not a list or dict");
    if (kind == APR_PICKLE_DICT && n % 2 != 0) return damaged(m, "has a key without a value");
    return append(m, whole, items, n);
}

static apr_status op_append(machine *m, int single) { return add(m, APR_PICKLE_LIST, single); }
static apr_status op_set(machine *m, int single) { return add(m, APR_PICKLE_DICT, single); }

/* --- plain values --- */

static apr_status op_bool(machine *m, int value) { return push_new(m, &(node){.kind = APR_PICKLE_BOOL, .integer = value}); }

/* Little-endian; only the four-byte form is signed. */
static apr_status op_int(machine *m, int n)
{
    const uint64_t value = n == 1 ? apr_cursor_u8(m->in) : n == 2 ? apr_cursor_u16(m->in) : apr_cursor_u32(m->in);
    return push_new(m, &(node){.kind = APR_PICKLE_INT, .integer = n == 4 ? (int32_t)value : (int64_t)value});
}

static uint64_t read_count(machine *m, int n)
{
    return n == 1 ? apr_cursor_u8(m->in) : n == 4 ? apr_cursor_u32(m->in) : apr_cursor_u64(m->in);
}

/* Two's complement of any length. */
static apr_status op_long(machine *m, int n_count)
{
    const uint64_t n = read_count(m, n_count);
    const uint8_t *const bytes = apr_cursor_take(m->in, n);
    uint64_t value = 0;

    if (bytes == NULL) return APR_OK; /* the main loop checks in->failed */
    if (n > 8) return push_new(m, &(node){.kind = APR_PICKLE_BIG});
    if (n > 0 && (bytes[n - 1] & 0x80) != 0) value = UINT64_MAX;
    for (size_t i = (size_t)n; i-- > 0;) value = value << 8 | bytes[i];
    return push_new(m, &(node){.kind = APR_PICKLE_INT, .integer = (int64_t)value});
}

/* Floats are the only big-endian numbers of a pickle. */
static apr_status op_real(machine *m, int n)
{
    const uint64_t bits = __builtin_bswap64(apr_cursor_u64(m->in));
    node value = {.kind = APR_PICKLE_REAL};

    (void)n;
    memcpy(&value.real, &bits, sizeof bits);
    return push_new(m, &value);
}

static apr_status op_text(machine *m, int n_count)
{
    const uint64_t n = read_count(m, n_count);
    const uint8_t *const text = apr_cursor_take(m->in, n);
    return text != NULL ? push_new(m, &(node){.kind = APR_PICKLE_TEXT, .text = {(const char *)text, (size_t)n}}) : APR_OK;
}

/* --- names and calls --- */

static const char ordered_dict[] = "collections OrderedDict";

static apr_status push_global(machine *m, apr_str module, apr_str name)
{
    char *const both = apr_arena_alloc(m->arena, module.n_bytes + name.n_bytes + 2);

    if (both == NULL) return apr_no_memory(m->err, "a pickle");
    memcpy(both, module.text, module.n_bytes);
    both[module.n_bytes] = ' ';
    memcpy(both + module.n_bytes + 1, name.text, name.n_bytes);
    const apr_str whole = {both, module.n_bytes + name.n_bytes + 1};
    if (memchr(both, '\0', whole.n_bytes) != NULL) return damaged(m, "names something with a zero byte");
    if (!apr_str_is(whole, ordered_dict) && !m->rules->may_name(whole)) return refused(m, "import", whole);
    return push_new(m, &(node){.kind = APR_PICKLE_GLOBAL, .text = whole});
}

static apr_str read_line(machine *m)
{
    const char *const begin = (const char *)m->in->data + m->in->at;
    const char *const end = m->in->failed ? NULL : memchr(begin, '\n', apr_cursor_left(m->in));

    if (end == NULL) return m->in->failed = true, (apr_str){"", 0};
    m->in->at += (size_t)(end - begin) + 1;
    return (apr_str){begin, (size_t)(end - begin)};
}

static apr_status op_global(machine *m, int n)
{
    const apr_str module = read_line(m), name = read_line(m);
    (void)n;
    return m->in->failed ? APR_OK : push_global(m, module, name);
}

static apr_status op_stack_global(machine *m, int n)
{
    const node *const name = pop(m), *const module = name != NULL ? pop(m) : NULL;

    (void)n;
    if (module == NULL) return empty(m);
    if (name->kind != APR_PICKLE_TEXT || module->kind != APR_PICKLE_TEXT) return damaged(m, "has a name that is not a text");
    return push_global(m, module->text, name->text);
}

/* OrderedDict() or OrderedDict([(key, value), ...]) */
static apr_status make_dict(machine *m, const node *arguments)
{
    const node *const pairs = arguments->n_items == 1 ? arguments->items[0] : NULL;

    if (arguments->n_items > 1 || (pairs != NULL && pairs->kind != APR_PICKLE_LIST))
        return damaged(m, "makes a dict from something that is not a list");
    m->n_copied += pairs != NULL ? pairs->n_items : 0;
    if (m->n_copied > m->in->at - m->begin) return damaged(m, "copies one list into too many dicts");
    APR_TRY(push_new(m, &(node){.kind = APR_PICKLE_DICT}));
    for (size_t i = 0; pairs != NULL && i < pairs->n_items; i++) {
        const node *const pair = pairs->items[i];
        if (pair->kind != APR_PICKLE_LIST || pair->n_items != 2) return damaged(m, "makes a dict from items that are not pairs");
        APR_TRY(append(m, top(m), (node *const *)pair->items, 2));
    }
    return APR_OK;
}

static apr_status op_reduce(machine *m, int n)
{
    const node *const arguments = pop(m), *const function = arguments != NULL ? pop(m) : NULL;

    (void)n;
    if (function == NULL) return empty(m);
    if (function->kind != APR_PICKLE_GLOBAL || arguments->kind != APR_PICKLE_LIST)
        return damaged(m, "calls something that is not a function");
    if (apr_str_is(function->text, ordered_dict)) return make_dict(m, arguments);
    if (!m->rules->may_call(function->text)) return refused(m, "call", function->text);
    return push_new(m, &(node){.kind = APR_PICKLE_CALL, .text = function->text, .items = arguments->items, .n_items = arguments->n_items});
}

/* A dict's state holds attributes of its class (a module's _metadata). It contains no weights, so it is dropped. */
static apr_status op_build(machine *m, int n)
{
    const node *const state = pop(m), *const object = state != NULL ? top(m) : NULL;

    (void)n;
    if (object == NULL) return empty(m);
    if (object->kind == APR_PICKLE_DICT && state->kind == APR_PICKLE_DICT) return APR_OK;
    return refused(m, "set the state of", object->kind == APR_PICKLE_CALL ? object->text : apr_str_of("an object"));
}

static apr_status op_stored(machine *m, int n)
{
    node *const description = pop(m);
    apr_pickle *const p = m->pickle;

    (void)n;
    if (description == NULL) return empty(m);
    APR_TRY(push_list(m, APR_PICKLE_PERSISTENT, &description, 1));
    APR_TRY(grow(m, (void **)&p->stored, p->n_stored, &p->capacity, sizeof *p->stored));
    p->stored[p->n_stored++] = top(m);
    return APR_OK;
}

/* --- the rest --- */

static apr_status op_protocol(machine *m, int n)
{
    const uint8_t version = apr_cursor_u8(m->in);
    (void)n;
    return m->in->failed || (version >= 2 && version <= 5)
               ? APR_OK
               : apr_fail(m->err, APR_E_UNSUPPORTED, "%s: its pickle has protocol %u; supported are 2 to 5", m->where, version);
}

static apr_status op_frame(machine *m, int n) { return (void)apr_cursor_u64(m->in), (void)n, APR_OK; }
static apr_status op_put(machine *m, int n) { return memo_put(m, read_count(m, n), top(m)); }
static apr_status op_get(machine *m, int n) { return memo_get(m, read_count(m, n)); }
static apr_status op_memoize(machine *m, int n) { return (void)n, memo_put(m, m->n_puts, top(m)); }
static apr_status op_stop(machine *m, int n) { return (void)n, m->stopped = true, APR_OK; }

/* `name` is Python's name of the operation. */
typedef struct operation {
    apr_status (*act)(machine *m, int n); /* NULL: refused */
    int n;                                /* argument of `act`: bytes of a count, number of items, or a kind */
    const char *name;
} operation;

static const operation operations[256] = {
    [0x80] = {op_protocol, 0, "PROTO"},
    [0x95] = {op_frame, 8, "FRAME"},
    ['.'] = {op_stop, 0, "STOP"},
    ['('] = {op_mark, 0, "MARK"},
    ['}'] = {op_empty, APR_PICKLE_DICT, "EMPTY_DICT"},
    [']'] = {op_empty, APR_PICKLE_LIST, "EMPTY_LIST"},
    [')'] = {op_empty, APR_PICKLE_LIST, "EMPTY_TUPLE"},
    [0x8f] = {op_empty, APR_PICKLE_LIST, "EMPTY_SET"},
    ['N'] = {op_empty, APR_PICKLE_NONE, "NONE"},
    ['t'] = {op_marked, APR_PICKLE_LIST, "TUPLE"},
    ['l'] = {op_marked, APR_PICKLE_LIST, "LIST"},
    ['d'] = {op_marked, APR_PICKLE_DICT, "DICT"},
    [0x91] = {op_marked, APR_PICKLE_LIST, "FROZENSET"},
    [0x85] = {op_tuple, 1, "TUPLE1"},
    [0x86] = {op_tuple, 2, "TUPLE2"},
    [0x87] = {op_tuple, 3, "TUPLE3"},
    ['a'] = {op_append, 1, "APPEND"},
    ['e'] = {op_append, 0, "APPENDS"},
    [0x90] = {op_append, 0, "ADDITEMS"},
    ['s'] = {op_set, 2, "SETITEM"},
    ['u'] = {op_set, 0, "SETITEMS"},
    [0x88] = {op_bool, 1, "NEWTRUE"},
    [0x89] = {op_bool, 0, "NEWFALSE"},
    ['K'] = {op_int, 1, "BININT1"},
    ['M'] = {op_int, 2, "BININT2"},
    ['J'] = {op_int, 4, "BININT"},
    [0x8a] = {op_long, 1, "LONG1"},
    [0x8b] = {op_long, 4, "LONG4"},
    ['G'] = {op_real, 8, "BINFLOAT"},
    [0x8c] = {op_text, 1, "SHORT_BINUNICODE"},
    ['X'] = {op_text, 4, "BINUNICODE"},
    [0x8d] = {op_text, 8, "BINUNICODE8"},
    ['U'] = {op_text, 1, "SHORT_BINSTRING"},
    ['T'] = {op_text, 4, "BINSTRING"},
    ['C'] = {op_text, 1, "SHORT_BINBYTES"},
    ['B'] = {op_text, 4, "BINBYTES"},
    [0x8e] = {op_text, 8, "BINBYTES8"},
    ['q'] = {op_put, 1, "BINPUT"},
    ['r'] = {op_put, 4, "LONG_BINPUT"},
    [0x94] = {op_memoize, 0, "MEMOIZE"},
    ['h'] = {op_get, 1, "BINGET"},
    ['j'] = {op_get, 4, "LONG_BINGET"},
    ['c'] = {op_global, 0, "GLOBAL"},
    [0x93] = {op_stack_global, 0, "STACK_GLOBAL"},
    ['R'] = {op_reduce, 0, "REDUCE"},
    ['b'] = {op_build, 0, "BUILD"},
    ['Q'] = {op_stored, 0, "BINPERSID"},
    /* known operations that are refused by name */
    [0x81] = {NULL, 0, "NEWOBJ"},
    [0x92] = {NULL, 0, "NEWOBJ_EX"},
    ['i'] = {NULL, 0, "INST"},
    ['o'] = {NULL, 0, "OBJ"},
    [0x82] = {NULL, 0, "EXT1"},
    [0x83] = {NULL, 0, "EXT2"},
    [0x84] = {NULL, 0, "EXT4"},
    ['P'] = {NULL, 0, "PERSID"},
    [0x96] = {NULL, 0, "BYTEARRAY8"},
    [0x97] = {NULL, 0, "NEXT_BUFFER"},
};

static apr_status refuse_operation(const machine *m, uint8_t code)
{
    if (operations[code].name == NULL)
        return apr_fail(m->err, APR_E_DAMAGED, "%s: its pickle has 0x%02x at byte %zu, which is not an operation of protocols 2 to 5",
                        m->where, code, m->in->at - 1 - m->begin);
    return apr_fail(m->err, APR_E_UNSUPPORTED, "%s: its pickle asks to make an object (%s at byte %zu); refused: nothing is executed",
                    m->where, operations[code].name, m->in->at - 1 - m->begin);
}

apr_status apr_pickle_read(apr_pickle *pickle, apr_cursor *in, const apr_pickle_rules *rules, const char *where, apr_arena *arena,
                           apr_error *err)
{
    machine m = {.in = in, .begin = in->at, .rules = rules, .pickle = pickle, .where = where, .arena = arena, .err = err};

    *pickle = (apr_pickle){0};
    APR_TRY(grow(&m, (void **)&m.stack, 0, &m.stack_capacity, sizeof *m.stack)); /* so that the stack is not NULL */
    while (!m.stopped) {
        const uint8_t code = apr_cursor_u8(in);
        const operation *const o = &operations[code];
        if (!in->failed && o->act == NULL) return refuse_operation(&m, code);
        if (!in->failed) APR_TRY(o->act(&m, o->n));
        if (in->failed) return damaged(&m, "is cut off");
    }
    if (m.n_stack != 1 || m.n_marks != 0) return damaged(&m, "leaves more or less than one object");
    pickle->root = m.stack[0];
    return APR_OK;
}
