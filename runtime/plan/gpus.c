/* gpus.c - the table of GPUs, and what their contexts cost. */
#include "runtime/plan/gpus.h"

#include <ctype.h>

/* name, label, MiB, SMs, threads per SM, compute capability, GB/s */
const apr_gpu apr_gpus[] = {
    {"t4", "Tesla T4", 15360, 40, 1024, 7, 5, 320},
    {"rtx2080ti", "RTX 2080 Ti", 11264, 68, 1024, 7, 5, 616},
    {"a100-40g", "A100 40 GB", 40960, 108, 2048, 8, 0, 1555},
    {"a100-80g", "A100 80 GB", 81920, 108, 2048, 8, 0, 2039},
    {"a10", "A10", 23028, 72, 1536, 8, 6, 600},
    {"rtx3090", "RTX 3090", 24576, 82, 1536, 8, 6, 936},
    {"l4", "L4", 23034, 58, 1536, 8, 9, 300},
    {"l40s", "L40S", 46068, 142, 1536, 8, 9, 864},
    {"rtx4060ti", "RTX 4060 Ti 8 GB", 8188, 34, 1536, 8, 9, 288},
    {"rtx4060ti-16g", "RTX 4060 Ti 16 GB", 16380, 34, 1536, 8, 9, 288},
    {"rtx4070", "RTX 4070", 12282, 46, 1536, 8, 9, 504},
    {"rtx4080", "RTX 4080", 16376, 76, 1536, 8, 9, 717},
    {"rtx4090", "RTX 4090", 24564, 128, 1536, 8, 9, 1008},
    {"rtx6000ada", "RTX 6000 Ada", 49140, 142, 1536, 8, 9, 960},
    {"h100", "H100 80 GB", 81559, 132, 2048, 9, 0, 3350},
    {"h100-nvl", "H100 NVL", 95830, 132, 2048, 9, 0, 3938},
    {"h200", "H200", 143771, 132, 2048, 9, 0, 4800},
    {"gh200", "GH200 96 GB", 97871, 132, 2048, 9, 0, 4000},
    {"b200", "B200", 183359, 148, 2048, 10, 0, 8000},
    {"b300", "B300", 275040, 148, 2048, 10, 3, 8000},
    {"rtx5060ti", "RTX 5060 Ti 16 GB", 16311, 36, 1536, 12, 0, 448},
    {"rtx5070", "RTX 5070", 12227, 48, 1536, 12, 0, 672},
    {"rtx5080", "RTX 5080", 16303, 84, 1536, 12, 0, 960},
    {"rtx5090", "RTX 5090", 32607, 170, 1536, 12, 0, 1792},
    {"rtxpro6000", "RTX PRO 6000 Blackwell", 97887, 188, 1536, 12, 0, 1792},
    {"gb10", "GB10", 122570, 48, 1536, 12, 1, 273, true},
};
const size_t apr_n_gpus = sizeof apr_gpus / sizeof *apr_gpus;

static const char *skip_separators(const char *text)
{
    while (*text == ' ' || *text == '-' || *text == '_') text++;
    return text;
}

const apr_gpu *apr_gpu_find(const char *name)
{
    for (size_t i = 0; i < apr_n_gpus; i++) {
        const char *a = skip_separators(apr_gpus[i].name), *b = skip_separators(name);
        while (*a != '\0' && tolower((unsigned char)*a) == tolower((unsigned char)*b)) {
            a = skip_separators(a + 1);
            b = skip_separators(b + 1);
        }
        if (*a == '\0' && *b == '\0') return &apr_gpus[i];
    }
    return NULL;
}

uint64_t apr_gpu_vram_bytes(const apr_gpu *gpu) { return (uint64_t)gpu->vram_mib << 20; }

uint64_t apr_gpu_system_bytes(const apr_gpu *gpu) { return gpu->is_integrated ? ((uint64_t)1 << 30) + apr_gpu_vram_bytes(gpu) / 32 : 0; }

uint64_t apr_gpu_context_bytes(const apr_gpu *gpu, uint64_t stack_bytes)
{
    static const uint64_t measured_bytes = (uint64_t)263 << 20, measured_threads = 132 * 2048; /* H200 without the stacks */
    const uint64_t n_threads = (uint64_t)gpu->n_sms * (uint64_t)gpu->threads_per_sm;
    return measured_bytes * n_threads / measured_threads + n_threads * stack_bytes;
}

uint64_t apr_gpu_cublas_workspace_bytes(const apr_gpu *gpu) { return (uint64_t)(gpu->major >= 9 ? 32 : 4) << 20; }
