/* feedback_links.c - follows the provenance of a canonical view's tensors back to the tensors of an output. */
#include "tools/engine/quantize/feedback_links.h"

#include "convert/naming.h"
#include "formats/base/grow.h"

#include <stdlib.h>
#include <string.h>

int64_t apr_feedback_matrices(const apr_tensor *tensor) { return tensor->rank == 3 ? tensor->dims[0] : 1; }

/* Do the steps leave columns in place? *picked: the matrix that they take out of a stack, or -1. */
static bool keeps_columns(const apr_chain *chain, int64_t *picked)
{
    *picked = -1;
    for (int i = 0; i < chain->n_steps; i++) {
        const apr_step *const step = &chain->steps[i];
        if (step->kind == APR_STEP_PICK) *picked = step->n[0];
        else if (step->kind == APR_STEP_STACK || !apr_step_keeps_columns(step)) return false;
    }
    return true;
}

/* The item that a tensor of the view becomes; SIZE_MAX: none. */
static size_t find_item(const apr_conversion *c, const char *name)
{
    const apr_tensor *const tensor = apr_model_find(&c->view, name);
    for (size_t i = 0; tensor != NULL && i < c->layout.n_tensors; i++)
        if (c->items[i].from == tensor && !c->items[i].is_scales && !c->items[i].is_commons) return i;
    return SIZE_MAX;
}

static int compare(const void *a, const void *b)
{
    const apr_feedback_link *const x = a, *const y = b;
    if (x->item != y->item) return x->item < y->item ? -1 : 1;
    if (x->matrix != y->matrix) return x->matrix < y->matrix ? -1 : 1;
    if (x->input != y->input) return x->input < y->input ? -1 : 1;
    return x->expert < y->expert ? -1 : x->expert > y->expert;
}

static apr_status add(apr_feedback_links *l, size_t *capacity, apr_feedback_link link, apr_error *err)
{
    apr_feedback_link *const links = apr_grow(l->links, capacity, l->n_links + 1, sizeof *links);
    if (links == NULL) return apr_no_memory(err, "the inputs of tensors");
    l->links = links;
    l->links[l->n_links++] = link;
    return APR_OK;
}

/* Adds the links of one tensor of the program: an expert's matrix, a stack of all experts, or a single matrix. */
static apr_status add_tensor(apr_feedback_links *l, size_t *capacity, const apr_conversion *c, const apr_tensor *tensor, size_t number,
                             const apr_layer_input *input, int64_t expert, apr_error *err)
{
    int64_t picked;
    const size_t item = find_item(c, tensor->origin_name != NULL ? tensor->origin_name : tensor->name);

    if (item == SIZE_MAX || tensor->origins != NULL || !keeps_columns(&tensor->origin_chain, &picked)) return APR_OK;
    const apr_tensor *const from = c->items[item].from;
    const int64_t n_matrices = apr_feedback_matrices(from);
    if (input->n_experts > 0 && (expert >= input->n_experts || (tensor->rank == 3 && n_matrices > input->n_experts))) return APR_OK;
    if (apr_tensor_columns(from) != input->width || from->rank < 2 || from->rank > 3) return APR_OK;
    if (tensor->rank == 3 && picked < 0) { /* a whole stack: one matrix for each expert, or for each head with the same input */
        for (int64_t m = 0; m < n_matrices; m++)
            APR_TRY(add(l, capacity, (apr_feedback_link){item, m, number, input->n_experts > 0 ? m : 0}, err));
        return APR_OK;
    }
    if (picked >= n_matrices || (picked < 0 && n_matrices > 1)) return APR_OK;
    return add(l, capacity, (apr_feedback_link){item, picked >= 0 ? picked : 0, number, input->n_experts > 0 ? expert : 0}, err);
}

/* Removes duplicates: gate and up in one tensor, and parts of one projection, have the same link. */
static void remove_duplicates(apr_feedback_links *l)
{
    size_t n = 0;
    if (l->n_links == 0) return;
    qsort(l->links, l->n_links, sizeof *l->links, compare);
    for (size_t i = 0; i < l->n_links; i++)
        if (i == 0 || compare(&l->links[i], &l->links[n - 1]) != 0) l->links[n++] = l->links[i];
    l->n_links = n;
}

apr_status apr_feedback_links_of(apr_feedback_links *l, const apr_conversion *c, const apr_session *session, const apr_layer_inputs *inputs,
                                 apr_error *err)
{
    size_t capacity = 0;

    *l = (apr_feedback_links){0};
    for (size_t i = 0; i < inputs->n_readers; i++) {
        const apr_layer_input *const input = &inputs->inputs[inputs->readers[i].input];
        int64_t n;
        const apr_tensor *const tensors = apr_trace_tensors(session, inputs->readers[i].slot, &n);
        for (int64_t e = 0; tensors != NULL && e < n; e++)
            APR_TRY(add_tensor(l, &capacity, c, &tensors[e], inputs->readers[i].input, input, e, err));
    }
    remove_duplicates(l);
    return APR_OK;
}

void apr_feedback_links_close(apr_feedback_links *l)
{
    free(l->links);
    *l = (apr_feedback_links){0};
}

size_t apr_feedback_links_of_item(const apr_feedback_links *l, size_t item, size_t *first)
{
    size_t begin = 0, end;
    while (begin < l->n_links && l->links[begin].item < item) begin++;
    for (end = begin; end < l->n_links && l->links[end].item == item;) end++;
    *first = begin;
    return end - begin;
}
