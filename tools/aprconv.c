/* aprconv.c - converts models between GGUF, safetensors and APR, shows what is in them, checks and compares them. */
#include "tools/conv/check.h"
#include "tools/conv/families.h"
#include "tools/conv/show.h"
#include "tools/verbs/verbs.h"

int main(int argc, char **argv)
{
    apr_command info = apr_show_command;
    info.verb = "info";
    info.summary = "the same as show";
    info.examples = NULL;
    const apr_command commands[] = {
        apr_gguf2apr_command, apr_st2apr_command,  apr_apr2gguf_command,  apr_apr2st_command,
        apr_st2gguf_command,  apr_gguf2st_command, apr_gguf2gguf_command, apr_apr2apr_command,
        apr_st2st_command,    apr_convert_command, apr_show_command,      info,
        apr_check_command,    apr_diff_command,    apr_families_command,  {0},
    };
    const apr_tool tool = {"aprconv", "converts models between GGUF, safetensors and APR, shows, checks and compares them", commands};
    return apr_cli_main(&tool, argc, argv);
}
