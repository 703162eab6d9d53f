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
    replace_cnv(argc, argv);
    return apr_cli_main(&apr_aprrun, argc, argv);
}
