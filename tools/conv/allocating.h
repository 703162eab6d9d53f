/* allocating.h - aprquant --target-bpw, --target-size, --target-kld: a type for each tensor by what it does to the predictions.
 *
 * Of the conversion that --to would make, every tensor that is to become blocks (and all experts of a layer's matrix together) is tried
 * in each type that it could have, alone, on the first tokens of a text (runtime/calibrate/damage.h). The types are then chosen within the
 * target (quant/allocate.h), and what they do together is measured on tokens that had no say. */
#ifndef APR_TOOLS_ALLOCATING_H
#define APR_TOOLS_ALLOCATING_H

#include "convert/convert.h"
#include "quant/allocate.h"
#include "runtime/calibrate/damage.h"
#include "tools/cli/cli.h"
#include "tools/cli/prompt.h"

typedef struct apr_allocate_request {
    double bpw, kld; /* NaN: not the target */
    uint64_t size;   /* bytes of all tensors; 0: not the target */
    const apr_text *text;
    const char *state; /* where damages are kept, or NULL */
    int64_t n_tokens, window;
} apr_allocate_request;

/* Rows of aprquant's table; `member` is its apr_allocate_request. */
#define APR_ALLOCATE_OPTIONS(type, member)                                                                                           \
    {"target-bpw",                                                                                                                   \
     0,                                                                                                                              \
     APR_OPTION_REAL,                                                                                                                \
     "BITS",                                                                                                                         \
     NULL,                                                                                                                           \
     "types for tensors so that all weights together take at most so many bits each",                                                \
     APR_TO(type, member.bpw),                                                                                                       \
     .min = 1.0,                                                                                                                     \
     .max = 32.0,                                                                                                                    \
     .group = "Types by what they do"},                                                                                              \
        {"target-size",                                                                                                              \
         0,                                                                                                                          \
         APR_OPTION_SIZE,                                                                                                            \
         "SIZE",                                                                                                                     \
         NULL,                                                                                                                       \
         "or so that all tensors together have at most this size",                                                                   \
         APR_TO(type, member.size),                                                                                                  \
         .min = 1},                                                                                                                  \
        {"target-kld",                                                                                                               \
         0,                                                                                                                          \
         APR_OPTION_REAL,                                                                                                            \
         "X",                                                                                                                        \
         NULL,                                                                                                                       \
         "or the fewest bytes with which predictions diverge by X at most",                                                          \
         APR_TO(type, member.kld),                                                                                                   \
         .min = 1e-9,                                                                                                                \
         .max = 1e3},                                                                                                                \
        {"target-tokens",                                                                                                            \
         0,                                                                                                                          \
         APR_OPTION_INT,                                                                                                             \
         "N",                                                                                                                        \
         "4096",                                                                                                                     \
         "tokens of the text on which each type of each tensor is tried, and as many more on which all are together",                \
         APR_TO(type, member.n_tokens),                                                                                              \
         .min = 2,                                                                                                                   \
         .max = 1e9},                                                                                                                \
    {                                                                                                                                \
        "state", 0, APR_OPTION_STRING, "FILE", NULL, "keep there what has been tried, and go on from it", APR_TO(type, member.state) \
    }

enum { APR_ALLOCATE_TYPES = 6 };

/* What gets one type: a tensor of the output, or the experts of a layer. */
typedef struct apr_allocate_group {
    const char *name, *regex;  /* its name, "*" for the number of an expert; what finds its tensors */
    const apr_tensor *example; /* of the view; only while the conversion is open that it was planned by */
    apr_dtype types[APR_ALLOCATE_TYPES];
    apr_offer offers[APR_ALLOCATE_TYPES]; /* bytes and damage */
    size_t n_types, chosen;
    uint64_t bytes_before; /* in the type that --to says */
    size_t *members;       /* [n_members] of the model that is run */
    size_t n_members, capacity;
} apr_allocate_group;

typedef struct apr_allocation {
    apr_allocate_request request;
    apr_allocate_group *groups;
    size_t n_groups;
    uint64_t fixed_bytes, n_bytes; /* of all other tensors; of all */
    int64_t n_elems;
    int64_t n_tried, n_held;        /* tokens */
    double sum;                     /* of the chosen damages */
    apr_damage_figure held;         /* of all together, on tokens that had no say */
    size_t n_measured, n_known;     /* figures of this run; and of earlier ones */
    apr_recipe_override *overrides; /* [n_groups] what the recipe is to be made with */
    apr_arena arena;
} apr_allocation;

bool apr_allocate_is_asked(const apr_allocate_request *request);
/* APR_E_USAGE: several targets, or no text for one. */
apr_status apr_allocate_check(const apr_allocate_request *request, bool has_text, apr_error *err);

/* For a conversion that has been planned; APR_E_NO when the target cannot be met, and by how much. Must be closed, whatever the status. */
apr_status apr_allocation_make(apr_allocation *a, const apr_allocate_request *request, const apr_conversion *conversion, bool quiet,
                               apr_error *err);
void apr_allocation_close(apr_allocation *a);

/* --- allocate_groups.c --- */

/* Groups of the lines that may become something else, without members. *group_of: [view.n_tensors] of the arena; SIZE_MAX: none. */
apr_status apr_allocate_groups(apr_allocation *a, const apr_conversion *conversion, size_t **group_of, apr_error *err);
/* Gives them the tensors of `model`, the canonical view of the conversion's own without records; groups without any are left out. */
apr_status apr_allocate_members(apr_allocation *a, const apr_conversion *conversion, const apr_model *model, const size_t *group_of,
                                apr_error *err);

/* --- allocate_print.c --- */

apr_status apr_allocation_print(const apr_allocation *a, apr_error *err);
void apr_allocation_json(apr_json_text *json, const apr_allocation *a);

#endif
