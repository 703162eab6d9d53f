/* rows.c - reads values and bytes of a tensor, however it is stored: in place, perhaps with scales or a pending step; packed in several
 * tensors (unpack.c); merged with an adapter; or composed from other tensors by a chain of steps. The parts of a composed or merged tensor
 * are tensors again. Each of these sources has three functions, in the table at the end. */
#include "kernels/rows.h"

#include "formats/base/bytes.h"
#include "formats/number/half.h"
#include "formats/tensor/composed.h"
#include "kernels/host/codecs/levels.h"
#include "kernels/unpack.h"

#include <math.h>
#include <string.h>

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static size_t bytes_of(apr_dtype dtype, int64_t n)
{
    return (size_t)(n / apr_dtypes[dtype].elems_per_block * apr_dtypes[dtype].bytes_per_block);
}

enum {
    AT_ONCE = 2048, /* elements decoded at a time: whole blocks of every type */
    MOST = 256,     /* elements of the largest block */
    SCALES_AT_ONCE = 32
};
#define X(id, name, class_of, elems, bytes, ...) _Static_assert((elems) <= MOST, "a block of " name " is larger than any before");
APR_DTYPE_LIST(X)
#undef X

/* Decodes n elements from element `first` on, for any first and n. Whole blocks are decoded directly to dst, a partly used block through
 * a buffer. `data` is the start of the tensor or of a row. */
static void decode_span(apr_dtype dtype, const uint8_t *data, int64_t first, int64_t n, float *dst)
{
    const apr_decode_fn decode = apr_host_codecs()[dtype].decode;
    const int64_t elems = apr_dtypes[dtype].elems_per_block, bytes = apr_dtypes[dtype].bytes_per_block;

    while (n > 0) {
        const uint8_t *const block = data + first / elems * bytes;
        const int64_t skip = first % elems, whole = n - n % elems;
        if (skip == 0 && whole > 0) {
            decode(block, dst, whole);
            dst += whole, first += whole, n -= whole;
            continue;
        }
        float part[MOST];
        const int64_t take = n < elems - skip ? n : elems - skip;
        decode(block, part, elems);
        memcpy(dst, part + skip, (size_t)take * sizeof *dst);
        dst += take, first += take, n -= take;
    }
}

/* Elements [first, first + n) of a flat tensor. */
static void decode_flat(const apr_tensor *tensor, int64_t first, int64_t n, float *dst)
{
    float scale;

    if (apr_dtypes[tensor->dtype].scales != APR_SCALES_FIRST) {
        decode_span(tensor->dtype, tensor->data, first, n, dst);
        return;
    }
    memcpy(&scale, tensor->data, sizeof scale);
    apr_host_codecs()[APR_I8].decode(tensor->data + sizeof scale + first, dst, n);
    for (int64_t i = 0; i < n; i++) dst[i] *= scale;
}

void apr_decode_scales(const apr_tensor *tensor, int64_t stored_row, int64_t first, int64_t n, float *scales)
{
    const apr_tensor *const scale = tensor->scale;
    const int64_t per_matrix = apr_tensor_matrix_rows(tensor);
    const int64_t scale_row =
        stored_row / per_matrix * apr_div_up(per_matrix, tensor->scale_rows) + stored_row % per_matrix / tensor->scale_rows;
    const bool is_single = apr_tensor_elems(scale) == 1;

    first = is_single ? 0 : scale_row * apr_div_up(apr_tensor_columns(tensor), tensor->scale_columns) + first;
    decode_span(scale->dtype, scale->data, first, is_single ? 1 : n, scales);
    for (int64_t i = 1; i < n && is_single; i++) scales[i] = scales[0];
}

/* Multiplies columns [from, to) of a row, at x, by the scales of their blocks. */
static void apply_scales(const apr_tensor *tensor, int64_t stored_row, int64_t from, int64_t to, float *x)
{
    const int64_t each = tensor->scale_columns;
    float scales[SCALES_AT_ONCE];

    for (int64_t at = from; at < to;) {
        const int64_t block = at / each, n = least(SCALES_AT_ONCE, (to - 1) / each - block + 1);
        apr_decode_scales(tensor, stored_row, block, n, scales);
        for (int64_t i = 0; i < n; i++)
            for (const int64_t end = least(to, (block + i + 1) * each); at < end; at++) x[at - from] *= scales[i];
    }
}

static void stored_elements(const apr_tensor *t, int64_t first, int64_t n, float *dst)
{
    const int64_t columns = apr_tensor_columns(t);

    if (apr_dtypes[t->dtype].flat) decode_flat(t, first, n, dst);
    else decode_span(t->dtype, t->data, first, n, dst);
    for (int64_t done = 0; t->scale != NULL && done < n;) {
        const int64_t from = (first + done) % columns, to = from + n - done < columns ? from + n - done : columns;
        apply_scales(t, (first + done) / columns, from, to, dst + done);
        done += to - from;
    }
}

static void in_order_rows(const apr_tensor *t, int64_t row, int64_t n_rows, float *dst)
{
    const int64_t columns = apr_tensor_columns(t);
    stored_elements(t, row * columns, n_rows * columns, dst);
}

static void in_order_bytes(const apr_tensor *t, int64_t first, int64_t n, uint8_t *dst)
{
    memcpy(dst, t->data + bytes_of(t->dtype, first), (size_t)apr_row_bytes(t->dtype, n));
}

/* The step moves rows, or the elements of a vector. */
static void reordered_rows(const apr_tensor *t, int64_t row, int64_t n_rows, float *dst)
{
    const bool is_vector = t->rank == 1;
    const int64_t columns = apr_tensor_columns(t), width = is_vector ? 1 : columns, n = is_vector ? columns : n_rows;
    const int64_t first = is_vector ? 0 : row, all = is_vector ? columns : apr_tensor_rows(t);
    for (int64_t i = 0; i < n; i++) stored_elements(t, apr_step_row(t->pending, all, first + i) * width, width, dst + i * width);
}

static void reordered_bytes(const apr_tensor *t, int64_t first, int64_t n, uint8_t *dst)
{
    const int64_t width = t->rank == 1 ? 1 : apr_tensor_columns(t);
    if (n <= 0) return;
    const size_t row_bytes = (size_t)(t->n_bytes / (uint64_t)(apr_tensor_elems(t) / width));
    for (int64_t i = 0; i < n / width; i++) memcpy(dst + (size_t)i * row_bytes, apr_tensor_row(t, first / width + i), row_bytes);
}

/* ---- packed in several tensors ---- */

static void packed_elements(const apr_tensor *t, int64_t first, int64_t n, float *dst)
{
    const int64_t columns = apr_tensor_columns(t);
    for (int64_t done = 0, now; done < n; done += now) {
        const int64_t from = (first + done) % columns;
        now = least(columns - from, n - done);
        apr_unpack_values(t->packing, t->dtype, t->packing->first_row + (first + done) / columns, from, now, dst + done);
    }
}

static void packed_rows(const apr_tensor *t, int64_t row, int64_t n_rows, float *dst)
{
    const int64_t columns = apr_tensor_columns(t), all_rows = apr_tensor_rows(t);
    for (int64_t r = 0; r < n_rows; r++)
        packed_elements(t, apr_step_row(t->pending, all_rows, row + r) * columns, columns, dst + r * columns);
}

static void packed_bytes(const apr_tensor *t, int64_t first, int64_t n, uint8_t *dst)
{
    const int64_t columns = apr_tensor_columns(t), all_rows = apr_tensor_rows(t), size = apr_dtypes[t->dtype].bytes_per_block;
    float values[AT_ONCE];

    for (int64_t r = first / columns; r < (first + n) / columns; r++) {
        const int64_t stored = apr_step_row(t->pending, all_rows, r) * columns;
        for (int64_t done = 0, now; done < columns; done += now, dst += now * size) {
            now = least(columns - done, AT_ONCE);
            packed_elements(t, stored + done, now, values);
            apr_ref_codecs[t->dtype].encode(values, dst, now);
        }
    }
}

/* ---- merged with an adapter: value + scale * (b a), in float32 and always in the same order ----
 *
 * The sum over k goes ascending from 0, is multiplied by the scale and added to the value. With magnitudes (DoRA) the row is then multiplied
 * by magnitude / length, where the length is the root of the row's squares summed in double. So a piece equals that piece of the whole, and
 * threads change nothing. Costs rank multiplications a value; with magnitudes each row is computed twice.
 *
 * Works in tiles that fit the L1 cache: a row of a is decoded once for all rows of a tile. */

enum { TILE_ROWS = 16, TILE_COLUMNS = 256, TERMS = 4 /* summed at a time */ };

/* Elements [first, first + n) of the base tensor. Composed tensors are read in whole blocks. */
static void read_base(const apr_tensor *t, int64_t first, int64_t n, float *dst)
{
    const int64_t elems = apr_dtypes[t->dtype].elems_per_block;
    float block[MOST];

    if (!apr_tensor_is_composed(t) || elems == 1) {
        apr_decode_elements(t, first, n, dst);
        return;
    }
    for (int64_t take; n > 0; first += take, n -= take, dst += take) {
        const int64_t skip = first % elems;
        take = skip == 0 && n >= elems ? n - n % elems : least(n, elems - skip);
        if (take >= elems) {
            apr_decode_elements(t, first, take, dst);
            continue;
        }
        apr_decode_elements(t, first - skip, elems, block);
        memcpy(dst, block + skip, (size_t)take * sizeof *dst);
    }
}

/* Adds terms k to k + n_terms - 1 to the sums, one after another. */
static void add_terms(const apr_merge *m, int64_t k, int64_t n_terms, int64_t row, int64_t n_rows, int64_t from, int64_t n,
                      float sums[TILE_ROWS][TILE_COLUMNS])
{
    const int64_t rank = m->a->dims[0], columns = m->a->dims[1];
    float a[TERMS][TILE_COLUMNS], b[TERMS];

    for (int64_t t = 0; t < n_terms; t++) apr_decode_elements(m->a, (k + t) * columns + from, n, a[t]);
    for (int64_t i = 0; i < n_rows; i++) {
        float *const sum = sums[i];
        apr_decode_elements(m->b, (row + i) * rank + k, n_terms, b);
        if (n_terms == TERMS)
            for (int64_t c = 0; c < n; c++) sum[c] = sum[c] + b[0] * a[0][c] + b[1] * a[1][c] + b[2] * a[2][c] + b[3] * a[3][c];
        else
            for (int64_t t = 0; t < n_terms; t++)
                for (int64_t c = 0; c < n; c++) sum[c] += b[t] * a[t][c];
    }
}

/* Columns [from, from + n) of n_rows rows, `stride` apart. */
static void add_tile(const apr_merge *m, int64_t row, int64_t n_rows, int64_t from, int64_t n, float *dst, int64_t stride)
{
    const int64_t rank = m->a->dims[0];
    float sums[TILE_ROWS][TILE_COLUMNS];

    for (int64_t i = 0; i < n_rows; i++) memset(sums[i], 0, (size_t)n * sizeof *sums[i]);
    for (int64_t k = 0; k < rank; k += TERMS) add_terms(m, k, least(TERMS, rank - k), row, n_rows, from, n, sums);
    for (int64_t i = 0; i < n_rows; i++)
        for (int64_t c = 0; c < n; c++) dst[i * stride + c] += m->scale * sums[i][c];
}

static void add_columns(const apr_merge *m, int64_t row, int64_t n_rows, int64_t from, int64_t n, float *dst)
{
    for (int64_t r = 0; r < n_rows; r += TILE_ROWS)
        for (int64_t c = 0; c < n; c += TILE_COLUMNS)
            add_tile(m, row + r, least(TILE_ROWS, n_rows - r), from + c, least(TILE_COLUMNS, n - c), dst + r * n + c, n);
}

/* The factor of a row: its magnitude over its length, which needs the whole row. */
static float row_factor(const apr_composed *composed, int64_t row)
{
    const apr_merge *const m = composed->merge;
    const int64_t columns = m->a->dims[1];
    float piece[TILE_COLUMNS], magnitude;
    double squares = 0.0;

    for (int64_t c = 0; c < columns; c += TILE_COLUMNS) {
        const int64_t n = least(TILE_COLUMNS, columns - c);
        read_base(composed->parts[0], row * columns + c, n, piece);
        add_tile(m, row, 1, c, n, piece, n);
        for (int64_t i = 0; i < n; i++) squares += (double)piece[i] * (double)piece[i];
    }
    apr_decode_elements(m->magnitudes, row, 1, &magnitude);
    return magnitude / (float)sqrt(squares);
}

static void merged_values(const apr_tensor *merged, int64_t first, int64_t n, float *dst)
{
    const apr_composed *const composed = merged->composed;
    const apr_merge *const m = composed->merge;
    const int64_t columns = apr_tensor_columns(merged);

    read_base(composed->parts[0], first, n, dst);
    if (m->a == NULL) return;
    for (int64_t done; n > 0; first += done, n -= done, dst += done) { /* the rest of a row, or whole rows */
        const int64_t row = first / columns, at = first % columns;
        const int64_t n_rows = at == 0 && n >= columns ? n / columns : 1, width = n_rows > 1 ? columns : least(n, columns - at);
        done = n_rows * width;
        add_columns(m, row, n_rows, at, width, dst);
        for (int64_t i = 0; i < n_rows && m->magnitudes != NULL; i++) {
            const float factor = row_factor(composed, row + i);
            for (int64_t c = 0; c < width; c++) dst[i * width + c] *= factor;
        }
    }
}

/* ---- blocks of MXFP4: from the checkpoints' order (scale, then elements 2j and 2j + 1 in the low and high half of byte j) to ggml's
 * (scale, then elements j and j + 16), and back; in place ---- */

static void mxfp4_pack(uint8_t block[17])
{
    uint8_t packed[16];
    for (int j = 0; j < 16; j++) { /* elements j and j + 16 come from bytes j / 2 and j / 2 + 8; the parity of j selects the nibble */
        const int shift = 4 * (j % 2);
        packed[j] = (uint8_t)((block[1 + j / 2] >> shift & 15) | (block[1 + j / 2 + 8] >> shift & 15) << 4);
    }
    memcpy(block + 1, packed, sizeof packed);
}

static void mxfp4_unpack(uint8_t block[17])
{
    uint8_t unpacked[16];
    for (int j = 0; j < 16; j++) { /* elements 2j and 2j + 1 come from the same nibble of two adjacent bytes */
        const int at = 1 + 2 * (j % 8), shift = 4 * (j / 8);
        unpacked[j] = (uint8_t)((block[at] >> shift & 15) | (block[at + 1] >> shift & 15) << 4);
    }
    memcpy(block + 1, unpacked, sizeof unpacked);
}

/* ---- composed: walks the chain of steps back from the requested elements to the parts ----
 *
 * A request is a set of runs: `count` runs of `length` elements, `stride` apart, as they are after some step. Each step passes requests
 * to the step before it, and the sources copy. Runs keep a transposition from needing a call for every element. */

typedef struct request {
    int64_t first, length, stride, count;
} request;

enum { TILE = 64 };

static void read_before(const apr_composed *m, int steps, request r, uint8_t *dst);

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

/* ---- the parts ---- */

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
    if (apr_tensor_is_composed(t)) {
        read_before(t->composed, t->composed->chain.n_steps, r, dst);
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

static void read_pad(const apr_composed *m, int step, int64_t first, int64_t n, uint8_t *dst)
{
    const apr_move *const p = &m->moves[step];
    const apr_dtype dtype = dtype_after(m, step);

    while (n > 0) {
        const bool is_copy = first >= p->chunk;
        const int64_t at = is_copy ? (first - p->chunk) % p->inner : first, done = least(n, (is_copy ? p->inner : p->chunk) - at);
        read_before(m, step, (request){at, done, 0, 1}, dst);
        dst += bytes_of(dtype, done), first += done, n -= done;
    }
}

static void read_pack(const apr_composed *m, int step, int64_t first, int64_t n, uint8_t *dst)
{
    read_before(m, step, (request){first / 32 * 17, n / 32 * 17, 0, 1}, dst);
    for (int64_t block = 0; block < n / 32; block++) mxfp4_pack(dst + 17 * block);
}

/* Reads bytes of blocks; the range may begin and end inside a block. */
static void read_unpack(const apr_composed *m, int step, int64_t first, int64_t n, uint8_t *dst)
{
    while (n > 0) {
        const int64_t at = first % 17, take = least(n, 17 - at);
        uint8_t block[17];
        read_before(m, step, (request){first / 17 * 32, 32, 0, 1}, block);
        mxfp4_unpack(block);
        memcpy(dst, block + at, (size_t)take);
        dst += take, first += take, n -= take;
    }
}

typedef void (*read_run_fn)(const apr_composed *m, int step, int64_t first, int64_t n, uint8_t *dst);

static const read_run_fn readers[APR_MOVE_COUNT] = {
    [APR_MOVE_SWAP] = read_swap, [APR_MOVE_CUT] = read_cut,   [APR_MOVE_JOIN] = read_join,
    [APR_MOVE_PAD] = read_pad,   [APR_MOVE_PACK] = read_pack, [APR_MOVE_UNPACK] = read_unpack};

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

/* x has elements [first, first + n) of a tensor with that number of columns. */
static void multiply(const apr_step *step, int64_t columns, int64_t first, int64_t n, float *x)
{
    const float factor = apr_f32_from_bits((uint32_t)step->n[0]);
    const int64_t begin = step->n[1] * columns - first, end = step->n[2] > 0 ? begin + step->n[2] * columns : n;

    for (int64_t i = begin > 0 ? begin : 0; i < least(end, n); i++) x[i] = step->kind == APR_STEP_MULTIPLY ? x[i] * factor : x[i] / factor;
}

static void compute(const apr_tensor *t, int64_t first, int64_t n, float *x)
{
    const apr_composed *const m = t->composed;

    for (int s = 0; s < m->chain.n_steps; s++) {
        const apr_step *const step = &m->chain.steps[s];
        if (step->kind == APR_STEP_MULTIPLY || step->kind == APR_STEP_DIVIDE) multiply(step, apr_tensor_columns(t), first, n, x);
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

static void composed_values(const apr_tensor *t, int64_t first, int64_t n, float *dst)
{
    const apr_composed *const m = t->composed;
    _Alignas(16) uint8_t bytes[AT_ONCE * sizeof(double)];

    if (bytes_of(m->dtype, n) <= (size_t)n * sizeof *dst) {
        read_before(m, m->chain.n_steps, (request){first, n, 0, 1}, (uint8_t *)(dst + n) - bytes_of(m->dtype, n));
        decode_in_place(m->dtype, n, dst);
        compute(t, first, n, dst);
        return;
    }
    while (n > 0) { /* doubles */
        const int64_t now = least(n, AT_ONCE);
        read_before(m, m->chain.n_steps, (request){first, now, 0, 1}, bytes);
        apr_host_codecs()[m->dtype].decode(bytes, dst, now);
        compute(t, first, now, dst);
        dst += now, first += now, n -= now;
    }
}

static void composed_rows(const apr_tensor *t, int64_t row, int64_t n_rows, float *dst)
{
    const int64_t columns = apr_tensor_columns(t);
    apr_decode_elements(t, row * columns, n_rows * columns, dst);
}

/* Computed values are float32, as files store them. */
static void computed_bytes(const apr_tensor *t, int64_t first, int64_t n, uint8_t *dst)
{
    float computed[AT_ONCE];

    if ((uintptr_t)dst % _Alignof(float) == 0) {
        apr_decode_elements(t, first, n, (float *)(void *)dst);
        return;
    }
    while (n > 0) {
        const int64_t now = least(n, AT_ONCE);
        apr_decode_elements(t, first, now, computed);
        memcpy(dst, computed, (size_t)now * sizeof *computed);
        dst += (size_t)now * sizeof *computed, first += now, n -= now;
    }
}

static void composed_bytes(const apr_tensor *t, int64_t first, int64_t n, uint8_t *dst)
{
    const apr_composed *const m = t->composed;
    if (m->computes) computed_bytes(t, first, n, dst);
    else read_before(m, m->chain.n_steps, (request){first, n, 0, 1}, dst);
}

/* ---- any tensor ---- */

static const struct source {
    void (*rows)(const apr_tensor *t, int64_t row, int64_t n_rows, float *dst);  /* logical rows */
    void (*elements)(const apr_tensor *t, int64_t first, int64_t n, float *dst); /* in the order in which they are stored */
    void (*bytes)(const apr_tensor *t, int64_t first, int64_t n, uint8_t *dst);  /* elements in their logical order */
} sources[APR_SOURCES] = {
    [APR_SOURCE_IN_ORDER] = {in_order_rows, stored_elements, in_order_bytes},
    [APR_SOURCE_REORDERED] = {reordered_rows, stored_elements, reordered_bytes},
    [APR_SOURCE_PACKED] = {packed_rows, packed_elements, packed_bytes},
    [APR_SOURCE_COMPOSED] = {composed_rows, composed_values, composed_bytes},
    [APR_SOURCE_MERGED] = {composed_rows, merged_values, computed_bytes},
};

void apr_decode_rows(const apr_tensor *tensor, int64_t row, int64_t n_rows, float *dst)
{
    if (apr_tensor_columns(tensor) > 0 && n_rows > 0) sources[apr_tensor_source(tensor)].rows(tensor, row, n_rows, dst);
}

void apr_decode_elements(const apr_tensor *tensor, int64_t first, int64_t n, float *dst)
{
    sources[apr_tensor_source(tensor)].elements(tensor, first, n, dst);
}

/* A matrix's pending step moves whole rows; composed tensors have none. */
void apr_decode_part(const apr_tensor *tensor, int64_t row, int64_t column, int64_t n, float *dst)
{
    const int64_t stored = apr_step_row(tensor->pending, apr_tensor_rows(tensor), row);
    apr_decode_elements(tensor, stored * apr_tensor_columns(tensor) + column, n, dst);
}

void apr_read_bytes(const apr_tensor *tensor, int64_t first, int64_t n, uint8_t *dst)
{
    sources[apr_tensor_source(tensor)].bytes(tensor, first, n, dst);
}

bool apr_same_bytes(const apr_tensor *a, const apr_tensor *b)
{
    if (a->dtype != b->dtype || a->n_bytes != b->n_bytes) return false;
    if (a->n_bytes == 0) return true;
    if (!apr_tensor_is_stored(a) || !apr_tensor_is_stored(b)) return false;
    if (apr_step_equal(&a->pending, &b->pending)) return memcmp(a->data, b->data, a->n_bytes) == 0;
    const int64_t n_rows = a->rank == 1 ? a->dims[0] : apr_tensor_rows(a); /* a pending step permutes the elements of a vector */
    const uint64_t row_bytes = a->n_bytes / (uint64_t)n_rows;
    for (int64_t r = 0; r < n_rows; r++) {
        const uint8_t *const row_a = a->data + (uint64_t)apr_step_row(a->pending, n_rows, r) * row_bytes;
        const uint8_t *const row_b = b->data + (uint64_t)apr_step_row(b->pending, n_rows, r) * row_bytes;
        if (memcmp(row_a, row_b, row_bytes) != 0) return false;
    }
    return true;
}
