/* parts.c - see parts.h. */
#include "tools/engine/plan/parts.h"

#include <string.h>

const char *const apr_plan_part_names[APR_PLAN_PARTS] = {"weights", "keys and values", "recurrent state", "activations", "workspace",
                                                         "CUDA",    "left free",       "on the host"};

apr_plan_part apr_plan_part_of(const apr_plan_line *line)
{
    /* by the beginning of a line's key; the first match counts */
    static const struct {
        const char *key;
        apr_plan_part part;
    } rows[] = {
        {"weights.", APR_PART_WEIGHTS},        {"vectors", APR_PART_WEIGHTS}, {"kv", APR_PART_KV},        {"recurrent", APR_PART_RECURRENT},
        {"activations", APR_PART_ACTIVATIONS}, {"context", APR_PART_CUDA},    {"cublas.", APR_PART_CUDA}, {"recorded", APR_PART_CUDA},
        {"rounding", APR_PART_CUDA},           {"headroom", APR_PART_FREE},   {"system", APR_PART_FREE},  {"host.", APR_PART_ON_HOST},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strncmp(line->key, rows[i].key, strlen(rows[i].key)) == 0) return rows[i].part;
    return APR_PART_WORKSPACE; /* workspace, logits, step */
}
