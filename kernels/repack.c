/* repack.c - repacks packed matrices into the canonical layout: finds where each number comes from, and moves it. */
#include "kernels/repack.h"

#include "formats/base/bytes.h"
#include "formats/number/half.h"
#include "kernels/unpack.h"

#include <string.h>

/* --- the sources --- */

static bool is_within_one_matrix(const apr_tensor *t)
{
    const apr_packing *const p = t->packing;
    return p->first_row % p->matrix_rows + apr_tensor_rows(t) <= p->matrix_rows;
}

static bool can_repack(const apr_tensor *t)
{
    const apr_packing *const p = t->packing;

    if (!apr_tensor_is_packed(t) || p->matrix_rows < 1 || p->scale_rows < 1 || p->scale_columns < 1 || p->columns < 1) return false;
    const int64_t n_rows = apr_tensor_rows(t);
    if (n_rows < 1 || apr_tensor_columns(t) != p->columns || p->first_row < 0 || n_rows > p->rows - p->first_row) return false;
    if (p->level == APR_LEVEL_TABLE && p->bits > 4) return false;
    const bool is_whole = p->first_row % p->matrix_rows == 0 && n_rows % p->matrix_rows == 0;
    return is_within_one_matrix(t) || (is_whole && t->pending.kind == APR_STEP_NONE);
}

static bool same_levels(const apr_packing *a, const apr_packing *b)
{
    if (a->level != b->level || a->bits != b->bits) return false;
    return a->level != APR_LEVEL_TABLE || memcmp(a->levels, b->levels, sizeof *a->levels << a->bits) == 0;
}

static apr_dtype dtype_of_scales(const apr_packing *p) { return p->nested != NULL ? APR_F32 : p->scale_dtype; }
static apr_dtype dtype_of_zeros(const apr_packing *p)
{
    return p->zero_order == APR_ZEROS_BY_ROW && p->zeros->dtype == APR_I8 ? APR_I8 : APR_U8;
}

/* GPTQ adds its bias within the word of zero points: apr_unpack_zero includes it, and the repacked zero points need none. */
static int zero_bias_of(const apr_packing *p) { return p->zero_order == APR_ZEROS_ALONG_ROWS ? 0 : p->zero_bias; }

static bool have_same_kind(const apr_tensor *t, const apr_tensor *u)
{
    const apr_packing *const a = t->packing, *const b = u->packing;

    if (t->dtype != u->dtype || apr_tensor_rows(t) != apr_tensor_rows(u) || a->columns != b->columns || !same_levels(a, b)) return false;
    if (dtype_of_scales(a) != dtype_of_scales(b) || a->scale_rows != b->scale_rows || a->scale_columns != b->scale_columns) return false;
    if (apr_packing_is_flat(a) != apr_packing_is_flat(b) || a->matrix_rows != b->matrix_rows || a->divides != b->divides ||
        zero_bias_of(a) != zero_bias_of(b))
        return false;
    if ((a->zero_order == APR_ZEROS_NONE) != (b->zero_order == APR_ZEROS_NONE)) return false;
    return a->zero_order == APR_ZEROS_NONE || dtype_of_zeros(a) == dtype_of_zeros(b);
}

/* Are the columns of the row's matrix in the order of their groups? Not with act order. */
static bool has_natural_groups(const apr_packing *p, int64_t row)
{
    for (int64_t c = 0; p->groups != NULL && c < p->columns; c++)
        if (apr_unpack_group(p, row, c) != c / p->scale_columns) return false;
    return true;
}

static int64_t common_divisor(int64_t a, int64_t b) { return b == 0 ? a : common_divisor(b, a % b); }

/* The number of columns that share a scale, in every row. */
static int64_t columns_of_a_scale(const apr_packing *p)
{
    if (apr_packing_is_flat(p)) return common_divisor(p->columns, p->scale_columns);
    return p->scale_columns < p->columns ? p->scale_columns : p->columns;
}

/* Rows of the repacked matrix that share a scale. It is 1 where rows are moved or cut inside a block of scales, or where zero points are
 * finer than scales. */
static int64_t rows_of_a_scale(const apr_tensor *parts, int64_t n_parts, int64_t matrix_rows)
{
    const apr_packing *const p = parts->packing;

    if (apr_packing_is_flat(p) || (p->zero_order != APR_ZEROS_NONE && p->zero_order != APR_ZEROS_BY_ROW)) return 1;
    if (p->scale_rows >= p->matrix_rows) return matrix_rows;
    for (int64_t j = 0; j < n_parts; j++) {
        const int64_t first = parts[j].packing->first_row % p->matrix_rows;
        if (parts[j].pending.kind != APR_STEP_NONE || first % p->scale_rows != 0) return 1;
    }
    return p->scale_rows < matrix_rows ? p->scale_rows : matrix_rows;
}

/* --- where a row comes from --- */

typedef struct source_row {
    const apr_packing *packing;
    int64_t row, matrix, row_of_matrix; /* row: among all matrices; matrix and row_of_matrix: the same row as two numbers */
} source_row;

static source_row source_of(const apr_repack *repack, int64_t row)
{
    const int64_t n_rows = apr_tensor_rows(repack->parts);
    const apr_tensor *const part = &repack->parts[row / n_rows];
    const int64_t stored = apr_packed_row(part, row % n_rows);

    return (source_row){part->packing, stored, stored / part->packing->matrix_rows, stored % part->packing->matrix_rows};
}

/* --- the layout --- */

static int64_t n_matrices_of(const apr_repack *repack) { return repack->packing.rows / repack->packing.matrix_rows; }

static void set_piece(apr_repack *repack, apr_canonical_section piece, int64_t n_rows, int64_t n_columns, apr_dtype dtype)
{
    static const char *const names[APR_CANONICAL_SECTIONS] = {"codes", "scales", "zero points", "global scales", "groups"};

    repack->piece_rows[piece] = n_rows;
    repack->row_bytes[piece] = (uint64_t)n_columns * (uint64_t)apr_dtypes[dtype].bytes_per_block;
    repack->pieces[piece] = (apr_tensor){.name = names[piece], .dtype = dtype, .rank = 2, .dims = {n_rows, n_columns}};
    repack->pieces[piece].n_bytes = (uint64_t)n_rows * repack->row_bytes[piece];
}

/* Finds the optional pieces: a piece exists if one of the parts needs it. */
static void find_optional(const apr_repack *repack, bool *has_global_scales, bool *has_groups)
{
    *has_global_scales = *has_groups = false;
    for (int64_t m = 0; m < n_matrices_of(repack); m++) {
        const source_row source = source_of(repack, m * repack->packing.matrix_rows);
        *has_global_scales |= source.packing->global_scales != NULL;
        *has_groups |= !*has_groups && !has_natural_groups(source.packing, source.row);
    }
}

static void describe_pieces(apr_repack *repack)
{
    const apr_packing *const p = &repack->packing, *const source = repack->parts->packing;
    const int64_t n_matrices = n_matrices_of(repack), n_groups = apr_packing_groups(p);
    bool has_global_scales, has_groups;

    find_optional(repack, &has_global_scales, &has_groups);
    set_piece(repack, APR_CANONICAL_CODES, p->rows, p->bits == 8 ? p->columns : apr_div_up(p->columns, 2), APR_U8);
    set_piece(repack, APR_CANONICAL_SCALES, n_matrices * apr_packing_scale_rows(p), n_groups, p->scale_dtype);
    if (source->zero_order != APR_ZEROS_NONE)
        set_piece(repack, APR_CANONICAL_ZEROS, n_matrices * apr_packing_scale_rows(p), n_groups, dtype_of_zeros(source));
    if (has_global_scales) set_piece(repack, APR_CANONICAL_GLOBAL_SCALES, n_matrices, 1, APR_F32);
    if (has_groups) set_piece(repack, APR_CANONICAL_GROUPS, n_matrices, p->columns, APR_I32);
}

static void place_pieces(apr_repack *repack)
{
    const apr_tensor *const t = repack->pieces;
    const apr_canonical_layout sizes = {
        .rows = (uint64_t)repack->packing.rows,
        .columns = (uint64_t)repack->packing.columns,
        .bits = (uint64_t)repack->packing.bits,
        .n_scales = (uint64_t)(t[APR_CANONICAL_SCALES].dims[0] * t[APR_CANONICAL_SCALES].dims[1]),
        .scale_bytes = (uint64_t)apr_dtypes[repack->packing.scale_dtype].bytes_per_block,
        .n_zeros = t[APR_CANONICAL_ZEROS].n_bytes,
        .n_global_scales = t[APR_CANONICAL_GLOBAL_SCALES].n_bytes / 4,
        .n_groups = t[APR_CANONICAL_GROUPS].n_bytes / 4,
    };
    apr_canonical_offsets(&sizes, repack->offsets);
}

bool apr_repack_init(apr_repack *repack, const apr_tensor *parts, int64_t n_parts)
{
    *repack = (apr_repack){.parts = parts, .n_parts = n_parts};
    for (int64_t j = 0; j < n_parts; j++) {
        if (!can_repack(&parts[j]) || (j > 0 && !have_same_kind(parts, &parts[j]))) return false;
        if (n_parts > 1 && !is_within_one_matrix(&parts[j])) return false;
    }
    if (n_parts < 1) return false;
    const apr_packing *const p = parts->packing;
    const int64_t n_rows = apr_tensor_rows(parts), matrix_rows = is_within_one_matrix(parts) ? n_rows : p->matrix_rows;
    repack->packing = (apr_packing){
        .scheme = p->scheme,
        .rows = n_parts * n_rows,
        .columns = p->columns,
        .matrix_rows = matrix_rows,
        .order = APR_CODES_BY_ROW,
        .level = p->level,
        .bits = apr_canonical_bits(p->bits),
        .scale_dtype = dtype_of_scales(p),
        .scale_rows = rows_of_a_scale(parts, n_parts, matrix_rows),
        .scale_columns = columns_of_a_scale(p),
        .divides = p->divides,
        .zero_order = p->zero_order != APR_ZEROS_NONE ? APR_ZEROS_BY_ROW : APR_ZEROS_NONE,
        .zero_bias = zero_bias_of(p),
    };
    for (int i = 0; p->level == APR_LEVEL_TABLE && i < 1 << p->bits; i++) repack->levels[i] = p->levels[i];
    describe_pieces(repack);
    place_pieces(repack);
    return true;
}

static const apr_tensor *piece_of(const apr_repack *repack, apr_canonical_section piece)
{
    return repack->piece_rows[piece] > 0 ? &repack->pieces[piece] : NULL;
}

void apr_repack_bind(apr_repack *repack, const uint8_t *memory)
{
    apr_packing *const p = &repack->packing;

    p->n_parts = 0;
    for (int i = 0; i < APR_CANONICAL_SECTIONS; i++) {
        repack->pieces[i].data = memory + repack->offsets[i];
        if (repack->piece_rows[i] > 0) repack->piece_list[p->n_parts++] = &repack->pieces[i];
    }
    p->parts = repack->piece_list;
    p->codes = piece_of(repack, APR_CANONICAL_CODES);
    p->scales = piece_of(repack, APR_CANONICAL_SCALES);
    p->zeros = piece_of(repack, APR_CANONICAL_ZEROS);
    p->global_scales = piece_of(repack, APR_CANONICAL_GLOBAL_SCALES);
    p->groups = piece_of(repack, APR_CANONICAL_GROUPS);
    p->levels = p->level == APR_LEVEL_TABLE ? repack->levels : NULL;
}

/* --- codes --- */

/* The first 32-bit word of a row; the words of one matrix are stored together. */
static const uint8_t *words_down(const source_row *s)
{
    const apr_packing *const p = s->packing;
    const int64_t n_words = apr_div_up(p->columns * p->bits, 32);
    return p->codes->data + 4 * (s->matrix * n_words * p->matrix_rows + s->row_of_matrix);
}

static unsigned nibble_interleaved(const source_row *s, int64_t column)
{
    static const uint8_t places[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    const apr_packing *const p = s->packing;
    const int64_t word = (s->matrix * p->columns + column) * (p->matrix_rows / 8) + s->row_of_matrix / 8;
    return apr_load_le32(p->codes->data + 4 * word) >> 4 * places[s->row_of_matrix % 8] & 0x0f;
}

/* The code in more bits: signed codes are sign-extended. */
static unsigned widen(const apr_packing *p, unsigned code)
{
    const unsigned sign = 1u << (p->bits - 1);
    return p->level == APR_LEVEL_SIGNED ? (code ^ sign) - sign : code;
}

enum { SOME_COLUMNS = 512 };

static void move_codes(const source_row *s, int bits, uint8_t *dst)
{
    const apr_packing *const p = s->packing;
    uint8_t codes[SOME_COLUMNS];

    for (int64_t first = 0, n; first < p->columns; first += n) {
        n = p->columns - first < SOME_COLUMNS ? p->columns - first : SOME_COLUMNS;
        apr_unpack_codes(p, s->row, first, n, codes);
        for (int64_t i = 0; i < n; i++) {
            const unsigned code = widen(p, codes[i]);
            if (bits == 8) dst[first + i] = (uint8_t)code;
            else if (i % 2 == 0) dst[(first + i) / 2] = code & 0x0f;
            else dst[(first + i) / 2] |= (uint8_t)(code << 4);
        }
    }
}

/* Copies rows whose bytes are already in the canonical layout, possibly with nibbles swapped. False: they are not. */
static bool copy_codes(const source_row *s, int bits, uint8_t *dst)
{
    const apr_packing *const p = s->packing;
    const int64_t row_bytes = apr_div_up(p->columns * bits, 8), stride = (int64_t)(p->codes->n_bytes / (uint64_t)p->rows);

    if (p->bits != bits) return false;
    if (p->order == APR_CODES_BY_ROW) {
        memcpy(dst, p->codes->data + s->row * stride, (size_t)row_bytes);
        return true;
    }
    if (p->order != APR_CODES_HIGH_FIRST || p->columns % 2 != 0) return false;
    const uint8_t *const src = p->codes->data + s->row * row_bytes;
    for (int64_t i = 0; i < row_bytes; i++) dst[i] = (uint8_t)(src[i] << 4 | src[i] >> 4);
    return true;
}

enum { AT_ONCE = 16 }; /* rows at a time: words that run across rows share cache lines */

/* Transposes words that are stored column by column; each word belongs to one row. */
static void transpose_words(const source_row *s, int64_t n_rows, uint64_t row_bytes, uint8_t *dst)
{
    const apr_packing *const p = s->packing;
    const uint8_t *words[AT_ONCE];

    for (int64_t i = 0; i < n_rows; i++) words[i] = words_down(&s[i]);
    for (int64_t w = 0; w < (int64_t)(row_bytes / 4); w++)
        for (int64_t i = 0; i < n_rows; i++) memcpy(dst + (uint64_t)i * row_bytes + (uint64_t)w * 4, words[i] + 4 * w * p->matrix_rows, 4);
}

static void deinterleave(const source_row *s, int64_t n_rows, uint64_t row_bytes, uint8_t *dst)
{
    const int64_t n_columns = s->packing->columns;
    for (int64_t c = 0; c < n_columns; c += 2)
        for (int64_t i = 0; i < n_rows; i++) {
            const unsigned high = c + 1 < n_columns ? nibble_interleaved(&s[i], c + 1) : 0;
            dst[(uint64_t)i * row_bytes + (uint64_t)c / 2] = (uint8_t)(nibble_interleaved(&s[i], c) | high << 4);
        }
}

static void make_codes(const apr_repack *repack, int64_t first, int64_t n_rows, uint8_t *dst)
{
    const int bits = repack->packing.bits;
    const uint64_t row_bytes = repack->row_bytes[APR_CANONICAL_CODES];
    source_row s[AT_ONCE];

    for (int64_t i = 0; i < n_rows; i++) s[i] = source_of(repack, first + i);
    /* stacked parts may have different orders: only rows of one packing are handled together */
    for (int64_t i = 0, n; i < n_rows; i += n) {
        const apr_packing *const p = s[i].packing;
        uint8_t *const to = dst + (uint64_t)i * row_bytes;
        for (n = 1; i + n < n_rows && s[i + n].packing == p;) n++;
        if (p->bits == bits && p->order == APR_CODES_DOWN && row_bytes % 4 == 0) transpose_words(s + i, n, row_bytes, to);
        else if (p->bits == bits && p->order == APR_CODES_INTERLEAVED) deinterleave(s + i, n, row_bytes, to);
        else
            for (int64_t k = 0; k < n; k++)
                if (!copy_codes(&s[i + k], bits, to + (uint64_t)k * row_bytes)) move_codes(&s[i + k], bits, to + (uint64_t)k * row_bytes);
    }
}

/* --- scales, zero points and the rest --- */

/* Index of the source's scale for a group of the repacked matrix. */
static int64_t scale_index(const apr_repack *repack, const source_row *s, int64_t group)
{
    const apr_packing *const p = s->packing;
    if (!apr_packing_is_flat(p)) return apr_unpack_scale_index(p, s->row, group);
    return (s->row * p->columns + group * repack->packing.scale_columns) / p->scale_columns;
}

/* Makes one row of a piece. */
typedef void (*make_row_fn)(const apr_repack *repack, int64_t row, uint8_t *dst);

/* The source of row `row` of the scales: the first matrix row that uses it. */
static source_row source_of_scales(const apr_repack *repack, int64_t row)
{
    const apr_packing *const repacked = &repack->packing;
    const int64_t n_scale_rows = apr_packing_scale_rows(repacked);
    return source_of(repack, row / n_scale_rows * repacked->matrix_rows + row % n_scale_rows * repacked->scale_rows);
}

static void make_scales(const apr_repack *repack, int64_t row, uint8_t *dst)
{
    const source_row s = source_of_scales(repack, row);
    const int64_t n_bytes = apr_dtypes[repack->packing.scale_dtype].bytes_per_block;

    for (int64_t g = 0; g < apr_packing_groups(&repack->packing); g++) {
        const int64_t i = scale_index(repack, &s, g);
        if (s.packing->nested != NULL) apr_store_le32(dst + 4 * g, apr_f32_bits(apr_unpack_scale(s.packing, i)));
        else memcpy(dst + n_bytes * g, s.packing->scales->data + n_bytes * i, (size_t)n_bytes);
    }
}

static void make_zeros(const apr_repack *repack, int64_t row, uint8_t *dst)
{
    const source_row s = source_of_scales(repack, row);
    for (int64_t g = 0; g < apr_packing_groups(&repack->packing); g++)
        dst[g] = (uint8_t)(apr_unpack_zero(s.packing, s.row, g) - zero_bias_of(s.packing));
}

static void make_global_scales(const apr_repack *repack, int64_t matrix, uint8_t *dst)
{
    const source_row s = source_of(repack, matrix * repack->packing.matrix_rows);
    apr_store_le32(dst, apr_f32_bits(apr_unpack_global_scale(s.packing, s.row)));
}

static void make_groups(const apr_repack *repack, int64_t matrix, uint8_t *dst)
{
    const source_row s = source_of(repack, matrix * repack->packing.matrix_rows);
    for (int64_t c = 0; c < repack->packing.columns; c++) apr_store_le32(dst + 4 * c, (uint32_t)apr_unpack_group(s.packing, s.row, c));
}

void apr_repack_rows(const apr_repack *repack, apr_canonical_section piece, int64_t row, int64_t n_rows, uint8_t *dst)
{
    static const make_row_fn make_row[APR_CANONICAL_SECTIONS] = {
        [APR_CANONICAL_SCALES] = make_scales,
        [APR_CANONICAL_ZEROS] = make_zeros,
        [APR_CANONICAL_GLOBAL_SCALES] = make_global_scales,
        [APR_CANONICAL_GROUPS] = make_groups,
    };
    const uint64_t row_bytes = repack->row_bytes[piece];

    for (int64_t i = 0; i < n_rows && piece != APR_CANONICAL_CODES; i++) make_row[piece](repack, row + i, dst + (uint64_t)i * row_bytes);
    for (int64_t i = 0; i < n_rows && piece == APR_CANONICAL_CODES; i += AT_ONCE)
        make_codes(repack, row + i, n_rows - i < AT_ONCE ? n_rows - i : AT_ONCE, dst + (uint64_t)i * row_bytes);
}
