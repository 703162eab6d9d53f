/* sizes.h - how many bytes each weight of a program takes: as a file has it, or as a recipe would make it.
 *
 * The one place where the plan's question (runtime) meets the recipe's answer (quant); neither knows the other. */
#ifndef APR_TOOLS_SIZES_H
#define APR_TOOLS_SIZES_H

#include "formats/model/model.h"
#include "quant/recipe.h"
#include "runtime/plan/plan.h"

/* The tensors that a checkpoint of this program has, by name and shape, as floats of the type that `source` states: for a bare
 * config.json, or weights in a layout that is not read. One tensor stands for all of a slot. Close with apr_model_close; source
 * must outlive it. */
apr_status apr_skeleton_model(apr_model *model, const apr_program *program, const apr_model *source, apr_error *err);

typedef struct apr_weight_size {
    uint64_t bytes;  /* padded to 64; 0: the model has no such weight */
    bool is_f16;     /* stored so: a device need not decode it */
    apr_dtype dtype; /* of its blocks; APR_DTYPE_COUNT: it has none, or of several types */
    apr_weight_note note;
} apr_weight_size;

/* sizes[program->n_weights]: each weight as `mixture` would store it; NULL keeps the types: of a skeleton those of its
 * quantization_config, and APR_E_UNSUPPORTED when that is not understood. The experts of a layer are padded one by one, as in an APR
 * file, or `stacked`, as a device has them: there, packed matrices in their regular form (kernels/relay.h). */
apr_status apr_weight_sizes(const apr_model *model, const apr_program *program, const char *mixture, bool stacked, apr_weight_size *sizes,
                            apr_error *err);

/* Fewer bytes than any weights of that type have on a device, at once: what is more than that need not be sized. */
uint64_t apr_least_weight_bytes(const apr_program *program, const char *mixture);

#endif
