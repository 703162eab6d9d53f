/* graph.cu - operations that are recorded once and replayed: a CUDA graph, captured from the device's stream. It owns no memory of the
 * session, only addresses; the session manages that memory. */
#include "kernels/cuda/device/device.cuh"

#include <stdlib.h>

struct apr_cuda_graph {
    apr_cuda_device *device;
    cudaGraphExec_t exec;
};

apr_status apr_cuda_record(apr_cuda_device *device, apr_error *err)
{
    APR_TRY(apr_cuda_make_current(device, err));
    if (device->options.check_each) return apr_fail(err, APR_E_UNSUPPORTED, "operations cannot be recorded while each one is checked");
    apr_cuda_begin_phase(device, "recording operations");
    /* other threads may allocate meanwhile; this one only launches kernels */
    const cudaError_t error = cudaStreamBeginCapture(device->stream, cudaStreamCaptureModeThreadLocal);
    device->recording = error == cudaSuccess;
    return apr_cuda_outcome(device, error, err);
}

/* Instantiates the recorded graph and uploads it to the device. */
static cudaError_t make_runnable(apr_cuda_device *device, cudaGraph_t recorded, cudaGraphExec_t *exec)
{
    cudaError_t error = cudaGraphInstantiate(exec, recorded, 0);
    if (error != cudaSuccess) {
        *exec = NULL;
        return error;
    }
    error = cudaGraphUpload(*exec, device->stream);
    return error == cudaSuccess ? cudaStreamSynchronize(device->stream) : error;
}

apr_status apr_cuda_end_record(apr_cuda_device *device, apr_cuda_graph **graph, apr_error *err)
{
    cudaGraph_t recorded = NULL;

    *graph = NULL;
    if (!device->recording) return apr_fail(err, APR_E_USAGE, "nothing was recorded");
    device->recording = false;
    APR_TRY(apr_cuda_make_current(device, err));
    cudaError_t error = cudaStreamEndCapture(device->stream, &recorded);
    if (error != cudaSuccess) return apr_cuda_outcome(device, error, err); /* the error of the operation that could not be recorded */
    apr_cuda_begin_phase(device, "instantiating the recorded operations");
    apr_cuda_graph *const created = (apr_cuda_graph *)calloc(1, sizeof *created);
    error = created != NULL ? make_runnable(device, recorded, &created->exec) : cudaErrorMemoryAllocation;
    cudaGraphDestroy(recorded);
    if (error != cudaSuccess) {
        if (created != NULL && created->exec != NULL) cudaGraphExecDestroy(created->exec);
        free(created);
        return apr_cuda_outcome(device, error, err);
    }
    created->device = device;
    *graph = created;
    return APR_OK;
}

apr_status apr_cuda_replay(apr_cuda_graph *graph, apr_error *err)
{
    apr_cuda_device *const device = graph->device;
    APR_TRY(apr_cuda_make_current(device, err));
    apr_cuda_begin_phase(device, "replaying recorded operations");
    return apr_cuda_outcome(device, cudaGraphLaunch(graph->exec, device->stream), err);
}

void apr_cuda_free_graph(apr_cuda_graph *graph)
{
    if (graph == NULL) return;
    /* nothing of a lost context is destroyed: it ends with the process */
    if (!graph->device->lost && apr_cuda_make_current(graph->device, NULL) == APR_OK) cudaGraphExecDestroy(graph->exec);
    free(graph);
}
