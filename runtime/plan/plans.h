/* runtime/plan/plans.h - the plans of all places of a program, and the search for the smallest offload that fits. */
#ifndef APR_RUNTIME_PLANS_H
#define APR_RUNTIME_PLANS_H

#include "runtime/plan/plan.h"

typedef struct apr_plans_options {
    /* The options of each device: gpu, budget, headroom, weights as stored there. gpu NULL: no device, everything is on the host.
     * apr_plans_make sets the other per-place options. n_batch 0: as many tokens as fit. */
    apr_plan_options each;
    int n_devices;                        /* 0 only without a gpu */
    const apr_gpu *gpus[APR_MAX_DEVICES]; /* [n_devices] where they differ from each.gpu; NULL: each.gpu */
    bool shares_card[APR_MAX_DEVICES];    /* [n_devices] true: on the same card as the device before it, with one budget */
    apr_offload offload;
    const uint64_t *host_weight_bytes; /* [n_weights] of offloaded weights as stored on the host; NULL without a device */
    uint64_t host_budget_bytes;        /* for what is offloaded; 0: not checked */
} apr_plans_options;

typedef struct apr_plans {
    apr_partition partition;
    apr_plan *plans; /* [partition.n_places], in the partition's arena */
} apr_plans;

/* Uses the fastest pace (apr_plan_set_speed) with which all places fit, else the slowest. Failed plans are closed. */
apr_status apr_plans_make(apr_plans *plans, const apr_program *program, const apr_plans_options *options, apr_error *err);
void apr_plans_close(apr_plans *plans);
bool apr_plans_fit(const apr_plans *plans);

/* APR_E_USAGE: this GPU shares the host's memory, so nothing can be offloaded from it. */
apr_status apr_refuse_offload(const char *gpu, apr_error *err);

/* The fewest layers, or the experts of the fewest layers, with which all places fit: whichever has the lower apr_partition_host_traffic.
 * options->offload is ignored. APR_E_NO: no offload fits. The caller closes the plans. */
apr_status apr_plans_smallest(apr_plans *plans, apr_offload *smallest, const apr_program *program, const apr_plans_options *options,
                              apr_error *err);

#endif
