/* session_device.c - a session's CUDA device: opened, its weights laid out and uploaded. */
#include "formats/base/bytes.h"
#include "kernels/gather.h"
#include "runtime/program/capability.h"
#include "runtime/program/op_card.h"
#include "runtime/session/session_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STAGING_BYTES = 1 << 24 }; /* of rows that are put in order, or decoded, before they are uploaded */

apr_status apr_session_open_device(apr_session *s, apr_session_place *at, apr_error *err)
{
    const apr_cuda_options options = {
        .stack_bytes = (uint32_t)s->options.stack_bytes, .fail_allocation = s->options.fail_allocation, .describe = apr_op_describe};
    apr_cuda_facts facts;
    apr_capability capability;

    APR_TRY(s->options.cuda->facts(at->ordinal, &facts, err));
    APR_TRY(apr_capability_of(&capability, facts.major, facts.minor, s->options.cuda->architectures, err));
    at->used_before = facts.used_bytes;
    return s->options.cuda->open(&at->device, at->ordinal, &options, err);
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

bool apr_session_in_items(const apr_session *s, const apr_session_place *at, size_t slot)
{
    const apr_tensor *const t = apr_session_parts(s, slot);
    const bool may_be = s->n_places == 1 && !s->options.no_fusion && !s->options.no_replay && !s->options.no_direct;
    if (!may_be || s->experts[slot] != NULL || t->rank != 2 || t->scale != NULL || !goes_as_stored(s, slot)) return false;
    const int64_t n_out = apr_tensor_rows(t), n_in = apr_tensor_columns(t);
    return apr_flow_item_columns(t->dtype) > 0 && is_read_by_rows(s, slot) && s->options.cuda->streams(at->device, t->dtype, n_out, n_in) &&
           t->n_bytes / (uint64_t)n_out * APR_FLOW_UNIT <= at->work.slice * sizeof(float);
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

/* Rows [row, row + n) into the staging memory: in logical order, or decoded to FP16; what that cannot hold becomes the largest it
 * can, and is counted. */
static void stage_rows(const apr_tensor *tensor, bool as_stored, int64_t row, int64_t n, uint8_t *staging, float *decoded,
                       apr_misfits *misfits)
{
    const int64_t n_columns = apr_tensor_columns(tensor);

    if (as_stored && tensor->made != NULL) {
        apr_gather_bytes(tensor, row * n_columns, n * n_columns, staging);
        return;
    }
    if (as_stored) {
        const size_t row_bytes = (size_t)(tensor->n_bytes / (uint64_t)apr_tensor_rows(tensor));
        for (int64_t i = 0; i < n; i++) memcpy(staging + (size_t)i * row_bytes, apr_tensor_row(tensor, row + i), row_bytes);
        return;
    }
    apr_decode_rows(tensor, row, n, decoded);
    const apr_misfits found = apr_find_misfits(decoded, n * n_columns, APR_F16);
    apr_misfits_merge(misfits, &found);
    if (found.n_beyond > 0) apr_saturate(decoded, decoded, n * n_columns, APR_F16);
    apr_host_codecs()[APR_F16].encode(decoded, staging, n * n_columns);
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

/* A tensor that cannot go as it lies in the file. */
static apr_status upload_rows(apr_session *s, const apr_session_place *at, const apr_tensor *tensor, bool as_stored, uint8_t *to,
                              apr_error *err)
{
    const int64_t n_rows = apr_tensor_rows(tensor), n_columns = apr_tensor_columns(tensor);
    const size_t row_bytes = as_stored ? (size_t)(tensor->n_bytes / (uint64_t)n_rows) : (size_t)n_columns * 2;
    const int64_t most = STAGING_BYTES / (int64_t)row_bytes;
    const int64_t block = most < 1 ? 1 : most < n_rows ? most : n_rows;
    uint8_t *const staging = malloc((size_t)block * row_bytes);
    float *const decoded = as_stored ? NULL : malloc((size_t)(block * n_columns) * sizeof *decoded);
    apr_misfits misfits = {0};
    apr_status status = staging != NULL && (as_stored || decoded != NULL) ? APR_OK : apr_no_memory(err, "the upload of a tensor");

    for (int64_t row = 0; row < n_rows && status == APR_OK; row += block) {
        const int64_t n = n_rows - row < block ? n_rows - row : block;
        stage_rows(tensor, as_stored, row, n, staging, decoded, &misfits);
        status = s->options.cuda->upload(at->device, to + (size_t)row * row_bytes, staging, (size_t)n * row_bytes, err);
    }
    free(staging);
    free(decoded);
    warn_of_misfits(s, tensor, &misfits);
    return status;
}

/* Some rows at a time, through the workspace. */
static apr_status upload_in_items(const apr_session *s, const apr_session_place *at, const apr_tensor *tensor, uint8_t *to, apr_error *err)
{
    const int64_t n_rows = apr_tensor_rows(tensor), n_columns = apr_tensor_columns(tensor);
    const size_t row_bytes = (size_t)(tensor->n_bytes / (uint64_t)n_rows), room = at->work.slice * sizeof(float);
    const size_t most = room < STAGING_BYTES ? room : (size_t)STAGING_BYTES;
    const int64_t block = (int64_t)(most / row_bytes / APR_FLOW_UNIT > 0 ? most / row_bytes / APR_FLOW_UNIT : 1) * APR_FLOW_UNIT;
    const bool in_order = tensor->pending.kind == APR_STEP_NONE && tensor->made == NULL;
    uint8_t *const staging = in_order ? NULL : malloc((size_t)block * row_bytes);
    apr_status status = in_order || staging != NULL ? APR_OK : apr_no_memory(err, "the upload of a tensor");

    for (int64_t row = 0; row < n_rows && status == APR_OK; row += block) {
        const int64_t n = n_rows - row < block ? n_rows - row : block;
        if (!in_order) stage_rows(tensor, true, row, n, staging, NULL, NULL);
        status = s->options.cuda->upload_items(at->device, tensor->dtype, to + (size_t)row * row_bytes,
                                               in_order ? tensor->data + (size_t)row * row_bytes : staging, n, n_columns, at->work.data,
                                               room, err);
    }
    free(staging);
    return status;
}

/* One tensor's share of the memory at `to`, and its scales' at `scales`. */
static apr_status upload_tensor(apr_session *s, const apr_session_place *at, const apr_tensor *tensor, bool as_stored, uint8_t *to,
                                uint8_t *scales, apr_error *err)
{
    const bool row_by_row = !as_stored || tensor->pending.kind != APR_STEP_NONE || tensor->made != NULL;
    APR_TRY(row_by_row ? upload_rows(s, at, tensor, as_stored, to, err)
                       : s->options.cuda->upload(at->device, to, tensor->data, tensor->n_bytes, err));
    return as_stored && tensor->scale != NULL
               ? s->options.cuda->upload(at->device, scales, tensor->scale->data, tensor->scale->n_bytes, err)
               : APR_OK;
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

/* The twin of a weight on the device, at `to`. */
static apr_status upload_weight(apr_session *s, apr_session_place *at, size_t slot, uint8_t *to, apr_error *err)
{
    const apr_tensor *const parts = apr_session_parts(s, slot);
    apr_tensor *const twin = &at->twins[2 * slot];
    const int64_t n = apr_session_n_parts(s, slot);
    const bool as_stored = goes_as_stored(s, slot), is_relaid = device_dtype(s, slot) == APR_U8;

    describe_twin(s, slot, as_stored || is_relaid, to, twin, twin + 1);
    at->bound[slot] = at->multiplied[slot] = twin;
    if (is_relaid) return apr_session_upload_packed(s, at, slot, to, &twin->packing, err);
    twin->in_items = apr_session_in_items(s, at, slot);
    if (twin->in_items) return upload_in_items(s, at, parts, to, err);
    const uint64_t each = twin->n_bytes / (uint64_t)n, each_scales = twin->scale != NULL ? twin->scale->n_bytes / (uint64_t)n : 0;
    for (int64_t j = 0; j < n; j++) {
        uint8_t *const scales = to + stack_bytes(s, slot) + (uint64_t)j * each_scales;
        APR_TRY(upload_tensor(s, at, &parts[j], as_stored, to + (uint64_t)j * each, scales, err));
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

apr_status apr_session_upload_weights(apr_session *s, apr_session_place *at, apr_error *err)
{
    const size_t n = s->program.n_weights;
    uint64_t *const bytes = malloc((n + 1) * sizeof *bytes), used = 0;
    apr_dtype *const dtypes = malloc((n + 1) * sizeof *dtypes);
    apr_status status = APR_OK;

    at->twins = calloc(3 * n + 1, sizeof *at->twins);
    if (bytes == NULL || dtypes == NULL || at->twins == NULL) {
        status = apr_no_memory(err, "the table of tensors");
    } else {
        apr_session_device_weights(s, bytes, dtypes);
        status = apr_partition_keep_weights(&s->partition, &s->program, at->index, bytes, err);
    }
    for (size_t i = 0; i < n && status == APR_OK; i++) {
        if (bytes[i] == 0 || s->program.weights[i].uses == APR_USE_FLOAT) continue; /* those are float32 already */
        if (apr_slot_is_read_on_host(&s->program.weights[i])) continue;             /* and those stay */
        status = upload_weight(s, at, i, at->weights + used, err);
        if (status == APR_OK) status = make_copy(s, at, i, err);
        used += bytes[i];
    }
    free(bytes);
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
