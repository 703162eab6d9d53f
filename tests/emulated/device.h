/* device.h - what the emulated cuBLAS needs of a device. */
#ifndef APR_TESTS_EMULATED_DEVICE_H
#define APR_TESTS_EMULATED_DEVICE_H

#include <cuda_runtime.h>

namespace emulated
{

/* What a stream can be given; false: it touched memory that is not there. */
typedef std::function<bool()> work;
cudaError_t give(cudaStream_t stream, work what);

} // namespace emulated

#endif
