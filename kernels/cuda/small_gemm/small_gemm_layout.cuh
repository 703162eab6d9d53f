/* small_gemm_layout.cuh - layouts of the small GEMM: which lane holds what, where inputs are in memory, and how stages are divided among thread
 * blocks. All are functions of indices; a test checks the input layout with them on the host (tests/gpu/gpu_small_gemm.cu).
 *
 * In a product m16n8k16, lane 4 g + t holds of the weights rows g and g + 8, of the inputs token g, of the sums rows g and g + 8 of tokens
 * 2 t and 2 t + 1 (ops/mma.cuh). Its numbers 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 may be any columns, as long as weights and inputs agree: in
 * step k of 32 columns they are columns 16 k + 4 t + {0, 2, 1, 3}, four codes in one word. */
#ifndef APR_KERNELS_CUDA_SMALL_GEMM_LAYOUT_CUH
#define APR_KERNELS_CUDA_SMALL_GEMM_LAYOUT_CUH

#include <cuda_runtime.h>
#include <stdint.h>

#define GEMM_FN    static __device__ __forceinline__
#define GEMM_INDEX static __host__ __device__ __forceinline__

/* Reads what another kernel wrote (not through the read-only cache). */
template <typename N> GEMM_FN N read_now(const N *p) { return __ldcg(p); }

enum {
    GEMM_SUB = 32,        /* columns of a sub-block, whose inputs a lane loads at once: two products */
    GEMM_PIECE = 16,      /* bytes of a lane's part of it: 8 numbers of 16 bits */
    GEMM_SUB_BYTES = 512, /* of a sub-block of a tile of 8 tokens */
    GEMM_SUM_BYTES = 256, /* bytes of the sums of 256 columns of a tile */
};

/* The column, in a sub-block, of a lane's number i (0 to 3) of step k. */
GEMM_INDEX int gemm_column(int t, int k, int i) { return 16 * k + 4 * t + i % 2 * 2 + i / 2; }

/* Bytes of one part of all inputs. Part 0 has the rounded numbers, part 1 after it the rounding errors. */
GEMM_INDEX int64_t gemm_part_bytes(int64_t n_tiles, int64_t n_in) { return n_tiles * n_in * 16; }

/* The offset of a token's piece of a sub-block in a part, which is [tile][sub-block][lane]. */
GEMM_INDEX int64_t gemm_piece_at(int64_t sub, int64_t n_subs, int64_t token, int t)
{
    return (token / 8 * n_subs + sub) * GEMM_SUB_BYTES + (token % 8 * 4 + t) * GEMM_PIECE;
}

/* Sums of inputs over sub-blocks, for types with minimums: [tile][256 columns][lane] of two words, the sums of sub-blocks 2 t and 2 t + 1
 * of token g as FP16 (part 0), then their rounding errors (part 1). Returns the byte offset. */
GEMM_INDEX int64_t gemm_sum_at(int64_t sub, int64_t n_subs, int64_t token, int part)
{
    return (token / 8 * ((n_subs + 7) / 8) + sub / 8) * GEMM_SUM_BYTES + (token % 8 * 4 + sub % 8 / 2) * 8 + part * 4 + sub % 2 * 2;
}

/* --- inputs of WGMMA: one part, [stage of 256 columns][tile][columns of a lane's word][token] of 64 bytes ---
 *
 * Of a stage's columns, lane 4 g + t has those of bytes 16 (t % 2) to 16 (t % 2) + 15 of sub-blocks 4 (t / 2) to 4 (t / 2) + 3: codes of a
 * row that no other lane loads. In step 8 h + 2 i + l, which uses word i of these, numbers 2 t and 2 t + 1 are columns 4 i and 4 i + 2 of
 * sub-block 4 (t / 2) + 2 h + l, and those 8 further are columns 4 i + 1 and 4 i + 3. So a token has 64 bytes for two steps, in four pieces
 * of 16. Each piece is at its position XOR (token / 2 % 4): the 64-byte swizzle (ptx.cuh), with which the products read from different
 * banks. */
enum {
    WGMMA_SUBS = 8,             /* sub-blocks of a stage */
    WGMMA_TILE_BYTES = 8 * 512, /* bytes of a stage: eight pairs of steps of 8 tokens */
};

/* The offset of step 8 h + 2 i + l in a stage. */
GEMM_INDEX constexpr int wgmma_step_at(int h, int i, int l) { return (4 * h + i) * 512 + l * 32; }

/* The offset of columns 4 i + odd, 4 i + odd + 2 and those 16 further of a sub-block: 8 bytes. */
GEMM_INDEX int64_t wgmma_input_at(int64_t sub, int64_t n_tiles, int64_t token, int i, int odd)
{
    const int of_stage = (int)(sub % WGMMA_SUBS), g = (int)(token % 8), piece = of_stage % 2 * 2 + odd;
    return (sub / WGMMA_SUBS * n_tiles + token / 8) * WGMMA_TILE_BYTES + wgmma_step_at(of_stage / 2 % 2, i, 0) + g * 64 +
           (piece ^ g / 2) * 16 + of_stage / 4 * 8;
}

/* Sums: [stage][tile][token] of 32 bytes: eight sums (part 0), and their rounding errors (part 1), swapped for tokens 4 to 7. Returns the
 * byte offset. */
GEMM_INDEX int64_t wgmma_sum_at(int64_t sub, int64_t n_tiles, int64_t token, int part)
{
    const int g = (int)(token % 8);
    return (sub / WGMMA_SUBS * n_tiles + token / 8) * GEMM_SUM_BYTES + g * 32 + (part ^ g / 4) * 16 + sub % WGMMA_SUBS * 2;
}

/* Which of a row group's first 8 rows lane 4 g + t has: rows that are 2 apart are read at once, from different banks. */
GEMM_FN int wgmma_row(int g) { return g / 4 * 4 + g / 2 % 2 + g % 2 * 2; }

/* A row group is 16 rows, a row block has several of them, and a stage is a row block's codes of so many columns. Dense products: the
 * stages of all row blocks, one after another, are divided into equal runs, one per thread block (stream-K). Partial sums of a row block
 * that several thread blocks share are added in the order of the thread blocks. */
GEMM_FN int gemm_first(int n_all, int n_blocks, int block)
{
    const int each = n_all / n_blocks, more = n_all % n_blocks; /* the first blocks have one more */
    return block * each + (block < more ? block : more);
}
GEMM_FN int gemm_block_of(int n_all, int n_blocks, int index)
{
    const int each = n_all / n_blocks, more = n_all % n_blocks, by_more = more * (each + 1);
    return index < by_more ? index / (each + 1) : more + (index - by_more) / each;
}

/* Which of a thread block's two places for partial sums belongs to a row block. */
GEMM_FN int gemm_place(int n_all, int n_blocks, int n_stages, int block, int row_block)
{
    return 2 * block + (row_block != gemm_first(n_all, n_blocks, block) / n_stages);
}

/* The first stage of split s of n_splits. */
GEMM_FN int gemm_split(int n_stages, int n_splits, int s) { return n_stages * s / n_splits; }

#endif
