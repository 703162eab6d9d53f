/* spm_scores.h - derives scores for a SentencePiece vocabulary that has merges only, as in tokenizer.json.
 *
 * Two rules of joining, both applied repeatedly, and leftmost first among equals:
 *   merges   join the neighbours whose pair has the lowest rank
 *   scores   join the neighbours whose joined text is the token with the best score (llama.cpp's "llama" tokenizer)
 * Two neighbours (l, r) join to token T in a text only if they do so when the merges are applied to T's text alone, because until then
 * nothing has joined across T's borders. So only one of the pairs that make T counts, and its rank R(T) is all that the ranks say about
 * T. Scores that fall as R rises then give the same ids for every text. The exception: if some T is left as two neighbours that no merge
 * joins, scores would join them. */
#ifndef APR_FORMATS_SPM_SCORES_H
#define APR_FORMATS_SPM_SCORES_H

#include "formats/vocab/vocab.h"

typedef struct apr_spm_scores {
    float *scores;     /* [n_tokens], in the arena: 0, -1, -2, ... in order of R, then the tokens that no merge makes */
    int64_t inexact;   /* a token that scores would make and merges do not, or -1: scores and merges are equivalent */
    int64_t bad_merge; /* a merge of texts that are not tokens, or -1 */
} apr_spm_scores;

apr_status apr_spm_scores_make(const apr_vocab *vocab, apr_arena *arena, apr_spm_scores *result, apr_error *err);

#endif
