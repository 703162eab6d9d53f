/* fake_device_ops.c - the operations of a fake CUDA device: kernels/ref's, decode GEMVs, and graphs of them. */
#include "formats/tensor/packing.h"
#include "kernels/ref/ref_ops.h"
#include "runtime/check/compare.h"
#include "tests/support/fake_device_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_EXPERTS = 64, MOST_RECORDED = 1024 };

/* What was recorded, as it was given: the same addresses again. */
struct apr_cuda_graph {
    apr_cuda_device *device;
    struct {
        enum { RECORDED_OP, RECORDED_DECODE_GEMV, RECORDED_INPUTS, RECORDED_QKV_EPILOGUE, RECORDED_ATTEND } what;
        apr_op_kind kind;
        apr_op_args args;
        apr_decode_gemv_args gemv;
        apr_decode_gemv_inputs inputs;
        apr_qkv_epilogue_args qkv;
        uint8_t *activations_out; /* of attention, whose args are above */
    } ops[MOST_RECORDED];
    int n_ops;
};

static int n_replays, n_graphs, n_decode_gemvs, n_qkv_epilogues;
static bool records = true, has_gemv;
static int64_t n_left = -1;

int fake_device_replays(void) { return n_replays; }
int fake_device_graphs(void) { return n_graphs; }
int fake_device_decode_gemvs(void) { return n_decode_gemvs; }
int fake_device_qkv_epilogues(void) { return n_qkv_epilogues; }
void fake_device_records(bool on) { records = on; }
void fake_device_has_decode_gemv(bool on) { has_gemv = on; }
void fake_device_fail_after(int64_t n_operations) { n_left = n_operations; }
void fake_drop_replays(void) { n_replays = 0; }

/* --- operations that kernels/ref has --- */

/* Matrices side by side, their scales, and what describes those that are packed. */
typedef struct unstacked {
    apr_tensor matrices[MOST_EXPERTS], scales[MOST_EXPERTS];
    apr_packing packings[MOST_EXPERTS];
} unstacked;

/* kernels/ref takes matrices side by side where a device has a stack of them. */
static const apr_tensor *unstack(const apr_tensor *stack, unstacked *u)
{
    apr_tensor *const matrices = u->matrices;
    if (stack == NULL) return NULL;
    for (int64_t e = 0; e < stack->dims[0] && e < MOST_EXPERTS; e++) {
        matrices[e] = *stack;
        matrices[e].rank = 2;
        matrices[e].dims[0] = stack->dims[1], matrices[e].dims[1] = stack->dims[2];
        matrices[e].n_bytes = stack->n_bytes / (uint64_t)stack->dims[0];
        matrices[e].data = stack->data + (uint64_t)e * matrices[e].n_bytes;
        if (stack->scale != NULL) {
            u->scales[e] = *stack->scale;
            u->scales[e].dims[0] = 1;
            u->scales[e].n_bytes = stack->scale->n_bytes / (uint64_t)stack->dims[0];
            u->scales[e].data = stack->scale->data + (uint64_t)e * u->scales[e].n_bytes;
            matrices[e].scale = &u->scales[e];
        }
        if (stack->packing == NULL) continue;
        u->packings[e] = *stack->packing;
        u->packings[e].first_row = e * stack->dims[1];
        matrices[e].packing = &u->packings[e];
        matrices[e].data = NULL;
    }
    return matrices;
}

static void read_position(int64_t *position, const int64_t *position_at)
{
    if (position_at != NULL) *position = *position_at;
}

/* Where operations read the position in the device's memory. */
static void read_positions(apr_op_kind kind, apr_op_args *args)
{
    if (kind == APR_OP_ANGLES) read_position(&args->angles.position, args->angles.position_at);
    if (kind == APR_OP_POSITIONS) read_position(&args->positions.position, args->positions.position_at);
    if (kind == APR_OP_KV_STORE) read_position(&args->kv_store.position, args->kv_store.position_at);
    if (kind == APR_OP_INDEX) read_position(&args->index.position, args->index.position_at);
    if (kind == APR_OP_ATTEND) read_position(&args->attend.position, args->attend.position_at);
    if (kind == APR_OP_SCALE) read_position(&args->scale.position, args->scale.position_at);
}

/* --- rows of several sequences: one after the other, each in its sequence's memory --- */

static apr_cache cache_of(const apr_cache *all, int64_t t)
{
    apr_cache cache = *all;
    if (all->pages != NULL) cache.pages = all->pages + t * all->pages_stride;
    else if (all->slots != NULL) cache.data = all->data + (uint64_t)all->slots[t] * all->slot_bytes;
    return cache;
}

static float *state_of(float *state, const int32_t *slots, uint64_t slot_bytes, int64_t t)
{
    return (float *)(void *)((uint8_t *)state + (uint64_t)slots[t] * slot_bytes);
}

static apr_op_args token_of_attend(const apr_attend_args *all, int64_t t)
{
    apr_op_args one = {.attend = *all};
    one.attend.n_tokens = 1, one.attend.position = all->position_at[t];
    one.attend.q += t * all->n_heads * all->key_dim, one.attend.out += t * all->n_heads * all->value_dim;
    if (all->chosen != NULL) one.attend.chosen += t * apr_index_row(all->n_chosen);
    one.attend.keys = cache_of(&all->keys, t), one.attend.values = cache_of(&all->values, t);
    return one;
}

static apr_op_args token_of_index(const apr_index_args *all, int64_t t)
{
    apr_op_args one = {.index = *all};
    one.index.n_tokens = 1, one.index.position = all->position_at[t];
    one.index.q += t * all->n_heads * all->head_dim, one.index.weights += t * all->n_heads;
    one.index.out += t * apr_index_row(all->n_chosen);
    one.index.keys = cache_of(&all->keys, t);
    return one;
}

static apr_op_args token_of_store(const apr_kv_store_args *all, int64_t t)
{
    apr_op_args one = {.kv_store = *all};
    one.kv_store.n_tokens = 1, one.kv_store.position = all->position_at[t];
    one.kv_store.k += t * all->n_kv_heads * all->key_dim;
    if (all->v != NULL) one.kv_store.v += t * all->n_kv_heads * all->value_dim;
    one.kv_store.keys = cache_of(&all->keys, t), one.kv_store.values = cache_of(&all->values, t);
    return one;
}

static apr_op_args token_of_angles(const apr_angles_args *all, int64_t t)
{
    apr_op_args one = {.angles = *all};
    one.angles.n_tokens = 1, one.angles.position = all->position_at[t];
    one.angles.out += t * 2 * all->n_freqs;
    return one;
}

static apr_op_args token_of_scale(const apr_scale_args *all, int64_t t)
{
    apr_op_args one = {.scale = *all};
    one.scale.n_tokens = 1, one.scale.position = all->position_at[t];
    one.scale.x += t * all->width, one.scale.out += t * all->width;
    return one;
}

static apr_op_args token_of_conv(const apr_conv_args *all, int64_t t)
{
    apr_op_args one = {.conv = *all};
    one.conv.n_tokens = 1;
    one.conv.x += t * all->width, one.conv.out += t * all->width;
    one.conv.state = state_of(all->state, all->slots, all->slot_bytes, t);
    return one;
}

static apr_op_args token_of_delta(const apr_delta_args *all, int64_t t)
{
    apr_op_args one = {.delta = *all};
    one.delta.n_tokens = 1;
    one.delta.qkv += t * (2 * all->n_key_heads * all->key_dim + all->n_value_heads * all->value_dim);
    one.delta.a += t * all->n_value_heads * apr_delta_gates(all), one.delta.b += t * all->n_value_heads,
        one.delta.out += t * all->n_value_heads * all->value_dim;
    one.delta.state = state_of(all->state, all->slots, all->slot_bytes, t);
    return one;
}

static apr_op_args token_of_ssd(const apr_ssd_args *all, int64_t t)
{
    apr_op_args one = {.ssd = *all};
    const int64_t n_x = all->n_heads * all->head_dim;
    one.ssd.n_tokens = 1;
    one.ssd.xbc += t * (n_x + 2 * all->n_groups * all->state_dim), one.ssd.dt += t * all->n_heads, one.ssd.out += t * n_x;
    one.ssd.state = state_of(all->state, all->slots, all->slot_bytes, t);
    return one;
}

static apr_op_args token_of_positions(const apr_positions_args *all, int64_t t)
{
    apr_op_args one = {.positions = *all};
    one.positions.n_tokens = 1, one.positions.position = all->position_at[t], one.positions.out += t * all->width;
    return one;
}

/* How many rows of several sequences there are, and the t-th; 0: they are of one sequence. */
static int64_t n_separate_rows(apr_op_kind kind, const apr_op_args *a)
{
    if (kind == APR_OP_INDEX) return a->index.per_sequence ? a->index.n_tokens : 0;
    if (kind == APR_OP_ATTEND) return a->attend.per_sequence ? a->attend.n_tokens : 0;
    if (kind == APR_OP_KV_STORE) return a->kv_store.per_sequence ? a->kv_store.n_tokens : 0;
    if (kind == APR_OP_POSITIONS) return a->positions.per_sequence ? a->positions.n_tokens : 0;
    if (kind == APR_OP_ANGLES) return a->angles.per_sequence ? a->angles.n_tokens : 0;
    if (kind == APR_OP_SCALE) return a->scale.per_sequence ? a->scale.n_tokens : 0;
    if (kind == APR_OP_CONV) return a->conv.slots != NULL ? a->conv.n_tokens : 0;
    if (kind == APR_OP_DELTA) return a->delta.slots != NULL ? a->delta.n_tokens : 0;
    return kind == APR_OP_SSD && a->ssd.slots != NULL ? a->ssd.n_tokens : 0;
}

static apr_op_args token_of(apr_op_kind kind, const apr_op_args *a, int64_t t)
{
    if (kind == APR_OP_INDEX) return token_of_index(&a->index, t);
    if (kind == APR_OP_ATTEND) return token_of_attend(&a->attend, t);
    if (kind == APR_OP_KV_STORE) return token_of_store(&a->kv_store, t);
    if (kind == APR_OP_POSITIONS) return token_of_positions(&a->positions, t);
    if (kind == APR_OP_ANGLES) return token_of_angles(&a->angles, t);
    if (kind == APR_OP_SCALE) return token_of_scale(&a->scale, t);
    if (kind == APR_OP_CONV) return token_of_conv(&a->conv, t);
    return kind == APR_OP_DELTA ? token_of_delta(&a->delta, t) : token_of_ssd(&a->ssd, t);
}

/* --- all of them --- */

/* Arguments with the matrices that they point to, as the device sees them, and with the host's workspace. */
typedef struct seen_args {
    apr_op_args args;
    seen_tensor matrices[3];
    unstacked gate, up, down;
} seen_args;

static void see(apr_cuda_device *device, apr_op_kind kind, const apr_op_args *args, seen_args *seen)
{
    const apr_workspace work = {.data = device->work, .slice = WORK_FLOATS, .n_threads = 1};
    apr_op_args *const own = &seen->args;
    seen_tensor *const matrices = seen->matrices;

    *own = *args;
    fake_see(device, own, sizeof *own);
    if (kind == APR_OP_EMBED) own->embed.table = fake_see_tensor(device, own->embed.table, matrices);
    if (kind == APR_OP_POSITIONS) own->positions.table = fake_see_tensor(device, own->positions.table, matrices);
    if (kind == APR_OP_LINEAR) own->linear.weight = fake_see_tensor(device, own->linear.weight, matrices);
    if (kind == APR_OP_LINEAR) own->linear.work = work;
    if (kind == APR_OP_INDEX) own->index.work = work;
    if (kind == APR_OP_ATTEND) own->attend.work = work;
    if (kind == APR_OP_ROUTE) own->route.work = work;
    if (kind == APR_OP_DELTA) own->delta.work = work;
    if (kind != APR_OP_EXPERTS) return;
    own->experts.work = work;
    own->experts.gate = unstack(fake_see_tensor(device, own->experts.gate, &matrices[0]), &seen->gate);
    own->experts.up = unstack(fake_see_tensor(device, own->experts.up, &matrices[1]), &seen->up);
    own->experts.down = unstack(fake_see_tensor(device, own->experts.down, &matrices[2]), &seen->down);
}

static apr_status run_now(apr_cuda_device *device, apr_op_kind kind, const apr_op_args *args, apr_error *err)
{
    seen_args seen;
    apr_op_args *const own = &seen.args;

    if (n_left == 0) return apr_fail(err, APR_E_DEVICE, "a fake fault in %s", apr_op_name(kind));
    n_left -= n_left > 0;
    see(device, kind, args, &seen);
    fake_touch(device, true);
    read_positions(kind, own);
    const int64_t n = n_separate_rows(kind, own);
    for (int64_t t = 0; t < n; t++) {
        apr_op_args one = token_of(kind, own, t);
        apr_ref_backend.ops[kind](&one);
    }
    if (n == 0) apr_ref_backend.ops[kind](own);
    fake_touch(device, false);
    return APR_OK;
}

/* The largest by the host's own function, which defines them. */
apr_status fake_topk(apr_cuda_device *device, const float *logits, int64_t n, int n_wanted, float temperature, void *work,
                     apr_cuda_topk_result *found, apr_error *err)
{
    apr_topk best = {.n_wanted = n_wanted, .temperature = temperature};
    (void)err;
    fake_touch(device, true);
    found = fake_seen(device, found);
    memset(fake_seen(device, work), 0xff, apr_cuda_topk_bytes(n)); /* it is to be had */
    apr_topk_find(&best, fake_seen(device, logits), n);
    memset(found->keys, 0, sizeof found->keys);
    for (int i = 0; i < best.n; i++) found->keys[i] = apr_topk_key(best.logits[i], best.ids[i]);
    found->sum = best.sum;
    memcpy(found->parts, best.parts, sizeof found->parts);
    fake_touch(device, false);
    return APR_OK;
}

apr_status fake_topk_rows(apr_cuda_device *device, const float *logits, int64_t n, int64_t n_rows, const apr_topk *wishes, void *work,
                          uint64_t n_bytes, apr_cuda_topk_result *found, apr_error *err)
{
    fake_touch(device, true);
    memset(fake_seen(device, work), 0xff, n_bytes); /* it is to be had */
    fake_touch(device, false);
    for (int64_t r = 0; r < n_rows; r++)
        APR_TRY(fake_topk(device, logits + r * n, n, wishes[r].n_wanted, wishes[r].temperature, work, &found[r], err));
    return APR_OK;
}

apr_status fake_compare_logits(apr_cuda_device *device, const float *reference, const float *other, int64_t n, int64_t n_rows,
                               const int32_t *next, apr_cuda_logits_difference *found, apr_error *err)
{
    (void)err;
    fake_touch(device, true);
    reference = fake_seen(device, reference);
    other = fake_seen(device, other);
    next = fake_seen(device, next);
    found = fake_seen(device, found);
    for (int64_t i = 0; i < n_rows; i++) {
        const apr_row_difference d = apr_compare_logits(reference + i * n, other + i * n, n, next[i]);
        found[i] = (apr_cuda_logits_difference){d.kl, d.nll_reference, d.nll_other, d.same_top};
    }
    fake_touch(device, false);
    return APR_OK;
}

apr_status fake_column_squares(apr_cuda_device *device, const float *x, int64_t n_rows, int64_t width, double *sums, apr_error *err)
{
    (void)err;
    fake_touch(device, true);
    x = fake_seen(device, x);
    sums = fake_seen(device, sums);
    for (int64_t i = 0; i < n_rows * width; i++) sums[i % width] += (double)x[i] * (double)x[i];
    fake_touch(device, false);
    return APR_OK;
}

bool fake_has_rows(const apr_cuda_device *device, const apr_tensor *weight, int64_t n_out, int64_t n_in, int64_t widest,
                   const apr_workspace *work)
{
    (void)device, (void)weight, (void)n_out, (void)n_in, (void)widest, (void)work;
    return false;
}

/* --- decode GEMVs: of rows as they are, so that all other operations here can also read them --- */

bool fake_has_decode_gemv(const apr_cuda_device *device, apr_dtype dtype, int64_t n_out, int64_t n_in)
{
    (void)device;
    return has_gemv && apr_tile_columns(dtype) == 0 && apr_has_decode_gemv(dtype, n_out, n_in, 9);
}

apr_status fake_expect_decode_gemv(apr_cuda_device *device, bool on, apr_error *err)
{
    (void)device, (void)on, (void)err;
    return APR_OK;
}

/* Bytes 0 to 255 of a tile: high ones; then low ones; then a scale for each 16. */
static void write_activations_i16(uint8_t *activations, int64_t n, const float *x)
{
    for (int64_t i = 0; i < n; i += 16) {
        uint8_t *const tile = activations + i / APR_ACTIVATIONS_I16_TILE * APR_ACTIVATIONS_I16_TILE_BYTES;
        const int64_t c = i % APR_ACTIVATIONS_I16_TILE;
        float most = 0.0f;
        for (int64_t k = i; k < i + 16; k++) most = fmaxf(most, fabsf(x[k]));
        const float scale = most / 32512.0f;
        memcpy(tile + 512 + c / 16 * 4, &scale, 4);
        for (int64_t k = 0; k < 16; k++) {
            const int whole = most > 0.0f ? (int)rintf(x[i + k] / scale) : 0, high = (whole + 128) >> 8;
            tile[c + k] = (uint8_t)(int8_t)high;
            tile[256 + c + k] = (uint8_t)(int8_t)(whole - 256 * high);
        }
    }
}

static void read_activations_i16(const uint8_t *activations, int64_t n, float *x)
{
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *const tile = activations + i / APR_ACTIVATIONS_I16_TILE * APR_ACTIVATIONS_I16_TILE_BYTES;
        const int64_t c = i % APR_ACTIVATIONS_I16_TILE;
        float scale;
        memcpy(&scale, tile + 512 + c / 16 * 4, 4);
        x[i] = scale * (float)(256 * (int8_t)tile[c] + (int8_t)tile[256 + c]);
    }
}

static float *floats(int64_t n)
{
    float *const x = calloc((size_t)n + 1, sizeof *x);
    if (x == NULL) abort();
    return x;
}

static apr_status inputs_now(apr_cuda_device *device, const apr_decode_gemv_inputs *args)
{
    apr_decode_gemv_inputs own = *args;
    const apr_decode_gemv_inputs *const a = &own;
    float *const x = floats(a->n);
    double squares = 0.0;
    fake_see(device, &own, sizeof own);
    fake_touch(device, true);
    for (int64_t i = 0; i < a->n && a->addend != NULL; i++) a->sum[i] = a->x[i] + a->addend[i];
    if (a->addend != NULL) own.x = a->sum;
    for (int64_t i = 0; i < a->n; i++) squares += (double)a->x[i] * a->x[i];
    const float factor = a->norm ? (float)(1.0 / sqrt(squares / (double)a->n + (double)a->eps)) : 1.0f;
    for (int64_t i = 0; i < a->n; i++) x[i] = a->x[i] * factor * (a->gain != NULL ? a->gain[i] + a->gain_offset : 1.0f);
    write_activations_i16(a->activations_out, a->n, x);
    if (a->out != NULL) memcpy(a->out, x, (size_t)a->n * sizeof *x);
    fake_touch(device, false);
    free(x);
    return APR_OK;
}

/* Of one part: y * factor + bias. */
static float *product_of(const apr_decode_gemv_args *a, int part, const float *x, float factor)
{
    const apr_tensor *const weight = a->parts[part].weight;
    const int64_t n_out = apr_tensor_rows(weight);
    float *const y = floats(n_out), *const row = floats(a->n_in);
    for (int64_t r = 0; r < n_out; r++) {
        double sum = 0.0;
        apr_decode_rows(weight, r, 1, row);
        for (int64_t i = 0; i < a->n_in; i++) sum += (double)row[i] * x[i];
        y[r] = (float)sum * factor + (a->parts[part].bias != NULL ? a->parts[part].bias[r] : 0.0f);
    }
    free(row);
    return y;
}

static void leave(const apr_decode_gemv_args *a, int64_t n, float *y)
{
    for (int64_t i = 0; a->out_squares != NULL && i < n; i++)
        a->out_squares[i / 16] = (i % 16 == 0 ? 0.0f : a->out_squares[i / 16]) + y[i] * y[i];
    for (int64_t i = 0; a->gain != NULL && i < n; i++) y[i] *= a->gain[i] + a->gain_offset;
    if (a->activations_out != NULL) write_activations_i16(a->activations_out, n, y);
}

static apr_status decode_gemv_now(apr_cuda_device *device, const apr_decode_gemv_args *args)
{
    apr_decode_gemv_args own = *args;
    const apr_decode_gemv_args *const a = &own;
    seen_tensor weights[APR_DECODE_GEMV_PARTS];
    float *const x = floats(a->n_in);
    double squares = 0.0;
    n_decode_gemvs++;
    fake_see(device, &own, sizeof own);
    for (int i = 0; i < a->n_parts; i++) own.parts[i].weight = fake_see_tensor(device, own.parts[i].weight, &weights[i]);
    fake_touch(device, true);
    read_activations_i16(a->activations, a->n_in, x);
    for (int64_t i = 0; a->squares != NULL && i < a->n_in / 16; i++) squares += a->squares[i];
    const float factor = a->squares != NULL ? (float)(1.0 / sqrt(squares / (double)a->n_in + (double)a->eps)) : 1.0f;
    for (int part = 0; part < (a->epilogue == APR_EPILOGUE_GLU ? 1 : a->n_parts); part++) {
        const int64_t n = apr_tensor_rows(a->parts[part].weight);
        float *const y = product_of(a, part, x, factor), *const up = a->epilogue == APR_EPILOGUE_GLU ? product_of(a, 1, x, factor) : NULL;
        for (int64_t i = 0; i < n; i++) {
            if (a->epilogue == APR_EPILOGUE_ADD) y[i] += a->residual[i];
            if (up != NULL) y[i] = apr_glu_of(&a->glu, y[i], up[i]);
        }
        if (a->parts[part].out != NULL) memcpy(a->parts[part].out, y, (size_t)n * sizeof *y);
        leave(a, n, y);
        free(up);
        free(y);
    }
    fake_touch(device, false);
    free(x);
    return APR_OK;
}

/* --- QKV epilogues, and attention that ends in int16 activations --- */

/* The host's operations one after the other; only what the epilogue promises is written. */
static void rotate_heads(const apr_norm_args *norm, const apr_rope_args *rope, float *out)
{
    apr_op_args normed = {.norm = *norm}, rotated = {.rope = *rope};
    rotated.rope.out = normed.norm.out = out;
    if (norm->chunk > 0) {
        apr_ref_backend.ops[APR_OP_NORM](&normed);
        rotated.rope.x = out;
    }
    apr_ref_backend.ops[APR_OP_ROPE](&rotated);
}

static apr_status qkv_epilogue_now(apr_cuda_device *device, const apr_qkv_epilogue_args *args, apr_error *err)
{
    apr_qkv_epilogue_args own = *args;
    const apr_qkv_epilogue_args *const a = &own;
    float *const q = floats(a->q.n_heads * a->q.head_dim), *const k = floats(a->k.n_heads * a->k.head_dim);
    (void)err;
    n_qkv_epilogues++;
    fake_see(device, &own, sizeof own);
    apr_op_args store = {.kv_store = a->store};
    fake_touch(device, true);
    rotate_heads(&a->k_norm, &a->k, k);
    rotate_heads(&a->q_norm, &a->q, q);
    memcpy(a->q.out, q, (size_t)(a->q.n_heads * a->q.head_dim) * sizeof *q);
    store.kv_store.k = k;
    read_positions(APR_OP_KV_STORE, &store);
    apr_ref_backend.ops[APR_OP_KV_STORE](&store);
    fake_touch(device, false);
    free(q);
    free(k);
    return APR_OK;
}

static apr_status attend_now(apr_cuda_device *device, const apr_op_args *args, uint8_t *activations_out, apr_error *err)
{
    APR_TRY(run_now(device, APR_OP_ATTEND, args, err));
    fake_touch(device, true);
    write_activations_i16(fake_seen(device, activations_out), args->attend.n_heads * args->attend.value_dim,
                          fake_seen(device, args->attend.out));
    fake_touch(device, false);
    return APR_OK;
}

/* --- what is recorded --- */

apr_status fake_record(apr_cuda_device *device, apr_error *err)
{
    device->recording = calloc(1, sizeof *device->recording);
    if (device->recording == NULL) return apr_no_memory(err, "a fake graph");
    device->recording->device = device;
    n_graphs++;
    return APR_OK;
}

void fake_free_graph(apr_cuda_graph *graph)
{
    n_graphs -= graph != NULL;
    free(graph);
}

apr_status fake_end_record(apr_cuda_device *device, apr_cuda_graph **graph, apr_error *err)
{
    *graph = device->recording;
    device->recording = NULL;
    if (records) return APR_OK;
    fake_free_graph(*graph);
    *graph = NULL;
    return apr_fail(err, APR_E_DEVICE, "a fake that does not record");
}

apr_status fake_replay(apr_cuda_graph *graph, apr_error *err)
{
    n_replays++;
    for (int i = 0; i < graph->n_ops; i++) switch (graph->ops[i].what) {
        case RECORDED_OP: APR_TRY(run_now(graph->device, graph->ops[i].kind, &graph->ops[i].args, err)); break;
        case RECORDED_DECODE_GEMV: APR_TRY(decode_gemv_now(graph->device, &graph->ops[i].gemv)); break;
        case RECORDED_INPUTS: APR_TRY(inputs_now(graph->device, &graph->ops[i].inputs)); break;
        case RECORDED_QKV_EPILOGUE: APR_TRY(qkv_epilogue_now(graph->device, &graph->ops[i].qkv, err)); break;
        case RECORDED_ATTEND: APR_TRY(attend_now(graph->device, &graph->ops[i].args, graph->ops[i].activations_out, err)); break;
        }
    return APR_OK;
}

apr_status fake_decode_gemv(apr_cuda_device *device, const apr_decode_gemv_args *args, apr_error *err)
{
    apr_cuda_graph *const graph = device->recording;
    if (graph == NULL) {
        const apr_status status = decode_gemv_now(device, args);
        return status == APR_OK && args->concurrent != NULL ? fake_decode_gemv(device, args->concurrent, err) : status;
    }
    if (graph->n_ops == MOST_RECORDED) abort();
    graph->ops[graph->n_ops].what = RECORDED_DECODE_GEMV;
    graph->ops[graph->n_ops++].gemv = *args;
    /* its arguments are the caller's until this call returns */
    return args->concurrent != NULL ? fake_decode_gemv(device, args->concurrent, err) : APR_OK;
}

apr_status fake_decode_gemv_inputs(apr_cuda_device *device, const apr_decode_gemv_inputs *args, apr_error *err)
{
    apr_cuda_graph *const graph = device->recording;
    (void)err;
    if (graph == NULL) return inputs_now(device, args);
    if (graph->n_ops == MOST_RECORDED) abort();
    graph->ops[graph->n_ops].what = RECORDED_INPUTS;
    graph->ops[graph->n_ops++].inputs = *args;
    return APR_OK;
}

apr_status fake_qkv_epilogue(apr_cuda_device *device, const apr_qkv_epilogue_args *args, apr_error *err)
{
    apr_cuda_graph *const graph = device->recording;
    if (graph == NULL) return qkv_epilogue_now(device, args, err);
    if (graph->n_ops == MOST_RECORDED) abort();
    graph->ops[graph->n_ops].what = RECORDED_QKV_EPILOGUE;
    graph->ops[graph->n_ops++].qkv = *args;
    return APR_OK;
}

apr_status fake_attend_to_i16(apr_cuda_device *device, const apr_qkv_epilogue_args *qkv, const apr_attend_args *args,
                              uint8_t *activations_out, apr_error *err)
{
    if (qkv != NULL) APR_TRY(fake_qkv_epilogue(device, qkv, err));
    apr_cuda_graph *const graph = device->recording;
    const apr_op_args given = {.attend = *args};
    if (graph == NULL) return attend_now(device, &given, activations_out, err);
    if (graph->n_ops == MOST_RECORDED) abort();
    graph->ops[graph->n_ops].what = RECORDED_ATTEND;
    graph->ops[graph->n_ops].activations_out = activations_out;
    graph->ops[graph->n_ops++].args = given;
    return APR_OK;
}

apr_status fake_run(apr_cuda_device *device, apr_op_kind kind, const apr_op_args *args, apr_error *err)
{
    apr_cuda_graph *const graph = device->recording;
    if (graph == NULL) return run_now(device, kind, args, err);
    if (graph->n_ops == MOST_RECORDED) abort();
    graph->ops[graph->n_ops].what = RECORDED_OP;
    graph->ops[graph->n_ops].kind = kind;
    graph->ops[graph->n_ops++].args = *args;
    return APR_OK;
}
