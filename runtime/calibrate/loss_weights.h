/* loss_weights.h - how much the model's loss depends on each token: the weights of sums for loss-weighted error feedback.
 *
 * For outputs y = W x, a change E of W changes the loss to second order by the mean over tokens t of (g_t . E x_t)^2 / 2, where g_t is
 * the gradient of the loss by y_t, and the loss is that of tokens drawn from the model's own predictions (the Fisher information).
 * Loss-weighted sums take |g_t|^2 |E x_t|^2 for the square, so that
 *
 *     H = sum over t of w_t x_t x_t^T,   w_t = |g_t|^2
 *
 * (the one-sided form of YAQA's Hessians, Tseng et al. 2025). Matrices that read the same input have the same sums here: g_t is the
 * gradient by the outputs of all of them together. For experts it is the gradient by the output of their whole feed-forward.
 *
 * The loss at a token is -ln p of one token that is drawn from the model's predictions there, with a fixed seed. A window begins with an
 * empty context, and its loss is the mean over its tokens. The weights of an input are divided by their mean, and then at most
 * APR_LOSS_WEIGHT_CAP, because few tokens have most of the gradient.
 *
 *     apr_loss_weights_open(&w, model, &inputs, window, n_ids, &err)   checks that there is a backward pass; allocates nothing large
 *     apr_loss_weights_make(w, ids, progress, &err)                    one forward and backward pass over all windows, on the host
 *     apr_loss_weights_of(w, input)                                    [n_ids], in the order of the tokens */
#ifndef APR_RUNTIME_LOSS_WEIGHTS_H
#define APR_RUNTIME_LOSS_WEIGHTS_H

#include "formats/base/progress.h"
#include "runtime/calibrate/inputs.h"

#define APR_LOSS_WEIGHT_CAP 10.0

typedef struct apr_loss_weights apr_loss_weights;

/* Model (a canonical view) and inputs must outlive apr_loss_weights_make; n_ids is a multiple of window. APR_E_UNSUPPORTED: an operation
 * of the model has no backward pass; the message names it. */
apr_status apr_loss_weights_open(apr_loss_weights **weights, const apr_model *model, const apr_layer_inputs *inputs, int64_t window,
                                 int64_t n_ids, apr_error *err);
void apr_loss_weights_close(apr_loss_weights *weights); /* NULL is allowed */

/* Bytes of heap: of the pass, which are freed at its end, and of the weights. */
uint64_t apr_loss_weights_pass_bytes(const apr_loss_weights *weights);
uint64_t apr_loss_weights_bytes(const apr_loss_weights *weights);

/* ids: [n_ids]. Does nothing if the weights are there. APR_E_NO: a number is not finite; the message names the operation. */
apr_status apr_loss_weights_make(apr_loss_weights *weights, const int32_t *ids, const apr_progress *progress, apr_error *err);

/* NULL before they are made. */
const float *apr_loss_weights_of(const apr_loss_weights *weights, size_t input);

#endif
