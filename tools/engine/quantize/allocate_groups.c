/* allocate_groups.c - makes groups of tensors that get one type together, with their candidate types and the tensors of the model that is
 * run to measure them. */
#include "kernels/rows.h"
#include "tools/engine/quantize/allocate_types.h"

#include <stdlib.h>
#include <string.h>

/* Candidate types. `narrow` (blocks of 32) is for matrices whose columns 256 does not divide. */
static const apr_dtype wide[] = {APR_Q4_K, APR_Q5_K, APR_Q6_K, APR_Q8_0}, narrow[] = {APR_Q4_0, APR_Q5_0, APR_Q8_0};

static bool may_change(const apr_recipe_line *line)
{
    const apr_tensor *const t = line->tensor;
    return !line->asked_for && !line->same_numbers && t->rank >= 2 && line->to != t->dtype &&
           apr_dtypes[line->to].class_of == APR_CLASS_BLOCK;
}

/* Finds the expert's number after ".experts." in a name: [*begin, *end). */
static bool find_expert(const char *name, size_t *begin, size_t *end)
{
    static const char word[] = ".experts.";
    const char *const at = strstr(name, word);

    if (at == NULL) return false;
    *begin = (size_t)(at - name) + sizeof word - 1;
    *end = *begin + strspn(name + *begin, "0123456789");
    return *end > *begin && name[*end] == '.';
}

static bool name_group(apr_allocate_group *g, const char *name, apr_arena *arena)
{
    size_t begin, end;

    if (find_expert(name, &begin, &end)) {
        g->name = apr_arena_print(arena, "%.*s*%s", (int)begin, name, name + end);
        g->regex = apr_arena_print(arena, "^\\Q%.*s\\E[0-9]+\\Q%s\\E$", (int)begin, name, name + end);
    } else {
        g->name = apr_arena_copy(arena, name, strlen(name)); /* a copy: the conversion is closed before the table is printed */
        g->regex = apr_arena_print(arena, "^\\Q%s\\E$", name);
    }
    return g->name != NULL && g->regex != NULL;
}

static void add_type(apr_allocate_group *g, const apr_recipe_limits *limits, apr_dtype type)
{
    for (size_t i = 0; i < g->n_types; i++)
        if (g->types[i] == type) return;
    if (limits->allows != NULL && !limits->allows(type)) return;
    if (apr_tensor_columns(g->example) % apr_dtypes[type].elems_per_block != 0 || !apr_can_encode(type)) return;
    size_t at = g->n_types++;
    for (; at > 0 && apr_dtype_bits(type) < apr_dtype_bits(g->types[at - 1]); at--) g->types[at] = g->types[at - 1];
    g->types[at] = type; /* sorted by bits, fewest first */
}

/* Candidates: the recipe's own type, and finer and coarser ones. */
static void offer_types(apr_allocate_group *g, const apr_recipe_limits *limits, apr_dtype base)
{
    const bool is_wide = apr_tensor_columns(g->example) % apr_dtypes[APR_Q4_K].elems_per_block == 0;

    add_type(g, limits, base);
    for (size_t i = 0; is_wide && i < sizeof wide / sizeof *wide; i++) add_type(g, limits, wide[i]);
    for (size_t i = 0; !is_wide && i < sizeof narrow / sizeof *narrow; i++) add_type(g, limits, narrow[i]);
}

static apr_status add_line(apr_allocation *a, const apr_conversion *c, const apr_recipe_line *line, size_t *group, apr_error *err)
{
    apr_allocate_group next = {.example = line->tensor};
    size_t i = 0, unused[2];

    if (!name_group(&next, line->tensor->name, &a->arena)) return apr_no_memory(err, "groups of tensors");
    if (find_expert(line->tensor->name, &unused[0], &unused[1]))
        while (i < a->n_groups && strcmp(a->groups[i].name, next.name) != 0) i++;
    else i = a->n_groups;
    if (i == a->n_groups) {
        offer_types(&next, &c->options.recipe.limits, line->to);
        a->groups[a->n_groups++] = next;
    }
    apr_allocate_group *const g = &a->groups[i];
    for (size_t k = 0; k < g->n_types; k++) g->offers[k].cost += (double)apr_recipe_bytes(line->tensor, g->types[k]);
    g->bytes_before += apr_recipe_bytes(line->tensor, line->to);
    *group = i;
    return APR_OK;
}

apr_status apr_allocate_groups(apr_allocation *a, const apr_conversion *c, size_t **group_of, apr_error *err)
{
    a->groups = apr_arena_array(&a->arena, c->recipe.n_lines + 1, sizeof *a->groups);
    *group_of = apr_arena_array(&a->arena, c->view.n_tensors + 1, sizeof **group_of);
    if (a->groups == NULL || *group_of == NULL) return apr_no_memory(err, "groups of tensors");
    for (size_t i = 0; i < c->view.n_tensors; i++) (*group_of)[i] = SIZE_MAX;
    for (size_t i = 0; i < c->recipe.n_lines; i++) {
        const apr_recipe_line *const line = &c->recipe.lines[i];
        if (may_change(line)) APR_TRY(add_line(a, c, line, &(*group_of)[line->tensor - c->view.tensors], err));
    }
    return APR_OK;
}

static apr_status add_member(apr_allocation *a, apr_allocate_group *g, size_t member, apr_error *err)
{
    if (g->n_members == g->capacity) {
        const size_t capacity = 2 * g->capacity + 4;
        size_t *const grown = apr_arena_array(&a->arena, capacity, sizeof *grown);
        if (grown == NULL) return apr_no_memory(err, "groups of tensors");
        if (g->n_members > 0) memcpy(grown, g->members, g->n_members * sizeof *grown);
        g->members = grown;
        g->capacity = capacity;
    }
    g->members[g->n_members++] = member;
    return APR_OK;
}

/* Drops candidate types in which one of the group's tensors cannot be tried. */
static void drop_types(apr_allocate_group *g, const apr_model *model)
{
    size_t n = 0;

    for (size_t k = 0; k < g->n_types; k++) {
        bool can = true;
        for (size_t i = 0; i < g->n_members; i++) can &= apr_damage_can_be(&model->tensors[g->members[i]], g->types[k]);
        if (!can) continue;
        g->types[n] = g->types[k];
        g->offers[n++] = g->offers[k];
    }
    g->n_types = n;
}

apr_status apr_allocate_members(apr_allocation *a, const apr_conversion *c, const apr_model *model, const size_t *group_of, apr_error *err)
{
    size_t n = 0;

    for (size_t i = 0; i < model->n_tensors; i++) {
        const apr_tensor *const t = &model->tensors[i];
        const apr_tensor *const from = apr_model_find(&c->view, t->origin_name != NULL ? t->origin_name : t->name);
        const size_t group = from != NULL ? group_of[from - c->view.tensors] : SIZE_MAX;
        if (group != SIZE_MAX && t->origins == NULL) APR_TRY(add_member(a, &a->groups[group], i, err));
    }
    for (size_t i = 0; i < a->n_groups; i++) {
        drop_types(&a->groups[i], model);
        if (a->groups[i].n_members > 0 && a->groups[i].n_types > 0) a->groups[n++] = a->groups[i];
    }
    a->n_groups = n;
    return APR_OK;
}
