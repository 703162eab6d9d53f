/* torch.h - PyTorch's own weight files (.bin, .pt, .pth), read without executing anything in them.
 *
 *   since 1.6   a zip archive of uncompressed files: NAME/data.pkl, a pickle of a dict of names and tensors, and NAME/data/KEY, the
 *               bytes of each storage, of which any number of tensors are views; NAME/byteorder says "little" or "big"
 *   before      five pickles in a row (a magic number, a version, the machine, the dict, the keys of the storages),
 *               then for each storage its number of elements and its bytes
 *
 * The dict may be inside another one, as "state_dict", "model" and the like. Tensors borrow the file's bytes. A view with the last
 * two axes exchanged becomes a transpose step (formats/tensor/composed.h). Other strides are refused; the message names the tensor. */
#ifndef APR_FORMATS_TORCH_H
#define APR_FORMATS_TORCH_H

#include "formats/tensor/model.h"

/* Can a file that starts with these bytes be such a file? True for any pickle. */
bool apr_is_torch_start(const uint8_t *head, size_t n);

/* Parses the bytes of one file and appends its tensors to the model, in the dict's order. The names of other saved objects are added to
 * model->not_copied. After a failure the caller still calls apr_model_close. */
apr_status apr_torch_parse(apr_model *model, const uint8_t *data, size_t n_bytes, const char *where, apr_error *err);

#endif
