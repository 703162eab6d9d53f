/* tile.h - the innermost loop of products.h for vectors of LANES_BYTES bytes. products.h includes it once for each width, so it has no
 * include guard. */
#define TILE_OF(name) LANES_JOIN(name, LANES_BYTES)

typedef num TILE_OF(tile_) __attribute__((vector_size(LANES_BYTES)));
typedef num TILE_OF(tile_at_) __attribute__((vector_size(LANES_BYTES), aligned(sizeof(num)), may_alias));

/* sums[r][..] = sum over k of a[k][r] * b[k][..], r < TILE_ROWS, for two vectors of columns. */
LANES_INLINE void TILE_OF(multiply_tile_)(const num *a, const num *b, int64_t n, num *sums)
{
    enum { PER = LANES_BYTES / sizeof(num) };
    TILE_OF(tile_) acc[TILE_ROWS][2];

    for (int r = 0; r < TILE_ROWS; r++)
        for (int i = 0; i < 2; i++) acc[r][i] = (TILE_OF(tile_)){0};
    for (int64_t k = 0; k < n; k++) {
        TILE_OF(tile_) v[2];
        for (int i = 0; i < 2; i++) v[i] = *(const TILE_OF(tile_at_) *)(b + (2 * k + i) * PER);
        for (int r = 0; r < TILE_ROWS; r++)
            for (int i = 0; i < 2; i++) acc[r][i] += a[k * TILE_ROWS + r] * v[i];
    }
    for (int r = 0; r < TILE_ROWS; r++)
        for (int i = 0; i < 2; i++) *(TILE_OF(tile_at_) *)(sums + (2 * r + i) * PER) = acc[r][i];
}

#undef TILE_OF
#undef LANES_BYTES
