/* window.h - which layers of a model attend within its sliding window only, where a file does not list them one by one.
 *
 * Mental model: some first layers attend to everything; of those after them each n-th does, and the others slide. */
#ifndef APR_FORMATS_WINDOW_H
#define APR_FORMATS_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

typedef struct apr_window_layers {
    int64_t n_full_first; /* layers at the start that attend to everything */
    int64_t full_every;   /* of the layers after them each n-th attends to everything: n; 1: all do, nothing slides; 0: all slide */
} apr_window_layers;

/* Layers count from 0. */
bool apr_layer_slides(apr_window_layers window, int64_t layer);

#endif
