/* plan_speeds.c - batch and tile sizes for a device, from the fastest to the smallest. */
#include "kernels/cuda/api.h"
#include "runtime/plan/plan.h"

/* Large tiles are given up first, because they save the least time. */
static const apr_plan_speed paces[] = {
    {APR_DEVICE_BATCH, APR_CUDA_DEQUANTIZED_BYTES},          {APR_DEVICE_BATCH, APR_CUDA_DEQUANTIZED_BYTES / 4},
    {APR_DEVICE_BATCH / 2, APR_CUDA_DEQUANTIZED_BYTES / 4},  {APR_DEVICE_BATCH / 4, APR_CUDA_DEQUANTIZED_BYTES / 4},
    {APR_DEVICE_BATCH / 4, APR_CUDA_MIN_DEQUANTIZED_BYTES},  {APR_DEVICE_BATCH / 8, APR_CUDA_MIN_DEQUANTIZED_BYTES},
    {APR_DEVICE_BATCH / 16, APR_CUDA_MIN_DEQUANTIZED_BYTES},
};
static const uint64_t tiles[] = {APR_CUDA_DEQUANTIZED_BYTES, APR_CUDA_DEQUANTIZED_BYTES / 4, APR_CUDA_MIN_DEQUANTIZED_BYTES};
enum { N_PACES = sizeof paces / sizeof *paces, N_TILES = sizeof tiles / sizeof *tiles };

int apr_plan_n_speeds(int64_t asked_batch, bool has_device) { return !has_device ? 1 : asked_batch > 0 ? N_TILES : N_PACES; }

void apr_plan_set_speed(apr_plan_options *options, int64_t asked_batch, bool has_device, int i)
{
    const int n = apr_plan_n_speeds(asked_batch, has_device);
    const bool is_free = has_device && asked_batch <= 0;
    const int64_t batch = asked_batch > 0 ? asked_batch : (int64_t)APR_HOST_BATCH;

    options->n_batch = is_free ? paces[i].n_batch : batch;
    options->tile_bytes = is_free ? paces[i].tile_bytes : tiles[i];
    options->wanted_batch = is_free ? (int64_t)APR_DEVICE_BATCH : 0;
    options->slowest = (apr_plan_speed){is_free ? paces[n - 1].n_batch : batch, APR_CUDA_MIN_DEQUANTIZED_BYTES};
}
