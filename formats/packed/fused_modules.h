/* fused_modules.h - modules that servers run as one matrix: they need one scheme and, in NVFP4, one global scale. */
#ifndef APR_FORMATS_FUSED_MODULES_H
#define APR_FORMATS_FUSED_MODULES_H

#include <stddef.h>

/* Modules that servers run as one matrix. */
typedef struct apr_fused_set {
    const char *name;       /* of the one matrix: "qkv_proj" */
    const char *members[3]; /* "q_proj", ...; NULL after the last */
} apr_fused_set;
enum { APR_FUSED_MEMBERS = 3 };

/* The set that the module of the weight "x.q_proj.weight" belongs to, and the length of "x."; NULL: none. */
const apr_fused_set *apr_packed_fused(const char *weight, size_t *n_parent);

#endif
