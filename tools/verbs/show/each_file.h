/* each_file.h - runs a verb on several files, one after another. */
#ifndef APR_TOOLS_EACH_FILE_H
#define APR_TOOLS_EACH_FILE_H

#include "tools/cli/cli.h"

/* For one file the answer is the verb's own. For several files the JSON object has an array "files" with an object for each. A file that
 * fails is reported on stderr, and the others are still processed. The command returns the first failure. */
apr_status apr_each_file(const apr_call *call, apr_status (*one)(const apr_call *call, const char *path, apr_error *err), apr_error *err);

#endif
