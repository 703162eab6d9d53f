/* hf_quantization_names.c - finds the scheme of a matrix by the pattern that covers its name: whole names by hash, '*' and "re:" one by one. */
#include "formats/packed/hf_quantization.h"

#include "formats/base/pattern.h"
#include "formats/base/text.h"

#include <stdio.h>
#include <string.h>

enum { MAX_NAME = 512 };

typedef struct pattern {
    const char *text; /* without "language_model." */
    const apr_pattern *regex;
    bool is_glob;
    uint32_t next; /* in its bucket, 1-based; 0: the last */
} pattern;

struct apr_name_patterns {
    pattern *items;
    size_t n;
    size_t n_others; /* of globs and regular expressions */
    uint32_t *others;
    uint32_t *buckets;   /* [n_buckets] 1-based heads of chains of plain names */
    size_t n_buckets;    /* a power of two */
    apr_error *given_up; /* the error of a search that took too long */
};

static size_t hash_of(const char *text, size_t n)
{
    uint64_t h = 0xcbf29ce484222325;
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)text[i]) * 0x100000001b3;
    return (size_t)(h ^ h >> 32);
}

/* Removes "language_model.": "model.language_model.layers.0" of a larger model becomes "model.layers.0". */
static const char *canonical_name(const char *text, apr_arena *arena)
{
    static const char part[] = "language_model.";
    const char *const at = strstr(text, part);
    if (at == NULL || (at != text && at[-1] != '.')) return text;
    return apr_arena_print(arena, "%.*s%s", (int)(at - text), text, at + sizeof part - 1);
}

/* ".*X" at the beginning equals X anywhere, which is faster to search. Not with "|". Returns X, or NULL. */
static const char *anywhere(const char *regex)
{
    const bool begins_with_any = apr_begins_with(regex, ".*") && regex[2] != '?' && regex[2] != '+' && strchr(regex, '|') == NULL;
    return begins_with_any ? regex + 2 : NULL;
}

/* item->regex stays NULL if the text is not a valid expression. */
static apr_status add_regex(pattern *item, apr_arena *arena, apr_error *err)
{
    const char *const whole = item->text + 3, *const rest = anywhere(whole);
    const unsigned flags = APR_PATTERN_UTF | (rest != NULL ? 0 : APR_PATTERN_AT_START);
    const apr_status status = apr_pattern_compile(&item->regex, "config.json", rest != NULL ? rest : whole, flags, arena, NULL);
    return status == APR_E_MEMORY ? apr_no_memory(err, "a list of module names") : APR_OK;
}

static void add_plain(apr_name_patterns *p, size_t at)
{
    uint32_t *const bucket = &p->buckets[hash_of(p->items[at].text, strlen(p->items[at].text)) & (p->n_buckets - 1)];
    p->items[at].next = *bucket;
    *bucket = (uint32_t)at + 1;
}

apr_status apr_name_patterns_make(const char *const *texts, size_t n, apr_arena *arena, const apr_name_patterns **patterns,
                                  const char **bad, apr_error *err)
{
    apr_name_patterns *const p = apr_arena_alloc(arena, sizeof *p);

    *patterns = p;
    *bad = NULL;
    if (p == NULL) return apr_no_memory(err, "a list of module names");
    for (p->n_buckets = 8; p->n_buckets < 2 * n;) p->n_buckets *= 2;
    p->items = apr_arena_array(arena, n + 1, sizeof *p->items);
    p->others = apr_arena_array(arena, n + 1, sizeof *p->others);
    p->buckets = apr_arena_array(arena, p->n_buckets, sizeof *p->buckets);
    p->given_up = apr_arena_alloc(arena, sizeof *p->given_up);
    if (p->given_up == NULL || p->items == NULL || p->others == NULL || p->buckets == NULL)
        return apr_no_memory(err, "a list of module names");
    p->n = n;
    for (size_t i = n; i-- > 0;) { /* backwards, so that the first of equal names is found first */
        const bool is_regex = apr_begins_with(texts[i], "re:");
        p->items[i].text = is_regex ? texts[i] : canonical_name(texts[i], arena);
        if (p->items[i].text == NULL) return apr_no_memory(err, "a list of module names");
        p->items[i].is_glob = !is_regex && strchr(texts[i], '*') != NULL;
        if (is_regex) APR_TRY(add_regex(&p->items[i], arena, err));
        if (is_regex && p->items[i].regex == NULL) *bad = texts[i];
        if (!is_regex && !p->items[i].is_glob) add_plain(p, i);
    }
    for (size_t i = 0; i < n; i++)
        if (p->items[i].is_glob || p->items[i].regex != NULL) p->others[p->n_others++] = (uint32_t)i;
    return APR_OK;
}

/* True: the glob covers text[0, n). '*' is any text, also dots. */
static bool glob_covers(const char *glob, const char *text, size_t n)
{
    const char *star = NULL;
    size_t i = 0, after_star = 0;

    while (i < n) {
        if (*glob == '*') {
            star = glob++;
            after_star = i;
        } else if (*glob != '\0' && *glob == text[i]) {
            glob++;
            i++;
        } else if (star != NULL) {
            glob = star + 1;
            i = ++after_star;
        } else {
            return false;
        }
    }
    while (*glob == '*') glob++;
    return *glob == '\0';
}

/* True: it covers some run of whole names. */
static bool glob_contains(const char *glob, const char *module, size_t n)
{
    for (size_t begin = 0; begin < n; begin++) {
        if (begin > 0 && module[begin - 1] != '.') continue;
        for (size_t end = begin + 1; end <= n; end++)
            if ((end == n || module[end] == '.') && glob_covers(glob, module + begin, end - begin)) return true;
    }
    return false;
}

/* Also tries the module's names in a larger model's checkpoint, because expressions are written for those. */
static bool regex_covers(const apr_name_patterns *p, const apr_pattern *regex, const char *module)
{
    char names[3][MAX_NAME];
    bool found = false;

    snprintf(names[0], MAX_NAME, "%s", module);
    snprintf(names[1], MAX_NAME, "model.language_model.%s", apr_text_after(module, "model."));
    snprintf(names[2], MAX_NAME, "language_model.%s", module);
    for (int i = 0; i < 3 && !found; i++) {
        const apr_status status = apr_pattern_find(regex, names[i], &found, p->given_up);
        if (status != APR_OK) p->given_up->status = status;
    }
    return found;
}

/* The first plain pattern that equals text[0, n); -1: none. */
static int64_t find_run(const apr_name_patterns *p, const char *text, size_t n)
{
    for (uint32_t i = p->buckets[hash_of(text, n) & (p->n_buckets - 1)]; i > 0; i = p->items[i - 1].next)
        if (strlen(p->items[i - 1].text) == n && memcmp(p->items[i - 1].text, text, n) == 0) return i - 1;
    return -1;
}

/* Index of the first pattern that covers the module; -1: none. */
static int64_t patterns_find(const apr_name_patterns *p, const char *module)
{
    const size_t n = strlen(module);
    int64_t first = INT64_MAX;

    for (size_t begin = 0; begin < n; begin++) {
        if (begin > 0 && module[begin - 1] != '.') continue;
        for (size_t end = begin + 1; end <= n; end++) {
            const int64_t found = end == n || module[end] == '.' ? find_run(p, module + begin, end - begin) : -1;
            if (found >= 0 && found < first) first = found;
        }
    }
    for (size_t i = 0; i < p->n_others && p->others[i] < first; i++) {
        const pattern *const item = &p->items[p->others[i]];
        if (item->is_glob ? glob_contains(item->text, module, n) : regex_covers(p, item->regex, module)) first = p->others[i];
    }
    return first < INT64_MAX ? first : -1;
}

/* The status of a search that gave up. Patterns may be NULL. */
static apr_status patterns_check(const apr_name_patterns *p, apr_error *err)
{
    return p == NULL || p->given_up->status == APR_OK ? APR_OK : apr_fail(err, p->given_up->status, "%s", p->given_up->text);
}

/* --- the scheme of a matrix --- */

const apr_quant_scheme *apr_quantization_of(const apr_quantization *q, const char *name, apr_module_kind kind)
{
    if (q == NULL || q->n_schemes == 0 || kind == APR_MODULE_OTHER) return NULL;
    if (q->experts_only && kind != APR_MODULE_EXPERTS) return NULL;
    if (!q->head && kind == APR_MODULE_HEAD) return NULL;
    if (q->skipped != NULL && patterns_find(q->skipped, name) >= 0) return NULL;
    const int64_t rule = q->targets != NULL ? patterns_find(q->targets, name) : 0;
    return rule >= 0 ? &q->schemes[rule] : NULL;
}

const apr_quant_scheme *apr_quantization_of_tensor(const apr_quantization *q, const char *name, size_t n, apr_quant_layout layout)
{
    static const char part[] = "language_model.";
    char module[512];

    if (q == NULL || n >= sizeof module) return NULL;
    memcpy(module, name, n);
    module[n] = '\0';
    char *const at = strstr(module, part);
    if (at != NULL && (at == module || at[-1] == '.')) memmove(at, at + sizeof part - 1, strlen(at + sizeof part - 1) + 1);
    const apr_quant_scheme *const scheme = apr_quantization_of(q, module, q->experts_only ? APR_MODULE_EXPERTS : APR_MODULE_LINEAR);
    return scheme != NULL && scheme->layout == layout ? scheme : NULL;
}

apr_status apr_quantization_check(const apr_quantization *q, apr_error *err)
{
    if (q == NULL) return APR_OK;
    APR_TRY(patterns_check(q->skipped, err));
    return patterns_check(q->targets, err);
}
