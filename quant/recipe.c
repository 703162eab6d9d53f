/* recipe.c - decides the type of each tensor, with the reason. */
#include "quant/recipe.h"

#include "formats/base/pattern.h"
#include "formats/shape/text_part.h"
#include "formats/tensor/composed.h"
#include "formats/tensor/library_type.h"
#include "formats/tensor/packed_weights.h"
#include "kernels/rows.h"
#include "kernels/transcode.h"
#include "quant/mixtures.h"
#include "quant/packed_choice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The inputs of the choice for one tensor. */
typedef struct chooser {
    const apr_model *model;
    const apr_family *family; /* the family's spec, or NULL */
    const apr_recipe_options *options;
    const apr_mixture *mixture;
    const apr_pattern **patterns; /* one for each override */
    int64_t n_v, n_down;          /* number of tensors in the two classes whose rules have places */
    int64_t *positions;           /* [n_tensors] position of such a tensor in its class */
    bool *is_scales;              /* [n_tensors] is it a scale of another tensor? It is handled with its weight */
    bool eight_experts, is_70b;
} chooser;

static bool is_v_class(apr_tensor_role role) { return role == APR_TENSOR_ROLE_ATTN_V || role == APR_TENSOR_ROLE_ATTN_QKV; }

typedef struct member {
    const char *name;
    int64_t layer;
    size_t tensor;
} member;

static int by_layer_and_name(const void *a, const void *b)
{
    const member *const x = a, *const y = b;
    return x->layer != y->layer ? (x->layer < y->layer ? -1 : 1) : strcmp(x->name, y->name);
}

static void count_positions(chooser *c, member *members, size_t n)
{
    qsort(members, n, sizeof *members, by_layer_and_name);
    for (size_t i = 0; i < n; i++) c->positions[members[i].tensor] = (int64_t)i;
}

/* Finds the position of tensors in their class: counted in (layer, name) order, as llama.cpp does. */
static apr_status find_positions(chooser *c, apr_recipe *recipe, apr_error *err)
{
    const apr_model *const model = c->model;
    member *const v = malloc((model->n_tensors + 1) * sizeof *v), *const down = malloc((model->n_tensors + 1) * sizeof *down);

    c->positions = apr_arena_array(&recipe->arena, model->n_tensors + 1, sizeof *c->positions);
    const bool ok = v != NULL && down != NULL && c->positions != NULL;
    for (size_t i = 0; ok && i < model->n_tensors; i++) {
        const apr_tensor_role_of found = apr_find_tensor_role(c->family, &model->tensors[i]);
        const member m = {model->tensors[i].name, found.layer, i};
        if (is_v_class(found.role)) v[c->n_v++] = m;
        if (found.role == APR_TENSOR_ROLE_FFN_DOWN) down[c->n_down++] = m;
    }
    if (ok) count_positions(c, v, (size_t)c->n_v);
    if (ok) count_positions(c, down, (size_t)c->n_down);
    free(v);
    free(down);
    return ok ? APR_OK : apr_no_memory(err, "a recipe");
}

static apr_status compile_overrides(chooser *c, apr_recipe *recipe, apr_error *err)
{
    const size_t n = c->options->n_overrides;
    c->patterns = apr_arena_array(&recipe->arena, n + 1, sizeof *c->patterns);
    recipe->uses = apr_arena_array(&recipe->arena, n + 1, sizeof *recipe->uses);
    if (c->patterns == NULL || recipe->uses == NULL) return apr_no_memory(err, "the --tensor patterns");
    for (size_t i = 0; i < n; i++)
        APR_TRY(apr_pattern_compile(&c->patterns[i], "--tensor", c->options->overrides[i].regex, APR_PATTERN_OF_USER, &recipe->arena, err));
    return APR_OK;
}

static apr_status matches(const chooser *c, size_t override, const apr_tensor *tensor, bool *found, apr_error *err)
{
    const char *const names[] = {tensor->name, tensor->origin_name};

    *found = false;
    for (size_t j = 0; j < 2 && !*found; j++)
        if (names[j] != NULL) APR_TRY(apr_pattern_find(c->patterns[override], names[j], found, err));
    return APR_OK;
}

/* The first --tensor whose expression matches the canonical name or the origin's name; NULL: none. */
static apr_status find_override(const chooser *c, apr_recipe *recipe, const apr_tensor *tensor, const apr_recipe_override **override,
                                apr_error *err)
{
    *override = NULL;
    for (size_t i = 0; i < c->options->n_overrides; i++) {
        const bool is_known = *override != NULL && recipe->uses[i].n_used + recipe->uses[i].n_hidden > 0;
        bool found = false;
        if (!is_known) APR_TRY(matches(c, i, tensor, &found, err)); /* a later override only needs one match to know that it is hidden */
        if (found && *override == NULL) recipe->uses[i].n_used++;
        else if (found) recipe->uses[i].n_hidden++;
        if (found && *override == NULL) *override = &c->options->overrides[i];
    }
    return APR_OK;
}

static void set_type(apr_recipe_line *line, apr_dtype to, const char *reason)
{
    line->to = to == APR_DTYPE_COUNT ? apr_default_type(line->tensor) : to;
    line->reason = reason;
}

/* Is the tensor in place i of the n of its class one that a rule is for? */
static bool is_in_place(apr_mixture_place place, int64_t i, int64_t n)
{
    switch (place) {
    case APR_PLACE_ALL: return true;
    case APR_PLACE_EIGHTHS: return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
    case APR_PLACE_FIRST_TWO: return i < 2;
    case APR_PLACE_FIRST_FOUR: return i < 4;
    case APR_PLACE_FIRST_EIGHTH: return i < n / 8;
    case APR_PLACE_FIRST_SIXTEENTH: return i < n / 16;
    case APR_PLACE_MIDDLE: return i >= n / 8 && i < 7 * n / 8;
    }
    return false;
}

static bool is_for_model(const chooser *c, apr_mixture_condition condition)
{
    const apr_hparams *const h = &c->model->hparams;
    switch (condition) {
    case APR_FOR_ALL: return true;
    case APR_FOR_SHARED_HEADS: return h->num_kv_heads > 0 && h->num_heads / h->num_kv_heads >= 4;
    case APR_FOR_NO_IMPORTANCE: return !c->options->has_importance;
    case APR_FOR_EIGHT_EXPERTS: return c->eight_experts;
    case APR_FOR_MANY_EXPERTS: return h->num_experts >= 4;
    case APR_FOR_OTHER_EXPERTS: return !c->eight_experts;
    }
    return false;
}

static bool holds(const chooser *c, const apr_mixture_rule *rule, const apr_recipe_line *line, int64_t layer)
{
    const bool v_class = is_v_class(line->role), down = line->role == APR_TENSOR_ROLE_FFN_DOWN;
    const bool is_gate_or_up = line->role == APR_TENSOR_ROLE_FFN_GATE || line->role == APR_TENSOR_ROLE_FFN_UP;
    const bool by_layer = is_gate_or_up || (down && c->model->hparams.num_experts > 1);

    if (rule->role != (v_class ? APR_TENSOR_ROLE_ATTN_V : line->role) || !is_for_model(c, rule->condition)) return false;
    if (rule->place == APR_PLACE_ALL) return true;
    const int64_t place = by_layer ? layer : c->positions[line->tensor - c->model->tensors];
    return is_in_place(rule->place, place, v_class ? c->n_v : by_layer ? c->model->hparams.num_layers : c->n_down);
}

static const char *reason_of_rule(const apr_mixture_rule *rule)
{
    const bool is_v = rule->role == APR_TENSOR_ROLE_ATTN_V;
    if (rule->role == APR_TENSOR_ROLE_ATTN_OUT)
        return rule->condition == APR_FOR_EIGHT_EXPERTS ? "attention out of an 8-expert model" : "attention out: more bits";
    if (!is_v && rule->role != APR_TENSOR_ROLE_FFN_DOWN) return "another type than the mixture's, by llama.cpp's rule";
    if (rule->place == APR_PLACE_ALL) return is_v ? "attention v: more bits" : "ffn down: more bits";
    return is_v ? "attention v, one of those with more bits" : "ffn down, one of those with more bits";
}

/* What llama.cpp gives models of 70B and of eight experts, whatever the mixture. */
static void choose_for_model(const chooser *c, apr_recipe_line *line)
{
    const bool is_v = line->role == APR_TENSOR_ROLE_ATTN_V;
    if (c->is_70b && is_v && (line->to == APR_Q4_K || line->to == APR_Q3_K))
        set_type(line, APR_Q5_K, "attention v of a 70B, shared by many heads");
    if (c->eight_experts && (is_v || line->role == APR_TENSOR_ROLE_ATTN_K))
        set_type(line, APR_Q8_0, "attention k and v of an 8-expert model");
}

/* Mixtures of these types have rules of their own for such models. */
static bool is_below_iq3(apr_dtype base)
{
    static const apr_dtype types[] = {APR_IQ1_S, APR_IQ1_M, APR_IQ2_XXS, APR_IQ2_XS, APR_IQ2_S};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i] == base) return true;
    return false;
}

/* The mixture's choice for a weight matrix. */
static void choose_by_mixture(const chooser *c, apr_recipe_line *line, int64_t layer)
{
    const apr_mixture *const m = c->mixture;
    const bool has_rules = m->rules != NULL && !c->options->pure;

    if (line->role == APR_TENSOR_ROLE_EMBEDDING && !c->model->hparams.tie_word_embeddings) return set_type(line, m->embedding, "embedding");
    if (line->role == APR_TENSOR_ROLE_EMBEDDING) return set_type(line, m->head, "embedding, also the head");
    if (line->role == APR_TENSOR_ROLE_HEAD) return set_type(line, m->head, "head");
    if (line->role == APR_TENSOR_ROLE_DECAY && apr_dtype_bits(m->base) < apr_dtype_bits(APR_Q8_0))
        return set_type(line, APR_Q8_0, "decay: at least q8_0, because errors accumulate over a text");
    set_type(line, m->base, apr_tensor_role_name(line->role));
    if (!has_rules) return;
    for (const apr_mixture_rule *rule = m->rules; rule->to != APR_DTYPE_COUNT; rule++)
        if (holds(c, rule, line, layer)) {
            set_type(line, rule->to, reason_of_rule(rule));
            break;
        }
    if (!is_below_iq3(m->base)) choose_for_model(c, line);
}

static bool container_has(const apr_recipe_limits *limits, apr_dtype dtype) { return limits->allows == NULL || limits->allows(dtype); }

/* Do the type's blocks divide the columns? */
static bool divides(apr_dtype dtype, const apr_tensor *tensor)
{
    return apr_tensor_columns(tensor) % apr_dtypes[dtype].elems_per_block == 0;
}

/* The type to use if `dtype`'s blocks do not divide the columns: llama.cpp's fallback (it has none for NVFP4 and Q1_0), else f16. */
static apr_dtype fallback_type(apr_dtype dtype, int64_t n_columns)
{
    static const struct {
        apr_dtype dtype, instead;
    } ladder[] = {{APR_Q4_K, APR_Q5_0},      {APR_Q5_K, APR_Q5_1},      {APR_Q6_K, APR_Q8_0},     {APR_Q2_K, APR_Q4_0},
                  {APR_Q3_K, APR_Q4_0},      {APR_TQ1_0, APR_Q4_0},     {APR_TQ2_0, APR_Q4_0},    {APR_IQ4_XS, APR_IQ4_NL},
                  {APR_NVFP4, APR_IQ4_NL},   {APR_Q1_0, APR_Q4_0},      {APR_Q2_0, APR_Q4_0},     {APR_IQ1_S, APR_IQ4_NL},
                  {APR_IQ1_M, APR_IQ4_NL},   {APR_IQ2_XXS, APR_IQ4_NL}, {APR_IQ2_XS, APR_IQ4_NL}, {APR_IQ2_S, APR_IQ4_NL},
                  {APR_IQ3_XXS, APR_IQ4_NL}, {APR_IQ3_S, APR_IQ4_NL}};

    for (size_t i = 0; i < sizeof ladder / sizeof *ladder; i++)
        if (ladder[i].dtype == dtype && n_columns % apr_dtypes[ladder[i].instead].elems_per_block == 0) return ladder[i].instead;
    return APR_F16;
}

static void fall_back(const chooser *c, apr_recipe *recipe, apr_recipe_line *line)
{
    const apr_dtype wanted = line->to;
    if (divides(wanted, line->tensor)) return;
    line->to = c->options->limits.plain_fallback ? APR_F16 : fallback_type(wanted, apr_tensor_columns(line->tensor));
    if (!container_has(&c->options->limits, line->to) || !divides(line->to, line->tensor)) line->to = APR_F16;
    line->fell_back = true;
    const char *const reason = apr_arena_print(&recipe->arena, "%lld columns are not a multiple of %d: %s instead of %s",
                                               (long long)apr_tensor_columns(line->tensor), apr_dtypes[wanted].elems_per_block,
                                               apr_dtypes[line->to].name, apr_dtypes[wanted].name);
    line->reason = reason != NULL ? reason : "columns are not a multiple of the block";
}

/* The smallest type of the container with at least as many bits as `wanted`; f32 if none. */
static apr_dtype nearest_type(const apr_recipe_limits *limits, const apr_tensor *tensor, apr_dtype wanted)
{
    apr_dtype nearest = APR_F32;
    for (int i = 0; i < APR_DTYPE_COUNT; i++) {
        const apr_dtype d = (apr_dtype)i;
        const double bits = apr_dtype_bits(d), fewest = apr_dtype_bits(nearest);
        const bool fits = container_has(limits, d) && apr_can_encode(d) && divides(d, tensor) && bits >= apr_dtype_bits(wanted);
        if (fits && (bits < fewest || (bits == fewest && apr_dtype_precedes(d, nearest)))) nearest = d;
    }
    return nearest;
}

/* Is it a block type, or a block type with an adapter merged in? */
static bool is_from_blocks(const apr_tensor *tensor)
{
    const apr_tensor *const base = apr_merge_base(tensor), *const t = base != NULL ? base : tensor;
    return apr_dtypes[t->dtype].class_of == APR_CLASS_BLOCK && t->scale == NULL;
}

/* After an adapter was merged into quantized weights, the sums cannot be stored in that type exactly. */
static apr_status choose_kept(apr_recipe_line *line, bool is_asked_for, apr_error *err)
{
    const apr_tensor *const base = apr_merge_base(line->tensor);
    if (base != NULL && !is_asked_for && line->to == base->dtype) line->reason = "an adapter was merged in; type kept";
    if (line->to != APR_DTYPE_COUNT) return APR_OK;
    line->to = APR_F32;
    if (is_asked_for) return APR_OK;
    return apr_fail(
        err, APR_E_UNSUPPORTED,
        "tensor '%s' is %s and must be encoded again with the adapter merged in: choose a type with aprquant --to bf16, f16, ... "
        "or --tensor '%s=bf16'",
        line->tensor->name, apr_tensor_encoding(base), line->tensor->name);
}

static apr_status check_possible(const chooser *c, const apr_recipe_line *line, apr_error *err)
{
    const apr_tensor *const t = line->tensor;
    const char *const from = apr_dtypes[t->dtype].name, *const to = apr_dtypes[line->to].name;
    const apr_recipe_limits *const limits = &c->options->limits;
    const apr_tensor *const base = apr_merge_base(t);

    if (!container_has(limits, line->to)) {
        const apr_dtype nearest = nearest_type(limits, t, line->to);
        return apr_fail(err, APR_E_UNSUPPORTED,
                        "tensor '%s': %s has no place in %s; the nearest type that has is %s (aprquant --to or --tensor)", t->name, to,
                        limits->container, apr_dtypes[nearest].name);
    }
    if (line->to == t->dtype) return APR_OK;
    if (!apr_can_decode(t->dtype) || !apr_can_encode(line->to))
        return apr_fail(err, APR_E_UNSUPPORTED, "tensor '%s': %s cannot be converted to %s", t->name, from, to);
    /* some models are published in FP8; block types come from a quantizer, and encoding them again loses precision twice */
    if (!c->options->allow_requantize && is_from_blocks(t) && apr_dtype_is_quantized(line->to))
        return apr_fail(err, APR_E_UNSUPPORTED,
                        "tensor '%s' is already %s, and encoding it as %s would lose precision twice; start from the original weights, or "
                        "give --allow-requantize",
                        t->name, base != NULL ? apr_dtypes[base->dtype].name : from, to);
    return APR_OK;
}

static const char *kept_reason(apr_tensor_role role)
{
    return role == APR_TENSOR_ROLE_SMALL ? "small: kept" : role == APR_TENSOR_ROLE_ROUTER ? "router: kept" : "never quantized: kept";
}

/* Is it a part of a stack that has scales? The part's own scales are not a tensor that could be written. */
static bool has_cut_scales(const chooser *c, const apr_tensor *t)
{
    return t->scale != NULL && !apr_table_has(c->model->tensors, c->model->n_tensors, t->scale);
}

/* The first tensor that it is made of, or itself. */
static const apr_tensor *first_source(const apr_tensor *t) { return apr_tensor_is_composed(t) ? apr_tensor_source_at(t, 0) : t; }

static bool is_packed(const apr_tensor *t) { return apr_tensor_is_packed(first_source(t)); }

/* The plain type for decoded values. FP8 without scales is exact in BF16. */
static apr_dtype plain_type(const chooser *c, const apr_tensor *t)
{
    const apr_dtype library = apr_reference_type(c->model, t);
    return library != APR_DTYPE_COUNT ? library : APR_BF16;
}

/* For weights published quantized, if the container has no such type and none is asked for: repack the same numbers, or decode. */
static void choose_for_published(const chooser *c, apr_recipe_line *line)
{
    const apr_tensor *const t = line->tensor;
    const apr_dtype same = c->options->same_numbers ? apr_transcode_type(t, c->options->limits.allows) : APR_DTYPE_COUNT;

    line->same_numbers = same != APR_DTYPE_COUNT;
    if (line->same_numbers) return set_type(line, same, "holds the same numbers");
    line->decoded = true;
    set_type(line, plain_type(c, t), "no type here holds these numbers: decoded");
}

/* Packed weights, or FP8 (alone, with scales or stacked) if the container does not have it. */
static bool is_published(const chooser *c, const apr_tensor *t)
{
    const apr_dtype stored = first_source(t)->dtype;
    if (is_packed(t)) return true;
    return c->options->same_numbers && apr_dtypes[stored].scales == APR_SCALES_SEPARATE && !container_has(&c->options->limits, stored);
}

/* A tensor without a rule, of an unknown family or of the text model: do its shape and name show that it is a weight matrix?
 * Position tables, classifiers with few rows, and columns that no block divides are kept. */
static bool is_matrix_by_shape(const chooser *c, const apr_tensor *t)
{
    static const char *const kept[] = {"pos_emb", "position", "norm", "router", "conv", "scale", "time_"};
    enum { LEAST = 32 };

    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (strstr(t->name, kept[i]) != NULL) return false;
    return t->rank == 2 && t->dims[0] >= LEAST && t->dims[1] % LEAST == 0 &&
           (c->family == NULL || apr_part_of(c->model, t->name) == APR_PART_TEXT);
}

static apr_status choose(const chooser *c, apr_recipe *recipe, apr_recipe_line *line, apr_error *err)
{
    const apr_tensor_role_of found = apr_find_tensor_role(c->family, line->tensor);
    const apr_recipe_override *override;
    const bool carried = !apr_can_decode(line->tensor->dtype) || !apr_dtype_is_weights(line->tensor->dtype);

    APR_TRY(find_override(c, recipe, line->tensor, &override, err));
    if (c->is_scales[line->tensor - c->model->tensors]) override = NULL; /* a pattern that matches a weight also matches its scales' name */
    line->role = found.role;
    set_type(line, APR_DTYPE_COUNT, "kept");
    line->asked_for = override != NULL;
    if (override != NULL) set_type(line, override->to, override->reason != NULL ? override->reason : "asked for with --tensor");
    else if (carried) set_type(line, APR_DTYPE_COUNT, "not an array of weights: kept");
    else if (line->tensor->rank < 2 && c->options->limits.vectors_f32) set_type(line, APR_F32, "a vector: these readers need f32");
    else if ((line->role == APR_TENSOR_ROLE_SMALL || line->role == APR_TENSOR_ROLE_ROUTER) && c->options->limits.vectors_f32)
        set_type(line, APR_F32, line->role == APR_TENSOR_ROLE_SMALL ? "small: these readers need f32" : "router: these readers need f32");
    else if (line->role == APR_TENSOR_ROLE_SMALL || line->role == APR_TENSOR_ROLE_ROUTER || line->role == APR_TENSOR_ROLE_KEPT)
        set_type(line, c->mixture != NULL && c->mixture->base == APR_F32 ? APR_F32 : APR_DTYPE_COUNT, kept_reason(line->role));
    else if (line->role == APR_TENSOR_ROLE_OTHER && c->mixture != NULL && is_matrix_by_shape(c, line->tensor)) {
        set_type(line, c->mixture->base, "a matrix of unknown use");
        recipe->n_by_shape++;
    } else if (line->role == APR_TENSOR_ROLE_OTHER) set_type(line, APR_DTYPE_COUNT, c->mixture != NULL ? "of unknown use: kept" : "kept");
    else if (c->mixture != NULL) choose_by_mixture(c, line, found.layer);
    if (c->options->packed != NULL && override == NULL && apr_choose_packed(c->model, c->options->packed, line)) return APR_OK;
    APR_TRY(choose_kept(line, override != NULL || c->mixture != NULL, err));
    if (line->to == line->tensor->dtype && has_cut_scales(c, line->tensor))
        set_type(line, APR_BF16, "a part of a stack with scales: decoded");
    if (c->mixture == NULL && override == NULL && is_published(c, line->tensor)) choose_for_published(c, line);
    if (line->to != line->tensor->dtype) fall_back(c, recipe, line);
    return line->same_numbers ? APR_OK : check_possible(c, line, err);
}

uint64_t apr_recipe_bytes(const apr_tensor *tensor, apr_dtype to)
{
    if (to == tensor->dtype) return tensor->n_bytes;
    const int64_t n_rows = apr_tensor_rows(tensor);
    return (uint64_t)n_rows * (uint64_t)apr_row_bytes(to, apr_tensor_columns(tensor)) +
           (apr_dtypes[to].scales == APR_SCALES_SEPARATE && apr_tensor_elems(tensor) > 0 ? (uint64_t)n_rows * sizeof(float) : 0);
}

uint64_t apr_recipe_line_bytes(const apr_recipe *recipe, const apr_recipe_line *line)
{
    return line->is_packed ? apr_packed_bytes(recipe->packed, line->tensor) : apr_recipe_bytes(line->tensor, line->to);
}

const char *apr_recipe_type_name(const apr_recipe *recipe, const apr_recipe_line *line)
{
    return line->is_packed ? recipe->packed->layout->type : apr_dtypes[line->to].name;
}

static void count_matrix(const chooser *c, apr_recipe *recipe, const apr_recipe_line *line)
{
    const apr_tensor *const t = line->tensor;
    const bool is_wanted = line->asked_for || line->is_packed || (c->mixture != NULL && line->to == c->mixture->base);

    if (t->rank < 2 || !apr_can_decode(t->dtype) || !apr_dtype_is_weights(t->dtype)) return;
    recipe->n_matrices++;
    recipe->n_quantized += line->to != t->dtype || is_wanted;
}

static apr_status find_scales(chooser *c, apr_recipe *recipe, apr_error *err)
{
    const apr_model *const model = c->model;

    c->is_scales = apr_arena_array(&recipe->arena, model->n_tensors + 1, sizeof *c->is_scales);
    if (c->is_scales == NULL) return apr_no_memory(err, "a recipe");
    apr_mark_scales(model->tensors, model->n_tensors, c->is_scales);
    return APR_OK;
}

static apr_status make_lines(chooser *c, apr_recipe *recipe, apr_error *err)
{
    const apr_model *const model = c->model;

    recipe->lines = apr_arena_array(&recipe->arena, model->n_tensors, sizeof *recipe->lines);
    if (recipe->lines == NULL) return apr_no_memory(err, "a recipe");
    if (c->mixture != NULL && c->mixture->rules != NULL) APR_TRY(find_positions(c, recipe, err));
    APR_TRY(find_scales(c, recipe, err));
    for (size_t i = 0; i < model->n_tensors; i++) {
        apr_recipe_line *const line = &recipe->lines[recipe->n_lines];
        *line = (apr_recipe_line){.tensor = &model->tensors[i]};
        APR_TRY(choose(c, recipe, line, err));
        recipe->n_lines++;
    }
    if (recipe->packed != NULL) APR_TRY(apr_settle_packed(recipe, model, c->options->allow_requantize, err));
    for (size_t i = 0; i < recipe->n_lines; i++) count_matrix(c, recipe, &recipe->lines[i]);
    return APR_OK;
}

/* True if the type changes, or packed weights become one tensor. */
static bool changes(const apr_recipe_line *line) { return apr_recipe_changes(line) || is_packed(line->tensor); }

/* Is it an activation scale of an FP8 weight that changes its type? Lines and tensors have the same order. */
static bool is_stale_activation_scale(const apr_model *model, const apr_recipe *recipe, const apr_tensor *tensor)
{
    char name[1024];
    if (model->origin.format == APR_FORMAT_GGUF || !apr_is_activation_scale(tensor->name, name, sizeof name)) return false;
    const apr_tensor *const weight = apr_model_find(model, name);
    return weight != NULL && changes(&recipe->lines[weight - model->tensors]);
}

/* Marks the scales of one matrix; for a composed tensor, those of its parts, which are found by name. */
static void mark_scales(const apr_model *model, const apr_tensor *t, bool *stale)
{
    if (apr_table_has(model->tensors, model->n_tensors, t->scale)) stale[t->scale - model->tensors] = true;
    const apr_tensor *part;
    for (size_t i = 0; (part = apr_tensor_source_at(t, i)) != NULL; i++) {
        const apr_tensor *const found = part->scale != NULL ? apr_model_find(model, part->scale->name) : NULL;
        if (found != NULL) stale[found - model->tensors] = true;
    }
}

/* Drops the scales of FP8 weights that change their type, and adds up the sizes of the rest. */
static apr_status drop_stale_scales(const apr_model *model, apr_recipe *recipe, apr_error *err)
{
    bool *const stale = apr_arena_alloc(&recipe->arena, recipe->n_lines);
    if (stale == NULL) return apr_no_memory(err, "a recipe");
    for (size_t i = 0; i < recipe->n_lines; i++) { /* lines and tensors still have the same order */
        if (changes(&recipe->lines[i])) mark_scales(model, recipe->lines[i].tensor, stale);
        if (is_stale_activation_scale(model, recipe, recipe->lines[i].tensor)) stale[i] = true;
    }
    for (size_t i = 0; i < recipe->n_lines; i++) { /* a weight that stays as it is may share them */
        const apr_tensor *const scale = recipe->lines[i].tensor->scale;
        if (!changes(&recipe->lines[i]) && apr_table_has(model->tensors, model->n_tensors, scale)) stale[scale - model->tensors] = false;
    }
    size_t n = 0;
    for (size_t i = 0; i < recipe->n_lines; i++) {
        if (stale[i]) continue;
        recipe->lines[n] = recipe->lines[i];
        recipe->n_bytes += apr_recipe_line_bytes(recipe, &recipe->lines[n]);
        recipe->n_elems += apr_tensor_elems(recipe->lines[n].tensor);
        n++;
    }
    recipe->n_lines = n;
    return APR_OK;
}

apr_status apr_recipe_make(apr_recipe *recipe, const apr_model *model, const apr_recipe_options *options, apr_error *err)
{
    const apr_hparams *const h = &model->hparams;
    chooser c = {.model = model,
                 .family = apr_family_find(model->hparams.architecture),
                 .options = options,
                 .eight_experts = h->num_experts == 8,
                 .is_70b = h->num_layers == 80 && h->num_heads != h->num_kv_heads};

    const apr_mixture of_layout = options->packed != NULL ? apr_packed_mixture(options->packed) : (apr_mixture){0};

    *recipe = (apr_recipe){.mixture = "", .file_type = -1, .packed = options->packed};
    if (options->mixture != NULL) {
        c.mixture = options->packed != NULL ? &of_layout : apr_mixture_find(options->mixture);
        if (c.mixture == NULL)
            return apr_fail(err, APR_E_USAGE, "aprquant cannot write '%s' ('aprquant --list' shows the types)", options->mixture);
        recipe->mixture = c.mixture->name;
        recipe->file_type = c.mixture->file_type;
    }
    if (options->mixture != NULL || options->n_overrides > 0) APR_TRY(apr_refuse_packed(model, "converted to another type", err));
    apr_status status = compile_overrides(&c, recipe, err);
    if (status == APR_OK) status = make_lines(&c, recipe, err);
    if (status == APR_OK) status = drop_stale_scales(model, recipe, err);
    if (status != APR_OK) apr_recipe_close(recipe);
    return status;
}

void apr_recipe_close(apr_recipe *recipe)
{
    apr_arena_close(&recipe->arena);
    *recipe = (apr_recipe){0};
}
