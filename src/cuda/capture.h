// A stream's work as a graph.
#pragma once
#include "cuda/kernels/cuda.h"

// What queue() → yalm_status queues on the stream, so that as much of it overlaps as is allowed.
template <class Queue>
static yalm_status capture(cudaGraphExec_t *exec, cudaStream_t stream, enum cuda_overlap overlap, Queue queue,
                           yalm_error *error)
{
    cudaGraph_t graph = NULL;
    TRY_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    cuda_allow_overlap(overlap);
    yalm_status status = queue();
    cuda_allow_overlap(OVERLAP_ALL);
    const cudaError_t ended = cudaStreamEndCapture(stream, &graph); // also after a failure, so that the stream is one again
    if (status == YALM_OK)
        status = cuda_check(ended, "cudaStreamEndCapture", error);
    if (status == YALM_OK)
        status = cuda_check(cudaGraphInstantiate(exec, graph, 0), "cudaGraphInstantiate", error);
    if (graph)
        cudaGraphDestroy(graph);
    return status;
}
