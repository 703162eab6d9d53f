/* packings_fp4.c - binds NVFP4 and MXFP4 as compressed-tensors and modelopt write them: 4 bits of E2M1 with a scale per 16 or 32 numbers.
 *
 *                             codes U8 [.., N, K/2]   scales                        global scale F32, one or one per matrix
 *     NVFP4, compressed-t.    weight_packed           weight_scale E4M3 [N, K/16]   weight_global_scale: scale / global
 *     NVFP4, modelopt         weight                  weight_scale E4M3 [N, K/16]   weight_scale_2: scale * global
 *     MXFP4                   either                  weight_scale U8 [N, K/32]     -
 *
 * The low nibble comes first. NVFP4 without its global scale cannot be read: 1 would be a guess. */
#include "formats/packed/packings_bind.h"

#include <stdio.h>

static const apr_dtype e4m3[] = {APR_F8_E4M3, APR_DTYPE_COUNT}, f32[] = {APR_F32, APR_DTYPE_COUNT};

static apr_status bind_global_scale(apr_binding *b, const char *suffix, bool divides)
{
    const apr_tensor *global;

    APR_TRY(apr_need_part(b, suffix, &global));
    APR_TRY(apr_check_dtype(b, global, f32, "f32"));
    const int64_t n = apr_tensor_elems(global), n_matrices = b->packing.rows / b->packing.matrix_rows;
    b->packing.global_scales = global;
    b->packing.divides = divides;
    if (n == 1 || n == n_matrices) return APR_OK;
    return apr_fail(b->err, APR_E_DAMAGED, "%s: '%s' has %lld numbers for the %lld matrices of '%s'", b->model->path, global->name,
                    (long long)n, (long long)n_matrices, b->codes->name);
}

static apr_status bind_fp4(apr_binding *b, const char *global, bool divides, const char *producer)
{
    const int rank = b->codes->rank;
    apr_packing *const p = &b->packing;

    APR_TRY(apr_need_part(b, ".weight_scale", &p->scales));
    const bool is_mx = (p->scales->dtype == APR_U8 || p->scales->dtype == APR_E8M0) && apr_companion(b, global) == NULL;
    apr_set_dims(b, b->codes->dims[rank - 2], 2 * b->codes->dims[rank - 1]);
    if (!is_mx) APR_TRY(apr_check_dtype(b, p->scales, e4m3, "fp8 for NVFP4, or u8 for MXFP4"));
    APR_TRY(apr_bind_row_scales(b, is_mx ? 32 : 16, NULL));
    p->scale_dtype = is_mx ? APR_E8M0 : APR_F8_E4M3;
    b->matrix.dtype = is_mx ? APR_BF16 : APR_F32;
    if (is_mx) return apr_set_scheme(b, "MXFP4, groups of 32 (%s)", producer);
    APR_TRY(bind_global_scale(b, global, divides));
    return apr_set_scheme(b, "NVFP4, groups of 16 (%s)", producer);
}

static bool is_fp4_packed(const apr_binding *b) { return b->codes->rank >= 2 && b->codes->dtype == APR_U8; }

static apr_status bind_fp4_packed(apr_binding *b) { return bind_fp4(b, ".weight_global_scale", true, "compressed-tensors"); }

/* Bytes with scales of another type are other layouts (modelopt's 4-bit integers, BitNet's 2 bits), unless config.json states NVFP4. */
static bool is_fp4_weight(const apr_binding *b)
{
    const apr_tensor *const scales = apr_companion(b, ".weight_scale");
    const bool is_fp4 = scales != NULL && (scales->dtype == APR_F8_E4M3 || scales->dtype == APR_U8 || scales->dtype == APR_E8M0);

    if (b->codes->rank < 2 || b->codes->dtype != APR_U8) return false;
    if (is_fp4 || apr_companion(b, ".weight_scale_2") == NULL) return is_fp4;
    return scales == NULL || apr_stated_scheme(b, APR_QUANT_NVFP4) != NULL;
}

static apr_status bind_fp4_weight(apr_binding *b) { return bind_fp4(b, ".weight_scale_2", false, "modelopt"); }

#define FP4                                \
    {                                      \
        .level = APR_LEVEL_E2M1, .bits = 4 \
    }
const apr_packing_layout apr_layouts_fp4[] = {
    {".weight_packed", is_fp4_packed, bind_fp4_packed, FP4}, {".weight", is_fp4_weight, bind_fp4_weight, FP4}, {0}};
