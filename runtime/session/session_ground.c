/* session_ground.c - a session's memory: the plan is made, and exactly its lines are allocated, on the host or a device. */
#include "formats/base/bytes.h"
#include "runtime/session/heap.h"
#include "runtime/session/session_parts.h"
#include "runtime/session/trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t apr_session_line_bytes(const apr_session *s, apr_line_id id)
{
    const apr_plan_line *const line = apr_plan_line_of(&s->plan, id);
    return line != NULL ? line->bytes : 0;
}

static apr_status refuse(const apr_session *s, apr_error *err)
{
    const apr_plan_line *const line = &s->plan.lines[s->plan.breaking];
    const bool on_device = s->plan.judged == APR_ON_DEVICE;
    return apr_fail(err, APR_E_MEMORY,
                    "%s: needs %.1f MiB%s, %.1f MiB more than %s; '%s' (%s) goes over it, and the longest context that fits is %lld",
                    s->model->path, (double)(on_device ? s->plan.device_bytes : s->plan.host_bytes) / 0x1p20,
                    on_device ? " on the device, headroom included" : "", (double)s->plan.short_bytes / 0x1p20,
                    on_device ? "is free there" : "the budget", line->label, line->reason, (long long)s->plan.max_ctx);
}

/* --force: what does not fit is tried all the same, and said. */
static void warn(const apr_session *s, apr_error *refusal)
{
    char text[sizeof refusal->text + 32];
    if (s->options.on_warning == NULL) return;
    const int n = snprintf(text, sizeof text, "trying it all the same: %s", refusal->text);
    (void)n;
    s->options.on_warning(s->options.user, text);
}

/* What a plan must know of the device: one that is open, or that would be. */
static apr_status device_facts(apr_session *s, apr_plan_options *options, apr_gpu *gpu, char *label, size_t n_label, apr_error *err)
{
    apr_cuda_facts facts;

    APR_TRY(s->options.cuda->facts(s->options.ordinal, &facts, err));
    uint64_t n_total = facts.total_bytes, n_free = facts.used_bytes < n_total ? n_total - facts.used_bytes : n_total;
    if (s->device != NULL) APR_TRY(s->options.cuda->memory(s->device, &n_free, &n_total, err));
    snprintf(label, n_label, "%s", facts.name);
    *gpu = (apr_gpu){.name = "device",
                     .label = label,
                     .vram_mib = (int64_t)(n_total >> 20),
                     .n_sms = facts.n_sms,
                     .threads_per_sm = facts.threads_per_sm,
                     .major = facts.major,
                     .minor = facts.minor};
    options->gpu = gpu;
    options->stack_bytes = s->options.stack_bytes;
    options->headroom_bytes = s->options.headroom_bytes;
    /* where the context is there already, its line is judged against what was free before */
    const uint64_t before = n_free + (s->device != NULL ? apr_gpu_context_bytes(gpu, options->stack_bytes) : 0);
    options->budget_bytes = before < n_total ? before : n_total;
    return APR_OK;
}

apr_status apr_session_draft_plan(apr_session *s, apr_error *err)
{
    apr_plan_options options = apr_plan_defaults;
    apr_gpu gpu;
    char label[256];
    const bool on_device = s->options.cuda != NULL;
    uint64_t *const bytes = malloc((s->program.n_weights + 1) * sizeof *bytes);
    apr_dtype *const dtypes = malloc((s->program.n_weights + 1) * sizeof *dtypes);
    uint64_t *const made = malloc((s->program.n_weights + 1) * sizeof *made);
    apr_weight_note *const notes = malloc((s->program.n_weights + 1) * sizeof *notes);
    const bool has_memory = bytes != NULL && dtypes != NULL && made != NULL && notes != NULL;
    apr_status status = has_memory ? APR_OK : apr_no_memory(err, "the sizes of the weights");

    options.n_ctx = s->options.n_ctx;
    options.n_batch = s->options.n_batch;
    options.n_logits = s->options.n_logits;
    options.kv_dtype = s->options.kv_dtype;
    options.budget_bytes = s->options.budget_bytes;
    options.n_threads = s->work.n_threads;
    options.weights_lie = s->options.weights_lie;
    if (status == APR_OK && on_device) status = device_facts(s, &options, &gpu, label, sizeof label, err);
    if (status == APR_OK) {
        if (on_device) apr_session_device_weights(s, bytes, dtypes);
        else apr_plan_model_weights(&s->program, s->model, bytes);
        apr_plan_made_weights(&s->program, s->model, made);
        apr_session_note_weights(s, dtypes, notes);
        options.made_bytes = made;
        options.weight_notes = notes;
        options.weight_bytes = bytes;
        options.weight_dtypes = on_device ? dtypes : NULL;
        options.copies = on_device && s->options.no_direct;
        status = apr_plan_make(&s->plan, &s->program, &options, err);
        if (status == APR_OK && options.copies && !s->plan.fits) {
            apr_plan_close(&s->plan);
            options.copies = false;
            status = apr_plan_make(&s->plan, &s->program, &options, err);
        }
        if (status == APR_OK && s->device != NULL) s->options.cuda->use_tiles(s->device, s->options.no_direct && !options.copies);
    }
    free(bytes);
    free(dtypes);
    free(made);
    free(notes);
    return status;
}

apr_status apr_session_make_plan(apr_session *s, apr_error *err)
{
    const bool goes_on = s->options.force && s->device != NULL;
    apr_error refusal = {0};

    APR_TRY(apr_session_draft_plan(s, err));
    if (s->plan.fits) return APR_OK;
    const apr_status status = refuse(s, goes_on ? &refusal : err);
    if (!goes_on) return status;
    warn(s, &refusal);
    return APR_OK;
}

/* n_bytes at a multiple of 64 on the session's ground, counted in *used. NULL (and err) when there is no room. */
static apr_status allocate(const apr_session *s, apr_line_id id, uint64_t n_bytes, void **p, uint64_t *used, apr_error *err)
{
    *p = NULL;
    if (s->device != NULL) {
        const apr_plan_line *const line = apr_plan_line_of(&s->plan, id);
        APR_TRY(s->options.cuda->alloc(s->device, n_bytes, line != NULL ? line->label : "memory", p, err));
    } else {
        if (n_bytes <= SIZE_MAX - 64) *p = aligned_alloc(64, (size_t)apr_align_up(n_bytes > 0 ? n_bytes : 1, 64));
        if (*p == NULL)
            return apr_fail(err, APR_E_MEMORY,
                            "%s: not enough memory for the %.1f MiB beside the weights; a shorter context or batch needs less",
                            s->model->path, (double)(s->plan.host_bytes) / 0x1p20);
    }
    *used = s->device != NULL ? n_bytes : apr_heap_block(*p);
    return APR_OK;
}

/* Norms, biases and rotary frequencies as float32; tensors of one slot behind one another. */
static void fill_vectors(const apr_session *s, float *vectors)
{
    for (size_t i = 0; i < s->program.n_weights; i++) {
        if (s->plan.vector_offsets[i] < 0) continue;
        const apr_tensor *const parts = apr_session_parts(s, i);
        for (int64_t j = 0; j < apr_session_n_parts(s, i); j++)
            apr_decode_rows(&parts[j], 0, apr_tensor_rows(&parts[j]), vectors + s->plan.vector_offsets[i] + j * apr_tensor_elems(parts));
    }
    for (size_t i = 0; i < s->program.n_weights; i++)
        if (s->program.weights[i].is_log && s->plan.vector_offsets[i] >= 0)
            for (int64_t j = 0; j < apr_slot_elems(&s->program.weights[i]); j++)
                vectors[s->plan.vector_offsets[i] + j] = expf(vectors[s->plan.vector_offsets[i] + j]);
    for (size_t i = 0; i < s->program.n_ropes; i++) apr_trace_frequencies(s, (int)i, vectors + s->plan.rope_offsets[i]);
}

static apr_status upload_vectors(apr_session *s, apr_error *err)
{
    const uint64_t n_bytes = apr_session_line_bytes(s, APR_LINE_F32_VECTORS);
    float *const vectors = calloc(1, (size_t)n_bytes + 1);
    if (vectors == NULL) return apr_no_memory(err, "norms and biases");
    fill_vectors(s, vectors);
    const apr_status status = s->options.cuda->upload(s->device, s->vectors, vectors, n_bytes, err);
    free(vectors);
    return status;
}

/* cuBLAS and its workspace, the weights, and where the host reads the logits. */
static apr_status allocate_on_device(apr_session *s, apr_error *err)
{
    const apr_cuda_api *const cuda = s->options.cuda;
    const uint64_t blas_bytes = apr_session_line_bytes(s, APR_LINE_CUBLAS_WORKSPACE);
    void *blas;
    uint64_t ignored;

    APR_TRY(allocate(s, APR_LINE_CUBLAS_WORKSPACE, blas_bytes, &blas, &ignored, err));
    APR_TRY(cuda->start_blas(s->device, blas, blas_bytes, &s->used.blas_version, err));
    for (int role = 0; role < APR_ROLE_COUNT; role++)
        s->used.weights += apr_session_line_bytes(s, (apr_line_id)(APR_LINE_WEIGHTS_EMBEDDING + role));
    APR_TRY(cuda->alloc(s->device, s->used.weights, "weights", (void **)&s->weights, err));
    const uint64_t rows_bytes = apr_session_line_bytes(s, APR_LINE_HOST_ROWS);
    if (rows_bytes > 0) s->host_rows = malloc((size_t)rows_bytes);
    if (rows_bytes > 0 && s->host_rows == NULL) return apr_no_memory(err, "the rows on their way to the device");
    s->host_logits = malloc((size_t)apr_session_line_bytes(s, APR_LINE_HOST_LOGITS) + 1);
    return s->host_logits != NULL ? APR_OK : apr_no_memory(err, "the logits");
}

/* What is read where the file is mapped: all but what is materialised. */
static void count_mapped_weights(apr_session *s)
{
    for (size_t i = 0; i < s->program.n_weights; i++) {
        const apr_tensor *const parts = apr_session_parts(s, i);
        for (int64_t j = 0; j < apr_session_n_parts(s, i); j++)
            if (parts[j].made == NULL || s->program.weights[i].uses == APR_USE_FLOAT) s->used.weights += apr_plan_tensor_bytes(&parts[j]);
    }
}

apr_status apr_session_allocate(apr_session *s, apr_error *err)
{
    const struct {
        apr_line_id id;
        uint64_t n_bytes;
        void **p;
        uint64_t *used;
    } lines[] = {
        {APR_LINE_MATERIALISED, apr_session_line_bytes(s, APR_LINE_MATERIALISED), (void **)&s->materialised, &s->used.materialised},
        {APR_LINE_COPIES, apr_session_line_bytes(s, APR_LINE_COPIES), (void **)&s->copies, &s->used.copies},
        {APR_LINE_F32_VECTORS, apr_session_line_bytes(s, APR_LINE_F32_VECTORS), (void **)&s->vectors, &s->used.vectors},
        {APR_LINE_KV, s->plan.states_bytes, (void **)&s->states, &s->used.states},
        {APR_LINE_ACTIVATIONS, apr_session_line_bytes(s, APR_LINE_ACTIVATIONS), (void **)&s->activations, &s->used.activations},
        {APR_LINE_LOGITS, apr_session_line_bytes(s, APR_LINE_LOGITS), (void **)&s->logits, &s->used.logits},
        {APR_LINE_WORKSPACE, apr_session_line_bytes(s, APR_LINE_WORKSPACE), (void **)&s->work.data, &s->used.workspace},
    };
    s->work.slice = s->plan.workspace_slice;
    if (s->device != NULL) s->work.n_threads = 1;
    if (s->device != NULL) APR_TRY(allocate_on_device(s, err));
    else count_mapped_weights(s);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        if ((lines[i].id == APR_LINE_COPIES || lines[i].id == APR_LINE_MATERIALISED) && lines[i].n_bytes == 0) continue;
        APR_TRY(allocate(s, lines[i].id, lines[i].n_bytes, lines[i].p, lines[i].used, err));
    }
    if (s->device == NULL) {
        s->host_logits = s->logits;
        s->shared = s->plan.workspace_shared > 0 ? s->work.data + (size_t)s->work.n_threads * s->work.slice : NULL;
        APR_TRY(apr_session_materialise(s, err));
        fill_vectors(s, s->vectors);
        return APR_OK;
    }
    APR_TRY(upload_vectors(s, err));
    APR_TRY(apr_session_upload_weights(s, err));
    return s->options.cuda->check(s->device, "the upload", err);
}

void apr_session_release(apr_session *s)
{
    if (s->device != NULL) {
        s->options.cuda->close(s->device); /* and what was allocated there */
        free(s->host_logits);
        free(s->host_rows);
    } else {
        free(s->materialised);
        free(s->vectors);
        free(s->states);
        free(s->activations);
        free(s->logits);
        free(s->work.data);
    }
    free(s->twins);
    free(s->relays);
    s->device = NULL;
    s->twins = NULL;
    s->relays = NULL;
    s->vectors = s->activations = s->logits = s->host_logits = s->host_rows = s->work.data = s->shared = NULL;
    s->states = s->weights = s->copies = s->materialised = NULL;
}

apr_status apr_session_forget(apr_session *s, apr_error *err)
{
    for (size_t i = 0; i < s->program.n_states; i++) {
        uint8_t *const numbers = s->states + s->plan.state_offsets[i];
        const size_t n_bytes = (size_t)s->program.states[i].n_floats * sizeof(float);
        if (apr_state_has_cells(&s->program.states[i])) continue;
        if (s->device != NULL) APR_TRY(s->options.cuda->clear(s->device, numbers, n_bytes, err));
        else memset(numbers, 0, n_bytes);
    }
    return APR_OK;
}

apr_status apr_session_fetch(apr_session *s, float *to, const float *from, size_t n_floats, apr_error *err)
{
    if (s->device != NULL) return s->options.cuda->download(s->device, to, from, n_floats * sizeof *to, err);
    if (to != from) memcpy(to, from, n_floats * sizeof *to);
    return APR_OK;
}
