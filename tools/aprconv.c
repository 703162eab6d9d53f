/* aprconv.c - converts models between GGUF, safetensors and APR, shows what is in them, checks and compares them. */
#include "tools/check.h"
#include "tools/cli.h"
#include "tools/diff.h"
#include "tools/show.h"

static const char *const show_examples[] = {"aprconv show model.gguf", "aprconv show Qwen2.5-7B/ --no-metadata --filter 'layers\\.0\\.'",
                                            "aprconv show model.apr --json | jq .hyperparameters", NULL};
static const char *const check_examples[] = {"aprconv check model.apr", "aprconv check Qwen2.5-7B/ --json", NULL};
static const char *const diff_examples[] = {"aprconv diff Qwen2.5-7B/ model.apr",
                                            "aprconv diff model-bf16.gguf model-q8_0.apr --tolerance 0.05", NULL};

static const apr_command commands[] = {
    {"show", "FILE", 1, 1, "header, hyperparameters, tokenizer, metadata and tensors of a GGUF, safetensors or APR model",
     apr_show_option_table, sizeof(apr_show_options), show_examples, apr_show},
    {"check", "FILE", 1, 1, "reads all of a model: structure, checksums, and that every value is a finite number", NULL, 0, check_examples,
     apr_check},
    {"diff", "A B", 2, 2, "compares two models, also across formats: hyperparameters, tokenizer, metadata, tensors, values after decoding",
     apr_diff_option_table, sizeof(apr_diff_options), diff_examples, apr_diff},
    {0},
};

static const apr_tool tool = {"aprconv", "converts models between GGUF, safetensors and APR, shows, checks and compares them", commands};

int main(int argc, char **argv) { return apr_cli_main(&tool, argc, argv); }
