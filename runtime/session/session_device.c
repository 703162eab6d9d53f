/* session_device.c - opens a session's CUDA device, lays out the weights and uploads them. */
#include "formats/base/bytes.h"
#include "formats/base/clock.h"
#include "runtime/plan/capability.h"
#include "runtime/program/op_spec.h"
#include "runtime/session/session_internal.h"
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

/* Can rows be reordered during the upload? Not if a row has no bytes of its own (flat types), or has its own scales. */
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

/* Can the tensors of a slot be stacked into one? */
static bool is_stackable(const apr_session *s, size_t slot)
{
    const apr_tensor *const parts = apr_session_slot_tensors(s, slot);
    for (int64_t j = 1; j < apr_session_n_slot_tensors(s, slot); j++)
        if (apr_dtypes[parts[j].dtype].flat || parts[j].dtype != parts->dtype || !same_scales(parts, &parts[j])) return false;
    return true;
}

static apr_dtype device_dtype(const apr_session *s, size_t slot)
{
    const apr_tensor *const parts = apr_session_slot_tensors(s, slot);
    if (apr_session_repacked_bytes(s, slot) > 0) return APR_U8; /* codes of the repacked layout */
    for (int64_t j = 0; j < apr_session_n_slot_tensors(s, slot); j++)
        if (parts[j].packing != NULL) return APR_F16;
    for (int64_t j = 0; j < apr_session_n_slot_tensors(s, slot); j++)
        if (parts[j].pending.kind != APR_STEP_NONE && !can_reorder(&parts[j])) return APR_F16;
    return is_stackable(s, slot) && s->options.cuda->takes(parts->dtype) ? parts->dtype : APR_F16;
}

/* Does the device get the bytes as they are in the file? */
static bool is_uploaded_as_stored(const apr_session *s, size_t slot)
{
    return apr_session_slot_tensors(s, slot)->packing == NULL && device_dtype(s, slot) == apr_session_slot_tensors(s, slot)->dtype;
}

/* Is the slot read only by products of whole rows? Not by embedding look-ups, nor by products per head. */
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

static uint64_t tiled_row_bytes(const apr_tensor *t) { return (uint64_t)apr_tiled_row_bytes(t->dtype, true, apr_tensor_columns(t)); }

/* Does the slot's type have a tiled layout, and does the workspace hold 16 rows for tiling? Padded rows also need the plan's line for
 * them. */
static bool can_be_tiled(const apr_session *s, const apr_session_place *at, size_t slot)
{
    const apr_tensor *const t = apr_session_slot_tensors(s, slot);
    if (t == NULL || t->scale != NULL || !is_uploaded_as_stored(s, slot)) return false;
    if (tiled_row_bytes(t) != t->n_bytes / (uint64_t)apr_tensor_rows(t) && apr_session_line_bytes(at, APR_LINE_FILLED) == 0) return false;
    return apr_tile_columns(t->dtype) > 0 &&
           t->n_bytes / (uint64_t)apr_tensor_rows(t) * APR_ROW_GROUP <= at->work.slice * sizeof(float);
}

bool apr_session_experts_use_gemv(const apr_session *s, const apr_session_place *at, const apr_op *op, const apr_tensor *const weights[3])
{
    const apr_cuda_api *const cuda = s->options.cuda;
    apr_experts_args a = op->args.experts;
    a.n_tokens = 1;
    a.gate = weights[0], a.up = weights[1], a.down = weights[2];
    a.work = at->work;
    return apr_experts_have_decode_gemv(&a) && cuda->streams(at->device, a.gate->dtype, a.n_used * a.n_mid, apr_tiled_columns(a.gate->dtype, a.n_in)) &&
           cuda->streams(at->device, a.down->dtype, a.n_out, a.n_used * apr_tiled_columns(a.down->dtype, a.n_mid));
}

/* Would these experts use the decode GEMV if all three matrices were tiled? */
static bool experts_would_use_gemv(const apr_session *s, const apr_session_place *at, const apr_op *op)
{
    apr_tensor tiled[3]; /* gate, up, down */
    for (int k = 0; k < 3; k++) {
        if (op->weight[k] < 0 || !can_be_tiled(s, at, (size_t)op->weight[k])) return false;
        tiled[k] = *apr_session_slot_tensors(s, (size_t)op->weight[k]);
        tiled[k].tiled = true;
    }
    return apr_session_experts_use_gemv(s, at, op, (const apr_tensor *const[]){&tiled[0], &tiled[1], &tiled[2]});
}

/* Is the slot a stack of experts whose readers all use the decode GEMV? */
static bool is_gemv_stack(const apr_session *s, const apr_session_place *at, size_t slot)
{
    bool any = false;
    for (size_t i = 0; i < s->program.n_ops; i++) {
        const apr_op *const op = &s->program.ops[i];
        for (int k = 0; k < APR_OP_MAX_WEIGHTS; k++) {
            if (op->weight[k] != (int)slot) continue;
            if (op->kind != APR_OP_EXPERTS || !experts_would_use_gemv(s, at, op)) return false;
            any = true;
        }
    }
    return any;
}

bool apr_session_wants_tiles(const apr_session *s)
{
    const bool uses_gemv = !s->options.no_fusion && !s->options.no_replay;
    return s->n_places == 1 && !s->options.no_direct && (uses_gemv || s->options.n_sequences > 1);
}

bool apr_session_is_tiled(const apr_session *s, const apr_session_place *at, size_t slot)
{
    const apr_tensor *const t = apr_session_slot_tensors(s, slot);
    if (!apr_session_wants_tiles(s) || !can_be_tiled(s, at, slot)) return false;
    if (t->rank != 2 || s->experts[slot] != NULL) return is_gemv_stack(s, at, slot);
    return is_read_by_rows(s, slot) && s->options.cuda->streams(at->device, t->dtype, apr_tensor_rows(t), apr_tensor_columns(t));
}

/* Bytes of all of a slot's tensors, and of their scales. */
static uint64_t stack_bytes(const apr_session *s, size_t slot)
{
    return apr_align_up(apr_session_slot_tensors(s, slot)->n_bytes * (uint64_t)apr_session_n_slot_tensors(s, slot), 64);
}

static uint64_t scales_bytes(const apr_session *s, size_t slot)
{
    const apr_tensor *const scale = apr_session_slot_tensors(s, slot)->scale;
    return scale != NULL ? apr_align_up(scale->n_bytes * (uint64_t)apr_session_n_slot_tensors(s, slot), 64) : 0;
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
        else if (dtypes[i] == APR_U8) bytes[i] = apr_session_repacked_bytes(s, i);
        else if (is_uploaded_as_stored(s, i)) bytes[i] = stack_bytes(s, i) + scales_bytes(s, i);
        else bytes[i] = apr_plan_slot_bytes(&s->program.weights[i], APR_F16);
    }
}

/* The device then computes with changed weights, so a warning is always given. */
static void warn_out_of_range(const apr_session *s, const apr_tensor *tensor, const apr_out_of_range *m)
{
    char text[512];
    if (m->n_out_of_range == 0 || s->options.on_warning == NULL) return;
    snprintf(text, sizeof text, "tensor '%s': %lld values exceed FP16, the type it has on the device (the largest is %g); they became %g",
             tensor->name, (long long)m->n_out_of_range, (double)m->worst, (double)apr_encode_bound(APR_F16, m->worst));
    s->options.on_warning(s->options.user, text);
}

/* Queues the upload of one tensor to `to`, and of its scales to `scales`. */
static apr_status load_tensor(apr_loads *loads, const apr_tensor *tensor, bool as_stored, uint8_t *to, uint8_t *scales, apr_error *err)
{
    const bool row_by_row = !as_stored || tensor->pending.kind != APR_STEP_NONE || tensor->made != NULL;
    APR_TRY(row_by_row ? apr_load_rows(loads, tensor, as_stored ? APR_LOAD_STORED : APR_LOAD_F16, to, err)
                       : apr_load_bytes(loads, tensor->data, tensor->n_bytes, to, err));
    return as_stored && tensor->scale != NULL ? apr_load_bytes(loads, tensor->scale->data, tensor->scale->n_bytes, scales, err) : APR_OK;
}

/* Describes a slot's weight on the device: the model's tensor with another address and layout. Several tensors become one stack. */
static void describe_device_copy(const apr_session *s, size_t slot, bool as_stored, uint8_t *to, apr_tensor *device_copy, apr_tensor *scale)
{
    const int64_t n = apr_session_n_slot_tensors(s, slot);

    *device_copy = *apr_session_slot_tensors(s, slot);
    device_copy->data = to;
    device_copy->pending = (apr_step){0};
    device_copy->made = NULL;
    if (!as_stored) {
        device_copy->dtype = APR_F16;
        device_copy->n_bytes = (uint64_t)apr_tensor_elems(device_copy) * 2;
        device_copy->scale = NULL;
        device_copy->packing = NULL;
    }
    if (device_copy->scale != NULL) {
        *scale = *device_copy->scale;
        scale->data = to + stack_bytes(s, slot);
        device_copy->scale = scale;
    }
    if (s->experts[slot] == NULL) return;
    if (device_copy->scale != NULL) { /* one row of scales a matrix, also if each has a single scale */
        const int64_t n_scales = apr_tensor_elems(scale);
        *scale = (apr_tensor){
            .name = scale->name, .dtype = scale->dtype, .rank = 2, .dims = {n, n_scales}, .data = scale->data, .n_bytes = scale->n_bytes};
        scale->n_bytes *= (uint64_t)n;
        if (n_scales == 1) device_copy->scale_rows = device_copy->dims[0], device_copy->scale_columns = device_copy->dims[1];
    }
    device_copy->name = s->program.weights[slot].name;
    memmove(device_copy->dims + 1, device_copy->dims, (size_t)device_copy->rank * sizeof *device_copy->dims);
    device_copy->dims[0] = n;
    device_copy->rank++;
    device_copy->n_bytes *= (uint64_t)n;
}

/* Describes a weight on the device at `to`, and queues its upload. */
static apr_status load_weight(apr_session *s, apr_session_place *at, size_t slot, uint8_t *to, apr_loads *loads, apr_error *err)
{
    const apr_tensor *const parts = apr_session_slot_tensors(s, slot);
    apr_tensor *const device_copy = &at->relocated[2 * slot];
    const int64_t n = apr_session_n_slot_tensors(s, slot);
    const bool as_stored = is_uploaded_as_stored(s, slot), is_repacked = device_dtype(s, slot) == APR_U8;

    describe_device_copy(s, slot, as_stored || is_repacked, to, device_copy, device_copy + 1);
    at->bound[slot] = at->multiplied[slot] = device_copy;
    if (is_repacked) return apr_session_load_packed(s, at, slot, to, &device_copy->packing, loads, err);
    device_copy->tiled = apr_session_is_tiled(s, at, slot);
    if (device_copy->tiled) device_copy->n_bytes = tiled_row_bytes(parts) * (uint64_t)(apr_tensor_rows(parts) * n);
    const uint64_t each = device_copy->n_bytes / (uint64_t)n,
                   each_scales = device_copy->scale != NULL ? device_copy->scale->n_bytes / (uint64_t)n : 0;
    for (int64_t j = 0; j < n; j++) {
        uint8_t *const scales = to + stack_bytes(s, slot) + (uint64_t)j * each_scales, *const part = to + (uint64_t)j * each;
        if (device_copy->tiled) APR_TRY(apr_load_rows(loads, &parts[j], APR_LOAD_TILED, part, err));
        else APR_TRY(load_tensor(loads, &parts[j], as_stored, part, scales, err));
    }
    return APR_OK;
}

/* Products use the decoded FP16 copy; embedding rows are still looked up in the packed tensor. */
static apr_status make_copy(apr_session *s, apr_session_place *at, size_t slot, apr_error *err)
{
    apr_tensor *const packed = &at->relocated[2 * slot], *const copy = &at->relocated[2 * s->program.n_weights + slot];

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

/* FP8 products are used only for FP8 weights, and only with the caller's consent. */
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

/* Runs the queued uploads, then decodes the FP16 copies from them. */
static apr_status load_all(apr_session *s, apr_session_place *at, apr_loads *loads, apr_error *err)
{
    const apr_load_target target = {s->options.cuda, at->device, at->work.data, at->work.slice * sizeof(float), at->shares_memory};
    const double begin = apr_seconds_now();

    APR_TRY(apr_loads_run(loads, &target, err));
    at->used.upload_s = apr_seconds_now() - begin;
    at->used.uploaded = loads->n_bytes;
    for (size_t i = 0; i < loads->n; i++)
        if (loads->list[i].tensor != NULL) warn_out_of_range(s, loads->list[i].tensor, &loads->list[i].out_of_range);
    for (size_t i = 0; i < s->program.n_weights; i++)
        if (at->bound[i] == &at->relocated[2 * i]) APR_TRY(make_copy(s, at, i, err));
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

    at->relocated = calloc(3 * n + 1, sizeof *at->relocated);
    if (bytes == NULL || filled == NULL || dtypes == NULL || at->relocated == NULL) {
        status = apr_no_memory(err, "the table of tensors");
    } else {
        apr_session_device_weights(s, bytes, dtypes);
        apr_plan_padded_weights(&s->program, dtypes, filled);
        status = apr_partition_keep_weights(&s->partition, &s->program, at->index, bytes, err);
    }
    for (size_t i = 0; i < n && status == APR_OK; i++) {
        if (bytes[i] == 0 || s->program.weights[i].uses == APR_USE_FLOAT) continue; /* these are float32 vectors */
        if (apr_slot_is_read_on_host(&s->program.weights[i])) continue;             /* these stay on the host */
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
    s->decode_checked = false; /* kernels may change: each must run once before it is recorded */
    for (int i = 0; i < s->n_places; i++) {
        apr_session_place *const at = &s->places[i];
        if (at->backend == &apr_host_backend || at->backend == &apr_host_exact_backend)
            at->backend = exact ? &apr_host_exact_backend : &apr_host_backend;
        if (at->device == NULL) continue;
        s->options.cuda->use_exact(s->places[i].device, exact);
        apr_session_drop_recording(s, &s->places[i]);
    }
}

bool apr_session_is_exact(const apr_session *s) { return s->exact; }
