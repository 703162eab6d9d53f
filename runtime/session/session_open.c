/* session_open.c - opens a model for running: its places, their plans, devices and memory. Moves to the host when a device fails. */
#include "formats/base/bytes.h"
#include "formats/base/clock.h"
#include "formats/base/threads.h"
#include "runtime/plan/capability.h"
#include "runtime/plan/plans.h"
#include "runtime/program/admission.h"
#include "runtime/program/op_spec.h"
#include "runtime/session/heap.h"
#include "runtime/session/session_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const apr_session_options apr_session_defaults = {
    .n_logits = 16, .kv_dtype = APR_F16, .headroom_bytes = (uint64_t)1 << 30, .stack_bytes = 256};

/* --- the places --- */

static void make_device_place(const apr_session *s, apr_session_place *at, int device)
{
    at->on = APR_ON_DEVICE;
    at->backend = s->options.cuda->backend;
    at->ordinal = s->options.n_devices > 0 ? s->options.ordinals[device] : s->options.ordinal;
    for (int i = 0; i < device; i++) at->shares_card |= s->places[i].ordinal == at->ordinal;
}

static void make_host_place(const apr_session *s, apr_session_place *at)
{
    at->on = APR_ON_HOST;
    at->ordinal = -1;
    at->backend = s->options.backend != NULL ? s->options.backend : &apr_host_backend;
    at->work.n_threads = s->options.n_threads > 0 ? s->options.n_threads : apr_all_threads();
}

static int n_devices(const apr_session *s) { return s->options.cuda == NULL ? 0 : s->options.n_devices > 1 ? s->options.n_devices : 1; }

/* Makes the places that the session's options ask for, still empty. */
static apr_status make_places(apr_session *s, apr_error *err)
{
    const int n = n_devices(s);

    if (s->options.n_sequences > 1 && apr_partition_n_places(n, &s->options.offload) > 1)
        return apr_fail(err, APR_E_UNSUPPORTED, "%s: several sequences at once are kept in one place, the host or one GPU, not in parts",
                        s->model->path);
    if (s->options.n_sequences > 1 && n > 0 && s->options.no_direct)
        return apr_fail(err, APR_E_UNSUPPORTED, "%s: several sequences at once on a GPU need kernels that read packed weights",
                        s->model->path);
    if (n > APR_MAX_DEVICES) return apr_fail(err, APR_E_USAGE, "%d GPUs are more than %d", n, (int)APR_MAX_DEVICES);
    for (int i = 0; i < n && apr_offload_is_some(&s->options.offload); i++) {
        apr_cuda_facts facts;
        APR_TRY(s->options.cuda->facts(s->options.n_devices > 0 ? s->options.ordinals[i] : s->options.ordinal, &facts, err));
        if (facts.is_integrated) return apr_refuse_offload(facts.name, err);
    }
    s->n_places = apr_partition_n_places(n, &s->options.offload);
    s->places = calloc((size_t)s->n_places, sizeof *s->places);
    if (s->places == NULL) {
        s->n_places = 0;
        return apr_no_memory(err, "the places of the session");
    }
    for (int i = 0; i < s->n_places; i++) {
        s->places[i].index = i;
        if (i < n) make_device_place(s, &s->places[i], i);
        else make_host_place(s, &s->places[i]);
    }
    return APR_OK;
}

/* --- the program and its tensors --- */

/* Name, shape and type were checked by runtime/program/admission.h. */
static apr_status check_tensor(const apr_session *s, const apr_weight_slot *slot, const apr_tensor *tensor, apr_error *err)
{
    if (tensor->data == NULL && apr_tensor_is_stored(tensor))
        return apr_fail(err, APR_E_DAMAGED, "%s: tensor '%s' has no data", s->model->path, slot->name);
    return APR_OK;
}

/* Fills the table of a slot that has several tensors: views of the model's. */
static apr_status bind_experts(apr_session *s, size_t i, apr_error *err)
{
    apr_weight_slot one = s->program.weights[i];
    char name[256];

    if (one.optional && apr_model_find(s->model, apr_slot_name(&one, 0, name, sizeof name)) == NULL) return APR_OK;
    s->experts[i] = calloc((size_t)one.count, sizeof *s->experts[i]);
    if (s->experts[i] == NULL) return apr_no_memory(err, "the table of experts");
    for (int64_t e = 0; e < one.count; e++) {
        one.name = apr_slot_name(&s->program.weights[i], e, name, sizeof name);
        const apr_tensor *const tensor = apr_model_find(s->model, name);
        if (tensor == NULL) return apr_fail(err, APR_E_DAMAGED, "%s: tensor '%s' is missing", s->model->path, name);
        APR_TRY(check_tensor(s, &one, tensor, err));
        s->experts[i][e] = *tensor;
        if (e == 0) s->tensors[i] = tensor;
    }
    return APR_OK;
}

static apr_status bind_tensor(apr_session *s, size_t i, apr_error *err)
{
    const apr_weight_slot *const slot = &s->program.weights[i];

    if (strchr(slot->name, '*') != NULL) return bind_experts(s, i, err);
    s->tensors[i] = apr_model_find(s->model, slot->name);
    if (s->tensors[i] == NULL && slot->optional) return APR_OK;
    if (s->tensors[i] == NULL) return apr_fail(err, APR_E_DAMAGED, "%s: tensor '%s' is missing", s->model->path, slot->name);
    APR_TRY(check_tensor(s, slot, s->tensors[i], err));
    return APR_OK;
}

/* Finds each slot's tensor in the model and checks it. */
static apr_status bind_tensors(apr_session *s, apr_error *err)
{
    const size_t n = s->program.n_weights + 1;

    if (s->model->n_tensors == 0) return apr_fail(err, APR_E_UNSUPPORTED, "%s: there are no weights to run", s->model->path);
    APR_TRY(apr_admission_to_run(&s->program, s->model, err));
    s->tensors = calloc(n, sizeof *s->tensors);
    s->experts = calloc(n, sizeof *s->experts);
    if (s->tensors == NULL || s->experts == NULL) return apr_no_memory(err, "the table of tensors");
    for (size_t i = 0; i < s->program.n_weights; i++) APR_TRY(bind_tensor(s, i, err));
    return APR_OK;
}

/* Program and tensors depend on the model only and survive a fallback; plan and memory depend on the places. */
static apr_status open_program(apr_session *s, apr_error *err)
{
    APR_TRY(apr_program_emit(&s->program, &s->model->hparams, err));
    const int64_t most = s->program.most_positions;
    if (s->options.shorter_ctx && most > 0 && s->options.n_ctx > most) s->options.n_ctx = most;
    for (int i = 0; i < s->n_places; i++) {
        const apr_backend *const backend = s->places[i].backend;
        const apr_op *const missing = apr_program_missing_op(&s->program, backend);
        if (missing != NULL)
            return apr_fail(err, APR_E_UNSUPPORTED,
                            "%s: a %s model needs the operation '%s' (layer %d), which the %s backend does not have", s->model->path,
                            s->program.architecture, apr_op_name(missing->kind), missing->layer, backend->name);
    }
    if (s->model->naming != APR_NAMING_HF)
        return apr_fail(err, APR_E_USAGE, "%s: the tensors must have Hugging Face's names before the model can be run", s->model->path);
    return bind_tensors(s, err);
}

/* --- inputs of a plan: the weights and the device --- */

/* [n_weights] of each. */
typedef struct weight_table {
    uint64_t *device_bytes, *host_bytes, *composed_bytes, *padding_bytes, *bytes; /* bytes: of the place that is planned */
    apr_dtype *dtypes;
    apr_weight_note *notes; /* of the place that is planned */
} weight_table;

static apr_status open_table(const apr_session *s, weight_table *t, apr_error *err)
{
    const size_t n = s->program.n_weights + 1;

    *t = (weight_table){malloc(n * sizeof *t->bytes), malloc(n * sizeof *t->bytes), malloc(n * sizeof *t->bytes),
                        malloc(n * sizeof *t->bytes), malloc(n * sizeof *t->bytes), malloc(n * sizeof *t->dtypes),
                        malloc(n * sizeof *t->notes)};
    const bool has_bytes = t->device_bytes != NULL && t->host_bytes != NULL && t->composed_bytes != NULL && t->padding_bytes != NULL;
    if (!has_bytes || t->bytes == NULL || t->dtypes == NULL || t->notes == NULL) return apr_no_memory(err, "the sizes of the weights");
    if (s->options.cuda != NULL) {
        apr_session_device_weights(s, t->device_bytes, t->dtypes);
        apr_plan_padded_weights(&s->program, t->dtypes, s->options.n_sequences, t->padding_bytes);
    }
    apr_plan_model_weights(&s->program, s->model, t->host_bytes);
    return APR_OK;
}

static void close_table(weight_table *t)
{
    free(t->device_bytes);
    free(t->host_bytes);
    free(t->composed_bytes);
    free(t->padding_bytes);
    free(t->bytes);
    free(t->dtypes);
    free(t->notes);
}

/* Fills notes[n_weights] for a place's plan. dtypes: those on its device; NULL: the place is the host. */
static void note_weights(const apr_session *s, const apr_dtype *dtypes, apr_weight_note *notes)
{
    for (size_t i = 0; i < s->program.n_weights; i++) {
        const apr_tensor *const parts = apr_session_slot_tensors(s, i);
        notes[i] = (apr_weight_note){0};
        if (parts == NULL) continue;
        if (apr_tensor_is_packed(parts)) notes[i].scheme = apr_tensor_encoding(parts);
        notes[i].decoded = dtypes != NULL && dtypes[i] == APR_F16 && (parts->dtype != APR_F16 || apr_tensor_is_packed(parts));
    }
}

/* Facts of the device for the plan, whether the device is open yet or not. */
static apr_status device_facts(const apr_session *s, const apr_session_place *at, apr_plan_options *options, apr_gpu *gpu, char *label,
                               size_t n_label, apr_error *err)
{
    apr_cuda_facts facts;

    APR_TRY(s->options.cuda->facts(at->ordinal, &facts, err));
    uint64_t n_total = facts.total_bytes, n_free = facts.used_bytes < n_total ? n_total - facts.used_bytes : n_total;
    if (at->device != NULL) APR_TRY(s->options.cuda->memory(at->device, &n_free, &n_total, err));
    /* on shared memory the page cache is available, though the driver counts it as used */
    const uint64_t available = facts.is_integrated && s->options.available != NULL ? s->options.available() : 0;
    if (available > 0) n_total = facts.total_bytes, n_free = available;
    snprintf(label, n_label, "%s", facts.name);
    *gpu = (apr_gpu){.name = "device",
                     .label = label,
                     .vram_mib = (int64_t)(n_total >> 20),
                     .n_sms = facts.n_sms,
                     .threads_per_sm = facts.threads_per_sm,
                     .major = facts.major,
                     .minor = facts.minor,
                     .is_integrated = facts.is_integrated};
    options->gpu = gpu;
    options->stack_bytes = s->options.stack_bytes;
    options->headroom_bytes = s->options.headroom_bytes;
    /* an open context's own line is judged against what was free before it */
    const uint64_t before = n_free + (at->device != NULL ? apr_gpu_context_bytes(gpu, options->stack_bytes) : 0);
    options->budget_bytes = before < n_total ? before : n_total;
    return APR_OK;
}

/* --- the partition and the plans --- */

/* Divides the program among the places, with as many cells a state as requested. */
static apr_status divide(apr_session *s, const weight_table *t, int64_t n_batch, apr_error *err)
{
    uint64_t *const states = malloc((s->program.n_states + 1) * sizeof *states), capacities[APR_MAX_DEVICES];
    const int n = n_devices(s);
    apr_partition_options options = {.n_devices = n,
                                     .offload = s->options.offload,
                                     .weight_bytes = n > 0 ? t->device_bytes : t->host_bytes,
                                     .state_bytes = states,
                                     .capacities = capacities};
    apr_status status = states != NULL ? APR_OK : apr_no_memory(err, "the sizes of the states");

    for (int i = 0; i < n && n > 1 && status == APR_OK; i++) {
        apr_plan_options device;
        apr_gpu gpu;
        char label[256];
        status = device_facts(s, &s->places[i], &device, &gpu, label, sizeof label, err);
        capacities[i] = device.budget_bytes;
    }
    if (n <= 1) options.capacities = NULL;
    if (status == APR_OK) {
        apr_plan_states_bytes(&s->program, s->options.kv_dtype, s->options.n_ctx, n_batch, states);
        status = apr_partition_make(&s->partition, &s->program, &options, err);
    }
    free(states);
    return status;
}

/* What earlier places take of the same card, or of the host's memory. */
static uint64_t taken_before(const apr_session *s, const apr_session_place *at)
{
    uint64_t n = 0;
    for (const apr_session_place *p = s->places; p < at; p++) {
        if (at->on == APR_ON_HOST) n = apr_saturating_add(n, p->plan.host_bytes);
        else if (p->ordinal == at->ordinal) n = apr_saturating_add(n, p->plan.taken_bytes);
    }
    return n;
}

static apr_status plan_place(apr_session *s, apr_session_place *at, const weight_table *t, const apr_plan_options *pace, apr_error *err)
{
    apr_plan_options options = *pace;
    apr_gpu gpu;
    char label[256];
    const bool on_device = at->on == APR_ON_DEVICE;

    options.n_ctx = s->options.n_ctx;
    options.n_logits = s->options.n_logits;
    options.n_sequences = s->options.n_sequences > 0 ? s->options.n_sequences : 1;
    options.kv_cells = s->options.kv_cells;
    options.kv_dtype = s->options.kv_dtype;
    options.budget_bytes = s->options.budget_bytes;
    options.n_threads = at->work.n_threads;
    options.weights_location = s->options.weights_location;
    options.partition = &s->partition;
    options.place = at->index;
    options.shares_card = at->shares_card;
    if (on_device) APR_TRY(device_facts(s, at, &options, &gpu, label, sizeof label, err));
    at->shares_memory = on_device && gpu.is_integrated;
    const uint64_t taken = taken_before(s, at);
    if (options.budget_bytes > 0) options.budget_bytes = options.budget_bytes > taken ? options.budget_bytes - taken : 1;
    memcpy(t->bytes, on_device ? t->device_bytes : t->host_bytes, s->program.n_weights * sizeof *t->bytes);
    apr_plan_composed_weights(&s->program, s->model, t->composed_bytes);
    APR_TRY(apr_partition_keep_weights(&s->partition, &s->program, at->index, t->bytes, err));
    APR_TRY(apr_partition_keep_weights(&s->partition, &s->program, at->index, t->composed_bytes, err));
    options.composed_bytes = t->composed_bytes;
    options.weight_bytes = t->bytes;
    options.weight_dtypes = on_device ? t->dtypes : NULL;
    note_weights(s, options.weight_dtypes, t->notes);
    options.weight_notes = t->notes;
    options.no_replay = s->options.no_replay;
    options.copies = on_device && pace->copies;
    APR_TRY(apr_plan_make(&at->plan, &s->program, &options, err));
    if (at->device != NULL) s->options.cuda->use_tiles(at->device, s->options.no_direct && !options.copies);
    return APR_OK;
}

/* Plans all places at one pace, with the copies that it asks for. */
static apr_status draft_at(apr_session *s, const weight_table *t, const apr_plan_options *pace, apr_error *err)
{
    for (int i = 0; i < s->n_places; i++) apr_plan_close(&s->places[i].plan);
    apr_partition_close(&s->partition);
    APR_TRY(divide(s, t, pace->n_batch, err));
    for (int i = 0; i < s->n_places; i++) APR_TRY(plan_place(s, &s->places[i], t, pace, err));
    return APR_OK;
}

static bool all_fit(const apr_session *s)
{
    for (int i = 0; i < s->n_places; i++)
        if (!s->places[i].plan.fits) return false;
    return true;
}

/* Takes the fastest pace that fits, first with FP16 copies or padded rows if they are wanted, then without them; else the slowest. */
static apr_status draft_plan(apr_session *s, apr_error *err)
{
    const bool has_device = n_devices(s) > 0, wants_copies = has_device && s->options.no_direct,
               wants_filled = has_device && apr_session_wants_tiles(s);
    const int n = apr_plan_n_speeds(s->options.n_batch, has_device), n_tries = wants_copies || wants_filled ? 2 * n : n;
    apr_plan_options pace = apr_plan_defaults;
    weight_table t;

    apr_status status = open_table(s, &t, err);
    for (int i = 0; i < n_tries && status == APR_OK && !(i > 0 && all_fit(s)); i++) {
        apr_plan_set_speed(&pace, s->options.n_batch, has_device, i % n);
        pace.copies = wants_copies && i < n;
        pace.padding_bytes = wants_filled && i < n ? t.padding_bytes : NULL;
        status = draft_at(s, &t, &pace, err);
    }
    close_table(&t);
    return status;
}

/* --- what does not fit --- */

/* "; with --headroom 512M ... it fits", if a smaller headroom would be enough. */
static const char *headroom_text(const apr_session *s, const apr_plan *plan, char *text, size_t n_bytes)
{
    const uint64_t headroom = s->options.headroom_bytes;

    text[0] = '\0';
    if (plan->judged != APR_ON_DEVICE || headroom < plan->short_bytes) return text;
    const unsigned long long mib = (headroom - plan->short_bytes) >> 20;
    snprintf(text, n_bytes, "; with --headroom %llu%s instead of %lluM it fits", mib, mib > 0 ? "M" : "",
             (unsigned long long)headroom >> 20);
    return text;
}

static apr_status refuse(const apr_session *s, const apr_session_place *at, apr_error *err)
{
    const apr_plan *const plan = &at->plan;
    const apr_plan_line *const line = &plan->lines[plan->breaking];
    const bool on_device = plan->judged == APR_ON_DEVICE;
    char where[80] = "", less[96];

    if (on_device) snprintf(where, sizeof where, " on the device, headroom included");
    if (on_device && s->n_places > 1) snprintf(where, sizeof where, " on GPU %d, headroom included", at->ordinal);
    if (plan->is_shared) snprintf(where, sizeof where, " of the memory that host and device share, headroom included");
    if (!on_device && s->n_places > 1) snprintf(where, sizeof where, " on the host for what is offloaded");
    return apr_fail(err, APR_E_MEMORY,
                    "%s: needs %.1f MiB%s, %.1f MiB more than %s; '%s' (%s) goes over it, and the longest context that fits is %lld%s",
                    s->model->path, (double)plan->taken_bytes / 0x1p20, where, (double)plan->short_bytes / 0x1p20,
                    on_device ? "is free there" : "the budget", line->label, line->reason, (long long)plan->max_ctx,
                    headroom_text(s, plan, less, sizeof less));
}

/* --force: runs what does not fit, with a warning. */
static void warn(const apr_session *s, apr_error *refusal)
{
    char text[sizeof refusal->text + 32];
    if (s->options.on_warning == NULL) return;
    const int n = snprintf(text, sizeof text, "continuing because of --force: %s", refusal->text);
    (void)n;
    s->options.on_warning(s->options.user, text);
}

/* The same, but APR_E_MEMORY when a plan does not fit. */
static apr_status make_plan(apr_session *s, apr_error *err)
{
    const bool is_forced = s->options.force && apr_session_has_device(s);

    APR_TRY(draft_plan(s, err));
    for (int i = 0; i < s->n_places; i++) {
        apr_error refusal = {0};
        if (s->places[i].plan.fits) continue;
        const apr_status status = refuse(s, &s->places[i], is_forced ? &refusal : err);
        if (!is_forced) return status;
        warn(s, &refusal);
    }
    return APR_OK;
}

/* --- devices and memory --- */

static apr_status open_device(apr_session *s, apr_session_place *at, apr_error *err)
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

/* Allocates a place's memory, gives it its weights, and fuses its operations. The heap that a device's driver uses meanwhile is not
 * counted; the host buffers that belong to the device are. */
static apr_status open_place(apr_session *s, apr_session_place *at, apr_error *err)
{
    const uint64_t before = apr_heap_in_use();

    APR_TRY(apr_session_allocate(s, at, err));
    APR_TRY(apr_session_load_weights(s, at, err));
    if (at->device == NULL) {
        apr_session_count_heap(&s->heap_places, before);
        return APR_OK;
    }
    APR_TRY(apr_session_fuse(s, at, err));
    APR_TRY(s->options.cuda->check(at->device, "the upload", err));
    if (at->host_rows != NULL) s->heap_places += (int64_t)apr_heap_block(at->host_rows);
    s->heap_places += (int64_t)(apr_session_line_bytes(at, APR_LINE_HOST_LOGITS) + /* pinned: planned, but not on the heap */
                                apr_session_line_bytes(at, APR_LINE_HOST_STEP));
    return APR_OK;
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

static apr_status open_places(apr_session *s, apr_error *err)
{
    for (int i = 0; i < s->n_places; i++)
        if (s->places[i].on == APR_ON_DEVICE) APR_TRY(open_device(s, &s->places[i], err));
    const uint64_t before = apr_heap_in_use();
    APR_TRY(make_plan(s, err));
    APR_TRY(apr_session_open_sequences(s, err));
    apr_session_count_heap(&s->heap_places, before);
    for (int i = 0; i < s->n_places; i++) APR_TRY(open_place(s, &s->places[i], err));
    apr_session_set_exact(s, s->options.exact);
    return APR_OK;
}

/* Closes the devices, whatever state they are in, and moves everything to the host. */
static apr_status move_to_host(apr_session *s, apr_error *err)
{
    apr_session_release(s);
    s->options.cuda = NULL;
    s->options.backend = NULL;
    s->heap_places = s->heap_runs = 0;
    s->position = 0;
    s->last_logits = NULL;
    APR_TRY(make_places(s, err));
    return open_places(s, err);
}

static bool may_fall_back(const apr_session *s, apr_status status)
{
    const bool is_of_device = status == APR_E_DEVICE || status == APR_E_MEMORY || status == APR_E_UNSUPPORTED;
    return s->options.fall_back && s->options.cuda != NULL && is_of_device;
}

/* Reports the failure as a warning and clears it. */
static void warn_fall_back(const apr_session *s, apr_error *err)
{
    char text[sizeof err->text + 64];
    snprintf(text, sizeof text, "the GPU failed, continuing on the host: %s", err->text);
    *err = (apr_error){0};
    if (s->options.on_warning != NULL) s->options.on_warning(s->options.user, text);
}

bool apr_session_fall_back(apr_session *s, apr_status *status, apr_error *err)
{
    if (!may_fall_back(s, *status)) return false;
    warn_fall_back(s, err);
    *status = move_to_host(s, err);
    return true;
}

/* --- opening and closing --- */

static apr_status open_session(apr_session *s, apr_error *err)
{
    const uint64_t before = apr_heap_in_use();
    apr_error failure = {0};

    APR_TRY(make_places(s, err));
    APR_TRY(open_program(s, err));
    apr_session_count_heap(&s->heap_program, before);
    apr_status status = open_places(s, &failure);
    (void)apr_session_fall_back(s, &status, &failure);
    if (status != APR_OK) return apr_fail(err, status, "%s", failure.text);
    if (s->positions != NULL) s->options.fall_back = false; /* the tokens of several sequences are not kept for a restart */
    if (s->options.cuda == NULL || !s->options.fall_back) return APR_OK;
    s->history = malloc((size_t)s->places[0].plan.n_ctx * sizeof *s->history);
    return s->history != NULL ? APR_OK : apr_no_memory(err, "the tokens so far");
}

/* An empty session. */
static apr_session *begin(const apr_model *model, const apr_session_options *options)
{
    apr_session *const s = calloc(1, sizeof *s);
    if (s == NULL) return NULL;
    s->model = model;
    s->options = *options;
    s->sent_position = -1;
    return s;
}

apr_status apr_session_open(apr_session **session, const apr_model *model, const apr_session_options *options, apr_error *err)
{
    *session = NULL;
    apr_session *const s = begin(model, options);
    if (s == NULL) return apr_no_memory(err, "the session");
    const apr_status status = open_session(s, err);
    if (status != APR_OK) {
        apr_session_close(s);
        return status;
    }
    *session = s;
    return APR_OK;
}

apr_status apr_session_forecast(apr_plan *plan, const apr_model *model, const apr_session_options *options, apr_error *err)
{
    *plan = (apr_plan){0};
    apr_session *const s = begin(model, options);
    if (s == NULL) return apr_no_memory(err, "the session");
    apr_status status = make_places(s, err);
    if (status == APR_OK) status = open_program(s, err);
    if (status == APR_OK) status = draft_plan(s, err);
    if (status == APR_OK) {
        int at = 0;
        for (int i = s->n_places; i-- > 0;)
            if (!s->places[i].plan.fits) at = i;
        *plan = s->places[at].plan;
        s->places[at].plan = (apr_plan){0};
    }
    apr_session_close(s);
    return status;
}

apr_status apr_session_open_like(apr_session **session, const apr_model *model, const apr_session *like, apr_error *err)
{
    apr_session_options options = like->options;
    options.n_ctx = like->places[0].plan.n_ctx;
    return apr_session_open(session, model, &options, err);
}

apr_status apr_session_open_sequences_like(apr_session **session, const apr_session *like, int64_t n_sequences, int64_t kv_cells,
                                           apr_error *err)
{
    apr_session_options options = like->options;
    options.n_ctx = like->places[0].plan.n_ctx;
    options.n_batch = like->places[0].plan.n_batch; /* prompts are cut where `like` cuts them */
    options.n_logits = n_sequences;
    options.n_sequences = n_sequences;
    options.kv_cells = kv_cells;
    options.exact = like->exact;
    options.on_warning = NULL; /* opening `like` has warned */
    return apr_session_open(session, like->model, &options, err);
}

void apr_session_close(apr_session *s)
{
    if (s == NULL) return;
    apr_session_release(s);
    free(s->history);
    free(s->tensors);
    for (size_t i = 0; s->experts != NULL && i < s->program.n_weights; i++) free(s->experts[i]);
    free(s->experts);
    apr_program_close(&s->program);
    free(s);
}

/* --- facts --- */

const apr_plan *apr_session_plan(const apr_session *session) { return &session->places[0].plan; }

int apr_session_n_places(const apr_session *session) { return session->n_places; }

const apr_plan *apr_session_place_plan(const apr_session *session, int place) { return &session->places[place].plan; }

int apr_session_place_ordinal(const apr_session *session, int place) { return session->places[place].ordinal; }

const apr_program *apr_session_program(const apr_session *session) { return &session->program; }

int64_t apr_session_position(const apr_session *session) { return session->position; }

const float *apr_session_logits(const apr_session *session) { return session->last_logits; }

const char *apr_session_backend_name(const apr_session *session)
{
    const bool is_mixed = session->places[0].on != session->places[session->n_places - 1].on;
    return is_mixed ? "cuda and host" : session->places[0].backend->name;
}
