/* random.h - pseudo-random numbers that follow from a seed alone, on every machine: SplitMix64 (Steele, Lea, Flood 2014).
 *
 * Every seed is a good one, and seeds one apart have nothing in common. Not for secrets. */
#ifndef APR_FORMATS_RANDOM_H
#define APR_FORMATS_RANDOM_H

#include <stdint.h>

/* 64 random bits; the state is the seed at first. */
static inline uint64_t apr_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

#endif
