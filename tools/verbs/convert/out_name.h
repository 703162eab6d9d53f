/* out_name.h - derives the format from an output's name, refuses names that are probably mistakes, and suggests names. */
#ifndef APR_TOOLS_OUT_NAME_H
#define APR_TOOLS_OUT_NAME_H

#include "formats/tensor/model.h"
#include "formats/tensor/sink.h"
#include "tools/cli/cli.h"

/* APR_E_USAGE with a suggested command if OUT is "-", the name of a type, NAME.safetensors, or has an extension of no format. produce: the
 * format that the verb writes, or NONE. Opens no file. */
apr_status apr_out_name_check(const apr_call *call, const char *in, const char *out, apr_format produce, apr_error *err);

/* Will OUT become a folder only because its name has no extension? (It does not exist yet and does not end in '/'.) */
bool apr_out_name_makes_a_folder(const char *out);

/* "DIR/STEM-Q4_K_M.gguf" next to IN, for an output of that type. A type at the end of STEM is replaced. Malloc'ed; NULL: no memory. */
char *apr_out_name_next_to(const char *in, const char *type);

/* DIR/STEM of a path: without trailing slashes and without the extension of a model file. Malloc'ed; NULL: no memory. */
char *apr_out_name_stem(const char *path);

#endif
