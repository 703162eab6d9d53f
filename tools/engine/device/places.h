/* places.h - parses --offload, --gpus and --gpu: which part of a model runs where. */
#ifndef APR_TOOLS_PLACES_H
#define APR_TOOLS_PLACES_H

#include "runtime/plan/partition.h"

#define APR_OFFLOAD_NAMES "experts[=N]|layers=N"

/* "experts", "experts=12", "layers=12", "layers=all", or both after a comma; NULL: nothing. APR_E_USAGE: anything else. */
apr_status apr_offload_parse(const char *text, apr_offload *offload, apr_error *err);
/* The inverse, for sentences: "experts", "layers=12". Returns text. */
char *apr_offload_text(const apr_offload *offload, char *text, size_t n_bytes);

/* "2": the first two; "0,2": those, in that order; "0,0": one of them twice. NULL: *n is 0. APR_E_USAGE: anything else. */
apr_status apr_gpus_parse(const char *text, int *n, int ordinals[APR_MAX_DEVICES], apr_error *err);

/* For encoding, which distributes tensors over GPUs. "2": GPU 2 alone; "0,1": both; "0,0": GPU 0 with twice the workers; "all": *n is 0.
 * APR_E_USAGE: anything else. */
apr_status apr_gpu_list_parse(const char *text, int *n, int ordinals[APR_MAX_DEVICES], apr_error *err);

#endif
