/* plans.c - a plan for each place, and the search for an offload. */
#include "runtime/plan/plans.h"
#include "formats/base/bytes.h"

#include <stdlib.h>
#include <string.h>

static const apr_gpu *gpu_of(const apr_plans_options *o, int device) { return o->gpus[device] != NULL ? o->gpus[device] : o->each.gpu; }

static uint64_t memory_of(const apr_plans_options *o, int device)
{
    return o->each.budget_bytes > 0 ? o->each.budget_bytes : apr_gpu_vram_bytes(gpu_of(o, device));
}

static apr_status divide(apr_plans *plans, const apr_program *program, const apr_plans_options *o, apr_error *err)
{
    uint64_t *const states = malloc((program->n_states + 1) * sizeof *states);
    uint64_t capacities[APR_MAX_DEVICES];
    const apr_partition_options options = {.n_devices = o->n_devices,
                                           .offload = o->offload,
                                           .weight_bytes = o->each.weight_bytes,
                                           .state_bytes = states,
                                           .capacities = o->n_devices > 1 ? capacities : NULL};

    for (int i = 0; i < o->n_devices; i++) capacities[i] = memory_of(o, i);
    if (states == NULL) return apr_no_memory(err, "the sizes of the states");
    apr_plan_states_bytes(program, o->each.kv_dtype, o->each.n_ctx, o->each.n_batch, states);
    const apr_status status = apr_partition_make(&plans->partition, program, &options, err);
    free(states);
    return status;
}

/* The budget minus what earlier places on the same card, or in host memory, take. */
static uint64_t budget_of(const apr_plans *plans, const apr_plans_options *o, int place, bool on_device)
{
    if (o->n_devices == 0) return o->each.budget_bytes;
    const uint64_t budget = on_device ? memory_of(o, place) : o->host_budget_bytes;
    uint64_t taken = 0;

    for (int i = place; i-- > 0;) {
        if (on_device && !o->shares_card[i + 1]) break;
        taken = apr_saturating_add(taken, on_device ? plans->plans[i].taken_bytes : plans->plans[i].host_bytes);
    }
    if (budget == 0) return 0;
    return budget > taken ? budget - taken : 1;
}

static apr_status plan_place(apr_plans *plans, int place, const apr_program *program, const apr_plans_options *o, uint64_t *bytes,
                             uint64_t *composed_bytes, apr_error *err)
{
    const bool on_device = plans->partition.on[place] == APR_ON_DEVICE;
    const bool is_host_part = o->n_devices > 0 && !on_device;
    apr_plan_options options = o->each;

    options.partition = &plans->partition;
    options.place = place;
    options.budget_bytes = budget_of(plans, o, place, on_device);
    if (on_device) options.gpu = gpu_of(o, place);
    if (on_device && options.system_bytes > 0) options.system_bytes = apr_gpu_system_bytes(options.gpu);
    options.shares_card = on_device && o->shares_card[place];
    memcpy(bytes, is_host_part ? o->host_weight_bytes : o->each.weight_bytes, program->n_weights * sizeof *bytes);
    APR_TRY(apr_partition_keep_weights(&plans->partition, program, place, bytes, err));
    options.weight_bytes = bytes;
    if (o->each.composed_bytes != NULL) {
        memcpy(composed_bytes, o->each.composed_bytes, program->n_weights * sizeof *composed_bytes);
        APR_TRY(apr_partition_keep_weights(&plans->partition, program, place, composed_bytes, err));
        options.composed_bytes = composed_bytes;
    }
    if (plans->partition.n_places > 1) options.padding_bytes = NULL; /* fused decoding, which reads these, needs a single place */
    if (!on_device) {
        options.gpu = NULL;
        options.copies = false;
        options.weight_dtypes = NULL;
    }
    return apr_plan_make(&plans->plans[place], program, &options, err);
}

static apr_status make_at_a_pace(apr_plans *plans, const apr_program *program, const apr_plans_options *options, apr_error *err)
{
    uint64_t *const bytes = malloc((program->n_weights + 1) * sizeof *bytes), *const composed_bytes =
                                                                                  malloc((program->n_weights + 1) * sizeof *composed_bytes);

    *plans = (apr_plans){0};
    apr_status status =
        bytes != NULL && composed_bytes != NULL ? divide(plans, program, options, err) : apr_no_memory(err, "the sizes of the weights");
    const int n = status == APR_OK ? plans->partition.n_places : 0;
    if (status == APR_OK) plans->plans = apr_arena_array(&plans->partition.arena, (size_t)n, sizeof *plans->plans);
    if (status == APR_OK && plans->plans == NULL) status = apr_no_memory(err, "the plans");
    for (int i = 0; i < n && status == APR_OK; i++) status = plan_place(plans, i, program, options, bytes, composed_bytes, err);
    free(bytes);
    free(composed_bytes);
    if (status != APR_OK) apr_plans_close(plans);
    return status;
}

void apr_plans_close(apr_plans *plans)
{
    for (int i = 0; plans->plans != NULL && i < plans->partition.n_places; i++) apr_plan_close(&plans->plans[i]);
    apr_partition_close(&plans->partition);
    *plans = (apr_plans){0};
}

bool apr_plans_fit(const apr_plans *plans)
{
    for (int i = 0; i < plans->partition.n_places; i++)
        if (!plans->plans[i].fits) return false;
    return true;
}

/* Makes the plans at the i-th pace; closes plans that were made before. */
static apr_status make_again(apr_plans *plans, const apr_program *program, const apr_plans_options *options, int i, apr_error *err)
{
    apr_plans_options o = *options;
    apr_plans_close(plans);
    apr_plan_set_speed(&o.each, options->each.n_batch, o.n_devices > 0, i);
    return make_at_a_pace(plans, program, &o, err);
}

/* Tries paces from the fastest down; the slowest takes the least memory. */
static apr_status make_paced(apr_plans *plans, const apr_program *program, const apr_plans_options *options, apr_error *err)
{
    const int slowest = apr_plan_n_speeds(options->each.n_batch, options->n_devices > 0) - 1;

    *plans = (apr_plans){0};
    APR_TRY(make_again(plans, program, options, 0, err));
    if (slowest == 0 || apr_plans_fit(plans)) return APR_OK;
    APR_TRY(make_again(plans, program, options, slowest, err));
    if (slowest == 1 || !apr_plans_fit(plans)) return APR_OK;
    apr_status status = make_again(plans, program, options, 1, err);
    for (int i = 2; i <= slowest && status == APR_OK && !apr_plans_fit(plans); i++) status = make_again(plans, program, options, i, err);
    return status;
}

apr_status apr_refuse_offload(const char *gpu, apr_error *err)
{
    return apr_fail(err, APR_E_USAGE, "%s shares its memory with the host, so --offload would free nothing; leave it out", gpu);
}

/* The smallest variant is tried first: if it does not fit, nothing does. Padded expert rows are worth more than a faster pace. */
apr_status apr_plans_make(apr_plans *plans, const apr_program *program, const apr_plans_options *options, apr_error *err)
{
    apr_plans_options o = *options;

    *plans = (apr_plans){0};
    for (int i = 0; i < o.n_devices && apr_offload_is_some(&o.offload); i++)
        if (gpu_of(&o, i)->is_integrated) return apr_refuse_offload(gpu_of(&o, i)->label, err);
    o.each.padding_bytes = NULL;
    APR_TRY(make_again(plans, program, &o, apr_plan_n_speeds(o.each.n_batch, o.n_devices > 0) - 1, err));
    if (!apr_plans_fit(plans)) return APR_OK;
    apr_plans_close(plans);
    if (options->each.padding_bytes != NULL) {
        APR_TRY(make_paced(plans, program, options, err));
        if (apr_plans_fit(plans)) return APR_OK;
        apr_plans_close(plans);
    }
    return make_paced(plans, program, &o, err);
}

/* Bytes over the budget on the device that exceeds it most. Negative: bytes left on the device with the fewest left. At most 0 exactly
 * if all devices fit. */
static double excess_of(const apr_plans *plans)
{
    double most = -1e300;

    for (int i = 0; i < plans->partition.n_places; i++) {
        const apr_plan *const p = &plans->plans[i];
        if (p->judged != APR_ON_DEVICE || p->budget_bytes == 0) continue;
        const double excess = p->fits ? (double)p->taken_bytes - (double)p->budget_bytes : (double)p->short_bytes;
        if (excess > most) most = excess;
    }
    return most;
}

/* --- the smallest offload --- */

/* One kind of offload: whole layers, or experts of layers. Number n offloads more than n - 1; number 0 offloads nothing. */
typedef struct search {
    const apr_program *program;
    const apr_plans_options *options;
    int64_t most;                 /* n is from 1 to this */
    const int64_t *expert_layers; /* [most] layers that have experts, counted from 1; NULL: whole layers are offloaded */
} search;

/* The result: an offload at the slowest pace, and its traffic per token. */
typedef struct found {
    apr_offload offload;
    apr_plans plans;
    uint64_t traffic;
} found;

static apr_offload nth_offload(const search *s, int64_t n)
{
    if (n == 0) return (apr_offload){0};
    if (s->expert_layers == NULL) return (apr_offload){.n_layers = n};
    return (apr_offload){.experts = true, .n_expert_layers = n < s->most ? s->expert_layers[n - 1] : 0};
}

/* Plans offload n at the slowest pace, which takes the least memory. *excess counts the devices only. */
static apr_status try_nth(apr_plans *plans, const search *s, int64_t n, double *excess, apr_error *err)
{
    apr_plans_options o = *s->options;

    *plans = (apr_plans){0};
    o.offload = nth_offload(s, n);
    o.each.padding_bytes = NULL;
    o.each.no_largest = true;
    APR_TRY(make_again(plans, s->program, &o, apr_plan_n_speeds(o.each.n_batch, o.n_devices > 0) - 1, err));
    *excess = excess_of(plans);
    return APR_OK;
}

/* Linear interpolation between an n that does not fit and one that does. */
static int64_t guess(int64_t bad, double bad_excess, int64_t good, double good_excess)
{
    const double at = (double)bad + (double)(good - bad) * bad_excess / (bad_excess - good_excess);
    const int64_t n = at < (double)good ? (int64_t)at + 1 : good;
    return n <= bad ? bad + 1 : n >= good ? good - 1 : n;
}

/* Finds the least n with which the devices fit. Layers are similar, so interpolation guesses well; every third guess is the middle.
 * APR_E_NO: there is none, or the host has no memory for it and so for no larger n. */
static apr_status find_least(found *f, const search *s, double bad_excess, apr_error *err)
{
    double excess = 0.0;
    int64_t bad = 0, good = s->most;

    if (s->most < 1) return APR_E_NO;
    APR_TRY(try_nth(&f->plans, s, good, &excess, err));
    apr_status status = excess <= 0.0 ? APR_OK : APR_E_NO;
    for (int round = 1; status == APR_OK && good - bad > 1; round++) {
        const int64_t n = round % 3 == 0 ? bad + (good - bad) / 2 : guess(bad, bad_excess, good, excess);
        apr_plans tried;
        double tried_excess;
        status = try_nth(&tried, s, n, &tried_excess, err);
        if (status != APR_OK) break;
        if (tried_excess > 0.0) {
            bad = n;
            bad_excess = tried_excess;
            apr_plans_close(&tried);
        } else {
            apr_plans_close(&f->plans);
            f->plans = tried;
            good = n;
            excess = tried_excess;
        }
    }
    if (status == APR_OK && !apr_plans_fit(&f->plans)) status = APR_E_NO;
    if (status != APR_OK) {
        apr_plans_close(&f->plans);
        return status;
    }
    const apr_partition_cost cost = apr_partition_cost_of(&f->plans.partition, s->program, s->options->host_weight_bytes);
    f->offload = nth_offload(s, good);
    f->traffic = apr_partition_host_traffic(&cost);
    return APR_OK;
}

/* The layers with experts, counted from 1, in order. */
static int64_t find_expert_layers(const apr_program *program, int64_t *layers)
{
    int64_t n = 0;
    for (size_t i = 0; i < program->n_ops; i++) {
        const int64_t layer = program->ops[i].layer + 1;
        if (program->ops[i].kind == APR_OP_EXPERTS && (n == 0 || layers[n - 1] < layer) && n < program->num_layers) layers[n++] = layer;
    }
    return n;
}

/* Chooses the cheaper one of both kinds and closes the other. */
static apr_status find_cheapest(found *best, const apr_program *program, const apr_plans_options *options, const int64_t *expert_layers,
                                int64_t n_expert_layers, apr_error *err)
{
    /* with several devices each keeps at least one layer */
    const search layers = {program, options, program->num_layers - (options->n_devices > 1 ? options->n_devices : 0), NULL};
    const search experts = {program, options, n_expert_layers, expert_layers};
    double excess;
    found other = {0};

    apr_status status = try_nth(&best->plans, &layers, 0, &excess, err);
    if (status != APR_OK) return status;
    apr_plans_close(&best->plans);
    status = find_least(best, &layers, excess, err);
    if (status != APR_OK && status != APR_E_NO) return status;
    const apr_status second = find_least(&other, &experts, excess, err);
    if (second == APR_E_NO) return status;
    if (second != APR_OK || (status == APR_OK && best->traffic <= other.traffic)) {
        apr_plans_close(&other.plans);
        if (second != APR_OK) apr_plans_close(&best->plans);
        return second;
    }
    apr_plans_close(&best->plans);
    *best = other;
    return APR_OK;
}

apr_status apr_plans_smallest(apr_plans *plans, apr_offload *smallest, const apr_program *program, const apr_plans_options *options,
                              apr_error *err)
{
    int64_t *const layers = malloc(((size_t)program->num_layers + 1) * sizeof *layers);
    found best = {0};

    *plans = (apr_plans){0};
    *smallest = (apr_offload){0};
    if (layers == NULL) return apr_no_memory(err, "the layers that have experts");
    bool is_shared = false;
    for (int i = 0; i < options->n_devices; i++) is_shared |= gpu_of(options, i)->is_integrated;
    const int64_t n = find_expert_layers(program, layers);
    const apr_status status = is_shared ? APR_E_NO : find_cheapest(&best, program, options, layers, n, err);
    free(layers);
    if (status != APR_OK) return status;
    apr_plans_options o = *options;
    *smallest = o.offload = best.offload;
    apr_plans_close(&best.plans);
    return apr_plans_make(plans, program, &o, err);
}
