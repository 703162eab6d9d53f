/* quant_sums.c - sums by layer and by role. */
#include "tools/engine/quantize/quant_sums.h"

#include <stdlib.h>
#include <string.h>

size_t apr_quant_next_item(const apr_conversion *c, size_t item)
{
    item++;
    while (c->items[item].is_scales || c->items[item].is_commons) item++;
    return item;
}

static void add(apr_quant_sum *sum, const apr_recipe *recipe, const apr_recipe_line *line, const apr_pipe_item *item)
{
    sum->n_tensors++;
    sum->n_changed += apr_recipe_changes(line);
    sum->bytes_before += apr_tensor_is_stored(line->tensor) ? line->tensor->n_bytes : apr_recipe_bytes(line->tensor, line->tensor->dtype);
    sum->bytes_after += apr_recipe_line_bytes(recipe, line);
    if (item->metrics.n > 0) apr_metrics_merge(&sum->metrics, &item->metrics);
}

static int larger_first(const void *a, const void *b)
{
    const apr_quant_sum *const x = a, *const y = b;
    if (x->bytes_before != y->bytes_before) return x->bytes_before < y->bytes_before ? 1 : -1;
    return strcmp(x->name, y->name);
}

/* Finds or adds the role of that name. */
static apr_quant_sum *role_named(apr_quant_sums *s, const char *name)
{
    for (size_t i = 0; i < s->n_roles; i++)
        if (strcmp(s->roles[i].name, name) == 0) return &s->roles[i];
    s->roles[s->n_roles] = (apr_quant_sum){.name = name, .layer = -1, .metrics = apr_metrics_empty()};
    return &s->roles[s->n_roles++];
}

apr_status apr_quant_sums_of(apr_quant_sums *s, const apr_conversion *c, apr_error *err)
{
    const apr_family *const family = apr_family_find(c->view.hparams.architecture);
    size_t item = SIZE_MAX;

    *s = (apr_quant_sums){.n_layers = c->view.hparams.num_layers, .all = {.layer = -1, .metrics = apr_metrics_empty()}};
    if (s->n_layers < 0) s->n_layers = 0;
    s->roles = apr_arena_array(&s->arena, c->recipe.n_lines + 1, sizeof *s->roles);
    s->layers = apr_arena_array(&s->arena, (size_t)s->n_layers + 1, sizeof *s->layers);
    if (s->roles == NULL || s->layers == NULL) return apr_no_memory(err, "the report");
    for (int64_t i = 0; i <= s->n_layers; i++)
        s->layers[i] = (apr_quant_sum){.layer = i < s->n_layers ? i : -1, .metrics = apr_metrics_empty()};
    for (size_t i = 0; i < c->recipe.n_lines; i++) {
        const apr_recipe_line *const line = &c->recipe.lines[i];
        const int64_t layer = apr_find_tensor_role(family, line->tensor).layer;
        item = apr_quant_next_item(c, item);
        add(&s->all, &c->recipe, line, &c->items[item]);
        add(role_named(s, apr_tensor_role_name(line->role)), &c->recipe, line, &c->items[item]);
        add(&s->layers[layer >= 0 && layer < s->n_layers ? layer : s->n_layers], &c->recipe, line, &c->items[item]);
    }
    qsort(s->roles, s->n_roles, sizeof *s->roles, larger_first);
    return APR_OK;
}

void apr_quant_sums_close(apr_quant_sums *s)
{
    apr_arena_close(&s->arena);
    *s = (apr_quant_sums){0};
}
