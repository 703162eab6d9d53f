/* allocate.h - chooses a type for each tensor by the KL divergence that it causes.
 *
 * Starts from the conversion that --to would make. Each tensor that would become a block type is tried alone in each of its candidate
 * types, on the first tokens of a text (runtime/calibrate/damage.h). All experts of one matrix of a layer are tried together. Then types
 * are chosen within the target (quant/allocate.h), and their joint effect is measured on other tokens of the text. */
#ifndef APR_ENGINE_ALLOCATING_H
#define APR_ENGINE_ALLOCATING_H

#include "convert/convert.h"
#include "quant/allocate.h"
#include "runtime/calibrate/damage.h"
#include "tools/engine/listener.h"
#include "tools/engine/text_input.h"

typedef struct apr_allocate_request {
    double bpw, kld; /* NaN: not a target */
    uint64_t size;   /* bytes of all tensors; 0: not a target */
    const apr_text_input *text;
    const char *state; /* the file that keeps measured divergences, or NULL */
    int64_t n_tokens, window;
    const apr_session_options *device; /* the GPU that types are tried on; NULL: the host */
} apr_allocate_request;

enum { APR_ALLOCATE_TYPES = 16 }; /* the candidates, and the type that the recipe gives */

/* Tensors that get one type together: one tensor of the output, or one matrix of all experts of a layer. */
typedef struct apr_allocate_group {
    const char *name, *regex;  /* its name, with "*" for an expert's number; the pattern that matches its tensors */
    const apr_tensor *example; /* of the conversion's view; valid only while that conversion is open */
    apr_dtype types[APR_ALLOCATE_TYPES];
    apr_offer offers[APR_ALLOCATE_TYPES]; /* [n_types] bytes and KL divergence */
    size_t n_types, chosen;
    uint64_t bytes_before; /* in the type that --to gives */
    size_t *members;       /* [n_members] tensors of the model that is run */
    size_t n_members, capacity;
} apr_allocate_group;

typedef struct apr_allocation {
    apr_allocate_request request;
    apr_allocate_group *groups;
    size_t n_groups;
    uint64_t fixed_bytes, n_bytes; /* of tensors in no group; of all tensors */
    int64_t n_elems;
    int64_t n_tried, n_held;        /* tokens to choose on, tokens to measure the choice on */
    double sum;                     /* of the chosen types' divergences */
    apr_damage_figure held;         /* divergence of all chosen types together, on the n_held tokens */
    size_t n_measured, n_known;     /* figures measured by this run, and taken from `state` */
    apr_recipe_override *overrides; /* [n_groups] rules for the final recipe */
    apr_arena arena;
} apr_allocation;

bool apr_allocate_is_asked(const apr_allocate_request *request);
/* APR_E_USAGE: several targets, or no text for one. */
apr_status apr_allocate_check(const apr_allocate_request *request, bool has_text, apr_error *err);

/* For a planned conversion. APR_E_NO: the target cannot be met; the message says by how much. Must be closed, whatever the status. */
apr_status apr_allocation_make(apr_allocation *a, const apr_allocate_request *request, const apr_conversion *conversion,
                               const apr_listener *listener, apr_error *err);
void apr_allocation_close(apr_allocation *a);

#endif
