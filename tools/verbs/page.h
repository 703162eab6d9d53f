/* page.h - what every HTML page of a verb tells about itself: who made it and how, of which files, and the answer as JSON. */
#ifndef APR_VERBS_PAGE_H
#define APR_VERBS_PAGE_H

#include "formats/tensor/model.h"
#include "runtime/session/session.h"
#include "tools/cli/cli.h"
#include "tools/report/sha256.h"

#include <stdio.h>

/* Options of verbs that write pages. */
typedef struct apr_page_options {
    bool stamp, hash;
} apr_page_options;

/* Rows of a table of options; `member` is an apr_page_options. And of a table of needs, where `option` names the page. */
#define APR_PAGE_OPTIONS(type, member)                                                                                    \
    {"stamp",                                                                                                             \
     0,                                                                                                                   \
     APR_OPTION_FLAG,                                                                                                     \
     NULL,                                                                                                                \
     "yes",                                                                                                               \
     "leave out of the page when, where and by which command it was made, so that pages can be "                          \
     "compared",                                                                                                          \
     APR_TO(type, member.stamp)},                                                                                         \
    {                                                                                                                     \
        "hash", 0, APR_OPTION_FLAG, NULL, NULL, "the page also states the SHA-256 of whole files, which are read for it", \
            APR_TO(type, member.hash)                                                                                     \
    }
#define APR_PAGE_NEEDS(option, holds) \
    {"stamp", option, holds}, { "hash", option, holds }

/* A model that a page is about. */
typedef struct apr_page_model {
    const char *label; /* "model", "reference" */
    const apr_model *model;
} apr_page_model;

typedef struct apr_page_about {
    const apr_call *call;
    const apr_page_options *options;
    const apr_page_model *models; /* [n_models] */
    size_t n_models;
    const apr_session *session; /* that ran on a GPU or on the host; NULL: none */
    char *answer;               /* the JSON object that --json prints; NULL: no memory for it */
    bool answer_is_short;       /* without its list of tensors, because it is long */
} apr_page_about;

/* Writes the block "made by" and "of", the answer, and the place of the list of contents. */
void apr_page_about_html(FILE *out, const apr_page_about *about);

/* Bytes of one of the model's files before its first tensor: header, metadata and list of tensors. */
size_t apr_page_head_bytes(const apr_model *model, const apr_map *map);

/* SHA-256 of all files of the model in order, and how many bytes these are. is_whole: with their tensors. Returns text. */
char *apr_page_sum(const apr_model *model, bool is_whole, uint64_t *n_bytes, char text[APR_SHA256_TEXT]);

#endif
