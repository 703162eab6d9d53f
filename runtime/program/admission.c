/* admission.c - the weights of a program against the tensors of a model, both ways. */
#include "runtime/program/admission.h"

#include "formats/model/packed_weights.h"
#include "formats/model/text_part.h"
#include "kernels/rows.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct checking {
    apr_admission *admission;
    const apr_program *program;
    const apr_model *model;
    bool *is_used; /* [model->n_tensors] */
} checking;

__attribute__((format(printf, 3, 4))) static void object(const checking *c, apr_objection_kind kind, const char *format, ...)
{
    apr_admission *const a = c->admission;
    va_list arguments;

    a->n_of[kind]++;
    if (a->n++ >= APR_MOST_OBJECTIONS) return;
    apr_objection *const o = &a->first[a->n - 1];
    o->kind = kind;
    va_start(arguments, format);
    vsnprintf(o->text, sizeof o->text, format, arguments);
    va_end(arguments);
}

/* The tensor, the scales of its numbers, and what it was before it was computed, where that is kept as well. */
static void mark_used(const checking *c, const apr_tensor *tensor)
{
    const char *const names[] = {tensor->name, tensor->scale != NULL ? tensor->scale->name : NULL, tensor->origin_kept};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const apr_tensor *const found = names[i] != NULL ? apr_model_find(c->model, names[i]) : NULL;
        if (found != NULL) c->is_used[found - c->model->tensors] = true;
    }
}

/* Numbers may lie in any shape: [C, 1, K] taps, a bias [1, E]. */
static bool fits(const apr_weight_slot *slot, const apr_tensor *tensor)
{
    if (slot->rank == 1) return apr_tensor_elems(tensor) == slot->dims[0];
    return tensor->rank == slot->rank && memcmp(tensor->dims, slot->dims, (size_t)slot->rank * sizeof *slot->dims) == 0;
}

static void check_shape(const checking *c, const apr_weight_slot *slot, const apr_tensor *tensor)
{
    const apr_tensor wanted = {.rank = slot->rank, .dims = {slot->dims[0], slot->dims[1], slot->dims[2]}};
    char have[96], want[96];

    if (fits(slot, tensor)) return;
    object(c, APR_TENSOR_MISSHAPEN, "tensor '%.200s' is %s where the hyperparameters say %s", tensor->name,
           apr_dims_text(tensor, have, sizeof have), apr_dims_text(&wanted, want, sizeof want));
}

/* Of an optional slot with several tensors the first one decides whether it is there. */
static void check_slot(const checking *c, const apr_weight_slot *slot, bool of_shapes)
{
    char name[256];

    for (int64_t i = 0; i < slot->count; i++) {
        const apr_tensor *const tensor = apr_model_find(c->model, apr_slot_name(slot, i, name, sizeof name));
        if (tensor != NULL) {
            mark_used(c, tensor);
            if (of_shapes) check_shape(c, slot, tensor);
        } else if (slot->optional && i == 0) return;
        else if (!of_shapes) object(c, APR_TENSOR_MISSING, "tensor '%.200s' is missing", name);
    }
}

/* Types of numbers that products read; of a layer's experts, one type. */
static void check_types(const checking *c, const apr_weight_slot *slot)
{
    apr_dtype first = APR_DTYPE_COUNT;
    char name[256];

    for (int64_t i = 0; i < slot->count; i++) {
        const apr_tensor *const tensor = apr_model_find(c->model, apr_slot_name(slot, i, name, sizeof name));
        if (tensor == NULL) continue;
        if (!apr_can_decode(tensor->dtype) || !apr_dtype_is_weights(tensor->dtype))
            object(c, APR_TENSOR_UNRUN, "tensor '%.200s' is %s, which cannot be run as weights", name, apr_dtypes[tensor->dtype].name);
        else if (first == APR_DTYPE_COUNT) first = tensor->dtype;
        else if (slot->uses != APR_USE_FLOAT && tensor->dtype != first)
            object(c, APR_TENSOR_UNRUN, "tensor '%.200s' is %s and the first of its experts is %s; a layer's experts are run as one type",
                   name, apr_dtypes[tensor->dtype].name, apr_dtypes[first].name);
    }
}

/* May be there unused: what is not the text model, or the copy of a tied embedding. */
static bool is_idle(const checking *c, const char *name)
{
    return apr_part_of(c->model, name) != APR_PART_TEXT ||
           (c->model->hparams.tie_word_embeddings && strncmp(name, "lm_head.weight", strlen("lm_head.weight")) == 0);
}

static void check_leftover(const checking *c, const char *name, bool of_layers)
{
    const int64_t layer = apr_layer_of_name(name);
    const bool is_beyond = layer >= c->program->num_layers;

    if (is_beyond != of_layers || is_idle(c, name)) return;
    if (is_beyond)
        object(c, APR_TENSOR_BEYOND, "tensor '%.200s' is of layer %lld, but config.json gives the model %lld layers, counted from 0", name,
               (long long)layer, (long long)c->program->num_layers);
    else
        object(c, APR_TENSOR_UNKNOWN, "tensor '%.200s' has no place in a %s model of %lld layers; leaving it out would give wrong results",
               name, c->program->architecture, (long long)c->program->num_layers);
}

/* In the order of the kinds, so that what is missing is named first. */
static void check_all(const checking *c)
{
    for (int of_shapes = 0; of_shapes < 2; of_shapes++)
        for (size_t i = 0; i < c->program->n_weights; i++) check_slot(c, &c->program->weights[i], of_shapes != 0);
    for (int of_layers = 1; of_layers >= 0; of_layers--)
        for (size_t i = 0; i < c->model->n_tensors; i++)
            if (!c->is_used[i]) check_leftover(c, c->model->tensors[i].name, of_layers != 0);
    for (size_t i = 0; i < c->program->n_weights; i++) check_types(c, &c->program->weights[i]);
}

apr_status apr_admission_check(apr_admission *admission, const apr_program *program, const apr_model *canonical, apr_error *err)
{
    const checking c = {admission, program, canonical, calloc(canonical->n_tensors + 1, sizeof(bool))};

    *admission = (apr_admission){.is_judged = true};
    if (c.is_used == NULL) return apr_no_memory(err, "the names of the tensors");
    check_all(&c);
    free(c.is_used);
    return APR_OK;
}

bool apr_admission_is_incomplete(const apr_admission *admission)
{
    return admission->n > admission->n_of[APR_TENSOR_UNKNOWN] + admission->n_of[APR_TENSOR_UNRUN];
}

apr_status apr_admission_to_run(const apr_program *program, const apr_model *canonical, apr_error *err)
{
    apr_admission admission;

    APR_TRY(apr_refuse_packed(canonical, "run", err));
    APR_TRY(apr_admission_check(&admission, program, canonical, err));
    return apr_admission_refuse(&admission, canonical->path, err);
}

apr_status apr_admission_refuse(const apr_admission *admission, const char *path, apr_error *err)
{
    const apr_status status = apr_admission_is_incomplete(admission) ? APR_E_DAMAGED : APR_E_UNSUPPORTED;

    if (admission->n == 0) return APR_OK;
    if (admission->n == 1) return apr_fail(err, status, "%s: %s", path, admission->first[0].text);
    return apr_fail(err, status, "%s: %s; and %zu more tensor%s not fit the model", path, admission->first[0].text, admission->n - 1,
                    admission->n == 2 ? " does" : "s do");
}
