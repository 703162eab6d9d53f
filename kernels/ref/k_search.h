/* k_search.h - how far the searches for K-quants' scales go: the same for the reference, the host's vectors and GPUs.
 *
 * Chosen by measuring squared errors of four small trained models, Gaussian values and Student's t with 4 degrees of freedom. What
 * pays are trial grids that are coarser than the codes could hold; a wider search of the scales finds little more:
 *
 *   Q4_K  8 stretches from 13.4 by 0.35, 1 polish, reach 1, 3 rounds: within 1.001 of 11 from 14 by 0.3, 3, 2, 4, and 1.000 on models
 *   Q5_K  10 stretches from 28.5 by 0.4, 1 polish, reach 1, 3 rounds: 0.996 of 11 from 30 by 0.3, 3, 2, 4
 *   Q6_K  11 trials of -32.25 to -26.75, reach 2, 2 rounds: 0.92 of 19 trials of -32.9 to -31.1, reach 2, 4 rounds */
#ifndef APR_KERNELS_REF_K_SEARCH_H
#define APR_KERNELS_REF_K_SEARCH_H

/* Of Q4_K and Q5_K: value = step * code - offset, codes 0 to max_code. */
typedef struct apr_k_search {
    float max_code;
    int stretches; /* trial grids give the range so many steps, first `first_steps` and then `gap` more each time, in two places */
    float first_steps, gap;
    int polishes; /* how often the best grid is fitted again to the codes it gives */
    int reach;    /* scales tried on each side of the ideal one */
    int rounds;   /* of d and dmin: fitted to the codes, scales chosen again */
} apr_k_search;

#define APR_Q4_K_SEARCH                                                                                               \
    {                                                                                                                 \
        .max_code = 15.0f, .stretches = 8, .first_steps = 13.4f, .gap = 0.35f, .polishes = 1, .reach = 1, .rounds = 3 \
    }
#define APR_Q5_K_SEARCH                                                                                               \
    {                                                                                                                 \
        .max_code = 31.0f, .stretches = 10, .first_steps = 28.5f, .gap = 0.4f, .polishes = 1, .reach = 1, .rounds = 3 \
    }

/* Of Q6_K: value = step * code. Trial steps are the extreme value over -29.5, and over what is 0.55 more or less each time. */
#define APR_Q6_K_MIDDLE -29.5f
#define APR_Q6_K_GAP    0.55f
enum { APR_Q6_K_TRIALS = 11, APR_Q6_K_REACH = 2, APR_Q6_K_ROUNDS = 2 };

#endif
