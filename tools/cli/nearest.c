/* nearest.c - edit distance with swapped neighbours (optimal string alignment), over three rows of its table. */
#include "tools/cli/nearest.h"

#include <limits.h>
#include <stdbool.h>
#include <string.h>

static int least(int a, int b, int c)
{
    const int ab = a < b ? a : b;
    return ab < c ? ab : c;
}

int apr_edit_distance(const char *a, const char *b)
{
    const size_t n_a = strlen(a), n_b = strlen(b);
    int rows[3][APR_NEAREST_MAX + 1];

    if (n_a > APR_NEAREST_MAX || n_b > APR_NEAREST_MAX) return INT_MAX;
    for (size_t j = 0; j <= n_b; j++) rows[0][j] = (int)j;
    for (size_t i = 1; i <= n_a; i++) {
        int *const row = rows[i % 3];
        const int *const above = rows[(i + 2) % 3], *const two_above = rows[(i + 1) % 3];
        row[0] = (int)i;
        for (size_t j = 1; j <= n_b; j++) {
            row[j] = least(above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1]));
            const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && two_above[j - 2] + 1 < row[j]) row[j] = two_above[j - 2] + 1;
        }
    }
    return rows[n_a % 3][n_b];
}

/* How many edits a word of n_letters may be away; 0: the word is too short for any. */
static int max_edits(size_t n_letters) { return n_letters < 5 ? 0 : n_letters <= 7 ? 1 : 2; }

static size_t count_letters(const char *word)
{
    size_t n = 0;
    for (; *word != '\0'; word++) n += *word != '-';
    return n;
}

/* The same first n letters, without dashes. */
static bool begin_alike(const char *a, const char *b, size_t n)
{
    for (; n > 0; n--, a++, b++) {
        while (*a == '-') a++;
        while (*b == '-') b++;
        if (*a == '\0' || *a != *b) return false;
    }
    return true;
}

const char *apr_nearest(const char *word, const char *const *words, size_t n_words)
{
    enum { SAME_START = 4 };
    const char *nearest = NULL;
    int least_edits = max_edits(count_letters(word)) + 1; /* one more than is near */

    if (strlen(word) > APR_NEAREST_MAX) return NULL;
    for (size_t i = 0; i < n_words; i++) {
        const int edits = apr_edit_distance(word, words[i]);
        if (edits >= least_edits) continue;
        least_edits = edits;
        nearest = words[i];
    }
    for (size_t i = 0; i < n_words && nearest == NULL; i++)
        if (begin_alike(word, words[i], SAME_START)) nearest = words[i];
    return nearest;
}
