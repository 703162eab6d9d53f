/* gguf_stops.h - the tokens at which readers of a GGUF stop: by the keys eos, eot and eom, and by well-known texts of tokens. */
#ifndef APR_FORMATS_GGUF_STOPS_H
#define APR_FORMATS_GGUF_STOPS_H

#include "formats/tensor/losses.h"
#include "formats/vocab/vocab.h"

#define APR_GGUF_EOT "tokenizer.ggml.eot_token_id"
#define APR_GGUF_EOM "tokenizer.ggml.eom_token_id"

/* How the stop ids of a vocabulary are written. */
typedef struct apr_gguf_stops {
    int32_t eot_id, eom_id;              /* the values of the two keys, or -1 */
    bool needs_list;                     /* keys and texts do not give exactly these ids, so tokenizer.aprkit.stop_ids is written */
    int32_t not_found[APR_MAX_STOP_IDS]; /* [n_not_found] stop ids that no other reader finds */
    size_t n_not_found;
    int32_t extra; /* the first token that other readers stop at although it is neither a stop id nor padding, or -1 */
} apr_gguf_stops;

/* Adds the stop ids given by the keys eot and eom and by the texts of tokens. The end token is already among the stop ids. has_list: so are
 * those of tokenizer.aprkit.stop_ids, which replaces the texts. The keys still count: another program may have set them since. */
void apr_gguf_find_stops(const apr_kv_list *kv, bool has_list, apr_vocab *vocab);
apr_gguf_stops apr_gguf_plan_stops(const apr_vocab *vocab);
/* True: another reader of the GGUF stops at this token, by the three keys or by its text. */
bool apr_gguf_finds_stop(const apr_vocab *vocab, int32_t id);
/* Adds a loss for the stops that other readers do not find, and for those that they add. */
apr_status apr_gguf_stop_losses(const apr_vocab *vocab, apr_losses *losses, apr_error *err);

#endif
