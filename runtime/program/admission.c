/* admission.c - compares the weights of a program with the tensors of a model, in both directions. */
#include "runtime/program/admission.h"

#include "formats/shape/text_part.h"
#include "formats/tensor/packed_weights.h"
#include "kernels/rows.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct check_state {
    apr_admission *admission;
    const apr_program *program;
    const apr_model *model;
    bool *is_used; /* [model->n_tensors] */
} check_state;

__attribute__((format(printf, 3, 4))) static void add_objection(const check_state *c, apr_objection_kind kind, const char *format, ...)
{
    apr_admission *const a = c->admission;
    va_list arguments;

    a->n_of[kind]++;
    if (a->n++ >= APR_MAX_OBJECTIONS) return;
    apr_objection *const o = &a->first[a->n - 1];
    o->kind = kind;
    va_start(arguments, format);
    vsnprintf(o->text, sizeof o->text, format, arguments);
    va_end(arguments);
}

/* Marks the tensor, its scales, and the original that is kept next to a computed tensor. */
static void mark_used(const check_state *c, const apr_tensor *tensor)
{
    const char *const names[] = {tensor->name, tensor->scale != NULL ? tensor->scale->name : NULL, tensor->origin_kept};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const apr_tensor *const found = names[i] != NULL ? apr_model_find(c->model, names[i]) : NULL;
        if (found != NULL) c->is_used[found - c->model->tensors] = true;
    }
}

/* A vector may have any shape with the right count: [C, 1, K] taps, a bias [1, E]. */
static bool has_shape(const apr_weight_slot *slot, const apr_tensor *tensor)
{
    if (slot->rank == 1) return apr_tensor_elems(tensor) == slot->dims[0];
    return tensor->rank == slot->rank && memcmp(tensor->dims, slot->dims, (size_t)slot->rank * sizeof *slot->dims) == 0;
}

static void check_shape(const check_state *c, const apr_weight_slot *slot, const apr_tensor *tensor)
{
    const apr_tensor wanted = {.rank = slot->rank, .dims = {slot->dims[0], slot->dims[1], slot->dims[2]}};
    char have[96], want[96];

    if (has_shape(slot, tensor)) return;
    add_objection(c, APR_TENSOR_MISSHAPEN, "tensor '%.200s' has shape %s, but the hyperparameters give %s", tensor->name,
                  apr_dims_text(tensor, have, sizeof have), apr_dims_text(&wanted, want, sizeof want));
}

/* An optional slot with several tensors counts as present if its first tensor is. */
static void check_slot(const check_state *c, const apr_weight_slot *slot, bool of_shapes)
{
    char name[256];

    for (int64_t i = 0; i < slot->count; i++) {
        const apr_tensor *const tensor = apr_model_find(c->model, apr_slot_name(slot, i, name, sizeof name));
        if (tensor != NULL) {
            mark_used(c, tensor);
            if (of_shapes) check_shape(c, slot, tensor);
        } else if (slot->optional && i == 0) return;
        else if (!of_shapes) add_objection(c, APR_TENSOR_MISSING, "tensor '%.200s' is missing", name);
    }
}

/* Products must be able to read the type. The experts of a layer must have one type. */
static void check_types(const check_state *c, const apr_weight_slot *slot)
{
    apr_dtype first = APR_DTYPE_COUNT;
    char name[256];

    for (int64_t i = 0; i < slot->count; i++) {
        const apr_tensor *const tensor = apr_model_find(c->model, apr_slot_name(slot, i, name, sizeof name));
        if (tensor == NULL) continue;
        if (!apr_can_decode(tensor->dtype) || !apr_dtype_is_weights(tensor->dtype))
            add_objection(c, APR_TENSOR_TYPE_NOT_RUN, "tensor '%.200s' is %s, which cannot be run as weights", name,
                          apr_dtypes[tensor->dtype].name);
        else if (first == APR_DTYPE_COUNT) first = tensor->dtype;
        else if (slot->uses != APR_USE_FLOAT && tensor->dtype != first)
            add_objection(c, APR_TENSOR_TYPE_NOT_RUN,
                          "tensor '%.200s' is %s, but the first of its experts is %s; all experts of a layer must have one type", name,
                          apr_dtypes[tensor->dtype].name, apr_dtypes[first].name);
    }
}

/* Published checkpoints of Gemma 3n have keys and values in all layers, also in those that use the keys and values of earlier ones. */
static bool is_of_shared_keys(const apr_hparams *h, const char *name)
{
    const bool shares = h->num_kv_shared_layers > 0 && apr_layer_of_name(name) >= h->num_layers - h->num_kv_shared_layers;
    return shares && (strstr(name, ".self_attn.k_") != NULL || strstr(name, ".self_attn.v_") != NULL);
}

/* Tensors that may be unused: those outside of the text model, keys and values that are shared, and the copy of a tied embedding. */
static bool may_be_unused(const check_state *c, const char *name)
{
    return apr_part_of(c->model, name) != APR_PART_TEXT || is_of_shared_keys(&c->model->hparams, name) ||
           (c->model->hparams.tie_word_embeddings && strncmp(name, "lm_head.weight", strlen("lm_head.weight")) == 0);
}

static void check_leftover(const check_state *c, const char *name, bool of_layers)
{
    const int64_t layer = apr_layer_of_name(name);
    const bool is_beyond = layer >= c->program->num_layers;

    if (is_beyond != of_layers || may_be_unused(c, name)) return;
    if (is_beyond)
        add_objection(c, APR_TENSOR_EXTRA_LAYER,
                      "tensor '%.200s' belongs to layer %lld, but config.json states %lld layers, counted from 0", name, (long long)layer,
                      (long long)c->program->num_layers);
    else
        add_objection(c, APR_TENSOR_UNKNOWN,
                      "tensor '%.200s' has no place in a %s model of %lld layers; leaving it out would give wrong results", name,
                      c->program->architecture, (long long)c->program->num_layers);
}

/* In the order of the kinds, so that missing tensors are reported first. */
static void check_all(const check_state *c)
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
    const check_state c = {admission, program, canonical, calloc(canonical->n_tensors + 1, sizeof(bool))};

    *admission = (apr_admission){.is_checked = true};
    if (c.is_used == NULL) return apr_no_memory(err, "the names of the tensors");
    check_all(&c);
    free(c.is_used);
    return APR_OK;
}

bool apr_admission_is_incomplete(const apr_admission *admission)
{
    return admission->n > admission->n_of[APR_TENSOR_UNKNOWN] + admission->n_of[APR_TENSOR_TYPE_NOT_RUN];
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
