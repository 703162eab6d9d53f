/* runs_option.h - --resume, --part K/N and --finish: an output that several runs make (formats/base/resume.h). */
#ifndef APR_TOOLS_RUNS_OPTION_H
#define APR_TOOLS_RUNS_OPTION_H

#include "convert/convert.h"
#include "tools/cli/cli.h"

typedef struct apr_runs_options {
    bool resume, finish;
    const char *part; /* "K/N", or NULL */
} apr_runs_options;

#define APR_RUNS_OPTIONS(type, member)                                                                             \
    {"resume",                                                                                                     \
     0,                                                                                                            \
     APR_OPTION_FLAG,                                                                                              \
     NULL,                                                                                                         \
     NULL,                                                                                                         \
     "keep what is done in OUT.resume when the run is ended, and go on there",                                     \
     APR_TO(type, member.resume),                                                                                  \
     .group = "Several runs"},                                                                                     \
        {"part",                                                                                                   \
         0,                                                                                                        \
         APR_OPTION_STRING,                                                                                        \
         "K/N",                                                                                                    \
         NULL,                                                                                                     \
         "make the K-th of N parts of OUT.resume, on any host that shares the folder; ended runs go on",           \
         APR_TO(type, member.part)},                                                                               \
    {                                                                                                              \
        "finish", 0, APR_OPTION_FLAG, NULL, NULL, "check all parts, write what comes last, and give OUT its name", \
            APR_TO(type, member.finish)                                                                            \
    }

/* NULL in *part: one run makes it all. APR_E_USAGE: no such part, or two of them. */
apr_status apr_runs_parse(const apr_runs_options *options, bool dry_run, apr_resume_part *room, const apr_resume_part **part,
                          apr_error *err);

/* What was taken over and what is left, where there are several runs; quiet: only what is not as it should be. */
void apr_runs_print(const apr_sink_progress *progress, const apr_resume_part *part, bool quiet);
void apr_runs_json(apr_json_text *json, const apr_sink_progress *progress, const apr_resume_part *part);

#endif
