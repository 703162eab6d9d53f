/* text_part.h - which tensors of a file are the language model, and what they would be called in a file of their own.
 *
 * Published checkpoints hold more than what is run: towers for images and sound, projectors between them and the text, layers that
 * predict several tokens ahead (multi-token prediction, MTP), buffers that every program computes for itself. And the text part of a
 * larger model has longer names: "language_model.model.layers.0...", "model.language_model.layers.0..." or, saved without its head,
 * "layers.0...". Names, biases, plans, runs, conversions and adapters all ask here. */
#ifndef APR_FORMATS_TEXT_PART_H
#define APR_FORMATS_TEXT_PART_H

#include "formats/model/family.h"

typedef enum {
    APR_PART_TEXT,  /* the language model, which is run; also what no rule knows */
    APR_PART_TOWER, /* encoders of images and sound, speech decoders, and the projectors between them and the text */
    APR_PART_MTP,   /* layers of multi-token prediction */
    APR_PART_BUFFER /* computed from config.json (inverse frequencies, rotary divisors), or scales of quantized activations */
} apr_model_part;

/* A name without the prefix of a larger model: `root` ("model." or "") followed by `rest`, which points into the name.
 * "language_model.model.norm.weight" is {"model.", "norm.weight"}, "language_model.lm_head.weight" is {"", "lm_head.weight"}. */
typedef struct apr_text_name {
    const char *root, *rest;
} apr_text_name;

apr_text_name apr_text_name_of(const char *name);
/* The same as one text; `name` itself where it has no such prefix. NULL: no memory. */
const char *apr_text_name_print(const char *name, apr_arena *arena);

/* Which part the tensor belongs to; `name` is as the model has it, in any of its dialects. A tensor that a rule of the family knows is
 * TEXT. The model must be indexed: a layer behind the last one is MTP if it has a norm for its embedding, as all published ones have. */
apr_model_part apr_part_of(const apr_model *model, const char *name);

/* The layer of a tensor under a canonical name or ggml's; -1: none. */
int64_t apr_layer_of_name(const char *name);

/* The tensor that a text model of its own would call `canonical`: under that name, behind the prefix of a larger model, or, of a model
 * saved without its head, without "model.". NULL: there is none. */
const apr_tensor *apr_find_text_tensor(const apr_model *model, const char *canonical);

/* The text model's embedding and output head, under whatever prefix; NULL: there is none. */
const apr_tensor *apr_find_embedding(const apr_model *model);
const apr_tensor *apr_find_head(const apr_model *model);

/* Settles whether output and embedding are one matrix (hparams.tie_word_embeddings). The tensors have the last word: a head whose bytes are
 * not the embedding's is used, whatever config.json says. Without a head the model is tied, unless the config decides otherwise. */
void apr_settle_head(apr_model *model, bool config_decides);

#endif
