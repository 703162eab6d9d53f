/* books.cuh - the codebooks of the IQ types in device memory, arranged for the search of the best point (kernels/ref/iq_book.h).
 *
 * The host makes a codebook's lists once. They are copied to a device before the first kernel there that reads them. The memory, 3.5 MiB
 * for all, is loaded with the kernels' code. */
#ifndef APR_KERNELS_CUDA_BOOKS_CUH
#define APR_KERNELS_CUDA_BOOKS_CUH

extern "C" {
#include "kernels/ref/iq_book.h"
}

#include <cuda_runtime.h>

#define BOOK_LIST(X) X(iq1) X(iq2_xxs) X(iq2_xs) X(iq2_s) X(iq3_xxs) X(iq3_s)
#define X(name)      BOOK_##name,
typedef enum book_name { BOOK_LIST(X) N_BOOKS } book_name;
#undef X

/* The same arrays as in apr_iq_book, in device memory. */
typedef struct device_book {
    const uint16_t *list, *index;
    const uint32_t *first;
} device_book;

/* *found: addresses on the current device. Waits for the stream if the book was not there yet. Any thread may call. */
cudaError_t book_on_device(book_name name, cudaStream_t stream, device_book *found);

#endif
