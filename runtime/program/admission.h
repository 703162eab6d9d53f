/* runtime/program/admission.h - do a model's tensors fit its family's program? The one check that check, convert, aprquant, aprplan and
 * aprrun ask.
 *
 * A program names every weight that it reads, with its shape (program.h). A model is admitted if all of them are there, in that shape,
 * and if nothing of the text model is left over: a tensor that nobody reads means another model than the one that would be run.
 * Towers, layers of multi-token prediction and buffers (formats/model/text_part.h) may be there and are not asked for. */
#ifndef APR_RUNTIME_ADMISSION_H
#define APR_RUNTIME_ADMISSION_H

#include "runtime/program/program.h"

typedef enum {
    APR_TENSOR_MISSING,
    APR_TENSOR_MISSHAPEN,
    APR_TENSOR_BEYOND,  /* of a layer behind the last one of config.json */
    APR_TENSOR_UNKNOWN, /* no weight of the program: a run refuses it, a conversion carries it along */
    APR_TENSOR_UNRUN,   /* numbers of a type that no product reads, or experts of several types: the same */
    APR_N_OBJECTIONS
} apr_objection_kind;

enum { APR_MOST_OBJECTIONS = 8 };

typedef struct apr_objection {
    apr_objection_kind kind;
    char text[400]; /* "tensor 'model.norm.weight' is missing" */
} apr_objection;

typedef struct apr_admission {
    bool is_judged;                           /* false: no program is known for the model, so nothing was held against it */
    apr_objection first[APR_MOST_OBJECTIONS]; /* [the smaller of n and APR_MOST_OBJECTIONS] in the order of their kinds */
    size_t n, n_of[APR_N_OBJECTIONS];
} apr_admission;

/* Holds a canonical view (convert/dialect.h) against its program. */
apr_status apr_admission_check(apr_admission *admission, const apr_program *program, const apr_model *canonical, apr_error *err);

/* Is there something that no conversion may pass over: a tensor that is missing, misshapen, or of a layer too many? */
bool apr_admission_is_incomplete(const apr_admission *admission);

/* What aprplan and aprrun ask before anything else: can the tensors be read as matrices, and are they admitted? The same sentence for both.
 * APR_E_UNSUPPORTED: matrices in a layout that nothing here reads; else as apr_admission_refuse. */
apr_status apr_admission_to_run(const apr_program *program, const apr_model *canonical, apr_error *err);

/* All of it in one sentence: the first objection, and how many more there are. APR_OK without one; APR_E_DAMAGED, or APR_E_UNSUPPORTED
 * when tensors are only unknown, or of types that are not run. */
apr_status apr_admission_refuse(const apr_admission *admission, const char *path, apr_error *err);

#endif
