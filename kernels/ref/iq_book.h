/* iq_book.h - a codebook of an IQ type, arranged for the search of the best point.
 *
 * The error of a point is a sum over its values, and a value's error grows with the distance of its level from the nearest one, whatever
 * the weights are. So the levels nearest to the values name a cell, and of two points of which one crosses, on its way from the cell, only
 * boundaries between levels that the other one crosses too, the other one cannot be better. What is left is the cell's list: it always
 * has a point of least error, among all points. */
#ifndef APR_KERNELS_REF_IQ_BOOK_H
#define APR_KERNELS_REF_IQ_BOOK_H

#include <stdint.h>

enum { APR_IQ_MAX_CELLS = 6561, APR_IQ_MAX_POINTS = 2048, APR_IQ_MAX_LIST = 285256 /* all lists of a book */ };
enum { APR_IQ_LIST_PADDING = 8 /* words that may be read after a list */ };

typedef struct apr_iq_book {
    int n_values, n_levels, n_points; /* 8 values of 3 levels, or 4 of 8 */
    int bits;                         /* of a level in a word: 2, 4 */
    const uint16_t *words;            /* the points: iq_codebooks.c */
    /* Cells are numbers with the levels as digits, first value last. List of cell c: list[first[c]] to list[first[c + 1]], words of
     * points, those that cross fewest boundaries first, in the order of the book. */
    uint16_t *list;
    uint32_t first[APR_IQ_MAX_CELLS + 1];
    uint16_t index[APR_IQ_MAX_CELLS]; /* of the point in that cell */
} apr_iq_book;

int apr_iq_cell_of_word(const apr_iq_book *book, unsigned word); /* the cell that a point is in */

/* Made at the first call, 0.01 to 0.1 s; any thread may call. */
const apr_iq_book *apr_iq1_book(void);
const apr_iq_book *apr_iq2_xxs_book(void);
const apr_iq_book *apr_iq2_xs_book(void);
const apr_iq_book *apr_iq2_s_book(void);
const apr_iq_book *apr_iq3_xxs_book(void);
const apr_iq_book *apr_iq3_s_book(void);

#endif
