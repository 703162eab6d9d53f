/* plans.c - a plan for each place, and the search for an offload. */
#include "runtime/plan/plans.h"
#include "formats/base/bytes.h"

#include <stdlib.h>
#include <string.h>

static apr_status divide(apr_plans *plans, const apr_program *program, const apr_plans_options *o, apr_error *err)
{
    uint64_t *const states = malloc((program->n_states + 1) * sizeof *states);
    const apr_partition_options options = {
        .n_devices = o->n_devices, .offload = o->offload, .weight_bytes = o->each.weight_bytes, .state_bytes = states};

    if (states == NULL) return apr_no_memory(err, "the sizes of the states");
    apr_plan_states_bytes(program, o->each.kv_dtype, o->each.n_ctx, o->each.n_batch, states);
    const apr_status status = apr_partition_make(&plans->partition, program, &options, err);
    free(states);
    return status;
}

/* What is left of a budget when the places before have taken theirs: of one card, or of the host's memory. */
static uint64_t budget_of(const apr_plans *plans, const apr_plans_options *o, int place, bool on_device)
{
    uint64_t budget = !on_device ? o->host_budget_bytes : o->each.budget_bytes > 0 ? o->each.budget_bytes : apr_gpu_vram_bytes(o->each.gpu);
    uint64_t taken = 0;

    if (o->n_devices == 0) return o->each.budget_bytes;
    for (int i = place; i-- > 0;) {
        if (on_device && !o->shares_card[i + 1]) break;
        taken = apr_saturating_add(taken, on_device ? plans->plans[i].device_bytes : plans->plans[i].host_bytes);
    }
    if (budget == 0) return 0;
    return budget > taken ? budget - taken : 1;
}

static apr_status plan_place(apr_plans *plans, int place, const apr_program *program, const apr_plans_options *o, uint64_t *bytes,
                             uint64_t *made, apr_error *err)
{
    const bool on_device = plans->partition.on[place] == APR_ON_DEVICE;
    const bool is_beside = o->n_devices > 0 && !on_device;
    apr_plan_options options = o->each;

    options.partition = &plans->partition;
    options.place = place;
    options.budget_bytes = budget_of(plans, o, place, on_device);
    options.shares_card = on_device && o->shares_card[place];
    memcpy(bytes, is_beside ? o->host_weight_bytes : o->each.weight_bytes, program->n_weights * sizeof *bytes);
    APR_TRY(apr_partition_keep_weights(&plans->partition, program, place, bytes, err));
    options.weight_bytes = bytes;
    if (o->each.made_bytes != NULL) {
        memcpy(made, o->each.made_bytes, program->n_weights * sizeof *made);
        APR_TRY(apr_partition_keep_weights(&plans->partition, program, place, made, err));
        options.made_bytes = made;
    }
    if (plans->partition.n_places > 1) options.filled_bytes = NULL; /* steps of a token that read them so are of one place */
    if (!on_device) {
        options.gpu = NULL;
        options.copies = false;
        options.weight_dtypes = NULL;
    }
    return apr_plan_make(&plans->plans[place], program, &options, err);
}

static apr_status make_at_a_pace(apr_plans *plans, const apr_program *program, const apr_plans_options *options, apr_error *err)
{
    uint64_t *const bytes = malloc((program->n_weights + 1) * sizeof *bytes), *const made = malloc((program->n_weights + 1) * sizeof *made);

    *plans = (apr_plans){0};
    apr_status status =
        bytes != NULL && made != NULL ? divide(plans, program, options, err) : apr_no_memory(err, "the sizes of the weights");
    const int n = status == APR_OK ? plans->partition.n_places : 0;
    if (status == APR_OK) plans->plans = apr_arena_array(&plans->partition.arena, (size_t)n, sizeof *plans->plans);
    if (status == APR_OK && plans->plans == NULL) status = apr_no_memory(err, "the plans");
    for (int i = 0; i < n && status == APR_OK; i++) status = plan_place(plans, i, program, options, bytes, made, err);
    free(bytes);
    free(made);
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

/* At the i-th pace; plans that were made before are closed. */
static apr_status make_again(apr_plans *plans, const apr_program *program, const apr_plans_options *options, int i, apr_error *err)
{
    apr_plans_options o = *options;
    apr_plans_close(plans);
    apr_plan_set_pace(&o.each, options->each.n_batch, o.n_devices > 0, i);
    return make_at_a_pace(plans, program, &o, err);
}

/* Where the slowest pace does not fit, none does. */
static apr_status make_paced(apr_plans *plans, const apr_program *program, const apr_plans_options *options, apr_error *err)
{
    const int slowest = apr_plan_n_paces(options->each.n_batch, options->n_devices > 0) - 1;

    *plans = (apr_plans){0};
    APR_TRY(make_again(plans, program, options, 0, err));
    if (slowest == 0 || apr_plans_fit(plans)) return APR_OK;
    APR_TRY(make_again(plans, program, options, slowest, err));
    if (slowest == 1 || !apr_plans_fit(plans)) return APR_OK;
    apr_status status = make_again(plans, program, options, 1, err);
    for (int i = 2; i <= slowest && status == APR_OK && !apr_plans_fit(plans); i++) status = make_again(plans, program, options, i, err);
    return status;
}

/* Rows filled up are worth more than pace. */
apr_status apr_plans_make(apr_plans *plans, const apr_program *program, const apr_plans_options *options, apr_error *err)
{
    apr_plans_options o = *options;

    const apr_status status = make_paced(plans, program, &o, err);
    if (status != APR_OK || o.each.filled_bytes == NULL || apr_plans_fit(plans)) return status;
    apr_plans_close(plans);
    o.each.filled_bytes = NULL;
    return make_paced(plans, program, &o, err);
}

static bool has_experts(const apr_program *program)
{
    for (size_t i = 0; i < program->n_ops; i++)
        if (program->ops[i].kind == APR_OP_EXPERTS) return true;
    return false;
}

/* Bytes over the budget where it is exceeded most, or (negative) left where least are; 0 at most exactly when all fits. */
static double excess_of(const apr_plans *plans)
{
    double most = -1e300;

    for (int i = 0; i < plans->partition.n_places; i++) {
        const apr_plan *const p = &plans->plans[i];
        const double bytes = (double)(p->judged == APR_ON_DEVICE ? p->device_bytes : p->host_bytes);
        const double excess = p->fits ? bytes - (double)p->budget_bytes : (double)p->short_bytes;
        if (p->budget_bytes > 0 && excess > most) most = excess;
    }
    return most;
}

/* At the slowest pace, which fits where any does. APR_E_NO: they do not fit, by *excess, and are closed. */
static apr_status try_offload(apr_plans *plans, apr_offload offload, const apr_program *program, const apr_plans_options *options,
                              double *excess, apr_error *err)
{
    apr_plans_options o = *options;

    *plans = (apr_plans){0};
    o.offload = offload;
    o.each.filled_bytes = NULL;
    APR_TRY(make_again(plans, program, &o, apr_plan_n_paces(o.each.n_batch, o.n_devices > 0) - 1, err));
    *excess = excess_of(plans);
    if (apr_plans_fit(plans)) return APR_OK;
    apr_plans_close(plans);
    return APR_E_NO;
}

/* Between a number of layers that does not fit and one that does: where a straight line through both says that it does just. */
static int64_t guess(int64_t bad, double bad_excess, int64_t good, double good_excess)
{
    const double at = (double)bad + (double)(good - bad) * bad_excess / (bad_excess - good_excess);
    const int64_t n = at < (double)good ? (int64_t)at + 1 : good;
    return n <= bad ? bad + 1 : n >= good ? good - 1 : n;
}

/* Of [1, most] layers the fewest that fit: one fewer does not. A layer is much like another, so guesses are good; every third halves. */
static apr_status fewest_layers(apr_plans *plans, int64_t most, int64_t *fewest, const apr_program *program,
                                const apr_plans_options *options, apr_error *err)
{
    double excess = 0.0, bad_excess = 0.0;
    int64_t bad = 0;
    apr_plans tried;

    apr_status status = try_offload(&tried, (apr_offload){0}, program, options, &bad_excess, err);
    if (status == APR_OK) apr_plans_close(&tried);
    if (status != APR_OK && status != APR_E_NO) return status;
    status = most < 1 ? APR_E_NO : try_offload(plans, (apr_offload){.n_layers = most}, program, options, &excess, err);
    *fewest = most;
    for (int round = 1; status == APR_OK && *fewest - bad > 1; round++) {
        const int64_t n = round % 3 == 0 ? bad + (*fewest - bad) / 2 : guess(bad, bad_excess, *fewest, excess);
        double found;
        status = try_offload(&tried, (apr_offload){.n_layers = n}, program, options, &found, err);
        if (status == APR_E_NO) {
            bad = n;
            bad_excess = found;
            status = APR_OK;
        } else if (status == APR_OK) {
            apr_plans_close(plans);
            *plans = tried;
            *fewest = n;
            excess = found;
        }
    }
    return status;
}

apr_status apr_plans_smallest(apr_plans *plans, apr_offload *smallest, const apr_program *program, const apr_plans_options *options,
                              apr_error *err)
{
    /* each of several devices keeps one layer at least */
    const int64_t most = program->num_layers - (options->n_devices > 1 ? options->n_devices : 0);
    double excess;

    *smallest = (apr_offload){.experts = true};
    apr_status status = has_experts(program) ? try_offload(plans, *smallest, program, options, &excess, err) : APR_E_NO;
    if (status == APR_E_NO) {
        *smallest = (apr_offload){0};
        status = fewest_layers(plans, most, &smallest->n_layers, program, options, err);
    }
    if (status != APR_OK) {
        *smallest = (apr_offload){0};
        return status;
    }
    apr_plans_options o = *options;
    o.offload = *smallest;
    apr_plans_close(plans);
    return apr_plans_make(plans, program, &o, err);
}
