/* gguf_keys.h - shared by the files that read and write GGUF's ARCH.* keys.
 *
 * Mental model: an apr_family (formats/shape/family.h) lists the keys of its architecture in order. gguf_key_table.c computes the value of each
 * key from the hyperparameters. gguf_hparams.c reads the keys back. */
#ifndef APR_FORMATS_GGUF_KEYS_H
#define APR_FORMATS_GGUF_KEYS_H

#include "formats/shape/family.h"

enum { APR_MAX_GGUF_KEY = 160, APR_MAX_GGUF_ARCH = 64 };

/* --- out of the keys --- */

typedef struct apr_key_reader {
    const apr_kv_list *kv;
    const apr_family *family; /* NULL: unknown architecture */
    const apr_family_gguf *facts;
    const char *where;
    char arch[APR_MAX_GGUF_ARCH + 1];
    char key[APR_MAX_GGUF_KEY]; /* the last one looked up */
} apr_key_reader;

/* The item "ARCH.name", or NULL. Its full key stays in r->key until the next call. */
const apr_kv *apr_gguf_key(apr_key_reader *r, const char *name);
/* A number, or the largest of an array with one per layer. False: no such key, *value is unchanged. */
bool apr_gguf_key_int(apr_key_reader *r, const char *name, int64_t *value);
/* The number in config.json that was rounded to f32 for the key: 1e-06, not 9.99999997e-07. */
bool apr_gguf_key_real(apr_key_reader *r, const char *name, double *value);
double apr_gguf_shortest_decimal(double f32);

/* Read the rotary scaling and the kinds of the layers. The numbers must be in *h already. With more than APR_GGUF_MAX_LAYERS layers the
 * kinds stay unset. */
enum { APR_GGUF_MAX_LAYERS = 10000 };
void apr_gguf_read_rope(apr_key_reader *r, apr_hparams *h);
apr_status apr_gguf_read_layers(apr_key_reader *r, apr_hparams *h, apr_arena *arena, apr_error *err);
/* Like apr_gguf_hparams, but ignores aprkit.*: what other readers see. */
apr_status apr_gguf_standard_hparams(const apr_kv_list *kv, apr_hparams *h, apr_arena *arena, const char *where, apr_error *err);

/* --- into the keys --- */

typedef struct apr_key_writer {
    const char *arch;
    const apr_hparams *h;
    const apr_family_gguf *facts;
    apr_kv_list *kv;
    apr_error *err;
} apr_key_writer;

/* Writes the keys of a list, " a b! " (formats/shape/family.h). */
apr_status apr_gguf_put_keys(const apr_key_writer *w, const char *words);
apr_status apr_gguf_put_int(const apr_key_writer *w, const char *name, int64_t value);
apr_status apr_gguf_put_real(const apr_key_writer *w, const char *name, double value);
apr_status apr_gguf_put_text(const apr_key_writer *w, const char *name, const char *text);
apr_status apr_gguf_put_rope(const apr_key_writer *w);

/* ggml's name of the model's architecture; "" when it has none. */
const char *apr_gguf_architecture(const apr_hparams *h);
int64_t apr_gguf_expert_width(const apr_hparams *h);
/* sqrt(1 + ln(longest / original) / ln(original)): longrope's default factor of cosines and sines. */
double apr_gguf_longrope_factor(const apr_hparams *h);

#endif
