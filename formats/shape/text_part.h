/* text_part.h - which tensors of a file belong to the language model, and their names in a text-only file.
 *
 * Published checkpoints hold more than what is run: vision and audio towers, projectors between them and the text, multi-token
 * prediction (MTP) layers, and buffers that every program computes itself. The text part of a multimodal model also has longer names:
 * "language_model.model.layers.0...", "model.language_model.layers.0...", or "layers.0..." if it was saved without its head. Names,
 * biases, plans, runs, conversions and adapters all use this module. */
#ifndef APR_FORMATS_TEXT_PART_H
#define APR_FORMATS_TEXT_PART_H

#include "formats/shape/tensor_names.h"

typedef enum {
    APR_PART_TEXT,  /* the language model, which is run; also tensors that no rule knows */
    APR_PART_TOWER, /* encoders of images and sound, speech decoders, and the projectors between them and the text */
    APR_PART_MTP,   /* layers of multi-token prediction */
    APR_PART_BUFFER /* computed from config.json (inverse frequencies, rotary divisors, masks), or scales of quantized activations */
} apr_model_part;

/* The part that a tensor belongs to; `name` is in any naming scheme. A tensor that matches a rule of the family is TEXT. The model's
 * names must be indexed: a layer after the last one is MTP if it has a norm for its embedding, as all published ones have. */
apr_model_part apr_part_of(const apr_model *model, const char *name);

/* The name of a causal mask, or of the number for what is masked, that classes before transformers 4.30 stored: published GPT-2 and
 * Pythia have them. transformers and llama.cpp ignore both. */
bool apr_is_attention_mask(const char *name);

/* The layer number in a canonical name or ggml's; -1: none. */
int64_t apr_layer_of_name(const char *name);

/* Finds the tensor that a text-only model would call `canonical`: under that name, after the prefix of a multimodal model, or without
 * "model." (saved without its head). NULL: there is none. */
const apr_tensor *apr_find_text_tensor(const apr_model *model, const char *canonical);

/* The text model's embedding and output head, under any prefix; NULL: there is none. */
const apr_tensor *apr_find_embedding(const apr_model *model);
const apr_tensor *apr_find_head(const apr_model *model);

/* Decides whether output and embedding are one matrix (hparams.tie_word_embeddings). The tensors decide: a head whose bytes differ from
 * the embedding's is used, whatever config.json says. Without a head the model is tied, unless the config decides otherwise. */
void apr_resolve_tied_head(apr_model *model, bool config_decides);

#endif
