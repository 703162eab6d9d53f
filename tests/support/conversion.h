/* conversion.h - a model read, planned and written in one call, for tests that need the file. Outputs are replaced. */
#ifndef APR_TESTS_CONVERSION_H
#define APR_TESTS_CONVERSION_H

#include "convert/convert.h"

/* The format is the one that OUT's name says, and an older OUT is replaced, whatever the options have. */
apr_status try_conversion(const char *in, const char *out, const apr_convert_options *options, apr_error *err);
/* Fails the test where that fails. */
void must_convert(const char *in, const char *out, const apr_convert_options *options);
/* With the types of a mixture (NULL: those it has), and whatever the format cannot say left out. */
void convert_as(const char *in, const char *out, const char *mixture);

#endif
