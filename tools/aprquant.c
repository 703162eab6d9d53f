/* aprquant.c - quantizes a model. */
#include "tools/verbs/verbs.h"

int main(int argc, char **argv) { return apr_cli_main(&apr_aprquant, argc, argv); }
