/* bench_stages.c - makes a stage of each pair of depth and length. */
#include "tools/engine/bench/bench_stages.h"

#include <stdio.h>
#include <stdlib.h>

static void add(apr_bench_stages *stages, int64_t depth, int64_t n_tokens, bool one_by_one)
{
    if (n_tokens > 0) stages->stages[stages->n++] = (apr_speed_stage){.depth = depth, .n_tokens = n_tokens, .one_by_one = one_by_one};
}

apr_status apr_bench_stages_make(apr_bench_stages *stages, const apr_lengths *prompts, int64_t n_tokens, const apr_lengths *depths,
                                 apr_error *err)
{
    *stages = (apr_bench_stages){.stages = calloc(depths->n * (prompts->n + 1) + 1, sizeof *stages->stages)};
    if (stages->stages == NULL) return apr_no_memory(err, "the figures");
    for (size_t i = 0; i < depths->n; i++) {
        for (size_t j = 0; j < prompts->n; j++) add(stages, depths->items[i], prompts->items[j], false);
        add(stages, depths->items[i], n_tokens, true);
    }
    if (stages->n > 0) return APR_OK;
    apr_bench_stages_close(stages);
    return apr_fail(err, APR_E_USAGE, "there is nothing to measure: give --prompt or --tokens greater than 0");
}

int64_t apr_bench_stages_context(const apr_bench_stages *stages)
{
    int64_t most = 0;
    for (size_t i = 0; i < stages->n; i++) {
        const int64_t end = stages->stages[i].depth + stages->stages[i].n_tokens;
        if (end > most) most = end;
    }
    return most;
}

bool apr_bench_stages_drop_deepest(apr_bench_stages *stages)
{
    int64_t deepest = 0;
    size_t n = 0;

    for (size_t i = 0; i < stages->n; i++)
        if (stages->stages[i].depth > deepest) deepest = stages->stages[i].depth;
    for (size_t i = 0; i < stages->n; i++) n += stages->stages[i].depth < deepest;
    if (n == 0) return false;
    n = 0;
    for (size_t i = 0; i < stages->n; i++)
        if (stages->stages[i].depth < deepest) stages->stages[n++] = stages->stages[i];
    stages->n = n;
    return true;
}

void apr_bench_stages_close(apr_bench_stages *stages)
{
    free(stages->stages);
    *stages = (apr_bench_stages){0};
}

char *apr_bench_stage_name(const apr_speed_stage *stage, char text[32])
{
    snprintf(text, 32, "%s%lld", stage->one_by_one ? "tg" : "pp", (long long)stage->n_tokens);
    return text;
}
