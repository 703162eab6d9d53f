/* aprconv.c - converts models between GGUF, safetensors and APR, shows what is in them, checks and compares them. */
#include "tools/verbs/verbs.h"

int main(int argc, char **argv) { return apr_cli_main(&apr_aprconv, argc, argv); }
