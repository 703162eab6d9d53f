/* resume_option.h - --resume, --part K/N and --finish: an output that is made by several runs (formats/files/resume.h). */
#ifndef APR_TOOLS_RUNS_OPTION_H
#define APR_TOOLS_RUNS_OPTION_H

#include "convert/convert.h"
#include "tools/cli/cli.h"

typedef struct apr_runs_options {
    bool resume, finish;
    const char *part; /* "K/N", or NULL */
} apr_runs_options;

#define APR_RUNS_OPTIONS(type, member)                                                                                           \
    {"resume",                                                                                                                   \
     0,                                                                                                                          \
     APR_OPTION_FLAG,                                                                                                            \
     NULL,                                                                                                                       \
     NULL,                                                                                                                       \
     "keep finished work in OUT.resume if the run is interrupted, and continue from it",                                         \
     APR_TO(type, member.resume),                                                                                                \
     .group = "Several runs"},                                                                                                   \
        {"part",                                                                                                                 \
         0,                                                                                                                      \
         APR_OPTION_STRING,                                                                                                      \
         "K/N",                                                                                                                  \
         NULL,                                                                                                                   \
         "make the K-th of N parts in OUT.resume, on any host that shares the folder; can be resumed",                           \
         APR_TO(type, member.part)},                                                                                             \
    {                                                                                                                            \
        "finish", 0, APR_OPTION_FLAG, NULL, NULL, "check that all parts are there and complete OUT", APR_TO(type, member.finish) \
    }

/* *part points to *storage, or is NULL if one run makes all of OUT. APR_E_USAGE: an invalid part, or several of these options. */
apr_status apr_runs_parse(const apr_runs_options *options, bool dry_run, apr_resume_part *storage, const apr_resume_part **part,
                          apr_error *err);

/* Prints what was reused and what is left; nothing for a single run. quiet: only problems. */
void apr_runs_print(const apr_sink_progress *progress, const apr_resume_part *part, bool quiet);
void apr_runs_json(apr_json_text *json, const apr_sink_progress *progress, const apr_resume_part *part);

#endif
