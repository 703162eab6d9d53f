/* allocate.c - groups tensors that get one type together, tries every type of each group, chooses types, and measures the choice. */
#include "tools/engine/quantize/allocate.h"

#include "convert/naming.h"
#include "formats/base/crc32.h"
#include "formats/base/grow.h"
#include "formats/files/out.h"
#include "kernels/rows.h"
#include "quant/damage_table.h"
#include "runtime/check/subject.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- groups --- */

/* Candidate types. `narrow` (blocks of 32) is for matrices whose columns 256 does not divide. */
static const apr_dtype wide[] = {APR_IQ1_S, APR_IQ1_M, APR_IQ2_XXS, APR_IQ2_XS, APR_IQ2_S, APR_Q2_K, APR_IQ3_XXS,
                                 APR_IQ3_S, APR_Q3_K,  APR_IQ4_XS,  APR_Q4_K,   APR_Q5_K,  APR_Q6_K, APR_Q8_0},
                       narrow[] = {APR_IQ4_NL, APR_Q5_0, APR_Q8_0};

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

/* Types with much fewer bits than the target are not tried: each trial takes time, and they would hardly be chosen. */
static double fewest_bits(const apr_allocate_request *request, int64_t n_elems)
{
    const double bits = request->size > 0 ? (double)request->size * 8.0 / (double)n_elems : request->bpw;
    return isnan(bits) ? 0.0 : 0.45 * bits;
}

/* Candidates: the recipe's own type, and finer and coarser ones. */
static void offer_types(apr_allocate_group *g, const apr_recipe_limits *limits, apr_dtype base, double least_bits)
{
    const bool is_wide = apr_tensor_columns(g->example) % apr_dtypes[APR_Q4_K].elems_per_block == 0;

    add_type(g, limits, base);
    for (size_t i = 0; is_wide && i < sizeof wide / sizeof *wide; i++)
        if (apr_dtype_bits(wide[i]) >= least_bits) add_type(g, limits, wide[i]);
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
        offer_types(&next, &c->options.recipe.limits, line->to, fewest_bits(&a->request, c->recipe.n_elems));
        a->groups[a->n_groups++] = next;
    }
    apr_allocate_group *const g = &a->groups[i];
    for (size_t k = 0; k < g->n_types; k++) g->offers[k].cost += (double)apr_recipe_bytes(line->tensor, g->types[k]);
    g->bytes_before += apr_recipe_bytes(line->tensor, line->to);
    *group = i;
    return APR_OK;
}

/* Makes groups, without members, of the recipe lines that may change. *group_of: [view.n_tensors], in the arena; SIZE_MAX: no group. */
static apr_status allocate_groups(apr_allocation *a, const apr_conversion *c, size_t **group_of, apr_error *err)
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
    size_t *const members = apr_arena_grow(&a->arena, g->members, &g->capacity, g->n_members + 1, sizeof *members);
    if (members == NULL) return apr_no_memory(err, "groups of tensors");
    g->members = members;
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

/* Adds the members: tensors of `model`, the canonical view of the conversion's view without provenance. Empty groups are removed. */
static apr_status allocate_members(apr_allocation *a, const apr_conversion *c, const apr_model *model, const size_t *group_of,
                                   apr_error *err)
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

/* --- trials --- */

/* State while types are tried. */
typedef struct trial {
    apr_allocation *a;
    apr_model between, model; /* the conversion's view without provenance, and its canonical view */
    apr_tokenizer *tokenizer;
    int32_t *ids;
    apr_damage damage;
    apr_damage_table table;
    apr_replaced *replaced; /* capacity: the tensors of all groups */
    const apr_listener *listener;
    apr_progress progress;
    size_t n_done, n_to_do; /* trials: one type of one group */
} trial;

bool apr_allocate_is_asked(const apr_allocate_request *r) { return r->size > 0 || !isnan(r->bpw) || !isnan(r->kld); }

apr_status apr_allocate_check(const apr_allocate_request *r, bool has_text, apr_error *err)
{
    const int n_targets = (r->size > 0) + !isnan(r->bpw) + !isnan(r->kld);

    if (n_targets == 0 && r->state != NULL) return apr_fail(err, APR_E_USAGE, "--state is for --target-bpw, --target-size or --target-kld");
    if (n_targets > 1) return apr_fail(err, APR_E_USAGE, "give only one of --target-bpw, --target-size and --target-kld");
    if (n_targets == 1 && !has_text)
        return apr_fail(err, APR_E_USAGE, "choosing types needs a text to measure predictions on: give --calibration TEXT");
    return APR_OK;
}

/* --- opening --- */

/* Opens the canonical view of a model with the output's names and row order. Its tensors' provenance leads back to the conversion's. */
static apr_status open_model(trial *t, const apr_conversion *c, apr_error *err)
{
    APR_TRY(apr_view_copy(&t->between, &c->view, 0, err));
    for (size_t i = 0; i < t->between.n_tensors; i++) {
        apr_tensor *const tensor = &t->between.tensors[i];
        tensor->origin_name = tensor->origin_kept = NULL;
        tensor->origins = NULL;
        tensor->origin_chain = (apr_chain){0};
    }
    APR_TRY(apr_model_index_names(&t->between, err));
    APR_TRY(apr_canonical(&t->model, &t->between, err));
    return apr_tokenizer_of_model(&t->tokenizer, &t->model, err);
}

/* Splits the text's whole windows: the first half to try types on, the second to measure the choice. */
static apr_status read_text(trial *t, apr_error *err)
{
    apr_allocate_request *const r = &t->a->request;
    const int64_t most = t->model.hparams.max_position_embeddings;
    const apr_subject subject = {.path = t->model.path, .vocab = &t->model.vocab, .tokenizer = t->tokenizer};
    size_t n_ids, n_bytes;

    if (most > 0 && r->window > most) r->window = most;
    const char *const text = r->text->bytes;
    n_bytes = r->text->n_bytes; /* tokens average far less than 32 bytes, so the rest of the text is not needed */
    if ((uint64_t)n_bytes / 64 > (uint64_t)r->n_tokens) {
        n_bytes = (size_t)r->n_tokens * 64;
        while (n_bytes > 0 && text[n_bytes - 1] != '\n') n_bytes--;
    }
    APR_TRY(apr_subject_encode_text(&subject, text, n_bytes > 0 ? n_bytes : r->text->n_bytes, &t->ids, &n_ids, err));
    const int64_t n_windows = (int64_t)n_ids / r->window, wanted = (r->n_tokens + r->window - 1) / r->window;
    const int64_t n_tried = 2 * wanted <= n_windows ? wanted : n_windows / 2;
    t->a->n_tried = t->a->n_held = n_tried * r->window;
    apr_set_window_bos(&t->model.vocab, t->ids, n_ids, r->window);
    if (n_tried > 0) return APR_OK;
    return apr_fail(err, APR_E_USAGE, "%s has %zu tokens: choosing types needs at least two full windows of %" PRId64 " tokens",
                    r->text->path, n_ids, r->window);
}

/* --- the table of measured divergences --- */

/* What the figures depend on. Of each tensor only the first bytes are included, so that a large model is not read completely. */
static const char *make_terms(trial *t)
{
    enum { SOME_BYTES = 4096 };
    uint32_t weights = 0;

    for (size_t i = 0; i < t->model.n_tensors; i++) {
        const apr_tensor *const tensor = &t->model.tensors[i];
        weights = apr_crc32(weights, tensor->name, strlen(tensor->name) + 1);
        weights = apr_crc32(weights, tensor->dims, sizeof tensor->dims);
        weights = apr_crc32(weights, &tensor->n_bytes, sizeof tensor->n_bytes);
        if (tensor->data != NULL)
            weights = apr_crc32(weights, tensor->data, tensor->n_bytes < SOME_BYTES ? (size_t)tensor->n_bytes : SOME_BYTES);
    }
    const uint32_t text = apr_crc32(0, t->ids, (size_t)t->a->n_tried * sizeof *t->ids);
    return apr_arena_print(&t->a->arena, "weights %08" PRIx32 ", text %08" PRIx32 ", %" PRId64 " tokens in windows of %" PRId64, weights,
                           text, t->a->n_tried, t->a->request.window);
}

static apr_status open_table(trial *t, apr_error *err)
{
    const char *const terms = make_terms(t), *const state = t->a->request.state;

    if (terms == NULL) return apr_no_memory(err, "a table of damages");
    if (state == NULL || (access(state, F_OK) != 0 && errno == ENOENT)) return apr_damage_table_start(&t->table, terms, err);
    apr_map map = {0};
    APR_TRY(apr_map_open(&map, state, err));
    const apr_status status = apr_damage_table_read(&t->table, map.data != NULL ? (const char *)map.data : "", map.n_bytes, state, err);
    (status == APR_OK ? apr_map_forget : apr_map_close)(&map); /* not an input then: the table will be replaced */
    APR_TRY(status);
    if (strcmp(t->table.terms, terms) == 0) return APR_OK;
    return apr_fail(err, APR_E_USAGE, "%s holds results for other inputs (%s; this run has %s): give another --state file", state,
                    t->table.terms, terms);
}

static apr_status save_table(const trial *t, apr_error *err)
{
    apr_out *out = NULL;
    size_t n = 0;

    if (t->a->request.state == NULL) return APR_OK;
    char *const text = apr_damage_table_write(&t->table, &n);
    if (text == NULL) return apr_no_memory(err, "a table of damages");
    apr_status status = apr_out_open_marked(&out, t->a->request.state, APR_DAMAGE_MARK, err);
    if (status == APR_OK) status = apr_out_write(out, text, n, NULL, err);
    if (status == APR_OK) status = apr_out_finish(out, err);
    else apr_out_abandon(out);
    free(text);
    return status;
}

/* Makes the state file an input of the run, so that no output can replace it. It does not exist if nothing was tried. */
static apr_status guard_table(const char *state, apr_error *err)
{
    apr_map map = {0};
    if (state == NULL || access(state, F_OK) != 0) return APR_OK;
    APR_TRY(apr_map_open(&map, state, err));
    apr_map_close(&map);
    return APR_OK;
}

/* --- trying --- */

static size_t replace_group(const apr_allocate_group *g, apr_dtype to, apr_replaced *replaced)
{
    for (size_t i = 0; i < g->n_members; i++) replaced[i] = (apr_replaced){g->members[i], to};
    return g->n_members;
}

/* Measures the group's types that are not in the table, then saves the table. */
static apr_status try_group(trial *t, apr_allocate_group *g, apr_error *err)
{
    size_t n_new = 0;

    for (size_t k = 0; k < g->n_types; k++) {
        apr_damage_row *const row = apr_damage_table_row(&t->table, g->name);
        if (row == NULL) return apr_no_memory(err, "a table of damages");
        double *const kl = &row->kl[g->types[k]];
        if (isnan(*kl)) {
            apr_damage_figure figure;
            APR_TRY(apr_damage_measure(&t->damage, t->replaced, replace_group(g, g->types[k], t->replaced), &figure, err));
            *kl = fmax(figure.mean, 0.0); /* rounding may leave a mean just below 0 */
            n_new++;
            apr_progress_report(&t->progress, ++t->n_done, t->n_to_do, "types tried");
        }
        g->offers[k].value = *kl;
    }
    t->a->n_measured += n_new;
    t->a->n_known += g->n_types - n_new;
    return n_new > 0 ? save_table(t, err) : APR_OK;
}

static apr_status open_damage(trial *t, int64_t first, int64_t n, apr_error *err)
{
    apr_session_options options = apr_session_defaults;

    if (t->a->request.device != NULL) options = *t->a->request.device;
    options.n_batch = t->a->request.window;
    options.kv_dtype = APR_F32;
    options.weights_location = "in memory";
    apr_damage_close(&t->damage);
    return apr_damage_open(&t->damage, &t->model, &options, t->ids + first, n, t->a->request.window, err);
}

/* Trials whose results are not in the table. */
static size_t count_trials(const trial *t)
{
    size_t n = 0;

    for (size_t i = 0; i < t->a->n_groups; i++) {
        const apr_damage_row *const row = apr_damage_table_find(&t->table, t->a->groups[i].name);
        for (size_t k = 0; k < t->a->groups[i].n_types; k++) n += row == NULL || isnan(row->kl[t->a->groups[i].types[k]]);
    }
    return n;
}

/* Checks that the state file can be written before anything is measured. */
static apr_status prepare_trials(trial *t, apr_error *err)
{
    const apr_out_request state = {.path = t->a->request.state, .mark = APR_DAMAGE_MARK};

    t->n_to_do = count_trials(t);
    if (t->n_to_do == 0) return APR_OK;
    apr_progress_report(&t->progress, 0, t->n_to_do, "types to try");
    if (state.path != NULL) APR_TRY(apr_outs_check(&state, 1, err));
    return open_damage(t, 0, t->a->n_tried, err);
}

static apr_status try_all(trial *t, apr_error *err)
{
    apr_allocation *const a = t->a;

    t->progress = apr_listener_begin(t->listener);
    apr_status status = prepare_trials(t, err);
    for (size_t i = 0; i < a->n_groups && status == APR_OK; i++) status = try_group(t, &a->groups[i], err);
    apr_listener_end(t->listener);
    return status;
}

/* --- choosing --- */

/* Chooses types with a total cost of at most `within`. by_damage: the divergence is the cost and the size is minimized. *least: the lowest
 * possible cost. APR_E_NO without a message if `within` is too low. */
static apr_status choose(apr_allocation *a, double within, bool by_damage, double *least, apr_error *err)
{
    const size_t n_offers = a->n_groups * APR_ALLOCATE_TYPES;
    apr_menu *const menus = calloc(a->n_groups + 1, sizeof *menus);
    apr_offer *const offers = calloc(n_offers + 1, sizeof *offers);
    size_t *const chosen = calloc(a->n_groups + 1, sizeof *chosen);
    apr_status status = menus != NULL && offers != NULL && chosen != NULL ? APR_OK : apr_no_memory(err, "an allocation");

    for (size_t i = 0; i < a->n_groups && status == APR_OK; i++) {
        const apr_allocate_group *const g = &a->groups[i];
        for (size_t k = 0; k < g->n_types; k++)
            offers[i * APR_ALLOCATE_TYPES + k] = by_damage ? (apr_offer){g->offers[k].value, g->offers[k].cost} : g->offers[k];
        menus[i] = (apr_menu){offers + i * APR_ALLOCATE_TYPES, g->n_types};
    }
    if (status == APR_OK) status = apr_allocate(menus, a->n_groups, within, chosen, least, NULL);
    if (status == APR_E_MEMORY) apr_no_memory(err, "an allocation");
    a->sum = 0.0;
    a->n_bytes = a->fixed_bytes;
    for (size_t i = 0; i < a->n_groups && status == APR_OK; i++) {
        a->groups[i].chosen = chosen[i];
        a->sum += a->groups[i].offers[chosen[i]].value;
        a->n_bytes += (uint64_t)a->groups[i].offers[chosen[i]].cost;
    }
    free(menus);
    free(offers);
    free(chosen);
    return status;
}

static double target_bytes(const apr_allocation *a)
{
    return a->request.size > 0 ? (double)a->request.size : floor(a->request.bpw * (double)a->n_elems / 8.0);
}

static apr_status choose_by_size(apr_allocation *a, apr_error *err)
{
    double least = 0.0;
    return choose(a, target_bytes(a) - (double)a->fixed_bytes, false, &least, err);
}

/* Whether a target size can be met depends only on sizes, so it is known before anything is measured. */
static apr_status refuse_small_target(const apr_allocation *a, apr_error *err)
{
    const double all = target_bytes(a);
    double least = (double)a->fixed_bytes;

    if (!isnan(a->request.kld)) return APR_OK;
    for (size_t i = 0; i < a->n_groups; i++) {
        double cost = a->groups[i].offers[0].cost;
        for (size_t k = 1; k < a->groups[i].n_types; k++) cost = fmin(cost, a->groups[i].offers[k].cost);
        least += cost;
    }
    if (all >= least) return APR_OK;
    return apr_fail(err, APR_E_NO,
                    "the target is %.0f bytes of tensors (%.3f bits per weight), but the smallest types that are tried need %.0f (%.3f)",
                    all, all * 8.0 / (double)a->n_elems, least, least * 8.0 / (double)a->n_elems);
}

/* Measures all chosen types together, on the tokens that were not used to choose. */
static apr_status measure_choice(trial *t, apr_error *err)
{
    size_t n = 0;

    for (size_t i = 0; i < t->a->n_groups; i++) {
        const apr_allocate_group *const g = &t->a->groups[i];
        n += replace_group(g, g->types[g->chosen], t->replaced + n);
    }
    return apr_damage_measure(&t->damage, t->replaced, n, &t->a->held, err);
}

/* The joint divergence may exceed the sum of the single ones. Then the limit is lowered until the measured value meets the target. */
static apr_status choose_by_damage(trial *t, apr_error *err)
{
    enum { MAX_ROUNDS = 8 };
    apr_allocation *const a = t->a;
    double within = a->request.kld, least = 0.0;

    for (int i = 0; i < MAX_ROUNDS; i++) {
        const apr_status status = choose(a, within, true, &least, err);
        if (status == APR_E_NO) break;
        APR_TRY(status);
        APR_TRY(measure_choice(t, err));
        if (a->held.mean <= a->request.kld) return APR_OK;
        within = fmin(within, a->sum) * 0.98 * a->request.kld / a->held.mean;
    }
    return apr_fail(err, APR_E_NO, "the target is a divergence of %g, but the finest types that are tried give about %.4g", a->request.kld,
                    least * fmax(1.0, a->sum > 0.0 ? a->held.mean / a->sum : 1.0));
}

static apr_status choose_all(trial *t, apr_error *err)
{
    const bool by_size = isnan(t->a->request.kld);

    if (by_size) APR_TRY(choose_by_size(t->a, err));
    APR_TRY(open_damage(t, t->a->n_tried, t->a->n_held, err));
    return by_size ? measure_choice(t, err) : choose_by_damage(t, err);
}

static apr_status make_overrides(apr_allocation *a, apr_error *err)
{
    a->overrides = apr_arena_array(&a->arena, a->n_groups + 1, sizeof *a->overrides);
    for (size_t i = 0; a->overrides != NULL && i < a->n_groups; i++) {
        const apr_allocate_group *const g = &a->groups[i];
        const char *const reason = apr_arena_print(&a->arena, "chosen by KL divergence: %.3g alone", g->offers[g->chosen].value);
        if (reason == NULL) return apr_no_memory(err, "the types of tensors");
        a->overrides[i] = (apr_recipe_override){g->regex, g->types[g->chosen], reason};
    }
    return a->overrides != NULL ? APR_OK : apr_no_memory(err, "the types of tensors");
}

static apr_status make(trial *t, const apr_conversion *c, apr_error *err)
{
    apr_allocation *const a = t->a;
    size_t *group_of = NULL, n_members = 0;

    APR_TRY(allocate_groups(a, c, &group_of, err));
    APR_TRY(open_model(t, c, err));
    APR_TRY(allocate_members(a, c, &t->model, group_of, err));
    if (a->n_groups == 0)
        return apr_fail(err, APR_E_USAGE, "there is nothing to choose: no tensor that the model uses is converted to a block type");
    a->n_elems = c->recipe.n_elems;
    a->fixed_bytes = c->recipe.n_bytes;
    for (size_t i = 0; i < a->n_groups; i++) {
        a->fixed_bytes -= a->groups[i].bytes_before;
        n_members += a->groups[i].n_members;
    }
    t->replaced = apr_arena_array(&a->arena, n_members + 1, sizeof *t->replaced);
    if (t->replaced == NULL) return apr_no_memory(err, "the types of tensors");
    APR_TRY(refuse_small_target(a, err));
    APR_TRY(read_text(t, err));
    APR_TRY(open_table(t, err));
    APR_TRY(try_all(t, err));
    APR_TRY(choose_all(t, err));
    APR_TRY(guard_table(a->request.state, err));
    return make_overrides(a, err);
}

apr_status apr_allocation_make(apr_allocation *a, const apr_allocate_request *request, const apr_conversion *c,
                               const apr_listener *listener, apr_error *err)
{
    trial t = {.a = a, .listener = listener};

    *a = (apr_allocation){.request = *request};
    const apr_status status = make(&t, c, err);
    apr_damage_close(&t.damage);
    apr_damage_table_close(&t.table);
    apr_tokenizer_close(t.tokenizer);
    apr_model_close(&t.model);
    apr_model_close(&t.between);
    free(t.ids);
    return status;
}

void apr_allocation_close(apr_allocation *a)
{
    apr_arena_close(&a->arena);
    *a = (apr_allocation){0};
}
