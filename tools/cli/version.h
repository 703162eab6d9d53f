/* version.h - what --version and --license print. */
#ifndef APR_TOOLS_VERSION_H
#define APR_TOOLS_VERSION_H

#include "formats/base/json.h"

#include <stdio.h>

/* "aprconv 0.1.0", and on lines of their own the commit, the compiler, the CPU level that is used here, and whether there is a CUDA library. */
void apr_version_print(const char *tool, FILE *out);
/* The same as members of an object that is open, without name and version. */
void apr_version_json(apr_json_text *json);

void apr_license_print(FILE *out);

#endif
