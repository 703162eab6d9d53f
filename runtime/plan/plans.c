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
    if (!on_device) {
        options.gpu = NULL;
        options.copies = false;
        options.weight_dtypes = NULL;
    }
    return apr_plan_make(&plans->plans[place], program, &options, err);
}

apr_status apr_plans_make(apr_plans *plans, const apr_program *program, const apr_plans_options *options, apr_error *err)
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

static bool has_experts(const apr_program *program)
{
    for (size_t i = 0; i < program->n_ops; i++)
        if (program->ops[i].kind == APR_OP_EXPERTS) return true;
    return false;
}

/* APR_E_NO: they do not. */
static apr_status try_offload(apr_plans *plans, apr_offload offload, const apr_program *program, const apr_plans_options *options,
                              apr_error *err)
{
    apr_plans_options o = *options;

    o.offload = offload;
    APR_TRY(apr_plans_make(plans, program, &o, err));
    if (apr_plans_fit(plans)) return APR_OK;
    apr_plans_close(plans);
    return APR_E_NO;
}

apr_status apr_plans_smallest(apr_plans *plans, apr_offload *smallest, const apr_program *program, const apr_plans_options *options,
                              apr_error *err)
{
    /* each of several devices keeps one layer at least */
    const int64_t most = program->num_layers - (options->n_devices > 1 ? options->n_devices : 0);

    *smallest = (apr_offload){.experts = true};
    apr_status status = has_experts(program) ? try_offload(plans, *smallest, program, options, err) : APR_E_NO;
    for (int64_t n = 1; status == APR_E_NO && n <= most; n++) {
        *smallest = (apr_offload){.n_layers = n};
        status = try_offload(plans, *smallest, program, options, err);
    }
    if (status == APR_E_NO) *smallest = (apr_offload){0};
    return status;
}
