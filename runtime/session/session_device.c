/* session_device.c - a session's CUDA device: opened, its weights laid out and uploaded. */
#include "formats/base/bytes.h"
#include "formats/base/clock.h"
#include "runtime/program/capability.h"
#include "runtime/program/op_card.h"
#include "runtime/session/session_parts.h"
#include "runtime/session/session_upload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

apr_status apr_session_open_device(apr_session *s, apr_session_place *at, apr_error *err)
{
    const apr_cuda_options options = {
        .stack_bytes = (uint32_t)s->options.stack_bytes, .fail_allocation = s->options.fail_allocation, .describe = apr_op_describe};
    const double begin = apr_seconds_now();
    apr_cuda_facts facts;
    apr_capability capability;

    APR_TRY(s->options.cuda->facts(at->ordinal, &facts, err));
    APR_TRY(apr_capability_of(&capability, facts.major, facts.minor, s->options.cuda->architectures, err));
    at->used_before = facts.used_bytes;
    APR_TRY(s->options.cuda->open(&at->device, at->ordinal, &options, err));
    at->used.device_s = apr_seconds_now() - begin;
    return APR_OK;
}

/* Rows must be put in order on the way to the device; not so where a row has no bytes of its own, or its scales lie elsewhere. */
static bool can_reorder(const apr_tensor *tensor)
{
    const bool one_scale = tensor->scale == NULL || apr_tensor_elems(tensor->scale) == 1;
    return one_scale && !apr_dtypes[tensor->dtype].flat;
}

static bool same_scales(const apr_tensor *a, const apr_tensor *b)
{
    if (a->scale == NULL || b->scale == NULL) return a->scale == b->scale;
    return a->scale->dtype == b->scale->dtype && a->scale->n_bytes == b->scale->n_bytes && a->scale_rows == b->scale_rows &&
           a->scale_columns == b->scale_columns;
}

/* Can the tensors of a slot lie behind one another as one? */
static bool is_stackable(const apr_session *s, size_t slot)
{
    const apr_tensor *const parts = apr_session_parts(s, slot);
    for (int64_t j = 1; j < apr_session_n_parts(s, slot); j++)
        if (apr_dtypes[parts[j].dtype].flat || parts[j].dtype != parts->dtype || !same_scales(parts, &parts[j])) return false;
    return true;
}

static apr_dtype device_dtype(const apr_session *s, size_t slot)
{
    const apr_tensor *const parts = apr_session_parts(s, slot);
    if (apr_session_relaid_bytes(s, slot) > 0) return APR_U8; /* codes, whatever values they stand for */
    for (int64_t j = 0; j < apr_session_n_parts(s, slot); j++)
        if (parts[j].packing != NULL) return APR_F16;
    for (int64_t j = 0; j < apr_session_n_parts(s, slot); j++)
        if (parts[j].pending.kind != APR_STEP_NONE && !can_reorder(&parts[j])) return APR_F16;
    return is_stackable(s, slot) && s->options.cuda->takes(parts->dtype) ? parts->dtype : APR_F16;
}

/* Does the device get the bytes of the file? */
static bool goes_as_stored(const apr_session *s, size_t slot)
{
    return apr_session_parts(s, slot)->packing == NULL && device_dtype(s, slot) == apr_session_parts(s, slot)->dtype;
}

/* Do products of whole rows alone read the slot, or whoever looks up rows? */
static bool is_read_by_rows(const apr_session *s, size_t slot)
{
    for (size_t i = 0; i < s->program.n_ops; i++) {
        const apr_op *const op = &s->program.ops[i];
        for (int k = 0; k < APR_OP_MAX_WEIGHTS; k++)
            if (op->weight[k] == (int)slot && op->kind != APR_OP_EMBED && (op->kind != APR_OP_LINEAR || op->args.linear.heads.n > 0))
                return false;
    }
    return true;
}

static uint64_t item_row_bytes(const apr_tensor *t) { return (uint64_t)apr_items_row_bytes(t->dtype, true, apr_tensor_columns(t)); }

/* Is a slot of a type that is put into items, is there room to do it 16 rows at a time, and to fill up its rows if they must be? */
static bool can_lie_in_items(const apr_session *s, const apr_session_place *at, size_t slot)
{
    const apr_tensor *const t = apr_session_parts(s, slot);
    if (t == NULL || t->scale != NULL || !goes_as_stored(s, slot)) return false;
    if (item_row_bytes(t) != t->n_bytes / (uint64_t)apr_tensor_rows(t) && apr_session_line_bytes(at, APR_LINE_FILLED) == 0) return false;
    return apr_flow_item_columns(t->dtype) > 0 &&
           t->n_bytes / (uint64_t)apr_tensor_rows(t) * APR_FLOW_UNIT <= at->work.slice * sizeof(float);
}

bool apr_session_experts_stream(const apr_session *s, const apr_session_place *at, const apr_op *op, const apr_tensor *const weights[3])
{
    const apr_cuda_api *const cuda = s->options.cuda;
    apr_experts_args a = op->args.experts;
    a.n_tokens = 1;
    a.gate = weights[0], a.up = weights[1], a.down = weights[2];
    a.work = at->work;
    return apr_experts_flow(&a) && cuda->streams(at->device, a.gate->dtype, a.n_used * a.n_mid, apr_items_columns(a.gate->dtype, a.n_in)) &&
           cuda->streams(at->device, a.down->dtype, a.n_out, a.n_used * apr_items_columns(a.down->dtype, a.n_mid));
}

/* Would they, if their matrices lay for it? All of them do, or none. */
static bool experts_would_stream(const apr_session *s, const apr_session_place *at, const apr_op *op)
{
    apr_tensor as_if[3]; /* gate, up, down */
    for (int k = 0; k < 3; k++) {
        if (op->weight[k] < 0 || !can_lie_in_items(s, at, (size_t)op->weight[k])) return false;
        as_if[k] = *apr_session_parts(s, (size_t)op->weight[k]);
        as_if[k].in_items = true;
    }
    return apr_session_experts_stream(s, at, op, (const apr_tensor *const[]){&as_if[0], &as_if[1], &as_if[2]});
}

/* Is the slot one of experts' stacks, all of whose readers stream? */
static bool is_streamed_stack(const apr_session *s, const apr_session_place *at, size_t slot)
{
    bool any = false;
    for (size_t i = 0; i < s->program.n_ops; i++) {
        const apr_op *const op = &s->program.ops[i];
        for (int k = 0; k < APR_OP_MAX_WEIGHTS; k++) {
            if (op->weight[k] != (int)slot) continue;
            if (op->kind != APR_OP_EXPERTS || !experts_would_stream(s, at, op)) return false;
            any = true;
        }
    }
    return any;
}

bool apr_session_wants_items(const apr_session *s)
{
    const bool streams = !s->options.no_fusion && !s->options.no_replay;
    return s->n_places == 1 && !s->options.no_direct && (streams || s->options.n_sequences > 1);
}

bool apr_session_in_items(const apr_session *s, const apr_session_place *at, size_t slot)
{
    const apr_tensor *const t = apr_session_parts(s, slot);
    if (!apr_session_wants_items(s) || !can_lie_in_items(s, at, slot)) return false;
    if (t->rank != 2 || s->experts[slot] != NULL) return is_streamed_stack(s, at, slot);
    return is_read_by_rows(s, slot) && s->options.cuda->streams(at->device, t->dtype, apr_tensor_rows(t), apr_tensor_columns(t));
}

/* Bytes of all of a slot's tensors, and of their scales. */
static uint64_t stack_bytes(const apr_session *s, size_t slot)
{
    return apr_align_up(apr_session_parts(s, slot)->n_bytes * (uint64_t)apr_session_n_parts(s, slot), 64);
}

static uint64_t scales_bytes(const apr_session *s, size_t slot)
{
    const apr_tensor *const scale = apr_session_parts(s, slot)->scale;
    return scale != NULL ? apr_align_up(scale->n_bytes * (uint64_t)apr_session_n_parts(s, slot), 64) : 0;
}

void apr_session_device_weights(const apr_session *s, uint64_t *bytes, apr_dtype *dtypes)
{
    for (size_t i = 0; i < s->program.n_weights; i++) {
        bytes[i] = 0;
        dtypes[i] = APR_F16;
        if (s->tensors[i] == NULL) continue;
        const bool on_host = apr_slot_is_read_on_host(&s->program.weights[i]);
        dtypes[i] = on_host ? s->tensors[i]->dtype : device_dtype(s, i);
        if (on_host) bytes[i] = apr_plan_tensor_bytes(s->tensors[i]);
        else if (dtypes[i] == APR_U8) bytes[i] = apr_session_relaid_bytes(s, i);
        else if (goes_as_stored(s, i)) bytes[i] = stack_bytes(s, i) + scales_bytes(s, i);
        else bytes[i] = apr_plan_slot_bytes(&s->program.weights[i], APR_F16);
    }
}

/* The device computes with other weights then: never silently. */
static void warn_of_misfits(const apr_session *s, const apr_tensor *tensor, const apr_misfits *m)
{
    char text[512];
    if (m->n_beyond == 0 || s->options.on_warning == NULL) return;
    snprintf(text, sizeof text,
             "tensor '%s': %lld values are beyond FP16 (the largest is %g), as which the device keeps it; they became %g", tensor->name,
             (long long)m->n_beyond, (double)m->worst, (double)apr_encode_bound(APR_F16, m->worst));
    s->options.on_warning(s->options.user, text);
}

/* One tensor's share of the memory at `to`, and its scales' at `scales`. */
static apr_status load_tensor(apr_loads *loads, const apr_tensor *tensor, bool as_stored, uint8_t *to, uint8_t *scales, apr_error *err)
{
    const bool row_by_row = !as_stored || tensor->pending.kind != APR_STEP_NONE || tensor->made != NULL;
    APR_TRY(row_by_row ? apr_load_rows(loads, tensor, as_stored ? APR_LOAD_STORED : APR_LOAD_HALVES, to, err)
                       : apr_load_bytes(loads, tensor->data, tensor->n_bytes, to, err));
    return as_stored && tensor->scale != NULL ? apr_load_bytes(loads, tensor->scale->data, tensor->scale->n_bytes, scales, err) : APR_OK;
}

/* What the device has of a slot: its tensor as the model has it, but for where and in which order; of several, one stack. */
static void describe_twin(const apr_session *s, size_t slot, bool as_stored, uint8_t *to, apr_tensor *twin, apr_tensor *scale)
{
    const int64_t n = apr_session_n_parts(s, slot);

    *twin = *apr_session_parts(s, slot);
    twin->data = to;
    twin->pending = (apr_step){0};
    twin->made = NULL;
    if (!as_stored) {
        twin->dtype = APR_F16;
        twin->n_bytes = (uint64_t)apr_tensor_elems(twin) * 2;
        twin->scale = NULL;
        twin->packing = NULL;
    }
    if (twin->scale != NULL) {
        *scale = *twin->scale;
        scale->data = to + stack_bytes(s, slot);
        twin->scale = scale;
    }
    if (s->experts[slot] == NULL) return;
    if (twin->scale != NULL) { /* each matrix has its own, if only one */
        const int64_t n_scales = apr_tensor_elems(scale);
        *scale = (apr_tensor){
            .name = scale->name, .dtype = scale->dtype, .rank = 2, .dims = {n, n_scales}, .data = scale->data, .n_bytes = scale->n_bytes};
        scale->n_bytes *= (uint64_t)n;
        if (n_scales == 1) twin->scale_rows = twin->dims[0], twin->scale_columns = twin->dims[1];
    }
    twin->name = s->program.weights[slot].name;
    memmove(twin->dims + 1, twin->dims, (size_t)twin->rank * sizeof *twin->dims);
    twin->dims[0] = n;
    twin->rank++;
    twin->n_bytes *= (uint64_t)n;
}

/* The twin of a weight on the device, at `to`, and what is to be brought there. */
static apr_status load_weight(apr_session *s, apr_session_place *at, size_t slot, uint8_t *to, apr_loads *loads, apr_error *err)
{
    const apr_tensor *const parts = apr_session_parts(s, slot);
    apr_tensor *const twin = &at->twins[2 * slot];
    const int64_t n = apr_session_n_parts(s, slot);
    const bool as_stored = goes_as_stored(s, slot), is_relaid = device_dtype(s, slot) == APR_U8;

    describe_twin(s, slot, as_stored || is_relaid, to, twin, twin + 1);
    at->bound[slot] = at->multiplied[slot] = twin;
    if (is_relaid) return apr_session_load_packed(s, at, slot, to, &twin->packing, loads, err);
    twin->in_items = apr_session_in_items(s, at, slot);
    if (twin->in_items) twin->n_bytes = item_row_bytes(parts) * (uint64_t)(apr_tensor_rows(parts) * n);
    const uint64_t each = twin->n_bytes / (uint64_t)n, each_scales = twin->scale != NULL ? twin->scale->n_bytes / (uint64_t)n : 0;
    for (int64_t j = 0; j < n; j++) {
        uint8_t *const scales = to + stack_bytes(s, slot) + (uint64_t)j * each_scales, *const part = to + (uint64_t)j * each;
        if (twin->in_items) APR_TRY(apr_load_rows(loads, &parts[j], APR_LOAD_ITEMS, part, err));
        else APR_TRY(load_tensor(loads, &parts[j], as_stored, part, scales, err));
    }
    return APR_OK;
}

/* The decoded FP16 twin takes the packed one's place in products; the embedding's rows are still looked up packed. */
static apr_status make_copy(apr_session *s, apr_session_place *at, size_t slot, apr_error *err)
{
    apr_tensor *const packed = &at->twins[2 * slot], *const copy = &at->twins[2 * s->program.n_weights + slot];

    if (at->copies == NULL || at->plan.copy_offsets[slot] < 0) return APR_OK;
    *copy = *packed;
    copy->dtype = APR_F16;
    copy->scale = NULL;
    copy->packing = NULL;
    copy->n_bytes = (uint64_t)apr_tensor_elems(copy) * 2;
    copy->data = at->copies + at->plan.copy_offsets[slot];
    at->multiplied[slot] = copy;
    return s->options.cuda->decode_f16(at->device, packed, 0, apr_tensor_rows(packed), at->copies + at->plan.copy_offsets[slot], err);
}

/* FP8 units are used only for weights that are FP8, and only with the caller's consent. */
static void choose_fp8(const apr_session *s, apr_session_place *at)
{
    apr_cuda_facts facts;
    bool has_fp8 = false;

    for (size_t i = 0; i < s->program.n_weights; i++) has_fp8 |= at->multiplied[i] != NULL && at->multiplied[i]->dtype == APR_F8_E4M3;
    if (!has_fp8 || s->options.may_use_fp8 == NULL) return;
    if (s->options.cuda->facts(at->ordinal, &facts, NULL) != APR_OK) return;
    at->fp8_products = s->options.may_use_fp8(s->options.user, &facts);
    s->options.cuda->use_fp8(at->device, at->fp8_products);
}

/* Brings there what was noted; copies are decoded from it. */
static apr_status load_all(apr_session *s, apr_session_place *at, apr_loads *loads, apr_error *err)
{
    const apr_load_target target = {s->options.cuda, at->device, at->work.data, at->work.slice * sizeof(float), at->shares_memory};
    const double begin = apr_seconds_now();

    APR_TRY(apr_loads_run(loads, &target, err));
    at->used.upload_s = apr_seconds_now() - begin;
    at->used.uploaded = loads->n_bytes;
    for (size_t i = 0; i < loads->n; i++)
        if (loads->list[i].tensor != NULL) warn_of_misfits(s, loads->list[i].tensor, &loads->list[i].misfits);
    for (size_t i = 0; i < s->program.n_weights; i++)
        if (at->bound[i] == &at->twins[2 * i]) APR_TRY(make_copy(s, at, i, err));
    return APR_OK;
}

apr_status apr_session_upload_weights(apr_session *s, apr_session_place *at, apr_error *err)
{
    const size_t n = s->program.n_weights;
    const bool fills = apr_session_line_bytes(at, APR_LINE_FILLED) > 0;
    uint64_t *const bytes = malloc((n + 1) * sizeof *bytes), *const filled = malloc((n + 1) * sizeof *filled), used = 0;
    apr_dtype *const dtypes = malloc((n + 1) * sizeof *dtypes);
    apr_loads loads = {0};
    apr_status status = APR_OK;

    at->twins = calloc(3 * n + 1, sizeof *at->twins);
    if (bytes == NULL || filled == NULL || dtypes == NULL || at->twins == NULL) {
        status = apr_no_memory(err, "the table of tensors");
    } else {
        apr_session_device_weights(s, bytes, dtypes);
        apr_plan_filled_weights(&s->program, dtypes, filled);
        status = apr_partition_keep_weights(&s->partition, &s->program, at->index, bytes, err);
    }
    for (size_t i = 0; i < n && status == APR_OK; i++) {
        if (bytes[i] == 0 || s->program.weights[i].uses == APR_USE_FLOAT) continue; /* those are float32 already */
        if (apr_slot_is_read_on_host(&s->program.weights[i])) continue;             /* and those stay */
        status = load_weight(s, at, i, at->weights + used, &loads, err);
        used += bytes[i] + (fills ? filled[i] : 0);
    }
    if (status == APR_OK) status = load_all(s, at, &loads, err);
    apr_loads_close(&loads);
    free(bytes);
    free(filled);
    free(dtypes);
    if (status == APR_OK) choose_fp8(s, at);
    return status;
}

void apr_session_set_exact(apr_session *s, bool exact)
{
    s->exact = exact;
    s->decode_checked = false; /* other kernels, perhaps: they run for the first time before they are recorded */
    for (int i = 0; i < s->n_places; i++) {
        apr_session_place *const at = &s->places[i];
        if (at->backend == &apr_host_backend || at->backend == &apr_host_exact_backend)
            at->backend = exact ? &apr_host_exact_backend : &apr_host_backend;
        if (at->device == NULL) continue;
        s->options.cuda->use_exact(s->places[i].device, exact);
        apr_session_forget_recorded(s, &s->places[i]);
    }
}

bool apr_session_is_exact(const apr_session *s) { return s->exact; }
