/* advice.h - what would fit instead: each single change of what was asked with which everything fits. */
#ifndef APR_ENGINE_PLAN_ADVICE_H
#define APR_ENGINE_PLAN_ADVICE_H

#include "tools/engine/plan/question.h"

typedef enum {
    APR_REMEDY_DIRECT,   /* no copies of packed weights */
    APR_REMEDY_HEADROOM, /* a smaller one, in whole MiB */
    APR_REMEDY_KV,       /* a smaller type of keys and values, the widest that fits */
    APR_REMEDY_CONTEXT,  /* the largest that fits */
    APR_REMEDY_TYPE,     /* of the weights, the best that fits */
    APR_REMEDY_OFFLOAD,  /* the part whose move to the host costs least per token */
    APR_REMEDIES
} apr_remedy_kind;

typedef struct apr_remedy {
    bool was_tried, fits;
    apr_plan_asked asked; /* with the change; that of `offload` is below */
    uint64_t device_bytes, host_bytes;
    /* APR_REMEDY_OFFLOAD */
    apr_offload offload;
    apr_partition_cost cost;
    uint64_t offloaded_bytes; /* of the host's part */
} apr_remedy;

typedef struct apr_advice {
    apr_remedy of[APR_REMEDIES];
} apr_advice;

/* plans: those that do not fit. Plans that cannot be made count as not fitting. */
void apr_question_advise(apr_plan_question *q, const apr_plans *plans, apr_advice *advice);

#endif
