/* out_name.h - what the name of an output says, and what is refused because something else was meant. */
#ifndef APR_TOOLS_OUT_NAME_H
#define APR_TOOLS_OUT_NAME_H

#include "formats/model/model.h"
#include "formats/model/sink.h"
#include "tools/cli/cli.h"

/* APR_E_USAGE, with the command to type: "-", the name of a type, an ending that no format has, NAME.safetensors. produce: the
 * format that a verb makes, or NONE. Nothing is opened. */
apr_status apr_out_name_check(const apr_call *call, const char *in, const char *out, apr_format produce, apr_error *err);

/* Does the name alone make it a folder, where none is yet? Then the answer says so. */
bool apr_out_name_makes_a_folder(const char *out);

/* "DIR/STEM-Q4_K_M.gguf" next to IN, for an output of that type; a type at the end of STEM gives way. Malloc'ed; NULL: no memory. */
char *apr_out_name_beside(const char *in, const char *type);

/* DIR/STEM of a path: without slashes at its end, and without the ending of a model's file. Malloc'ed. */
char *apr_out_name_stem(const char *path);

#endif
