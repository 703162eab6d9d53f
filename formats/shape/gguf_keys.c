/* gguf_keys.c - makes the keys of a GGUF from hyperparameters and tokenizer: those that llama.cpp's converter writes, in its order. */
#include "formats/shape/gguf_keys.h"
#include "formats/shape/gguf_hparams.h"
#include "formats/vocab/gguf_vocab.h"

#include <stdio.h>

/* The keys of architectures without their own list (apr_family_gguf.keys). */
static const char usual_keys[] =
    " block_count context_length embedding_length feed_forward_length attention.head_count attention.head_count_kv"
    " rope.dimension_sections rope.scaling rope.freq_base rope.freq_base_swa attention.layer_norm_rms_epsilon"
    " attention.layer_norm_epsilon expert_count expert_used_count expert_group_count expert_group_used_count"
    " expert_gating_func attention.key_length attention.value_length ";
/* The same for apr_family_gguf.more_keys. */
static const char other_keys[] = " attention.sliding_window expert_feed_forward_length expert_shared_feed_forward_length ssm.conv_kernel"
                                 " ssm.state_size ssm.group_count ssm.time_step_rank ssm.inner_size full_attention_interval ";

static bool is_written(const apr_key_writer *w, const char *name)
{
    char key[APR_MAX_GGUF_KEY + APR_MAX_GGUF_ARCH];
    snprintf(key, sizeof key, "%s.%s", w->arch, name);
    return apr_kv_find(w->kv, key) != NULL;
}

/* Keys that the lists need not name: vocab_size without a tokenizer, and rope.dimension_count if only part of each head is rotated. */
static apr_status put_rest(const apr_key_writer *w, bool lacks_vocab)
{
    const apr_hparams *const h = w->h;
    const bool rotates_part = h->rotary_dim > 0 && h->rotary_dim != h->head_dim && w->facts->nope != APR_NOPE_ALL;

    if (rotates_part && !is_written(w, "rope.dimension_count")) APR_TRY(apr_gguf_put_keys(w, "rope.dimension_count"));
    return lacks_vocab && !is_written(w, "vocab_size") ? apr_gguf_put_keys(w, "vocab_size") : APR_OK;
}

apr_status apr_gguf_keys(const apr_hparams *h, const apr_vocab *vocab, const char *name, int64_t file_type, apr_kv_list *kv, apr_error *err)
{
    const char *const arch = apr_gguf_architecture(h);
    const bool lacks_vocab = vocab->kind == APR_VOCAB_NONE || vocab->n_tokens == 0, is_named = arch[0] != '\0';
    const apr_family_gguf *const facts = apr_family_gguf_of(apr_family_find(h->architecture));
    const apr_key_writer w = {.arch = arch, .h = h, .facts = facts, .kv = kv, .err = err};

    if (is_named) APR_TRY(apr_kv_set_string(kv, "general.architecture", apr_str_of(arch), err));
    APR_TRY(apr_kv_set_string(kv, "general.type", apr_str_of("model"), err));
    if (name != NULL) APR_TRY(apr_kv_set_string(kv, "general.name", apr_str_of(name), err));
    if (is_named) APR_TRY(apr_gguf_put_keys(&w, facts->keys != NULL ? facts->keys : usual_keys));
    APR_TRY(apr_kv_set_int(kv, "general.file_type", APR_KV_U32, file_type, err));
    if (is_named) APR_TRY(apr_gguf_put_keys(&w, facts->more_keys != NULL ? facts->more_keys : other_keys));
    if (is_named) APR_TRY(put_rest(&w, lacks_vocab));
    APR_TRY(apr_kv_set_int(kv, "general.quantization_version", APR_KV_U32, 2, err));
    if (is_named) APR_TRY(apr_gguf_aprkit_keys_write(h, lacks_vocab ? 0 : vocab->n_tokens, kv, err));
    return apr_gguf_vocab_keys(vocab, kv, err);
}
