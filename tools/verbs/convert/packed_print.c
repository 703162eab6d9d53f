/* packed_print.c - adds up items by scheme and type. */
#include "tools/verbs/convert/packed_print.h"

#include "formats/tensor/composed.h"

#include <math.h>
#include <string.h>

enum { MAX_GROUPS = 64 };

typedef struct group {
    const char *scheme;
    apr_dtype library, to;
    bool same_numbers;
    size_t n_matrices;
    int64_t n_values, n_different, n_rounded, n_off;
    double worst;
} group;

/* The packed scheme that a tensor is stored in; NULL: none. */
static const char *scheme_of(const apr_tensor *t)
{
    if (apr_tensor_is_composed(t)) t = apr_tensor_source_at(t, 0);
    if (apr_tensor_is_packed(t)) return apr_tensor_encoding(t);
    return apr_dtypes[t->dtype].scales != APR_SCALES_SEPARATE ? NULL : t->scale != NULL ? "FP8 with scales" : "FP8";
}

/* Finds or adds a group. If the table is full, the last group collects the rest. */
static group *find(group *groups, size_t *n, const group *wanted)
{
    for (size_t i = 0; i < *n; i++)
        if (strcmp(groups[i].scheme, wanted->scheme) == 0 && groups[i].to == wanted->to && groups[i].same_numbers == wanted->same_numbers)
            return &groups[i];
    if (*n == MAX_GROUPS) return &groups[MAX_GROUPS - 1];
    groups[*n] = *wanted;
    return &groups[(*n)++];
}

static size_t collect(const apr_conversion *c, group groups[MAX_GROUPS])
{
    size_t n = 0;
    for (size_t i = 0; i < c->layout.n_tensors; i++) {
        const apr_pipe_item *const item = &c->items[i];
        const char *const scheme = scheme_of(item->from);
        const bool is_reported = item->same_numbers || item->counts_cost;
        if (scheme == NULL || !is_reported) continue;
        group *const g =
            find(groups, &n, &(group){.scheme = scheme, .library = item->library, .to = item->to, .same_numbers = item->same_numbers});
        g->n_matrices++;
        g->n_values += apr_tensor_elems(item->from);
        g->n_different += item->n_different;
        g->n_rounded += item->n_rounded;
        g->n_off += item->n_off;
        g->worst = fmax(g->worst, item->worst_difference);
    }
    return n;
}

/* The result decodes to exactly the values that the checkpoint's library computes. */
static bool is_lossless(const group *g) { return g->n_different == 0 && g->n_rounded == 0; }

/* The decoded values equal the library's values after they are rounded as the library does. */
static bool is_as_library(const group *g) { return g->n_off == 0 && g->n_different > 0; }

static void print_as_library(apr_report *r, const group *g)
{
    const char *const library = apr_dtypes[g->library].name;
    if (g->to == g->library)
        apr_report_print(r,
                         "all %lld values were compared and are those of the checkpoint's library, which rounds products of code and scale "
                         "to %s; a run of the checkpoint does not round them\n",
                         (long long)g->n_values, library);
    else
        apr_report_print(r,
                         "all %lld values were compared and are those of the checkpoint's library, which rounds them to %s; without "
                         "rounding %lld differ, by at most %.2g of their size\n",
                         (long long)g->n_values, library, (long long)g->n_different, g->worst);
}

static void print_group(apr_report *r, const group *g, bool dry_run)
{
    const char *const type = apr_dtypes[g->to].name, *const many = g->n_matrices == 1 ? "matrix" : "matrices";
    const char *const how = g->same_numbers ? "as" : "decoded to";
    const char *const verdict = is_lossless(g)        ? "lossless"
                                : is_as_library(g)    ? "library's numbers"
                                : g->n_different == 0 ? "same numbers"
                                                      : "cost";

    if (dry_run) {
        apr_report_print(r, "  %zu %s of %s %s %s\n", g->n_matrices, many, g->scheme, how, type);
        return;
    }
    apr_report_print(r, "  %s: %zu %s of %s %s %s; ", verdict, g->n_matrices, many, g->scheme, how, type);
    if (is_lossless(g)) apr_report_print(r, "all %lld values were compared and are the same\n", (long long)g->n_values);
    else if (g->n_different == 0)
        apr_report_print(r,
                         "all %lld products of code and scale were compared and are the same; the checkpoint's library rounds %lld of "
                         "them to %s, readers of %s do not\n",
                         (long long)g->n_values, (long long)g->n_rounded, apr_dtypes[g->library].name, type);
    else if (is_as_library(g)) print_as_library(r, g);
    else
        apr_report_print(r, "of %lld values %lld differ, by at most %.2g of their size\n", (long long)g->n_values,
                         (long long)g->n_different, g->worst);
}

static void group_members(apr_report *r, const group *g, bool dry_run)
{
    apr_report_open(r, NULL, '{');
    apr_report_member(r, "scheme", apr_as_text(g->scheme));
    apr_report_member(r, "to", apr_as_text(apr_dtypes[g->to].name));
    apr_report_member(r, "matrices", apr_as_uint(g->n_matrices));
    apr_report_member(r, "values", apr_as_int(g->n_values));
    apr_report_member(r, "same_numbers", apr_as_bool(g->same_numbers));
    if (!dry_run) {
        apr_report_member(r, "lossless", apr_as_bool(is_lossless(g)));
        apr_report_member(r, "different", apr_as_int(g->n_different));
        apr_report_member(r, "worst_relative_difference", apr_as_real(g->worst));
        apr_report_member(r, "rounded_by_library", apr_as_int(g->n_rounded));
        apr_report_member(r, "as_library", apr_as_bool(g->n_off == 0));
    }
    apr_report_shut(r, '}');
}

void apr_packed_report(apr_report *r, const apr_conversion *conversion, bool dry_run)
{
    group groups[MAX_GROUPS];
    const size_t n = collect(conversion, groups);

    if (n == 0) return;
    apr_report_open(r, "packed", '[');
    for (size_t i = 0; i < n; i++) {
        print_group(r, &groups[i], dry_run);
        group_members(r, &groups[i], dry_run);
    }
    apr_report_shut(r, ']');
}
