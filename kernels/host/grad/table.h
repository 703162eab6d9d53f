/* table.h - the loss, and the table of all operations for one type of number (TABLE names it). */
#include "kernels/host/grad/attend.h"
#include "kernels/host/grad/experts.h"
#include "kernels/host/grad/linear.h"
#include "kernels/host/grad/recurrent.h"
#include "kernels/host/grad/rows.h"
#include "kernels/host/grad/streams.h"

static void from_floats(const float *from, int64_t n, void *to)
{
    for (int64_t i = 0; i < n; i++) ((num *)to)[i] = (num)from[i];
}

static void to_floats(const void *from, int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i++) to[i] = (float)((const num *)from)[i];
}

/* Numbers that are not finite are rare, so each piece is first checked as a whole, with vectors. */
static int64_t first_not_finite(const void *x, int64_t n)
{
    enum { PIECE = 256 };
    const num *const numbers = x;

    for (int64_t i = 0; i < n; i += PIECE) {
        const int64_t end = n - i < PIECE ? n : i + PIECE;
        int bad = 0;
        for (int64_t k = i; k < end; k++) bad |= !(numbers[k] - numbers[k] == 0);
        for (int64_t k = i; k < end && bad; k++)
            if (!isfinite(numbers[k])) return k;
    }
    return -1;
}

/* ln of the sum of exp(x - most) */
static double log_sum(const num *x, int64_t n, num most)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) sum += (double)MATH(exp)(x[i] - most);
    return log(sum);
}

static num largest(const num *x, int64_t n)
{
    num most = x[0];
    for (int64_t i = 1; i < n; i++) most = x[i] > most ? x[i] : most;
    return most;
}

/* ln p - ln q = (t - t's most) - (s - s's most) - (t's log sum - s's log sum), exact where both are the same. */
static double row_divergence(const float *teacher, num *student, int64_t n, double factor, bool gradient)
{
    double p_most = (double)teacher[0], p_sum = 0.0, kl = 0.0;
    const double q_most = (double)largest(student, n), q_log = log_sum(student, n, (num)q_most);

    for (int64_t i = 1; i < n; i++) p_most = (double)teacher[i] > p_most ? (double)teacher[i] : p_most;
    for (int64_t i = 0; i < n; i++) p_sum += (double)MATH(exp)((num)((double)teacher[i] - p_most));
    const double p_log = log(p_sum);
    for (int64_t i = 0; i < n; i++) {
        const double p_at = (double)teacher[i] - p_most, q_at = (double)student[i] - q_most;
        const double p = (double)MATH(exp)((num)(p_at - p_log));
        if (p > 0.0) kl += p * (p_at - q_at - (p_log - q_log)); /* a teacher's -inf has no share */
        if (gradient) student[i] = (num)(factor * ((double)MATH(exp)((num)(q_at - q_log)) - p));
    }
    return kl;
}

static void divergence(const float *teacher, void *student, int64_t n_rows, int64_t width, double factor, bool gradient, double *kl,
                       int n_threads)
{
#pragma omp parallel for num_threads(apr_threads(n_threads, n_rows, 4.0 * (double)(n_rows * width) * APR_OPS_EXP))
    for (int64_t r = 0; r < n_rows; r++) kl[r] = row_divergence(teacher + r * width, (num *)student + r * width, width, factor, gradient);
}

const apr_grad_numbers TABLE = {
    .size = sizeof(num),
    .ops =
        {
            [APR_OP_EMBED] = {embed_forward, embed_backward},
            [APR_OP_POSITIONS] = {positions_forward, positions_backward},
            [APR_OP_ANGLES] = {angles_forward, NULL},
            [APR_OP_NORM] = {norm_forward, norm_backward},
            [APR_OP_LINEAR] = {linear_forward, linear_backward},
            [APR_OP_ROPE] = {rope_forward, rope_backward},
            [APR_OP_SLICE] = {slice_forward, slice_backward},
            [APR_OP_JOIN] = {join_forward, join_backward},
            [APR_OP_KV_STORE] = {kv_store_forward, NULL},
            [APR_OP_INDEX] = {index_forward, NULL},
            [APR_OP_ATTEND] = {attend_forward, attend_backward, attend_work},
            [APR_OP_GLU] = {glu_forward, glu_backward},
            [APR_OP_GATE] = {gate_forward, gate_backward},
            [APR_OP_SCALE] = {scale_forward, scale_backward},
            [APR_OP_MUL] = {mul_forward, mul_backward},
            [APR_OP_SOFTCAP] = {softcap_forward, softcap_backward},
            [APR_OP_ADD] = {add_forward, add_backward},
            [APR_OP_ALTUP] = {altup_forward, altup_backward},
            [APR_OP_RESCALE] = {rescale_forward, rescale_backward},
            [APR_OP_GAUSS_TOPK] = {gauss_topk_forward, gauss_topk_backward},
            [APR_OP_ROUTE] = {route_forward, route_backward, route_work},
            [APR_OP_EXPERTS] = {experts_forward, experts_backward, experts_work},
            [APR_OP_CONV] = {conv_forward, conv_backward},
            [APR_OP_DELTA] = {delta_forward, delta_backward, delta_work},
            [APR_OP_SSD] = {ssd_forward, ssd_backward, ssd_work},
        },
    .from_floats = from_floats,
    .to_floats = to_floats,
    .first_not_finite = first_not_finite,
    .divergence = divergence,
};
