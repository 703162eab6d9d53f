/* known.c - see known.h. */
#include "tools/engine/compat/known.h"

const apr_known apr_known_names = {
    .llama_cpp_architectures =
        " afmoe apertus arcee arctic arwkv7 baichuan bailingmoe bailingmoe2 bert bitnet bloom chameleon chatglm codeshell cogvlm "
        "cohere2 cohere2moe command-r dbrx deci deepseek deepseek2 deepseek2-ocr deepseek32 deepseek4 dflash dots1 dream eagle3 "
        "ernie4_5 ernie4_5-moe eurobert exaone exaone-moe exaone4 falcon falcon-h1 gemma gemma-embedding gemma2 gemma3 gemma3n "
        "gemma4 gemma4-assistant glm-dsa glm4 glm4moe gpt-oss gpt2 gptj gptneox granite granitehybrid granitemoe grok grovemoe "
        "hunyuan-dense hunyuan-moe hunyuan_vl hy_v3 internlm2 jais jais2 jamba jina-bert-v2 jina-bert-v3 kimi-linear laguna "
        "lfm2 lfm2moe llada llada-moe llama llama-embed llama4 maincoder mamba mamba2 mellum mimo2 minicpm minicpm3 minimax-m2 "
        "minimax-m3 mistral3 mistral4 modern-bert mpt nanbeige nemotron nemotron_h nemotron_h_moe neo-bert nomic-bert "
        "nomic-bert-moe olmo olmo2 olmoe openelm orion paddleocr pangu-embedded phi2 phi3 phimoe plamo plamo2 plamo3 plm qwen "
        "qwen2 qwen2moe qwen2vl qwen3 qwen35 qwen35moe qwen3moe qwen3next qwen3tts qwen3vl qwen3vlmoe refact rnd1 rwkv6 "
        "rwkv6qwen2 rwkv7 seed_oss smallthinker smollm3 stablelm starcoder starcoder2 step35 t5 t5encoder talkie "
        "wavtokenizer-dec xverse ",
    .llama_cpp_tokenizers = " bert gemma4 gpt2 hybriddna llama no_vocab none plamo2 rwkv t5 whitespace ",
    .llama_cpp_pre_tokenizers =
        " a.x-4.0 afmoe bailingmoe bailingmoe2 bloom chameleon chatglm-bpe codeshell cohere2moe command-r dbrx deepseek-coder "
        "deepseek-llm deepseek-r1-qwen deepseek-v3 default exaone exaone-moe exaone4 f2llmv2 falcon falcon-h1 falcon3 gemma4 "
        "gigachat glm4 gpt-2 gpt-4o gpt3-finnish granite-docling granite-embed-multi-311m granite-embed-multi-97m grok-2 "
        "hunyuan hunyuan-dense jais jais-2 jina-de jina-es jina-v1-en jina-v2-code jina-v2-de jina-v2-es jina-v5-nano joyai-llm "
        "kanana2 kimi-k2 kormo laguna lfm2 llada-moe llama-bpe llama-v3 llama3 llama4 megrez mellum mellum2 midm-2.0 minerva-7b "
        "minicpm5 minimax-m2 modern-bert mpt olmo phi-2 pixtral poro-chat qwen2 qwen35 refact roberta-bpe sarvam-moe seed-coder "
        "smaug-bpe smollm solar-open stablelm2 starcoder superbpe talkie tekken tiny_aya trillion viking whitespace youtu ",
    .transformers_types =
        " afmoe apertus apertus1p5 apertus1p5_text arcee aria aria_text axk1 axk2 aya_vision bailing_hybrid bamba bart beam bert "
        "bert-generation big_bird bigbird_pegasus biogpt bitnet blenderbot blenderbot-small blip blip-2 bloom blt camembert "
        "chameleon codegen cohere cohere2 cohere2_moe cohere2_vision cohere_compass cohere_compass_text cosmos3_edge "
        "cosmos3_omni cpmant ctrl cwm data2vec-text dbrx deepseek_ocr2 deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4 "
        "deepseek_vl deepseek_vl_hybrid diffllama diffusion_gemma doge dory dots1 dots3_note dots3_note_text electra emu3 ernie "
        "ernie4_5 ernie4_5_moe ernie4_5_vl_moe evolla exaone exaone4 exaone4_5 exaone_moe falcon falcon_h1 falcon_mamba "
        "fast_vlm flex_olmo flint florence2 fuyu gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_text gemma4 gemma4_assistant "
        "gemma4_text gemma4_unified gemma4_unified_assistant gemma4_unified_text git glm glm4 glm46v glm4_moe glm4_moe_lite "
        "glm4v glm4v_moe glm5_next glm_moe_dsa glm_ocr glmga got_ocr2 gpt-sw3 gpt2 gpt_bigcode gpt_neo gpt_neox "
        "gpt_neox_japanese gpt_oss gptj granite granite4_vision granite_docling granite_swa granitemoe granitemoe_swa "
        "granitemoehybrid granitemoeshared helium hrm_text hunyuan_v1_dense hunyuan_v1_moe hunyuan_vl hy_v3 hy_v4 hy_v4_vl "
        "hyperclovax hyperclovax_vision_v2 idefics idefics2 idefics3 inkling2 inkling2_loop inkling2_loop_text inkling2_text "
        "inkling_mm_model inkling_text instructblip instructblipvideo internlm3 internvl iquestcoder jais2 jamba janus jetmoe "
        "kimi_k25 kimi_linear kolibri1 kosmos-2 kosmos-2.5 laguna lara_mini lfm2 lfm2_moe lfm2_vl lfm3 lfm3_vl lighton_ocr "
        "llama llama4 llama4_text llava llava_next llava_next_video llava_onevision longcat_flash mamba mamba2 marian mbart "
        "megatron-bert mellum mimo_v2_flash minicpm3 minicpm_ocr minicpmv4_6 minicpmv4_7 minimax minimax_m2 minimax_m3_vl "
        "minimax_m3_vl_text ministral ministral3 mistral mistral3 mistral4 mistral_large4 mixtral mllama modernbert-decoder "
        "molmo2 moshi moss_transcribe_diarize mpt muse_glimmer muse_spark musicgen musicgen_melody mvp nanochat nemotron "
        "nemotron_h nemotron_h_omni olmo olmo2 olmo3 olmo_hybrid olmoe openai-gpt opt ovis2 paddleocr_vl paligemma pegasus "
        "perception_lm persimmon phi phi3 phi4_multimodal phimoe pi0 pix2struct plbart pp_chart2table pp_formulanet prophetnet "
        "qianfan_ocr qwen2 qwen2_5_omni_thinker qwen2_5_vl qwen2_moe qwen2_vl qwen3 qwen3_5 qwen3_5_moe qwen3_5_moe_text "
        "qwen3_5_text qwen3_moe qwen3_next qwen3_omni_moe_thinker qwen3_vl qwen3_vl_moe qwen4_exp qwen4_exp_text "
        "recurrent_gemma reformer rembert roberta roberta-prelayernorm roc_bert roformer rwkv sarvam_mla sarvam_moe seed_oss "
        "shieldgemma2 smollm3 smolvlm solar_open stablelm starcoder2 step3p7 t5gemma2 trocr udop unlimited_ocr vaultgemma "
        "video_llama_3 video_llava vipllava vision-encoder-decoder whisper xglm xlm xlm-roberta xlm-roberta-xl xlnet xlstm xmod "
        "youtu zamba zamba2 zaya ",
    .transformers_quantizations =
        " aqlm auto-round awq bitnet bitsandbytes bitsandbytes_4bit bitsandbytes_8bit compressed-tensors eetq fbgemm_fp8 "
        "fouroversix fp8 fp_quant gemma gguf gptq higgs hqq metal mxfp4 mxfp8 nvfp4 quanto quark sinq spqr torchao vptq ",
    .transformers_ggufs =
        " bloom deci falcon gemma2 gemma3 gemma4 gpt-oss gpt2 lfm2 llama mamba minimax-m2 mistral nemotron phi3 qwen2 qwen2moe "
        "qwen3 qwen3moe stablelm starcoder2 t5 t5encoder umt5 ",
    .vllm_classes =
        " AfmoeForCausalLM ApertusForCausalLM AquilaForCausalLM AquilaModel ArceeForCausalLM ArcticForCausalLM "
        "AriaForConditionalGeneration AyaVisionForConditionalGeneration BaiChuanForCausalLM BaichuanForCausalLM "
        "BailingMoeForCausalLM BailingMoeV2ForCausalLM BambaForCausalLM BloomForCausalLM ChatGLMForConditionalGeneration "
        "ChatGLMModel Cohere2ForCausalLM Cohere2VisionForConditionalGeneration CohereForCausalLM CwmForCausalLM DbrxForCausalLM "
        "DeciLMForCausalLM DeepseekForCausalLM DeepseekV2ForCausalLM DeepseekV32ForCausalLM DeepseekV3ForCausalLM "
        "Dots1ForCausalLM Ernie4_5ForCausalLM Ernie4_5_MoeForCausalLM Ernie4_5_VLMoeForConditionalGeneration Exaone4ForCausalLM "
        "ExaoneForCausalLM FalconForCausalLM FalconH1ForCausalLM FalconMambaForCausalLM FlexOlmoForCausalLM GLM4VForCausalLM "
        "GPT2LMHeadModel GPTBigCodeForCausalLM GPTJForCausalLM GPTNeoXForCausalLM Gemma2ForCausalLM Gemma3ForCausalLM "
        "Gemma3ForConditionalGeneration Gemma3nForCausalLM Gemma3nForConditionalGeneration GemmaForCausalLM Glm4ForCausalLM "
        "Glm4MoeForCausalLM Glm4vForConditionalGeneration Glm4vMoeForConditionalGeneration GlmForCausalLM GptOssForCausalLM "
        "GraniteForCausalLM GraniteMoeForCausalLM GraniteMoeHybridForCausalLM GraniteMoeSharedForCausalLM GritLM "
        "Grok1ModelForCausalLM HunYuanDenseV1ForCausalLM HunYuanMoEV1ForCausalLM Idefics3ForConditionalGeneration "
        "InternLM2ForCausalLM InternLM3ForCausalLM InternLMForCausalLM InternVLChatModel InternVLForConditionalGeneration "
        "JAISLMHeadModel Jais2ForCausalLM JambaForCausalLM KimiLinearForCausalLM KimiVLForConditionalGeneration "
        "LLaMAForCausalLM Lfm2ForCausalLM Lfm2MoeForCausalLM Llama4ForCausalLM Llama4ForConditionalGeneration LlamaForCausalLM "
        "LlavaForConditionalGeneration LlavaNextForConditionalGeneration LlavaOnevisionForConditionalGeneration "
        "LongcatFlashForCausalLM MPTForCausalLM Mamba2ForCausalLM MambaForCausalLM MiMoForCausalLM MiMoV2FlashForCausalLM "
        "MiniCPM3ForCausalLM MiniCPMForCausalLM MiniCPMO MiniCPMV MiniMaxForCausalLM MiniMaxM1ForCausalLM MiniMaxM2ForCausalLM "
        "MiniMaxText01ForCausalLM Mistral3ForConditionalGeneration MistralForCausalLM MistralLarge3ForCausalLM "
        "MixtralForCausalLM MolmoForCausalLM MptForCausalLM NemotronForCausalLM NemotronHForCausalLM OPTForCausalLM "
        "Olmo2ForCausalLM Olmo3ForCausalLM OlmoForCausalLM OlmoeForCausalLM OrionForCausalLM OuroForCausalLM Ovis Ovis2_5 "
        "PaliGemmaForConditionalGeneration PanguEmbeddedForCausalLM PanguProMoEV2ForCausalLM PanguUltraMoEForCausalLM "
        "PersimmonForCausalLM Phi3ForCausalLM Phi3VForCausalLM Phi4MMForCausalLM PhiForCausalLM PhiMoEForCausalLM "
        "PixtralForConditionalGeneration Plamo2ForCausalLM Plamo3ForCausalLM QWenLMHeadModel Qwen2ForCausalLM "
        "Qwen2MoeForCausalLM Qwen2VLForConditionalGeneration Qwen2_5_VLForConditionalGeneration Qwen3ForCausalLM "
        "Qwen3MoeForCausalLM Qwen3NextForCausalLM Qwen3VLForConditionalGeneration Qwen3VLMoeForConditionalGeneration "
        "RWForCausalLM SeedOssForCausalLM SmolLM3ForCausalLM SmolVLMForConditionalGeneration SolarForCausalLM "
        "StableLMEpochForCausalLM StableLmForCausalLM Starcoder2ForCausalLM Step3TextForCausalLM TeleChat2ForCausalLM "
        "TeleChatForCausalLM TeleFLMForCausalLM XverseForCausalLM Zamba2ForCausalLM ",
    .vllm_quantizations =
        " aqlm auto-round awq awq_marlin bitblas bitsandbytes compressed-tensors deepgemm_fp8 deepspeedfp experts_int8 "
        "fbgemm_fp8 fp8 gguf gptq gptq_bitblas gptq_marlin gptq_marlin_24 hqq ipex marlin modelopt modelopt_fp4 moe_wna16 mxfp4 "
        "neuron_quant ptpc_fp8 qqq quark torchao tpu_int8 ",
    .mlx_types = " Klear afm7 afmoe apertus baichuan_m1 bailing_moe bailing_moe_linear bitnet cohere cohere2 dbrx deepseek deepseek_v2 "
                 "deepseek_v3 deepseek_v32 dots1 ernie4_5 ernie4_5_moe exaone exaone4 exaone_moe falcon_h1 falcon_mamba gemma gemma2 "
                 "gemma3 gemma3_text gemma3n gemma4 gemma4_text gemma4_unified glm glm4 glm4_moe glm4_moe_lite glm_moe_dsa gpt2 "
                 "gpt_bigcode gpt_neox gpt_oss granite granitemoe granitemoehybrid helium hunyuan hunyuan_v1_dense internlm2 internlm3 "
                 "iquestcoder iquestloopcoder jamba joyai_llm_flash kimi_k2 kimi_k25 kimi_linear kimi_vl laguna lfm2 lfm2-vl lfm2_moe "
                 "lille-130m llama llama4 llama4_text llava longcat_flash longcat_flash_ngram mamba mamba2 mellum mimo mimo_v2_flash "
                 "minicpm minicpm3 minimax minimax_m2 ministral3 mistral mistral3 mixtral nanochat nemotron nemotron-nas nemotron_h olmo "
                 "olmo2 olmo3 olmoe openelm phi phi-msft phi3 phi3small phimoe phixtral pixtral plamo plamo2 qwen qwen2 qwen2_5_vl "
                 "qwen2_moe qwen2_vl qwen3 qwen3_5 qwen3_5_moe qwen3_moe qwen3_next qwen3_vl qwen3_vl_moe recurrent_gemma rwkv7 seed_oss "
                 "smollm3 solar_open stablelm starcoder2 step3p5 telechat3 youtu_llm ",
    .mlx_quantizations = " awq bitnet compressed-tensors gptq mxfp4 ",
};
