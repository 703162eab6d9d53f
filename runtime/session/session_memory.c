/* session_memory.c - the memory of a session: allocates exactly the lines of its places' plans, on the host or on devices, and compares
 * the plans with what the C library and the driver counted. */
#include "formats/base/bytes.h"
#include "formats/base/clock.h"
#include "runtime/session/heap.h"
#include "runtime/session/session_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void apr_session_count_heap(int64_t *grown, uint64_t before)
{
    const uint64_t now = apr_heap_in_use();
    if (before != UINT64_MAX && now != UINT64_MAX) *grown += (int64_t)(now - before);
}

/* --- allocating --- */

/* Allocates n_bytes at a multiple of 64 at the place, and counts them in *used. *p is NULL on failure. */
static apr_status allocate(const apr_session *s, const apr_session_place *at, apr_line_id id, uint64_t n_bytes, void **p, uint64_t *used,
                           apr_error *err)
{
    *p = NULL;
    if (at->device != NULL) {
        const apr_plan_line *const line = apr_plan_line_of(&at->plan, id);
        APR_TRY(s->options.cuda->alloc(at->device, n_bytes, line != NULL ? line->label : "memory", p, err));
    } else {
        if (n_bytes <= SIZE_MAX - 64) *p = aligned_alloc(64, (size_t)apr_align_up(n_bytes > 0 ? n_bytes : 1, 64));
        if (*p == NULL)
            return apr_fail(err, APR_E_MEMORY,
                            "%s: not enough memory for the %.1f MiB besides the weights; a shorter context or batch needs less",
                            s->model->path, (double)(at->plan.host_bytes) / 0x1p20);
    }
    *used = at->device != NULL ? n_bytes : apr_heap_block(*p);
    return APR_OK;
}

/* Norms, biases and rotary frequencies as float32; tensors of one slot one after another. */
static void fill_vectors(const apr_session *s, const apr_plan *plan, float *vectors)
{
    for (size_t i = 0; i < s->program.n_weights; i++) {
        if (plan->vector_offsets[i] < 0) continue;
        const apr_tensor *const parts = apr_session_slot_tensors(s, i);
        for (int64_t j = 0; j < apr_session_n_slot_tensors(s, i); j++)
            apr_decode_rows(&parts[j], 0, apr_tensor_rows(&parts[j]), vectors + plan->vector_offsets[i] + j * apr_tensor_elems(parts));
    }
    for (size_t i = 0; i < s->program.n_weights; i++)
        if (s->program.weights[i].is_log && plan->vector_offsets[i] >= 0)
            for (int64_t j = 0; j < apr_slot_elems(&s->program.weights[i]); j++)
                vectors[plan->vector_offsets[i] + j] = expf(vectors[plan->vector_offsets[i] + j]);
    for (size_t i = 0; i < s->program.n_ropes; i++)
        if (plan->rope_offsets[i] >= 0) apr_trace_frequencies(s, (int)i, vectors + plan->rope_offsets[i]);
}

static apr_status upload_vectors(const apr_session *s, const apr_session_place *at, apr_error *err)
{
    const uint64_t n_bytes = apr_session_line_bytes(at, APR_LINE_F32_VECTORS);
    float *const vectors = calloc(1, (size_t)n_bytes + 1);
    if (vectors == NULL) return apr_no_memory(err, "norms and biases");
    fill_vectors(s, &at->plan, vectors);
    const apr_status status = s->options.cuda->upload(at->device, at->vectors, vectors, n_bytes, err);
    free(vectors);
    return status;
}

/* Host memory that belongs to a device: rows of tables, and pinned buffers for the logits, the token and the step's table. */
static apr_status allocate_host_buffers(apr_session *s, apr_session_place *at, apr_error *err)
{
    const uint64_t rows_bytes = apr_session_line_bytes(at, APR_LINE_HOST_ROWS);
    const uint64_t logits_bytes = apr_session_line_bytes(at, APR_LINE_HOST_LOGITS);

    if (rows_bytes > 0) at->host_rows = malloc((size_t)rows_bytes);
    if (rows_bytes > 0 && at->host_rows == NULL) return apr_no_memory(err, "the rows on their way to the device");
    if (logits_bytes == 0) return APR_OK;
    APR_TRY(s->options.cuda->pin(at->device, logits_bytes, "copy of the logits", (void **)&s->host_logits, err));
    APR_TRY(s->options.cuda->pin(at->device, apr_session_line_bytes(at, APR_LINE_HOST_STEP), "copy of a step's table",
                                 (void **)&s->host_step, err));
    s->host_token = (apr_cuda_token *)(void *)((uint8_t *)s->host_logits + logits_bytes - apr_cuda_round(sizeof *s->host_token));
    return APR_OK;
}

/* cuBLAS and its workspace, the weights, and what belongs to them on the host. */
static apr_status allocate_on_device(apr_session *s, apr_session_place *at, apr_error *err)
{
    const apr_cuda_api *const cuda = s->options.cuda;
    const uint64_t blas_bytes = apr_session_line_bytes(at, APR_LINE_CUBLAS_WORKSPACE);
    void *blas;
    uint64_t ignored;

    APR_TRY(allocate(s, at, APR_LINE_CUBLAS_WORKSPACE, blas_bytes, &blas, &ignored, err));
    APR_TRY(cuda->start_blas(at->device, blas, blas_bytes, &at->used.blas_version, err));
    for (int role = 0; role < APR_ROLE_COUNT; role++)
        at->used.weights += apr_session_line_bytes(at, (apr_line_id)(APR_LINE_WEIGHTS_EMBEDDING + role));
    at->used.weights += apr_session_line_bytes(at, APR_LINE_FILLED);
    APR_TRY(cuda->alloc(at->device, at->used.weights, "weights", (void **)&at->weights, err));
    return allocate_host_buffers(s, at, err);
}

/* Counts the weights that are read from the mapped file: all that are not materialised. */
static void count_mapped_weights(const apr_session *s, apr_session_place *at)
{
    for (size_t i = 0; i < s->program.n_weights; i++) {
        const apr_tensor *const parts = apr_session_slot_tensors(s, i);
        for (int64_t j = 0; at->bound[i] != NULL && j < apr_session_n_slot_tensors(s, i); j++)
            if (!apr_tensor_is_composed(&parts[j]) || s->program.weights[i].uses == APR_USE_FLOAT)
                at->used.weights += apr_plan_tensor_bytes(&parts[j]);
    }
}

/* Binds the tensors that the place's operations use, as the model has them; the others stay NULL. */
static apr_status bind_weights(const apr_session *s, apr_session_place *at, apr_error *err)
{
    const size_t n = s->program.n_weights;
    uint64_t *const used = malloc((n + 1) * sizeof *used);

    at->bound = calloc(n + 1, sizeof *at->bound);
    at->multiplied = calloc(n + 1, sizeof *at->multiplied);
    apr_status status = used != NULL && at->bound != NULL && at->multiplied != NULL ? APR_OK : apr_no_memory(err, "the table of tensors");
    for (size_t i = 0; i < n && status == APR_OK; i++) used[i] = 1;
    if (status == APR_OK) status = apr_partition_keep_weights(&s->partition, &s->program, at->index, used, err);
    for (size_t i = 0; i < n && status == APR_OK; i++)
        if (used[i] > 0) at->bound[i] = at->multiplied[i] = apr_session_slot_tensors(s, i);
    free(used);
    return status;
}

static apr_status allocate_lines(const apr_session *s, apr_session_place *at, apr_error *err)
{
    const struct {
        apr_line_id id;
        uint64_t n_bytes;
        void **p;
        uint64_t *used;
    } lines[] = {
        {APR_LINE_MATERIALISED, apr_session_line_bytes(at, APR_LINE_MATERIALISED), (void **)&at->materialised, &at->used.materialised},
        {APR_LINE_COPIES, apr_session_line_bytes(at, APR_LINE_COPIES), (void **)&at->copies, &at->used.copies},
        {APR_LINE_F32_VECTORS, apr_session_line_bytes(at, APR_LINE_F32_VECTORS), (void **)&at->vectors, &at->used.vectors},
        {APR_LINE_KV, at->plan.states_bytes, (void **)&at->states, &at->used.states},
        {APR_LINE_ACTIVATIONS, apr_session_line_bytes(at, APR_LINE_ACTIVATIONS), (void **)&at->activations, &at->used.activations},
        {APR_LINE_LOGITS, apr_session_line_bytes(at, APR_LINE_LOGITS), (void **)&at->logits, &at->used.logits},
        {APR_LINE_WORKSPACE, apr_session_line_bytes(at, APR_LINE_WORKSPACE), (void **)&at->work.data, &at->used.workspace},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        const bool is_empty = lines[i].n_bytes == 0 && (lines[i].id == APR_LINE_COPIES || lines[i].id == APR_LINE_MATERIALISED);
        if (!is_empty) APR_TRY(allocate(s, at, lines[i].id, lines[i].n_bytes, lines[i].p, lines[i].used, err));
    }
    return APR_OK;
}

static apr_status allocate_device_place(apr_session *s, apr_session_place *at, apr_error *err)
{
    at->work.slice = at->plan.workspace_slice;
    at->work.n_threads = 1;
    const double begin = apr_seconds_now();
    APR_TRY(bind_weights(s, at, err));
    APR_TRY(allocate_on_device(s, at, err));
    APR_TRY(allocate_lines(s, at, err));
    at->used.device_s += apr_seconds_now() - begin;
    at->token = (apr_cuda_token *)(void *)(at->work.data + at->work.slice);
    at->activations_i16 = (uint8_t *)at->token + apr_cuda_round(sizeof *at->token);
    if (at->states != NULL) /* places without states have no table */
        at->step = apr_batch_table_at(at->states + at->plan.step_offset, apr_batch_rows(at->plan.n_sequences), at->plan.n_ctx);
    return upload_vectors(s, at, err);
}

static apr_status allocate_host_place(apr_session *s, apr_session_place *at, apr_error *err)
{
    at->work.slice = at->plan.workspace_slice;
    APR_TRY(bind_weights(s, at, err));
    count_mapped_weights(s, at);
    APR_TRY(allocate_lines(s, at, err));
    if (at == apr_session_place_of_logits(s)) s->host_logits = at->logits;
    at->shared = at->plan.workspace_shared > 0 ? at->work.data + (size_t)at->work.n_threads * at->work.slice : NULL;
    fill_vectors(s, &at->plan, at->vectors);
    return APR_OK;
}

apr_status apr_session_allocate(apr_session *s, apr_session_place *at, apr_error *err)
{
    return at->on == APR_ON_DEVICE ? allocate_device_place(s, at, err) : allocate_host_place(s, at, err);
}

void apr_session_drop_recording(const apr_session *s, apr_session_place *at)
{
    if (at->recorded != NULL) s->options.cuda->forget(at->recorded);
    at->recorded = NULL;
}

static void release_place(const apr_session *s, apr_session_place *at)
{
    if (at->device != NULL) {
        apr_session_drop_recording(s, at);
        s->options.cuda->close(at->device); /* frees the memory of the device also */
        free(at->host_rows);
    } else if (at->on == APR_ON_HOST) {
        free(at->materialised);
        free(at->vectors);
        free(at->states);
        free(at->activations);
        free(at->logits);
        free(at->work.data);
    }
    apr_fusion_close(&at->fusion);
    apr_fusion_close(&at->prompt);
    free(at->relocated);
    free(at->repacks);
    for (size_t i = 0; at->own_experts != NULL && i < s->program.n_weights; i++) free(at->own_experts[i]);
    free(at->own_experts);
    free(at->bound);
    free(at->multiplied);
    apr_plan_close(&at->plan);
}

void apr_session_release(apr_session *s)
{
    for (int i = 0; i < s->n_places; i++) release_place(s, &s->places[i]);
    free(s->places);
    apr_session_close_sequences(s);
    apr_partition_close(&s->partition);
    s->places = NULL;
    s->host_logits = NULL;
    s->host_token = NULL;
    s->host_step = NULL;
    s->last_row = NULL;
    s->sent_position = -1;
    s->n_places = 0;
}

/* --- using --- */

apr_status apr_session_clear_states(apr_session *s, apr_error *err)
{
    for (size_t i = 0; i < s->program.n_states; i++) {
        if (apr_state_has_cells(&s->program.states[i]) || s->partition.state_place[i] < 0) continue;
        const apr_session_place *const at = apr_session_place_of_state(s, (int)i);
        uint8_t *const numbers = at->states + at->plan.state_offsets[i] + (uint64_t)s->sequence * at->plan.state_strides[i];
        const size_t n_bytes = (size_t)s->program.states[i].n_floats * sizeof(float);
        if (at->device != NULL) APR_TRY(s->options.cuda->clear(at->device, numbers, n_bytes, err));
        else memset(numbers, 0, n_bytes);
    }
    return APR_OK;
}

apr_status apr_session_fetch(const apr_session *s, const apr_session_place *at, void *to, const void *from, size_t n_bytes, apr_error *err)
{
    if (at->device != NULL) return s->options.cuda->download(at->device, to, from, n_bytes, err);
    if (to != from) memcpy(to, from, n_bytes);
    return APR_OK;
}

apr_status apr_session_check_devices(const apr_session *s, const char *stage, apr_error *err)
{
    for (int i = 0; i < s->n_places; i++)
        if (s->places[i].device != NULL) APR_TRY(s->options.cuda->check(s->places[i].device, stage, err));
    return APR_OK;
}

/* --- comparing --- */

/* Growth of a card's used memory since before the first context there; 0: unknown. */
static uint64_t driver_bytes(const apr_session *s, const apr_session_place *at)
{
    apr_cuda_facts facts;

    if (at->device == NULL || at->used_before == UINT64_MAX) return 0;
    if (s->options.cuda->facts(at->ordinal, &facts, NULL) != APR_OK || facts.used_bytes == UINT64_MAX) return 0;
    return facts.used_bytes > at->used_before ? facts.used_bytes - at->used_before : 0;
}

apr_session_usage apr_session_used(const apr_session *s)
{
    apr_session_usage sum = {0};

    for (int i = 0; i < s->n_places; i++) {
        const apr_session_usage *const used = &s->places[i].used;
        sum.weights += used->weights;
        sum.materialised += used->materialised;
        sum.copies += used->copies;
        sum.vectors += used->vectors;
        sum.states += used->states;
        sum.activations += used->activations;
        sum.logits += used->logits;
        sum.workspace += used->workspace;
        sum.device_s += used->device_s;
        sum.upload_s += used->upload_s;
        sum.uploaded += used->uploaded;
        if (used->blas_version != 0) sum.blas_version = used->blas_version;
        if (!s->places[i].shares_card) sum.driver += driver_bytes(s, &s->places[i]);
    }
    return sum;
}

/* What the session keeps on the heap besides the plans' lines. Tables that belong to devices alone are excluded here and in the count. */
static uint64_t table_bytes(const apr_session *s)
{
    const apr_program *const p = &s->program;
    void *const blocks[] = {
        p->weights,   p->values,   p->states,         p->ropes,          p->ops,        s->tensors,      s->experts,      s->history,
        s->positions, s->step_ids, s->step_sequences, s->step_positions, s->pages.free, s->pages.n_uses, s->pages.tables, s->pages.n_held};
    uint64_t n = sizeof *s + p->arena.held_bytes + s->partition.arena.held_bytes;

    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) n += apr_heap_block(blocks[i]);
    for (size_t i = 0; s->experts != NULL && i < p->n_weights; i++) n += apr_heap_block(s->experts[i]);
    for (int k = 0; k < s->n_places; k++) {
        const apr_session_place *const at = &s->places[k];
        n += at->plan.arena.held_bytes;
        if (at->on == APR_ON_DEVICE) continue;
        n += apr_heap_block(at->bound) + apr_heap_block(at->multiplied) + apr_heap_block(at->relocated) + apr_heap_block(at->own_experts);
        for (size_t i = 0; at->own_experts != NULL && i < p->n_weights; i++) n += apr_heap_block(at->own_experts[i]);
    }
    return n;
}

/* Host lines of a plan that are read from the mapped file. */
static uint64_t mapped_bytes(const apr_plan *plan)
{
    uint64_t n = 0;
    for (size_t i = 0; i < plan->n_lines; i++) {
        const apr_plan_line *const line = &plan->lines[i];
        const bool is_mapped = line->id < APR_LINE_WEIGHTS_EMBEDDING + APR_ROLE_COUNT || line->id == APR_LINE_HOST_TABLES;
        if (line->on == APR_ON_HOST && is_mapped) n += line->bytes;
    }
    return n;
}

static apr_session_memory on_device(const apr_session *s, const apr_session_place *at)
{
    apr_session_memory m = {.on = APR_ON_DEVICE, .measured = UINT64_MAX, .allowed = APR_DEVICE_SLACK_BYTES};

    for (int i = 0; i < s->n_places; i++) {
        const apr_session_place *const other = &s->places[i];
        if (other->on != APR_ON_DEVICE || other->ordinal != at->ordinal) continue;
        m.planned += other->plan.device_bytes - apr_session_line_bytes(other, APR_LINE_HEADROOM);
        const uint64_t driver = other->shares_card ? 0 : driver_bytes(s, other);
        if (driver > 0) m.measured = driver;
        if (other->shares_card) m.allowed += APR_DEVICE_SLACK_BYTES; /* another handle of cuBLAS, whose code is already loaded */
    }
    return m;
}

/* Bytes planned on a card but not allocated yet: no token has been recorded. */
static uint64_t not_yet_allocated(const apr_session *s, const apr_session_place *at)
{
    uint64_t n = 0;
    for (int i = 0; i < s->n_places; i++) {
        const apr_session_place *const other = &s->places[i];
        if (other->on == APR_ON_DEVICE && other->ordinal == at->ordinal && other->recorded == NULL)
            n += apr_session_line_bytes(other, APR_LINE_RECORDED);
    }
    return n;
}

/* Everything that the session has on the host. With devices only counted allocations are included, because drivers use the heap also. */
static apr_session_memory on_host(const apr_session *s)
{
    const int64_t grown = s->heap_program + s->heap_places + s->heap_runs;
    apr_session_memory m = {.on = APR_ON_HOST, .tables = table_bytes(s), .allowed = APR_HOST_SLACK_BYTES};

    for (int i = 0; i < s->n_places; i++) {
        m.mapped += mapped_bytes(&s->places[i].plan);
        m.planned += s->places[i].plan.host_bytes;
        if (i > 0) m.allowed += APR_HOST_SLACK_BYTES; /* each plan has its own chunks */
    }
    m.planned += m.tables - m.mapped;
    m.measured = apr_heap_in_use() == UINT64_MAX ? UINT64_MAX : grown > 0 ? (uint64_t)grown : 0;
    return m;
}

apr_session_memory apr_session_place_memory(const apr_session *s, int place)
{
    const apr_session_place *const at = &s->places[place];
    apr_session_memory m = at->on == APR_ON_DEVICE ? on_device(s, at) : on_host(s);
    const uint64_t below = m.allowed + (at->on == APR_ON_DEVICE ? not_yet_allocated(s, at) : 0);
    m.as_planned = m.measured != UINT64_MAX && m.measured <= m.planned + m.allowed && m.measured + below >= m.planned;
    return m;
}

apr_session_memory apr_session_check_memory(const apr_session *s)
{
    apr_session_memory sum = apr_session_place_memory(s, 0);

    for (int i = 1; i < s->n_places; i++) {
        const apr_session_memory m = apr_session_place_memory(s, i);
        sum.as_planned &= m.as_planned;
        if (s->places[i].on != sum.on || s->places[i].shares_card) continue;
        sum.planned += m.planned;
        sum.measured = sum.measured == UINT64_MAX || m.measured == UINT64_MAX ? UINT64_MAX : sum.measured + m.measured;
        sum.allowed += m.allowed;
    }
    return sum;
}

apr_partition_cost apr_session_cost(const apr_session *s)
{
    apr_partition_cost cost = {0};
    uint64_t *const bytes = malloc((s->program.n_weights + 1) * sizeof *bytes);

    if (bytes == NULL) return cost;
    apr_plan_model_weights(&s->program, s->model, bytes);
    cost = apr_partition_cost_of(&s->partition, &s->program, bytes);
    free(bytes);
    return cost;
}
