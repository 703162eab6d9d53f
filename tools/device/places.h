/* places.h - the words of --offload and --gpus: which part of a program goes where. */
#ifndef APR_TOOLS_PLACES_H
#define APR_TOOLS_PLACES_H

#include "runtime/plan/partition.h"

#define APR_OFFLOAD_NAMES "experts[=N]|layers=N"

/* "experts", "experts=12", "layers=12", "layers=all", or both after a comma; NULL: nothing. APR_E_USAGE: anything else. */
apr_status apr_offload_parse(const char *text, apr_offload *offload, apr_error *err);
/* "experts", "layers=12" again; as a sentence has it. Returns text. */
char *apr_offload_text(const apr_offload *offload, char *text, size_t n_bytes);

/* "2": the first two; "0,2": those, in that order; "0,0": one of them twice. NULL: *n is 0. APR_E_USAGE: no such list. */
apr_status apr_gpus_parse(const char *text, int *n, int ordinals[APR_MOST_DEVICES], apr_error *err);

/* For work that is dealt out: "2": the third one alone; "0,1": those; "0,0": one of them with twice the workers; "all": *n is 0.
 * APR_E_USAGE: no such list. */
apr_status apr_gpu_list_parse(const char *text, int *n, int ordinals[APR_MOST_DEVICES], apr_error *err);

#endif
