/* gguf_stops.h - which tokens end a turn, for readers of GGUF: the keys eos, eot and eom, and the texts that every reader knows. */
#ifndef APR_FORMATS_GGUF_STOPS_H
#define APR_FORMATS_GGUF_STOPS_H

#include "formats/model/losses.h"
#include "formats/model/vocab.h"

#define APR_GGUF_EOT "tokenizer.ggml.eot_token_id"
#define APR_GGUF_EOM "tokenizer.ggml.eom_token_id"

/* How the stop ids of a vocabulary are written. */
typedef struct apr_gguf_stops {
    int32_t eot_id, eom_id;            /* the values of the two keys, or -1 */
    bool needs_list;                   /* the keys and texts do not give back exactly these ids, so a list of our own is written */
    int32_t unheard[APR_MAX_STOP_IDS]; /* [n_unheard] stop ids that no other reader finds */
    size_t n_unheard;
    int32_t extra; /* the first token that other readers stop at although it is neither a stop id nor padding, or -1 */
} apr_gguf_stops;

/* Adds what the keys eot and eom and the texts of tokens say. The end token is already among the stop ids. has_list: so are those of our own
 * list, which takes the place of the texts; the keys still count, because another program may have set them since. */
void apr_gguf_find_stops(const apr_kv_list *kv, bool has_list, apr_vocab *vocab);
apr_gguf_stops apr_gguf_plan_stops(const apr_vocab *vocab);
/* Will another reader of the GGUF stop at this token? By the three keys or by its text. */
bool apr_gguf_is_heard(const apr_vocab *vocab, int32_t id);
/* What other readers do not learn, as warnings. */
apr_status apr_gguf_stop_losses(const apr_vocab *vocab, apr_losses *losses, apr_error *err);

#endif
