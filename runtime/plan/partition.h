/* runtime/plan/partition.h - which operation of a program runs where, and which values must cross from one place to another.
 *
 * The places are the devices in their order, and behind them the host where something is computed there; without devices the host
 * alone. Layers are split into runs that follow one another, so a token passes each place once. No place holds a part of a sum, so
 * that no reduction over devices (NCCL) is needed: values are copied, once for each place that reads them.
 *
 *     --offload layers=N   the first N layers and the embedding on the host: looking up rows costs the host nothing, and what they
 *                          make crosses once. (The last N would cross twice, for the head would have to follow on the device.)
 *     --offload experts    the experts of every mixture on the host; routers, shared experts and attention stay where they are
 *     --offload experts=N  those of the first N layers (llama.cpp's --n-cpu-moe N)
 *     --gpus N             the remaining layers over N devices, so that the fullest is as empty as can be; what precedes the first
 *                          layer goes with it, what follows the last (the head) is the last device's
 *
 * An operation that uses a state runs where the state is: where the first one that uses it runs. So a layer that attends to another
 * layer's keys does so at the other's place. */
#ifndef APR_RUNTIME_PARTITION_H
#define APR_RUNTIME_PARTITION_H

#include "runtime/program/program.h"

typedef enum { APR_ON_HOST, APR_ON_DEVICE } apr_place;

enum { APR_MOST_DEVICES = 16, APR_MOST_PLACES = APR_MOST_DEVICES + 1 };

/* What is computed on the host beside devices; zeroed: nothing. */
typedef struct apr_offload {
    bool experts;
    int64_t n_layers;        /* the first of them; INT64_MAX: all */
    int64_t n_expert_layers; /* with `experts`: of the first so many layers alone; 0: of all */
} apr_offload;

static inline bool apr_offload_is_some(const apr_offload *offload) { return offload->experts || offload->n_layers > 0; }

typedef struct apr_partition_options {
    int n_devices; /* 0: everything on the host, nothing is offloaded */
    apr_offload offload;
    /* what layers weigh and devices hold; only their proportions matter */
    const uint64_t *weight_bytes; /* [n_weights]; 0: not there */
    const uint64_t *state_bytes;  /* [n_states]; NULL: none */
    const uint64_t *capacities;   /* [n_devices]; NULL: all hold as much */
} apr_partition_options;

/* Before the operation is run, the value is copied: all tokens, or the rows whose logits are computed where the operation makes logits. */
typedef struct apr_transfer {
    size_t op;
    int value, from, to; /* places */
} apr_transfer;

typedef struct apr_partition {
    int n_places;
    apr_place on[APR_MOST_PLACES]; /* [n_places] */
    int *op_place;                 /* [n_ops] */
    int *value_place;              /* [n_values] where it is made; -1: nowhere */
    int *state_place;              /* [n_states] -1: nowhere */
    apr_transfer *transfers;       /* [n_transfers] in the order of their operations */
    size_t n_transfers;
    apr_arena arena;
} apr_partition;

/* APR_E_USAGE: more devices than layers, or nothing there to be offloaded. A failed one is closed. */
apr_status apr_partition_make(apr_partition *partition, const apr_program *program, const apr_partition_options *options, apr_error *err);
void apr_partition_close(apr_partition *partition);
/* Places that a partition of these options has. */
int apr_partition_n_places(int n_devices, const apr_offload *offload);

/* What is copied before that operation, *n of them. */
const apr_transfer *apr_partition_before(const apr_partition *partition, size_t op, size_t *n);

/* Of one place. partition NULL: there is one place, and everything is there. */
static inline bool apr_partition_has_op(const apr_partition *s, int place, size_t op) { return s == NULL || s->op_place[op] == place; }
static inline bool apr_partition_has_state(const apr_partition *s, int place, size_t state)
{
    return s == NULL || s->state_place[state] == place;
}
bool apr_partition_has_logits(const apr_partition *partition, const apr_program *program, int place);
bool apr_partition_has_rope(const apr_partition *partition, const apr_program *program, int place, size_t rope);
/* bytes[n_weights] become 0 of weights that no operation of the place uses; what no operation at all uses is the first place's. */
apr_status apr_partition_keep_weights(const apr_partition *partition, const apr_program *program, int place, uint64_t *bytes,
                                      apr_error *err);

/* What one decoded token reads, and what it costs beside the devices' work. */
typedef struct apr_partition_cost {
    uint64_t to_devices, to_host; /* bytes over the link: rows of values that cross, float32 */
    uint64_t between;             /* from device to device */
    uint64_t reads;               /* bytes of weights, of `weight_bytes`; of experts those that are chosen, of tables a row */
    uint64_t host_reads;          /* those of them that the host reads */
} apr_partition_cost;
/* What the host's side of a token comes to, which is what makes it slow: bytes that the host reads and that cross the link. */
uint64_t apr_partition_host_traffic(const apr_partition_cost *cost);
apr_partition_cost apr_partition_cost_of(const apr_partition *partition, const apr_program *program, const uint64_t *weight_bytes);

#endif
