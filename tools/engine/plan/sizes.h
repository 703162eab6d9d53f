/* sizes.h - how many bytes each weight of a program takes: as stored in a file, or as a recipe would store it.
 *
 * It joins the planner (runtime) and the recipes (quant), of which neither includes the other. */
#ifndef APR_TOOLS_SIZES_H
#define APR_TOOLS_SIZES_H

#include "formats/tensor/model.h"
#include "quant/recipe.h"
#include "runtime/plan/plan.h"

/* Makes the tensors that a checkpoint of this program has, without data: names and shapes, as floats of the type that `source`
 * states. For a config.json alone, or for weights in a layout that is not read. Each slot has one tensor, which represents all of
 * them. Close with apr_model_close; source must outlive it. */
apr_status apr_skeleton_model(apr_model *model, const apr_program *program, const apr_model *source, apr_error *err);

typedef struct apr_weight_size {
    uint64_t bytes;  /* padded to 64; 0: the model has no such weight */
    bool is_f16;     /* stored as FP16: a device need not decode it */
    apr_dtype dtype; /* type of its blocks; APR_DTYPE_COUNT: none, or several types */
    apr_weight_note note;
} apr_weight_size;

/* Fills sizes[program->n_weights] with each weight's size as `mixture` would store it. NULL: types as stored; those of a skeleton are
 * its quantization_config's, or APR_E_UNSUPPORTED if that is not supported. stacked: sizes on a device, where the experts of a layer are
 * one stack and packed matrices are in their canonical layout (kernels/repack.h). Else the experts are padded one by one, as in an APR. */
apr_status apr_weight_sizes(const apr_model *model, const apr_program *program, const char *mixture, bool stacked, apr_weight_size *sizes,
                            apr_error *err);

/* A quick lower bound of the bytes that weights of that type take on a device: if it is too large, exact sizes are not needed. */
uint64_t apr_weight_bytes_lower_bound(const apr_program *program, const char *mixture);

#endif
