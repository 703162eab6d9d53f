/* toy.h - a file of tensors and nothing else.
 *
 *   0  "TOY\n"  u32 n_tensors
 *      n_tensors x {u16 n, name, u8 dtype (APR's id), u8 rank, u64 dims[rank]}     little-endian
 *      data of the tensors, one right after the other */
#ifndef APR_FORMATS_TOY_H
#define APR_FORMATS_TOY_H

#include "formats/tensor/model.h"
#include "formats/tensor/sink.h"

apr_status apr_toy_open(apr_model *model, const char *path, apr_error *err);
/* The same from memory, which is borrowed until apr_model_close. `path` is for messages. */
apr_status apr_toy_read(apr_model *model, const uint8_t *bytes, size_t n_bytes, const char *path, apr_error *err);
apr_status apr_toy_sink_open(apr_sink **sink, const char *path, const apr_model *layout, const apr_sink_options *options, apr_error *err);
/* What it cannot hold: everything but tensors. */
apr_status apr_toy_losses(const apr_model *layout, apr_losses *losses, apr_error *err);

#endif
