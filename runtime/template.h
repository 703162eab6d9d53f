/* runtime/template.h - a model's chat template, rendered: the part of Jinja that chat templates use.
 *
 * Templates come out of model files, so they are hostile input: rendering is bounded in depth, steps and output size, and
 * what is not understood is APR_E_UNSUPPORTED with the line of the template. Semantics follow Jinja2 with trim_blocks and
 * lstrip_blocks on, as transformers renders chat templates. */
#ifndef APR_RUNTIME_TEMPLATE_H
#define APR_RUNTIME_TEMPLATE_H

#include "formats/status.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

/* variables: a JSON object with messages [{role, content}], add_generation_prompt, bos_token, eos_token, ... Each member
 * is a global variable of the template. `raise_exception(text)` in the template is APR_E_NO with that text. text is
 * malloc'ed and NUL-terminated; the caller frees it. */
apr_status apr_template_render(const char *source, const cJSON *variables, char **text, size_t *n_bytes, apr_error *err);

#endif
