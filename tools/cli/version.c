/* version.c - information about this build. The Makefile sets APR_COMMIT; a source archive has no commit. */
#include "tools/cli/version.h"

#include "kernels/cuda_loader.h"
#include "kernels/host/codecs/levels.h"
#include "tools/cli/cli.h"

#include <string.h>

#ifndef APR_COMMIT
#define APR_COMMIT ""
#endif

#ifdef __clang__
static const char compiler[] = "clang " __clang_version__;
#else
static const char compiler[] = "gcc " __VERSION__;
#endif

static const char *commit(void) { return APR_COMMIT[0] != '\0' ? APR_COMMIT : "unknown"; }

/* Whether the library can be loaded. This does not call the driver. */
static bool has_cuda_library(void)
{
    const apr_cuda_api *cuda;
    return apr_cuda_load(&cuda, NULL) == APR_OK;
}

void apr_version_print(const char *tool, FILE *out)
{
    fprintf(out, "%s %s\n", tool, APR_VERSION);
    fprintf(out, "commit        %s\ncompiler      %s\nCPU level     %s\nCUDA library  %s\n", commit(), compiler, apr_host_table()->name,
            has_cuda_library() ? "yes" : "no");
}

void apr_version_json(const char *tool, apr_json_text *json)
{
    const char *const level = apr_host_table()->name;

    apr_json_string(json, "tool", tool, strlen(tool));
    apr_json_string(json, "version", APR_VERSION, strlen(APR_VERSION));
    apr_json_string(json, "commit", commit(), strlen(commit()));
    apr_json_string(json, "compiler", compiler, strlen(compiler));
    apr_json_string(json, "cpu_level", level, strlen(level));
    apr_json_bool(json, "cuda_library", has_cuda_library());
}

void apr_license_print(FILE *out)
{
    fputs("aprkit " APR_VERSION ", Copyright (c) 2026 the aprkit authors\n"
          "\n"
          "MIT License: use, copy, change and distribute it, with this notice; there is no warranty of any kind.\n"
          "The whole text is in the file LICENSE of the source: https://opensource.org/license/mit\n",
          out);
}
