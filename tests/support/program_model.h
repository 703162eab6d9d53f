/* program_model.h - a model in memory that has whatever its program asks for: every family's shapes, with weights of noise. */
#ifndef APR_TESTS_PROGRAM_MODEL_H
#define APR_TESTS_PROGRAM_MODEL_H

#include "runtime/session/session.h"

typedef struct program_model {
    apr_model model;
    apr_program program;
} program_model;

/* Small, with every part that some family has. The caller must state the layers: layer_kinds and ffn_kinds of `layers`. */
apr_hparams program_model_sizes(const char *architecture);

/* Matrices of dtype, everything else float32. With optional weights. APR_E_...: the family has no such program. */
apr_status program_model_open(program_model *m, const apr_hparams *hparams, apr_dtype dtype, apr_error *err);
void program_model_close(program_model *m);

/* A session of this or any other model. A failure ends the test. */
apr_session *must_open_session(const apr_model *model, const apr_session_options *options);

/* A view in which matrices are stored transposed, and composed of those: the same numbers. Its memory is the
 * model's; close with apr_model_close. */
apr_status program_model_transposed(apr_model *view, program_model *m, apr_error *err);

#endif
