/* runtime/check/same_vocabulary.h - do two models mean the same by the same token id? */
#ifndef APR_RUNTIME_SAME_VOCABULARY_H
#define APR_RUNTIME_SAME_VOCABULARY_H

#include "runtime/check/subject.h"

/* Each id must stand for the same bytes, control tokens as they are written, in whatever format the two vocabularies came; holes
 * stand for nothing. APR_E_UNSUPPORTED, with the first id that does not. Sessions are not needed. */
apr_status apr_vocabularies_agree(const apr_subject *a, const apr_subject *b, apr_error *err);

#endif
