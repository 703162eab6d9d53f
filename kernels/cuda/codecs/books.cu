/* books.cu - copies the lists of codebooks to a device, once. */
#include "kernels/cuda/codecs/books.cuh"

#include <pthread.h>

/* A codebook has 3^8 or 8^4 cells, and its own length of all lists: memory is for the longest. */
struct stored_book {
    uint32_t first[APR_IQ_MAX_CELLS + 1];
    uint16_t index[APR_IQ_MAX_CELLS], list[APR_IQ_MAX_LIST];
};
static __device__ stored_book books[N_BOOKS];

/* Which devices have a book. */
enum { MAX_DEVICES = 64 };
static bool is_there[N_BOOKS][MAX_DEVICES];
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

static size_t list_length(const apr_iq_book *book)
{
    int n_cells = 1;
    for (int i = 0; i < book->n_values; i++) n_cells *= book->n_levels;
    return book->first[n_cells];
}

/* `to` is in device memory. */
static cudaError_t copy_book(stored_book *to, const apr_iq_book *book, cudaStream_t stream)
{
    const size_t n_bytes = list_length(book) * sizeof *book->list;
    cudaError_t error = cudaMemcpyAsync(to->first, book->first, sizeof to->first, cudaMemcpyHostToDevice, stream);
    if (error == cudaSuccess) error = cudaMemcpyAsync(to->index, book->index, sizeof to->index, cudaMemcpyHostToDevice, stream);
    if (error == cudaSuccess) error = cudaMemcpyAsync(to->list, book->list, n_bytes, cudaMemcpyHostToDevice, stream);
    return error == cudaSuccess ? cudaStreamSynchronize(stream) : error;
}

static cudaError_t find_book(book_name name, cudaStream_t stream, device_book *found)
{
#define X(name) apr_##name##_book,
    static const apr_iq_book *(*const host_books[])(void) = {BOOK_LIST(X)};
#undef X
    void *address = nullptr;
    int device = 0;

    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaGetSymbolAddress(&address, books);
    if (error != cudaSuccess) return error;
    if (device >= MAX_DEVICES) return cudaErrorInvalidDevice;
    stored_book *const at = (stored_book *)address + name;
    *found = {at->list, at->index, at->first};
    if (is_there[name][device]) return cudaSuccess;
    error = copy_book(at, host_books[name](), stream);
    is_there[name][device] = error == cudaSuccess;
    return error;
}

cudaError_t book_on_device(book_name name, cudaStream_t stream, device_book *found)
{
    pthread_mutex_lock(&one_at_a_time);
    const cudaError_t error = find_book(name, stream, found);
    pthread_mutex_unlock(&one_at_a_time);
    return error;
}
