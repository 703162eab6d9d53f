/* bench_many.h - speed by the number of sequences: so many prompts at once through the scheduler, all there from the beginning. */
#ifndef APR_TOOLS_BENCH_MANY_H
#define APR_TOOLS_BENCH_MANY_H

#include "formats/base/json.h"
#include "formats/base/progress.h"
#include "runtime/session/speed.h"
#include "tools/cli/table.h"
#include "tools/run/bench_stages.h"

#include <stdio.h>

typedef struct apr_many_asked {
    apr_lengths sequences;      /* each at least 1 */
    int64_t n_prompt, n_tokens; /* of each sequence */
    int n_runs;                 /* after one that is not measured */
    uint64_t seed;
} apr_many_asked;

/* Of one number of sequences, run by run. */
typedef struct apr_many_figures {
    int64_t n_sequences;
    double seconds[APR_SPEED_MOST_RUNS];       /* from the first prompt to the last token */
    double step[APR_SPEED_MOST_RUNS];          /* from token to token of a sequence while all decode; 0: that was never so */
    double first[APR_SPEED_MOST_RUNS];         /* until a sequence had its first token, in the mean */
    double late_first[APR_SPEED_MOST_RUNS];    /* until 95 % of them had */
    double longest_first[APR_SPEED_MOST_RUNS]; /* until all had */
} apr_many_figures;

/* APR_E_USAGE: a number is 0 or too large, or there is nothing to measure. option: by which the numbers were given. */
apr_status apr_many_check(const apr_many_asked *asked, const char *option, apr_error *err);
/* figures: [asked->sequences.n]. A session with the options is opened for each number beside what is there. */
apr_status apr_many_measure(apr_many_figures *figures, const apr_many_asked *asked, const apr_model *model,
                            const apr_session_options *options, const apr_progress *progress, apr_error *err);

/* Tokens of all a second, over the time for all. */
apr_spread apr_many_rates(const apr_many_figures *figures, const apr_many_asked *asked);
/* The same while all decode and none joins, as llama-batched-bench has it: the median; 0: that was never so. */
double apr_many_rate_alone(const apr_many_figures *figures, const apr_many_asked *asked);

/* What the figures are of. Returns text. */
enum { APR_MANY_CAPTION = 256 };
char *apr_many_caption(const apr_many_asked *asked, char text[APR_MANY_CAPTION]);
/* A row for each number of sequences; the caller prints it, or closes it. */
void apr_many_fill_table(apr_table *table, const apr_many_figures *figures, const apr_many_asked *asked);
apr_status apr_many_print_table(const apr_many_figures *figures, const apr_many_asked *asked, FILE *out, apr_error *err);
void apr_many_answer_json(const apr_many_figures *figures, const apr_many_asked *asked, apr_json_text *json);
void apr_many_print_csv(const apr_many_figures *figures, const apr_many_asked *asked, FILE *out);

#endif
