/* gather.c - walks a chain of steps back from the requested elements to the sources.
 *
 * A request is a set of runs: `count` runs of `length` elements, `stride` apart, as they are after some step. Each step passes requests
 * to the step before it, and the sources copy. Runs keep a transposition from needing a call for every element. */
#include "kernels/gather.h"

#include "kernels/low_rank.h"
#include "kernels/rows.h"

#include <math.h>
#include <string.h>

typedef struct request {
    int64_t first, length, stride, count;
} request;

enum {
    AT_ONCE = 2048, /* elements decoded at a time: whole blocks of every type */
    TILE = 64
};

static void read_before(const apr_composed *m, int steps, request r, uint8_t *dst);

static size_t bytes_of(apr_dtype dtype, int64_t n)
{
    return (size_t)(n / apr_dtypes[dtype].elems_per_block * apr_dtypes[dtype].bytes_per_block);
}

/* The type of the elements after `steps` steps. */
static apr_dtype dtype_after(const apr_composed *m, int steps)
{
    apr_dtype dtype = m->lowest;
    for (int i = 0; i < steps; i++) {
        if (m->moves[i].kind == APR_MOVE_PACK) dtype = APR_MXFP4;
        if (m->moves[i].kind == APR_MOVE_UNPACK) dtype = APR_U8;
    }
    return dtype;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- the sources ---- */

/* Runs of single elements come from transpositions. */
static void copy_runs(const uint8_t *src, size_t n_run, size_t stride, int64_t count, uint8_t *dst)
{
    if (n_run == 2)
        for (int64_t i = 0; i < count; i++) memcpy(dst + (size_t)i * 2, src + (size_t)i * stride, 2);
    else if (n_run == 4)
        for (int64_t i = 0; i < count; i++) memcpy(dst + (size_t)i * 4, src + (size_t)i * stride, 4);
    else
        for (int64_t i = 0; i < count; i++) memcpy(dst + (size_t)i * n_run, src + (size_t)i * stride, n_run);
}

static void read_part(const apr_composed *m, size_t part, request r, uint8_t *dst)
{
    const apr_tensor *const t = m->parts[part];

    if (m->decodes) {
        for (int64_t i = 0; i < r.count; i++) apr_decode_elements(t, r.first + i * r.stride, r.length, (float *)(void *)dst + i * r.length);
        return;
    }
    if (t->made != NULL) {
        read_before(t->made, t->made->chain.n_steps, r, dst);
        return;
    }
    copy_runs(t->data + bytes_of(t->dtype, r.first), bytes_of(t->dtype, r.length), bytes_of(t->dtype, r.stride), r.count, dst);
}

/* ---- one function a move: the run [first, first + n) after step `step` ---- */

/* The part that has element `at` of a chunk. */
static size_t part_of(const apr_composed *m, int64_t at)
{
    size_t low = 0, high = m->n_parts - 1;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (at < m->ends[middle]) high = middle;
        else low = middle + 1;
    }
    return low;
}

static void read_join(const apr_composed *m, int step, int64_t first, int64_t n, uint8_t *dst)
{
    const int64_t chunk = m->moves[step].chunk;

    while (n > 0) {
        const int64_t group = first / chunk, at = first % chunk;
        const size_t part = part_of(m, at);
        const int64_t begin = part > 0 ? m->ends[part - 1] : 0, share = m->ends[part] - begin, take = least(n, m->ends[part] - at);
        read_part(m, part, (request){group * share + at - begin, take, 0, 1}, dst);
        dst += bytes_of(m->lowest, take), first += take, n -= take;
    }
}

/* n rows of the transposed matrix, b_stride apart from row b on. Reads in tiles, so that adjacent elements are still in the cache when
 * they are needed. */
static void read_tiles(const apr_composed *m, int step, int64_t base, int64_t b, int64_t b_stride, int64_t n, uint8_t *dst)
{
    const apr_move *const s = &m->moves[step];
    const apr_dtype dtype = dtype_after(m, step);

    for (int64_t a = 0; a < s->a; a += TILE)
        for (int64_t i = 0; i < n; i++) {
            const request r = {base + (a * s->b + b + i * b_stride) * s->inner, s->inner, s->b * s->inner, least(TILE, s->a - a)};
            read_before(m, step, r, dst + bytes_of(dtype, (i * s->a + a) * s->inner));
        }
}

static void read_swap(const apr_composed *m, int step, int64_t first, int64_t n, uint8_t *dst)
{
    const apr_move *const s = &m->moves[step];
    const apr_dtype dtype = dtype_after(m, step);
    const int64_t row = s->a * s->inner, moved = row * s->b; /* elements of a row of the transposed matrix, and of all of it */

    for (int64_t done; n > 0; dst += bytes_of(dtype, done), first += done, n -= done) {
        const int64_t chunk = first - first % s->chunk, base = chunk + s->first, at = first - base;
        if (at < 0 || at >= moved) { /* not part of the transposition */
            done = least(n, at < 0 ? -at : chunk + s->chunk - first);
            read_before(m, step, (request){first, done, 0, 1}, dst);
            continue;
        }
        const int64_t b = at / row, a = at / s->inner % s->a, inside = at % s->inner, n_rows = least(n / row, s->b - b);
        if (at % row == 0 && n_rows > 0) {
            read_tiles(m, step, base, b, 1, n_rows, dst);
            done = n_rows * row;
            continue;
        }
        request r = {base + (a * s->b + b) * s->inner + inside, least(n, s->inner - inside), s->b * s->inner, 1};
        if (r.length == s->inner) r.count = least(n / s->inner, s->a - a);
        read_before(m, step, r, dst);
        done = r.length * r.count;
    }
}

static void read_cut(const apr_composed *m, int step, int64_t first, int64_t n, uint8_t *dst)
{
    const apr_move *const c = &m->moves[step];
    const apr_dtype dtype = dtype_after(m, step);

    while (n > 0) {
        const int64_t at = first % c->count;
        request r = {first / c->count * c->chunk + c->first + at, least(n, c->count - at), c->chunk, 1};
        if (r.length == c->count) r.count = n / c->count;
        read_before(m, step, r, dst);
        const int64_t done = r.length * r.count;
        dst += bytes_of(dtype, done), first += done, n -= done;
    }
}

static void read_pack(const apr_composed *m, int step, int64_t first, int64_t n, uint8_t *dst)
{
    read_before(m, step, (request){first / 32 * 17, n / 32 * 17, 0, 1}, dst);
    for (int64_t block = 0; block < n / 32; block++) apr_mxfp4_pack(dst + 17 * block);
}

/* Reads bytes of blocks; the range may begin and end inside a block. */
static void read_unpack(const apr_composed *m, int step, int64_t first, int64_t n, uint8_t *dst)
{
    while (n > 0) {
        const int64_t at = first % 17, take = least(n, 17 - at);
        uint8_t block[17];
        read_before(m, step, (request){first / 17 * 32, 32, 0, 1}, block);
        apr_mxfp4_unpack(block);
        memcpy(dst, block + at, (size_t)take);
        dst += take, first += take, n -= take;
    }
}

typedef void (*read_run_fn)(const apr_composed *m, int step, int64_t first, int64_t n, uint8_t *dst);

static const read_run_fn readers[APR_MOVE_COUNT] = {[APR_MOVE_SWAP] = read_swap,
                                                    [APR_MOVE_CUT] = read_cut,
                                                    [APR_MOVE_JOIN] = read_join,
                                                    [APR_MOVE_PACK] = read_pack,
                                                    [APR_MOVE_UNPACK] = read_unpack};

/* ---- one function a move: many runs in one request, if they are runs before the move also; false: they are not ---- */

static int64_t last_of(request r) { return r.first + (r.count - 1) * r.stride + r.length - 1; }

/* Runs inside one part of one chunk. */
static bool join_runs(const apr_composed *m, int step, request r, uint8_t *dst)
{
    const int64_t chunk = m->moves[step].chunk, at = r.first % chunk, last = last_of(r);
    const size_t part = part_of(m, at);
    const int64_t begin = part > 0 ? m->ends[part - 1] : 0;

    if (last / chunk != r.first / chunk || last % chunk >= m->ends[part]) return false;
    r.first = r.first / chunk * (m->ends[part] - begin) + at - begin;
    read_part(m, part, r, dst);
    return true;
}

/* Whole rows of the transposed matrix of one chunk. */
static bool swap_runs(const apr_composed *m, int step, request r, uint8_t *dst)
{
    const apr_move *const s = &m->moves[step];
    const int64_t row = s->a * s->inner, base = r.first - r.first % s->chunk + s->first, at = r.first - base;

    if (row == 0 || r.length != row || at < 0 || at % row != 0 || r.stride % row != 0 || last_of(r) - base >= row * s->b) return false;
    read_tiles(m, step, base, at / row, r.stride / row, r.count, dst);
    return true;
}

/* Runs inside one chunk. */
static bool cut_runs(const apr_composed *m, int step, request r, uint8_t *dst)
{
    const apr_move *const c = &m->moves[step];

    if (last_of(r) / c->count != r.first / c->count) return false;
    r.first = r.first / c->count * c->chunk + c->first + r.first % c->count;
    read_before(m, step, r, dst);
    return true;
}

typedef bool (*read_runs_fn)(const apr_composed *m, int step, request r, uint8_t *dst);

static const read_runs_fn run_readers[APR_MOVE_COUNT] = {
    [APR_MOVE_SWAP] = swap_runs, [APR_MOVE_CUT] = cut_runs, [APR_MOVE_JOIN] = join_runs};

/* Reads a request for the elements as they are after the first `steps` steps. */
static void read_before(const apr_composed *m, int steps, request r, uint8_t *dst)
{
    while (steps > 0 && m->moves[steps - 1].kind == APR_MOVE_NOTHING) steps--;
    if (steps == 0) {
        read_part(m, 0, r, dst);
        return;
    }
    const apr_move_kind kind = m->moves[steps - 1].kind;
    if (r.count > 1 && run_readers[kind] != NULL && run_readers[kind](m, steps - 1, r, dst)) return;
    const size_t n_run = bytes_of(dtype_after(m, steps), r.length);
    for (int64_t i = 0; i < r.count; i++) readers[kind](m, steps - 1, r.first + i * r.stride, r.length, dst + (size_t)i * n_run);
}

/* ---- values: computed in double, so that they do not depend on the C library's float functions ---- */

static float add(float x, const apr_step *step) { return x + (float)step->n[0]; }
static float negate_exp(float x, const apr_step *step) { return (void)step, -(float)exp((double)x); }
static float log_negative(float x, const apr_step *step) { return (void)step, (float)log(-(double)x); }

typedef float (*value_fn)(float x, const apr_step *step);

static const value_fn values[APR_STEP_COUNT] = {
    [APR_STEP_ADD] = add, [APR_STEP_NEGATE_EXP] = negate_exp, [APR_STEP_LOG_NEGATIVE] = log_negative};

static void compute(const apr_composed *m, int64_t n, float *x)
{
    for (int s = 0; s < m->chain.n_steps; s++) {
        const apr_step *const step = &m->chain.steps[s];
        const value_fn value = values[step->kind];
        for (int64_t i = 0; i < n && value != NULL; i++) x[i] = value(x[i], step);
    }
}

/* Decodes n elements in place: their bytes are at the end of the n floats of dst, and are overwritten from the front. */
static void decode_in_place(apr_dtype dtype, int64_t n, float *dst)
{
    const uint8_t *src = (const uint8_t *)(dst + n) - bytes_of(dtype, n);
    _Alignas(16) uint8_t bytes[AT_ONCE * sizeof(float)];

    for (int64_t done = 0, now; done < n; done += now) {
        now = least(n - done, AT_ONCE);
        memcpy(bytes, src, bytes_of(dtype, now));
        src += bytes_of(dtype, now);
        apr_host_codecs()[dtype].decode(bytes, dst + done, now);
    }
}

void apr_gather_values(const apr_tensor *made, int64_t first, int64_t n, float *dst)
{
    const apr_composed *const m = made->made;
    _Alignas(16) uint8_t bytes[AT_ONCE * sizeof(double)];

    if (m->merge != NULL) {
        apr_low_rank_values(made, first, n, dst);
        return;
    }
    if (bytes_of(m->dtype, n) <= (size_t)n * sizeof *dst) {
        read_before(m, m->chain.n_steps, (request){first, n, 0, 1}, (uint8_t *)(dst + n) - bytes_of(m->dtype, n));
        decode_in_place(m->dtype, n, dst);
        compute(m, n, dst);
        return;
    }
    while (n > 0) { /* doubles */
        const int64_t now = least(n, AT_ONCE);
        read_before(m, m->chain.n_steps, (request){first, now, 0, 1}, bytes);
        apr_host_codecs()[m->dtype].decode(bytes, dst, now);
        compute(m, now, dst);
        dst += now, first += now, n -= now;
    }
}

void apr_gather_bytes(const apr_tensor *made, int64_t first, int64_t n, uint8_t *dst)
{
    const apr_composed *const m = made->made;
    float computed[AT_ONCE];

    if (!m->computes) {
        read_before(m, m->chain.n_steps, (request){first, n, 0, 1}, dst);
        return;
    }
    if ((uintptr_t)dst % _Alignof(float) == 0) {
        apr_gather_values(made, first, n, (float *)(void *)dst);
        return;
    }
    while (n > 0) { /* computed values are float32, as files store them */
        const int64_t now = least(n, AT_ONCE);
        apr_gather_values(made, first, now, computed);
        memcpy(dst, computed, (size_t)now * sizeof *computed);
        dst += (size_t)now * sizeof *computed, first += now, n -= now;
    }
}

/* ---- nibbles ---- */

void apr_mxfp4_pack(uint8_t block[17])
{
    uint8_t packed[16];
    for (int j = 0; j < 16; j++) { /* elements j and j + 16 come from bytes j / 2 and j / 2 + 8; the parity of j selects the nibble */
        const int shift = 4 * (j % 2);
        packed[j] = (uint8_t)((block[1 + j / 2] >> shift & 15) | (block[1 + j / 2 + 8] >> shift & 15) << 4);
    }
    memcpy(block + 1, packed, sizeof packed);
}

void apr_mxfp4_unpack(uint8_t block[17])
{
    uint8_t unpacked[16];
    for (int j = 0; j < 16; j++) { /* elements 2j and 2j + 1 come from the same nibble of two adjacent bytes */
        const int at = 1 + 2 * (j % 8), shift = 4 * (j / 8);
        unpacked[j] = (uint8_t)((block[at] >> shift & 15) | (block[at + 1] >> shift & 15) << 4);
    }
    memcpy(block + 1, unpacked, sizeof unpacked);
}
