/* aprrun.c - runs a model: generates text from a prompt, and has the verbs that check and measure. */
#include "tools/verbs/verbs.h"

#include <string.h>

/* llama.cpp's "-cnv" is not three short options: it means --interactive. */
static void replace_cnv(int argc, char **argv)
{
    static char interactive[] = "--interactive";
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "-cnv") == 0) argv[i] = interactive;
}

int main(int argc, char **argv)
{
    const apr_command commands[] = {
        apr_golden_command,   apr_doctor_command,
        apr_ppl_command,      apr_kld_command,
        apr_imatrix_command,  apr_batch_command,
        apr_bench_command,    apr_parity_command,
        apr_verify_command,   apr_chat_command,
        apr_tokenize_command, apr_detokenize_command,
        apr_generate_command, {0},
    };
    const apr_tool tool = {"aprrun", "runs a model on the CPU or a GPU, and checks that it is still the same model", commands};

    replace_cnv(argc, argv);
    return apr_cli_main(&tool, argc, argv);
}
