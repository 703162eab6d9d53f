/* hf_losses.h - what a JSON text can hold. */
#ifndef APR_FORMATS_HF_LOSSES_H
#define APR_FORMATS_HF_LOSSES_H

#include "formats/tensor/losses.h"
#include "formats/tensor/model.h"

/* True: a text that JSON can hold, UTF-8 without NUL. */
bool apr_hf_is_text(apr_str s);

#endif
