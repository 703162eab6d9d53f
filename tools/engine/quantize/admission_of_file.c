/* admission_of_file.c - compares a file's tensors, under canonical names, with the program of its family. */
#include "tools/engine/quantize/admission_of_file.h"

#include "convert/naming.h"
#include "formats/tensor/packed_weights.h"
#include "runtime/program/families.h"

apr_status apr_admission_of(apr_admission *admission, const apr_model *source, apr_error *err)
{
    const apr_family *const family = apr_family_find(source->hparams.architecture);
    apr_program program = {0};
    apr_model view = {0};
    const char *layout;

    *admission = (apr_admission){0};
    if (family == NULL || apr_family_program_of(family) == NULL || source->n_tensors == 0 || source->hparams.refusal != NULL) return APR_OK;
    apr_status status = apr_canonical(&view, source, err);
    const bool is_read = status == APR_OK && apr_find_packed(&view, &layout) == NULL;
    if (is_read) {
        const apr_status emitted = apr_program_emit(&program, &view.hparams, NULL);
        if (emitted == APR_OK) status = apr_admission_check(admission, &program, &view, err);
        else if (emitted == APR_E_MEMORY) status = apr_no_memory(err, "the program of a model");
    }
    apr_program_close(&program);
    apr_model_close(&view);
    return status;
}
