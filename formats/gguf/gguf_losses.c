/* gguf_losses.c - lists what a GGUF made from a checkpoint cannot express for its readers, llama.cpp above all: hyperparameters
 * (gguf_hparam_losses.c), tokenizer, files.
 *
 * Our own reader obeys the keys of gguf_keys.c and gguf_vocab.c. What is listed here is lost for other readers. */
#include "formats/base/text.h"
#include "formats/files/checkpoint_names.h"
#include "formats/gguf/gguf.h"
#include "formats/shape/gguf_hparams.h"
#include "formats/vocab/gguf_stops.h"
#include "formats/vocab/gguf_vocab.h"
#include "formats/vocab/spm_scores.h"
#include "formats/vocab/vocab_index.h"

#include <math.h>
#include <stdio.h>

typedef struct checking {
    const apr_model *layout;
    apr_losses *losses;
    apr_error *err;
} checking;

#define LOSS(c, ...) APR_TRY(apr_loss_add((c)->losses, APR_LOST, (c)->err, __VA_ARGS__))
#define NOTE(c, ...) APR_TRY(apr_loss_add((c)->losses, APR_NOTE, (c)->err, __VA_ARGS__))

/* --- tokenizer --- */

static bool has_tokenizer_file(const apr_model *layout, const char **name)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer.model", "tekken.json", "spiece.model",
                                        "tiktoken.model", "qwen.tiktoken",   "vocab.json",  "vocab.txt"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (apr_model_attachment(layout, names[i]) != NULL) {
            *name = names[i];
            return true;
        }
    return false;
}

static int text_length(apr_str s) { return s.n_bytes < 60 ? (int)s.n_bytes : 60; }

/* True: every byte is a token, as <0xNN> or as a character of GPT-2's byte alphabet. Text with other bytes would be unknown. */
static bool has_all_bytes(const apr_vocab *v, const apr_vocab_index *index)
{
    char text[8];
    unsigned n_other = 0;

    for (unsigned byte = 0; byte < 256; byte++) {
        if (v->kind == APR_VOCAB_SPM) {
            snprintf(text, sizeof text, "<0x%02X>", byte);
        } else {
            const bool is_itself = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
            const unsigned code = is_itself ? byte : 256 + n_other++;
            if (code < 0x80) snprintf(text, sizeof text, "%c", (int)code);
            else snprintf(text, sizeof text, "%c%c", (int)(0xc0 | code >> 6), (int)(0x80 | (code & 0x3f)));
        }
        if (apr_vocab_index_find(index, text, strlen(text)) < 0) return false;
    }
    return true;
}

static apr_status check_bytes(const checking *c)
{
    const apr_vocab *const v = &c->layout->vocab;
    const bool matters = v->kind == APR_VOCAB_SPM || v->unk_id >= 0; /* llama.cpp drops unknown bytes of a byte-level tokenizer */
    apr_vocab_index index;

    if (!matters) return APR_OK;
    const bool opened = apr_vocab_index_open(&index, v, APR_ALL_TYPES), complete = opened && has_all_bytes(v, &index);
    apr_vocab_index_close(&index);
    if (!opened) return apr_no_memory(c->err, "the vocabulary");
    const bool falls_back = v->kind != APR_VOCAB_SPM || v->byte_fallback;
    if (!complete || !falls_back) LOSS(c, "the tokenizer has no tokens for single bytes, and llama.cpp needs them for unknown text");
    return APR_OK;
}

static apr_status check_splitting(const checking *c)
{
    const apr_vocab *const v = &c->layout->vocab;
    const apr_pre_rule *const rule = apr_pre_of(v);

    if (rule == NULL) {
        LOSS(c, "the tokenizer splits text by a rule that GGUF has no name for (%.80s)",
             v->pattern != NULL ? v->pattern
             : v->n_splits > 0  ? "several expressions"
                                : "none at all");
        return APR_OK;
    }
    if (rule->ignore_merges != v->ignore_merges)
        LOSS(c, "the tokenizer %s whole words that are tokens, which GGUF's '%s' does%s", v->ignore_merges ? "takes" : "does not take",
             rule->name, v->ignore_merges ? " not" : "");
    if (v->nfc && !rule->nfc) LOSS(c, "the tokenizer normalises text to NFC, which no reader of '%s' in GGUF does", rule->name);
    else if (v->nfc) NOTE(c, "the tokenizer normalises text to NFC; llama.cpp does not");
    return APR_OK;
}

static apr_status check_sentencepiece(const checking *c)
{
    const apr_vocab *const v = &c->layout->vocab;
    apr_spm_scores made;

    if (!v->escape_spaces) LOSS(c, "the tokenizer keeps spaces as they are, and llama.cpp makes them U+2581");
    if (v->nfc) LOSS(c, "the tokenizer normalises text to NFC, and llama.cpp does not");
    if (v->n_splits > 0 || v->pattern != NULL)
        LOSS(c, "the tokenizer splits text before it merges, and llama.cpp's SentencePiece does not");
    if (v->add_space_prefix && v->prefix_unless_space)
        LOSS(c, "the tokenizer puts no space before a text that begins with one, where llama.cpp puts one");
    if (v->add_space_prefix && !v->space_after_added)
        LOSS(c, "the tokenizer puts a space before a text but not after special tokens, where llama.cpp also puts one");
    if (v->scores != NULL) return APR_OK;
    APR_TRY(apr_spm_scores_make(v, &c->losses->arena, &made, c->err));
    if (made.bad_merge >= 0) LOSS(c, "the tokenizer's merge %lld uses tokens that it does not have", (long long)made.bad_merge);
    if (made.inexact >= 0) {
        const apr_str token = v->tokens[made.inexact];
        LOSS(c, "scores cannot give the same ids as the tokenizer's merges: they would make the token \"%.*s\"", text_length(token),
             token.text);
    }
    return APR_OK;
}

static apr_status check_kind(const checking *c)
{
    const apr_vocab *const v = &c->layout->vocab;
    const int64_t mistaken = apr_gguf_bert_ambiguous(v);

    if (mistaken >= 0)
        APR_TRY(apr_loss_add(c->losses, APR_LOST_TO_OTHERS, c->err,
                             "the token \"%.*s\" continues a word; other readers take it for the start of one",
                             text_length(v->tokens[mistaken]), v->tokens[mistaken].text));
    if (v->kind == APR_VOCAB_WPM)
        NOTE(c, "a word of more than %zu characters is unknown to the tokenizer; llama.cpp cuts it into tokens", v->max_word_chars);
    return APR_OK;
}

/* Checks tokenizer.json's flags of added tokens. GGUF records only that a token is an added one. */
static apr_status check_added(const checking *c)
{
    const apr_vocab *const v = &c->layout->vocab;
    const bool normalises = v->nfc || v->kind == APR_VOCAB_SPM || v->kind == APR_VOCAB_UGM;
    const int matter = APR_ADDED_LSTRIP | APR_ADDED_RSTRIP | APR_ADDED_SINGLE_WORD;
    const apr_str *normalized = NULL;

    for (size_t id = 0; v->added != NULL && id < v->n_tokens; id++) {
        const apr_str token = v->tokens[id];
        if (normalized == NULL && normalises && (v->added[id] & APR_ADDED_NORMALIZED) != 0) normalized = &v->tokens[id];
        if ((v->added[id] & matter) == 0) continue;
        LOSS(c, "the added token \"%.*s\" has lstrip, rstrip or single_word, which GGUF has no key for", text_length(token), token.text);
        return APR_OK; /* one message is enough */
    }
    if (normalized != NULL)
        NOTE(c, "the added token \"%.*s\" is matched in normalised text; llama.cpp matches it in the original text",
             text_length(*normalized), normalized->text);
    return APR_OK;
}

/* If a key is missing, llama.cpp assumes an id. */
static apr_status check_ids(const checking *c)
{
    const apr_vocab *const v = &c->layout->vocab;
    const int assumed = v->kind == APR_VOCAB_SPM ? 2 : v->kind == APR_VOCAB_UGM ? 1 : 11;
    const apr_tensor *const embedding = apr_model_find(c->layout, "token_embd.weight");

    if (v->eos_id < 0 && v->n_tokens > (size_t)assumed)
        LOSS(c, "the tokenizer has no end token, and llama.cpp then takes token %d (\"%.*s\") for it", assumed,
             text_length(v->tokens[assumed]), v->tokens[assumed].text);
    if (embedding != NULL && embedding->rank == 2 && embedding->dims[0] != (int64_t)v->n_tokens)
        LOSS(c, "the tokenizer has %zu tokens, the embedding %lld rows: llama.cpp cannot open such a GGUF", v->n_tokens,
             (long long)embedding->dims[0]);
    return APR_OK;
}

static apr_status check_vocab(const checking *c)
{
    const apr_vocab *const v = &c->layout->vocab;
    const char *name, *obstacle;

    if (v->kind == APR_VOCAB_NONE || v->n_tokens == 0) {
        if (!has_tokenizer_file(c->layout, &name)) NOTE(c, "there is no tokenizer: the GGUF takes ids, not text");
        else if (v->unsupported != NULL)
            LOSS(c, "the tokenizer in %s has %s, which is not supported, so the GGUF would have no tokenizer", name, v->unsupported);
        else LOSS(c, "GGUF cannot express the tokenizer in %s, so the GGUF would have no tokenizer", name);
        return APR_OK;
    }
    APR_TRY(apr_gguf_vocab_obstacle(v, &c->losses->arena, &obstacle, c->err));
    if (obstacle != NULL) {
        LOSS(c, "%s, so the GGUF would have no tokenizer", obstacle);
        return APR_OK;
    }
    APR_TRY(v->kind == APR_VOCAB_BPE ? check_splitting(c) : v->kind == APR_VOCAB_SPM ? check_sentencepiece(c) : check_kind(c));
    if (v->kind == APR_VOCAB_BPE || v->kind == APR_VOCAB_SPM) APR_TRY(check_bytes(c));
    APR_TRY(check_added(c));
    APR_TRY(apr_gguf_stop_losses(v, c->losses, c->err));
    return check_ids(c);
}

/* --- files --- */

/* Names the files whose content is not in the keys. A GGUF holds no files. */
static apr_status note_files(const checking *c)
{
    const char *const *const in_keys =
        APR_NAMES("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt",
                  "tokenizer.model", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja", "chat_template.json");
    const char *list = NULL;

    for (size_t i = 0; i < c->layout->n_attachments; i++) {
        const char *const name = c->layout->attachments[i].name;
        size_t n_name;
        if (apr_is_any_of(name, in_keys) || apr_template_name(name, &n_name) != NULL) continue;
        list = apr_arena_print(&c->losses->arena, "%s%s%s", list != NULL ? list : "", list != NULL ? ", " : "", name);
        if (list == NULL) return apr_no_memory(c->err, "the names of files");
    }
    return list != NULL ? apr_loss_add(c->losses, APR_NOTE, c->err, "a GGUF holds no files; not copied: %s", list) : APR_OK;
}

apr_status apr_gguf_losses(const apr_model *layout, apr_losses *losses, apr_error *err)
{
    const checking c = {layout, losses, err};

    if (apr_gguf_keeps_keys(layout)) return APR_OK;
    APR_TRY(apr_gguf_hparam_losses(layout, losses, err));
    APR_TRY(note_files(&c));
    return check_vocab(&c);
}
