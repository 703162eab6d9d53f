/* gpus.c - the table of GPUs, and the memory of their contexts. */
#include "runtime/plan/gpus.h"

/* name, label, MiB, SMs, threads per SM, compute capability, GB/s */
const apr_gpu apr_gpus[] = {
    {"t4", "Tesla T4", 15360, 40, 1024, 7, 5, 320},
    {"rtx2060", "RTX 2060", 6144, 30, 1024, 7, 5, 336},
    {"rtx2070", "RTX 2070", 8192, 36, 1024, 7, 5, 448},
    {"rtx2080", "RTX 2080", 8192, 46, 1024, 7, 5, 448},
    {"rtx2080ti", "RTX 2080 Ti", 11264, 68, 1024, 7, 5, 616},
    {"a100-40g", "A100 40 GB", 40960, 108, 2048, 8, 0, 1555},
    {"a100-80g", "A100 80 GB", 81920, 108, 2048, 8, 0, 2039},
    {"a30", "A30", 24576, 56, 2048, 8, 0, 933},
    {"a10", "A10", 23028, 72, 1536, 8, 6, 600},
    {"a10g", "A10G", 23028, 80, 1536, 8, 6, 600},
    {"a40", "A40", 46068, 84, 1536, 8, 6, 696},
    {"rtx3050", "RTX 3050", 8192, 20, 1536, 8, 6, 224},
    {"rtx3060", "RTX 3060", 12288, 28, 1536, 8, 6, 360},
    {"rtx3060ti", "RTX 3060 Ti", 8192, 38, 1536, 8, 6, 448},
    {"rtx3060laptop", "RTX 3060 Laptop", 6144, 30, 1536, 8, 6, 336},
    {"rtx3070", "RTX 3070", 8192, 46, 1536, 8, 6, 448},
    {"rtx3070ti", "RTX 3070 Ti", 8192, 48, 1536, 8, 6, 608},
    {"rtx3080", "RTX 3080", 10240, 68, 1536, 8, 6, 760},
    {"rtx3080-12g", "RTX 3080 12 GB", 12288, 70, 1536, 8, 6, 912},
    {"rtx3080ti", "RTX 3080 Ti", 12288, 80, 1536, 8, 6, 912},
    {"rtx3090", "RTX 3090", 24576, 82, 1536, 8, 6, 936},
    {"rtx3090ti", "RTX 3090 Ti", 24564, 84, 1536, 8, 6, 1008},
    {"a4000", "RTX A4000", 16376, 48, 1536, 8, 6, 448},
    {"a4500", "RTX A4500", 20470, 56, 1536, 8, 6, 640},
    {"a5000", "RTX A5000", 24564, 64, 1536, 8, 6, 768},
    {"a6000", "RTX A6000", 49140, 84, 1536, 8, 6, 768},
    {"orin-nano", "Orin Nano 8 GB", 7620, 8, 1536, 8, 7, 102, true},
    {"orin-nx", "Orin NX 16 GB", 15656, 8, 1536, 8, 7, 102, true},
    {"orin-32g", "AGX Orin 32 GB", 30697, 14, 1536, 8, 7, 204, true},
    {"orin", "AGX Orin 64 GB", 62841, 16, 1536, 8, 7, 204, true},
    {"l4", "L4", 23034, 58, 1536, 8, 9, 300},
    {"l40", "L40", 46068, 142, 1536, 8, 9, 864},
    {"l40s", "L40S", 46068, 142, 1536, 8, 9, 864},
    {"rtx4060", "RTX 4060", 8188, 24, 1536, 8, 9, 272},
    {"rtx4060laptop", "RTX 4060 Laptop", 8188, 24, 1536, 8, 9, 256},
    {"rtx4060ti", "RTX 4060 Ti 8 GB", 8188, 34, 1536, 8, 9, 288},
    {"rtx4060ti-16g", "RTX 4060 Ti 16 GB", 16380, 34, 1536, 8, 9, 288},
    {"rtx4070", "RTX 4070", 12282, 46, 1536, 8, 9, 504},
    {"rtx4070laptop", "RTX 4070 Laptop", 8188, 36, 1536, 8, 9, 256},
    {"rtx4070super", "RTX 4070 SUPER", 12282, 56, 1536, 8, 9, 504},
    {"rtx4070ti", "RTX 4070 Ti", 12282, 60, 1536, 8, 9, 504},
    {"rtx4070tisuper", "RTX 4070 Ti SUPER", 16376, 66, 1536, 8, 9, 672},
    {"rtx4080", "RTX 4080", 16376, 76, 1536, 8, 9, 717},
    {"rtx4080laptop", "RTX 4080 Laptop", 12282, 58, 1536, 8, 9, 432},
    {"rtx4080super", "RTX 4080 SUPER", 16376, 80, 1536, 8, 9, 736},
    {"rtx4090", "RTX 4090", 24564, 128, 1536, 8, 9, 1008},
    {"rtx4090laptop", "RTX 4090 Laptop", 16376, 76, 1536, 8, 9, 576},
    {"rtx4000ada", "RTX 4000 Ada", 20475, 48, 1536, 8, 9, 360},
    {"rtx4500ada", "RTX 4500 Ada", 24570, 60, 1536, 8, 9, 432},
    {"rtx5000ada", "RTX 5000 Ada", 32760, 100, 1536, 8, 9, 576},
    {"rtx6000ada", "RTX 6000 Ada", 49140, 142, 1536, 8, 9, 960},
    {"h100", "H100 80 GB", 81559, 132, 2048, 9, 0, 3350},
    {"h100-pcie", "H100 PCIe", 81559, 114, 2048, 9, 0, 2039},
    {"h100-nvl", "H100 NVL", 95830, 132, 2048, 9, 0, 3938},
    {"h20", "H20", 97871, 78, 2048, 9, 0, 4000},
    {"h200", "H200", 143771, 132, 2048, 9, 0, 4800},
    {"gh200", "GH200 96 GB", 97871, 132, 2048, 9, 0, 4000},
    {"b200", "B200", 183359, 148, 2048, 10, 0, 8000},
    {"b300", "B300", 275040, 148, 2048, 10, 3, 8000},
    {"thor", "Thor", 125772, 20, 1536, 11, 0, 273, true},
    {"rtx5060", "RTX 5060", 8151, 30, 1536, 12, 0, 448},
    {"rtx5060ti-8g", "RTX 5060 Ti 8 GB", 8151, 36, 1536, 12, 0, 448},
    {"rtx5060ti", "RTX 5060 Ti 16 GB", 16311, 36, 1536, 12, 0, 448},
    {"rtx5070", "RTX 5070", 12227, 48, 1536, 12, 0, 672},
    {"rtx5070ti", "RTX 5070 Ti", 16303, 70, 1536, 12, 0, 896},
    {"rtx5080", "RTX 5080", 16303, 84, 1536, 12, 0, 960},
    {"rtx5090", "RTX 5090", 32607, 170, 1536, 12, 0, 1792},
    {"rtxpro6000", "RTX PRO 6000 Blackwell", 97887, 188, 1536, 12, 0, 1792},
    {"gb10", "GB10", 122570, 48, 1536, 12, 1, 273, true},
};
const size_t apr_n_gpus = sizeof apr_gpus / sizeof *apr_gpus;

uint64_t apr_gpu_vram_bytes(const apr_gpu *gpu) { return (uint64_t)gpu->vram_mib << 20; }

uint64_t apr_gpu_system_bytes(const apr_gpu *gpu) { return gpu->is_integrated ? ((uint64_t)1 << 30) + apr_gpu_vram_bytes(gpu) / 32 : 0; }

uint64_t apr_gpu_context_bytes(const apr_gpu *gpu, uint64_t stack_bytes)
{
    static const uint64_t measured_bytes = (uint64_t)263 << 20, measured_threads = 132 * 2048; /* H200 without the stacks */
    const uint64_t n_threads = (uint64_t)gpu->n_sms * (uint64_t)gpu->threads_per_sm;
    return measured_bytes * n_threads / measured_threads + n_threads * stack_bytes;
}

uint64_t apr_gpu_cublas_workspace_bytes(const apr_gpu *gpu) { return (uint64_t)(gpu->major >= 9 ? 32 : 4) << 20; }
