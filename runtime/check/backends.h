/* runtime/check/backends.h - one model on its backend and on the reference backend: operation by operation, and on a text.
 *
 * The reference is a session of plain loops with the same plan's sizes. A text is run through both from its ids to its logits, so that
 * drift adds up as it does in a run; what is left of it must not reach a reader. */
#ifndef APR_RUNTIME_BACKENDS_H
#define APR_RUNTIME_BACKENDS_H

#include "runtime/check/compare.h"
#include "runtime/check/parity.h"

/* Every operation from the same input. weights and fp16_above of the options are set here. A failed result may be closed. */
apr_status apr_backends_parity(apr_session *session, const int32_t *ids, int64_t n_ids, apr_parity_options *options,
                               apr_parity_result *result, apr_error *err);

/* "layer 1, linear 'model.layers.1.mlp.up_proj.weight', position 17 of 16 tokens: ..." of the first operation that failed. Returns text. */
char *apr_parity_sentence(char *text, size_t capacity, const apr_parity_result *result);

/* The logits after each token, in windows of at most APR_BACKENDS_WINDOW. on_rows may be NULL. */
enum { APR_BACKENDS_WINDOW = 256 };
apr_status apr_backends_on_text(apr_session *session, const int32_t *ids, int64_t n_ids,
                                void (*on_rows)(void *user, int64_t n_done, int64_t n_rows), void *user, apr_divergence *d, apr_error *err);

/* What two backends may differ by on a text: the mean divergence in nats at most, the share of the same most likely token at least.
 * False, too, of a divergence that is no number. */
extern const double apr_backends_max_kl, apr_backends_min_same_top;
bool apr_backends_agree(const apr_divergence *d);

#endif
