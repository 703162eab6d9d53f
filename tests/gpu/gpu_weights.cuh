/* gpu_weights.cuh - matrices of random blocks of any type, on host and device. */
#ifndef APR_TESTS_GPU_WEIGHTS_CUH
#define APR_TESTS_GPU_WEIGHTS_CUH

#include "tests/gpu/gpu_check.cuh"

static inline void put_half(uint8_t *p, float low, float high)
{
    const uint16_t bits = apr_f32_to_f16(random_bits() & 1 ? uniform(low, high) : -uniform(low, high));
    memcpy(p, &bits, 2);
}

/* Offsets of a block's FP16 numbers; -1: none. */
static inline void half_fields(apr_dtype dtype, int *a, int *b)
{
    *a = *b = -1;
    switch ((int)dtype) {
    case APR_Q4_1:
    case APR_Q5_1:
    case APR_Q4_K:
    case APR_Q5_K: *a = 0, *b = 2; break;
    case APR_Q4_0:
    case APR_Q5_0:
    case APR_Q8_0:
    case APR_IQ4_NL:
    case APR_IQ4_XS:
    case APR_APR_Q4: *a = 0; break;
    case APR_Q2_K: *a = 80, *b = 82; break;
    case APR_Q3_K: *a = 108; break;
    case APR_Q6_K: *a = 208; break;
    case APR_TQ2_0: *a = 64; break;
    default: break;
    }
}

/* Random bytes, with FP16 numbers and exponents of usual sizes. */
static inline void random_block(apr_dtype dtype, uint8_t *block)
{
    int a, b;
    for (int i = 0; i < apr_dtypes[dtype].bytes_per_block; i++) block[i] = (uint8_t)random_bits();
    half_fields(dtype, &a, &b);
    if (a >= 0) put_half(block + a, 0.001f, 0.02f);
    if (b >= 0) put_half(block + b, 0.001f, 0.02f);
    const float x = normal() * 0.05f;
    const uint16_t f16 = apr_f32_to_f16(x), bf16 = apr_f32_to_bf16(x);
    if (dtype == APR_F32) memcpy(block, &x, 4);
    if (dtype == APR_F16) memcpy(block, &f16, 2);
    if (dtype == APR_BF16) memcpy(block, &bf16, 2);
    if (dtype == APR_MXFP4) block[0] = (uint8_t)(118 + random_bits() % 8);
    for (int i = 0; i < 4 && dtype == APR_NVFP4; i++) block[i] -= block[i] == 0xff; /* NaN */
    if (dtype == APR_F8_E4M3 && (block[0] & 0x7f) == 0x7f) block[0] ^= 1;
    if (dtype == APR_F8_E5M2) block[0] = apr_f32_to_e5m2(x);
}

typedef struct matrix {
    apr_tensor host, device, host_scale, device_scale;
    std::vector<uint8_t> bytes, scale_bytes;
    device_copy<uint8_t> *data, *scale_data;
} matrix;

static inline void set_up(apr_tensor *t, apr_dtype dtype, int64_t rows, int64_t columns)
{
    memset(t, 0, sizeof *t);
    t->name = "test";
    t->dtype = dtype;
    t->rank = 2;
    t->dims[0] = rows;
    t->dims[1] = columns;
}

static inline std::vector<uint8_t> padded(const std::vector<uint8_t> &bytes)
{
    std::vector<uint8_t> more(bytes);
    more.resize((bytes.size() + 15) / 16 * 16, 0xff);
    return more;
}

/* heads > 0: rows of llama's pairs, pending. scale_rows > 0: factors for blocks of scale_rows x scale_columns; -1: one for all. */
static inline matrix *new_matrix(apr_dtype dtype, int64_t rows, int64_t columns, int64_t heads, int64_t scale_rows, int64_t scale_columns,
                                 apr_dtype scale_dtype)
{
    matrix *const m = new matrix;
    const bool is_flat = dtype == APR_APR_Q4 || dtype == APR_APR_Q8;
    const int64_t elems = apr_dtypes[dtype].elems_per_block, n_bytes = apr_dtypes[dtype].bytes_per_block;
    const int64_t n_blocks = is_flat ? (rows * columns + elems - 1) / elems : rows * (columns / elems);
    const size_t head = dtype == APR_APR_Q8 ? 4 : 0;
    m->bytes.resize(head + (size_t)(n_blocks * n_bytes));
    for (int64_t i = 0; i < n_blocks; i++) random_block(dtype, m->bytes.data() + head + i * n_bytes);
    const float flat_scale = 0.003f;
    if (head) memcpy(m->bytes.data(), &flat_scale, 4);
    set_up(&m->host, dtype, rows, columns);
    m->host.data = m->bytes.data();
    m->host.n_bytes = m->bytes.size();
    if (heads > 0) m->host.pending.kind = APR_STEP_PAIRS_TO_HALVES, m->host.pending.n[0] = (int32_t)heads;
    m->device = m->host;
    m->data = new device_copy<uint8_t>(padded(m->bytes));
    m->device.data = m->data->device;
    m->scale_data = NULL;
    if (scale_rows != 0) {
        const bool one = scale_rows < 0;
        const int64_t high = one ? 1 : (rows + scale_rows - 1) / scale_rows, wide = one ? 1 : (columns + scale_columns - 1) / scale_columns;
        set_up(&m->host_scale, scale_dtype, high, wide);
        m->scale_bytes.resize((size_t)(high * wide * apr_dtypes[scale_dtype].bytes_per_block));
        for (int64_t i = 0; i < high * wide; i++) {
            const float f = uniform(0.001f, 0.01f);
            if (scale_dtype == APR_E8M0) m->scale_bytes[(size_t)i] = (uint8_t)(117 + random_bits() % 4); /* powers of two */
            else apr_ref_codecs[scale_dtype].encode(&f, m->scale_bytes.data() + i * apr_dtypes[scale_dtype].bytes_per_block, 1);
        }
        m->host_scale.data = m->scale_bytes.data();
        m->host_scale.n_bytes = m->scale_bytes.size();
        m->device_scale = m->host_scale;
        m->scale_data = new device_copy<uint8_t>(padded(m->scale_bytes));
        m->device_scale.data = m->scale_data->device;
        m->host.scale = &m->host_scale;
        m->device.scale = &m->device_scale;
        m->host.scale_rows = m->device.scale_rows = one ? rows : scale_rows;
        m->host.scale_columns = m->device.scale_columns = one ? columns : scale_columns;
    }
    return m;
}

/* Rows of blocks in the order of tiles, made block by block as kernels/cuda/decode_gemv_args.h says; zeros behind their last ones. */
static inline std::vector<uint8_t> items_of(const std::vector<uint8_t> &rows, apr_dtype dtype, int64_t n_rows, int64_t n_in)
{
    const int64_t block = apr_dtypes[dtype].bytes_per_block, elems = apr_dtypes[dtype].elems_per_block;
    const int64_t n = apr_tile_columns(dtype) / elems, n_blocks = n_in / elems, n_items = (n_blocks + n - 1) / n;
    std::vector<uint8_t> items((size_t)(n_rows * n_items * n * block), 0);
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t b = 0; b < n_blocks; b++) {
            const uint8_t *const from = &rows[(size_t)((r * n_blocks + b) * block)];
            uint8_t *const to = &items[(size_t)(((r / 16 * n_items + b / n) * 16 + r % 16) * n * block)], k = (uint8_t)(b % n);
            if (dtype != APR_MXFP4) {
                memcpy(to + k * block, from, (size_t)block);
                continue;
            }
            to[k] = from[0]; /* an exponent; then byte i of 8 has the low nibbles of i and i + 4, byte i + 4 their high ones */
            for (int i = 0; i < 16; i++) {
                const uint8_t one = from[1 + i / 8 * 8 + i % 4], other = from[1 + i / 8 * 8 + i % 4 + 4];
                to[n + 16 * k + i] = (uint8_t)(i % 8 < 4 ? (one & 15) | (other & 15) << 4 : one >> 4 | (other & 240));
            }
        }
    return items;
}

static inline void free_matrix(matrix *m)
{
    delete m->data;
    delete m->scale_data;
    delete m;
}

#endif
