/* runtime/program/admission.h - checks whether a model's tensors fit its family's program. aprconv check, conversions, aprquant, aprplan
 * and aprrun all use this check.
 *
 * A program names every weight that it reads, with its shape (program.h). A model is admitted if all of them exist in that shape and no
 * tensor of the text model is left over. A tensor that the program does not read means that the model differs from the one that would be
 * run. Towers, multi-token prediction layers and buffers (formats/shape/text_part.h) may exist and are ignored. */
#ifndef APR_RUNTIME_ADMISSION_H
#define APR_RUNTIME_ADMISSION_H

#include "runtime/program/program.h"

typedef enum {
    APR_TENSOR_MISSING,
    APR_TENSOR_MISSHAPEN,
    APR_TENSOR_EXTRA_LAYER,  /* of a layer after the last one of config.json */
    APR_TENSOR_UNKNOWN,      /* not a weight of the program: a run refuses it, a conversion keeps it */
    APR_TENSOR_TYPE_NOT_RUN, /* a type that no product reads, or experts of several types: a run refuses it, a conversion keeps it */
    APR_N_OBJECTIONS
} apr_objection_kind;

enum { APR_MAX_OBJECTIONS = 8 };

typedef struct apr_objection {
    apr_objection_kind kind;
    char text[400]; /* "tensor 'model.norm.weight' is missing" */
} apr_objection;

typedef struct apr_admission {
    bool is_checked;                         /* false: the model has no known program, so nothing was checked */
    apr_objection first[APR_MAX_OBJECTIONS]; /* [min(n, APR_MAX_OBJECTIONS)], sorted by kind */
    size_t n, n_of[APR_N_OBJECTIONS];
} apr_admission;

/* Checks a canonical view (convert/naming.h) against its program. */
apr_status apr_admission_check(apr_admission *admission, const apr_program *program, const apr_model *canonical, apr_error *err);

/* Is there a fault that a conversion must not ignore: a tensor that is missing, misshapen, or of a layer too many? */
bool apr_admission_is_incomplete(const apr_admission *admission);

/* The check before a plan or a run: can the tensors be read as matrices, and are they admitted? APR_E_UNSUPPORTED: matrices in a layout
 * that is not supported. Otherwise as apr_admission_refuse. */
apr_status apr_admission_to_run(const apr_program *program, const apr_model *canonical, apr_error *err);

/* One message with the first objection and the number of the others. APR_OK without objections. APR_E_DAMAGED if
 * apr_admission_is_incomplete, else APR_E_UNSUPPORTED. */
apr_status apr_admission_refuse(const apr_admission *admission, const char *path, apr_error *err);

#endif
