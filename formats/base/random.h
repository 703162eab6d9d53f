/* random.h - pseudo-random numbers that depend on the seed only, the same on every machine: SplitMix64 (Steele, Lea, Flood 2014).
 *
 * Every seed is a good one, and adjacent seeds give unrelated sequences. Not for secrets. */
#ifndef APR_FORMATS_RANDOM_H
#define APR_FORMATS_RANDOM_H

#include <stdint.h>

/* Returns 64 random bits. Initialize *state with the seed. */
static inline uint64_t apr_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

#endif
