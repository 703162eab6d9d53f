/* runtime/check/same_vocabulary.h - checks that every token id stands for the same bytes in two models. */
#ifndef APR_RUNTIME_SAME_VOCABULARY_H
#define APR_RUNTIME_SAME_VOCABULARY_H

#include "runtime/check/subject.h"

/* Compares the bytes of each id; control tokens are compared as text, unused ids have no bytes. The formats of the two files may differ.
 * APR_E_UNSUPPORTED, with the first id that differs. Sessions are not needed. */
apr_status apr_vocabularies_agree(const apr_subject *a, const apr_subject *b, apr_error *err);

#endif
