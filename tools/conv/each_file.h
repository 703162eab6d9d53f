/* each_file.h - verbs that take several files, one after another. */
#ifndef APR_TOOLS_EACH_FILE_H
#define APR_TOOLS_EACH_FILE_H

#include "tools/cli/cli.h"

/* Of one file the answer is the verb's own; of several, in JSON, "files" has an object for each. A file that fails is said on stderr and does
 * not keep the others back; the first failure is the command's. */
apr_status apr_each_file(const apr_call *call, apr_status (*one)(const apr_call *call, const char *path, apr_error *err), apr_error *err);

#endif
