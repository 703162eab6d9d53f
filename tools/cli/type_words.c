/* type_words.c - recognizes other spellings of types. */
#include "tools/cli/type_words.h"

#include "formats/base/text.h"
#include "formats/number/dtype.h"
#include "kernels/rows.h"
#include "quant/recipe.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { WORD = 32 };

/* Copies letters and digits in lower case. */
static void bare(const char *text, char word[WORD])
{
    size_t n = 0;
    for (; *text != '\0'; text++) {
        if (strchr("-_. ", *text) != NULL) continue;
        if (n + 1 == WORD) n = 0;
        word[n++] = (char)tolower((unsigned char)*text);
    }
    word[n] = '\0';
}

static const char *const of_4_bits = "q4_k_m (4.8 bits, the usual choice) or q4_0";
static const char *const of_5_bits = "q5_k_m (5.7 bits, the usual choice) or q5_0";

/* Words that are not the name of a type, as bare() spells them. */
static const struct {
    const char *words; /* separated by blanks */
    apr_type_word is;
} meanings[] = {
    {"fp16 float16 half", {APR_TYPE_IS, "f16", NULL}},
    {"fp32 float32 float single", {APR_TYPE_IS, "f32", NULL}},
    {"bfloat16 brainfloat16", {APR_TYPE_IS, "bf16", NULL}},
    {"fp8e4m3 f8 f8e4m3 f8e4m3fn fp8e4m3fn float8 float8e4m3fn e4m3", {APR_TYPE_IS, "fp8", NULL}},
    {"mxfp4moe", {APR_TYPE_IS, "mxfp4", NULL}},
    {"int8 8bit 8bits q8 w8 w8a16", {APR_TYPE_REPLACED, "q8_0", NULL}},
    {"int6 6bit 6bits q6", {APR_TYPE_REPLACED, "q6_k", NULL}},
    {"fp4 float4", {APR_TYPE_REPLACED, "mxfp4", NULL}},
    {"q4 int4 4bit 4bits w4 w4a16 nf4", {APR_TYPE_AMBIGUOUS, "q4_k_m", NULL}},
    {"q4kl q4kxl udq4kxl", {APR_TYPE_AMBIGUOUS, "q4_k_m", NULL}},
    {"q5 int5 5bit 5bits", {APR_TYPE_AMBIGUOUS, "q5_k_m", NULL}},
    {"q5ks q5kl q5kxl udq5kxl", {APR_TYPE_AMBIGUOUS, "q5_k_m", NULL}},
    {"q6kl q6kxl udq6kxl", {APR_TYPE_AMBIGUOUS, "q6_k", "q6_k (6.6 bits), and --tensor REGEX=TYPE for tensors with more bits"}},
    {"q8k q81 q8kxl udq8kxl", {APR_TYPE_AMBIGUOUS, "q8_0", "q8_0 (8.5 bits)"}},
    {"awq gptq bnb exl2 exl3 hqq", {APR_TYPE_AMBIGUOUS, "q4_k_m", "q4_k_m, with --method ldlq for a method like GPTQ"}},
    {"auto copy keep same", {APR_TYPE_KEPT, NULL, NULL}},
};

static const char *const of_3_bits = "q3_k_m (3.9 bits) or q3_k_s (3.5 bits)";
static const char *const of_2_bits = "q2_k (2.6 bits in most matrices)";

/* Beginnings of words that are not the name of a type, and of types that can be read but not written. */
static const struct {
    const char *begin;
    apr_type_word is;
} beginnings[] = {
    {"q2", {APR_TYPE_AMBIGUOUS, "q2_k", NULL}},      {"2bit", {APR_TYPE_AMBIGUOUS, "q2_k", NULL}},
    {"int2", {APR_TYPE_AMBIGUOUS, "q2_k", NULL}},    {"udq2", {APR_TYPE_AMBIGUOUS, "q2_k", NULL}},
    {"q3", {APR_TYPE_AMBIGUOUS, "q3_k_m", NULL}},    {"3bit", {APR_TYPE_AMBIGUOUS, "q3_k_m", NULL}},
    {"int3", {APR_TYPE_AMBIGUOUS, "q3_k_m", NULL}},  {"udq3", {APR_TYPE_AMBIGUOUS, "q3_k_m", NULL}},
    {"iq3", {APR_TYPE_READ_ONLY, "q3_k_m", NULL}},   {"iq", {APR_TYPE_READ_ONLY, "q2_k", NULL}},
    {"udiq3", {APR_TYPE_READ_ONLY, "q3_k_m", NULL}}, {"udiq", {APR_TYPE_READ_ONLY, "q2_k", NULL}},
};

/* What a word that stands for several types means, by the type that is offered. */
static const char *reason_of(const char *name)
{
    const struct {
        const char *name, *why;
    } reasons[] = {{"q2_k", of_2_bits}, {"q3_k_m", of_3_bits}, {"q5_k_m", of_5_bits}};
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (strcmp(reasons[i].name, name) == 0) return reasons[i].why;
    return of_4_bits;
}

static const char *name_in_tables(const char *word)
{
    char other[WORD];

    for (const apr_mixture_name *m = apr_mixture_names; m->name != NULL; m++) {
        bare(m->name, other);
        if (strcmp(other, word) == 0) return m->name;
    }
    for (int d = 0; d < APR_DTYPE_COUNT; d++) {
        bare(apr_dtypes[d].name, other);
        if (apr_dtype_is_weights((apr_dtype)d) && strcmp(other, word) == 0) return apr_dtypes[d].name;
    }
    return NULL;
}

static bool is_written(const char *name)
{
    const apr_dtype dtype = apr_dtype_by_name(name);
    for (const apr_mixture_name *m = apr_mixture_names; m->name != NULL; m++)
        if (strcmp(m->name, name) == 0) return true;
    return dtype != APR_DTYPE_COUNT && apr_can_encode(dtype);
}

apr_type_word apr_type_spelled(const char *text)
{
    const apr_type_word unknown = {APR_TYPE_UNKNOWN, NULL, NULL};
    apr_type_word is = unknown;
    char word[WORD];

    bare(text, word);
    if (word[0] == '\0') return unknown;
    const char *const name = name_in_tables(word);
    if (name != NULL && is_written(name)) return (apr_type_word){APR_TYPE_IS, name, NULL};
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings && is.kind == APR_TYPE_UNKNOWN; i++)
        if (apr_has_word(meanings[i].words, word)) is = meanings[i].is;
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings && is.kind == APR_TYPE_UNKNOWN; i++)
        if (strncmp(word, beginnings[i].begin, strlen(beginnings[i].begin)) == 0) is = beginnings[i].is;
    if (is.kind == APR_TYPE_UNKNOWN && name != NULL) is = (apr_type_word){APR_TYPE_READ_ONLY, "q2_k", NULL};
    if (is.kind == APR_TYPE_AMBIGUOUS && is.why == NULL) is.why = reason_of(is.name);
    return is;
}

char *apr_type_file_name(char text[APR_TYPE_FILE_NAME], const char *name)
{
    snprintf(text, APR_TYPE_FILE_NAME, "%s", name);
    for (char *at = text; *at != '\0'; at++) *at = (char)toupper((unsigned char)*at);
    return text;
}
