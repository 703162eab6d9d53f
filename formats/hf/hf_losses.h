/* hf_losses.h - shared by the judges of what a checkpoint cannot say (hf_losses*.c). */
#ifndef APR_FORMATS_HF_LOSSES_H
#define APR_FORMATS_HF_LOSSES_H

#include "formats/model/losses.h"
#include "formats/model/model.h"

/* What JSON can hold: UTF-8 without NUL. */
bool apr_hf_is_text(apr_str s);

/* The keys of a GGUF that nothing in a checkpoint says. */
apr_status apr_hf_key_losses(const apr_model *layout, apr_losses *losses, apr_error *err);

#endif
