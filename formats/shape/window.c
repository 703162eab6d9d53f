/* window.c - which layers have sliding-window attention. */
#include "formats/shape/window.h"

bool apr_layer_slides(apr_window_layers window, int64_t layer)
{
    if (layer < window.n_full_first) return false;
    return window.full_every <= 0 || (layer - window.n_full_first + 1) % window.full_every != 0;
}
