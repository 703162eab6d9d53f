/* bench_stages.h - what `aprrun bench` measures: at each depth, prompts of some lengths and a run of decoded tokens. The
 * depth is the number of tokens that are already in the context. */
#ifndef APR_TOOLS_BENCH_STAGES_H
#define APR_TOOLS_BENCH_STAGES_H

#include "formats/base/status.h"
#include "runtime/session/speed.h"

enum { APR_BENCH_MOST_LENGTHS = 16, APR_BENCH_MOST_STAGES = APR_BENCH_MOST_LENGTHS * (APR_BENCH_MOST_LENGTHS + 1) };

/* "512,2048": in the order in which they were given; "0" alone: none. */
typedef struct apr_lengths {
    int64_t items[APR_BENCH_MOST_LENGTHS];
    size_t n;
} apr_lengths;

typedef struct apr_bench_stages {
    apr_speed_stage *stages; /* malloc'ed */
    size_t n;
} apr_bench_stages;

/* Depth by depth: the prompts, then the tokens (0: none). APR_E_USAGE: there is nothing to measure. */
apr_status apr_bench_stages_make(apr_bench_stages *stages, const apr_lengths *prompts, int64_t n_tokens, const apr_lengths *depths,
                                 apr_error *err);
/* The context that the stages need: the largest depth plus length. */
int64_t apr_bench_stages_context(const apr_bench_stages *stages);
/* Drops the deepest stages. False: all have the same depth, and nothing was dropped. */
bool apr_bench_stages_drop_deepest(apr_bench_stages *stages);
void apr_bench_stages_close(apr_bench_stages *stages);

/* "pp512", "tg128". Returns text. */
char *apr_bench_stage_name(const apr_speed_stage *stage, char text[32]);

#endif
