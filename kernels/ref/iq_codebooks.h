/* iq_codebooks.h - the lattice points of the IQ types: see iq_codebooks.c for the packing. */
#ifndef APR_KERNELS_REF_IQ_CODEBOOKS_H
#define APR_KERNELS_REF_IQ_CODEBOOKS_H

#include <stdint.h>

/* The CUDA decoders include iq_codebooks.c with this defined as a qualifier for the device's memory. */
#ifndef APR_IQ_TABLE
#define APR_IQ_TABLE const
extern const uint16_t apr_iq1_grid[2048];
extern const uint16_t apr_iq2_xxs_grid[256];
extern const uint16_t apr_iq2_xs_grid[512];
extern const uint16_t apr_iq2_s_grid[1024];
extern const uint16_t apr_iq3_xxs_grid[256];
extern const uint16_t apr_iq3_s_grid[512];
#endif

#endif
