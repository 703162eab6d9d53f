/* page.h - what every HTML page tells about itself: who made it and how, of which files, and the answer as JSON. */
#ifndef APR_TOOLS_PAGE_H
#define APR_TOOLS_PAGE_H

#include "formats/tensor/model.h"
#include "runtime/session/session.h"
#include "tools/report/sha256.h"

#include <stdio.h>

#define APR_VERSION "0.2.0"
/* The commit that this build was made from, or "unknown". */
const char *apr_build_commit(void);

typedef struct apr_page_options {
    bool stamp; /* say when, where and by which command the page was made */
    bool hash;  /* say the SHA-256 of whole files, which are read for it */
} apr_page_options;

/* A model that a page is about. */
typedef struct apr_page_model {
    const char *label; /* "model", "reference" */
    const apr_model *model;
} apr_page_model;

typedef struct apr_page_about {
    const char *command; /* that made the page; NULL: not known */
    const apr_page_options *options;
    const apr_page_model *models; /* [n_models] */
    size_t n_models;
    const apr_session *session; /* that ran on a GPU or on the host; NULL: none */
    char *answer;               /* the JSON object that --json prints; NULL: no memory for it */
    bool answer_is_short;       /* without its list of tensors, because it is long */
} apr_page_about;

/* Writes the block "made by" and "of", the answer, and the place of the list of contents. */
void apr_page_about_html(FILE *out, const apr_page_about *about);

/* Types of the model's matrices with their share of the parameters, most first: "q4_k 71 %, q6_k 29 %". Returns text. */
char *apr_page_types(const apr_model *model, char *text, size_t capacity);

/* Bytes of one of the model's files before its first tensor: header, metadata and list of tensors. */
size_t apr_page_head_bytes(const apr_model *model, const apr_map *map);

/* SHA-256 of all files of the model in order, and how many bytes these are. is_whole: with their tensors. Returns text. */
char *apr_page_sum(const apr_model *model, bool is_whole, uint64_t *n_bytes, char text[APR_SHA256_TEXT]);

#endif
