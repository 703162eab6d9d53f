/* runtime/check/backends.h - compares a session's backend with the reference backend on the same model, per operation and on a text.
 *
 * The reference is the float64 backend (kernels/ops.h): every product, norm and attention in float64, all rows of every matrix unless a
 * sample is asked for; its session has the sizes of the same plan. A text is evaluated by both from its ids to its logits. Rounding errors accumulate as they do in a real run, and must stay too small to change the output. */
#ifndef APR_RUNTIME_BACKENDS_H
#define APR_RUNTIME_BACKENDS_H

#include "runtime/check/compare.h"
#include "runtime/check/parity.h"

/* Compares every operation on the same input. Sets weights and fp16_above of the options. A failed result may be closed. */
apr_status apr_backends_parity(apr_session *session, const int32_t *ids, int64_t n_ids, apr_parity_options *options,
                               apr_parity_result *result, apr_error *err);

/* Describes the first operation that failed: "layer 1, linear 'model.layers.1.mlp.up_proj.weight' at position 17 (16 tokens): ...".
 * Returns text. */
char *apr_parity_sentence(char *text, size_t capacity, const apr_parity_result *result);

/* How far and how much: "4116 (before it 640 evaluated tokens and 3460 cells copied from them); all products in float64", where the first
 * number is the last position; without the bracket if all tokens were evaluated; or "...; 10 % of products in float64". Returns text. */
char *apr_parity_extent_text(char *text, size_t capacity, const apr_parity_result *result);

/* Compares the logits after each token, in windows of at most APR_BACKENDS_WINDOW tokens. on_rows may be NULL. */
enum { APR_BACKENDS_WINDOW = 256 };
apr_status apr_backends_on_text(apr_session *session, const int32_t *ids, int64_t n_ids,
                                void (*on_rows)(void *user, int64_t n_done, int64_t n_rows), void *user, apr_divergence *d, apr_error *err);

/* How far two backends may differ on a text: the largest mean KL divergence in nats, and the smallest share of positions with the same
 * argmax. apr_backends_agree is false if the divergence is NaN. */
extern const double apr_backends_max_kl, apr_backends_min_same_top;
bool apr_backends_agree(const apr_divergence *d);

#endif
