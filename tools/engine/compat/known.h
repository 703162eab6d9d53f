/* known.h - names that other programs know, as their sources list them: words with blanks on both sides, as apr_has_word
 * takes them. */
#ifndef APR_ENGINE_COMPAT_KNOWN_H
#define APR_ENGINE_COMPAT_KNOWN_H

typedef struct apr_known {
    const char *llama_cpp_architectures;    /* LLM_ARCH_NAMES of src/llama-arch.cpp, without those that are not models of text */
    const char *llama_cpp_tokenizers;       /* tokenizer.ggml.model, src/llama-vocab.cpp */
    const char *llama_cpp_pre_tokenizers;   /* tokenizer.ggml.pre of BPE tokenizers, src/llama-vocab.cpp */
    const char *transformers_types;         /* model_type with a class for text, models/auto/modeling_auto.py */
    const char *transformers_quantizations; /* quant_method, quantizers/auto.py */
    const char *transformers_ggufs;         /* general.architecture, integrations/ggml.py */
    const char *vllm_classes;               /* architectures, model_executor/models/registry.py */
    const char *vllm_quantizations;         /* quant_method, model_executor/layers/quantization/__init__.py */
    const char *mlx_types;                  /* model_type: the files of mlx_lm/models, and MODEL_REMAPPING of utils.py */
    const char *mlx_quantizations;          /* quant_method, utils.py */
} apr_known;

extern const apr_known apr_known_names;

#endif
