/* packed_print.c - adds up items by scheme and type. */
#include "tools/conv/packed_print.h"

#include "formats/model/made.h"
#include "formats/model/packing.h"
#include "tools/cli/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_GROUPS = 64 };

typedef struct group {
    const char *scheme;
    apr_dtype to;
    bool same_numbers;
    size_t n_matrices;
    int64_t n_values, n_different;
    double worst;
} group;

static const char *scheme_of(const apr_tensor *t)
{
    if (t->made != NULL) t = t->made->parts[0];
    return t->packing != NULL ? t->packing->scheme : NULL;
}

/* The last group takes what there is no room for. */
static group *find(group *groups, size_t *n, const group *wanted)
{
    for (size_t i = 0; i < *n; i++)
        if (strcmp(groups[i].scheme, wanted->scheme) == 0 && groups[i].to == wanted->to && groups[i].same_numbers == wanted->same_numbers)
            return &groups[i];
    if (*n == MOST_GROUPS) return &groups[MOST_GROUPS - 1];
    groups[*n] = *wanted;
    return &groups[(*n)++];
}

static size_t collect(const apr_conversion *c, group groups[MOST_GROUPS])
{
    size_t n = 0;
    for (size_t i = 0; i < c->layout.n_tensors; i++) {
        const apr_pipe_item *const item = &c->items[i];
        const char *const scheme = scheme_of(item->from);
        if (scheme == NULL || item->is_scales || item->is_commons) continue;
        group *const g = find(groups, &n, &(group){.scheme = scheme, .to = item->to, .same_numbers = item->same_numbers});
        g->n_matrices++;
        g->n_values += apr_tensor_elems(item->from);
        g->n_different += item->n_different;
        g->worst = fmax(g->worst, item->worst_difference);
    }
    return n;
}

static void print_group(const group *g, bool dry_run)
{
    const char *const type = apr_dtypes[g->to].name, *const many = g->n_matrices == 1 ? "matrix" : "matrices";

    if (!g->same_numbers) printf("  decoded: %zu %s of %s to %s\n", g->n_matrices, many, g->scheme, type);
    else if (dry_run) printf("  %zu %s of %s fit %s: the same numbers in other places\n", g->n_matrices, many, g->scheme, type);
    else if (g->n_different == 0)
        printf("  lossless: %zu %s of %s as %s; all %lld values were compared and are the same numbers\n", g->n_matrices, many, g->scheme,
               type, (long long)g->n_values);
    else
        printf("  cost: %zu %s of %s as %s; of %lld values %lld differ, by %.2g of their size at most\n", g->n_matrices, many, g->scheme,
               type, (long long)g->n_values, (long long)g->n_different, g->worst);
}

void apr_print_packed(const apr_conversion *conversion, bool dry_run)
{
    group groups[MOST_GROUPS];
    const size_t n = collect(conversion, groups);
    for (size_t i = 0; i < n; i++) print_group(&groups[i], dry_run);
}

void apr_json_packed(apr_json_text *json, const apr_conversion *conversion, bool dry_run)
{
    group groups[MOST_GROUPS];
    const size_t n = collect(conversion, groups);

    if (n == 0) return;
    apr_json_open(json, "packed", '[');
    for (size_t i = 0; i < n; i++) {
        const group *const g = &groups[i];
        apr_json_open(json, NULL, '{');
        apr_json_string(json, "scheme", g->scheme, strlen(g->scheme));
        apr_json_string(json, "to", apr_dtypes[g->to].name, strlen(apr_dtypes[g->to].name));
        apr_json_uint(json, "matrices", g->n_matrices);
        apr_json_int(json, "values", g->n_values);
        apr_json_bool(json, "same_numbers", g->same_numbers);
        if (g->same_numbers && !dry_run) {
            apr_json_bool(json, "lossless", g->n_different == 0);
            apr_json_int(json, "different", g->n_different);
            apr_json_real(json, "worst_relative_difference", g->worst);
        }
        apr_json_close(json, '}');
    }
    apr_json_close(json, ']');
}
