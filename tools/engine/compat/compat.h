/* compat.h - would another program load this model? From tables of what each program reads (known.h) and from rules.
 *
 *     apr_compat compat;
 *     apr_compat_of(&compat, &model, &err);       compat.of[APR_PEER_LLAMA_CPP].verdict, .reason
 *     apr_compat_close(&compat);
 *
 * A verdict is about loading: names, keys, types and shapes. It says nothing about speed, memory, or whether the output is good. */
#ifndef APR_ENGINE_COMPAT_H
#define APR_ENGINE_COMPAT_H

#include "formats/tensor/model.h"

/* X(id, name, what the tables and rules were read from) */
#define APR_PEER_LIST(X)                                                                        \
    X(LLAMA_CPP, "llama.cpp", "d32676d: llama-arch.cpp, llama-vocab.cpp, ggml.h")               \
    X(TRANSFORMERS, "transformers", "5.24: models/auto, quantizers/auto.py, integrations/ggml") \
    X(VLLM, "vLLM", "0002bff, 0034007: model_executor/models/registry.py, layers/quantization") \
    X(MLX, "mlx-lm", "0.32: models/, utils.py")                                                 \
    X(APRENDER, "aprender", "0.63: apr-format, aprender-core")                                  \
    X(REALIZAR, "realizar", "2026-04: apr, gguf, apr_transformer")

typedef enum {
#define X(id, name, source) APR_PEER_##id,
    APR_PEER_LIST(X)
#undef X
        APR_PEERS
} apr_peer;

typedef struct apr_peer_name {
    const char *name, *source;
} apr_peer_name;
extern const apr_peer_name apr_peers[APR_PEERS];
/* By its name, in any case and without punctuation ("llamacpp"); APR_PEERS: not known. */
apr_peer apr_peer_find(const char *name);

typedef enum { APR_LOADS, APR_LOADS_BUT, APR_LOADS_NOT } apr_loads;

typedef struct apr_peer_verdict {
    apr_loads verdict;
    const char *reason; /* a clause that names the tensor or key; NULL: it loads, and there is nothing to say */
    const char *rule;   /* where in the other program the rule is; NULL with reason NULL */
    const char *remedy; /* a command that makes a file which loads, with MODEL for this one's path; NULL: none */
} apr_peer_verdict;

typedef struct apr_compat {
    apr_peer_verdict of[APR_PEERS];
    apr_arena arena; /* of reasons */
} apr_compat;

/* The model is as a reader returns it (not a canonical view). Fails only with APR_E_MEMORY. */
apr_status apr_compat_of(apr_compat *compat, const apr_model *model, apr_error *err);
void apr_compat_close(apr_compat *compat);

#endif
