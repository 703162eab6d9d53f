/* grad_float32.c - the operations of a training pass in float32. */
#define TABLE apr_grad_float32
#include "kernels/host/grad/table.h"
