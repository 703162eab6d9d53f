/* quant_operands.c - finds out which operand is which. */
#include "tools/verbs/convert/quant_operands.h"

#include "tools/cli/type_words.h"
#include "tools/cli/values.h"
#include "tools/report/text.h"
#include "tools/verbs/convert/out_name.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static apr_status no_memory(apr_error *err) { return apr_no_memory(err, "a path"); }

/* Reads the operand that is a type, such as "q4_k_m", into *to. */
static apr_status read_type(const char *text, const apr_call *call, const char **to, apr_error *err)
{
    const apr_type_word word = apr_type_spelled(text);

    if (*to != NULL && strcmp(*to, word.name != NULL ? word.name : "") != 0)
        return apr_fail(err, APR_E_USAGE, "--to %s and %s are two types: leave one of them out", *to, text);
    if (word.kind == APR_TYPE_REPLACED) fprintf(stderr, "note: %s means %s\n", apr_printable(text), word.name);
    if (word.kind == APR_TYPE_IS || word.kind == APR_TYPE_REPLACED) *to = word.name;
    if (word.kind == APR_TYPE_AMBIGUOUS) apr_fail(err, APR_E_USAGE, "%s is not a type; use %s", text, word.why);
    if (word.kind == APR_TYPE_READ_ONLY)
        apr_fail(err, APR_E_USAGE,
                 "aprkit can read %s but not write it ('aprquant --list'); the smallest type it writes is mxfp4 (4.25 bits)", text);
    if (word.kind == APR_TYPE_AMBIGUOUS || word.kind == APR_TYPE_READ_ONLY)
        return apr_try_change(APR_E_USAGE, call->typed, text, word.name, err);
    if (word.kind == APR_TYPE_KEPT) {
        char *const argv[] = {"", "convert", (char *)call->operands[0], (char *)call->operands[1]};
        apr_fail(err, APR_E_USAGE, "%s: use aprconv to convert without changing types", text);
        return apr_try_instead(APR_E_USAGE, &(apr_typed){"aprconv", 4, argv}, NULL, 0, err);
    }
    return word.kind != APR_TYPE_UNKNOWN
               ? APR_OK
               : apr_fail(err, APR_E_USAGE, "aprquant cannot write '%s' ('aprquant --list' shows the types)", text);
}

/* llama.cpp's file type numbers, which llama-quantize also accepts. */
static const char *type_of_number(const char *text)
{
    static const char *const names[][2] = {{"0", "f32"},     {"1", "f16"},   {"2", "q4_0"},    {"3", "q4_1"},    {"7", "q8_0"},
                                           {"8", "q5_0"},    {"9", "q5_1"},  {"14", "q4_k_s"}, {"15", "q4_k_m"}, {"16", "q5_k"},
                                           {"17", "q5_k_m"}, {"18", "q6_k"}, {"32", "bf16"},   {"38", "mxfp4"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i][0], text) == 0) return names[i][1];
    return NULL;
}

static bool is_type(const char *text)
{
    return strchr(text, '/') == NULL && access(text, F_OK) != 0 && apr_type_spelled(text).kind != APR_TYPE_UNKNOWN;
}

static apr_status set_default_out(apr_quant_operands *o, const char *in, const char *type, apr_arena *arena, apr_error *err)
{
    char *const out = apr_out_name_next_to(in, type);
    o->out = out != NULL ? apr_arena_copy(arena, out, strlen(out)) : NULL;
    free(out);
    return o->out != NULL ? APR_OK : no_memory(err);
}

/* Only IN was given: suggests an OUT if the type is known, else a type. */
static apr_status suggest_out(apr_quant_operands *o, const apr_call *call, bool has_rules, apr_arena *arena, apr_error *err)
{
    const char *const type = o->to != NULL ? o->to : "q4_k_m";

    APR_TRY(set_default_out(o, call->operands[0], type, arena, err));
    if (o->to != NULL || has_rules) {
        apr_fail(err, APR_E_USAGE, "OUT is missing");
        return apr_try_change(APR_E_USAGE, call->typed, NULL, o->out, err);
    }
    apr_fail(err, APR_E_USAGE, "a type is missing; q4_k_m is the usual choice ('aprquant --list' shows all)");
    return apr_try_change(APR_E_USAGE, call->typed, NULL, type, err);
}

/* "aprquant q4_k_m IN OUT": suggests the type as the last operand. */
static apr_status suggest_type_last(const apr_call *call, apr_error *err)
{
    const apr_change changes[] = {{.was = call->operands[0]}, {.is = call->operands[0]}};

    apr_fail(err, APR_E_USAGE, "%s is a type: give it after IN and OUT", call->operands[0]);
    return apr_try_instead(APR_E_USAGE, call->typed, changes, 2, err);
}

apr_status apr_quant_operands_read(apr_quant_operands *o, const apr_call *call, bool has_rules, apr_arena *arena, apr_error *err)
{
    const char *const *const operands = call->operands;
    const size_t n = call->n_operands;

    if (n == 0) return apr_fail(err, APR_E_USAGE, "give IN and OUT; try 'aprquant --help'");
    if (n == 1) return suggest_out(o, call, has_rules, arena, err);
    o->out = operands[1];
    if (is_type(operands[0])) return suggest_type_last(call, err);
    const bool has_threads = n == 3 && apr_parse_int(operands[2], &o->threads); /* "IN TYPE THREADS", also of llama-quantize */
    if ((n == 2 || has_threads) && o->to == NULL && !has_rules && is_type(operands[1])) {
        APR_TRY(read_type(operands[1], call, &o->to, err));
        return set_default_out(o, operands[0], o->to, arena, err);
    }
    o->threads = 0;
    if (n == 4 && (!apr_parse_int(operands[3], &o->threads) || o->threads < 0 || o->threads > 4096))
        return apr_fail(err, APR_E_USAGE, "unexpected argument '%s': only a number of threads may follow the type", operands[3]);
    const char *const by_number = n >= 3 && o->to == NULL ? type_of_number(operands[2]) : NULL;
    if (by_number != NULL) {
        fprintf(stderr, "note: %s means %s, by llama-quantize's numbers of types\n", operands[2], by_number);
        o->to = by_number;
        return APR_OK;
    }
    if (n >= 3 && apr_type_spelled(operands[2]).kind == APR_TYPE_UNKNOWN)
        return apr_fail(err, APR_E_USAGE, "unexpected argument '%s'; try 'aprquant --help'", operands[2]);
    if (n >= 3) return read_type(operands[2], call, &o->to, err);
    if (o->to != NULL || has_rules) return APR_OK;
    apr_fail(err, APR_E_USAGE, "give a type with --to TYPE; 'aprquant --list' lists the types");
    const apr_change changes[] = {{.is = "q4_k_m"}};
    return apr_try_instead(APR_E_USAGE, call->typed, changes, 1, err);
}
