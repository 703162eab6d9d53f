/* fake_device.c - a CUDA device that is none: its memory, and what is copied there. fake_device_ops.c runs operations. */
#define _DEFAULT_SOURCE /* anonymous mappings */
#include "tests/support/fake_device.h"

#include "formats/tensor/packing.h"
#include "kernels/ref/ref_ops.h"
#include "tests/support/fake_device_internal.h"
#include "tests/support/fake_feedback.h"
#include "tests/support/fake_grad.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MOST_DEVICES = 8 };
static const size_t memory_bytes = (size_t)1 << 30; /* of address space for each */

void __asan_poison_memory_region(void const volatile *p, size_t n) __attribute__((weak));
void __asan_unpoison_memory_region(void const volatile *p, size_t n) __attribute__((weak));

static uint64_t n_allocated[MOST_DEVICES];
static int n_open, n_opened;
static bool takes_q8_0 = true;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int64_t failing_allocation;
static uint64_t n_there, n_most_there, size_said = (uint64_t)1 << 34;
static apr_cuda_device *all_open[MOST_DEVICES];

uint64_t fake_device_bytes_of(int nth) { return n_allocated[nth]; }
void fake_device_takes_q8_0(bool on) { takes_q8_0 = on; }
void fake_device_fail_allocation(int64_t nth) { failing_allocation = nth; }
void fake_device_has_memory(uint64_t n_bytes) { size_said = n_bytes; }
uint64_t fake_device_most_bytes(void) { return n_most_there; }
uint64_t fake_device_bytes_there(void) { return n_there; }

uint64_t fake_device_bytes(void)
{
    uint64_t sum = 0;
    for (int i = 0; i < n_opened; i++) sum += n_allocated[i];
    return sum;
}

/* --- memory that only its device may touch --- */

static bool has_sanitizer(void) { return __asan_poison_memory_region != NULL; }

static void let_see(const apr_cuda_device *d, bool on)
{
    for (int i = 0; has_sanitizer() && i < d->n_blocks; i++) {
        if (d->blocks[i].unused) continue;
        if (on) __asan_unpoison_memory_region(d->blocks[i].data, d->blocks[i].n_bytes);
        else __asan_poison_memory_region(d->blocks[i].data, d->blocks[i].n_bytes);
    }
}

/* The host is given addresses from a multiple of 4 GiB on, and a byte is 4 GiB further: an address and where its byte is differ in the
 * upper half alone. */
static const size_t way_to_own = (size_t)1 << 32;

static void map_memory(apr_cuda_device *d)
{
    if (has_sanitizer()) return;
    d->n_reserved = 2 * way_to_own + memory_bytes;
    d->reserved = mmap(NULL, d->n_reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (d->reserved == MAP_FAILED) abort();
    d->memory = (uint8_t *)d->reserved + (way_to_own - (uintptr_t)d->reserved % way_to_own);
    d->own = d->memory + way_to_own;
    if (mprotect(d->own, memory_bytes, PROT_READ | PROT_WRITE) != 0) abort();
}

static void unmap_memory(apr_cuda_device *d)
{
    if (d->reserved != NULL) munmap(d->reserved, d->n_reserved);
}

void *fake_seen(const apr_cuda_device *d, const void *p)
{
    const uintptr_t offset = (uintptr_t)p - (uintptr_t)d->memory;
    return d->memory != NULL && offset < memory_bytes ? d->own + offset : (void *)(uintptr_t)p;
}

/* Words are taken for pointers by their values. No number of 64 bits is as large as an address. One of 32 bits looks like an address where
 * the padding after it holds the upper half of an earlier one: then that padding changes, and the number does not. */
void fake_see(const apr_cuda_device *d, void *args, size_t n_bytes)
{
    uint8_t *const bytes = args;
    for (size_t at = 0; at + sizeof(void *) <= n_bytes; at += sizeof(void *)) {
        void *p;
        memcpy(&p, bytes + at, sizeof p);
        p = fake_seen(d, p);
        memcpy(bytes + at, &p, sizeof p);
    }
}

static const apr_tensor *see_part(const apr_cuda_device *d, const apr_tensor *tensor, apr_tensor *seen)
{
    if (tensor == NULL) return NULL;
    *seen = *tensor;
    fake_see(d, seen, sizeof *seen);
    return seen;
}

const apr_tensor *fake_see_tensor(const apr_cuda_device *d, const apr_tensor *tensor, seen_tensor *seen)
{
    if (see_part(d, tensor, &seen->tensor) == NULL) return NULL;
    seen->tensor.scale = see_part(d, tensor->scale, &seen->scale);
    if (tensor->packing == NULL) return &seen->tensor;
    apr_packing *const p = &seen->packing;
    *p = *tensor->packing;
    fake_see(d, p, sizeof *p);
    p->codes = see_part(d, p->codes, &seen->parts[0]);
    p->scales = see_part(d, p->scales, &seen->parts[1]);
    p->global_scales = see_part(d, p->global_scales, &seen->parts[2]);
    p->zeros = see_part(d, p->zeros, &seen->parts[3]);
    p->groups = see_part(d, p->groups, &seen->parts[4]);
    seen->tensor.packing = p;
    return &seen->tensor;
}

/* The n-th that was sent, and all before it. */
static void arrive(apr_cuda_device *d, int n)
{
    for (; d->n_arrived < n; d->n_arrived++) {
        const sending *const s = &d->sent[d->n_arrived % MOST_SENT];
        memcpy(fake_seen(d, s->to), s->from, s->n_bytes);
    }
}

void fake_touch(apr_cuda_device *d, bool on)
{
    let_see(d, on);
    if (on) arrive(d, d->n_sent);
}

/* Error feedback reads what another device on the same card has made. */
static void touch_all(apr_cuda_device *device, bool on)
{
    (void)device;
    for (int i = 0; i < MOST_DEVICES; i++)
        if (all_open[i] != NULL) fake_touch(all_open[i], on);
}

static void see_all(void *args, size_t n_bytes)
{
    for (int i = 0; i < MOST_DEVICES; i++)
        if (all_open[i] != NULL) fake_see(all_open[i], args, n_bytes);
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

static uint64_t in_use = UINT64_MAX;

static bool is_integrated;

void fake_device_is_integrated(bool on) { is_integrated = on; }
void fake_device_has_in_use(uint64_t n_bytes) { in_use = n_bytes; }

static apr_status facts(int ordinal, apr_cuda_facts *f, apr_error *err)
{
    (void)err;
    *f = (apr_cuda_facts){.name = "a fake",
                          .ordinal = ordinal,
                          .major = 9,
                          .n_sms = 2,
                          .threads_per_sm = 64,
                          .total_bytes = (uint64_t)1 << 34,
                          .used_bytes = in_use,
                          .is_integrated = is_integrated};
    return APR_OK;
}

static apr_status open_device(apr_cuda_device **device, int ordinal, const apr_cuda_options *options, apr_error *err)
{
    (void)ordinal, (void)options;
    *device = NULL;
    if (n_open == 0) {
        n_opened = 0, n_there = n_most_there = 0;
        fake_drop_replays();
    }
    int nth = n_opened < MOST_DEVICES ? n_opened++ : 0;
    while (nth < MOST_DEVICES && all_open[nth] != NULL) nth++; /* one that was closed */
    apr_cuda_device *const d = nth < MOST_DEVICES ? calloc(1, sizeof *d) : NULL;
    if (d == NULL) return apr_no_memory(err, "a fake device");
    d->work = malloc(WORK_FLOATS * sizeof(float));
    if (d->work == NULL) abort();
    map_memory(d);
    d->nth = nth;
    n_allocated[d->nth] = 0;
    n_open++;
    all_open[d->nth] = d;
    fake_feedback_is.touch = touch_all;
    fake_feedback_is.see = see_all;
    *device = d;
    return APR_OK;
}

static void close_device(apr_cuda_device *device)
{
    if (device == NULL) return;
    fake_touch(device, true);
    for (int i = 0; has_sanitizer() && i < device->n_blocks; i++) {
        __asan_unpoison_memory_region(device->blocks[i].data, device->blocks[i].n_bytes);
        free(device->blocks[i].data);
    }
    for (int i = 0; i < device->n_pinned; i++) free(device->pinned[i]);
    for (int i = 0; i < device->n_blocks; i++) n_there -= device->blocks[i].n_bytes;
    all_open[device->nth] = NULL;
    unmap_memory(device);
    free(device->work);
    free(device);
    n_open--;
}

static apr_status memory(apr_cuda_device *device, uint64_t *n_free, uint64_t *n_total, apr_error *err)
{
    (void)device, (void)err;
    *n_total = size_said;
    *n_free = size_said > n_there ? size_said - n_there : 0;
    return APR_OK;
}

static apr_status alloc(apr_cuda_device *device, uint64_t n_bytes, const char *what, void **p, apr_error *err)
{
    *p = NULL;
    if (n_bytes == 0) return APR_OK;
    if (failing_allocation > 0 && --failing_allocation == 0)
        return apr_fail(err, APR_E_DEVICE, "a fake: the bytes of '%s' could not be had", what);
    uint8_t *const data = device->n_blocks < MOST_BLOCKS ? take(device, n_bytes) : NULL;
    *p = data;
    if (data == NULL) return apr_no_memory(err, what);
    const bool unused = strcmp(what, "cuBLAS workspace") == 0;
    device->blocks[device->n_blocks++] = (block){data, n_bytes, unused};
    fake_touch(device, true);
    /* NaN: what is read without being written shows. Of the largest block nothing is read, and pages never touched cost nothing */
    if (!unused) memset(fake_seen(device, data), 0xff, n_bytes);
    else if (has_sanitizer()) __asan_poison_memory_region(data, n_bytes);
    fake_touch(device, false);
    n_allocated[device->nth] += n_bytes;
    n_there += n_bytes;
    n_most_there = n_there > n_most_there ? n_there : n_most_there;
    return APR_OK;
}

static bool release_pinned(apr_cuda_device *device, void *p)
{
    for (int i = 0; i < device->n_pinned; i++)
        if (device->pinned[i] == p) {
            fake_touch(device, true); /* what is under way reads it */
            fake_touch(device, false);
            free(p);
            device->pinned[i] = device->pinned[--device->n_pinned];
            return true;
        }
    return false;
}

static void release(apr_cuda_device *device, void *p)
{
    if (p == NULL || release_pinned(device, p)) return;
    for (int i = 0; i < device->n_blocks; i++) {
        if (device->blocks[i].data != p) continue;
        n_allocated[device->nth] -= device->blocks[i].n_bytes;
        n_there -= device->blocks[i].n_bytes;
        if (has_sanitizer()) {
            __asan_unpoison_memory_region(p, device->blocks[i].n_bytes);
            free(p);
        }
        device->blocks[i] = device->blocks[--device->n_blocks];
        return;
    }
    abort(); /* it was never given, or is given back twice */
}

static apr_status copy(apr_cuda_device *device, void *to, const void *from, uint64_t n_bytes, apr_error *err)
{
    (void)err;
    pthread_mutex_lock(&lock);
    fake_touch(device, true);
    memcpy(fake_seen(device, to), fake_seen(device, from), n_bytes);
    fake_touch(device, false);
    pthread_mutex_unlock(&lock);
    return APR_OK;
}

/* As late as it may: if pinned memory is filled again too early, something else is sent. */
static apr_status send(apr_cuda_device *device, void *to, const void *pinned, uint64_t n_bytes, apr_error *err)
{
    (void)err;
    pthread_mutex_lock(&lock);
    if (device->n_sent - device->n_arrived == MOST_SENT) {
        let_see(device, true);
        arrive(device, device->n_arrived + 1);
        let_see(device, false);
    }
    device->sent[device->n_sent++ % MOST_SENT] = (sending){to, pinned, n_bytes};
    pthread_mutex_unlock(&lock);
    return APR_OK;
}

static apr_status set_mark(apr_cuda_device *device, int mark, apr_error *err)
{
    (void)err;
    pthread_mutex_lock(&lock);
    device->marks[mark] = device->n_sent;
    pthread_mutex_unlock(&lock);
    return APR_OK;
}

static void wait_mark(apr_cuda_device *device, int mark)
{
    pthread_mutex_lock(&lock);
    let_see(device, true);
    arrive(device, device->marks[mark]);
    let_see(device, false);
    pthread_mutex_unlock(&lock);
}

/* Of pinned memory. */
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
    fake_touch(from_device, true);
    const apr_status status = copy(to_device, to, fake_seen(from_device, from), n_bytes, err);
    fake_touch(from_device, false);
    return status;
}

static apr_status clear(apr_cuda_device *device, void *p, uint64_t n_bytes, apr_error *err)
{
    (void)err;
    fake_touch(device, true);
    memset(fake_seen(device, p), 0, n_bytes);
    fake_touch(device, false);
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
    seen_tensor seen;
    if (values == NULL) return apr_no_memory(err, "a fake device");
    fake_touch(device, true);
    apr_decode_rows(fake_see_tensor(device, matrix, &seen), first, n_rows, values);
    apr_ref_codecs[APR_F16].encode(values, fake_seen(device, out), n);
    fake_touch(device, false);
    free(values);
    return APR_OK;
}

static void use(apr_cuda_device *device, bool on) { (void)device, (void)on; }

static bool takes_packed = true;
void fake_device_takes_packed(bool on) { takes_packed = on; }

/* Only the canonical layout. */
static bool takes_packing(const apr_packing *p, apr_dtype dtype)
{
    (void)dtype;
    return takes_packed && p->order == APR_CODES_BY_ROW && (p->bits == 4 || p->bits == 8) && p->nested == NULL && !p->scales_down &&
           p->first_row == 0;
}

static bool is_lost(const apr_cuda_device *device) { return device == NULL; }

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
                                     .release = release,
                                     .pin = pin,
                                     .send = send,
                                     .mark = set_mark,
                                     .wait_mark = wait_mark,
                                     .receive = copy,
                                     .topk = fake_topk,
                                     .topk_rows = fake_topk_rows,
                                     .column_squares = fake_column_squares,
                                     .compare_logits = fake_compare_logits,
                                     .has_rows = fake_has_rows,
                                     .record = fake_record,
                                     .end_record = fake_end_record,
                                     .replay = fake_replay,
                                     .forget = fake_free_graph,
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
                                     .use_batch_invariant = use,
                                     .backend = &apr_ref_backend,
                                     .run = fake_run,
                                     .has_decode_gemv = fake_has_decode_gemv,
                                     .expect_decode_gemv = fake_expect_decode_gemv,
                                     .decode_gemv = fake_decode_gemv,
                                     .decode_gemv_inputs = fake_decode_gemv_inputs,
                                     .qkv_epilogue = fake_qkv_epilogue,
                                     .attend_to_i16 = fake_attend_to_i16,
                                     .prompt = fake_prompt,
                                     .check = check,
                                     .check_each = use,
                                     .feedback = &fake_feedback,
                                     .grad = &fake_grad};
    return &api;
}
