/* convert/convert.h - plans how any model becomes any container, with or without a change of type: what aprconv and aprquant run.
 *
 *     source -> canonical view -> [adapters] -> [ggml's naming] -> recipe -> layout -> pipe -> sink
 *
 * apr_conversion_plan does everything up to the layout and reads no weights, so a dry run is a plan without a run (convert/run.h). Only the sink
 * knows the output's file format. The source must outlive the conversion. */
#ifndef APR_CONVERT_CONVERT_H
#define APR_CONVERT_CONVERT_H

#include "convert/adapters.h"
#include "convert/pipe.h"
#include "formats/tensor/imatrix.h"
#include "formats/tensor/model.h"
#include "formats/tensor/sink.h"
#include "quant/recipe.h"

typedef struct apr_convert_options {
    apr_format format; /* of the output */
    apr_sink_options sink;
    apr_recipe_options recipe;       /* limits are filled in from format and profile */
    const apr_adapter_use *adapters; /* [n_adapters] merged in this order; they must outlive the conversion */
    size_t n_adapters;
    const apr_imatrix *imatrix; /* importance of columns for encoders that use it; NULL: all count the same. Must outlive the conversion */
} apr_convert_options;

/* How many encoded tensors the imatrix covers; counts only tensors whose encoder uses importance. */
typedef struct apr_importance_cover {
    size_t n_covered, n_bare;
    int64_t n_unseen; /* experts in covered tensors that no token reached: encoded without importance */
} apr_importance_cover;

typedef struct apr_conversion {
    apr_convert_options options;
    const apr_model *source;
    const apr_container *container; /* of the output */
    apr_model view;                 /* the source's tensors under the output's names and orders */
    apr_recipe recipe;              /* its lines point into view */
    apr_model layout;               /* the tensors that the sink will write, including FP8 scale tensors */
    apr_losses losses;              /* what the output cannot express; only notes unless options.sink.allow_loss */
    apr_pipe_item *items;           /* [layout.n_tensors], metrics filled by the run */
    apr_importance_cover cover;     /* with options.imatrix */
    apr_sink_progress progress;     /* set after one of several runs */
} apr_conversion;

/* A zeroed conversion may be closed; a failed plan must be closed. */
apr_status apr_conversion_plan(apr_conversion *conversion, const apr_model *source, const apr_convert_options *options, apr_error *err);
/* Does this item's encoder use importance? If so, and item->importance is NULL although options.imatrix is set, no entry covers it. */
bool apr_item_uses_importance(const apr_pipe_item *item);
/* The importance of one tensor. */
typedef struct apr_importance {
    const float *columns;         /* [n_matrices, columns] mean squares, zeros where no token came; NULL: no entry */
    int64_t n_matrices, n_unseen; /* n_unseen: matrices that no token reached */
} apr_importance;

/* tensor: of the view, in either naming. APR_E_DAMAGED: the entry has a different number of columns or matrices. */
apr_status apr_importance_of(apr_importance *importance, const apr_imatrix *imatrix, const apr_model *view, const apr_tensor *tensor,
                             apr_arena *arena, apr_error *err);

/* Adds to the metadata of a planned output: the name, CRC-32 and number of tokens of the calibration text, and whether its tokens were
 * weighted by the loss. */
apr_status apr_conversion_note_text(apr_conversion *conversion, const char *name, uint32_t crc32, int64_t n_tokens, bool loss_weighted,
                                    apr_error *err);
void apr_conversion_close(apr_conversion *conversion);

#endif
