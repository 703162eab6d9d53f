/* window.h - which layers have sliding-window attention, where a file does not list them.
 *
 * The first n_full_first layers have full attention. Of the layers after them every full_every-th has full attention, and the others
 * slide. */
#ifndef APR_FORMATS_WINDOW_H
#define APR_FORMATS_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

typedef struct apr_window_layers {
    int64_t n_full_first; /* layers at the start with full attention */
    int64_t full_every;   /* period of full attention after them; 1: all layers are full, none slides; 0: all slide */
} apr_window_layers;

/* Layers count from 0. */
bool apr_layer_slides(apr_window_layers window, int64_t layer);

#endif
