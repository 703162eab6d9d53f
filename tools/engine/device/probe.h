/* probe.h - tests a risky feature of a GPU in a child process with a time limit, and caches the verdict.
 *
 * A kernel on a GPU that it does not suit can crash or hang its process, so a child process runs it. The verdict is cached
 * per device, driver and library in $XDG_CACHE_HOME/aprkit (or ~/.cache/aprkit), one small file each. */
#ifndef APR_TOOLS_PROBE_H
#define APR_TOOLS_PROBE_H

#include "kernels/cuda/api.h"
#include "runtime/plan/capability.h"

#include <stdbool.h>

enum { APR_PROBE_SECONDS = 20 };

typedef struct apr_probe_result {
    apr_probe_verdict verdict;
    bool from_cache;
    char detail[256]; /* why: "equal to the host's", or what went wrong */
} apr_probe_result;

extern const char *const apr_probe_names[APR_CUDA_PROBE_COUNT]; /* "fp16", "fp8" */

/* again: runs the probe even if a verdict is cached. APR_E_IO: no child could be started. */
apr_status apr_probe_run(const apr_cuda_facts *facts, apr_cuda_probe which, bool again, apr_probe_result *probed, apr_error *err);

/* Runs argv (ends with NULL) as a child, its stderr collected as text, and kills it after so many seconds: *exit_code is
 * then -1; -2 when a signal ended it. */
apr_status apr_probe_child(const char *const *argv, int seconds, int *exit_code, char *text, size_t n_text, apr_error *err);

#endif
