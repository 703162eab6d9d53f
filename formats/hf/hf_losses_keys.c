/* hf_losses_keys.c - lists the keys of a GGUF that a checkpoint cannot express: those that its hyperparameters do not give back. */
#include "formats/hf/hf_losses.h"
#include "formats/shape/gguf_hparams.h"
#include "formats/tensor/metadata.h"

#include <stdio.h>
#include <string.h>

typedef struct checking {
    const apr_model *layout;
    apr_losses *losses;
    apr_error *err;
    apr_kv_list made; /* the keys that the hyperparameters give */
} checking;

#define LOSS(c, ...) APR_TRY(apr_loss_add((c)->losses, APR_LOST, (c)->err, __VA_ARGS__))

bool apr_hf_is_text(apr_str s) { return apr_str_is_utf8(s) && (s.n_bytes == 0 || memchr(s.text, '\0', s.n_bytes) == NULL); }

static bool is_any_of(apr_str s, const char *const *texts)
{
    while (*texts != NULL && !apr_str_is(s, *texts)) texts++;
    return *texts != NULL;
}

/* Names of ARCH.NAME keys that hyperparameters are read from, in addition to those of the hyperparameter table. */
static const char *const understood[] = {"vocab_size",
                                         "attention.value_length",
                                         "attention.sliding_window_pattern",
                                         "rope.dimension_sections",
                                         "rope.scaling.type",
                                         "rope.scaling.factor",
                                         "rope.scaling.original_context_length",
                                         "rope.scaling.finetuned",
                                         "rope.scaling.attn_factor",
                                         "rope.scaling.yarn_attn_factor",
                                         "rope.scaling.yarn_beta_fast",
                                         "rope.scaling.yarn_beta_slow",
                                         "ssm.inner_size",
                                         NULL};
static const char *const understood_of_tokenizer[] = {"tokenizer.ggml.model",
                                                      "tokenizer.ggml.pre",
                                                      "tokenizer.ggml.tokens",
                                                      "tokenizer.ggml.token_type",
                                                      "tokenizer.ggml.scores",
                                                      "tokenizer.ggml.merges",
                                                      "tokenizer.ggml.bos_token_id",
                                                      "tokenizer.ggml.eos_token_id",
                                                      "tokenizer.ggml.unknown_token_id",
                                                      "tokenizer.ggml.padding_token_id",
                                                      "tokenizer.ggml.eot_token_id",
                                                      "tokenizer.ggml.eom_token_id",
                                                      "tokenizer.ggml.add_bos_token",
                                                      "tokenizer.ggml.add_eos_token",
                                                      "tokenizer.ggml.add_space_prefix",
                                                      "tokenizer.chat_template",
                                                      NULL};
static const char *const about_the_file[] = {"general.file_type", "general.quantization_version", "general.alignment", NULL};

static bool is_in_table(apr_str name)
{
    for (size_t i = 0; i < apr_n_hparam_fields; i++)
        if (apr_hparam_fields[i].gguf_key[0] != '\0' && apr_str_is(name, apr_hparam_fields[i].gguf_key)) return true;
    return false;
}

/* Element i of the array, or the number itself; bools are 0 and 1. */
static double number_at(const apr_kv_list *list, const apr_kv *item, uint64_t i)
{
    double real = 0.0;
    bool flag;

    if (item->type == APR_KV_ARRAY) {
        real = apr_kv_elem_real(item, i);
        return real != 0.0 ? real : (double)apr_kv_elem_int(item, i);
    }
    if (apr_kv_get_bool(list, item->key.text, &flag)) return flag;
    apr_kv_get_real(list, item->key.text, &real);
    return real;
}

static bool is_uniform(const apr_kv *item)
{
    for (uint64_t i = 1; item->type == APR_KV_ARRAY && i < item->n_elems; i++)
        if (apr_kv_elem_int(item, i) != apr_kv_elem_int(item, 0)) return false;
    return true;
}

static bool is_of_texts(const apr_kv *item)
{
    return item->type == APR_KV_STRING || (item->type == APR_KV_ARRAY && item->elem_type == APR_KV_STRING);
}

static bool same_text(const apr_kv *a, const apr_kv *b)
{
    const apr_str x = a->value.string, y = b->value.string;
    if (a->type != APR_KV_STRING || b->type != APR_KV_STRING || x.n_bytes != y.n_bytes) return false;
    return x.n_bytes == 0 || memcmp(x.text, y.text, x.n_bytes) == 0;
}

/* True: the hyperparameters give that key with that value. One number equals a list of the same number. */
static bool is_given(const checking *c, const apr_kv *item)
{
    const apr_kv *const made = apr_kv_find(&c->made, item->key.text);

    if (made == NULL) return false;
    if (is_of_texts(item) || is_of_texts(made)) return same_text(item, made);
    const uint64_t n = item->type == APR_KV_ARRAY ? item->n_elems : 1, m = made->type == APR_KV_ARRAY ? made->n_elems : 1;
    if (m != n && m != 1) return false;
    for (uint64_t i = 0; i < n; i++)
        if (number_at(&c->layout->kv, item, i) != number_at(&c->made, made, m == 1 ? 0 : i)) return false;
    return true;
}

static apr_status check_architecture_key(const checking *c, const apr_kv *item, apr_str name)
{
    const bool in_table = is_in_table(name), is_zero = item->type != APR_KV_ARRAY && item->type != APR_KV_STRING && item->value.bits == 0;
    int64_t value_length;

    if (is_given(c, item)) return APR_OK; /* it follows from the hyperparameters, which are compared separately */
    if (in_table && !is_uniform(item)) LOSS(c, "'%s' differs from layer to layer, which config.json cannot express", item->key.text);
    if (apr_str_is(name, "attention.value_length") && apr_kv_get_int(&c->layout->kv, item->key.text, &value_length) &&
        value_length != c->layout->hparams.head_dim)
        LOSS(c, "'%s' is %lld and heads are %lld wide, which config.json cannot express", item->key.text, (long long)value_length,
             (long long)c->layout->hparams.head_dim);
    if (!in_table && !is_zero && !is_any_of(name, understood)) LOSS(c, "config.json has no place for '%.100s'", item->key.text);
    return APR_OK;
}

/* Keys that have no place in a checkpoint, and that change no number. */
typedef struct left_out {
    char text[300];
    size_t n;
} left_out;

static void leave_out(left_out *l, apr_str key)
{
    const size_t at = strlen(l->text);
    if (l->n++ < 5)
        snprintf(l->text + at, sizeof l->text - at, "%s%.*s", l->n > 1 ? ", " : "", key.n_bytes < 50 ? (int)key.n_bytes : 50, key.text);
}

static apr_status check_key(const checking *c, const apr_kv *item, apr_str arch, left_out *left)
{
    const apr_str key = item->key;
    const bool is_arch =
        key.n_bytes > arch.n_bytes && arch.n_bytes > 0 && memcmp(key.text, arch.text, arch.n_bytes) == 0 && key.text[arch.n_bytes] == '.';

    if (is_arch) return check_architecture_key(c, item, (apr_str){key.text + arch.n_bytes + 1, key.n_bytes - arch.n_bytes - 1});
    if (apr_str_begins_with(key, "general.") && item->type == APR_KV_STRING) {
        if (!apr_hf_is_text(item->value.string)) LOSS(c, "'%.100s' is not UTF-8 text, which JSON cannot hold", key.text);
        return APR_OK;
    }
    if (apr_str_is(key, "tokenizer.chat_template") && item->type == APR_KV_STRING && !apr_hf_is_text(item->value.string))
        LOSS(c, "the chat template is not UTF-8 text, which JSON cannot hold");
    const bool is_template = apr_named_template(item) != NULL || apr_str_is(key, "tokenizer.chat_templates");
    const bool is_known = is_template || apr_str_begins_with(key, "aprkit.") || apr_str_begins_with(key, "tokenizer.aprkit.") ||
                          is_any_of(key, about_the_file) || is_any_of(key, understood_of_tokenizer);
    if (!is_known) leave_out(left, key);
    return APR_OK;
}

/* Makes the keys of a GGUF with these hyperparameters; none if it cannot be made. */
static apr_status make_keys(checking *c)
{
    static const apr_vocab none = {.kind = APR_VOCAB_NONE};

    c->made.arena = &c->losses->arena;
    const apr_status status = apr_gguf_keys(&c->layout->hparams, &none, "", 0, &c->made, NULL);
    if (status == APR_E_MEMORY) return apr_no_memory(c->err, "the keys");
    return APR_OK;
}

apr_status apr_hf_key_losses(const apr_model *layout, apr_losses *losses, apr_error *err)
{
    checking c = {.layout = layout, .losses = losses, .err = err};
    const apr_kv_list *const kv = &layout->kv;
    apr_str arch = {"", 0};
    left_out left = {{0}, 0};
    char others[40] = "";

    if (layout->origin.format != APR_FORMAT_GGUF || apr_model_attachment(layout, "config.json") != NULL) return APR_OK;
    apr_kv_get_string(kv, "general.architecture", &arch);
    APR_TRY(make_keys(&c));
    for (size_t i = 0; i < kv->n_items; i++) APR_TRY(check_key(&c, &kv->items[i], arch, &left));
    if (left.n > 5) snprintf(others, sizeof others, " and %zu more", left.n - 5);
    return left.n > 0 ? apr_loss_add(losses, APR_NOTE, err, "a checkpoint has no place for the keys %s%s", left.text, others) : APR_OK;
}
