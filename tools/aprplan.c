/* aprplan.c - plans the memory of a run. */
#include "tools/verbs/verbs.h"

int main(int argc, char **argv)
{
    const apr_command commands[] = {apr_plan_command, {0}};
    const apr_tool tool = {"aprplan", "plans the memory of a run; needs neither the weights nor the GPU", commands};
    return apr_cli_main(&tool, argc, argv);
}
