/* gguf_stops.c - finds stop ids by GGUF's keys and the texts of tokens, and tells which of them other readers find. */
#include "formats/vocab/gguf_stops.h"

#include <stdio.h>
#include <string.h>

/* Texts that end a turn in every model that has them as special tokens, except next to a token of `unless`. In the harmony format of
 * gpt-oss <|end|> only ends a message (in phi-3 it ends the turn). Gemma 4's </s> is an ordinary token. llama.cpp makes the same two
 * exceptions, but the one of <|end|> only if the vocabulary also has a token of `with`. */
static const struct {
    const char *text, *unless[2], *with[2];
} turn_texts[] = {
    {"<|im_end|>"},
    {"<|eot_id|>"},
    {"<|eom_id|>"},
    {"<|endoftext|>"},
    {"<|end_of_text|>"},
    {"<end_of_turn>"},
    {"<|return|>"},
    {"<|call|>"},
    {"<|flush|>"},
    {"<|calls|>"},
    {"<EOT>"},
    {"_<EOT>"},
    {"[EOT]"},
    {"[EOS]"},
    {"<eos>"},
    {"<turn|>"},
    {"[e~["},
    {"<|tool_response>"},
    {"<end_of_utterance>"},
    {"<｜end▁of▁sentence｜>"},
    {"<|end|>", .unless = {"<|return|>", "<|flush|>"}, .with = {"<|call|>", "<|calls|>"}},
    {"</s>", .unless = {"<|tool_response>"}},
};
enum { N_TURN_TEXTS = sizeof turn_texts / sizeof *turn_texts };

/* Those of the texts that end a turn, not a whole text: the meaning of the key eot. */
static const char *const turn_ends[] = {"<|im_end|>", "<|eot_id|>",         "<|end|>", "<end_of_turn>", "<EOT>", "_<EOT>",
                                        "[EOT]",      "<end_of_utterance>", "<turn|>"};

/* --- texts --- */

/* The row of turn_texts, or -1. */
static int turn_text_of(apr_str token)
{
    for (int t = 0; t < N_TURN_TEXTS; t++)
        if (apr_str_is(token, turn_texts[t].text)) return t;
    return -1;
}

static bool is_special(const apr_vocab *v, size_t id)
{
    return v->types != NULL && (v->types[id] == APR_TOKEN_CONTROL || v->types[id] == APR_TOKEN_USER);
}

typedef struct found_texts {
    bool present[N_TURN_TEXTS];
} found_texts;

static found_texts find_texts(const apr_vocab *v)
{
    found_texts found = {{false}};
    for (size_t i = 0; i < v->n_tokens; i++) {
        const int row = is_special(v, i) ? turn_text_of(v->tokens[i]) : -1;
        if (row >= 0) found.present[row] = true;
    }
    return found;
}

static bool has_one_of(const found_texts *found, const char *const texts[2])
{
    for (int i = 0; i < 2; i++)
        if (texts[i] != NULL && found->present[turn_text_of(apr_str_of(texts[i]))]) return true;
    return false;
}

typedef enum { BY_US, BY_LLAMA_CPP } text_rule;

static bool is_excepted(int row, const found_texts *found, text_rule rule)
{
    const bool needs_both = rule == BY_LLAMA_CPP && turn_texts[row].with[0] != NULL;
    return has_one_of(found, turn_texts[row].unless) && (!needs_both || has_one_of(found, turn_texts[row].with));
}

/* If keys name an end token, the padding token may be a further stop by its text (Qwen's <|endoftext|>). Without such keys it only pads. */
static void add_turn_texts(apr_vocab *v, text_rule rule)
{
    const int64_t only_pads = v->n_stop_ids == 0 ? v->pad_id : -1;
    const found_texts found = find_texts(v);

    for (size_t i = 0; i < v->n_tokens; i++) {
        const int row = is_special(v, i) && (int64_t)i != only_pads ? turn_text_of(v->tokens[i]) : -1;
        if (row >= 0 && !is_excepted(row, &found, rule)) apr_vocab_add_stop(v, (int64_t)i);
    }
}

void apr_gguf_find_stops(const apr_kv_list *kv, bool has_list, apr_vocab *v)
{
    int64_t id;

    if (apr_kv_get_int(kv, APR_GGUF_EOT, &id)) apr_vocab_add_stop(v, id);
    if (apr_kv_get_int(kv, APR_GGUF_EOM, &id)) apr_vocab_add_stop(v, id);
    if (!has_list) add_turn_texts(v, BY_US);
}

/* --- what others find --- */

static bool is_stop(const apr_vocab *v, int64_t id)
{
    for (size_t i = 0; i < v->n_stop_ids; i++)
        if (v->stop_ids[i] == id) return true;
    return false;
}

static bool same_stops(const apr_vocab *a, const apr_vocab *b)
{
    for (size_t i = 0; i < a->n_stop_ids; i++)
        if (!is_stop(b, a->stop_ids[i])) return false;
    return a->n_stop_ids == b->n_stop_ids;
}

/* No key makes other readers stop at a token that they except by its text. */
static bool is_taken_out(const apr_vocab *v, int32_t id, const found_texts *found)
{
    const int row = turn_text_of(v->tokens[id]);
    return row >= 0 && is_excepted(row, found, BY_LLAMA_CPP);
}

static bool ends_turns(apr_str token)
{
    for (size_t i = 0; i < sizeof turn_ends / sizeof *turn_ends; i++)
        if (apr_str_is(token, turn_ends[i])) return true;
    return false;
}

/* Stops without a known text get the keys first. A key that is still free names the turn's end, so that readers need not guess it. */
static void give_keys(apr_gguf_stops *s, const apr_vocab *v, const found_texts *found)
{
    for (size_t i = 0; i < v->n_stop_ids; i++) {
        const int32_t id = v->stop_ids[i];
        const bool is_out = is_taken_out(v, id, found),
                   is_known = id == v->eos_id || (turn_text_of(v->tokens[id]) >= 0 && is_special(v, (size_t)id));
        if (is_known && !is_out) continue;
        if (!is_out && s->eot_id < 0) s->eot_id = id;
        else if (!is_out && s->eom_id < 0) s->eom_id = id;
        else s->not_found[s->n_not_found++] = id;
    }
    for (size_t i = 0; i < v->n_stop_ids; i++) {
        const int32_t id = v->stop_ids[i];
        if (id == v->eos_id || is_taken_out(v, id, found)) continue;
        if (s->eot_id < 0 && ends_turns(v->tokens[id])) s->eot_id = id;
        if (s->eom_id < 0 && apr_str_is(v->tokens[id], "<|eom_id|>")) s->eom_id = id;
    }
}

/* The stops that a reader finds by the keys and by texts, without tokenizer.aprkit.stop_ids. */
static apr_vocab found_without_list(const apr_vocab *v, const apr_gguf_stops *s, text_rule rule)
{
    apr_vocab found = {.n_tokens = v->n_tokens, .tokens = v->tokens, .types = v->types, .pad_id = v->pad_id};

    apr_vocab_add_stop(&found, v->eos_id);
    apr_vocab_add_stop(&found, s->eot_id);
    apr_vocab_add_stop(&found, s->eom_id);
    add_turn_texts(&found, rule);
    return found;
}

apr_gguf_stops apr_gguf_plan_stops(const apr_vocab *v)
{
    apr_gguf_stops s = {.eot_id = -1, .eom_id = -1, .extra = -1};
    const found_texts found = find_texts(v);

    give_keys(&s, v, &found);
    const apr_vocab ours = found_without_list(v, &s, BY_US), theirs = found_without_list(v, &s, BY_LLAMA_CPP);
    s.needs_list = !same_stops(v, &ours);
    for (size_t i = 0; i < theirs.n_stop_ids && s.extra < 0; i++)
        if (!is_stop(v, theirs.stop_ids[i]) && theirs.stop_ids[i] != v->pad_id) s.extra = theirs.stop_ids[i];
    return s;
}

bool apr_gguf_finds_stop(const apr_vocab *v, int32_t id)
{
    const apr_gguf_stops s = apr_gguf_plan_stops(v);
    const apr_vocab theirs = found_without_list(v, &s, BY_LLAMA_CPP);
    return is_stop(&theirs, id);
}

static int shown(apr_str s) { return s.n_bytes < 60 ? (int)s.n_bytes : 60; }

apr_status apr_gguf_stop_losses(const apr_vocab *v, apr_losses *losses, apr_error *err)
{
    const apr_gguf_stops s = apr_gguf_plan_stops(v);

    if (s.n_not_found > 0) {
        const apr_str token = v->tokens[s.not_found[0]];
        char more[48] = "";
        if (s.n_not_found > 1) snprintf(more, sizeof more, " (and %zu more)", s.n_not_found - 1);
        APR_TRY(apr_loss_add(losses, APR_LOST_TO_OTHERS, err,
                             "the model stops at token %d (\"%.*s\")%s; GGUF has no key for it, and other readers do not know its text",
                             (int)s.not_found[0], shown(token), token.text, more));
    }
    if (s.extra < 0) return APR_OK;
    const apr_str token = v->tokens[s.extra];
    return apr_loss_add(losses, APR_LOST_TO_OTHERS, err,
                        "the model does not stop at token %d (\"%.*s\"); other readers do, because of its text", (int)s.extra, shown(token),
                        token.text);
}
