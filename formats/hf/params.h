/* params.h - the params.json that Meta and Mistral put beside their own ("consolidated") files, as hyperparameters.
 *
 *   Meta      dim n_layers n_heads n_kv_heads norm_eps vocab_size rope_theta use_scaled_rope;
 *             the feed-forward's width follows from dim, multiple_of and ffn_dim_multiplier
 *   Mistral   the same with head_dim, hidden_dim, sliding_window, tied_embeddings, moe {num_experts, num_experts_per_tok},
 *             yarn {...}, llama_4_scaling {...}, quantization {qformat_weight, qscheme_act}
 *
 * It is read as the config.json that says the same, so that classes' defaults and the judgement of fields are those of
 * formats/hf/hf_config.c. What is not understood becomes hparams->refusal, with the field's name. */
#ifndef APR_FORMATS_PARAMS_H
#define APR_FORMATS_PARAMS_H

#include "formats/model/model.h"

/* Of `model` the tensors are asked what the file leaves out: the rows of the embedding, whether there is an output matrix. Either
 * dialect will do. APR_E_DAMAGED: no JSON, or a field that is no number. `where` names the file. */
apr_status apr_params_read(const apr_attachment *params, const apr_model *model, apr_hparams *hparams, apr_arena *arena, const char *where,
                           apr_error *err);

/* For hyperparameters that came another way (an APR file's): as above, and fills refusal alone. */
apr_status apr_params_judge(const apr_attachment *params, const apr_model *model, apr_hparams *hparams, apr_arena *arena, const char *where,
                            apr_error *err);

#endif
