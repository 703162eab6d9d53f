/* pattern.c - the one place that interprets the results of PCRE2. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "formats/base/pattern.h"

#include <pcre2.h>
#include <string.h>

/* Steps of one match. Names are short, but an expression from a file is tried on every name of a model. */
enum { MOST_STEPS = 200000, MOST_STEPS_OF_USER = 1000000, MOST_HEAP_KIB = 16 * 1024 };

struct apr_pattern {
    const char *where, *text;
    pcre2_code *code;
    unsigned flags;
};

static void *from_arena(size_t n_bytes, void *arena) { return apr_arena_alloc(arena, n_bytes); }
static void keep(void *memory, void *arena) { (void)memory, (void)arena; } /* freed with the arena */

apr_status apr_pattern_compile(const apr_pattern **pattern, const char *where, const char *text, unsigned flags, apr_arena *arena,
                               apr_error *err)
{
    apr_pattern *const p = apr_arena_alloc(arena, sizeof *p);
    pcre2_general_context *const memory = pcre2_general_context_create(from_arena, keep, arena);
    pcre2_compile_context *const context = memory != NULL ? pcre2_compile_context_create(memory) : NULL;
    const uint32_t options = PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C | ((flags & APR_PATTERN_UTF) != 0 ? PCRE2_UTF : 0) |
                             ((flags & APR_PATTERN_AT_START) != 0 ? PCRE2_ANCHORED : 0);
    int code;
    PCRE2_SIZE at;
    PCRE2_UCHAR why[128] = "";

    *pattern = NULL;
    if (p == NULL || context == NULL) return apr_no_memory(err, "a regular expression");
    *p = (apr_pattern){.where = where, .text = text, .flags = flags};
    p->code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, options, &code, &at, context);
    if (p->code != NULL) {
        *pattern = p;
        return APR_OK;
    }
    if (code == PCRE2_ERROR_HEAP_FAILED) return apr_no_memory(err, "a regular expression");
    pcre2_get_error_message(code, why, sizeof why);
    return apr_fail(err, (flags & APR_PATTERN_OF_USER) != 0 ? APR_E_USAGE : APR_E_DAMAGED,
                    "%s: '%.200s' is not a regular expression: %s at character %zu", where, text, (const char *)why, (size_t)at);
}

static int match(const apr_pattern *p, const char *name)
{
    /* From the heap and not the arena: threads may share a pattern. */
    pcre2_match_data *const data = pcre2_match_data_create(1, NULL);
    pcre2_match_context *const limits = pcre2_match_context_create(NULL);
    int code = PCRE2_ERROR_NOMEMORY;

    if (data != NULL && limits != NULL) {
        pcre2_set_match_limit(limits, (p->flags & APR_PATTERN_OF_USER) != 0 ? MOST_STEPS_OF_USER : MOST_STEPS);
        pcre2_set_heap_limit(limits, MOST_HEAP_KIB);
        code = pcre2_match(p->code, (PCRE2_SPTR)name, strlen(name), 0, 0, data, limits);
    }
    pcre2_match_context_free(limits);
    pcre2_match_data_free(data);
    return code;
}

apr_status apr_pattern_find(const apr_pattern *p, const char *name, bool *found, apr_error *err)
{
    const int code = match(p, name);
    const bool is_bad_utf8 = code <= PCRE2_ERROR_UTF8_ERR1 && code >= PCRE2_ERROR_UTF8_ERR21;

    *found = code >= 0;
    if (*found || code == PCRE2_ERROR_NOMATCH || is_bad_utf8) return APR_OK;
    if (code == PCRE2_ERROR_NOMEMORY) return apr_no_memory(err, "a regular expression");
    return apr_fail(err, (p->flags & APR_PATTERN_OF_USER) != 0 ? APR_E_USAGE : APR_E_UNSUPPORTED,
                    "%s: the regular expression '%.200s' takes too long to look for in '%.200s'; write it without repeats of repeats",
                    p->where, p->text, name);
}
