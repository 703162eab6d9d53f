/* checkpoint_names.c - a table of whole names, and tables of prefixes and suffixes. */
#include "formats/files/checkpoint_names.h"

#include "formats/base/text.h"

#include <string.h>
#include <strings.h>

/* Keep this order: older APR files, which hold only these files, have them in it. */
const char *const apr_checkpoint_names[APR_N_CHECKPOINT_NAMES] = {
    "config.json",          "generation_config.json",
    "tokenizer.json",       "tokenizer_config.json",
    "chat_template.jinja",  "special_tokens_map.json",
    "added_tokens.json",    "vocab.json",
    "merges.txt",           "tokenizer.model",
    "chat_template.json",   "preprocessor_config.json",
    "hf_quant_config.json", "params.json",
    "tekken.json",          "tiktoken.model",
    "qwen.tiktoken",
};

const char *apr_template_name(const char *file, size_t *n_bytes)
{
    static const char head[] = APR_TEMPLATE_FOLDER "/", suffix[] = ".jinja";
    const size_t n_head = sizeof head - 1, n_suffix = sizeof suffix - 1, n = strlen(file);

    if (n <= n_head + n_suffix || n > 200 || strncmp(file, head, n_head) != 0 || strcmp(file + n - n_suffix, suffix) != 0) return NULL;
    const char *const name = file + n_head;
    if (name[0] == '.') return NULL;
    for (const char *c = name; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f || *c == '/') return NULL;
    *n_bytes = n - n_head - n_suffix;
    return name;
}

bool apr_is_checkpoint_name(const char *name)
{
    for (size_t i = 0; i < APR_N_CHECKPOINT_NAMES; i++)
        if (strcmp(apr_checkpoint_names[i], name) == 0) return true;
    return false;
}

bool apr_is_checkpoint_file(const char *name)
{
    const char *const dot = strrchr(name, '.');
    return apr_is_checkpoint_name(name) || strcmp(name, APR_CHECKPOINT_INDEX) == 0 || (dot != NULL && strcmp(dot, ".safetensors") == 0);
}

/* A program stays one even if its name begins with README: README.py. */
static bool is_code(const char *name)
{
    static const char *const suffixes[] = {".py", ".sh", ".so", ".exe", ".bat", ".ps1", ".js", ".pkl", ".pickle", ".pt", ".pth", ".bin"};
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        if (apr_ends_with_any_case(name, suffixes[i])) return true;
    return false;
}

bool apr_is_checkpoint_text(const char *name)
{
    static const char *const heads[] = {"README", "LICENSE", "LICENCE", "NOTICE", "COPYING", "USE_POLICY", "CITATION", "AUTHORS"};
    static const char *const suffixes[] = {".md",           ".txt",        ".jinja",         ".model",         ".tiktoken",   ".cff",
                                           "config.json",   "params.json", "_map.json",      "processor.json", "tekken.json", "tokens.json",
                                           "template.json", "vocab.json",  "tokenizer.json", "modules.json",   ".yaml",       ".yml"};

    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        if (apr_ends_with_any_case(name, suffixes[i])) return true;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        if (strncasecmp(name, heads[i], strlen(heads[i])) == 0 && !is_code(name)) return true;
    return false;
}

bool apr_belongs_to_checkpoint(const char *name)
{
    size_t n;
    if (strchr(name, '/') != NULL) return apr_template_name(name, &n) != NULL;
    return apr_is_checkpoint_file(name) || apr_is_checkpoint_text(name);
}
