/* runtime/plan/gpus.h - what a plan must know of a GPU that need not be here.
 *
 * A CUDA context costs a fixed part and the local-memory stacks of all threads that can be resident. Measured on an H200
 * (132 SMs x 2048 threads, driver 580): 527 MiB with the default stack limit of 1024 bytes and 329 MiB with 256, so
 *     264 KiB x 1024 = 264 MiB for the stacks at 1024 bytes, and 263 MiB fixed.
 * The fixed part grows with the resident threads as well (about 1 KiB each): context = threads x (263 MiB / 270336 + stack).
 *
 *                             SMs x threads   stack   measured   this formula
 *     H200                    132 x 2048      1024    527 MiB    527
 *     H200                    132 x 2048       256    329        329
 *     RTX PRO 6000 Blackwell  188 x 1536      1024    555        563
 *     RTX 6000 Ada            142 x 1536      1024    426        425
 *     RTX 4060 Ti              34 x 1536      1024    107        102
 *
 * VRAM is what the driver reports on that card, not the number on the box. */
#ifndef APR_RUNTIME_GPUS_H
#define APR_RUNTIME_GPUS_H

#include "formats/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct apr_gpu {
    const char *name;  /* "rtx4090", as in --gpu */
    const char *label; /* "RTX 4090" */
    int64_t vram_mib;
    int n_sms, threads_per_sm;
    int major, minor;   /* compute capability */
    int bandwidth_gbs;  /* memory bandwidth, 10^9 bytes/s */
    bool is_integrated; /* its memory is the host's */
} apr_gpu;

extern const apr_gpu apr_gpus[];
extern const size_t apr_n_gpus;

/* By name, as nvidia-smi spells it ("NVIDIA GeForce RTX 4090"), or without the line of products ("4090"); case and signs do not count. NULL:
 * not in the table, or several. */
const apr_gpu *apr_gpu_find(const char *name);
/* "a100-40g or a100-80g" of "a100", into text; returns the first of them, NULL where there are none. */
const char *apr_gpu_several(const char *name, char *text, size_t n_bytes);
/* The same, and MIG slices ("h100 3g.40gb", "NVIDIA A100-SXM4-80GB MIG 1g.10gb"), whose label is put into `label`. APR_E_NO: it is too
 * old; APR_E_USAGE: it is not known. */
enum { APR_GPU_LABEL = 64 };
apr_status apr_gpu_named(const char *name, apr_gpu *gpu, char label[APR_GPU_LABEL], apr_error *err);

uint64_t apr_gpu_vram_bytes(const apr_gpu *gpu);
/* What the system itself takes of a memory that host and device share, estimated: 1 GiB and a 32nd; 0 of other GPUs. */
uint64_t apr_gpu_system_bytes(const apr_gpu *gpu);
uint64_t apr_gpu_context_bytes(const apr_gpu *gpu, uint64_t stack_bytes);
/* cublasSetWorkspace's size that reaches full speed: 32 MiB from compute capability 9.0 on, 4 MiB before. */
uint64_t apr_gpu_cublas_workspace_bytes(const apr_gpu *gpu);

/* A driver gives memory in blocks of 2 MiB: over 27 plans an H200's reported whole blocks and one constant, whatever the lines were. */
#define APR_DRIVER_BLOCK_BYTES ((uint64_t)2 << 20)

/* The handle: what is left of the driver's sum when everything else, rounded up to blocks, is taken off. That is 62 to 67 MiB, for
 * kernels are loaded when they are first needed; this is the middle. The stack is what a run asks for; CUDA's own default is 1024. */
enum { APR_CUBLAS_HANDLE_MIB = 65, APR_DEFAULT_STACK_BYTES = 256 };

/* What a driver takes for a CUDA graph of a token's operations, rounded up to blocks: one block for 24, 28 and 64 layers, that is for 388,
 * 452 and 1028 operations (1092 kernels), on an H200. */
#define APR_RECORDED_OPERATION_BYTES ((uint64_t)2000)

#endif
