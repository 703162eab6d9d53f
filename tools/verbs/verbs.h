/* verbs.h - the tools and their commands. Each command is defined in a file of its name, in a folder of its subject. */
#ifndef APR_TOOLS_VERBS_H
#define APR_TOOLS_VERBS_H

#include "tools/cli/cli.h"

extern const apr_tool apr_aprconv, apr_aprquant, apr_aprplan, apr_aprrun;

/* aprconv: convert, and X2Y for each pair of formats; diff (APR_OK: the same, or within the tolerance; APR_E_NO: not) */
extern const apr_command apr_gguf2apr_command, apr_st2apr_command, apr_apr2gguf_command, apr_apr2st_command, apr_st2gguf_command,
    apr_gguf2st_command, apr_gguf2gguf_command, apr_apr2apr_command, apr_st2st_command, apr_convert_command, apr_diff_command;
/* aprconv: what only reads. check: APR_E_DAMAGED for wrong checksums, APR_E_NO for values that are not finite and tensors that do not fit. */
extern const apr_command apr_show_command, apr_info_command, apr_check_command, apr_compat_command, apr_families_command;

/* aprquant, aprplan, and aprrun without a verb */
extern const apr_command apr_quantize_command, apr_plan_command, apr_generate_command;

/* aprrun */
extern const apr_command apr_batch_command, apr_bench_command, apr_chat_command, apr_detokenize_command, apr_distill_command,
    apr_doctor_command, apr_compare_command, apr_golden_command, apr_imatrix_command, apr_kld_command, apr_parity_command, apr_ppl_command,
    apr_tokenize_command, apr_verify_command;

#endif
