/* fake_device.c - a CUDA device that is none. */
#define _DEFAULT_SOURCE /* anonymous mappings */
#include "tests/support/fake_device.h"

#include "formats/model/packing.h"
#include "kernels/ref/ref_ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MOST_DEVICES = 8, MOST_BLOCKS = 64, WORK_FLOATS = 1 << 20, MOST_EXPERTS = 64, MOST_PINNED = 4, MOST_RECORDED = 1024 };
static const size_t memory_bytes = (size_t)1 << 30; /* of address space for each */

void __asan_poison_memory_region(void const volatile *p, size_t n) __attribute__((weak));
void __asan_unpoison_memory_region(void const volatile *p, size_t n) __attribute__((weak));

typedef struct block {
    uint8_t *data;
    size_t n_bytes;
    bool unused; /* by anything here: nobody may touch it, once and for all */
} block;

/* Under the address sanitizer each block is malloc's; otherwise a part of one reservation, whose pages nobody may touch. */
struct apr_cuda_device {
    block blocks[MOST_BLOCKS];
    int n_blocks, nth;
    uint8_t *memory;
    size_t used;
    float *work;
    struct apr_cuda_graph *recording; /* NULL: operations are run */
    void *pinned[MOST_PINNED];
    int n_pinned;
};

/* What was recorded, as it was given: the same addresses again. */
struct apr_cuda_graph {
    apr_cuda_device *device;
    struct {
        enum { RECORDED_OP, RECORDED_FLOW, RECORDED_INPUTS } what;
        apr_op_kind kind;
        apr_op_args args;
        apr_flow_args flow;
        apr_flow_inputs inputs;
    } ops[MOST_RECORDED];
    int n_ops;
};

static uint64_t n_allocated[MOST_DEVICES];
static int n_open, n_opened, n_replays, n_graphs, n_flows;
static bool records = true, streams_products;
static bool takes_q8_0 = true;
static int64_t n_left = -1;

uint64_t fake_device_bytes_of(int nth) { return n_allocated[nth]; }
void fake_device_takes_q8_0(bool on) { takes_q8_0 = on; }
int fake_device_replays(void) { return n_replays; }
int fake_device_graphs(void) { return n_graphs; }
int fake_device_flows(void) { return n_flows; }
void fake_device_records(bool on) { records = on; }
void fake_device_streams(bool on) { streams_products = on; }
void fake_device_fail_after(int64_t n_operations) { n_left = n_operations; }

uint64_t fake_device_bytes(void)
{
    uint64_t sum = 0;
    for (int i = 0; i < n_opened; i++) sum += n_allocated[i];
    return sum;
}

/* --- memory that only its device may touch --- */

static bool has_sanitizer(void) { return __asan_poison_memory_region != NULL; }

static void let_touch(const apr_cuda_device *d, bool on)
{
    for (int i = 0; has_sanitizer() && i < d->n_blocks; i++) {
        if (d->blocks[i].unused) continue;
        if (on) __asan_unpoison_memory_region(d->blocks[i].data, d->blocks[i].n_bytes);
        else __asan_poison_memory_region(d->blocks[i].data, d->blocks[i].n_bytes);
    }
    if (!has_sanitizer() && d->used > 0 && mprotect(d->memory, d->used, on ? PROT_READ | PROT_WRITE : PROT_NONE) != 0) abort();
}

static uint8_t *take(apr_cuda_device *d, size_t n_bytes)
{
    static const size_t page = 4096;
    const size_t n = (n_bytes + page - 1) / page * page;
    if (has_sanitizer()) return malloc(n_bytes);
    if (n > memory_bytes - d->used) return NULL;
    d->used += n;
    return d->memory + d->used - n;
}

/* --- the device --- */

static apr_status facts(int ordinal, apr_cuda_facts *f, apr_error *err)
{
    (void)err;
    *f = (apr_cuda_facts){.name = "a fake",
                          .ordinal = ordinal,
                          .major = 9,
                          .n_sms = 2,
                          .threads_per_sm = 64,
                          .total_bytes = (uint64_t)1 << 34,
                          .used_bytes = UINT64_MAX};
    return APR_OK;
}

static apr_status open_device(apr_cuda_device **device, int ordinal, const apr_cuda_options *options, apr_error *err)
{
    (void)ordinal, (void)options;
    *device = NULL;
    if (n_open == 0) n_opened = n_replays = 0;
    apr_cuda_device *const d = n_opened < MOST_DEVICES ? calloc(1, sizeof *d) : NULL;
    if (d == NULL) return apr_no_memory(err, "a fake device");
    d->work = malloc(WORK_FLOATS * sizeof(float));
    d->memory = mmap(NULL, memory_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (d->work == NULL || d->memory == MAP_FAILED) abort();
    d->nth = n_opened++;
    n_allocated[d->nth] = 0;
    n_open++;
    *device = d;
    return APR_OK;
}

static void close_device(apr_cuda_device *device)
{
    if (device == NULL) return;
    let_touch(device, true);
    for (int i = 0; has_sanitizer() && i < device->n_blocks; i++) {
        __asan_unpoison_memory_region(device->blocks[i].data, device->blocks[i].n_bytes);
        free(device->blocks[i].data);
    }
    for (int i = 0; i < device->n_pinned; i++) free(device->pinned[i]);
    munmap(device->memory, memory_bytes);
    free(device->work);
    free(device);
    n_open--;
}

static apr_status memory(apr_cuda_device *device, uint64_t *n_free, uint64_t *n_total, apr_error *err)
{
    (void)device, (void)err;
    *n_free = *n_total = (uint64_t)1 << 34;
    return APR_OK;
}

static apr_status alloc(apr_cuda_device *device, uint64_t n_bytes, const char *what, void **p, apr_error *err)
{
    uint8_t *const data = n_bytes > 0 && device->n_blocks < MOST_BLOCKS ? take(device, n_bytes) : NULL;
    *p = data;
    if (n_bytes == 0) return APR_OK;
    if (data == NULL) return apr_no_memory(err, what);
    const bool unused = strcmp(what, "cuBLAS workspace") == 0;
    device->blocks[device->n_blocks++] = (block){data, n_bytes, unused};
    let_touch(device, true);
    /* NaN: what is read without being written shows. Of the largest block nothing is read, and pages never touched cost nothing */
    if (!unused) memset(data, 0xff, n_bytes);
    else if (has_sanitizer()) __asan_poison_memory_region(data, n_bytes);
    let_touch(device, false);
    n_allocated[device->nth] += n_bytes;
    return APR_OK;
}

static apr_status copy(apr_cuda_device *device, void *to, const void *from, uint64_t n_bytes, apr_error *err)
{
    (void)err;
    let_touch(device, true);
    memcpy(to, from, n_bytes);
    let_touch(device, false);
    return APR_OK;
}

static apr_status pin(apr_cuda_device *device, uint64_t n_bytes, const char *what, void **p, apr_error *err)
{
    *p = NULL;
    if (n_bytes == 0) return APR_OK;
    *p = device->n_pinned < MOST_PINNED ? aligned_alloc(256, (n_bytes + 255) / 256 * 256) : NULL;
    if (*p == NULL) return apr_no_memory(err, what);
    device->pinned[device->n_pinned++] = *p;
    return APR_OK;
}

static apr_status transfer(apr_cuda_device *from_device, const void *from, apr_cuda_device *to_device, void *to, uint64_t n_bytes,
                           apr_error *err)
{
    let_touch(from_device, true);
    const apr_status status = copy(to_device, to, from, n_bytes, err);
    let_touch(from_device, false);
    return status;
}

static apr_status clear(apr_cuda_device *device, void *p, uint64_t n_bytes, apr_error *err)
{
    (void)err;
    let_touch(device, true);
    memset(p, 0, n_bytes);
    let_touch(device, false);
    return APR_OK;
}

static apr_status start_blas(apr_cuda_device *device, void *workspace, uint64_t n_bytes, int *version, apr_error *err)
{
    (void)device, (void)workspace, (void)n_bytes, (void)err;
    *version = 0;
    return APR_OK;
}

static bool takes(apr_dtype dtype)
{
    return dtype == APR_F32 || dtype == APR_F16 || dtype == APR_BF16 || dtype == APR_F8_E4M3 || dtype == APR_MXFP4 ||
           (dtype == APR_Q8_0 && takes_q8_0);
}

static apr_status decode_f16(apr_cuda_device *device, const apr_tensor *matrix, int64_t first, int64_t n_rows, void *out, apr_error *err)
{
    const int64_t n = n_rows * apr_tensor_columns(matrix);
    float *const values = malloc((size_t)n * sizeof *values);
    if (values == NULL) return apr_no_memory(err, "a fake device");
    let_touch(device, true);
    apr_decode_rows(matrix, first, n_rows, values);
    apr_ref_codecs[APR_F16].encode(values, out, n);
    let_touch(device, false);
    free(values);
    return APR_OK;
}

static void use(apr_cuda_device *device, bool on) { (void)device, (void)on; }

static bool takes_packed = true;
void fake_device_takes_packed(bool on) { takes_packed = on; }

/* The regular form alone. */
static bool takes_packing(const apr_packing *p, apr_dtype dtype)
{
    (void)dtype;
    return takes_packed && p->order == APR_CODES_BY_ROW && (p->bits == 4 || p->bits == 8) && p->nested == NULL && !p->scales_down &&
           p->first_row == 0;
}

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

static bool is_lost(const apr_cuda_device *device) { return device == NULL; }

static void read_position(int64_t *position, const int64_t *position_at)
{
    if (position_at != NULL) *position = *position_at;
}

/* Where operations are told to read the position in the device's memory. */
static void read_positions(apr_op_kind kind, apr_op_args *args)
{
    if (kind == APR_OP_ANGLES) read_position(&args->angles.position, args->angles.position_at);
    if (kind == APR_OP_KV_STORE) read_position(&args->kv_store.position, args->kv_store.position_at);
    if (kind == APR_OP_ATTEND) read_position(&args->attend.position, args->attend.position_at);
    if (kind == APR_OP_SCALE) read_position(&args->scale.position, args->scale.position_at);
}

/* --- what is recorded --- */

static apr_status record(apr_cuda_device *device, apr_error *err)
{
    device->recording = calloc(1, sizeof *device->recording);
    if (device->recording == NULL) return apr_no_memory(err, "a fake graph");
    device->recording->device = device;
    n_graphs++;
    return APR_OK;
}

static void forget(apr_cuda_graph *graph)
{
    n_graphs -= graph != NULL;
    free(graph);
}

static apr_status end_record(apr_cuda_device *device, apr_cuda_graph **graph, apr_error *err)
{
    *graph = device->recording;
    device->recording = NULL;
    if (records) return APR_OK;
    forget(*graph);
    *graph = NULL;
    return apr_fail(err, APR_E_DEVICE, "a fake that does not record");
}

static apr_status run_now(apr_cuda_device *device, apr_op_kind kind, const apr_op_args *args, apr_error *err);
static apr_status flow_now(apr_cuda_device *device, const apr_flow_args *args);
static apr_status inputs_now(apr_cuda_device *device, const apr_flow_inputs *args);

static apr_status replay(apr_cuda_graph *graph, apr_error *err)
{
    n_replays++;
    for (int i = 0; i < graph->n_ops; i++) switch (graph->ops[i].what) {
        case RECORDED_OP: APR_TRY(run_now(graph->device, graph->ops[i].kind, &graph->ops[i].args, err)); break;
        case RECORDED_FLOW: APR_TRY(flow_now(graph->device, &graph->ops[i].flow)); break;
        case RECORDED_INPUTS: APR_TRY(inputs_now(graph->device, &graph->ops[i].inputs)); break;
        }
    return APR_OK;
}

/* --- products that stream: of rows as they are, so that everybody else here can read them, too --- */

static bool streams(const apr_cuda_device *device, apr_dtype dtype, int64_t n_out, int64_t n_in)
{
    (void)device;
    return streams_products && apr_flow_item_columns(dtype) == 0 && apr_flows(dtype, n_out, n_in, 9);
}

static apr_status expect_streams(apr_cuda_device *device, bool on, apr_error *err)
{
    (void)device, (void)on, (void)err;
    return APR_OK;
}

/* Bytes 0 to 255 of a tile: high ones; then low ones; then a scale for each 16. */
static void put_planes(uint8_t *planes, int64_t n, const float *x)
{
    for (int64_t i = 0; i < n; i += 16) {
        uint8_t *const tile = planes + i / APR_PLANES_COLUMNS * APR_PLANES_BYTES;
        const int64_t c = i % APR_PLANES_COLUMNS;
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

static void get_planes(const uint8_t *planes, int64_t n, float *x)
{
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *const tile = planes + i / APR_PLANES_COLUMNS * APR_PLANES_BYTES;
        const int64_t c = i % APR_PLANES_COLUMNS;
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

static apr_status inputs_now(apr_cuda_device *device, const apr_flow_inputs *a)
{
    float *const x = floats(a->n);
    double squares = 0.0;
    let_touch(device, true);
    for (int64_t i = 0; i < a->n; i++) squares += (double)a->x[i] * a->x[i];
    const float factor = a->norm ? (float)(1.0 / sqrt(squares / (double)a->n + (double)a->eps)) : 1.0f;
    for (int64_t i = 0; i < a->n; i++) x[i] = a->x[i] * factor * (a->gain != NULL ? a->gain[i] + a->gain_offset : 1.0f);
    put_planes(a->planes, a->n, x);
    let_touch(device, false);
    free(x);
    return APR_OK;
}

/* Of one part: y * factor + bias. */
static float *product_of(const apr_flow_args *a, int part, const float *x, float factor)
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

static void leave(const apr_flow_args *a, int64_t n, float *y)
{
    for (int64_t i = 0; a->out_squares != NULL && i < n; i++)
        a->out_squares[i / 16] = (i % 16 == 0 ? 0.0f : a->out_squares[i / 16]) + y[i] * y[i];
    for (int64_t i = 0; a->gain != NULL && i < n; i++) y[i] *= a->gain[i] + a->gain_offset;
    if (a->planes != NULL) put_planes(a->planes, n, y);
}

static apr_status flow_now(apr_cuda_device *device, const apr_flow_args *a)
{
    float *const x = floats(a->n_in);
    double squares = 0.0;
    n_flows++;
    let_touch(device, true);
    get_planes(a->x, a->n_in, x);
    for (int64_t i = 0; a->squares != NULL && i < a->n_in / 16; i++) squares += a->squares[i];
    const float factor = a->squares != NULL ? (float)(1.0 / sqrt(squares / (double)a->n_in + (double)a->eps)) : 1.0f;
    for (int part = 0; part < (a->ending == APR_FLOW_GLU ? 1 : a->n_parts); part++) {
        const int64_t n = apr_tensor_rows(a->parts[part].weight);
        float *const y = product_of(a, part, x, factor), *const up = a->ending == APR_FLOW_GLU ? product_of(a, 1, x, factor) : NULL;
        for (int64_t i = 0; i < n; i++) {
            if (a->ending == APR_FLOW_ADD) y[i] += a->residual[i];
            if (up != NULL) y[i] = apr_glu_of(&a->glu, y[i], up[i]);
        }
        if (a->parts[part].out != NULL) memcpy(a->parts[part].out, y, (size_t)n * sizeof *y);
        leave(a, n, y);
        free(up);
        free(y);
    }
    let_touch(device, false);
    free(x);
    return APR_OK;
}

static apr_status flow(apr_cuda_device *device, const apr_flow_args *args, apr_error *err)
{
    apr_cuda_graph *const graph = device->recording;
    (void)err;
    if (graph == NULL) return flow_now(device, args);
    if (graph->n_ops == MOST_RECORDED) abort();
    graph->ops[graph->n_ops].what = RECORDED_FLOW;
    graph->ops[graph->n_ops++].flow = *args;
    return APR_OK;
}

static apr_status flow_inputs(apr_cuda_device *device, const apr_flow_inputs *args, apr_error *err)
{
    apr_cuda_graph *const graph = device->recording;
    (void)err;
    if (graph == NULL) return inputs_now(device, args);
    if (graph->n_ops == MOST_RECORDED) abort();
    graph->ops[graph->n_ops].what = RECORDED_INPUTS;
    graph->ops[graph->n_ops++].inputs = *args;
    return APR_OK;
}

static apr_status run(apr_cuda_device *device, apr_op_kind kind, const apr_op_args *args, apr_error *err)
{
    apr_cuda_graph *const graph = device->recording;
    if (graph == NULL) return run_now(device, kind, args, err);
    if (graph->n_ops == MOST_RECORDED) abort();
    graph->ops[graph->n_ops].what = RECORDED_OP;
    graph->ops[graph->n_ops].kind = kind;
    graph->ops[graph->n_ops++].args = *args;
    return APR_OK;
}

/* The largest by the host's own function, which defines them. */
static apr_status find_best(apr_cuda_device *device, const float *logits, int64_t n, int n_wanted, float temperature, void *work,
                            apr_cuda_found *found, apr_error *err)
{
    apr_best best = {.n_wanted = n_wanted, .temperature = temperature};
    (void)err;
    let_touch(device, true);
    memset(work, 0xff, apr_cuda_best_bytes(n)); /* it is to be had */
    apr_find_best(&best, logits, n);
    memset(found->keys, 0, sizeof found->keys);
    for (int i = 0; i < best.n; i++) found->keys[i] = apr_best_key(best.logits[i], best.ids[i]);
    found->sum = best.sum;
    let_touch(device, false);
    return APR_OK;
}

static apr_status run_now(apr_cuda_device *device, apr_op_kind kind, const apr_op_args *args, apr_error *err)
{
    const apr_workspace work = {.data = device->work, .slice = WORK_FLOATS, .n_threads = 1};
    unstacked gate, up, down;
    apr_op_args own = *args;

    if (n_left == 0) return apr_fail(err, APR_E_DEVICE, "a fake fault in %s", apr_op_name(kind));
    n_left -= n_left > 0;
    if (kind == APR_OP_LINEAR) own.linear.work = work;
    if (kind == APR_OP_ATTEND) own.attend.work = work;
    if (kind == APR_OP_ROUTE) own.route.work = work;
    if (kind == APR_OP_DELTA) own.delta.work = work;
    if (kind == APR_OP_EXPERTS) {
        own.experts.work = work;
        own.experts.gate = unstack(args->experts.gate, &gate);
        own.experts.up = unstack(args->experts.up, &up);
        own.experts.down = unstack(args->experts.down, &down);
    }
    let_touch(device, true);
    read_positions(kind, &own);
    apr_ref_backend.ops[kind](&own);
    let_touch(device, false);
    return APR_OK;
}

static apr_status check(apr_cuda_device *device, const char *stage, apr_error *err)
{
    (void)device, (void)stage, (void)err;
    return APR_OK;
}

const apr_cuda_api *fake_device(void)
{
    static const apr_cuda_api api = {.abi = APR_CUDA_ABI,
                                     .architectures = "90",
                                     .facts = facts,
                                     .open = open_device,
                                     .close = close_device,
                                     .memory = memory,
                                     .is_lost = is_lost,
                                     .alloc = alloc,
                                     .pin = pin,
                                     .send = copy,
                                     .receive = copy,
                                     .find_best = find_best,
                                     .record = record,
                                     .end_record = end_record,
                                     .replay = replay,
                                     .forget = forget,
                                     .upload = copy,
                                     .download = copy,
                                     .transfer = transfer,
                                     .clear = clear,
                                     .start_blas = start_blas,
                                     .takes = takes,
                                     .takes_packing = takes_packing,
                                     .decode_f16 = decode_f16,
                                     .use_tiles = use,
                                     .use_exact = use,
                                     .use_fp8 = use,
                                     .backend = &apr_ref_backend,
                                     .run = run,
                                     .streams = streams,
                                     .expect_streams = expect_streams,
                                     .flow = flow,
                                     .flow_inputs = flow_inputs,
                                     .check = check,
                                     .check_each = use};
    return &api;
}
