/* kernels/ref/choose.h - keeps the best of many scored positions: a heap, whose root is the worst that is kept. */
#ifndef APR_KERNELS_REF_CHOOSE_H
#define APR_KERNELS_REF_CHOOSE_H

#include "kernels/ops.h"

#include <math.h>

typedef struct apr_choice {
    float *scores, *positions; /* [most] each */
    int64_t n, most;
    float next; /* the best score that was not kept; -INFINITY: all were */
} apr_choice;

/* `work` has 2 * most floats. */
static inline apr_choice apr_choice_of(float *work, int64_t most)
{
    return (apr_choice){.scores = work, .positions = work + most, .most = most, .next = -INFINITY};
}

/* Of equal scores the lower position is better. */
static inline bool apr_choice_is_worse(const apr_choice *c, int64_t i, int64_t j)
{
    return c->scores[i] < c->scores[j] || (c->scores[i] == c->scores[j] && c->positions[i] > c->positions[j]);
}

static inline void apr_choice_swap(apr_choice *c, int64_t i, int64_t j)
{
    const float score = c->scores[i], position = c->positions[i];
    c->scores[i] = c->scores[j];
    c->positions[i] = c->positions[j];
    c->scores[j] = score;
    c->positions[j] = position;
}

static inline void apr_choice_sink(apr_choice *c)
{
    for (int64_t at = 0, child; (child = 2 * at + 1) < c->n; at = child) {
        if (child + 1 < c->n && apr_choice_is_worse(c, child + 1, child)) child++;
        if (!apr_choice_is_worse(c, child, at)) return;
        apr_choice_swap(c, at, child);
    }
}

/* A score that is NaN is worse than all others. */
static inline void apr_choice_add(apr_choice *c, float score, float position)
{
    const float x = isnan(score) ? -INFINITY : score;

    if (c->n < c->most) {
        int64_t at = c->n++;
        c->scores[at] = x;
        c->positions[at] = position;
        for (; at > 0 && apr_choice_is_worse(c, at, (at - 1) / 2); at = (at - 1) / 2) apr_choice_swap(c, at, (at - 1) / 2);
        return;
    }
    const bool is_better = x > c->scores[0] || (x == c->scores[0] && position < c->positions[0]);
    c->next = fmaxf(c->next, is_better ? c->scores[0] : x);
    if (!is_better) return;
    c->scores[0] = x;
    c->positions[0] = position;
    apr_choice_sink(c);
}

/* Writes the row of apr_index_args: sorts the heap by position, with positions as scores. */
static inline void apr_choice_write(apr_choice *c, float *row)
{
    const int64_t n = c->n;
    float best = -INFINITY, last = INFINITY;

    for (int64_t i = 0; i < n; i++) {
        best = fmaxf(best, c->scores[i]);
        last = fminf(last, c->scores[i]);
    }
    row[c->most] = apr_route_gap(last, c->next, best);
    apr_choice by = {.scores = row, .positions = c->scores, .most = c->most};
    for (int64_t i = 0; i < n; i++) apr_choice_add(&by, -c->positions[i], 0.0f); /* the root is the highest position */
    while (by.n > 1) {
        by.n--;
        apr_choice_swap(&by, 0, by.n);
        apr_choice_sink(&by);
    }
    for (int64_t i = 0; i < n; i++) row[i] = -row[i];
}

/* The row of a token that attends to all positions up to its own. */
static inline void apr_choice_write_all(float *row, int64_t own, int64_t most)
{
    for (int64_t i = 0; i < most; i++) row[i] = i <= own ? (float)i : -1.0f;
    row[most] = apr_route_gap(0.0f, -INFINITY, 0.0f);
}

#endif
