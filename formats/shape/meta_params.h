/* meta_params.h - reads the params.json that is next to Meta's and Mistral's "consolidated" files into hyperparameters.
 *
 *   Meta      dim n_layers n_heads n_kv_heads norm_eps vocab_size rope_theta use_scaled_rope;
 *             the feed-forward's width follows from dim, multiple_of and ffn_dim_multiplier
 *   Mistral   the same with head_dim, hidden_dim, sliding_window, tied_embeddings, moe {num_experts, num_experts_per_tok},
 *             yarn {...}, llama_4_scaling {...}, quantization {qformat_weight, qscheme_act}
 *
 * It is converted to the equivalent config.json, so that formats/shape/hf_config.c applies the classes' defaults and checks the fields.
 * An unsupported field becomes hparams->refusal, which names it. */
#ifndef APR_FORMATS_PARAMS_H
#define APR_FORMATS_PARAMS_H

#include "formats/tensor/model.h"

/* `where` names the file. The tensors of `model`, in either naming scheme, give what the file lacks: the rows of the embedding, and whether
 * there is an output matrix. APR_E_DAMAGED: not JSON, or a field that is not a number. */
apr_status apr_params_read(const apr_attachment *params, const apr_model *model, apr_hparams *hparams, apr_arena *arena, const char *where,
                           apr_error *err);

/* For hyperparameters from another source (an APR file): checks params.json as above, but sets only the refusal. */
apr_status apr_params_check(const apr_attachment *params, const apr_model *model, apr_hparams *hparams, apr_arena *arena, const char *where,
                            apr_error *err);

#endif
