/* iq_codebooks.h - the lattice points of the IQ types: see iq_codebooks.c for the packing. */
#ifndef APR_KERNELS_REF_IQ_CODEBOOKS_H
#define APR_KERNELS_REF_IQ_CODEBOOKS_H

#include <stdint.h>

extern const uint16_t apr_iq1_grid[2048];
extern const uint16_t apr_iq2_xxs_grid[256];
extern const uint16_t apr_iq2_xs_grid[512];
extern const uint16_t apr_iq2_s_grid[1024];
extern const uint16_t apr_iq3_xxs_grid[256];
extern const uint16_t apr_iq3_s_grid[512];

#endif
