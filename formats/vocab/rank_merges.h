/* rank_merges.h - derives merges for a byte-level vocabulary that has ranks only, as in tiktoken's and Mistral's files.
 *
 * The rank rule: repeatedly join the two neighbours whose joined text is the token with the lowest id; among equals join the leftmost
 * first. As in formats/vocab/spm_scores.h, two neighbours join to token T in a text only if they do so when the rule is applied to T's
 * text alone, with the tokens before T. So one pair counts for each T, and the list of these pairs in order of T's id is equivalent. A
 * token whose own text is not reduced to two parts is found only if it is a whole word. Such a vocabulary needs ignore_merges. */
#ifndef APR_FORMATS_RANK_MERGES_H
#define APR_FORMATS_RANK_MERGES_H

#include "formats/vocab/vocab.h"

/* Encodes bytes in GPT-2's printable alphabet, as tokens of a byte-level vocabulary are written. In the arena; text NULL: out of memory. */
apr_str apr_byte_letters(const uint8_t *bytes, size_t n, apr_arena *arena);

/* Sets merges and n_merges from the tokens of type APR_TOKEN_NORMAL, whose ids must be in order of rank. In the arena.
 * APR_E_UNSUPPORTED: a token has more than 1024 letters. `where` names the file. */
apr_status apr_rank_merges(apr_vocab *vocab, apr_arena *arena, const char *where, apr_error *err);

#endif
