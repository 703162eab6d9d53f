/* iq_book.c - makes the lists of an IQ codebook's cells. */
#include "kernels/ref/iq_book.h"

#include "kernels/ref/iq_codebooks.h"

#include <pthread.h>
#include <stdbool.h>

/* A level as the boundaries below it, one bit each; a point as those of all its values. What a way from one point to another crosses is
 * where they differ. */
enum { MAX_CROSSED = 4 * 7 };

static unsigned boundaries_of_word(const apr_iq_book *book, unsigned word)
{
    unsigned below = 0;
    for (int i = 0; i < book->n_values; i++) {
        const unsigned level = word >> book->bits * i & ((1u << book->bits) - 1);
        below |= ((1u << level) - 1) << (book->n_levels - 1) * i;
    }
    return below;
}

/* The word of a cell, or of the point in it. */
static unsigned word_of_cell(const apr_iq_book *book, int cell)
{
    unsigned word = 0;
    for (int i = 0; i < book->n_values; i++, cell /= book->n_levels) word |= (unsigned)(cell % book->n_levels) << book->bits * i;
    return word;
}

int apr_iq_cell_of_word(const apr_iq_book *book, unsigned word)
{
    int cell = 0;
    for (int i = book->n_values - 1; i >= 0; i--) cell = cell * book->n_levels + (int)(word >> book->bits * i & ((1u << book->bits) - 1));
    return cell;
}

/* The book's points by how many boundaries they are away from a cell: those with d of them are order[start[d]] to order[start[d + 1]]. */
static void sort_by_distance(const apr_iq_book *book, const unsigned *below, unsigned cell, int *start, uint16_t *order)
{
    int count[MAX_CROSSED + 2] = {0};
    for (int k = 0; k < book->n_points; k++) count[__builtin_popcount(below[k] ^ cell) + 1]++;
    for (int d = 0; d <= MAX_CROSSED; d++) count[d + 1] += count[d], start[d] = count[d];
    start[MAX_CROSSED + 1] = book->n_points;
    for (int k = 0; k < book->n_points; k++) order[count[__builtin_popcount(below[k] ^ cell)]++] = (uint16_t)k;
}

/* Writes the list of a cell, and returns its length. */
static uint32_t make_list(const apr_iq_book *book, const unsigned *below, unsigned cell, uint16_t *list)
{
    uint16_t order[APR_IQ_MAX_POINTS];
    int start[MAX_CROSSED + 2];
    unsigned kept[APR_IQ_MAX_POINTS];
    uint32_t n = 0;

    sort_by_distance(book, below, cell, start, order);
    for (int k = 0; k < book->n_points; k++) {
        const unsigned crossed = below[order[k]] ^ cell;
        uint32_t other = 0;
        while (other < n && (kept[other] & ~crossed) != 0) other++;
        if (other < n) continue;
        kept[n] = crossed;
        list[n++] = book->words[order[k]];
    }
    return n;
}

static void make_book(apr_iq_book *book)
{
    unsigned below[APR_IQ_MAX_POINTS];
    int n_cells = 1;

    for (int i = 0; i < book->n_values; i++) n_cells *= book->n_levels;
    for (int k = 0; k < book->n_points; k++) {
        below[k] = boundaries_of_word(book, book->words[k]);
        book->index[apr_iq_cell_of_word(book, book->words[k])] = (uint16_t)k;
    }
    for (int c = 0; c < n_cells; c++)
        book->first[c + 1] =
            book->first[c] + make_list(book, below, boundaries_of_word(book, word_of_cell(book, c)), book->list + book->first[c]);
}

/* n_list: the length of all lists, which follows from the codebook. */
#define BOOK(name, values, levels, width, points, n_list)                                                                            \
    _Static_assert(n_list <= APR_IQ_MAX_LIST, "a GPU has room for the longest");                                                     \
    static uint16_t name##_list[n_list + APR_IQ_LIST_PADDING];                                                                       \
    static apr_iq_book name##_book = {                                                                                               \
        .n_values = values, .n_levels = levels, .n_points = points, .bits = width, .words = apr_##name##_grid, .list = name##_list}; \
    static void make_##name(void) { make_book(&name##_book); }                                                                       \
    const apr_iq_book *apr_##name##_book(void)                                                                                       \
    {                                                                                                                                \
        static pthread_once_t once = PTHREAD_ONCE_INIT;                                                                              \
        pthread_once(&once, make_##name);                                                                                            \
        return &name##_book;                                                                                                         \
    }

BOOK(iq1, 8, 3, 2, 2048, 86381)
BOOK(iq2_xxs, 8, 3, 2, 256, 247032)
BOOK(iq2_xs, 8, 3, 2, 512, 285256)
BOOK(iq2_s, 8, 3, 2, 1024, 251214)
BOOK(iq3_xxs, 4, 8, 4, 256, 89315)
BOOK(iq3_s, 4, 8, 4, 512, 72988)
