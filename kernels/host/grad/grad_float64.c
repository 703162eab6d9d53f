/* grad_float64.c - the operations of a training pass in float64, from the same source, to check the derivatives by differences. */
#define GRAD_FLOAT64
#define TABLE apr_grad_float64
#include "kernels/host/grad/table.h"
