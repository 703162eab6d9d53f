/* placeholder.h - detects placeholders of model files: Git LFS pointers, and web pages saved by a failed download. */
#ifndef APR_FORMATS_PLACEHOLDER_H
#define APR_FORMATS_PLACEHOLDER_H

#include "formats/base/status.h"

#include <stddef.h>
#include <stdint.h>

/* APR_E_IO with a message that says how to get the file itself; APR_OK for every other file, whatever it is. */
apr_status apr_refuse_placeholder(const uint8_t *data, size_t n_bytes, const char *path, apr_error *err);

#endif
