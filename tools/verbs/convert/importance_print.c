/* importance_print.c - prints which matrices were encoded with importance, and which were not. */
#include "tools/verbs/convert/importance_print.h"

#include "tools/cli/text.h"

#include <stdio.h>
#include <string.h>

static bool is_bare(const apr_pipe_item *item) { return apr_item_uses_importance(item) && item->importance == NULL; }

void apr_importance_print(const apr_conversion *c)
{
    enum { MAX_NAMED = 4 };
    const apr_imatrix *const m = c->options.imatrix;
    char clean[512];
    size_t n_named = 0;

    if (m == NULL) return;
    printf("  importance from %s", apr_printable(m->path));
    if (m->n_datasets > 0) printf(", made from %s", apr_clean_text(clean, sizeof clean, m->datasets[0], strlen(m->datasets[0])));
    printf(": %zu of %zu matrices\n", c->cover.n_covered, c->cover.n_covered + c->cover.n_bare);
    if (c->cover.n_unseen > 0)
        printf("  %lld experts received no tokens in it and are encoded without importance\n", (long long)c->cover.n_unseen);
    if (c->cover.n_bare == 0) return;
    printf("  without importance:");
    for (size_t i = 0; i < c->layout.n_tensors && n_named < MAX_NAMED; i++)
        if (is_bare(&c->items[i])) printf("%s %s", n_named++ > 0 ? "," : "", apr_printable(c->items[i].from->name));
    printf("%s\n", c->cover.n_bare > MAX_NAMED ? ", ..." : "");
}

void apr_importance_json(apr_json_text *json, const apr_conversion *c)
{
    const apr_imatrix *const m = c->options.imatrix;

    if (m == NULL) return;
    apr_json_open(json, "importance", '{');
    apr_json_string(json, "file", m->path, strlen(m->path));
    apr_json_open(json, "texts", '[');
    for (size_t i = 0; i < m->n_datasets; i++) apr_json_string(json, NULL, m->datasets[i], strlen(m->datasets[i]));
    apr_json_close(json, ']');
    apr_json_int(json, "windows", m->chunk_count);
    apr_json_uint(json, "covered", c->cover.n_covered);
    apr_json_int(json, "experts_without_tokens", c->cover.n_unseen);
    apr_json_open(json, "not_covered", '[');
    for (size_t i = 0; i < c->layout.n_tensors; i++)
        if (is_bare(&c->items[i])) apr_json_string(json, NULL, c->items[i].from->name, strlen(c->items[i].from->name));
    apr_json_close(json, ']');
    apr_json_close(json, '}');
}
