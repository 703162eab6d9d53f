/* foreign_words.c - the table of other programs' options and verbs. The first row that applies is used. */
#include "tools/cli/foreign_words.h"

#include <string.h>

#define ALIAS     APR_FOREIGN_ALIAS
#define TURNED    APR_FOREIGN_TRANSLATED
#define NOTHING   APR_FOREIGN_NO_EFFECT
#define NAMED     APR_FOREIGN_SUGGESTED
#define ELSEWHERE APR_FOREIGN_UNSUPPORTED

#define SHELLS  "make install, and packages, put the completions of bash, zsh and fish where these look; no command prints them"
#define SERVERS "llama-server reads the GGUFs that aprconv writes, vLLM reads the checkpoints"

const apr_foreign_word apr_foreign_words[] = {
    /* --- models and outputs --- */
    {"r", NULL, ALIAS, 'v', "-m|--model|--model-path|-model|--hf-model", "<%"},
    {"p", NULL, ALIAS, 'v', "-m|--model|--model-path|-model|--hf-model", "<%"},
    {"cq", NULL, ALIAS, 'v', "-i|--in|--input|--infile|--model|--src", "<%"},
    {"cq", NULL, ALIAS, 'v', "-o|--output|--outfile|--out|--output-file|--dst|--output-dir|--outdir|-O|--save-dir", ">%"},
    {"r", "ppl kld imatrix", ALIAS, 'v', "-f|--file|--text|--text-file", ">%"},
    {"r", "batch", ALIAS, 'v', "-i|--input|--input-file|-f|--file", ">%"},
    {"r", "batch", ALIAS, 'v', "--out|--outfile|--output-file|--outputs", "--output %"},
    {"r", "verify kld", ALIAS, 'v', "--reference|--base|--original|--against|--kl-divergence-base", "--ref %"},
    {"r", "-", NAMED, 'v', "-o|--output|--outfile|--out", "the text goes to stdout; add > % to write it to a file => "},
    {"*", NULL, ALIAS, 'v', "--adapter|--lora-adapter", "--lora %"},
    {"*", NULL, NAMED, 'v', "--lora-scaled|--lora-base", "write the factor after the adapter, as in --lora FILE:0.5 => --lora %"},
    {"*", NULL, ELSEWHERE, 'v', "-hf|-hfr|--hf-repo|--hf|--repo-id|--from-hf",
     "aprkit downloads nothing; run hf download %, then aprrun %"},
    {"*", NULL, ELSEWHERE, 'v', "-hff|--hf-file|-mu|--model-url|--url|--hf-token|-hft|--token|--model-draft-url",
     "aprkit downloads nothing; run hf download ORG/NAME FILE, then give the model as ORG/NAME"},
    {"r", NULL, ELSEWHERE, 'v', "-md|--model-draft|--spec-draft-model|--draft|--draft-max|--speculative-model",
     "speculative decoding is not supported; " SERVERS},

    /* --- types --- */
    {"*", NULL, ALIAS, 'v',
     "--type|--outtype|--out-type|--dtype|--ftype|--quantize|--quant|--quantization|--qtype|--q|--output-type|--torch-dtype", "--to %"},
    {"*", NULL, ALIAS, 'v',
     "--to|--type|--outtype|--out-type|--ftype|--quantize|--quant|--quantization|--qtype|--output-type|--torch-dtype", "--dtype %"},
    {"q", NULL, ALIAS, 'v', "--tensor-type|--override-tensor-type", "--tensor %"},
    {"q", NULL, NAMED, 'v', "--tensor-type-file", "give each rule with its own --tensor REGEX=TYPE => "},
    {"cq", NULL, NAMED, 0, "--keep-split", "aprkit writes a GGUF as one file; --max-shard SIZE splits a checkpoint => "},
    {"cq", NULL, ALIAS, 'v', "--split-max-size|--shard-size|--max-shard-size", "--max-shard %"},
    {"cq", NULL, NAMED, 'v', "--split-max-tensors", "shards are limited by their size: --max-shard SIZE => "},
    {"q", NULL, ALIAS, 0, "--requantize|--allow-requant", "--allow-requantize"},
    {"q", NULL, NAMED, 'v', "--include-weights|--exclude-weights|--prune-layers",
     "the whole imatrix is used and no layer is removed; --tensor REGEX=TYPE chooses types by name => "},
    {"*", NULL, NAMED, 'v', "--override-kv", "metadata is copied unchanged, keys cannot be overridden => "},
    {"q", NULL, ALIAS, 'v', "--calib|--calib-data|--calibration-data|--calibration-file|--dataset", "--calibration %"},
    {"q", NULL, ALIAS, 'v', "--nsamples|--n-samples|--calib-tokens", "--tokens %"},
    {"q", NULL, ALIAS, 0, "--gptq|--ldlq", "--method ldlq"},
    {"q", NULL, ALIAS, 'v', "--bpw|--target-bits|--bits-per-weight", "--target-bpw %"},
    {"q", NULL, TURNED, 'v', "--bits|-b|--wbits|--nbits", "!bits"},
    {"q", NULL, NAMED, 'v', "--group-size|-g|--groupsize", "the group size is the type's block size, 32 or 256 values => "},
    {"q", NULL, ALIAS, 0, "--list-types|--types|--show-types|-l", "--list"},
    {"c", NULL, NOTHING, 0, "--bigendian|--big-endian", "GGUFs are written for little-endian machines"},
    {"c", NULL, NOTHING, 0, "--use-temp-file|--no-lazy|--lazy|--no-nvme|--fp8-as-q8", "memory use stays small for models of any size"},
    {"c", NULL, NAMED, 'v', "--vocab-type|--model-name|--metadata|--mistral-format|--pad-vocab",
     "this is read from the model's own files => "},
    {"c", NULL, NAMED, 0, "--vocab-only|--remote|--no-tensor-first-split", "aprconv converts only language models in local files => "},
    {"c", NULL, ALIAS, 0, "--overwrite|--yes|-y|--force-overwrite", "--force"},
    {"q", NULL, ALIAS, 0, "--overwrite|--yes|-y|--force-overwrite", "--force"},
    {"cq", NULL, ALIAS, 0, "--dryrun|--dry|--simulate|--no-write|--just-print", "--dry-run"},
    {"cq", NULL, ALIAS, 0, "--continue|--restart", "--resume"},
    {"c", "diff", ALIAS, 'v', "--tol|--rtol|--atol|--eps|--epsilon", "--tolerance %"},
    {"c", "diff", ALIAS, 0, "--strict|--bitwise|--bytes", "--exact"},
    {"c", "show", ALIAS, 'v', "--grep|--match|--tensor|--pattern", "--filter %"},
    {"c", "show", NOTHING, 0, "--tensors|--metadata|--all|-a|-l|-la|--long", "this is shown anyway"},
    {"c", "show", ALIAS, 0, "--json-array|--as-json", "--json"},
    {"c", "show", ALIAS, 0, "--header|--no-tensor-list|--summary", "--no-tensors"},

    {"c", NULL, NOTHING, 0, "--to=gguf|--to=apr|--to=hf|--to=st|--to=safetensors|--to=GGUF",
     "OUT's file name extension decides the format"},
    {"c", NULL, NOTHING, 'v', "--from|--from-format|--input-format|--to-format|--output-format|--format",
     "IN's content and OUT's file name extension decide the formats"},

    /* --- sampling --- */
    {"r", NULL, ALIAS, 'v',
     "-n|--n-predict|--predict|--max-tokens|--max-new-tokens|--num-predict|--n-tokens|--num-tokens|--n|-np|--npredict|--max-length",
     "--tokens %"},
    {"r", NULL, ALIAS, 'v', "--temperature|-temp|-T", "--temp %"},
    {"r", NULL, ALIAS, 'v', "-s|--rng-seed|--random-seed", "--seed %"},
    {"r", NULL, ALIAS, 'v', "--topp|-topp|--nucleus|--p", "--top-p %"},
    {"r", NULL, ALIAS, 'v', "--topk|-topk|-k", "--top-k %"},
    {"r", NULL, ALIAS, 'v', "--minp|-minp", "--min-p %"},
    {"r", NULL, ALIAS, 'v', "--repetition-penalty|--repeat-pen|--rep-pen|--repeat-penality", "--repeat-penalty %"},
    {"r", NULL, ALIAS, 'v', "--repeat-last-n|--penalty-last-n|--rep-pen-range", "--repeat-last %"},
    {"r", NULL, ALIAS, 'v', "--presence-pen", "--presence-penalty %"},
    {"r", NULL, ALIAS, 'v', "--frequency-pen", "--frequency-penalty %"},
    {"r", NULL, ALIAS, 'v', "-r|--reverse-prompt|--stop-sequence|--stop-string|--stop-words|--antiprompt", "--stop %"},
    {"r", NULL, TURNED, 0, "--greedy|--no-sample|--do-sample=false", "--temp 0"},
    {"r", NULL, ELSEWHERE, 'v', "--grammar|--grammar-file|-j|--json-schema|-jf|--json-schema-file|--guided-json|--response-format",
     "{}: grammars are not supported; " SERVERS},
    {"r", NULL, ELSEWHERE, 'v',
     "--mirostat|--mirostat-lr|--mirostat-ent|--tfs|--typical|--typical-p|--xtc-probability|--xtc-threshold|--dry-multiplier|--dry-base|"
     "--dry-allowed-length|--dry-penalty-last-n|--dry-sequence-breaker|--top-nsigma|--top-n-sigma|--dynatemp-range|--dynatemp-exp|--"
     "samplers|"
     "--sampling-seq|--sampler-seq|-l|--logit-bias|--adaptive-target|--adaptive-decay|--cfg-scale|--cfg-negative-prompt|--num-beams|-bs",
     "{}: this sampling method is not supported, --temp and --top-p are; " SERVERS},
    {"r", NULL, ELSEWHERE, 0, "--ignore-eos|--backend-sampling", "{}: an answer always ends where the model ends it; " SERVERS},

    /* --- prompts --- */
    {"r", "-", ALIAS, 'v', "--text|--input|--user|--question|--query|-q|--message", "--prompt %"},
    {"r", "-", ALIAS, 'v', "-sys|--system-prompt|--system-message|--sys", "--system %"},
    {"r", "-", ALIAS, 'v', "--prompt-file|--input-file|--in-file|-bf|--binary-file", "--file %"},
    {"r", "-", NAMED, 'v', "-sysf|--system-prompt-file", "give the system message as text => --system % --chat"},
    {"r", "-", ALIAS, 0, "-cnv|--conversation|--chat-mode|-ins|--instruct|--interactive-first|-if|--multi-turn", "--interactive"},
    {"r", "-", ALIAS, 0, "-cnv|--conversation|-i|--interactive|--chat-mode|-ins|--instruct|--interactive-first|-if", "--chat"},
    {"r", "-", NOTHING, 0, "-no-cnv|--no-conversation|-st|--single-turn|-e|--escape|--no-escape|--jinja|--no-jinja",
     "one prompt gets one answer, and the prompt is used as written"},
    {"r", "-", NOTHING, 0,
     "--no-display-prompt|--no-print-prompt|--no-show-timings|--show-timings|--no-perf|--perf|--simple-io|-mli|--multiline-input|--display-"
     "prompt",
     "only the text of the answer goes to stdout"},
    {"r", "-", ALIAS, 0, "-sp|--special-tokens|--show-special", "--special"},
    {"r", "-", ALIAS, 0, "--timings|--verbose-prompt|--print-timings", "--stats"},
    {"r", NULL, ELSEWHERE, 'v',
     "--chat-template|--chat-template-file|--chat-template-kwargs|--in-prefix|--in-suffix|--reasoning-format|--reasoning-budget|-rea",
     "{}: the chat template of the model's files is always used; " SERVERS},
    {"r", NULL, ELSEWHERE, 'v', "--mmproj|-mm|--mmproj-url|-mmu|--image|--audio|--image-min-tokens",
     "{}: only text input is supported; " SERVERS},
    {"r", NULL, ELSEWHERE, 0, "--embedding|--embeddings|--rerank|--reranking|--no-mmproj", "{}: embeddings are not supported; " SERVERS},
    {"r", NULL, ELSEWHERE, 'v', "--prompt-cache|--slot-save-path|--control-vector|--control-vector-scaled|--lookup-cache-static",
     "{}: a run keeps nothing for the next one; " SERVERS},
    {"r", NULL, ELSEWHERE, 0, "--prompt-cache-all|--prompt-cache-ro", "{}: a run keeps nothing for the next one; " SERVERS},
    {"r", "-", NAMED, 0, "--tokenize|--tokenise|--show-tokens|--print-tokens", "use the verb tokenize => = aprrun tokenize *"},

    /* --- context, threads, memory --- */
    {"*", NULL, ALIAS, 'v',
     "--ctx-size|--n-ctx|--max-model-len|--context|--context-length|--context-size|--num-ctx|--max-seq-len|--ctx-len|-ctx", "--ctx %"},
    {"*", NULL, ALIAS, 'v', "-t|-tb|--threads-batch|--n-threads|--num-threads|--nthreads|--num-thread|-j|--jobs|--nthread", "--threads %"},
    {"p", NULL, ALIAS, 'v', "-c|--max-ctx", "--ctx %"},
    {"*", NULL, ALIAS, 'v', "--batch-size|--n-batch|--num-batch|--max-num-batched-tokens", "--batch %"},
    {"*", NULL, NAMED, 'v', "-ub|--ubatch-size|--ubatch|--n-ubatch", "there is only one batch size, --batch N => --batch %"},
    {"*", NULL, ALIAS, 'v', "--parallel|--n-parallel|-np|--max-num-seqs|--num-parallel|-ns|-npl|--concurrency", "--sequences %"},
    {"rp", NULL, TURNED, 'v', "-ctk|--cache-type-k|-ctv|--cache-type-v", "!cache_type"},
    {"rp", NULL, ALIAS, 'v', "--kv-cache|--kv-cache-dtype|--kv-type|--kv-dtype|--cache-type|--kv-cache-type", "--kv %"},
    {"*", NULL, NOTHING, 'o', "-fa|--flash-attn|--flash-attention", "attention is always computed without storing its score matrix"},
    {"*", NULL, NOTHING, 'o',
     "--no-mmap|--mmap|-mmp|--mlock|-dio|--direct-io|--no-direct-io|--no-warmup|--warmup|--log-disable|--log-colors|--no-log|--log-"
     "timestamps|"
     "--log-prefix|--no-op-offload|--op-offload|--no-kv-offload|-nkvo|--kv-offload|--swa-full|--no-repack|--repack|--cont-batching|-cb|"
     "--no-cont-batching|--context-shift|--no-context-shift|--kv-unified|-kvu|--check-tensors|--offline|--no-host|--no-perf|"
     "--low-vram|--trust-remote-code|--enforce-eager|--enable-prefix-caching|--use-cache|--ui|--no-ui|--fit",
     "aprkit has no such setting"},
    {"r", NULL, NOTHING, 'v',
     "--log-file|--log-verbosity|-lv|--verbosity|--poll|--poll-batch|--prio|--prio-batch|--cpu-mask|-C|-Cr|--cpu-range|--cpu-strict|--keep|"
     "--rope-scaling|--rope-scale|--rope-freq-base|--rope-freq-scale|--yarn-orig-ctx|--yarn-ext-factor|--yarn-attn-factor|--defrag-thold|-"
     "dt|"
     "--gpu-memory-utilization|--swap-space|--grp-attn-n|-gan|--grp-attn-w|-gaw",
     "aprkit takes this from the model's files or decides it itself"},

    /* --- devices --- */
    {"*", NULL, TURNED, 'v', "-ngl|--n-gpu-layers|--gpu-layers|--num-gpu|--ngl|--gpulayers", "!gpu_layers"},
    {"*", NULL, TURNED, 'v', "--n-cpu-moe|-ncmoe", "!cpu_moe"},
    {"*", NULL, TURNED, 0, "--cpu-moe|-cmoe", "--offload experts"},
    {"*", NULL, NAMED, 'v', "-ot|--override-tensor",
     "choose what the host computes by --offload experts or --offload layers=N => --offload experts"},
    {"p", NULL, ALIAS, 0, "--cpu|--device=cpu|--device=host|--no-gpu", "--host"},
    {"*", NULL, ALIAS, 0, "--device=cpu|--device=none|--device=CPU|--device=off", "--device host"},
    {"*", NULL, ALIAS, 0, "--device=gpu|--device=nvidia|--device=GPU|--device=CUDA", "--device cuda"},
    {"*", NULL, ALIAS, 0, "--device=cuda:*|--device=CUDA*|--device=gpu:*|--device=cuda*", "--device cuda --gpu %"},
    {"*", NULL, ELSEWHERE, 0,
     "--device=metal|--device=mps|--device=vulkan|--device=Vulkan*|--device=hip|--device=rocm|--device=ROCm*|--device=xpu|--device=tpu|--"
     "device=npu|--device=sycl",
     "{}: aprkit runs on CPUs and NVIDIA GPUs; llama.cpp supports this device and reads the GGUFs that aprconv writes"},
    {"*", NULL, ALIAS, 'v', "-dev", "--device %"},
    {"*", NULL, ALIAS, 0, "--cpu|--no-gpu|--cpu-only|--no-cuda", "--device host"},
    {"*", NULL, ALIAS, 0, "--cuda|--use-gpu|--gpu-only", "--device cuda"},
    {"r", NULL, TURNED, 0, "--gpu=all", "--device cuda --gpus all"},
    {"r", NULL, TURNED, 0, "--gpu=*", "!gpu_name"},
    {"*", NULL, ALIAS, 'v', "-mg|--main-gpu|--gpu-id|--device-id", "--gpu %"},
    {"*", NULL, ALIAS, 'v',
     "--num-gpus|--gpu-count|--n-gpu|--gpus-count|--ngpu|--tensor-parallel-size|-tp|--n-gpus|--pipeline-parallel-size|-pp", "--gpus %"},
    {"*", NULL, NAMED, 'v', "-ts|--tensor-split", "--gpus N splits layers by the free memory of each GPU => --gpus 2"},
    {"*", NULL, NOTHING, 'v', "-sm|--split-mode", "a model is always split over GPUs by layers"},
    {"p", NULL, ALIAS, 'v', "--memory-size|--vram-size|--gpu-memory|--mem", "--vram %"},
    {"p", NULL, ALIAS, 0, "--list|--gpus-list|--list-devices|--list-cards", "--list-gpus"},
    {"r", NULL, NAMED, 0, "--list-devices", "the verb doctor lists the devices => = aprrun doctor"},
    {"p", NULL, ALIAS, 0, "--all|--compare", "--table"},
    {"p", NULL, ALIAS, 'v', "--report", "--html %"},
    {"p", NULL, ALIAS, 'v', "--users|--concurrent", "--sequences %"},

    {"r", "-", NAMED, 'v', "--dtype|--to|--type|--quantization|--torch-dtype|--quant",
     "the types of the file are used; aprquant converts to others => "},
    {"*", NULL, ALIAS, 0, "-co", "--color=auto"},
    {"*", NULL, TURNED, 'v', "--format|--output-format", "!bench_output"},
    {"r", NULL, NOTHING, 0, "--stream|--no-stream", "text is always printed as it is generated"},
    {"r", NULL, ELSEWHERE, 'v', "--best-of|--logprobs|--top-logprobs|--n-probs|--length-penalty",
     "{}: one answer is generated, and only its text is printed; " SERVERS},
    /* --- what has no counterpart --- */
    {"*", NULL, NOTHING, 'v',
     "--numa|-lm|--load-mode|-lzm|--lazy-mode|--moe-cache|--moe-cache-mib|-fitt|--fit-target|-fitc|--fit-ctx|-Cb|--cpu-mask-batch|-Crb|"
     "--cpu-range-batch|--cpu-strict-batch|-ctxcp|--ctx-checkpoints|--swa-checkpoints|-cms|--checkpoint-min-step|-cram|--cache-ram|"
     "--cache-reuse|--kv-unified-per-slot|--delay|--n-gen-warmup|-oe|--output-err|--load-format|--download-dir|--keepalive|--yarn-beta-"
     "slow|"
     "--yarn-beta-fast|--log-prompts-dir|--embd-normalize|--pooling|--local-dir|--cache-dir|--block-size|--swap-space|--disable-log-stats",
     "aprkit has no such setting"},
    {"*", NULL, NOTHING, 'o', "-fit|-kvo|-nopo|-embd|--repack|--no-kv-offload|--no-op-offload", "aprkit has no such setting"},
    {"*", NULL, NOTHING, 0,
     "-nr|-nocb|-no-kvu|--no-kv-unified|--cache-idle-slots|--no-cache-idle-slots|--cache-prompt|--no-cache-prompt|--log-jsonl|--no-log-"
     "jsonl|"
     "--log-verbose|--no-log-prefix|--no-log-timestamps|--no-log-colors|--mmproj-auto|--no-mmproj-auto|--mmproj-offload|--no-mmproj-"
     "offload|--skip-chat-parsing|"
     "--no-skip-chat-parsing|--reasoning-preserve|--no-reasoning-preserve|--nowordwrap|--insecure|--spm-infill|--disable-log-requests|"
     "--no-pager|--enable-chunked-prefill|--keep-bpw-state|--no-importance",
     "aprkit has no such setting"},
    {"r", NULL, ELSEWHERE, 'v',
     "--host|--port|--api-key|--api-key-file|--path|--alias|-a|--tags|--api-prefix|--timeout|-to|--threads-http|--ssl-key-file|--ssl-cert-"
     "file|"
     "--models-dir|--models-preset|--models-max|--served-model-name|--server-base|--cors-origins|--cors-methods|--cors-headers|--media-"
     "path|"
     "--tools-runtime|--mcp-servers-config|--mcp-servers-json|--sse-ping-interval|--ui-config|--webui-config",
     "{}: aprrun is not a server; " SERVERS "; 'aprrun batch' answers a file of requests"},
    {"r", NULL, ELSEWHERE, 0, "--metrics|--props|--slots|--no-slots|--webui|--no-webui|--agent|-ag|--reuse-port|--router|-cl|--cache-list",
     "{}: aprrun is not a server; " SERVERS "; 'aprrun batch' answers a file of requests"},
    {"*", NULL, ELSEWHERE, 'v', "-rpc|--rpc",
     "{}: aprkit uses one machine; llama.cpp's rpc-server uses several and reads the GGUFs that aprconv writes"},
    {"*", NULL, ELSEWHERE, 'v', "-dr|--docker-repo|-hfd|-hfrd|--hf-repo-draft|-hfv|--hf-repo-v|-hffv",
     "aprkit downloads nothing; run hf download ORG/NAME, then aprrun ORG/NAME"},
    {"r", NULL, ELSEWHERE, 'v',
     "--spec-*|-lcs|--lookup-cache-static|-lcd|--lookup-cache-dynamic|-ngld|--gpu-layers-draft|-devd|--device-draft|-td|--threads-draft|"
     "--draft-min|--draft-n|--draft-n-min|--draft-p-min|--draft-p-split|-cd|--ctx-size-draft|-ctkd|-ctvd|--cache-type-k-draft|"
     "--cache-type-v-draft|--num-speculative-tokens|--speculative-config",
     "{}: speculative decoding is not supported; " SERVERS},
    {"r", NULL, ELSEWHERE, 'v',
     "--control-vector-layer-range|--video|--image-max-tokens|--mmproj-device|-mmdev|--video-fps|--mtmd-batch-max-tokens",
     "{}: only text input is supported; " SERVERS},
    {"r", NULL, ELSEWHERE, 'o', "--reasoning|--reasoning-effort|--reasoning-budget-message|--think|--hidethinking",
     "{}: the chat template of the model's files is always used; " SERVERS},
    {"r", NULL, NAMED, 'v', "-ncffn|--n-cpu-ffn", "choose the number of layers that the host computes => --offload layers=%"},
    {"r", NULL, NAMED, 'v', "--revision", "write the revision after the name, as in ORG/NAME@% => "},
    {"r", NULL, NAMED, 'v', "--tokenizer|--tokenizer-mode", "the tokenizer of the model's files is always used => "},
    {"c", NULL, NOTHING, 0, "-k|--keep|--no-clobber", "the input is always kept, and nothing is replaced without --force"},
    {"c", NULL, NAMED, 0, "-c|--stdout|--to-stdout", "a model cannot be written to a pipe; give a file => "},
    {"c", NULL, NAMED, 0, "-d|--decompress|--uncompress|--rm", "aprconv does not compress models, and inputs are kept => "},
    {"cq", NULL, ALIAS, 0, "-T*|-j*", "--threads %"},
    {"c", NULL, NAMED, 0, "--print-supported-models|--list-supported|--list-models", "use the verb families => = aprconv families"},
    {"c", NULL, NOTHING, 0, "--disable-mistral-community-chat-template|--sentence-transformers-dense-modules|--fuse-gate-up-exps",
     "tensors and templates are copied unchanged"},
    {"c", "diff", NOTHING, 0, "--stat|--brief|--name-only|-u|--no-index|--summary|--color-words",
     "every difference is printed on one line anyway"},
    {"c", "show", NOTHING, 0, "--modelfile|--parameters|--template|--system|--porcelain|--kv|--no-pager", "this is shown anyway"},
    {"q", NULL, ALIAS, 'v', "--bpw-state|--state-file", "--state %"},

    /* --- measuring --- */
    {"r", "bench", ALIAS, 'v', "--n-prompt|-pp|--n-prompts", "--prompt %"},
    {"r", "bench", ALIAS, 'v', "--n-gen|-tg|--gen", "--tokens %"},
    {"r", "bench", ALIAS, 'v', "--n-depth", "--depth %"},
    {"r", "bench", ALIAS, 'v', "-r|--repetitions|--runs|--iterations|--reps", "--repeat %"},
    {"r", "bench", TURNED, 0, "--output=json|--output=jsonl", "--json"},
    {"r", "bench", TURNED, 'v', "-o|--output|--output-format", "!bench_output"},
    {"r", "bench", NAMED, 'v', "-pg", "use --prompt and --tokens to measure a prompt and then tokens => "},
    {"r", "ppl", ALIAS, 'v', "--ppl-stride|--chunk-size|--stride", "--window %"},
    {"r", "ppl", NAMED, 'v', "--chunks", "all of the text is scored; only kld has --max-windows N => "},
    {"r", "ppl", NAMED, 0, "--hellaswag|--winogrande|--multiple-choice", "ppl only scores a text; use lm-evaluation-harness for tasks => "},
    {"r", "ppl", NAMED, 0, "--kl-divergence", "use the verb kld => = aprrun kld *"},
    {"r", "kld", ALIAS, 'v', "--chunks|--max-chunks", "--max-windows %"},
    {"r", "imatrix", ALIAS, 'v', "--out|--outfile|--output-file|--save", "--output %"},
    {"r", "imatrix", ALIAS, 'v', "-ofreq|--output-frequency", "--save-frequency %"},
    {"r", "imatrix", ALIAS, 'v', "--from-chunk", "--chunk %"},
    {"r", "imatrix", ALIAS, 0, "--show-statistics", "--show"},
    {"r", "imatrix", NOTHING, 0, "--no-ppl", "only an imatrix is written"},

    /* --- every tool --- */
    {"*", NULL, ALIAS, 0, "-?|-help|--usage", "--help"},
    {"*", NULL, ALIAS, 0, "-version|--Version", "--version"},
    {"*", NULL, ALIAS, 0, "--silent|-qq|--no-progress|--quite", "--quiet"},
    {"*", NULL, ALIAS, 0, "-vv|-vvv|--debug", "--verbose"},
    {"*", NULL, ALIAS, 0, "--no-color|--no-colour|--nocolor", "--color never"},
    {"*", NULL, ALIAS, 0, "--licence|--copyright", "--license"},
    {"*", NULL, ALIAS, 0, "--output=json|--format=json|-json", "--json"},

    /* --- verbs --- */
    {"q", NULL, ALIAS, 0, "list|ls|types", "!list"},
    {"p", NULL, ALIAS, 0, "list|ls|gpus|cards|devices", "!list_gpus"},
    {"c", NULL, ELSEWHERE, 0, "hash|sha256|sha256sum|md5|checksum",
     "{}: use sha256sum; 'aprconv check' verifies the checksums that a file has"},
    {"q", NULL, ALIAS, 0, "quantize|quantise|dequantize|quant|convert|run", "!run"},
    {"p", NULL, ALIAS, 0, "plan|fit|estimate|run|check", "!run"},
    {"c", NULL, ALIAS, 0, "list|ls|dump|cat|inspect|view|print|describe|metadata|meta|tensors|header|display", "show"},
    {"c", NULL, ALIAS, 0, "hf2gguf", "st2gguf"},
    {"c", NULL, ALIAS, 0, "hf2apr", "st2apr"},
    {"c", NULL, ALIAS, 0, "gguf2hf", "gguf2st"},
    {"c", NULL, ALIAS, 0, "apr2hf", "apr2st"},
    {"c", NULL, ALIAS, 0, "hf2st|hf2hf|st2hf", "st2st"},
    {"c", NULL, ALIAS, 0, "conv|to|transform|export|import|write", "convert"},
    {"c", NULL, ALIAS, 0, "validate|verify-file|fsck|test|integrity|lint|scan", "check"},
    {"c", NULL, ALIAS, 0, "compare|cmp", "diff"},
    {"c", NULL, ALIAS, 0, "archs|architectures|models|supported|formats", "families"},
    {"c", NULL, NAMED, 0, "merge|join|unsplit|gguf-split",
     "{}: split files are joined as they are read: aprconv convert FIRST OUT, and --lora merges an adapter => = aprconv convert --help"},
    {"c", NULL, NAMED, 0, "split|shard", "!split"},
    {"c", NULL, ALIAS, 0, "compatible|supports|can", "compat"},
    {"c", NULL, ELSEWHERE, 0, "pack|compress|unpack|decompress|zip|unzip", "{}: aprconv does not compress models; use zstd or git-xet"},
    {"r", NULL, ALIAS, 0, "run|generate|gen|complete|completion|cli|prompt|infer", "!run"},
    {"r", NULL, ALIAS, 0, "perplexity|eval", "ppl"},
    {"r", NULL, ALIAS, 0, "benchmark|speed|llama-bench|perf", "bench"},
    {"r", NULL, ALIAS, 0, "kl|kl-divergence|divergence|kldiv", "kld"},
    {"r", NULL, ALIAS, 0, "importance|calibrate", "imatrix"},
    {"r", NULL, ALIAS, 0, "devices|gpus|info-gpu|env|diagnose|nvidia-smi|ps", "doctor"},
    {"r", NULL, ALIAS, 0, "tokenise|tok|encode", "tokenize"},
    {"r", NULL, ALIAS, 0, "detokenise|detok|decode", "detokenize"},
    {"r", NULL, ALIAS, 0, "talk|repl|shell|interactive", "chat"},
    {"r", NULL, ELSEWHERE, 0, "serve|server|api|start|stop|web|openai",
     "{}: aprrun is not a server; " SERVERS "; 'aprrun batch' answers a file of requests"},
    {"r", NULL, ELSEWHERE, 0, "embed|embedding|embeddings|rerank|score", "{}: embeddings are not supported; " SERVERS},
    {"r", NULL, ELSEWHERE, 0, "finetune|train|fine-tune|lora",
     "{}: aprkit does not train; use PEFT or llama.cpp, and --lora to load their adapters"},
    {"*", NULL, ELSEWHERE, 0, "completion|completions", "{}: " SHELLS},
    {"*", NULL, ELSEWHERE, 0, "--completion|--completions|--generate-completion", "{}: " SHELLS},
    {"*", NULL, ELSEWHERE, 0, "man|manual|manpage",
     "{}: man aprconv, man aprkit and others, once they are installed; help VERB prints as much"},
    {"*", NULL, ELSEWHERE, 0, "pull|download|fetch|get|clone|search|login|push|upload|whoami|cache",
     "{}: aprkit downloads nothing; run hf download ORG/NAME, then aprrun ORG/NAME"},
    {"r", NULL, ELSEWHERE, 0, "create|rm|remove|cp|copy|delete|rename",
     "{}: models are plain files; make a GGUF with aprquant, and use cp, mv or rm"},
    {"*", NULL, NAMED, 0, "quantize|quantise|dequantize|quant|llama-quantize",
     "{}: not a verb of this tool; use 'aprquant' => = aprquant *"},
    {"*", NULL, NAMED, 0, "plan|fit|vram|estimate|memory", "{}: not a verb of this tool; use 'aprplan' => = aprplan *"},
    {"cqp", NULL, NAMED, 0, "verify", "{}: not a verb of this tool; use 'aprrun verify' => = aprrun verify --help"},
    {"cqp", NULL, NAMED, 0, "golden", "{}: not a verb of this tool; use 'aprrun golden' => = aprrun golden --help"},
    {"cqp", NULL, NAMED, 0, "run|chat|generate|talk|prompt", "{}: not a verb of this tool; use 'aprrun' => = aprrun --help"},
    {"cqp", NULL, NAMED, 0, "perplexity", "{}: not a verb of this tool; use 'aprrun ppl' => = aprrun ppl *"},
    {"cqp", NULL, NAMED, 0, "devices|gpus", "{}: not a verb of this tool; use 'aprrun doctor' => = aprrun doctor"},
    {"qpr", NULL, NAMED, 0, "info|inspect|dump|cat", "{}: not a verb of this tool; use 'aprconv show' => = aprconv show *"},
    {"qpr", NULL, NAMED, 0, "validate", "{}: not a verb of this tool; use 'aprconv check' => = aprconv check *"},
    {"qp", NULL, NAMED, 0, "compare", "{}: not a verb of this tool; use 'aprconv diff' => = aprconv diff *"},
    {"qpr", NULL, NAMED, 0, "convert", "{}: not a verb of this tool; use 'aprconv' => = aprconv convert *"},
    {"*", NULL, NAMED, 0, "info|inspect", "{}: not a verb of this tool; use 'aprconv show' => = aprconv show *"},
    {0},
};

char apr_foreign_tool_letter(const char *tool_name)
{
    static const struct {
        const char *name;
        char letter;
    } tools[] = {{"aprconv", 'c'}, {"aprquant", 'q'}, {"aprplan", 'p'}, {"aprrun", 'r'}};
    for (size_t i = 0; i < sizeof tools / sizeof *tools; i++)
        if (strcmp(tools[i].name, tool_name) == 0) return tools[i].letter;
    return '?';
}

static bool is_of_tool(const apr_foreign_word *word, char tool) { return word->tools[0] == '*' || strchr(word->tools, tool) != NULL; }

static bool is_of_verb(const apr_foreign_word *word, const char *verb)
{
    if (word->verbs == NULL) return true;
    if (verb == NULL) return false;
    const char *const name = *verb == '\0' ? "-" : verb;
    const size_t n = strlen(name);
    for (const char *at = word->verbs; *at != '\0';) {
        const size_t length = strcspn(at, " ");
        if (length == n && strncmp(at, name, n) == 0) return true;
        at += length + (at[length] == ' ');
    }
    return false;
}

/* One of the spellings; *rest: what its '*' stands for. */
static bool is_spelled(const apr_foreign_word *word, const char *spelling, size_t n, const char **rest)
{
    for (const char *at = word->spellings; *at != '\0';) {
        const size_t length = strcspn(at, "|");
        const bool is_open = length > 1 && at[length - 1] == '*';
        if (is_open && n >= length && strncmp(at, spelling, length - 1) == 0) {
            *rest = spelling + length - 1;
            return true;
        }
        if (length == n && strncmp(at, spelling, n) == 0) return true;
        at += length + (at[length] == '|');
    }
    return false;
}

const apr_foreign_word *apr_foreign_find(const apr_foreign_word *from, char tool, const char *verb, const char *spelling, size_t n,
                                         const char **rest)
{
    for (const apr_foreign_word *word = from; word->spellings != NULL; word++)
        if (is_of_tool(word, tool) && is_of_verb(word, verb) && is_spelled(word, spelling, n, rest)) return word;
    return NULL;
}
