/* stand_in.h - files that stand where a model's should be: what Git leaves without LFS, and pages that say why a download failed. */
#ifndef APR_FORMATS_STAND_IN_H
#define APR_FORMATS_STAND_IN_H

#include "formats/base/status.h"

#include <stddef.h>
#include <stdint.h>

/* APR_E_IO with a sentence that says how to get the file itself; APR_OK for all others, whatever they are. */
apr_status apr_refuse_stand_in(const uint8_t *data, size_t n_bytes, const char *path, apr_error *err);

#endif
