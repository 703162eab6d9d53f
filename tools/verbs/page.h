/* page.h - the options of verbs that write HTML pages (tools/report/page.h). */
#ifndef APR_VERBS_PAGE_H
#define APR_VERBS_PAGE_H

#include "tools/cli/cli.h"
#include "tools/report/page.h"

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

/* The command as it was typed, for a page. Returns text. */
enum { APR_PAGE_COMMAND = 4096 };
static inline const char *apr_page_command(const apr_call *call, char text[APR_PAGE_COMMAND])
{
    return apr_typed_text(text, APR_PAGE_COMMAND, call->typed, NULL, 0);
}

#endif
