/* trace.c - runs a session operation by operation, on the host or a device. */
#include "runtime/session/trace.h"
#include "runtime/session/session_internal.h"

#include <string.h>

apr_status apr_trace_begin(apr_session *s, const int32_t *ids, int64_t n_ids, apr_error *err)
{
    const apr_plan *const plan = &s->places[0].plan;

    if (n_ids > plan->n_ctx - s->position)
        return apr_fail(err, APR_E_NO, "the context of %lld tokens is full: %lld more do not fit", (long long)plan->n_ctx,
                        (long long)n_ids);
    if (n_ids < 1 || n_ids > plan->n_batch || n_ids > plan->n_logits)
        return apr_fail(err, APR_E_USAGE, "a batch of %lld tokens is too small or too large for this session", (long long)n_ids);
    for (int64_t i = 0; i < n_ids; i++)
        if (ids[i] < 0 || ids[i] >= s->program.vocab_size)
            return apr_fail(err, APR_E_USAGE, "token id %d is outside the vocabulary of %lld", (int)ids[i],
                            (long long)s->program.vocab_size);
    if (s->position == 0) APR_TRY(apr_session_clear_states(s, err));
    s->traced = (apr_session_batch){
        .ids = ids, .n_tokens = n_ids, .n_all = n_ids, .n_rows = n_ids, .position = s->position, .sequence = s->sequence};
    return APR_OK;
}

apr_status apr_trace_run(apr_session *s, size_t op, apr_error *err)
{
    APR_TRY(apr_session_go_on(s, err));
    APR_TRY(apr_session_run_op(s, &s->traced, &s->program.ops[op], err));
    return apr_session_check_devices(s, "one operation", err);
}

/* Copies from host memory to a place. */
static apr_status copy_to_place(apr_session *s, const apr_session_place *at, void *to, const void *from, size_t n_bytes, apr_error *err)
{
    if (at->device != NULL) return s->options.cuda->upload(at->device, to, from, n_bytes, err);
    memcpy(to, from, n_bytes);
    return APR_OK;
}

static size_t value_bytes(const apr_session *s, int value)
{
    return (size_t)(s->traced.n_tokens * s->program.values[value].width) * sizeof(float);
}

apr_status apr_trace_read(apr_session *s, int value, float *to, apr_error *err)
{
    return apr_session_fetch(s, apr_session_place_of_value(s, value), to, apr_session_value_at(s, value), value_bytes(s, value), err);
}

apr_status apr_trace_write(apr_session *s, int value, const float *from, apr_error *err)
{
    return copy_to_place(s, apr_session_place_of_value(s, value), apr_session_value_at(s, value), from, value_bytes(s, value), err);
}

const float *apr_trace_device_value(apr_session *s, int value)
{
    return apr_session_place_of_value(s, value)->device != NULL ? apr_session_value_at(s, value) : NULL;
}

apr_status apr_trace_wait(apr_session *s, int value, apr_error *err)
{
    apr_cuda_device *const device = apr_session_place_of_value(s, value)->device;
    return device != NULL ? s->options.cuda->check(device, "calibration", err) : APR_OK;
}

void apr_trace_end(apr_session *s) { s->position += s->traced.n_tokens; }

size_t apr_trace_cell_bytes(const apr_session *s, int state, int which)
{
    const apr_state *const facts = &s->program.states[state];
    if (which == 1 && facts->values_in_keys) return 0;
    return (size_t)(apr_kv_row_bytes(s->places[0].plan.kv_dtype, which == 0 ? facts->key_dim : facts->value_dim) * facts->n_heads);
}

/* Keys (which = 0) or values (1) of a state. */
static apr_cache cache_at(const apr_session *s, int state, int which)
{
    const apr_op_memory arena =
        apr_session_op_memory(s, &(apr_session_batch){.sequence = s->sequence}, apr_session_place_of_state(s, state));
    return apr_op_memory_cache(&arena, state, which);
}

/* Copies positions in order, in as few runs as the ring of cells allows: into `to`, or out of `from` if it is not NULL. */
static apr_status copy_ring(apr_session *s, int state, int which, int64_t first, int64_t n, uint8_t *to, const uint8_t *from,
                            apr_error *err)
{
    const size_t cell = apr_trace_cell_bytes(s, state, which);
    const apr_session_place *const at = apr_session_place_of_state(s, state);
    const apr_cache cache = cache_at(s, state, which);

    for (int64_t i = 0, part; i < n && cell > 0; i += part) {
        const int64_t begin = (first + i) % cache.n_cells, left = cache.n_cells - begin;
        uint8_t *const cells = cache.data + (size_t)begin * cell;
        part = left < n - i ? left : n - i;
        if (from != NULL) APR_TRY(copy_to_place(s, at, cells, from + (size_t)i * cell, (size_t)part * cell, err));
        else APR_TRY(apr_session_fetch(s, at, to + (size_t)i * cell, cells, (size_t)part * cell, err));
    }
    return APR_OK;
}

apr_status apr_trace_read_cells(apr_session *s, int state, int64_t first, int64_t n, uint8_t *to, apr_error *err)
{
    APR_TRY(copy_ring(s, state, 0, first, n, to, NULL, err));
    return copy_ring(s, state, 1, first, n, to + (size_t)n * apr_trace_cell_bytes(s, state, 0), NULL, err);
}

apr_status apr_trace_write_cells(apr_session *s, int state, int64_t first, int64_t n, const uint8_t *from, apr_error *err)
{
    APR_TRY(copy_ring(s, state, 0, first, n, NULL, from, err));
    return copy_ring(s, state, 1, first, n, NULL, from + (size_t)n * apr_trace_cell_bytes(s, state, 0), err);
}

apr_status apr_trace_read_numbers(apr_session *s, int state, float *to, apr_error *err)
{
    const apr_session_place *const at = apr_session_place_of_state(s, state);
    const size_t n_bytes = (size_t)s->program.states[state].n_floats * sizeof *to;
    return apr_session_fetch(s, at, to, at->states + at->plan.state_offsets[state], n_bytes, err);
}

apr_status apr_trace_write_numbers(apr_session *s, int state, const float *from, apr_error *err)
{
    const apr_session_place *const at = apr_session_place_of_state(s, state);
    const size_t n_bytes = (size_t)s->program.states[state].n_floats * sizeof *from;
    return copy_to_place(s, at, at->states + at->plan.state_offsets[state], from, n_bytes, err);
}

void apr_trace_watch(apr_session *s, apr_op_kind kind, apr_trace_watch_fn watch, void *user)
{
    s->watch = watch;
    s->watched = kind;
    s->watch_user = user;
}

void apr_trace_only_products(apr_session *s, bool only)
{
    s->only_products = only;
    for (int i = 0; i < s->n_places; i++)
        if (s->places[i].device != NULL) apr_session_drop_recording(s, &s->places[i]);
}

int64_t apr_trace_n_tokens(const apr_session *s) { return s->traced.n_tokens; }

void apr_trace_seek(apr_session *s, int64_t position) { s->position = position; }

const apr_tensor *apr_trace_tensor(const apr_session *s, int slot) { return slot >= 0 ? s->tensors[slot] : NULL; }

const apr_tensor *apr_trace_tensors(const apr_session *s, int slot, int64_t *n)
{
    *n = slot >= 0 ? apr_session_n_slot_tensors(s, (size_t)slot) : 0;
    return *n > 0 ? apr_session_slot_tensors(s, (size_t)slot) : NULL;
}

apr_cuda_device *apr_trace_device(const apr_session *s, const apr_cuda_api **cuda)
{
    *cuda = s->options.cuda;
    return s->places[0].device;
}

const apr_model *apr_trace_model(const apr_session *s) { return s->model; }

/* Are there matrices whose values would be rounded by FP16? Not 16-bit ones, nor packed ones that decode to 16 bits. */
static bool has_wider_weights(const apr_session *s)
{
    for (size_t i = 0; i < s->program.n_weights; i++) {
        const apr_tensor *const parts = apr_session_slot_tensors(s, i);
        if (parts == NULL || (s->program.weights[i].uses & APR_USE_MULTIPLIED) == 0) continue;
        if (parts->dtype != APR_F16 && parts->dtype != APR_BF16) return true;
    }
    return false;
}

int64_t apr_trace_fp16_above(const apr_session *s)
{
    if (!apr_session_has_device(s)) return INT64_MAX;
    if (s->options.no_direct) return 0;
    if (s->exact) return INT64_MAX;
    return has_wider_weights(s) ? APR_CUDA_FEW_TOKENS : APR_CUDA_CAREFUL_TOKENS;
}

/* Does the host have products that round their inputs? Some have a single token even in a prompt: the head's, an expert's. */
static bool rounds_on_host(const apr_session *s)
{
    for (int i = 0; i < s->n_places; i++) {
        const apr_backend *const backend = s->places[i].backend;
        if (s->places[i].on != APR_ON_HOST || backend->ops[APR_OP_LINEAR] != apr_host_backend.ops[APR_OP_LINEAR]) continue;
        for (size_t w = 0; w < s->program.n_weights; w++) {
            const apr_tensor *const parts = apr_session_slot_tensors(s, w);
            if (parts != NULL && (s->program.weights[w].uses & APR_USE_MULTIPLIED) != 0 && apr_host_rounds_inputs(parts)) return true;
        }
    }
    return false;
}

apr_run_facts apr_trace_run_facts(const apr_session *s, int64_t n_together)
{
    const apr_plan *const plan = &s->places[0].plan;
    const int64_t most = n_together < plan->n_batch ? n_together : plan->n_batch;
    const bool on_device = apr_session_has_device(s);
    bool fp8_products = false;

    for (int i = 0; i < s->n_places; i++) fp8_products |= s->places[i].fp8_products;
    return (apr_run_facts){.on = on_device                                  ? APR_RUNS_ON_DEVICE
                                 : s->places[0].backend == &apr_ref_backend ? APR_RUNS_ON_REF
                                                                            : APR_RUNS_ON_HOST,
                           .fp16_products = most > apr_trace_fp16_above(s),
                           .fp8_products = fp8_products && !s->exact,
                           .i16_products =
                               (most == 1 && s->positions == NULL && s->places[0].fusion.n_steps > 0 && !s->exact && s->watch == NULL) ||
                               rounds_on_host(s),
                           .kv_dtype = plan->kv_dtype};
}
