/* version.h - what --version and --license print. */
#ifndef APR_TOOLS_VERSION_H
#define APR_TOOLS_VERSION_H

#include "formats/base/json.h"

#include <stdio.h>

/* "aprconv 0.1.0", then one line each: commit, compiler, CPU level in use on this machine, and whether a CUDA library is found. */
void apr_version_print(const char *tool, FILE *out);
/* The same as members of an open JSON object. */
void apr_version_json(const char *tool, apr_json_text *json);

void apr_license_print(FILE *out);

#endif
