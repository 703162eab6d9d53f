/* iq_encode.h - the encoders of the IQ types, from blocks to bytes: see iq_search.h, and who includes it must have defined the same, and
 * IQ_NAME(name), the name of an encoder, and IQ_SCOPE, its storage class. The decoders (iq2_iq3.c, iq1.c) say where the bits are. */
#ifndef APR_KERNELS_REF_IQ_ENCODE_H
#define APR_KERNELS_REF_IQ_ENCODE_H

#include "kernels/ref/iq_search.h"

/* The values of a block and their weights. importance: NULL, or of the values. */
static void iq_load(const iq_type *t, const float *restrict src, const float *restrict importance, iq_input *restrict in)
{
    static const float none[IQ_ELEMS] = {0.0f};
    const float limit = iq_limit(t);
    const bool has_signs = t->signs == IQ_FREE_SIGNS || t->signs == IQ_EVEN_SIGNS;

    apr_block_weights(importance != NULL ? importance : none, IQ_ELEMS, in->w);
    for (int g = 0; g < IQ_ELEMS; g += 8)
        in->minus[g / 8] = (uint8_t)iq_load_group(src + g, in->w + g, limit, has_signs, in->x + g, in->wx + g);
}

/* Zeros have d = 0, and the first point everywhere. */
#define IQ_ENCODER(ID, type, the_book, ...)                                                                                            \
    IQ_SCOPE void IQ_NAME(type##_by)(const float *restrict src, const float *restrict importance, void *restrict dst, int64_t n_elems) \
    {                                                                                                                                  \
        const apr_iq_book *const book = apr_##the_book##_book();                                                                       \
        apr_block_##ID *to = dst;                                                                                                      \
        for (int64_t i = 0; i < n_elems; i += IQ_ELEMS, to++) {                                                                        \
            iq_input in;                                                                                                               \
            iq_block best;                                                                                                             \
            iq_load(&type, src + i, importance != NULL ? importance + i : NULL, &in);                                                  \
            iq_search_block(&type, book, &in, &best);                                                                                  \
            if (best.d == 0) {                                                                                                         \
                memset(to, 0, sizeof *to);                                                                                             \
                continue;                                                                                                              \
            }                                                                                                                          \
            iq_number_points(&type, book, &best);                                                                                      \
            iq_pack_##type(&best, to);                                                                                                 \
        }                                                                                                                              \
    }                                                                                                                                  \
    IQ_SCOPE void IQ_NAME(type)(const float *src, void *dst, int64_t n_elems) { IQ_NAME(type##_by)(src, NULL, dst, n_elems); }

#define IQ_ENCODERS IQ_TYPES(IQ_ENCODER)

#endif
