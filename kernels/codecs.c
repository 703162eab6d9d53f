/* codecs.c - the table of the reference codecs, and which dtypes have one. */
#include "kernels/ref/codecs.h"

const apr_codec apr_ref_codecs[APR_DTYPE_COUNT] = {
#define DECODER(id, name) [APR_##id] = {apr_ref_decode_##name, NULL, NULL},
#define BOTH(id, name)    [APR_##id] = {apr_ref_decode_##name, apr_ref_encode_##name, NULL},
#define BY(id, name)      [APR_##id] = {apr_ref_decode_##name, apr_ref_encode_##name, apr_ref_encode_##name##_by},
    APR_REF_CODEC_LIST(DECODER, BOTH, BY)
#undef BY
#undef BOTH
#undef DECODER
};

bool apr_can_decode(apr_dtype dtype) { return (unsigned)dtype < APR_DTYPE_COUNT && apr_ref_codecs[dtype].decode != NULL; }
bool apr_can_encode(apr_dtype dtype) { return (unsigned)dtype < APR_DTYPE_COUNT && apr_ref_codecs[dtype].encode != NULL; }
