/* aprquant.c - quantizes a model. */
#include "tools/verbs/verbs.h"

int main(int argc, char **argv)
{
    const apr_command commands[] = {apr_quantize_command, {0}};
    const apr_tool tool = {"aprquant", "decides a type for every tensor and converts in one pass", commands};
    return apr_cli_main(&tool, argc, argv);
}
