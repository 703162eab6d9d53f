/* template.h - renders a model's chat template: the subset of Jinja that chat templates use.
 *
 * Templates come from model files, so they are untrusted input. Size, depth, steps, memory and output of a rendering are bounded, and
 * it reads no clock, file or environment. The semantics are those of Jinja2's sandbox with trim_blocks, lstrip_blocks and
 * break/continue enabled, as in transformers. `tojson` writes what Python's json.dumps(ensure_ascii=False) writes. Every error names
 * the template's line:
 *   APR_E_NO           the template called raise_exception(text); the message contains the text
 *   APR_E_DAMAGED      a syntax error, or an operation that Python rejects ('a' + 1, a member of an undefined value)
 *   APR_E_UNSUPPORTED  a tag, filter, test or method that is not implemented, or a bound is reached */
#ifndef APR_RUNTIME_TEMPLATE_H
#define APR_RUNTIME_TEMPLATE_H

#include "formats/base/status.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

enum {
    APR_TEMPLATE_MAX_BYTES = 1 << 20,          /* of the template's source */
    APR_TEMPLATE_MAX_NESTING = 100,            /* of tags and of brackets, and of macro calls */
    APR_TEMPLATE_MAX_STEPS = 10 * 1000 * 1000, /* evaluated nodes; work on long strings and lists counts by length */
    APR_TEMPLATE_MAX_OUTPUT = 64 << 20,        /* bytes */
    APR_TEMPLATE_MAX_MEMORY = 256 << 20        /* bytes of values, including the variables */
};

/* variables: a JSON object with messages [{role, content}], add_generation_prompt, bos_token, eos_token, ... Each member
 * is a global variable of the template. Whole numbers within +-2^53 become integers (JSON's 1.0 is 1), others floats.
 *
 * The member "strftime_now_unix" (seconds since 1970, a number) is the time that strftime_now(format) formats, as UTC. For local time,
 * add the offset of the time zone. A template that calls strftime_now without it fails with APR_E_UNSUPPORTED. The member is not
 * visible as a variable of the template.
 *
 * text is malloc'ed and NUL-terminated; the caller frees it. It is NULL on failure. */
apr_status apr_template_render(const char *source, const cJSON *variables, char **text, size_t *n_bytes, apr_error *err);

#endif
