/* compat.c - the rules of each program, in the order in which it would fail. The first objection is the verdict's reason. */
#include "tools/engine/compat/compat.h"
#include "formats/base/text.h"

#include "formats/apr/apr.h"
#include "formats/base/json.h"
#include "formats/open.h"
#include "formats/packed/hf_quantization.h"
#include "formats/shape/family.h"
#include "formats/shape/gguf_hparams.h"
#include "tools/engine/compat/known.h"
#include "tools/engine/quantize/admission_of_file.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const apr_peer_name apr_peers[APR_PEERS] = {
#define X(id, name, source) {name, source},
    APR_PEER_LIST(X)
#undef X
};

/* What the rules ask about a model, read once. Texts are "" where the model has none. */
typedef struct facts {
    const apr_model *model;
    apr_arena *arena;
    bool *out_of_memory;                                         /* a text is "" because of that */
    const char *gguf_architecture, *gguf_type, *tokenizer, *pre; /* keys of a GGUF */
    const char *model_type, *class, *quant_method;               /* of config.json, as it states them */
    bool has_custom_code;                                        /* auto_map: classes in files of the folder */
    const char *refused, *differs;                               /* of a GGUF: why llama.cpp does not open it, or computes something else */
    const char *incomplete;                                      /* the first tensor that its family misses, as a clause; NULL: none */
} facts;

/* --- reading the facts --- */

static const char *keep_bytes(const facts *f, const char *text, size_t n_bytes)
{
    const char *const copy = apr_arena_copy(f->arena, text, n_bytes);
    if (copy == NULL) *f->out_of_memory = true;
    return copy != NULL ? copy : "";
}

static const char *keep(const facts *f, const char *text) { return text != NULL ? keep_bytes(f, text, strlen(text)) : ""; }

static const char *gguf_text(const facts *f, const char *key)
{
    apr_str value;
    return apr_kv_get_string(&f->model->kv, key, &value) ? keep_bytes(f, value.text, value.n_bytes) : "";
}

static void read_config(facts *f)
{
    const apr_attachment *const config = apr_model_attachment(f->model, "config.json");
    cJSON *root = NULL;

    if (config == NULL || apr_json_parse(&root, config->data, config->n_bytes, "config.json", NULL) != APR_OK) return;
    const cJSON *const classes = apr_json_get(root, "architectures");
    f->model_type = keep(f, apr_json_get_string(root, "model_type"));
    f->class = keep(f, cJSON_IsArray(classes) && cJSON_IsString(classes->child) ? classes->child->valuestring : NULL);
    f->has_custom_code = apr_json_get(root, "auto_map") != NULL;
    cJSON_Delete(root);
}

/* The losses of a conversion to GGUF are what llama.cpp cannot be told, or does in another way. */
static apr_status read_losses(facts *f, apr_error *err)
{
    apr_losses losses = {0};
    const apr_status status = apr_gguf_hparam_losses(f->model, &losses, err);

    for (size_t i = 0; status == APR_OK && i < losses.n_items; i++) {
        const apr_loss *const loss = &losses.items[i];
        if (loss->kind == APR_NOTE) continue;
        if (loss->is_refusal && f->refused == NULL) f->refused = keep(f, loss->text);
        if (!loss->is_refusal && f->differs == NULL) f->differs = keep(f, loss->text);
    }
    apr_losses_close(&losses);
    return status;
}

static apr_status read_facts(facts *f, apr_error *err)
{
    apr_admission admission = {0};

    f->model_type = f->class = "";
    f->gguf_architecture = gguf_text(f, "general.architecture");
    f->gguf_type = gguf_text(f, "general.type");
    f->tokenizer = gguf_text(f, "tokenizer.ggml.model");
    f->pre = gguf_text(f, "tokenizer.ggml.pre");
    f->quant_method = f->model->quantization != NULL ? f->model->quantization->method : "";
    read_config(f);
    if (f->model->format == APR_FORMAT_GGUF) APR_TRY(read_losses(f, err));
    APR_TRY(apr_admission_of(&admission, f->model, err));
    if (admission.n_of[APR_TENSOR_MISSING] + admission.n_of[APR_TENSOR_MISSHAPEN] > 0) f->incomplete = keep(f, admission.first[0].text);
    return APR_OK;
}

/* --- verdicts --- */

static apr_peer_verdict say(const facts *f, apr_loads loads, const char *remedy, const char *rule, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
static apr_peer_verdict say(const facts *f, apr_loads loads, const char *remedy, const char *rule, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    /* a model that has no canonical names cannot be converted to what another program reads */
    return (apr_peer_verdict){.verdict = loads,
                              .reason = keep(f, text),
                              .rule = rule,
                              .remedy = apr_family_translated(f->model->hparams.architecture) != NULL ? remedy : NULL};
}

/* copies of the same values in another container; to_floats also decodes quantized weights */
static const char to_gguf[] = "aprconv convert MODEL out.gguf", to_folder[] = "aprconv convert MODEL out/",
                  to_floats[] = "aprquant --to bf16 MODEL out/", to_aprender[] = "aprconv convert --profile aprender MODEL out.apr";

/* A file of another kind than the program reads. */
static apr_peer_verdict other_format(const facts *f, const char *remedy, const char *reads)
{
    return say(f, APR_LOADS_NOT, remedy, "format", "it reads %s, and this is %s", reads, apr_format_name(f->model->format));
}

static bool is_folder(const facts *f) { return f->model->format == APR_FORMAT_SAFETENSORS; }

/* A folder without config.json, or without one of its names. */
static bool lacks(const char *text) { return text[0] == '\0'; }

static apr_peer_verdict judge_llama_cpp(const facts *f)
{
    const apr_known *const k = &apr_known_names;

    if (f->model->format != APR_FORMAT_GGUF) return other_format(f, to_gguf, "GGUF");
    if (apr_gguf_is_big_endian(f->model->origin.gguf_version))
        return say(f, APR_LOADS_NOT, to_gguf, "gguf.cpp: version", "the file is big-endian, and a little-endian machine refuses it");
    if (f->gguf_type[0] != '\0' && strcmp(f->gguf_type, "model") != 0)
        return say(f, APR_LOADS_NOT, NULL, "llama-model-loader.cpp", "general.type is '%s': it is not a model of text", f->gguf_type);
    if (!apr_has_word(k->llama_cpp_architectures, f->gguf_architecture))
        return say(f, APR_LOADS_NOT, NULL, "llama-arch.cpp: LLM_ARCH_NAMES", "general.architecture '%s' is not one it knows",
                   f->gguf_architecture);
    if (f->incomplete != NULL) return say(f, APR_LOADS_NOT, NULL, "llama-model.cpp: load_tensors", "%s", f->incomplete);
    if (f->refused != NULL) return say(f, APR_LOADS_NOT, NULL, "llama-model.cpp", "%s", f->refused);
    if (lacks(f->tokenizer)) return say(f, APR_LOADS_NOT, NULL, "llama-vocab.cpp: load", "tokenizer.ggml.model is missing");
    if (!apr_has_word(k->llama_cpp_tokenizers, f->tokenizer))
        return say(f, APR_LOADS_NOT, NULL, "llama-vocab.cpp: load", "tokenizer.ggml.model '%s' is not one it knows", f->tokenizer);
    const bool splits = strcmp(f->tokenizer, "gpt2") == 0; /* by tokenizer.ggml.pre */
    if (splits && !lacks(f->pre) && !apr_has_word(k->llama_cpp_pre_tokenizers, f->pre))
        return say(f, APR_LOADS_NOT, NULL, "llama-vocab.cpp: tokenizer_pre", "tokenizer.ggml.pre '%s' is not one it knows", f->pre);
    if (f->differs != NULL) return say(f, APR_LOADS_BUT, NULL, "llama-model.cpp", "it computes something else: %s", f->differs);
    if (splits && lacks(f->pre))
        return say(f, APR_LOADS_BUT, NULL, "llama-vocab.cpp: tokenizer_pre",
                   "tokenizer.ggml.pre is missing: it splits texts by its default rule, which may differ from the model's");
    return (apr_peer_verdict){.verdict = APR_LOADS};
}

/* The first tensor of a GGUF whose type Python's gguf cannot decode (gguf/quants.py); NULL: none. */
static const apr_tensor *not_decoded_by_python(const apr_model *model)
{
    for (size_t i = 0; i < model->n_tensors; i++)
        if (model->tensors[i].dtype == APR_Q1_0 || model->tensors[i].dtype == APR_Q2_0) return &model->tensors[i];
    return NULL;
}

static const apr_kv *architecture_key(const facts *f, const char *name)
{
    char key[256];
    snprintf(key, sizeof key, "%s.%s", f->gguf_architecture, name);
    return apr_kv_find(&f->model->kv, key);
}

static bool is_architecture(const facts *f, const char *name) { return strcmp(f->gguf_architecture, name) == 0; }

/* A number of the model: from its key, or the size of the vocabulary. 0: not stated. */
static int64_t stated_number(const facts *f, const char *name)
{
    char key[256];
    int64_t value = 0;

    if (strcmp(name, "vocab_size") == 0) return f->model->hparams.vocab_size;
    snprintf(key, sizeof key, "%s.%s", f->gguf_architecture, name);
    return apr_kv_get_int(&f->model->kv, key, &value) ? value : 0;
}

/* Numbers that transformers' reader does not take from a GGUF, and what it has instead: the default of the family's configuration. Most
 * published models have just that (integrations/ggml.py, GGUF_CONFIG_MAPPING). Returns a clause; NULL: the model's numbers are those. */
static const char *number_not_taken(const facts *f)
{
    static const struct {
        const char *architecture, *key;
        int64_t assumed;
    } rows[] = {
        {"qwen3", "attention.key_length", 128},
        {"qwen2moe", "expert_feed_forward_length", 1408},
        {"qwen2moe", "expert_shared_feed_forward_length", 5632},
        {"qwen3moe", "expert_feed_forward_length", 768},
        {"gpt2", "context_length", 1024},
        {"gpt2", "vocab_size", 50257},
        {"starcoder2", "vocab_size", 49152},
    };
    static const char reads_head_width[] = " llama qwen3 qwen3moe gemma2 gemma3 gemma4 minimax-m2 t5 t5encoder gpt-oss ";
    const int64_t width = stated_number(f, "attention.key_length"), n_heads = stated_number(f, "attention.head_count");

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int64_t value = is_architecture(f, rows[i].architecture) ? stated_number(f, rows[i].key) : 0;
        if (value > 0 && value != rows[i].assumed)
            return apr_arena_print(f->arena, "%s is %lld, and it takes %lld whatever the file says", rows[i].key, (long long)value,
                                   (long long)rows[i].assumed);
    }
    /* a model of the architecture "llama" and the name "mistral" is one of Mistral's to it */
    const bool is_mistral = is_architecture(f, "llama") && strcmp(gguf_text(f, "general.name"), "mistral") == 0;
    if (width > 0 && n_heads > 0 && (is_mistral || !apr_has_word(reads_head_width, f->gguf_architecture)) &&
        width * n_heads != stated_number(f, "embedding_length"))
        return apr_arena_print(f->arena, "attention.key_length is %lld, and it takes embedding_length / head_count", (long long)width);
    return NULL;
}

/* Why transformers' reader of GGUFs ends with an error, as a clause; NULL: it does not. */
static const char *error_in_python(const facts *f)
{
    static const char *const numbers[] = {"feed_forward_length", "attention.head_count", "attention.head_count_kv"};
    const bool is_lfm2 = is_architecture(f, "lfm2"); /* the one that it reads heads by layer of */
    const int64_t phi3_padding = 32000;              /* the default of its configuration */

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers && !is_lfm2; i++) {
        const apr_kv *const key = architecture_key(f, numbers[i]);
        if (key != NULL && key->type == APR_KV_ARRAY)
            return apr_arena_print(f->arena, "%s.%s is a list, and it takes one number", f->gguf_architecture, numbers[i]);
    }
    if (is_architecture(f, "gpt-oss") && architecture_key(f, "rope.scaling.factor") != NULL)
        return "it reads gpt-oss.rope.scaling.factor in a way that NumPy 2.4 refuses";
    if (is_architecture(f, "llama") && stated_number(f, "expert_count") > 0)
        return "llama.expert_count: it takes a mixture of this architecture for a dense model, and finds no weights for that";
    if (is_architecture(f, "phi3") && f->model->hparams.vocab_size <= phi3_padding &&
        apr_kv_find(&f->model->kv, "tokenizer.ggml.padding_token_id") == NULL)
        return "tokenizer.ggml.padding_token_id is missing, and its own is beyond the vocabulary";
    if (is_lfm2 && apr_kv_find(&f->model->kv, "tokenizer.ggml.tokens") == NULL) return "tokenizer.ggml.tokens is missing";
    return number_not_taken(f);
}

static apr_peer_verdict judge_gguf_in_python(const facts *f)
{
    if (!apr_has_word(apr_known_names.transformers_ggufs, f->gguf_architecture))
        return say(f, APR_LOADS_NOT, to_folder, "integrations/ggml.py: GGUF_CONFIG_MAPPING",
                   "it reads GGUFs of few families, and '%s' is not one of them", f->gguf_architecture);
    const apr_tensor *const tensor = not_decoded_by_python(f->model);
    if (tensor != NULL)
        return say(f, APR_LOADS_NOT, to_folder, "gguf/quants.py", "tensor '%s' is %s, which it does not decode", tensor->name,
                   apr_dtypes[tensor->dtype].name);
    if (error_in_python(f) != NULL) return say(f, APR_LOADS_NOT, to_folder, "modeling_gguf_pytorch_utils.py", "%s", error_in_python(f));
    if (f->incomplete != NULL)
        return say(f, APR_LOADS_BUT, NULL, "modeling_gguf_pytorch_utils.py", "%s: it would be filled with random numbers", f->incomplete);
    return say(f, APR_LOADS_BUT, to_folder, "modeling_gguf_pytorch_utils.py", "all weights are decoded to floats in memory");
}

static apr_peer_verdict judge_transformers(const facts *f)
{
    if (f->model->format == APR_FORMAT_GGUF) return judge_gguf_in_python(f);
    if (!is_folder(f)) return other_format(f, to_folder, "folders of safetensors, and GGUF");
    if (lacks(f->model_type)) return say(f, APR_LOADS_NOT, NULL, "models/auto", "config.json states no model_type");
    if (f->quant_method[0] != '\0' && !apr_has_word(apr_known_names.transformers_quantizations, f->quant_method))
        return say(f, APR_LOADS_NOT, to_floats, "quantizers/auto.py: AUTO_QUANTIZER_MAPPING",
                   "quantization_config.quant_method '%s' is not one it knows", f->quant_method);
    if (!apr_has_word(apr_known_names.transformers_types, f->model_type))
        return f->has_custom_code ? say(f, APR_LOADS_BUT, NULL, "models/auto",
                                        "model_type '%s' needs the folder's own code (trust_remote_code)", f->model_type)
                                  : say(f, APR_LOADS_NOT, NULL, "models/auto", "model_type '%s' is not one it knows", f->model_type);
    if (f->incomplete != NULL)
        return say(f, APR_LOADS_BUT, NULL, "modeling_utils.py", "%s: it would be filled with random numbers", f->incomplete);
    if (f->quant_method[0] != '\0')
        return say(f, APR_LOADS_BUT, NULL, "quantizers/auto.py", "'%s' weights need the library of that layout, and often a GPU",
                   f->quant_method);
    return (apr_peer_verdict){.verdict = APR_LOADS};
}

static apr_peer_verdict judge_vllm(const facts *f)
{
    if (f->model->format == APR_FORMAT_GGUF)
        return apr_has_word(apr_known_names.transformers_ggufs, f->gguf_architecture)
                   ? say(f, APR_LOADS_BUT, to_folder, "layers/quantization/gguf.py",
                         "GGUF is experimental there, and needs the tokenizer by name")
                   : say(f, APR_LOADS_NOT, to_folder, "layers/quantization/gguf.py",
                         "it reads GGUFs of the families that transformers reads, and '%s' is not one of them", f->gguf_architecture);
    if (!is_folder(f)) return other_format(f, to_folder, "folders of safetensors, and GGUF");
    if (lacks(f->class)) return say(f, APR_LOADS_NOT, NULL, "models/registry.py", "config.json states no architectures");
    if (f->quant_method[0] != '\0' && !apr_has_word(apr_known_names.vllm_quantizations, f->quant_method))
        return say(f, APR_LOADS_NOT, to_floats, "layers/quantization", "quantization_config.quant_method '%s' is not one it knows",
                   f->quant_method);
    if (f->incomplete != NULL) return say(f, APR_LOADS_NOT, NULL, "model_loader/utils.py", "%s", f->incomplete);
    if (apr_has_word(apr_known_names.vllm_classes, f->class)) return (apr_peer_verdict){.verdict = APR_LOADS};
    if (apr_has_word(apr_known_names.transformers_types, f->model_type))
        return say(f, APR_LOADS_BUT, NULL, "models/registry.py", "%s is not one of its own: it is run by transformers inside it", f->class);
    return say(f, APR_LOADS_NOT, NULL, "models/registry.py", "architectures[0] '%s' is not one it knows", f->class);
}

static apr_peer_verdict judge_mlx(const facts *f)
{
    if (!is_folder(f)) return other_format(f, to_folder, "folders of safetensors");
    if (lacks(f->model_type)) return say(f, APR_LOADS_NOT, NULL, "utils.py: _get_classes", "config.json states no model_type");
    if (!apr_has_word(apr_known_names.mlx_types, f->model_type))
        return say(f, APR_LOADS_NOT, NULL, "utils.py: _get_classes", "model_type '%s' is not one it knows", f->model_type);
    if (f->incomplete != NULL) return say(f, APR_LOADS_NOT, NULL, "utils.py: load_weights", "%s", f->incomplete);
    if (f->quant_method[0] == '\0' || apr_has_word(apr_known_names.mlx_quantizations, f->quant_method))
        return (apr_peer_verdict){.verdict = APR_LOADS};
    return say(f, APR_LOADS_NOT, to_floats, "utils.py: quantization_config", "quantization_config.quant_method '%s' is not one it decodes",
               f->quant_method);
}

/* Both read APR files, with the same few types: formats/apr/apr_profile.c has the rules. */
static apr_peer_verdict judge_apr_reader(const facts *f)
{
    apr_error why = {0};

    if (f->model->format != APR_FORMAT_APR) return other_format(f, to_aprender, "APR");
    if (apr_check_aprender(f->model, &why) == APR_OK) return (apr_peer_verdict){.verdict = APR_LOADS};
    return say(f, APR_LOADS_NOT, to_aprender, "apr-format, realizar/src/apr", "%s", why.text);
}

apr_status apr_compat_of(apr_compat *compat, const apr_model *model, apr_error *err)
{
    static apr_peer_verdict (*const judges[APR_PEERS])(const facts *f) = {
        [APR_PEER_LLAMA_CPP] = judge_llama_cpp, [APR_PEER_TRANSFORMERS] = judge_transformers,
        [APR_PEER_VLLM] = judge_vllm,           [APR_PEER_MLX] = judge_mlx,
        [APR_PEER_APRENDER] = judge_apr_reader, [APR_PEER_REALIZAR] = judge_apr_reader,
    };
    *compat = (apr_compat){0};
    bool out_of_memory = false;
    facts f = {.model = model, .arena = &compat->arena, .out_of_memory = &out_of_memory};

    APR_TRY(read_facts(&f, err));
    for (int peer = 0; peer < APR_PEERS; peer++) compat->of[peer] = judges[peer](&f);
    return out_of_memory ? apr_no_memory(err, "the verdicts") : APR_OK;
}

void apr_compat_close(apr_compat *compat) { apr_arena_close(&compat->arena); }

/* Letters and digits in small letters: "llama.cpp" and "LLaMAcpp" are the same. */
static void plain_name(const char *name, char *plain, size_t n_bytes)
{
    size_t n = 0;
    for (; *name != '\0' && n + 1 < n_bytes; name++)
        if (isalnum((unsigned char)*name)) plain[n++] = (char)tolower((unsigned char)*name);
    plain[n] = '\0';
}

apr_peer apr_peer_find(const char *name)
{
    char wanted[64], own[64];

    plain_name(name, wanted, sizeof wanted);
    for (int peer = 0; peer < APR_PEERS; peer++) {
        plain_name(apr_peers[peer].name, own, sizeof own);
        if (strcmp(wanted, own) == 0 || (peer == APR_PEER_MLX && strcmp(wanted, "mlx") == 0)) return (apr_peer)peer;
    }
    return APR_PEERS;
}
