/* template_value.h - the values of a chat template: Python's None, numbers, strings, lists and dicts, allocated in an arena. */
#ifndef APR_RUNTIME_TEMPLATE_VALUE_H
#define APR_RUNTIME_TEMPLATE_VALUE_H

#include "formats/base/arena.h"
#include "formats/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
    TPL_ABSENT, /* no value: an argument that was not given, a variable that was deleted */
    TPL_UNDEFINED,
    TPL_NONE,
    TPL_BOOL,
    TPL_INT,
    TPL_FLOAT,
    TPL_STRING,
    TPL_LIST,
    TPL_TUPLE,
    TPL_DICT,
    TPL_NAMESPACE,
    TPL_LOOP,     /* the variable `loop` */
    TPL_MACRO,    /* a macro, or the caller() of a call block */
    TPL_FUNCTION, /* range, namespace, ... */
    TPL_METHOD,   /* 'text'.strip */
    TPL_KIND_COUNT
} apr_tpl_kind;

/* Text with a length; valid UTF-8, may contain NULs. */
typedef struct apr_tpl_text {
    const char *bytes;
    size_t n_bytes;
} apr_tpl_text;

typedef struct apr_tpl_value {
    apr_tpl_kind kind;
    apr_tpl_kind owner; /* UNDEFINED: kind of the object without that member, ABSENT for a variable; STRING: STRING if marked safe */
    union {
        bool boolean;
        int64_t integer;
        double real;
        apr_tpl_text text;         /* STRING; UNDEFINED: the name that was not found */
        struct apr_tpl_list *list; /* LIST, TUPLE */
        struct apr_tpl_dict *dict; /* DICT, NAMESPACE */
        struct apr_tpl_loop *loop;
        const struct apr_tpl_macro *macro;
        const struct apr_tpl_builtin *function;
        const struct apr_tpl_method *method;
    } as;
} apr_tpl_value;

typedef struct apr_tpl_list {
    apr_tpl_value *items;
    size_t n_items, capacity;
} apr_tpl_list;

typedef struct apr_tpl_dict {
    apr_tpl_value *keys, *values; /* in order of insertion */
    size_t n_items, capacity;
} apr_tpl_dict;

typedef struct apr_tpl_method {
    apr_tpl_value self;
    const struct apr_tpl_builtin *function;
} apr_tpl_method;

struct apr_tpl_vm;

static inline apr_tpl_value apr_tpl_none(void) { return (apr_tpl_value){.kind = TPL_NONE}; }
static inline apr_tpl_value apr_tpl_bool(bool b) { return (apr_tpl_value){.kind = TPL_BOOL, .as.boolean = b}; }
static inline apr_tpl_value apr_tpl_int(int64_t i) { return (apr_tpl_value){.kind = TPL_INT, .as.integer = i}; }
static inline apr_tpl_value apr_tpl_real(double d) { return (apr_tpl_value){.kind = TPL_FLOAT, .as.real = d}; }
static inline apr_tpl_value apr_tpl_string(const char *bytes, size_t n)
{
    return (apr_tpl_value){.kind = TPL_STRING, .as.text = {bytes, n}};
}
/* True for text marked safe (|safe, |escape; Python's Markup). Text that is added to it is escaped. */
static inline bool apr_tpl_is_markup(const apr_tpl_value *v) { return v->kind == TPL_STRING && v->owner == TPL_STRING; }
static inline apr_tpl_value apr_tpl_undefined(apr_tpl_text name) { return (apr_tpl_value){.kind = TPL_UNDEFINED, .as.text = name}; }
static inline bool apr_tpl_is_list(const apr_tpl_value *v) { return v->kind == TPL_LIST || v->kind == TPL_TUPLE; }
/* In Python, a bool is an int. */
static inline bool apr_tpl_is_int(const apr_tpl_value *v) { return v->kind == TPL_INT || v->kind == TPL_BOOL; }
static inline bool apr_tpl_is_number(const apr_tpl_value *v) { return apr_tpl_is_int(v) || v->kind == TPL_FLOAT; }
static inline int64_t apr_tpl_as_int(const apr_tpl_value *v) { return v->kind == TPL_BOOL ? v->as.boolean : v->as.integer; }
static inline double apr_tpl_as_real(const apr_tpl_value *v) { return v->kind == TPL_FLOAT ? v->as.real : (double)apr_tpl_as_int(v); }
bool apr_tpl_text_is(apr_tpl_text text, const char *expected);

const char *apr_tpl_type_name(const apr_tpl_value *v); /* Python's name: 'str', 'dict', ... */
bool apr_tpl_is_true(const apr_tpl_value *v);
/* Compares lists and dicts recursively; UNSUPPORTED if they are nested too deeply. */
apr_status apr_tpl_equal(struct apr_tpl_vm *vm, const apr_tpl_value *a, const apr_tpl_value *b, bool *equal);
/* -1, 0, 1 for numbers, strings and lists; DAMAGED for values that Python cannot order. */
apr_status apr_tpl_order(struct apr_tpl_vm *vm, const apr_tpl_value *a, const apr_tpl_value *b, int *order);

apr_status apr_tpl_list_make(struct apr_tpl_vm *vm, apr_tpl_kind kind, size_t capacity, apr_tpl_value *out);
apr_status apr_tpl_list_add(struct apr_tpl_vm *vm, apr_tpl_list *list, apr_tpl_value item);
apr_status apr_tpl_list_of(struct apr_tpl_vm *vm, apr_tpl_kind kind, const apr_tpl_value *items, size_t n, apr_tpl_value *out);
apr_status apr_tpl_dict_make(struct apr_tpl_vm *vm, apr_tpl_kind kind, apr_tpl_value *out);
apr_status apr_tpl_dict_set(struct apr_tpl_vm *vm, apr_tpl_dict *dict, const apr_tpl_value *key, const apr_tpl_value *value);
/* Appends without checking whether the key exists. */
apr_status apr_tpl_dict_add(struct apr_tpl_vm *vm, apr_tpl_dict *dict, apr_tpl_value key, apr_tpl_value value);
/* *value is NULL when the key is missing. */
apr_status apr_tpl_dict_find(struct apr_tpl_vm *vm, const apr_tpl_dict *dict, const apr_tpl_value *key, const apr_tpl_value **value);
apr_status apr_tpl_dict_items(struct apr_tpl_vm *vm, const apr_tpl_dict *dict, apr_tpl_value *out);

/* The items that `for` iterates over: list items, characters, keys; none for undefined. */
apr_status apr_tpl_iterate(struct apr_tpl_vm *vm, const apr_tpl_value *v, apr_tpl_list **items);
apr_status apr_tpl_length(struct apr_tpl_vm *vm, const apr_tpl_value *v, int64_t *length);
apr_status apr_tpl_contains(struct apr_tpl_vm *vm, const apr_tpl_value *container, const apr_tpl_value *item, bool *found);

/* Code points. n_bytes of the character at p (valid UTF-8). */
static inline size_t apr_tpl_char_bytes(const char *p)
{
    const unsigned char c = (unsigned char)*p;
    return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}
size_t apr_tpl_n_chars(apr_tpl_text text);
uint32_t apr_tpl_char_at(apr_tpl_text text, size_t at);                        /* the code point that begins at byte `at`; 0 at the end */
size_t apr_tpl_char_offset(apr_tpl_text text, size_t n_chars);                 /* bytes of the first n_chars characters */
bool apr_tpl_is_space(const char *p, size_t n);                                /* Python's str.isspace of one character */
const char *apr_tpl_find(apr_tpl_text text, size_t from, apr_tpl_text needle); /* NULL: not found */

/* A growable text in malloc'ed memory, limited to APR_TEMPLATE_MAX_OUTPUT bytes. */
typedef struct apr_tpl_out {
    char *bytes;
    size_t n_bytes, capacity;
} apr_tpl_out;

apr_status apr_tpl_put(struct apr_tpl_vm *vm, const char *bytes, size_t n);
static inline apr_status apr_tpl_put_text(struct apr_tpl_vm *vm, apr_tpl_text text) { return apr_tpl_put(vm, text.bytes, text.n_bytes); }
apr_status apr_tpl_put_char(struct apr_tpl_vm *vm, uint32_t code_point);
apr_status apr_tpl_put_str(struct apr_tpl_vm *vm, const apr_tpl_value *v);  /* Python's str(v); undefined writes nothing */
apr_status apr_tpl_put_repr(struct apr_tpl_vm *vm, const apr_tpl_value *v); /* Python's repr(v) */

typedef struct apr_tpl_json_style {
    bool ascii, sort_keys;
    const char *indent; /* NULL: on one line */
    apr_tpl_text item_separator, key_separator;
} apr_tpl_json_style;
apr_status apr_tpl_put_json(struct apr_tpl_vm *vm, const apr_tpl_value *v, const apr_tpl_json_style *style, int level);

/* Removes the text written since `mark` from the output and returns it as a string. */
apr_status apr_tpl_take(struct apr_tpl_vm *vm, size_t mark, apr_tpl_value *out);
apr_status apr_tpl_to_str(struct apr_tpl_vm *vm, const apr_tpl_value *v, apr_tpl_text *out);

#endif
