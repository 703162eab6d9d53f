/* spm_scores.h - scores for a SentencePiece vocabulary that has merges only, as tokenizer.json states it.
 *
 * Two rules of joining, both again and again and of equals the leftmost first:
 *   merges   the neighbours whose pair has the lowest rank
 *   scores   the neighbours whose joined text is the token with the best score (llama.cpp's "llama" tokenizer)
 * Neighbours (l, r) that make token T meet in a text only as they meet when the merges are applied to T's text alone: until
 * then nothing has joined across T's borders. So of all pairs that make T one counts, its rank R(T) is all that ranks say
 * about T, and scores that fall as R rises give the same ids for every text: exactly when no T is left as two neighbours
 * that no merge joins, because scores would join them. */
#ifndef APR_FORMATS_SPM_SCORES_H
#define APR_FORMATS_SPM_SCORES_H

#include "formats/model/vocab.h"

typedef struct apr_spm_scores {
    float *scores;     /* [n_tokens], of the arena: 0, -1, -2, ... in order of R, then the tokens that nothing merges to */
    int64_t inexact;   /* a token that scores would make and merges do not, or -1: the scores say what the merges say */
    int64_t bad_merge; /* a merge of tokens that the vocabulary does not have, or -1 */
} apr_spm_scores;

apr_status apr_spm_scores_make(const apr_vocab *vocab, apr_arena *arena, apr_spm_scores *made, apr_error *err);

#endif
