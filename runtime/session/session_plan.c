/* session_plan.c - makes a session's places, divides the program among them, and plans each place. */
#include "formats/base/bytes.h"
#include "formats/base/threads.h"
#include "runtime/plan/plans.h"
#include "runtime/session/session_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

apr_status apr_session_make_places(apr_session *s, apr_error *err)
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
        apr_plan_padded_weights(&s->program, t->dtypes, t->padding_bytes);
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

/* --- the partition --- */

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
    options.made_bytes = t->composed_bytes;
    options.weight_bytes = t->bytes;
    options.weight_dtypes = on_device ? t->dtypes : NULL;
    apr_session_note_weights(s, options.weight_dtypes, t->notes);
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
apr_status apr_session_draft_plan(apr_session *s, apr_error *err)
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

apr_status apr_session_make_plan(apr_session *s, apr_error *err)
{
    const bool is_forced = s->options.force && apr_session_has_device(s);

    APR_TRY(apr_session_draft_plan(s, err));
    for (int i = 0; i < s->n_places; i++) {
        apr_error refusal = {0};
        if (s->places[i].plan.fits) continue;
        const apr_status status = refuse(s, &s->places[i], is_forced ? &refusal : err);
        if (!is_forced) return status;
        warn(s, &refusal);
    }
    return APR_OK;
}
