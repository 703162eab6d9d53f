/* apr_meta_hparams.h - hyperparameters in an APR file's metadata. */
#ifndef APR_FORMATS_APR_META_HPARAMS_H
#define APR_FORMATS_APR_META_HPARAMS_H

#include "formats/base/json.h"
#include "formats/tensor/model.h"

/* Hyperparameters that the standard keys cannot express, as members of the object "aprkit". Reading needs num_layers. */
void apr_meta_write_hparams(apr_json_text *out, const apr_hparams *hparams);
apr_status apr_meta_read_hparams(apr_model *model, const cJSON *extras, apr_error *err);

#endif
