/* q2_k_search.h - parameters of the search for Q2_K's scales: the same for the reference and the host's SIMD code.
 *
 * Chosen on Gaussian rows and rows of Student's t with 5 degrees of freedom, as a ratio to ggml's error: 0.766, 0.725 and, by importance,
 * 0.914, 0.877. 48 trial grids, 25 pairs of d and dmin, reach 3 and 4 minimums each: 0.761, 0.719, 0.903, 0.867, in six times the time. */
#ifndef APR_KERNELS_REF_Q2_K_SEARCH_H
#define APR_KERNELS_REF_Q2_K_SEARCH_H

enum {
    APR_Q2_K_STRETCHES = 10, /* trial grids divide the range into FIRST_STEPS + i * STEPS_GAP steps, at two offsets each */
    APR_Q2_K_STARTS = 2,     /* the largest step has scale 15 or 14, and the largest offset minimum 15 or 14 */
    APR_Q2_K_REACH = 1,      /* scales tried on each side of the ideal one */
    APR_Q2_K_PASSES = 2,     /* minimums tried with each scale: the ideal one, and the one that fits the codes */
    APR_Q2_K_ROUNDS = 3,     /* how often d and dmin are fitted to the codes, and the scales chosen again */
};
#define APR_Q2_K_FIRST_STEPS 1.8f
#define APR_Q2_K_STEPS_GAP   0.2f

#endif
