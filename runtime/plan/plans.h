/* runtime/plan/plans.h - the plans of all places of a program at once, and the smallest offload that makes them fit. */
#ifndef APR_RUNTIME_PLANS_H
#define APR_RUNTIME_PLANS_H

#include "runtime/plan/plan.h"

typedef struct apr_plans_options {
    /* Of each device: gpu, budget, headroom, weights as they lie there. gpu NULL: there is none, everything is on the host. The other
     * fields of a place are set here. n_batch 0: as many tokens as there is room for. */
    apr_plan_options each;
    int n_devices;                         /* 0 only without a gpu */
    const apr_gpu *gpus[APR_MOST_DEVICES]; /* [n_devices] where they are not all each.gpu; NULL: it is */
    bool shares_card[APR_MOST_DEVICES];    /* [n_devices] with a device before it: the budget is one */
    apr_offload offload;
    const uint64_t *host_weight_bytes; /* [n_weights] of what is offloaded, as it lies on the host; NULL without a device */
    uint64_t host_budget_bytes;        /* for what is offloaded; 0: not judged */
} apr_plans_options;

typedef struct apr_plans {
    apr_partition partition;
    apr_plan *plans; /* [partition.n_places], of the partition's arena */
} apr_plans;

/* At the fastest pace (apr_plan_set_pace) that lets all of them fit, else at the slowest. A failed one is closed. */
apr_status apr_plans_make(apr_plans *plans, const apr_program *program, const apr_plans_options *options, apr_error *err);
void apr_plans_close(apr_plans *plans);
bool apr_plans_fit(const apr_plans *plans);

/* APR_E_USAGE: why nothing is offloaded from that GPU, which shares the host's memory. */
apr_status apr_refuse_offload(const char *gpu, apr_error *err);

/* The fewest layers, or the experts of the fewest layers, with which all fits: whichever costs the host less a token
 * (apr_partition_host_traffic). options->offload does not matter. APR_E_NO: none fits. The plans are the caller's to close. */
apr_status apr_plans_smallest(apr_plans *plans, apr_offload *smallest, const apr_program *program, const apr_plans_options *options,
                              apr_error *err);

#endif
