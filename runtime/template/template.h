/* template.h - a model's chat template, rendered: the part of Jinja that chat templates use.
 *
 * Templates come out of model files, so they are hostile input: rendering is bounded in size, depth, steps, memory and
 * output, and reads no clock, file or environment. Semantics follow Jinja2 in its sandbox with trim_blocks, lstrip_blocks
 * and break/continue on, as transformers renders chat templates; `tojson` writes what Python's json.dumps(ensure_ascii=False)
 * writes. Every failure names the template's line:
 *   APR_E_NO           the template called raise_exception(text); the sentence carries the text
 *   APR_E_DAMAGED      a syntax error, or an operation that Python refuses ('a' + 1, a member of something undefined)
 *   APR_E_UNSUPPORTED  a tag, filter, test or method that is not known here, or a bound is reached */
#ifndef APR_RUNTIME_TEMPLATE_H
#define APR_RUNTIME_TEMPLATE_H

#include "formats/base/status.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

enum {
    APR_TEMPLATE_MAX_BYTES = 1 << 20,          /* of the template */
    APR_TEMPLATE_MAX_NESTING = 100,            /* of tags and of brackets, and of macro calls */
    APR_TEMPLATE_MAX_STEPS = 10 * 1000 * 1000, /* nodes evaluated; long strings and lists count by their length */
    APR_TEMPLATE_MAX_OUTPUT = 64 << 20,        /* bytes */
    APR_TEMPLATE_MAX_MEMORY = 256 << 20        /* bytes of values, the variables included */
};

/* variables: a JSON object with messages [{role, content}], add_generation_prompt, bos_token, eos_token, ... Each member
 * is a global variable of the template. Whole numbers within +-2^53 become integers (JSON's 1.0 is 1), others floats.
 *
 * The member "strftime_now_unix" (seconds since 1970, a number) is the moment that strftime_now(format) formats, as UTC: add the
 * offset of the local time zone to it where local time is wanted. Templates that call strftime_now without it are
 * APR_E_UNSUPPORTED; it is no variable of the template.
 *
 * text is malloc'ed and NUL-terminated; the caller frees it. It is NULL on failure. */
apr_status apr_template_render(const char *source, const cJSON *variables, char **text, size_t *n_bytes, apr_error *err);

#endif
