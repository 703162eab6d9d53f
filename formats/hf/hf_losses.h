/* hf_losses.h - shared by the files that list what a checkpoint cannot express (hf_losses*.c). */
#ifndef APR_FORMATS_HF_LOSSES_H
#define APR_FORMATS_HF_LOSSES_H

#include "formats/tensor/losses.h"
#include "formats/tensor/model.h"

/* True: a text that JSON can hold, UTF-8 without NUL. */
bool apr_hf_is_text(apr_str s);

/* Lists the keys of a GGUF that a checkpoint cannot express. */
apr_status apr_hf_key_losses(const apr_model *layout, apr_losses *losses, apr_error *err);

#endif
