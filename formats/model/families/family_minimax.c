/* family_minimax.c - minimax_m2: norms over the whole row of q and k; experts chosen by sigmoid and bias. */
#include "formats/model/family.h"

const apr_family apr_family_minimax_m2 = {.name = "minimax_m2", .types = {{"minimax_m2", "MiniMaxM2ForCausalLM"}}, .ggml = "minimax-m2"};
