/* verbs.c - the tools, and the verbs of each. */
#include "tools/verbs/verbs.h"

static const apr_tool *const toolkit[] = {&apr_aprconv, &apr_aprquant, &apr_aprplan, &apr_aprrun, NULL};

static const apr_command *const of_aprconv[] = {
    &apr_gguf2apr_command,
    &apr_st2apr_command,
    &apr_apr2gguf_command,
    &apr_apr2st_command,
    &apr_st2gguf_command,
    &apr_gguf2st_command,
    &apr_gguf2gguf_command,
    &apr_apr2apr_command,
    &apr_st2st_command,
    &apr_convert_command,
    &apr_show_command,
    &apr_info_command,
    &apr_check_command,
    &apr_compat_command,
    &apr_diff_command,
    &apr_families_command,
    NULL,
};
const apr_tool apr_aprconv = {"aprconv", "converts models between GGUF, safetensors and APR, shows, checks and compares them", of_aprconv,
                              toolkit};

static const apr_command *const of_aprquant[] = {&apr_quantize_command, NULL};
const apr_tool apr_aprquant = {"aprquant", "decides a type for every tensor and converts in one pass", of_aprquant, toolkit};

static const apr_command *const of_aprplan[] = {&apr_plan_command, NULL};
const apr_tool apr_aprplan = {"aprplan", "plans the memory of a run; needs neither the weights nor the GPU", of_aprplan, toolkit};

static const apr_command *const of_aprrun[] = {
    &apr_golden_command,   &apr_doctor_command,     &apr_ppl_command,      &apr_compare_command,
    &apr_kld_command,      &apr_imatrix_command,    &apr_batch_command,    &apr_bench_command,
    &apr_parity_command,   &apr_verify_command,     &apr_chat_command,     &apr_distill_command,
    &apr_tokenize_command, &apr_detokenize_command, &apr_generate_command, NULL,
};
const apr_tool apr_aprrun = {"aprrun", "runs a model on the CPU or a GPU, and checks that it is still the same model", of_aprrun, toolkit};
