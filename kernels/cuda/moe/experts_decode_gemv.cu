/* experts_decode_gemv.cu - the chosen experts of one token, straight from their packed weights, in two kernels: gate, up and activation of all of
 * them, then down with the epilogue of a product. Each expert's GLU output is multiplied by its weight before down, so that one sum of down
 * runs over the columns of all experts.
 *
 * The kernel of down begins when everything before the first kernel has finished, including the routes. So it loads its weights while gate
 * and up are multiplied. */
#include "kernels/cuda/gemv/decode_gemv_launch.cuh"

template <decode_gemv_kind KIND>
static cudaError_t start_routed(apr_dtype dtype, const decode_gemv_call &a, int n_multiprocessors, cudaStream_t stream)
{
    switch ((int)dtype) {
#define X(id, columns) \
    case APR_##id: return start<APR_##id, KIND>(a, n_multiprocessors, stream);
        APR_TILED_TYPES(X)
#undef X
    default: return cudaErrorNotSupported;
    }
}

/* What both steps share; a matrix is [n_out, n_in]. */
static decode_gemv_call routed_call(const apr_experts_args *args, const apr_tensor *stack, int64_t n_out, int64_t n_in)
{
    decode_gemv_call a = {};
    a.routed.routes = args->routes;
    a.routed.n_used = (int)args->n_used;
    a.routed.n_row_groups = (int)(n_out / APR_ROW_GROUP);
    a.routed.used = fast_divisor_of(a.routed.n_used), a.routed.row_groups = fast_divisor_of(a.routed.n_row_groups);
    a.routed.matrix_bytes = n_out * apr_tiled_row_bytes(stack->dtype, true, n_in);
    a.routed.n_groups = (int)(n_in / I16_GROUP);
    a.routed.padded_groups = (int)(apr_tiled_columns(stack->dtype, n_in) / I16_GROUP);
    return a;
}

cudaError_t apr_cuda_decode_gemv_experts(const apr_experts_args *args, const apr_decode_gemv_args *gemv, int n_multiprocessors,
                                         cudaStream_t stream)
{
    uint8_t *const middle = (uint8_t *)args->work.data;
    if (!apr_experts_have_decode_gemv(args)) return cudaErrorNotSupported;

    decode_gemv_call a = routed_call(args, args->gate, args->n_mid, args->n_in);
    a.epilogue = APR_EPILOGUE_GLU, a.n_parts = 2, a.glu = args->glu;
    a.parts[0] = decode_gemv_part{args->gate->data, args->gate_bias, NULL, a.routed.n_row_groups * a.routed.n_used};
    a.parts[1] = decode_gemv_part{args->up->data, args->up_bias, NULL, a.routed.n_row_groups * a.routed.n_used};
    a.n_in = (int)args->n_in, a.activations = gemv->activations, a.activations_out = middle;
    a.n_squares = a.n_in / I16_GROUP, a.squares = gemv->squares, a.eps = gemv->eps;
    a.routed.padding = (int)(apr_tiled_columns(args->down->dtype, args->n_mid) - args->n_mid);
    a.has_concurrent = true;
    a.inputs_ready_early = gemv->inputs_ready_early;
    const cudaError_t error = start_routed<GEMV_EXPERT_GLU>(args->gate->dtype, a, n_multiprocessors, stream);
    if (error != cudaSuccess) return error;

    a = routed_call(args, args->down, args->n_out, args->n_mid);
    a.epilogue = gemv->epilogue, a.n_parts = 1;
    a.parts[0] = decode_gemv_part{args->down->data, args->down_bias, gemv->parts[0].out, a.routed.n_row_groups};
    a.n_in = (int)(args->n_used * args->n_mid), a.activations = middle;
    a.residual = gemv->residual, a.gain = gemv->gain, a.gain_offset = gemv->gain_offset;
    a.activations_out = gemv->activations_out, a.out_squares = gemv->out_squares;
    a.is_concurrent = true;
    a.inputs_ready_early = gemv->inputs_ready_early;
    return start_routed<GEMV_EXPERT_SUMS>(args->down->dtype, a, n_multiprocessors, stream);
}
