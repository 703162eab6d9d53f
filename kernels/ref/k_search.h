/* k_search.h - parameters of the search for K-quants' scales: the same for the reference, the host's SIMD code and GPUs.
 *
 * Chosen by the squared errors of four small trained models, Gaussian values and Student's t with 4 degrees of freedom. Trial grids that
 * are coarser than the codes allow help most; a wider search of the scales finds little more:
 *
 *   Q4_K  8 stretches from 13.4 by 0.35, 1 polish, reach 1, 3 rounds: within 1.001 of 11 from 14 by 0.3, 3, 2, 4, and 1.000 on models
 *   Q5_K  10 stretches from 28.5 by 0.4, 1 polish, reach 1, 3 rounds: 0.996 of 11 from 30 by 0.3, 3, 2, 4
 *   Q6_K  11 trials of -32.25 to -26.75, reach 2, 2 rounds: 0.92 of 19 trials of -32.9 to -31.1, reach 2, 4 rounds */
#ifndef APR_KERNELS_REF_K_SEARCH_H
#define APR_KERNELS_REF_K_SEARCH_H

/* For Q4_K and Q5_K: value = step * code - offset, codes 0 to max_code. */
typedef struct apr_k_search {
    float max_code;
    int stretches; /* number of trial grids: they divide the range into first_steps + i * gap steps, i < stretches, at two offsets each */
    float first_steps, gap;
    int polishes; /* how often the best grid is fitted again to its own codes */
    int reach;    /* scales tried on each side of the ideal one */
    int rounds;   /* how often d and dmin are fitted to the codes, and the scales chosen again */
} apr_k_search;

#define APR_Q4_K_SEARCH                                                                                               \
    {                                                                                                                 \
        .max_code = 15.0f, .stretches = 8, .first_steps = 13.4f, .gap = 0.35f, .polishes = 1, .reach = 1, .rounds = 3 \
    }
#define APR_Q5_K_SEARCH                                                                                               \
    {                                                                                                                 \
        .max_code = 31.0f, .stretches = 10, .first_steps = 28.5f, .gap = 0.4f, .polishes = 1, .reach = 1, .rounds = 3 \
    }

/* For Q6_K: value = step * code. Trial steps are the extreme value over -29.5, and over values 0.55 apart on both sides of it. */
#define APR_Q6_K_MIDDLE -29.5f
#define APR_Q6_K_GAP    0.55f
enum { APR_Q6_K_TRIALS = 11, APR_Q6_K_REACH = 2, APR_Q6_K_ROUNDS = 2 };

#endif
