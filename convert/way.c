/* way.c - records a tensor's way while it is gone, and undoes it: steps one by one, parts joined, wholes taken apart. */
#include "convert/way.h"

#include <stdlib.h>
#include <string.h>

apr_status apr_way_go(apr_tensor *tensor, const char *name, const apr_chain *chain, apr_arena *arena, const char *where, apr_error *err)
{
    APR_TRY(apr_tensor_follow(tensor, chain, arena, where, err));
    tensor->origin_name = tensor->name;
    tensor->origin_chain = *chain;
    tensor->origins = NULL;
    tensor->origin_kept = NULL;
    tensor->name = name;
    return APR_OK;
}

apr_status apr_way_join(apr_tensor *tensor, const apr_tensor *const *parts, size_t n_parts, const apr_chain *chain, apr_arena *arena,
                        const char *where, apr_error *err)
{
    APR_TRY(apr_tensor_make(tensor, parts, n_parts, chain, arena, where, err));
    apr_origins *const several = apr_arena_alloc(arena, sizeof *several);
    const char **const names = apr_arena_array(arena, n_parts, sizeof *names);
    int64_t *const lengths = apr_arena_array(arena, n_parts, sizeof *lengths);
    apr_chain *const chains = apr_arena_array(arena, n_parts, sizeof *chains);
    const apr_step *const first = &chain->steps[0];
    bool any_chain = false;

    if (several == NULL || names == NULL || lengths == NULL || chains == NULL) return apr_no_memory(err, "the parts of a tensor");
    for (size_t i = 0; i < n_parts; i++) {
        names[i] = parts[i]->origin_name != NULL ? parts[i]->origin_name : parts[i]->name;
        chains[i] = parts[i]->origin_chain;
        any_chain |= chains[i].n_steps > 0;
        lengths[i] = first->kind == APR_STEP_JOIN ? parts[i]->dims[parts[i]->rank - 1 - first->n[0]] : 0;
    }
    *several = (apr_origins){
        .names = names, .n = n_parts, .lengths = first->kind == APR_STEP_JOIN ? lengths : NULL, .chains = any_chain ? chains : NULL};
    tensor->origin_name = NULL;
    tensor->origins = several;
    tensor->origin_chain = *chain;
    tensor->origin_kept = NULL;
    return APR_OK;
}

/* ---- back ---- */

/* The table that is being made, with all that making it needs. */
typedef struct return_trip {
    apr_model *view;
    const apr_tensor *old; /* [n_old] */
    size_t n_old;
    apr_tensor *tensors; /* those of the origin so far */
    size_t n_tensors;
    apr_error *err;
} return_trip;

static apr_status damaged(const return_trip *r, const char *name, const char *what)
{
    return apr_fail(r->err, APR_E_DAMAGED, "%s: tensor '%s' cannot be brought back to how it was: %s", r->view->path, name, what);
}

/* Steps [first, n) of a chain, undone. */
static bool undo_from(const apr_chain *chain, int first, apr_chain *inverse)
{
    apr_chain rest = {0};
    for (int i = first; i < chain->n_steps; i++) rest.steps[rest.n_steps++] = chain->steps[i];
    return apr_chain_inverse(&rest, inverse);
}

/* Where a part was taken out of a whole; -1: nowhere. */
static int cut_of(const apr_chain *chain)
{
    for (int i = 0; i < chain->n_steps; i++)
        if (chain->steps[i].kind == APR_STEP_TAKE || chain->steps[i].kind == APR_STEP_PICK) return i;
    return -1;
}

static apr_tensor *emit(return_trip *r, const apr_tensor *from, const char *name, const apr_chain *back)
{
    apr_tensor *const t = &r->tensors[r->n_tensors++];
    *t = *from;
    t->name = name;
    t->origin_name = from->name;
    t->origin_chain = *back;
    t->origins = NULL;
    t->origin_kept = NULL;
    return t;
}

static apr_status back_alone(return_trip *r, const apr_tensor *from)
{
    apr_chain back;

    if (!apr_chain_inverse(&from->origin_chain, &back)) return damaged(r, from->name, "its steps have no inverse");
    apr_tensor *const t = emit(r, from, from->origin_name != NULL ? from->origin_name : from->name, &back);
    return apr_tensor_follow(t, &back, &r->view->arena, r->view->path, r->err);
}

/* What takes part i out of the whole again. */
static bool part_step(const apr_tensor *from, size_t i, int64_t *first, apr_step *step)
{
    const apr_step *const joined = &from->origin_chain.steps[0];
    const int64_t length = from->origins->lengths != NULL ? from->origins->lengths[i] : 0, groups = joined->n[1];

    if (joined->kind == APR_STEP_STACK) {
        *step = (apr_step){APR_STEP_PICK, {(int32_t)i}};
        return true;
    }
    if (from->origins->lengths == NULL || groups < 1 || length % groups != 0 || length > INT32_MAX || *first > INT32_MAX) return false;
    *step = (apr_step){APR_STEP_TAKE, {joined->n[0], joined->n[1], (int32_t)*first, (int32_t)(length / groups)}};
    *first += length / groups;
    return true;
}

static apr_status back_in_parts(return_trip *r, const apr_tensor *from)
{
    apr_chain rest;
    int64_t first = 0;

    if (!undo_from(&from->origin_chain, 1, &rest)) return damaged(r, from->name, "its steps have no inverse");
    for (size_t i = 0; i < from->origins->n; i++) {
        apr_chain back = rest, own = {0};
        apr_step step;
        if (from->origins->chains != NULL && !apr_chain_inverse(&from->origins->chains[i], &own))
            return damaged(r, from->name, "the steps of its parts have no inverse");
        if (!part_step(from, i, &first, &step) || !apr_chain_append(&back, step) || !apr_chain_extend(&back, &own))
            return damaged(r, from->name, "its parts do not fit");
        apr_tensor *const t = emit(r, from, from->origins->names[i], &back);
        APR_TRY(apr_tensor_follow(t, &back, &r->view->arena, r->view->path, r->err));
    }
    return APR_OK;
}

/* ---- several parts of one origin ---- */

static int64_t place_in_whole(const apr_tensor *t)
{
    const apr_step *const step = &t->origin_chain.steps[cut_of(&t->origin_chain)];
    return step->kind == APR_STEP_TAKE ? step->n[2] : step->n[0];
}

static int compare_parts(const void *a, const void *b)
{
    const apr_tensor *const s = *(const apr_tensor *const *)a, *const t = *(const apr_tensor *const *)b;
    const int by_name = strcmp(s->origin_name, t->origin_name);
    const int64_t at = place_in_whole(s), other = place_in_whole(t);
    return by_name != 0 ? by_name : (at > other) - (at < other);
}

/* Do the parts follow one another, taken from the same place on the same way? */
static bool are_whole(const apr_tensor *const *parts, size_t n)
{
    const apr_chain *const first = &parts[0]->origin_chain;
    const int cut = cut_of(first);
    int64_t next = 0;

    for (size_t i = 0; i < n; i++) {
        const apr_chain *const chain = &parts[i]->origin_chain;
        const apr_step *const step = &chain->steps[cut];
        if (cut_of(chain) != cut || step->kind != first->steps[cut].kind || place_in_whole(parts[i]) != next) return false;
        for (int s = 0; s < cut; s++)
            if (!apr_step_equal(&chain->steps[s], &first->steps[s])) return false;
        if (step->kind == APR_STEP_TAKE && (step->n[0] != first->steps[cut].n[0] || step->n[1] != first->steps[cut].n[1])) return false;
        next += step->kind == APR_STEP_TAKE ? step->n[3] : 1;
    }
    return true;
}

/* The parts as they were taken, then joined, then what came before the cut undone. */
static apr_status back_as_one(return_trip *r, const apr_tensor *const *parts, size_t n)
{
    const apr_chain *const first = &parts[0]->origin_chain;
    const int cut = cut_of(first);
    const apr_step *const step = &first->steps[cut];
    apr_arena *const arena = &r->view->arena;
    const apr_tensor **const taken = apr_arena_array(arena, n, sizeof *taken);
    apr_chain back, before = *first;

    if (taken == NULL) return apr_no_memory(r->err, "the parts of a tensor");
    if (!are_whole(parts, n)) return damaged(r, parts[0]->name, "its origin's other parts are not all here");
    for (size_t i = 0; i < n; i++) {
        apr_tensor *const t = apr_arena_alloc(arena, sizeof *t);
        if (t == NULL) return apr_no_memory(r->err, "the parts of a tensor");
        *t = *parts[i];
        if (!undo_from(&t->origin_chain, cut + 1, &back)) return damaged(r, t->name, "its steps have no inverse");
        APR_TRY(apr_tensor_follow(t, &back, arena, r->view->path, r->err));
        t->origin_name = NULL; /* its name here is what the whole is made of */
        t->origin_chain = (apr_chain){0};
        t->origins = NULL;
        taken[i] = t;
    }
    back = apr_chain_of(step->kind == APR_STEP_TAKE ? (apr_step){APR_STEP_JOIN, {step->n[0], step->n[1]}}
                                                    : (apr_step){.kind = APR_STEP_STACK});
    before.n_steps = cut;
    apr_chain undone;
    if (!apr_chain_inverse(&before, &undone) || !apr_chain_extend(&back, &undone))
        return damaged(r, parts[0]->name, "its steps have no inverse");
    apr_tensor *const whole = &r->tensors[r->n_tensors++];
    *whole = (apr_tensor){.name = parts[0]->origin_name};
    return apr_way_join(whole, taken, n, &back, arena, r->view->path, r->err);
}

/* ---- all of them ---- */

/* The most tensors that there can be, and which are there only because another needs them as they were. */
static apr_status prepare(return_trip *r, bool *is_kept)
{
    size_t n = r->n_old + 1;
    for (size_t i = 0; i < r->n_old; i++) {
        const apr_tensor *const t = &r->old[i];
        if (t->origins != NULL) n += t->origins->n;
        const apr_tensor *const kept = t->origin_kept != NULL ? apr_model_find(r->view, t->origin_kept) : NULL;
        if (t->origin_kept != NULL && (kept == NULL || kept == t || t->origin_name == NULL))
            return damaged(r, t->name, "the original that was kept is not here");
        if (kept != NULL) is_kept[kept - r->old] = true;
    }
    r->tensors = apr_arena_array(&r->view->arena, n, sizeof *r->tensors);
    return r->tensors != NULL ? APR_OK : apr_no_memory(r->err, "a table of tensors");
}

static apr_status back_one(return_trip *r, const apr_tensor *t)
{
    const apr_tensor *const kept = t->origin_kept != NULL ? apr_model_find(r->view, t->origin_kept) : NULL;
    const apr_chain nothing = {0};

    if (kept != NULL) return (void)emit(r, kept, t->origin_name, &nothing), APR_OK;
    return t->origins != NULL ? back_in_parts(r, t) : back_alone(r, t);
}

apr_status apr_way_back(apr_model *view, apr_error *err)
{
    return_trip r = {.view = view, .old = view->tensors, .n_old = view->n_tensors, .err = err};
    bool *const is_kept = apr_arena_array(&view->arena, r.n_old + 1, sizeof *is_kept);
    size_t *const places = apr_arena_array(&view->arena, r.n_old + 1, sizeof *places); /* where an old tensor is now */
    const apr_tensor **const parts = apr_arena_array(&view->arena, r.n_old + 1, sizeof *parts);
    size_t n_parts = 0, n_same;

    if (is_kept == NULL || places == NULL || parts == NULL) return apr_no_memory(err, "a table of tensors");
    APR_TRY(prepare(&r, is_kept));
    for (size_t i = 0; i < r.n_old; i++) {
        const apr_tensor *const t = &r.old[i];
        const bool is_part = t->origin_name != NULL && t->origin_kept == NULL && cut_of(&t->origin_chain) >= 0;
        places[i] = r.n_tensors;
        if (is_part) parts[n_parts++] = t;
        else if (!is_kept[i]) APR_TRY(back_one(&r, t));
    }
    n_same = r.n_tensors;
    for (size_t i = 0; i < n_same; i++) { /* scales are tensors of the same table, and have no way of their own */
        apr_tensor *const t = &r.tensors[i];
        if (t->scale >= r.old && t->scale < r.old + r.n_old) t->scale = &r.tensors[places[t->scale - r.old]];
    }
    qsort(parts, n_parts, sizeof *parts, compare_parts);
    for (size_t i = 0, n; i < n_parts; i += n) {
        for (n = 1; i + n < n_parts && strcmp(parts[i]->origin_name, parts[i + n]->origin_name) == 0;) n++;
        APR_TRY(back_as_one(&r, parts + i, n));
    }
    view->tensors = r.tensors;
    view->n_tensors = r.n_tensors;
    return APR_OK;
}
