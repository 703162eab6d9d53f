/* rank_merges.h - merges for a byte-level vocabulary that has ranks only, as tiktoken's and Mistral's files state it.
 *
 * The rule of ranks: again and again the neighbours join whose joined text is the token with the lowest id, of equals the leftmost
 * first. As in formats/model/spm_scores.h, neighbours that make token T meet in a text only as they meet when the rule is applied to
 * T's text alone, with the tokens before T; so one pair counts for each T, and the list of these pairs in order of T's ids says the
 * same. A token that its own text does not come down to in two parts is found only where a whole word is it: such a vocabulary needs
 * ignore_merges. */
#ifndef APR_FORMATS_RANK_MERGES_H
#define APR_FORMATS_RANK_MERGES_H

#include "formats/model/vocab.h"

/* Bytes as a token of a byte-level vocabulary is written: in GPT-2's alphabet. In the arena; text NULL: no memory. */
apr_str apr_byte_letters(const uint8_t *bytes, size_t n, apr_arena *arena);

/* Sets merges and n_merges, from the tokens of type APR_TOKEN_NORMAL, whose ids are in the order of their ranks. In the arena.
 * APR_E_UNSUPPORTED: a token of more than 1024 letters. `where` names the file. */
apr_status apr_rank_merges(apr_vocab *vocab, apr_arena *arena, const char *where, apr_error *err);

#endif
