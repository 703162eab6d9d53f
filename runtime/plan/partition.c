/* partition.c - assigns each operation to a place, and finds the values that must be copied. */
#include "runtime/plan/partition.h"
#include "formats/base/bytes.h"
#include "runtime/program/op_spec.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

int apr_partition_n_places(int n_devices, const apr_offload *offload)
{
    return n_devices == 0 ? 1 : n_devices + apr_offload_is_some(offload);
}

/* --- layers to devices --- */

/* State while layers are assigned to places. Operations before the first layer go with it, those after the last layer with the head. */
typedef struct layout {
    const apr_program *program;
    const apr_partition_options *options;
    int host;            /* the host's place, or -1 */
    size_t first, after; /* operations of layers: [first, after), including others between them */
    int64_t n_layers;
    int64_t n_offloaded;   /* layers on the host */
    uint64_t *layer_bytes; /* [n_layers] that a device would have to hold */
    int *layer_place;      /* [n_layers] */
    uint64_t embedding_bytes, head_bytes;
} layout;

static void find_layers(layout *l)
{
    const apr_program *const p = l->program;
    l->first = p->n_ops;
    for (size_t i = 0; i < p->n_ops; i++) {
        if (p->ops[i].layer < 0) continue;
        if (l->first > i) l->first = i;
        l->after = i + 1;
        if (p->ops[i].layer >= l->n_layers) l->n_layers = p->ops[i].layer + 1;
    }
}

static bool is_expert_of(const apr_offload *offload, const apr_op *op)
{
    const bool is_meant = offload->n_expert_layers <= 0 || op->layer < offload->n_expert_layers;
    return offload->experts && is_meant && op->kind == APR_OP_EXPERTS;
}

static bool is_offloaded_expert(const layout *l, const apr_op *op) { return l->host >= 0 && is_expert_of(&l->options->offload, op); }

/* The layer that an operation goes with. An operation outside of layers goes with the layer before it, the first ones with the first
 * layer. -1: with the head. */
static int64_t layer_of(const layout *l, size_t op)
{
    if (op >= l->after) return -1;
    if (op < l->first) op = l->first;
    while (l->program->ops[op].layer < 0) op--;
    return l->program->ops[op].layer;
}

/* Each weight and state counts at its first use. */
static void add_op_bytes(layout *l, size_t at, bool *weight_counted, bool *state_counted)
{
    const apr_op *const op = &l->program->ops[at];
    const int64_t layer = layer_of(l, at);
    uint64_t *const sum = layer < 0 ? &l->head_bytes : at < l->first ? &l->embedding_bytes : &l->layer_bytes[layer];

    for (int j = 0; j < APR_OP_MAX_WEIGHTS; j++) {
        const int w = op->weight[j];
        if (w < 0 || weight_counted[w] || is_offloaded_expert(l, op) || apr_slot_is_read_on_host(&l->program->weights[w])) continue;
        weight_counted[w] = at >= l->first; /* a tied table counts for embedding and head: their places may differ */
        *sum = apr_saturating_add(*sum, l->options->weight_bytes[w]);
    }
    if (op->state < 0 || state_counted[op->state] || l->options->state_bytes == NULL) return;
    state_counted[op->state] = true;
    *sum = apr_saturating_add(*sum, l->options->state_bytes[op->state]);
}

static apr_status sum_layer_bytes(layout *l, apr_error *err)
{
    bool *const weight_counted = calloc(l->program->n_weights + 1, sizeof *weight_counted);
    bool *const state_counted = calloc(l->program->n_states + 1, sizeof *state_counted);
    const bool is_there = weight_counted != NULL && state_counted != NULL;

    for (size_t i = 0; is_there && i < l->program->n_ops; i++) add_op_bytes(l, i, weight_counted, state_counted);
    free(weight_counted);
    free(state_counted);
    return is_there ? APR_OK : apr_no_memory(err, "what layers weigh");
}

/* How full a device is with layers [begin, end) of those on devices. */
static double fullness(const layout *l, const double *sums, int device, int64_t begin, int64_t end)
{
    const int n = l->options->n_devices;
    const double capacity =
        l->options->capacities != NULL && l->options->capacities[device] > 0 ? (double)l->options->capacities[device] : 1.0;
    double bytes = sums[end] - sums[begin];

    if (device == 0 && l->n_offloaded == 0) bytes += (double)l->embedding_bytes;
    if (device == n - 1) bytes += (double)l->head_bytes;
    return bytes / capacity;
}

/* Dynamic programming. least[d * (n + 1) + e]: minimum over all splits of the first e layers on devices 0..d of the fullest device's
 * fullness. from[..]: where d's layers begin in that split. */
static void fill_table(const layout *l, const double *sums, int64_t n, double *least, int64_t *from)
{
    for (int d = 0; d < l->options->n_devices; d++)
        for (int64_t e = 0; e <= n; e++) {
            double *const best = &least[d * (n + 1) + e];
            *best = d == 0 ? fullness(l, sums, 0, 0, e) : DBL_MAX;
            from[d * (n + 1) + e] = 0;
            for (int64_t b = d; d > 0 && b < e; b++) { /* at least one layer per device */
                const double before = least[(d - 1) * (n + 1) + b], own = fullness(l, sums, d, b, e), most = before > own ? before : own;
                if (most >= *best) continue;
                *best = most;
                from[d * (n + 1) + e] = b;
            }
        }
}

static apr_status balance(layout *l, apr_error *err)
{
    const int64_t n = l->n_layers - l->n_offloaded;
    const size_t n_cells = (size_t)l->options->n_devices * (size_t)(n + 1);
    double *const sums = calloc((size_t)n + 1, sizeof *sums), *const least = malloc(n_cells * sizeof *least);
    int64_t *const from = malloc(n_cells * sizeof *from);
    const bool is_there = sums != NULL && least != NULL && from != NULL;

    if (is_there) {
        for (int64_t i = 0; i < n; i++) sums[i + 1] = sums[i] + (double)l->layer_bytes[l->n_offloaded + i];
        fill_table(l, sums, n, least, from);
        for (int64_t d = l->options->n_devices - 1, end = n; d >= 0; d--) {
            const int64_t begin = from[d * (n + 1) + end];
            for (int64_t i = begin; i < end; i++) l->layer_place[l->n_offloaded + i] = (int)d;
            end = begin;
        }
    }
    free(sums);
    free(least);
    free(from);
    return is_there ? APR_OK : apr_no_memory(err, "the places of the layers");
}

static apr_status place_layers(layout *l, apr_error *err)
{
    const int64_t n_layers = l->n_layers;
    const int n_devices = l->options->n_devices;

    l->layer_bytes = calloc((size_t)n_layers + 1, sizeof *l->layer_bytes);
    l->layer_place = calloc((size_t)n_layers + 1, sizeof *l->layer_place);
    if (l->layer_bytes == NULL || l->layer_place == NULL) return apr_no_memory(err, "the places of the layers");
    if (n_devices == 0) return APR_OK;
    if (l->options->offload.n_layers > 0)
        l->n_offloaded = l->options->offload.n_layers < n_layers ? l->options->offload.n_layers : n_layers;
    if (n_devices > 1 && n_layers - l->n_offloaded < n_devices)
        return apr_fail(err, APR_E_USAGE, "%lld layers cannot be split over %d GPUs: each needs at least one",
                        (long long)(n_layers - l->n_offloaded), n_devices);
    for (int64_t i = 0; i < l->n_offloaded; i++) l->layer_place[i] = l->host;
    APR_TRY(sum_layer_bytes(l, err));
    return balance(l, err);
}

/* --- operations, values and states --- */

static void place_ops(const layout *l, apr_partition *s)
{
    const apr_program *const p = l->program;
    const int head = l->options->n_devices > 0 ? l->options->n_devices - 1 : 0;

    for (size_t i = 0; i < p->n_values; i++) s->value_place[i] = -1;
    for (size_t i = 0; i < p->n_states; i++) s->state_place[i] = -1;
    for (size_t i = 0; i < p->n_ops; i++) {
        const apr_op *const op = &p->ops[i];
        const int64_t layer = layer_of(l, i);
        int place = layer < 0 ? head : l->layer_place[layer];
        if (is_offloaded_expert(l, op)) place = l->host;
        if (op->out >= 0 && p->values[op->out].is_logits) place = head;
        if (op->state >= 0 && s->state_place[op->state] >= 0) place = s->state_place[op->state];
        if (op->state >= 0) s->state_place[op->state] = place;
        s->op_place[i] = place;
        if (op->out >= 0) s->value_place[op->out] = place;
    }
}

/* Each value is copied once to each place that reads it and does not compute it. First pass: count; second pass: write. */
static apr_status find_transfers(apr_partition *s, const apr_program *p, apr_error *err)
{
    const size_t n_places = (size_t)s->n_places;
    bool *const is_there = malloc(p->n_values * n_places + 1);

    for (int pass = 0; pass < 2 && is_there != NULL; pass++) {
        if (pass == 1) s->transfers = apr_arena_array(&s->arena, s->n_transfers + 1, sizeof *s->transfers);
        if (pass == 1 && s->transfers == NULL) break;
        memset(is_there, 0, p->n_values * n_places + 1);
        s->n_transfers = 0;
        for (size_t i = 0; i < p->n_ops; i++)
            for (int j = 0; j < APR_OP_MAX_IN; j++) {
                const int v = p->ops[i].in[j], to = s->op_place[i];
                if (v < 0 || s->value_place[v] == to || is_there[(size_t)v * n_places + (size_t)to]) continue;
                is_there[(size_t)v * n_places + (size_t)to] = true;
                if (pass == 1) s->transfers[s->n_transfers] = (apr_transfer){i, v, s->value_place[v], to};
                s->n_transfers++;
            }
    }
    free(is_there);
    return s->transfers != NULL ? APR_OK : apr_no_memory(err, "what crosses between places");
}

static apr_status check_offload(const apr_program *p, const apr_offload *offload, apr_error *err)
{
    if (!offload->experts) return APR_OK;
    bool has_experts = false;
    for (size_t i = 0; i < p->n_ops; i++) {
        if (is_expert_of(offload, &p->ops[i])) return APR_OK;
        has_experts |= p->ops[i].kind == APR_OP_EXPERTS;
    }
    if (has_experts)
        return apr_fail(err, APR_E_USAGE,
                        "no layer up to number %lld of this %s model has experts to offload; give --offload experts=N a larger N",
                        (long long)offload->n_expert_layers, p->architecture);
    return apr_fail(err, APR_E_USAGE,
                    "a %s model without experts cannot offload experts; '--offload layers=N' computes whole layers on the host",
                    p->architecture);
}

static apr_status make(apr_partition *s, layout *l, apr_error *err)
{
    const apr_program *const p = l->program;

    if (l->host >= 0) APR_TRY(check_offload(p, &l->options->offload, err));
    s->op_place = apr_arena_array(&s->arena, p->n_ops + 1, sizeof *s->op_place);
    s->value_place = apr_arena_array(&s->arena, p->n_values + 1, sizeof *s->value_place);
    s->state_place = apr_arena_array(&s->arena, p->n_states + 1, sizeof *s->state_place);
    if (s->op_place == NULL || s->value_place == NULL || s->state_place == NULL) return apr_no_memory(err, "the places of operations");
    find_layers(l);
    APR_TRY(place_layers(l, err));
    place_ops(l, s);
    return find_transfers(s, p, err);
}

apr_status apr_partition_make(apr_partition *partition, const apr_program *program, const apr_partition_options *options, apr_error *err)
{
    layout l = {.program = program, .options = options, .host = -1};

    *partition = (apr_partition){.n_places = apr_partition_n_places(options->n_devices, &options->offload)};
    for (int i = 0; i < options->n_devices; i++) partition->on[i] = APR_ON_DEVICE;
    if (partition->n_places > options->n_devices) l.host = partition->n_places - 1;
    const apr_status status = make(partition, &l, err);
    free(l.layer_bytes);
    free(l.layer_place);
    if (status != APR_OK) apr_partition_close(partition);
    return status;
}

void apr_partition_close(apr_partition *partition)
{
    apr_arena_close(&partition->arena);
    *partition = (apr_partition){0};
}

const apr_transfer *apr_partition_before(const apr_partition *partition, size_t op, size_t *n)
{
    size_t begin = 0, end = partition->n_transfers;

    while (begin < end) {
        const size_t middle = begin + (end - begin) / 2;
        if (partition->transfers[middle].op < op) begin = middle + 1;
        else end = middle;
    }
    for (*n = 0; begin + *n < partition->n_transfers && partition->transfers[begin + *n].op == op;) (*n)++;
    return partition->transfers + begin;
}

/* --- the contents of a place --- */

apr_status apr_partition_keep_weights(const apr_partition *partition, const apr_program *program, int place, uint64_t *bytes,
                                      apr_error *err)
{
    if (partition == NULL || partition->n_places == 1) return APR_OK;
    bool *const is_used = calloc(program->n_weights + 1, sizeof *is_used), *const is_here = calloc(program->n_weights + 1, sizeof *is_here);
    const bool is_there = is_used != NULL && is_here != NULL;

    for (size_t i = 0; is_there && i < program->n_ops; i++)
        for (int j = 0; j < APR_OP_MAX_WEIGHTS; j++) {
            const int w = program->ops[i].weight[j];
            if (w < 0) continue;
            is_used[w] = true;
            is_here[w] |= partition->op_place[i] == place;
        }
    for (size_t i = 0; is_there && i < program->n_weights; i++)
        if (!is_here[i] && (is_used[i] || place != 0)) bytes[i] = 0;
    free(is_used);
    free(is_here);
    return is_there ? APR_OK : apr_no_memory(err, "the weights of a place");
}

/* --- cost of a token --- */

/* Bytes of a weight that a token reads: of experts the chosen ones, of tables one row. */
static uint64_t read_bytes(const apr_program *program, const apr_op *op, int weight, uint64_t bytes)
{
    const apr_weight_slot *const slot = &program->weights[weight];

    if (op->kind == APR_OP_EXPERTS && op->args.experts.n_experts > 0)
        return (uint64_t)((double)bytes * (double)op->args.experts.n_used / (double)op->args.experts.n_experts);
    return apr_op_specs[op->kind]->reads_ids && slot->dims[0] > 0 ? bytes / (uint64_t)slot->dims[0] : bytes;
}

apr_partition_cost apr_partition_cost_of(const apr_partition *partition, const apr_program *program, const uint64_t *weight_bytes)
{
    apr_partition_cost cost = {0};

    for (size_t i = 0; i < partition->n_transfers; i++) {
        const apr_transfer *const m = &partition->transfers[i];
        uint64_t *const sum = partition->on[m->from] == APR_ON_HOST ? &cost.to_devices
                              : partition->on[m->to] == APR_ON_HOST ? &cost.to_host
                                                                    : &cost.between;
        *sum = apr_saturating_add(*sum, (uint64_t)program->values[m->value].width * sizeof(float));
    }
    for (size_t i = 0; i < program->n_ops; i++)
        for (int j = 0; j < APR_OP_MAX_WEIGHTS; j++) {
            const apr_op *const op = &program->ops[i];
            if (op->weight[j] < 0) continue;
            const uint64_t reads = read_bytes(program, op, op->weight[j], weight_bytes[op->weight[j]]);
            cost.reads = apr_saturating_add(cost.reads, reads);
            if (partition->on[partition->op_place[i]] == APR_ON_HOST) cost.host_reads = apr_saturating_add(cost.host_reads, reads);
        }
    return cost;
}
