/* provenance.c - records a tensor's provenance, and undoes it: inverts steps, joins parts, cuts wholes. */
#include "convert/provenance.h"

#include <stdlib.h>
#include <string.h>

apr_status apr_provenance_begin(apr_tensor *tensor, const char *name, const apr_chain *chain, apr_arena *arena, const char *where,
                                apr_error *err)
{
    APR_TRY(apr_tensor_append_steps(tensor, chain, arena, where, err));
    tensor->origin_name = tensor->name;
    tensor->origin_chain = *chain;
    tensor->origins = NULL;
    tensor->origin_kept = NULL;
    tensor->name = name;
    return APR_OK;
}

apr_status apr_provenance_join(apr_tensor *tensor, const apr_tensor *const *parts, size_t n_parts, const apr_chain *chain, apr_arena *arena,
                               const char *where, apr_error *err)
{
    APR_TRY(apr_tensor_compose(tensor, parts, n_parts, chain, arena, where, err));
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

/* ---- restoring ---- */

/* The table under construction. */
typedef struct undo_state {
    apr_model *view;
    const apr_tensor *old; /* [n_old] */
    size_t n_old;
    apr_tensor *tensors; /* the restored tensors so far */
    size_t *places;      /* [n_tensors] for each, the index of the first tensor in `old` that is a part of it */
    size_t n_tensors;
    size_t at; /* the index in `old` for the next tensor */
    apr_error *err;
} undo_state;

static apr_status damaged(const undo_state *r, const char *name, const char *what)
{
    return apr_fail(r->err, APR_E_DAMAGED, "%s: tensor '%s' cannot be restored to its original form: %s", r->view->path, name, what);
}

/* The inverse of steps [first, n) of a chain. */
static bool undo_from(const apr_chain *chain, int first, apr_chain *inverse)
{
    apr_chain rest = {0};
    for (int i = first; i < chain->n_steps; i++) rest.steps[rest.n_steps++] = chain->steps[i];
    return apr_chain_inverse(&rest, inverse);
}

static apr_tensor *emit(undo_state *r, const apr_tensor *from, const char *name, const apr_chain *back)
{
    r->places[r->n_tensors] = r->at;
    apr_tensor *const t = &r->tensors[r->n_tensors++];
    *t = *from;
    t->name = name;
    t->origin_name = from->name;
    t->origin_chain = *back;
    t->origins = NULL;
    t->origin_kept = NULL;
    return t;
}

static apr_status undo_single(undo_state *r, const apr_tensor *from)
{
    apr_chain back;

    if (!apr_chain_inverse(&from->origin_chain, &back)) return damaged(r, from->name, "its steps have no inverse");
    apr_tensor *const t = emit(r, from, from->origin_name != NULL ? from->origin_name : from->name, &back);
    return apr_tensor_append_steps(t, &back, &r->view->arena, r->view->path, r->err);
}

/* The step that cuts part i out of the whole again. */
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

static apr_status undo_join(undo_state *r, const apr_tensor *from)
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
        APR_TRY(apr_tensor_append_steps(t, &back, &r->view->arena, r->view->path, r->err));
    }
    return APR_OK;
}

/* ---- joining parts of one origin ---- */

static bool is_cut(const apr_step *step) { return step->kind == APR_STEP_TAKE || step->kind == APR_STEP_PICK; }

/* The index of the next step, from `first` on, that cut a part out of a whole; -1: none. */
static int next_cut(const apr_chain *chain, int first)
{
    for (int i = first; i < chain->n_steps; i++)
        if (is_cut(&chain->steps[i])) return i;
    return -1;
}

static const char *origin_of(const apr_tensor *t)
{
    if (t->origins != NULL) return t->origins->names[0];
    return t->origin_name != NULL ? t->origin_name : t->name;
}

/* Sorts parts of one origin together, and parts of the same cut by position; comparing steps and parameters gives that order. */
static int compare_parts(const void *a, const void *b)
{
    const apr_tensor *const s = *(const apr_tensor *const *)a, *const t = *(const apr_tensor *const *)b;
    const int by_name = strcmp(origin_of(s), origin_of(t));
    if (by_name != 0) return by_name;
    for (int i = 0; i < s->origin_chain.n_steps && i < t->origin_chain.n_steps; i++) {
        const apr_step *const x = &s->origin_chain.steps[i], *const y = &t->origin_chain.steps[i];
        if (x->kind != y->kind) return (int)x->kind - (int)y->kind;
        for (int p = 0; p < APR_STEP_PARAMETERS; p++)
            if (x->n[p] != y->n[p]) return x->n[p] < y->n[p] ? -1 : 1;
    }
    return s->origin_chain.n_steps - t->origin_chain.n_steps;
}

/* Parts of a whole that was cut at step `cut` of their chains. */
typedef struct siblings {
    const apr_tensor *const *parts;
    size_t n;
    int first, cut; /* steps [first, cut) are before the cut */
} siblings;

static bool is_same_cut(const apr_step *a, const apr_step *b)
{
    return a->kind == b->kind && (a->kind == APR_STEP_PICK || (a->n[0] == b->n[0] && a->n[1] == b->n[1]));
}

/* Were all parts cut in the same way, after the same steps? */
static bool have_same_cut(const siblings *s)
{
    const apr_chain *const first = &s->parts[0]->origin_chain;
    for (size_t i = 0; i < s->n; i++) {
        const apr_chain *const chain = &s->parts[i]->origin_chain;
        if (next_cut(chain, s->first) != s->cut || !is_same_cut(&chain->steps[s->cut], &first->steps[s->cut])) return false;
        for (int k = s->first; k < s->cut; k++)
            if (!apr_step_equal(&chain->steps[k], &first->steps[k])) return false;
    }
    return true;
}

static int64_t offset_of_cut(const apr_step *step) { return step->kind == APR_STEP_TAKE ? step->n[2] : step->n[0]; }

static apr_status join_siblings(undo_state *r, const siblings *s, apr_tensor *whole);

/* Restores the tensor that parts [0, n) were cut from by their steps from `first` on. */
static apr_status undo_cuts(undo_state *r, const apr_tensor *const *parts, size_t n, int first, apr_tensor *whole)
{
    const siblings s = {parts, n, first, next_cut(&parts[0]->origin_chain, first)};
    apr_chain back;

    if (s.cut >= 0)
        return have_same_cut(&s) ? join_siblings(r, &s, whole) : damaged(r, parts[0]->name, "other parts of its origin are missing");
    if (n > 1) return damaged(r, parts[0]->name, "another tensor is the same part of its origin");
    *whole = *parts[0];
    if (!undo_from(&whole->origin_chain, first, &back)) return damaged(r, whole->name, "its steps have no inverse");
    APR_TRY(apr_tensor_append_steps(whole, &back, &r->view->arena, r->view->path, r->err));
    whole->origin_name = NULL; /* apr_provenance_join records the part's name as its origin */
    whole->origin_chain = (apr_chain){0};
    whole->origins = NULL;
    return APR_OK;
}

/* Joins the pieces that the cut made; each piece may itself be cut further. */
static apr_status find_pieces(undo_state *r, const siblings *s, const apr_tensor **pieces, size_t *n_pieces)
{
    int64_t next = 0;

    *n_pieces = 0;
    for (size_t i = 0, n; i < s->n; i += n) {
        const apr_step *const step = &s->parts[i]->origin_chain.steps[s->cut];
        apr_tensor *const piece = apr_arena_alloc(&r->view->arena, sizeof *piece);
        if (piece == NULL) return apr_no_memory(r->err, "the parts of a tensor");
        for (n = 1; i + n < s->n && apr_step_equal(&s->parts[i + n]->origin_chain.steps[s->cut], step);) n++;
        if (offset_of_cut(step) != next) return damaged(r, s->parts[i]->name, "other parts of its origin are missing");
        next += step->kind == APR_STEP_TAKE ? step->n[3] : 1;
        APR_TRY(undo_cuts(r, s->parts + i, n, s->cut + 1, piece));
        pieces[(*n_pieces)++] = piece;
    }
    return APR_OK;
}

static apr_status join_siblings(undo_state *r, const siblings *s, apr_tensor *whole)
{
    const apr_chain *const chain = &s->parts[0]->origin_chain;
    const apr_step *const cut = &chain->steps[s->cut];
    const apr_tensor **const pieces = apr_arena_array(&r->view->arena, s->n, sizeof *pieces);
    const bool is_stack = cut->kind == APR_STEP_PICK;
    apr_chain before = {0}, undone;
    size_t n;

    if (pieces == NULL) return apr_no_memory(r->err, "the parts of a tensor");
    APR_TRY(find_pieces(r, s, pieces, &n));
    for (int i = s->first; i < s->cut; i++) (void)apr_chain_append(&before, chain->steps[i]);
    apr_chain back = apr_chain_of(is_stack ? (apr_step){.kind = APR_STEP_STACK} : (apr_step){APR_STEP_JOIN, {cut->n[0], cut->n[1]}});
    if (!apr_chain_inverse(&before, &undone) || !apr_chain_extend(&back, &undone))
        return damaged(r, s->parts[0]->name, "its steps have no inverse");
    *whole = (apr_tensor){.name = s->parts[0]->name};
    return apr_provenance_join(whole, pieces, n, &back, &r->view->arena, r->view->path, r->err);
}

static int by_name(const void *a, const void *b) { return strcmp(((const apr_tensor *)a)->name, ((const apr_tensor *)b)->name); }

/* Restores the origin of parts. If it was joined from several tensors before it was cut, restores those. */
static apr_status undo_parts(undo_state *r, const apr_tensor *const *parts, size_t n)
{
    const apr_origins *const several = parts[0]->origins;
    apr_tensor whole;

    APR_TRY(undo_cuts(r, parts, n, several != NULL, &whole));
    if (several == NULL) {
        whole.name = origin_of(parts[0]);
        r->places[r->n_tensors] = r->at;
        r->tensors[r->n_tensors++] = whole;
        return APR_OK;
    }
    whole.origin_chain = apr_chain_of(parts[0]->origin_chain.steps[0]);
    whole.origins = several;
    const size_t first = r->n_tensors;
    APR_TRY(undo_join(r, &whole));
    qsort(r->tensors + first, r->n_tensors - first, sizeof *r->tensors, by_name); /* the order of checkpoints */
    return APR_OK;
}

/* ---- all tensors ---- */

/* Allocates for the largest number of tensors, and marks kept originals. */
static apr_status prepare(undo_state *r, bool *is_kept)
{
    size_t n = r->n_old + 1;
    for (size_t i = 0; i < r->n_old; i++) {
        const apr_tensor *const t = &r->old[i];
        if (t->origins != NULL) n += t->origins->n;
        const apr_tensor *const kept = t->origin_kept != NULL ? apr_model_find(r->view, t->origin_kept) : NULL;
        if (t->origin_kept != NULL && (kept == NULL || kept == t || t->origin_name == NULL))
            return damaged(r, t->name, "the kept original is missing");
        if (kept != NULL) is_kept[kept - r->old] = true;
    }
    r->tensors = apr_arena_array(&r->view->arena, n, sizeof *r->tensors);
    r->places = apr_arena_array(&r->view->arena, n, sizeof *r->places);
    return r->tensors != NULL && r->places != NULL ? APR_OK : apr_no_memory(r->err, "a table of tensors");
}

static apr_status undo_one(undo_state *r, const apr_tensor *t)
{
    const apr_tensor *const kept = t->origin_kept != NULL ? apr_model_find(r->view, t->origin_kept) : NULL;
    const apr_chain nothing = {0};

    if (kept != NULL) return (void)emit(r, kept, t->origin_name, &nothing), APR_OK;
    return t->origins != NULL ? undo_join(r, t) : undo_single(r, t);
}

/* Restores each group of parts with one origin, at the position of its first part. */
static apr_status undo_groups(undo_state *r, const apr_tensor **parts, size_t n_parts)
{
    qsort(parts, n_parts, sizeof *parts, compare_parts);
    for (size_t i = 0, n; i < n_parts; i += n) {
        r->at = (size_t)(parts[i] - r->old);
        for (n = 1; i + n < n_parts && strcmp(origin_of(parts[i]), origin_of(parts[i + n])) == 0; n++)
            if ((size_t)(parts[i + n] - r->old) < r->at) r->at = (size_t)(parts[i + n] - r->old);
        APR_TRY(undo_parts(r, parts + i, n));
    }
    return APR_OK;
}

/* Sorts by position; tensors with the same position keep their order. */
static apr_status put_in_order(undo_state *r)
{
    apr_arena *const arena = &r->view->arena;
    apr_tensor *const sorted = apr_arena_array(arena, r->n_tensors + APR_PROVENANCE_SPARE, sizeof *sorted);
    size_t *const next = apr_arena_array(arena, r->n_old + 2, sizeof *next); /* where the next tensor of a position goes */

    if (sorted == NULL || next == NULL) return apr_no_memory(r->err, "a table of tensors");
    for (size_t i = 0; i < r->n_tensors; i++) next[r->places[i] + 1]++;
    for (size_t i = 0; i <= r->n_old; i++) next[i + 1] += next[i];
    for (size_t i = 0; i < r->n_tensors; i++) sorted[next[r->places[i]]++] = r->tensors[i];
    for (size_t i = 0; i < r->n_tensors; i++) { /* scales have no provenance; next[p] is now after the tensors of position p */
        const apr_tensor *const scale = sorted[i].scale;
        if (scale >= r->old && scale < r->old + r->n_old) sorted[i].scale = &sorted[next[scale - r->old] - 1];
    }
    r->view->tensors = sorted;
    r->view->n_tensors = r->n_tensors;
    return APR_OK;
}

apr_status apr_provenance_undo(apr_model *view, apr_error *err)
{
    undo_state r = {.view = view, .old = view->tensors, .n_old = view->n_tensors, .err = err};
    bool *const is_kept = apr_arena_array(&view->arena, r.n_old + 1, sizeof *is_kept);
    const apr_tensor **const parts = apr_arena_array(&view->arena, r.n_old + 1, sizeof *parts);
    size_t n_parts = 0;

    if (is_kept == NULL || parts == NULL) return apr_no_memory(err, "a table of tensors");
    APR_TRY(prepare(&r, is_kept));
    for (size_t i = 0; i < r.n_old; i++) {
        const apr_tensor *const t = &r.old[i];
        const bool is_part = t->origin_kept == NULL && next_cut(&t->origin_chain, 0) >= 0;
        r.at = i;
        if (is_part) parts[n_parts++] = t;
        else if (!is_kept[i]) APR_TRY(undo_one(&r, t));
    }
    APR_TRY(undo_groups(&r, parts, n_parts));
    return put_in_order(&r);
}

/* ---- scales ---- */

static int by_data(const void *a, const void *b)
{
    const uint8_t *const x = *(const uint8_t *const *)a, *const y = *(const uint8_t *const *)b;
    return (x > y) - (x < y);
}

apr_status apr_drop_unused_scales(apr_model *view, const apr_tensor *old, size_t n_old, apr_error *err)
{
    const uint8_t **const scales = apr_arena_array(&view->arena, n_old + 1, sizeof *scales);
    bool *const is_dropped = apr_arena_array(&view->arena, view->n_tensors + 1, sizeof *is_dropped);
    size_t n = 0;

    if (scales == NULL || is_dropped == NULL) return apr_no_memory(err, "a table of tensors");
    for (size_t i = 0; i < n_old; i++)
        if (apr_table_has(old, n_old, old[i].scale) && old[i].scale->data != NULL) scales[n++] = old[i].scale->data;
    if (n == 0) return APR_OK;
    qsort(scales, n, sizeof *scales, by_data);
    apr_mark_scales(view->tensors, view->n_tensors, is_dropped);
    for (size_t i = 0; i < view->n_tensors; i++) {
        const uint8_t *const data = view->tensors[i].data;
        is_dropped[i] = !is_dropped[i] && data != NULL && bsearch(&data, scales, n, sizeof *scales, by_data) != NULL;
    }
    return apr_model_drop(view, view->tensors, is_dropped, err);
}
