/* runtime/plan/gpus.h - the properties of a GPU that a plan needs. The GPU itself need not be present.
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
 * VRAM is what the driver reports on that card, not the advertised number. */
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

/* Finds a GPU by name, as nvidia-smi spells it ("NVIDIA GeForce RTX 4090") or without the product line ("4090"); case and punctuation
 * are ignored. NULL: not in the table, or ambiguous. */
const apr_gpu *apr_gpu_find(const char *name);
/* Lists the GPUs whose names begin so: "a100-40g or a100-80g" for "a100", into text. Returns the first of them; NULL: none. */
const char *apr_gpu_several(const char *name, char *text, size_t n_bytes);
/* The same, and MIG slices ("h100 3g.40gb", "NVIDIA A100-SXM4-80GB MIG 1g.10gb"), whose label is printed into `label`. APR_E_NO: the GPU
 * is too old. APR_E_USAGE: it is not known. */
enum { APR_GPU_LABEL = 64 };
apr_status apr_gpu_named(const char *name, apr_gpu *gpu, char label[APR_GPU_LABEL], apr_error *err);

uint64_t apr_gpu_vram_bytes(const apr_gpu *gpu);
/* Estimated memory that the system uses on an integrated GPU: 1 GiB and 1/32 of the memory; 0 for other GPUs. */
uint64_t apr_gpu_system_bytes(const apr_gpu *gpu);
uint64_t apr_gpu_context_bytes(const apr_gpu *gpu, uint64_t stack_bytes);
/* Workspace size for cublasSetWorkspace that reaches full speed: 32 MiB from compute capability 9.0 on, 4 MiB before. */
uint64_t apr_gpu_cublas_workspace_bytes(const apr_gpu *gpu);

/* Drivers allocate memory in blocks of 2 MiB. In 27 plans an H200's reported memory was whole blocks plus one constant. */
#define APR_DRIVER_BLOCK_BYTES ((uint64_t)2 << 20)

/* APR_CUBLAS_HANDLE_MIB: the driver's total minus everything else rounded up to blocks. That is 62 to 67 MiB, because kernels are loaded
 * at their first use; this is the middle. APR_DEFAULT_STACK_BYTES is what a run asks for; CUDA's own default is 1024. */
enum { APR_CUBLAS_HANDLE_MIB = 65, APR_DEFAULT_STACK_BYTES = 256 };

/* Driver memory of a CUDA graph, per operation of a token, before rounding up to blocks. Measured on an H200: one block for 24, 28 and
 * 64 layers, which are 388, 452 and 1028 operations (1092 kernels). */
#define APR_GRAPH_OPERATION_BYTES ((uint64_t)2000)

#endif
