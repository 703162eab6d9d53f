/* test_text_part.c - which names are the text model's, under which prefix, and what the others are. */
#include "formats/shape/text_part.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void a_prefix_is_taken_off(void **state)
{
    static const struct {
        const char *name, *plain;
    } cases[] = {
        {"model.norm.weight", "model.norm.weight"},
        {"lm_head.weight", "lm_head.weight"},
        {"model.lm_head.weight", "lm_head.weight"},
        {"language_model.model.norm.weight", "model.norm.weight"},
        {"language_model.lm_head.weight", "lm_head.weight"},
        {"model.language_model.norm.weight", "model.norm.weight"},
        {"model.language_model.lm_head.weight", "lm_head.weight"},
        {"model.text_model.layers.0.input_layernorm.weight", "model.layers.0.input_layernorm.weight"},
        {"thinker.model.layers.0.input_layernorm.weight", "model.layers.0.input_layernorm.weight"},
        {"llm.model.embed_tokens.weight", "model.embed_tokens.weight"},
        {"language_model.backbone.layers.0.norm.weight", "backbone.layers.0.norm.weight"},
        {"vision_model.model.layers.0.self_attn.q_proj.bias", "vision_model.model.layers.0.self_attn.q_proj.bias"},
        {"blk.0.attn_norm.weight", "blk.0.attn_norm.weight"},
        {"", ""},
    };
    apr_arena arena = {0};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(apr_text_name_print(cases[i].name, &arena), cases[i].plain);
    apr_arena_close(&arena);
}

static apr_tensor named(const char *name) { return (apr_tensor){.name = name, .rank = 1, .dims = {1}}; }

static void every_tensor_is_of_one_part(void **state)
{
    static const struct {
        const char *name;
        apr_model_part part;
    } cases[] = {
        {"language_model.model.layers.1.self_attn.q_proj.weight", APR_PART_TEXT},
        {"layers.1.self_attn.q_proj.weight", APR_PART_TEXT},
        {"model.layers.2.self_attn.q_proj.weight", APR_PART_TEXT}, /* a layer too many, and nothing that predicts ahead */
        {"model.layers.3.self_attn.q_proj.weight", APR_PART_MTP},
        {"model.layers.3.eh_proj.weight", APR_PART_MTP},
        {"mtp.layers.0.fc.weight", APR_PART_MTP},
        {"model.mtp_block.0.mlp.up_proj.weight", APR_PART_MTP},
        {"language_model.mtp.norm.weight", APR_PART_MTP},
        {"vision_tower.encoder.layers.0.self_attn.q_proj.bias", APR_PART_TOWER},
        {"vision_model.model.layers.0.self_attn.q_proj.bias", APR_PART_TOWER},
        {"model.visual.blocks.0.attn.qkv.bias", APR_PART_TOWER},
        {"model.audio_tower.layers.0.norm.weight", APR_PART_TOWER},
        {"model.embed_vision.embedding_projection.weight", APR_PART_TOWER},
        {"multi_modal_projector.linear_1.weight", APR_PART_TOWER},
        {"mm_projector.proj.0.weight", APR_PART_TOWER},
        {"model.connector.modality_projection.proj.weight", APR_PART_TOWER},
        {"vision_encoder.transformer.layers.0.attention.wq.weight", APR_PART_TOWER},
        {"vision_language_adapter.w_in.weight", APR_PART_TOWER},
        {"image_newline", APR_PART_TOWER},
        {"model.layers.0.self_attn.rotary_emb.inv_freq", APR_PART_BUFFER},
        {"rope_freqs.weight", APR_PART_BUFFER},
        {"transformer.h.0.attn.bias", APR_PART_BUFFER},
        {"gpt_neox.layers.0.attention.masked_bias", APR_PART_BUFFER},
        {"transformer.h.0.attn.c_attn.bias", APR_PART_TEXT},
        {"score.weight", APR_PART_TEXT},
    };
    apr_tensor tensors[] = {named("model.layers.3.enorm.weight")};
    apr_model model = {.tensors = tensors, .n_tensors = 1, .hparams = {.architecture = "llama", .num_layers = 2}};

    (void)state;
    assert_int_equal(apr_model_index_names(&model, NULL), APR_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (apr_part_of(&model, cases[i].name) != cases[i].part) fail_msg("%s is %d", cases[i].name, apr_part_of(&model, cases[i].name));
    model.hparams.num_nextn_layers = 1; /* as config.json says it */
    assert_int_equal(apr_part_of(&model, "model.layers.2.self_attn.q_proj.weight"), APR_PART_MTP);
    apr_arena_close(&model.arena);
}

static void a_gguf_names_towers_in_its_own_way(void **state)
{
    apr_model model = {.hparams = {.architecture = "gemma3", .num_layers = 2}, .origin = {.format = APR_FORMAT_GGUF}};

    (void)state;
    assert_int_equal(apr_model_index_names(&model, NULL), APR_OK);
    assert_int_equal(apr_part_of(&model, "v.blk.0.attn_q.bias"), APR_PART_TOWER);
    assert_int_equal(apr_part_of(&model, "mm.0.weight"), APR_PART_TOWER);
    assert_int_equal(apr_part_of(&model, "blk.0.attn_q.weight"), APR_PART_TEXT);
    assert_int_equal(apr_part_of(&model, "rope_freqs.weight"), APR_PART_BUFFER);
    apr_arena_close(&model.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prefix_is_taken_off),
        cmocka_unit_test(every_tensor_is_of_one_part),
        cmocka_unit_test(a_gguf_names_towers_in_its_own_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
