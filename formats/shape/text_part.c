/* text_part.c - lists of towers and MTP names, and the rules that use them. */
#include "formats/shape/text_part.h"

#include "formats/base/text.h"
#include "formats/tensor/packed_weights.h"

#include <stdlib.h>
#include <string.h>

/* First components of names that are not text, alone or after "model.". Those that end with '_' are the start of a longer component. */
static const char *const towers[] = {
    "visual.",
    "vision.",
    "vision_",
    "vpm.",
    "vit.",
    "vit_",
    "audio.",
    "audio_",
    "embed_audio.",
    "embed_vision.",
    "speech_",
    "sound_",
    "talker.",
    "token2wav.",
    "code2wav.",
    "multi_modal_",
    "multimodal_",
    "mm_",
    "connector.",
    "projector.",
    "patch_merger.",
    "resampler.",
    "aligner.",
    "mlp1.",
    "image_",
    "img_",
    "conformer.",
    "ctc_",
    "embed_tokens_extend.",
};

/* First components of such names in a GGUF. */
static const char *const ggml_towers[] = {"v.", "a.", "mm.", "resampler."};

/* Multi-token prediction tensors outside of the list of layers. */
static const char *const mtp[] = {"mtp.", "mtp_", "nextn."};

/* Length of the first of the n prefixes that `name` begins with; 0: none. */
static size_t first_word(const char *name, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (apr_begins_with(name, words[i])) return strlen(words[i]);
    return 0;
}

#define WORD_OF(name, words) first_word(name, words, sizeof(words) / sizeof *(words))

static const char *after_model(const char *name) { return apr_text_after(name, "model."); }

/* ---- parts ---- */

/* Where the layer number begins; NULL: the name has none. */
static const char *layer_number(const char *name)
{
    static const char *const layers[] = {"layers.", "backbone.layers.", "gpt_neox.layers.", "decoder.layers.", "transformer.h.", "h.",
                                         "blk."};
    const char *const rest = apr_text_name_of(name).rest, *const plain = after_model(rest);
    const size_t n = WORD_OF(plain, layers);
    return n > 0 && plain[n] >= '0' && plain[n] <= '9' ? plain + n : NULL;
}

int64_t apr_layer_of_name(const char *name)
{
    const char *const number = layer_number(name);
    return number != NULL ? strtoll(number, NULL, 10) : -1;
}

/* Does the tensor belong to an MTP layer, after the last layer? Such a layer has a norm for the embedding of the given token. */
static bool is_mtp_layer(const apr_model *model, const char *name)
{
    static const char *const norms[] = {".enorm.weight", ".nextn.enorm.weight"};
    const char *const number = layer_number(name);
    char norm[300];

    if (number == NULL || model->hparams.num_layers <= 0 || strtoll(number, NULL, 10) < model->hparams.num_layers) return false;
    const size_t n = (size_t)(number - name) + strspn(number, "0123456789");
    if (n + sizeof ".nextn.enorm.weight" > sizeof norm) return false;
    memcpy(norm, name, n);
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++) {
        memcpy(norm + n, norms[i], strlen(norms[i]) + 1);
        if (apr_model_find(model, norm) != NULL) return true;
    }
    return strtoll(number, NULL, 10) < model->hparams.num_layers + model->hparams.num_nextn_layers;
}

static bool is_buffer(const char *name)
{
    static const char *const suffixes[] = {"rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached"};
    static const char *const heads[] = {"rope_freqs.weight", "rope_factors_"};

    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        if (apr_ends_with(name, suffixes[i])) return true;
    return WORD_OF(name, heads) > 0 || apr_is_activation_scale(name, NULL, 0);
}

bool apr_is_attention_mask(const char *name)
{
    static const char *const suffixes[] = {".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias"};

    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        if (apr_ends_with(name, suffixes[i])) return true;
    return false;
}

apr_model_part apr_part_of(const apr_model *model, const char *name)
{
    const apr_family *const family = apr_family_find(model->hparams.architecture);
    const char *const plain = after_model(name), *const rest = after_model(apr_text_name_of(name).rest);

    if (is_mtp_layer(model, name)) return APR_PART_MTP;
    if (is_buffer(name)) return APR_PART_BUFFER;
    if (family != NULL && apr_family_rule(family, name) != NULL) return APR_PART_TEXT;
    if (family != NULL && apr_is_attention_mask(name)) return APR_PART_BUFFER;
    if (WORD_OF(plain, mtp) > 0 || WORD_OF(rest, mtp) > 0) return APR_PART_MTP;
    if (WORD_OF(plain, towers) > 0 || WORD_OF(rest, towers) > 0) return APR_PART_TOWER;
    return model->origin.format == APR_FORMAT_GGUF && WORD_OF(name, ggml_towers) > 0 ? APR_PART_TOWER : APR_PART_TEXT;
}

/* ---- embedding and head ---- */

const apr_tensor *apr_find_text_tensor(const apr_model *model, const char *canonical)
{
    const apr_tensor *const found = apr_model_find(model, canonical);

    for (size_t i = 0; i < model->n_tensors && found == NULL; i++) {
        const char *const name = model->tensors[i].name;
        const apr_text_name text = apr_text_name_of(name);
        const size_t n_root = strlen(text.root);
        if (strncmp(canonical, text.root, n_root) == 0 && strcmp(canonical + n_root, text.rest) == 0) return &model->tensors[i];
        if (apr_begins_with(canonical, "model.") && strcmp(after_model(canonical), name) == 0) return &model->tensors[i];
    }
    return found;
}

/* By Hugging Face's name, ggml's or Meta's. */
static const apr_tensor *find_any(const apr_model *model, const char *const *names, size_t n)
{
    const apr_tensor *found = NULL;
    for (size_t i = 0; i < n && found == NULL; i++) found = apr_find_text_tensor(model, names[i]);
    return found;
}

const apr_tensor *apr_find_embedding(const apr_model *model)
{
    static const char *const names[] = {"model.embed_tokens.weight",
                                        "backbone.embeddings.weight",
                                        "token_embd.weight",
                                        "tok_embeddings.weight",
                                        "gpt_neox.embed_in.weight",
                                        "embed_in.weight",
                                        "transformer.wte.weight",
                                        "wte.weight",
                                        "model.decoder.embed_tokens.weight",
                                        "model.word_embeddings.weight"};
    return find_any(model, names, sizeof names / sizeof *names);
}

const apr_tensor *apr_find_head(const apr_model *model)
{
    static const char *const names[] = {"lm_head.weight", "output.weight", "embed_out.weight"};
    return find_any(model, names, sizeof names / sizeof *names);
}

static bool are_same_bytes(const apr_tensor *a, const apr_tensor *b)
{
    if (a->dtype != b->dtype || a->n_bytes != b->n_bytes) return false;
    return a->n_bytes == 0 || (a->data != NULL && b->data != NULL && memcmp(a->data, b->data, a->n_bytes) == 0);
}

void apr_resolve_tied_head(apr_model *model, bool config_decides)
{
    const apr_tensor *const embedding = apr_find_embedding(model), *const head = apr_find_head(model);
    bool *const is_tied = &model->hparams.tie_word_embeddings;

    if (embedding == NULL) return;
    if (head != NULL && *is_tied) {
        *is_tied = are_same_bytes(head, embedding);
        model->overrules_tie = !*is_tied;
    }
    if (head == NULL && !config_decides) *is_tied = true;
}
