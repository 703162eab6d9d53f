/* abreast_lanes.cuh - layouts of the small GEMM: which lane holds what, where inputs are in memory, and how stages are divided among thread
 * blocks. All are functions of indices; a test checks the input layout with them on the host (tests/gpu/gpu_abreast.cu).
 *
 * In a product m16n8k16, lane 4 g + t holds of the weights rows g and g + 8, of the inputs token g, of the sums rows g and g + 8 of tokens
 * 2 t and 2 t + 1 (ops/mma.cuh). Its numbers 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 may be any columns, as long as weights and inputs agree: in
 * step k of 32 columns they are columns 16 k + 4 t + {0, 2, 1, 3}, four codes in one word. */
#ifndef APR_KERNELS_CUDA_ABREAST_LANES_CUH
#define APR_KERNELS_CUDA_ABREAST_LANES_CUH

#include <cuda_runtime.h>
#include <stdint.h>

#define ABREAST_FN    static __device__ __forceinline__
#define ABREAST_INDEX static __host__ __device__ __forceinline__

/* Reads what another kernel wrote (not through the read-only cache). */
template <typename N> ABREAST_FN N read_now(const N *p) { return __ldcg(p); }

enum {
    ABREAST_SUB = 32,        /* columns of a sub-block, whose inputs a lane loads at once: two products */
    ABREAST_PIECE = 16,      /* bytes of a lane's part of it: 8 numbers of 16 bits */
    ABREAST_SUB_BYTES = 512, /* of a sub-block of a tile of 8 tokens */
    ABREAST_SUM_BYTES = 256, /* bytes of the sums of 256 columns of a tile */
};

/* The column, in a sub-block, of a lane's number i (0 to 3) of step k. */
ABREAST_INDEX int abreast_column(int t, int k, int i) { return 16 * k + 4 * t + i % 2 * 2 + i / 2; }

/* Bytes of one part of all inputs. Part 0 has the rounded numbers, part 1 after it the rounding errors. */
ABREAST_INDEX int64_t abreast_plane(int64_t n_tiles, int64_t n_in) { return n_tiles * n_in * 16; }

/* The offset of a token's piece of a sub-block in a part, which is [tile][sub-block][lane]. */
ABREAST_INDEX int64_t abreast_piece_at(int64_t sub, int64_t n_subs, int64_t token, int t)
{
    return (token / 8 * n_subs + sub) * ABREAST_SUB_BYTES + (token % 8 * 4 + t) * ABREAST_PIECE;
}

/* Sums of inputs over sub-blocks, for types with minimums: [tile][256 columns][lane] of two words, the sums of sub-blocks 2 t and 2 t + 1
 * of token g as FP16 (part 0), then their rounding errors (part 1). Returns the byte offset. */
ABREAST_INDEX int64_t abreast_sum_at(int64_t sub, int64_t n_subs, int64_t token, int part)
{
    return (token / 8 * ((n_subs + 7) / 8) + sub / 8) * ABREAST_SUM_BYTES + (token % 8 * 4 + sub % 8 / 2) * 8 + part * 4 + sub % 2 * 2;
}

/* --- inputs of WGMMA: one part, [stage of 256 columns][tile][columns of a lane's word][token] of 64 bytes ---
 *
 * Of a stage's columns, lane 4 g + t has those of bytes 16 (t % 2) to 16 (t % 2) + 15 of sub-blocks 4 (t / 2) to 4 (t / 2) + 3: codes of a
 * row that no other lane loads. In step 8 h + 2 i + l, which uses word i of these, numbers 2 t and 2 t + 1 are columns 4 i and 4 i + 2 of
 * sub-block 4 (t / 2) + 2 h + l, and those 8 further are columns 4 i + 1 and 4 i + 3. So a token has 64 bytes for two steps, in four pieces
 * of 16. Each piece is at its position XOR (token / 2 % 4): the 64-byte swizzle (ptx.cuh), with which the products read from different
 * banks. */
enum {
    WIDE_SUBS = 8,             /* sub-blocks of a stage */
    WIDE_TILE_BYTES = 8 * 512, /* bytes of a stage: eight pairs of steps of 8 tokens */
};

/* The offset of step 8 h + 2 i + l in a stage. */
ABREAST_INDEX constexpr int wide_step_at(int h, int i, int l) { return (4 * h + i) * 512 + l * 32; }

/* The offset of columns 4 i + odd, 4 i + odd + 2 and those 16 further of a sub-block: 8 bytes. */
ABREAST_INDEX int64_t wide_halves_at(int64_t sub, int64_t n_tiles, int64_t token, int i, int odd)
{
    const int of_stage = (int)(sub % WIDE_SUBS), g = (int)(token % 8), piece = of_stage % 2 * 2 + odd;
    return (sub / WIDE_SUBS * n_tiles + token / 8) * WIDE_TILE_BYTES + wide_step_at(of_stage / 2 % 2, i, 0) + g * 64 +
           (piece ^ g / 2) * 16 + of_stage / 4 * 8;
}

/* Sums: [stage][tile][token] of 32 bytes: eight sums (part 0), and their rounding errors (part 1), swapped for tokens 4 to 7. Returns the
 * byte offset. */
ABREAST_INDEX int64_t wide_sum_at(int64_t sub, int64_t n_tiles, int64_t token, int part)
{
    const int g = (int)(token % 8);
    return (sub / WIDE_SUBS * n_tiles + token / 8) * ABREAST_SUM_BYTES + g * 32 + (part ^ g / 4) * 16 + sub % WIDE_SUBS * 2;
}

/* Which of a row group's first 8 rows lane 4 g + t has: rows that are 2 apart are read at once, from different banks. */
ABREAST_FN int wide_row(int g) { return g / 4 * 4 + g / 2 % 2 + g % 2 * 2; }

/* A row group is 16 rows, a row block has several of them, and a stage is a row block's codes of so many columns. Dense products: the
 * stages of all row blocks, one after another, are divided into equal runs, one per thread block (stream-K). Partial sums of a row block
 * that several thread blocks share are added in the order of the thread blocks. */
ABREAST_FN int abreast_first(int n_units, int n_blocks, int block)
{
    const int each = n_units / n_blocks, more = n_units % n_blocks; /* the first blocks have one more */
    return block * each + (block < more ? block : more);
}
ABREAST_FN int abreast_block_of(int n_units, int n_blocks, int unit)
{
    const int each = n_units / n_blocks, more = n_units % n_blocks, by_more = more * (each + 1);
    return unit < by_more ? unit / (each + 1) : more + (unit - by_more) / each;
}

/* Which of a thread block's two places for partial sums belongs to a row block. */
ABREAST_FN int abreast_place(int n_units, int n_blocks, int n_stages, int block, int row_block)
{
    return 2 * block + (row_block != abreast_first(n_units, n_blocks, block) / n_stages);
}

/* The first stage of split s of n_splits. */
ABREAST_FN int abreast_split(int n_stages, int n_splits, int s) { return n_stages * s / n_splits; }

#endif
