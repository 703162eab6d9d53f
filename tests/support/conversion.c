/* conversion.c - opens, plans, runs, closes. */
#include "tests/support/conversion.h"

#include "convert/run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

apr_status try_conversion(const char *in, const char *out, const apr_convert_options *options, apr_error *err)
{
    apr_convert_options own = *options;
    apr_model source;
    apr_conversion c = {0};

    own.format = apr_format_of_path(out);
    own.sink.overwrite = true;
    apr_status status = apr_model_open(&source, in, err);
    if (status == APR_OK) status = apr_conversion_plan(&c, &source, &own, err);
    if (status == APR_OK) status = apr_conversion_run(&c, &(apr_convert_run){0}, out, NULL, err);
    apr_conversion_close(&c);
    apr_model_close(&source);
    return status;
}

void must_convert(const char *in, const char *out, const apr_convert_options *options)
{
    apr_error err = {0};
    if (try_conversion(in, out, options, &err) != APR_OK) fail_msg("%s to %s: %s", in, out, err.text);
}

void convert_as(const char *in, const char *out, const char *mixture)
{
    must_convert(in, out, &(apr_convert_options){.recipe = {.mixture = mixture}, .sink = {.allow_loss = true}});
}
