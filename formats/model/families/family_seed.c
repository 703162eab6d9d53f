/* family_seed.c - seed_oss: biases on q, k and v. */
#include "formats/model/family.h"

const apr_family apr_family_seed_oss = {
    .name = "seed_oss", .types = {{"seed_oss", "SeedOssForCausalLM"}}, .ggml = "seed_oss", .gguf = {.more_keys = " "}};
