/* runtime/plan/partition.h - which operation of a program runs at which place, and which values are copied between places.
 *
 * The places are the devices in order, then the host if something is computed there; without devices only the host. Layers are split into
 * contiguous ranges, so a token passes each place once. Sums are never split, so no reduction across devices (NCCL) is needed: values are
 * copied, once for each place that reads them.
 *
 *     --offload layers=N   the first N layers and the embedding on the host: looking up rows costs the host nothing, and their output
 *                          is copied once. (The last N layers would need two copies, because the head stays on the device.)
 *     --offload experts    the experts of every layer on the host; routers, shared experts and attention stay on the device
 *     --offload experts=N  only those of the first N layers (llama.cpp's --n-cpu-moe N)
 *     --gpus N             the remaining layers on N devices, so that the fullest one is as empty as possible. Operations before the
 *                          first layer go with it; operations after the last one (the head) are on the last device.
 *
 * An operation that uses a state runs where the first operation that uses this state runs. So a layer that attends to another layer's
 * keys does so at the other layer's place. */
#ifndef APR_RUNTIME_PARTITION_H
#define APR_RUNTIME_PARTITION_H

#include "formats/base/bytes.h"
#include "runtime/program/program.h"

typedef enum { APR_ON_HOST, APR_ON_DEVICE } apr_place;

enum { APR_MAX_DEVICES = 16, APR_MAX_PLACES = APR_MAX_DEVICES + 1 };

/* What runs on the host while the rest runs on devices; zeroed: nothing. */
typedef struct apr_offload {
    bool experts;
    int64_t n_layers;        /* the first n layers; INT64_MAX: all */
    int64_t n_expert_layers; /* with `experts`: only those of the first n layers; 0: of all layers */
} apr_offload;

static inline bool apr_offload_is_some(const apr_offload *offload) { return offload->experts || offload->n_layers > 0; }

typedef struct apr_partition_options {
    int n_devices; /* 0: everything on the host, nothing is offloaded */
    apr_offload offload;
    /* Sizes of layers and devices; only their ratios matter */
    const uint64_t *weight_bytes; /* [n_weights]; 0: absent */
    const uint64_t *state_bytes;  /* [n_states]; NULL: none */
    const uint64_t *capacities;   /* [n_devices]; NULL: all equal */
} apr_partition_options;

/* A copy of a value before an operation: of all tokens, or of the rows whose logits are computed if the operation computes logits. */
typedef struct apr_transfer {
    size_t op;
    int value, from, to; /* places */
} apr_transfer;

typedef struct apr_partition {
    int n_places;
    apr_place on[APR_MAX_PLACES]; /* [n_places] */
    int *op_place;                /* [n_ops] */
    int *value_place;             /* [n_values] where it is computed; -1: nowhere */
    int *state_place;             /* [n_states] -1: nowhere */
    apr_transfer *transfers;      /* [n_transfers] sorted by operation */
    size_t n_transfers;
    apr_arena arena;
} apr_partition;

/* APR_E_USAGE: more devices than layers, or nothing to offload. A failed partition is closed. */
apr_status apr_partition_make(apr_partition *partition, const apr_program *program, const apr_partition_options *options, apr_error *err);
void apr_partition_close(apr_partition *partition);
/* Number of places of a partition with these options. */
int apr_partition_n_places(int n_devices, const apr_offload *offload);

/* The copies before an operation, *n of them. */
const apr_transfer *apr_partition_before(const apr_partition *partition, size_t op, size_t *n);

/* Does a place have it? partition NULL: there is only one place, which has everything. */
static inline bool apr_partition_has_op(const apr_partition *s, int place, size_t op) { return s == NULL || s->op_place[op] == place; }
static inline bool apr_partition_has_state(const apr_partition *s, int place, size_t state)
{
    return s == NULL || s->state_place[state] == place;
}
/* Sets bytes[n_weights] to 0 for weights that no operation of the place uses. Weights that no operation at all uses belong to place 0. */
apr_status apr_partition_keep_weights(const apr_partition *partition, const apr_program *program, int place, uint64_t *bytes,
                                      apr_error *err);

/* What one decoded token reads and copies. */
typedef struct apr_partition_cost {
    uint64_t to_devices, to_host; /* bytes over the link: rows of values, float32 */
    uint64_t between;             /* device to device */
    uint64_t reads;               /* bytes of weights (`weight_bytes`): of experts the chosen ones, of tables one row */
    uint64_t host_reads;          /* the part of `reads` that the host reads */
} apr_partition_cost;
/* Bytes that the host reads or that are copied over the link per token: the slow part of an offloaded token. */
static inline uint64_t apr_partition_host_traffic(const apr_partition_cost *cost)
{
    return apr_saturating_add(cost->host_reads, apr_saturating_add(cost->to_devices, cost->to_host));
}
apr_partition_cost apr_partition_cost_of(const apr_partition *partition, const apr_program *program, const uint64_t *weight_bytes);

#endif
