/* adapters.c - finds the tensor that each part of an adapter changes, checks that it fits, and merges it. */
#include "convert/adapters.h"

#include "formats/base/text.h"
#include "formats/shape/family.h"
#include "formats/shape/tensor_names.h"
#include "formats/shape/text_part.h"
#include "formats/tensor/composed.h"
#include "formats/tensor/kv_copy.h"
#include "kernels/rows.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- values that are not finite ---- */

enum { PIECE = 1 << 16 };

/* Below this bound, adding the change to a value of the base cannot overflow float32. */
static const double safe_magnitude = 1e30;

typedef struct count {
    int64_t n_not_finite, first; /* first: index of the first one */
    float largest;               /* largest magnitude of the finite values */
} count;

static void count_piece(const float *x, int64_t n, int64_t at, count *c)
{
    for (int64_t i = 0; i < n; i++) {
        if (isfinite(x[i])) c->largest = fmaxf(c->largest, fabsf(x[i]));
        else if (c->n_not_finite++ == 0) c->first = at + i;
    }
}

static apr_status count_values(const apr_tensor *t, count *c, apr_error *err)
{
    const int64_t n = apr_tensor_elems(t), piece = n < PIECE ? n : PIECE;
    float *const values = malloc(((size_t)piece + 1) * sizeof *values);

    *c = (count){.first = -1};
    if (values == NULL) return apr_no_memory(err, "an adapter's values");
    for (int64_t at = 0; at < n; at += PIECE) {
        const int64_t here = n - at < PIECE ? n - at : PIECE;
        apr_decode_elements(t, at, here, values);
        count_piece(values, here, at, c);
    }
    free(values);
    return APR_OK;
}

/* Checks one tensor of the adapter; NULL is fine. *largest: its largest magnitude. */
static apr_status check_own(const apr_adapter *adapter, const apr_tensor *t, double *largest, apr_error *err)
{
    count c;

    *largest = 0.0;
    if (t == NULL) return APR_OK;
    APR_TRY(count_values(t, &c, err));
    *largest = (double)c.largest;
    if (c.n_not_finite == 0) return APR_OK;
    return apr_fail(err, APR_E_DAMAGED, "%s: %" PRId64 " of the %" PRId64 " values of '%s' are not finite (the first at index %" PRId64 ")",
                    adapter->path, c.n_not_finite, apr_tensor_elems(t), t->name, c.first);
}

/* Call after `change`, scaled by `scale`, was merged into `merged` (a composed tensor, or the change's own tensor in its place). Always
 * reads the adapter's numbers. Reads those of `merged` only if finite inputs could overflow: huge numbers, or rows scaled to a length
 * (DoRA). */
static apr_status check_merged(const apr_adapter *adapter, const apr_adapter_change *change, double scale, const apr_tensor *merged,
                               apr_error *err)
{
    double whole, a, b, magnitudes;
    count before, after;

    APR_TRY(check_own(adapter, change->whole, &whole, err));
    APR_TRY(check_own(adapter, change->a, &a, err));
    APR_TRY(check_own(adapter, change->b, &b, err));
    APR_TRY(check_own(adapter, change->magnitudes, &magnitudes, err));
    if (change->whole != NULL || change->a == NULL) return APR_OK;
    const double most = a * b * (double)change->a->dims[0] * fmax(fabs(scale), 1.0); /* also before the scale */
    if (most < safe_magnitude && change->magnitudes == NULL) return APR_OK;
    APR_TRY(count_values(merged, &after, err));
    if (after.n_not_finite == 0) return APR_OK;
    APR_TRY(count_values(merged->composed->parts[0], &before, err));
    if (after.n_not_finite <= before.n_not_finite) return APR_OK;
    return apr_fail(err, APR_E_DAMAGED,
                    "%s: merging into '%s' makes %" PRId64 " values that are not finite (the first at index %" PRId64 "); the model "
                    "has %" PRId64,
                    adapter->path, change->name, after.n_not_finite, after.first, before.n_not_finite);
}

#define KEY "aprkit.lora."

typedef struct merging {
    apr_model *view;
    const apr_family *family;   /* NULL: unknown */
    apr_tensor *tensors;        /* [view->n_tensors] the new table */
    bool *is_dropped;           /* [view->n_tensors] tensors that nothing refers to any more */
    const apr_adapter **whole;  /* [view->n_tensors] the adapter that replaced a tensor, or NULL */
    const apr_adapter_use *use; /* the adapter being merged */
    apr_error *err;
} merging;

static apr_status refuse_change(const merging *m, const apr_adapter_change *change, const char *why)
{
    return apr_fail(m->err, APR_E_UNSUPPORTED, "%s: the adapter changes '%s', %s", m->use->adapter->path, change->name, why);
}

/* ---- finding the tensor ---- */

/* The name in another spelling of older checkpoints, if that is one tensor for one. NULL: none. */
static const char *other_spelling(const merging *m, const char *name)
{
    apr_name_match match;

    if (m->family == NULL || !apr_match_tensor(m->family, APR_NAMING_HF, name, &match) || match.form == NULL) return NULL;
    const apr_tensor_part *const parts = match.form->parts;
    if (parts[0].name == NULL || parts[1].name != NULL || parts[0].steps[0].kind != APR_STEP_NONE) return NULL;
    return apr_is_stack_of(match.form->name, parts[0].name) ? NULL : apr_fill_name(parts[0].name, &match, match.expert, &m->view->arena);
}

/* The tensor named `name` with `part` replaced by `with`; NULL: none. */
static const apr_tensor *sibling(const merging *m, const char *name, const char *part, const char *with)
{
    const char *const at = strstr(name, part);
    const char *const other =
        at != NULL ? apr_arena_print(&m->view->arena, "%.*s%s%s", (int)(at - name), name, with, at + strlen(part)) : NULL;
    return other != NULL ? apr_model_find(m->view, other) : NULL;
}

/* Fails with the closest tensor that the model has instead. */
static apr_status missing(const merging *m, const apr_adapter_change *change, const char *name)
{
    static const struct {
        const char *part, *with, *about;
    } others[] = {{".q_proj.", ".qkv_proj.", "which is a part of"},
                  {".k_proj.", ".qkv_proj.", "which is a part of"},
                  {".v_proj.", ".qkv_proj.", "which is a part of"},
                  {".gate_proj.", ".gate_up_proj.", "which is a part of"},
                  {".up_proj.", ".gate_up_proj.", "which is a part of"},
                  {".qkv_proj.", ".q_proj.", "which is several tensors, one of them"},
                  {".gate_up_proj.", ".gate_proj.", "which is several tensors, one of them"},
                  {".kv_b_proj.", ".k_b_proj.", "which is several tensors, one of them"}};

    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const apr_tensor *const other = sibling(m, name, others[i].part, others[i].with);
        if (other != NULL)
            return apr_fail(m->err, APR_E_UNSUPPORTED, "%s: the adapter changes '%s', %s '%s' in %s: it cannot be merged there",
                            m->use->adapter->path, change->name, others[i].about, other->name, m->view->path);
    }
    return apr_fail(m->err, APR_E_UNSUPPORTED, "%s: the adapter changes '%s', which is not in %s; was it trained on %s?",
                    m->use->adapter->path, change->name, m->view->path,
                    m->use->adapter->base != NULL ? m->use->adapter->base : "another model");
}

static apr_status find_target(const merging *m, const apr_adapter_change *change, size_t *place)
{
    const char *const name = apr_text_name_print(change->name, &m->view->arena);

    if (name == NULL) return apr_no_memory(m->err, "a tensor's name");
    const apr_tensor *found = apr_model_find(m->view, change->name);
    if (found == NULL) found = apr_find_text_tensor(m->view, name);
    const char *const other = found == NULL ? other_spelling(m, name) : NULL;
    if (other != NULL) found = apr_model_find(m->view, other);
    if (found == NULL) return missing(m, change, name);
    *place = (size_t)(found - m->view->tensors);
    return APR_OK;
}

/* ---- ggml's adapters ---- */

static bool moves_rows(const apr_chain *chain)
{
    for (int i = 0; i < chain->n_steps; i++)
        if (apr_step_reach(&chain->steps[i]) > APR_REACH_ROWS) return false;
    return true;
}

/* Converts the change to the canonical view: the canonical name, and b's rows, which are the rows of the product, reordered. */
static apr_status import_change(const merging *m, apr_adapter_change *change)
{
    apr_arena *const arena = &m->view->arena;
    apr_tensor *const b = apr_arena_alloc(arena, sizeof *b);
    apr_name_match match;
    apr_chain back;

    if (b == NULL) return apr_no_memory(m->err, "a merged tensor");
    if (!apr_match_tensor(m->family, APR_NAMING_GGML, change->name, &match) || match.rule == NULL)
        return refuse_change(m, change, "which is not a known matrix of this architecture");
    if (!apr_rule_from_ggml(match.rule, m->family, &m->view->hparams, m->view->hparams.tiled_value_heads, -1, &back) ||
        !moves_rows(&back) || apr_is_stack_of(match.rule->ggml, match.rule->hf))
        return refuse_change(m, change, "which a GGUF stores with reordered columns or as part of a stack");
    *b = *change->b;
    APR_TRY(apr_tensor_append_steps(b, &back, arena, m->use->adapter->path, m->err));
    change->b = b;
    change->name = apr_fill_name(match.rule->hf, &match, match.expert, arena);
    return change->name != NULL ? APR_OK : apr_no_memory(m->err, "a tensor's name");
}

static apr_status check_architecture(const merging *m)
{
    apr_str arch;
    const apr_adapter *const adapter = m->use->adapter;

    if (adapter->naming != APR_NAMING_GGML || !apr_kv_get_string(&adapter->files.kv, "general.architecture", &arch)) return APR_OK;
    const char *const name = apr_arena_copy(&m->view->arena, arch.text, arch.n_bytes);
    if (name == NULL) return apr_no_memory(m->err, "the name of a model");
    if (m->family == NULL ? m->view->naming == APR_NAMING_GGML : apr_family_is_in_ggml(m->family, name)) return APR_OK;
    return apr_fail(m->err, APR_E_UNSUPPORTED, "%s: the adapter is for ggml architecture '%.60s', but %s is %s", adapter->path, name,
                    m->view->path, m->view->hparams.architecture != NULL ? m->view->hparams.architecture : "something else");
}

/* ---- checks ---- */

static const apr_adapter_change *find_whole(const apr_adapter *adapter, const char *suffix)
{
    for (size_t i = 0; i < adapter->n_changes; i++) {
        const apr_adapter_change *const c = &adapter->changes[i];
        if (c->whole != NULL && apr_ends_with(c->name, suffix)) return c;
    }
    return NULL;
}

/* Does the adapter hold the same matrix for embedding and output, as a tied model does? */
static bool ties_both(const apr_adapter *adapter)
{
    const apr_adapter_change *const in = find_whole(adapter, "embed_tokens.weight"), *const out = find_whole(adapter, "lm_head.weight");
    if (in == NULL || out == NULL || in->whole->dtype != out->whole->dtype || in->whole->n_bytes != out->whole->n_bytes) return false;
    if (in->whole->data == NULL || out->whole->data == NULL) return in->whole->n_bytes == 0;
    return memcmp(in->whole->data, out->whole->data, in->whole->n_bytes) == 0;
}

/* In a tied model, a change of the embedding also changes the output; the adapter was not trained for that. *skip: a copy of the output. */
static apr_status check_tied(const merging *m, const apr_adapter_change *change, bool *skip)
{
    const char *const name = apr_text_name_print(change->name, &m->view->arena);
    const bool is_output = name != NULL && strcmp(name, "lm_head.weight") == 0,
               is_embedding = name != NULL && strcmp(name, "model.embed_tokens.weight") == 0;

    *skip = false;
    if (!m->view->hparams.tie_word_embeddings || !(is_output || is_embedding)) return APR_OK;
    *skip = is_output && change->whole != NULL && ties_both(m->use->adapter);
    if (*skip || (is_embedding && (m->use->adapter->ties_output || (change->whole != NULL && ties_both(m->use->adapter))))) return APR_OK;
    return refuse_change(m, change, "but the model's output is tied to its embedding: merging would change both");
}

/* A GGUF, and its canonical view, stores these rows in another order than the checkpoint. */
static apr_status check_order(const merging *m, const apr_adapter_change *change)
{
    const apr_hparams *const h = &m->view->hparams;
    if (m->use->adapter->naming == APR_NAMING_HF && (h->tiled_value_heads || h->split_qkvz) &&
        strstr(change->name, ".linear_attn.") != NULL)
        return refuse_change(m, change, "whose rows are in another order in a GGUF; merge it into the checkpoint");
    return APR_OK;
}

static apr_status check_shape(const merging *m, const apr_adapter_change *change, const apr_tensor *t)
{
    apr_tensor shape = {.rank = 2};
    char ours[128], theirs[128];
    bool fits;

    if (change->whole != NULL) shape = *change->whole;
    else shape.dims[0] = change->b->dims[0], shape.dims[1] = change->a->dims[1];
    fits = t->rank == shape.rank;
    for (int i = 0; i < shape.rank; i++) fits = fits && t->dims[i] == shape.dims[i];
    if (fits) return APR_OK;
    return apr_fail(m->err, APR_E_UNSUPPORTED, "%s: the adapter's change of '%s' is %s, but in %s the tensor is %s; was it trained on %s?",
                    m->use->adapter->path, change->name, apr_dims_text(&shape, theirs, sizeof theirs), m->view->path,
                    apr_dims_text(t, ours, sizeof ours), m->use->adapter->base != NULL ? m->use->adapter->base : "another model");
}

static apr_status check_types(const merging *m, const apr_adapter_change *change, const apr_tensor *t)
{
    const apr_tensor *const read[] = {change->whole != NULL ? change->whole : t, change->a, change->b};

    for (size_t i = 0; i < sizeof read / sizeof *read; i++) {
        const apr_tensor *const value = read[i];
        if (value == NULL || apr_tensor_is_packed(value) || (apr_can_decode(value->dtype) && apr_dtype_is_weights(value->dtype))) continue;
        return apr_fail(m->err, APR_E_UNSUPPORTED, "%s: the adapter changes '%s', but type %s is not supported here", m->use->adapter->path,
                        change->name, apr_dtypes[value->dtype].name);
    }
    return APR_OK;
}

static apr_status check_others(const merging *m, const apr_adapter_change *change, size_t place)
{
    const apr_adapter *const whole = m->whole[place];
    const apr_tensor *const t = &m->tensors[place];
    const apr_merge *const before = apr_tensor_source(t) == APR_SOURCE_MERGED ? t->composed->merge : NULL;
    const bool is_merged = before != NULL && before->a != NULL;

    if (change->whole != NULL && (is_merged || whole != NULL)) return refuse_change(m, change, "which another adapter has changed already");
    if (whole != NULL && whole != m->use->adapter) return refuse_change(m, change, "which another adapter has replaced already");
    if (is_merged && (change->magnitudes != NULL || before->magnitudes != NULL))
        return refuse_change(m, change, "which another adapter also changes: changes with DoRA magnitudes cannot be added");
    return APR_OK;
}

static apr_status check(const merging *m, const apr_adapter_change *change, size_t place)
{
    APR_TRY(check_order(m, change));
    APR_TRY(check_types(m, change, &m->tensors[place]));
    APR_TRY(check_shape(m, change, &m->tensors[place]));
    return check_others(m, change, place);
}

/* ---- merging ---- */

/* Drops the base's scales, which are now part of the composed tensor, and a kept original, which is no longer the origin. */
static void drop_scales_and_original(merging *m, size_t place)
{
    const apr_tensor *const old = &m->view->tensors[place], *const kept =
                                                                old->origin_kept != NULL ? apr_model_find(m->view, old->origin_kept) : NULL;

    if (apr_table_has(m->view->tensors, m->view->n_tensors, old->scale)) m->is_dropped[old->scale - m->view->tensors] = true;
    if (kept != NULL) m->is_dropped[kept - m->view->tensors] = true;
    m->tensors[place].origin_kept = NULL;
}

static apr_status replace(merging *m, const apr_adapter_change *change, size_t place)
{
    apr_tensor *const t = &m->tensors[place];
    apr_tensor *const base = apr_arena_alloc(&m->view->arena, sizeof *base);

    if (base == NULL) return apr_no_memory(m->err, "a merged tensor");
    *base = *t;
    m->whole[place] = m->use->adapter;
    if (t->dtype == change->whole->dtype && !apr_tensor_is_packed(t)) {
        apr_tensor_take_values(t, change->whole);
        return APR_OK;
    }
    const apr_merge merge = {.base = base};
    return apr_tensor_merge(t, change->whole, &merge, &m->view->arena, m->view->path, m->err);
}

static apr_status add(merging *m, const apr_adapter_change *change, size_t place)
{
    apr_tensor *const t = &m->tensors[place];
    apr_tensor *const base = apr_arena_alloc(&m->view->arena, sizeof *base);
    const double scale = change->scale * m->use->factor;

    if (base == NULL) return apr_no_memory(m->err, "a merged tensor");
    if (!((double)(float)scale - (double)(float)scale == 0.0)) return refuse_change(m, change, "with a scale beyond float32");
    *base = *t;
    const apr_merge merge = {.base = base, .a = change->a, .b = change->b, .scale = (float)scale, .magnitudes = change->magnitudes};
    return apr_tensor_merge(t, base, &merge, &m->view->arena, m->view->path, m->err);
}

static apr_status merge_change(merging *m, const apr_adapter_change *stated)
{
    apr_adapter_change ours = *stated;
    const apr_adapter_change *const change = &ours;
    size_t place = 0;
    bool skip;

    if (m->use->adapter->naming == APR_NAMING_GGML && m->view->naming == APR_NAMING_HF) APR_TRY(import_change(m, &ours));
    APR_TRY(check_tied(m, change, &skip));
    if (skip) return APR_OK;
    APR_TRY(find_target(m, change, &place));
    APR_TRY(check(m, change, place));
    drop_scales_and_original(m, place);
    APR_TRY(change->whole != NULL ? replace(m, change, place) : add(m, change, place));
    return check_merged(m->use->adapter, change, change->scale * m->use->factor, &m->tensors[place], m->err);
}

static apr_status merge_adapter(merging *m)
{
    const apr_adapter *const adapter = m->use->adapter;

    APR_TRY(check_architecture(m));
    if (adapter->transposed && m->family == NULL)
        return apr_fail(m->err, APR_E_UNSUPPORTED,
                        "%s: the adapter is meant for weights [in, out] (fan_in_fan_out), but it is not known "
                        "how '%s' stores them",
                        adapter->path, m->view->hparams.architecture != NULL ? m->view->hparams.architecture : "");
    for (size_t i = 0; i < adapter->n_changes; i++) {
        if (adapter->changes[i].whole != NULL && m->use->factor != 1.0)
            return apr_fail(m->err, APR_E_USAGE, "%s: cannot be merged with a factor of %g: the adapter replaces '%s' as a whole",
                            adapter->path, m->use->factor, adapter->changes[i].name);
        APR_TRY(merge_change(m, &adapter->changes[i]));
    }
    return APR_OK;
}

/* ---- the view ---- */

/* Installs the table without dropped tensors. */
static apr_status install_table(merging *m)
{
    apr_model *const view = m->view;
    const apr_tensor *const old = view->tensors;

    view->tensors = m->tensors;
    view->stated_crcs = NULL;
    APR_TRY(apr_model_drop(view, old, m->is_dropped, m->err));
    return apr_model_index_names(view, m->err);
}

/* Records what was merged in the metadata, under keys that are free. */
static apr_status note_adapters(apr_model *view, const apr_adapter_use *uses, size_t n_uses, apr_error *err)
{
    apr_kv_list own = {.arena = &view->arena};
    size_t number = 0;

    APR_TRY(apr_kv_append_all(&own, &view->kv, err));
    for (size_t i = 0; i < n_uses; i++) {
        const apr_adapter *const adapter = uses[i].adapter;
        const char *const text = apr_adapter_text(adapter, uses[i].factor, &view->arena), *key;
        do key = apr_arena_print(&view->arena, KEY "%zu", number++);
        while (key != NULL && apr_kv_find(&own, key) != NULL);
        const char *const whole = text == NULL            ? NULL
                                  : adapter->base == NULL ? text
                                                          : apr_arena_print(&view->arena, "%s, trained on %s", text, adapter->base);
        if (key == NULL || whole == NULL) return apr_no_memory(err, "what was merged");
        APR_TRY(apr_kv_set_string(&own, key, apr_str_of(whole), err));
    }
    view->kv = own;
    return APR_OK;
}

apr_status apr_merge_adapters(apr_model *canonical, const apr_adapter_use *uses, size_t n_uses, apr_error *err)
{
    const size_t n = canonical->n_tensors;
    apr_arena *const arena = &canonical->arena;
    merging m = {.view = canonical, .family = apr_family_translated(canonical->hparams.architecture), .err = err};

    if (n_uses == 0) return APR_OK;
    m.tensors = apr_arena_array(arena, n + 1, sizeof *m.tensors);
    m.is_dropped = apr_arena_array(arena, n + 1, sizeof *m.is_dropped);
    m.whole = apr_arena_array(arena, n + 1, sizeof *m.whole);
    if (m.tensors == NULL || m.is_dropped == NULL || m.whole == NULL) return apr_no_memory(err, "a table of tensors");
    if (n > 0) memcpy(m.tensors, canonical->tensors, n * sizeof *m.tensors);
    for (size_t i = 0; i < n_uses; i++) {
        m.use = &uses[i];
        APR_TRY(merge_adapter(&m));
    }
    APR_TRY(install_table(&m));
    return note_adapters(canonical, uses, n_uses, err);
}
