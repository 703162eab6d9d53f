/* aprplan.c - plans the memory of a run. */
#include "tools/verbs/verbs.h"

int main(int argc, char **argv) { return apr_cli_main(&apr_aprplan, argc, argv); }
