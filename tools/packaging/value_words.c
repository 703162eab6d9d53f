/* value_words.c - the table of words for operands and values. */
#include "tools/packaging/value_words.h"
#include "formats/base/text.h"

#include <string.h>

#define MODEL "a model: a GGUF or APR file, the folder of a checkpoint, or ORG/NAME of Hugging Face's cache"

static const apr_value_word operands[] = {
    {"A", NULL, APR_OFFER_MODEL, NULL, "a model; B is compared with it"},
    {"B", NULL, APR_OFFER_MODEL, NULL, "the other model, of any format"},
    {"IN", NULL, APR_OFFER_MODEL, NULL, MODEL},
    {"MODEL", "golden", APR_OFFER_MODEL, NULL, MODEL},
    {"MODEL", NULL, APR_OFFER_MODEL, NULL, MODEL},
    {"TEACHER", NULL, APR_OFFER_MODEL, NULL, "the model to learn from, of any type"},
    {"STUDENT", NULL, APR_OFFER_MODEL, NULL, "the model to train, in f32, f16 or bf16, with the same vocabulary"},
    {"SOURCE", NULL, APR_OFFER_MODEL, NULL, "the model that MODEL was made from; the same as --ref SOURCE"},
    {"FILE", "ppl", APR_OFFER_FILE, "txt", "a text in UTF-8"},
    {"FILE", NULL, APR_OFFER_MODEL, NULL,
     "a model, an adapter or an imatrix: a file, the folder of a checkpoint, or ORG/NAME of Hugging Face's cache"},
    {"DIR", "st2apr st2gguf st2st", APR_OFFER_MODEL, NULL, "the folder of a checkpoint, with config.json and files of weights"},
    {"DIR", NULL, APR_OFFER_FOLDER, NULL, "the folder that the checkpoint is written to"},
    {"IN.gguf", NULL, APR_OFFER_FILE, "gguf", "a GGUF file; of a split one, the first"},
    {"IN.apr", NULL, APR_OFFER_FILE, "apr", "an APR file"},
    {"OUT", "st2st", APR_OFFER_FOLDER, NULL, "the folder that the checkpoint is written to"},
    {"OUT", NULL, APR_OFFER_FILE, "gguf|apr",
     "what is written: a file whose name ends in .gguf or .apr, or a folder, whose name ends in /"},
    {"OUT.apr", NULL, APR_OFFER_FILE, "apr", "the APR file to write"},
    {"OUT.gguf", NULL, APR_OFFER_FILE, "gguf", "the GGUF file to write"},
    {"TEXT", "kld imatrix distill", APR_OFFER_FILE, "txt", "a file with text in UTF-8"},
    {"TEXT", "tokenize", APR_OFFER_NOTHING, NULL, "the text itself"},
    {"TEXT", NULL, APR_OFFER_NOTHING, NULL, "the prompt itself; several words are joined by blanks"},
    {"REQUESTS", NULL, APR_OFFER_FILE, "jsonl", "a file with one JSON object a line; - reads stdin"},
    {"ID", NULL, APR_OFFER_NOTHING, NULL, "the number of a token; without any, they are read from stdin"},
    {"golden.json|golden.safetensors", NULL, APR_OFFER_FILE, "json|safetensors", "what the model must answer, computed by other software"},
    {"TYPE", NULL, APR_OFFER_TYPE, NULL, "a type or mixture; the same as --to TYPE"},
    {"THREADS", NULL, APR_OFFER_NOTHING, NULL, "the number of CPU threads; the same as --threads THREADS"},
    {NULL},
};

static const apr_value_word values[] = {
    {"FILE", "html", APR_OFFER_FILE, "html"},
    {"FILE", "report", APR_OFFER_FILE, "json|html"},
    {"FILE", "imatrix show", APR_OFFER_FILE, "gguf|dat|imatrix"},
    {"FILE", "state tools loss", APR_OFFER_FILE, "json"},
    {"FILE", "text", APR_OFFER_FILE, "txt"},
    {"FILE", NULL, APR_OFFER_FILE},
    {"TEXT", "calibration text judge heal-text", APR_OFFER_FILE, "txt"},
    {"TEXT", NULL, APR_OFFER_NOTHING},
    {"CONFIG", NULL, APR_OFFER_FILE, "json"},
    {"DIR", NULL, APR_OFFER_FOLDER},
    {"DIR[:FACTOR]", NULL, APR_OFFER_FILE, "gguf"},
    {"OUT", NULL, APR_OFFER_FILE, "gguf|apr"},
    {"SOURCE", NULL, APR_OFFER_MODEL},
    {"REFERENCE", NULL, APR_OFFER_MODEL},
    {"TYPE", NULL, APR_OFFER_TYPE},
    {"NAME", "gpu", APR_OFFER_GPU},
    {"NAME", NULL, APR_OFFER_NOTHING},
    {"LIST", "checks", APR_OFFER_WORDS, "template|tokens|greedy|top|recite|logits|hidden|perplexity"},
    {"LIST", NULL, APR_OFFER_NOTHING},
    {"N,...|all", NULL, APR_OFFER_WORDS, "all"},
    {"N", "gpus", APR_OFFER_WORDS, "all"},
    {"experts[=N]|layers=N", NULL, APR_OFFER_WORDS, "experts|experts=|layers=|layers=all"},
    {NULL},
};

static const apr_value_word *find(const apr_value_word *table, const char *word, const char *of)
{
    for (; table->word != NULL; table++)
        if (strcmp(table->word, word) == 0 && (table->of == NULL || apr_has_word(table->of, of))) return table;
    return NULL;
}

bool apr_operand_word(const apr_command *command, size_t i, char word[APR_OPERAND_WORD], bool *repeats)
{
    const char *at = command->operands;

    for (; i > 0 && *at != '\0'; i--) {
        at += strcspn(at, " ");
        at += *at == ' ';
    }
    if (*at == '\0') return false;
    at += *at == '[';
    const size_t n = strcspn(at, " ]");
    *repeats = n > 3 && strncmp(at + n - 3, "...", 3) == 0;
    snprintf(word, APR_OPERAND_WORD, "%.*s", (int)(n - (*repeats ? 3 : 0)), at);
    return true;
}

const apr_value_word *apr_operand_meaning(const apr_command *command, const char *word)
{
    return find(operands, word, command->verb != NULL ? command->verb : "-");
}

apr_value_word apr_option_value(const apr_option *option)
{
    if (option->kind == APR_OPTION_CHOICE) return (apr_value_word){option->value_name, NULL, APR_OFFER_WORDS, option->value_name};
    const apr_value_word *const row = option->value_name != NULL ? find(values, option->value_name, option->name) : NULL;
    return row != NULL ? *row : (apr_value_word){option->value_name, NULL, APR_OFFER_NOTHING};
}
