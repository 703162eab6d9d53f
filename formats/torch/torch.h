/* torch.h - PyTorch's own files of weights (.bin, .pt, .pth), read without executing what is in them.
 *
 *   since 1.6   a zip archive of stored files: NAME/data.pkl, a pickle of a dict of names and tensors, and NAME/data/KEY, the bytes
 *               of each storage, which any number of tensors look at; NAME/byteorder says "little" or "big"
 *   before      five pickles behind one another (a magic number, a version, the machine, the dict, the keys of the storages),
 *               then of each storage the number of its elements and the bytes
 *
 * The dict may lie in another one, as "state_dict", "model" and the like. Tensors borrow the file's bytes. One that looks at its
 * storage with the last two axes exchanged becomes a step (formats/model/made.h); other strides are refused by the tensor's name. */
#ifndef APR_FORMATS_TORCH_H
#define APR_FORMATS_TORCH_H

#include "formats/model/model.h"

/* Is this how such a file starts? Any pickle does. */
bool apr_starts_torch(const uint8_t *head, size_t n);

/* The bytes of one file: appends its tensors, in the dict's order, to the model. What else was saved beside them is added to
 * model->left_behind by name. What is left of a failed model is for apr_model_close. */
apr_status apr_torch_parse(apr_model *model, const uint8_t *data, size_t n_bytes, const char *where, apr_error *err);

#endif
