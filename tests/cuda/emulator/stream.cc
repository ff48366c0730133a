// Streams, events and graphs. A stream is a queue that runs when somebody waits for it, as late as the device may be; an event is a place
// in such a queue; a graph is a recorded one.
#include "runtime.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>

struct operation {
    emulated_call<void> run;
    std::shared_ptr<const emulated_kernel> kernel; // null: something else
    emulated_call<bool> ready;                     // whether it can run, asked again and again; null: it can
};

struct emulated_graph {
    std::vector<operation> nodes;
};

struct emulated_graph_exec {
    std::vector<operation> nodes;
};

struct emulated_stream {
    std::deque<operation> queue;
    bool blocking;           // with the null stream
    emulated_graph *capture; // null: not being captured
    bool origin;             // of the capture
    bool invalid;            // the capture
    uint64_t n_operations;   // that were captured
    uint64_t n_joined;       // of these, how many the origin waits for
};

// One record of an event.
struct mark {
    emulated_stream *stream;
    bool done;
    std::chrono::steady_clock::time_point when;
};

struct emulated_event {
    std::shared_ptr<mark> last;
    emulated_graph *capture; // recorded in a stream under capture
    emulated_stream *stream; // that one
    uint64_t n_operations;   // captured there before the record
};

static std::vector<emulated_stream *> streams;

static bool known(cudaStream_t stream)
{
    return std::find(streams.begin(), streams.end(), stream) != streams.end();
}

bool stream_capturing(cudaStream_t stream)
{
    return stream ? stream->capture != nullptr
                  : std::any_of(streams.begin(), streams.end(), [](emulated_stream *s) { return s->capture; });
}

// Waits for something outside of this device.
static bool is_held(const emulated_stream *stream)
{
    return !stream->queue.empty() && stream->queue.front().ready && !stream->queue.front().ready();
}

static void run_one(emulated_stream *stream)
{
    operation next = std::move(stream->queue.front());
    stream->queue.pop_front();
    if (emulated_faulted()) {
        return;
    }
    if (next.kernel && !stream->queue.empty() && stream->queue.front().kernel) {
        emulated_begin_early(*stream->queue.front().kernel);
    }
    if (!emulated_faulted()) {
        next.run();
    }
}

void stream_finish(cudaStream_t stream)
{
    if (!stream) {
        streams_finish(true);
        return;
    }
    if (!stream->queue.empty() && !is_held(stream)) {
        memory_open();
        while (!stream->queue.empty() && !is_held(stream)) {
            run_one(stream);
        }
        memory_close();
    }
}

void streams_finish(bool blocking_only)
{
    for (emulated_stream *stream : streams) {
        if (stream->blocking || !blocking_only) {
            stream_finish(stream);
        }
    }
}

// The caller waits, and others have the device meanwhile.
template <class Done> static void wait_for(std::unique_lock<std::recursive_mutex> &lock, Done done)
{
    while (!done()) {
        lock.unlock();
        usleep(100);
        lock.lock();
    }
}

// A call that the stream's capture (null: anyone's) does not allow ends it.
cudaError_t stream_spoil(cudaStream_t stream)
{
    for (emulated_stream *s : streams) {
        if (s->capture && (!stream || s->capture == stream->capture)) {
            s->invalid = true;
        }
    }
    return runtime_result(cudaErrorStreamCaptureUnsupported);
}

static cudaError_t enqueue(cudaStream_t stream, operation next)
{
    if (runtime_usable() != cudaSuccess) {
        return runtime_usable();
    }
    if (!stream) { // the null stream waits for the others and they for it
        if (stream_capturing(nullptr)) {
            return stream_spoil(nullptr);
        }
        streams_finish(true);
        memory_open();
        if (!emulated_faulted()) {
            next.run();
        }
        memory_close();
        return runtime_usable();
    }
    if (!known(stream)) {
        return runtime_result(cudaErrorInvalidResourceHandle);
    }
    if (stream->capture) {
        if (stream->invalid) {
            return runtime_result(cudaErrorStreamCaptureInvalidated);
        }
        stream->capture->nodes.push_back(std::move(next));
        stream->n_operations++;
        return cudaSuccess;
    }
    stream->queue.push_back(std::move(next));
    if (!runtime_setting("YALM_EMULATED_LAZY", 1)) {
        stream_finish(stream);
    }
    return runtime_usable();
}

cudaError_t stream_enqueue(cudaStream_t stream, emulated_call<void> run)
{
    return enqueue(stream, {std::move(run), nullptr, nullptr});
}

cudaError_t emulated_enqueue_when(cudaStream_t stream, emulated_call<bool> ready, emulated_call<void> run)
{
    auto lock = runtime_lock();
    return enqueue(stream, {std::move(run), nullptr, std::move(ready)});
}

cudaError_t emulated_enqueue(const emulated_kernel &kernel, cudaStream_t stream)
{
    auto lock = runtime_lock();
    auto kept = std::make_shared<const emulated_kernel>(kernel);
    auto run = [kept] {
        emulated_run_grid(*kept);
        if (!emulated_faulted()) {
            memory_check_guards();
        }
    };
    return enqueue(stream, {run, kept, nullptr});
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*function)(void *), void *data)
{
    auto lock = runtime_lock();
    return stream_enqueue(stream, [=] { function(data); });
}

// ---------------------------------------------------------------------------------------- streams

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    auto lock = runtime_lock();
    *stream = new emulated_stream();
    (*stream)->blocking = !(flags & cudaStreamNonBlocking);
    streams.push_back(*stream);
    return runtime_usable();
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int)
{
    return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    auto lock = runtime_lock();
    if (!known(stream)) {
        return runtime_result(cudaErrorInvalidResourceHandle);
    }
    if (stream->capture) {
        return stream_spoil(stream);
    }
    stream_finish(stream);
    streams.erase(std::find(streams.begin(), streams.end(), stream));
    delete stream;
    return runtime_usable();
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    auto lock = runtime_lock();
    if (stream && !known(stream)) {
        return runtime_result(cudaErrorInvalidResourceHandle);
    }
    if (stream_capturing(stream)) {
        return stream_spoil(stream);
    }
    wait_for(lock, [=] {
        stream_finish(stream);
        return !stream || stream->queue.empty();
    });
    return runtime_usable();
}

// What is asked about gets done: who asks in a loop gets to its end.
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    auto lock = runtime_lock();
    if (stream && !known(stream)) {
        return runtime_result(cudaErrorInvalidResourceHandle);
    }
    if (stream_capturing(stream)) {
        return stream_spoil(stream);
    }
    bool busy = stream && !stream->queue.empty();
    stream_finish(stream);
    if (stream && !stream->queue.empty()) { // others may have to use the device first
        lock.unlock();
        usleep(100);
    }
    return runtime_usable() != cudaSuccess ? runtime_usable() : busy ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    auto lock = runtime_lock();
    if (stream_capturing(nullptr)) {
        return stream_spoil(nullptr);
    }
    streams_finish(false);
    return runtime_usable();
}

// ---------------------------------------------------------------------------------------- events

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    *event = new emulated_event();
    return runtime_usable();
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    auto lock = runtime_lock();
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    auto lock = runtime_lock();
    if (!event) {
        return runtime_result(cudaErrorInvalidResourceHandle);
    }
    if (stream && known(stream) && stream->capture) {
        event->capture = stream->capture;
        event->stream = stream;
        event->n_operations = stream->n_operations;
        return cudaSuccess;
    }
    auto last = std::make_shared<mark>();
    last->stream = stream;
    event->last = last;
    event->capture = nullptr;
    return stream_enqueue(stream, [last] {
        last->done = true;
        last->when = std::chrono::steady_clock::now();
    });
}

static void finish_until(const mark &last)
{
    memory_open();
    while (!last.done && last.stream && known(last.stream) && !last.stream->queue.empty() && !is_held(last.stream)) {
        run_one(last.stream);
    }
    memory_close();
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    auto lock = runtime_lock();
    if (!event || (stream && !known(stream))) {
        return runtime_result(cudaErrorInvalidResourceHandle);
    }
    if (event->capture && stream) {
        if (stream->capture && stream->capture != event->capture) {
            return stream_spoil(stream);
        }
        if (!stream->capture) { // the stream joins the capture
            stream->capture = event->capture;
            stream->origin = stream->invalid = false;
            stream->n_operations = stream->n_joined = 0;
        } else if (event->stream != stream) {
            event->stream->n_joined = std::max(event->stream->n_joined, event->n_operations);
        }
        return cudaSuccess;
    }
    if (stream && stream->capture) {
        return stream_spoil(stream);
    }
    auto last = event->last;
    return last ? stream_enqueue(stream, [last] { finish_until(*last); }) : runtime_usable();
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    auto lock = runtime_lock();
    if (event->capture) {
        return stream_spoil(event->stream);
    }
    if (auto last = event->last) {
        wait_for(lock, [=] {
            finish_until(*last);
            return last->done || !last->stream || !known(last->stream) || last->stream->queue.empty();
        });
    }
    return runtime_usable();
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    auto lock = runtime_lock();
    bool busy = event->last && !event->last->done;
    cudaError_t code = cudaEventSynchronize(event);
    return code == cudaSuccess && busy ? cudaErrorNotReady : code;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end)
{
    auto lock = runtime_lock();
    if (!begin->last || !end->last) {
        return runtime_result(cudaErrorInvalidResourceHandle);
    }
    if (!begin->last->done || !end->last->done) {
        return cudaErrorNotReady;
    }
    *milliseconds = std::chrono::duration<float, std::milli>(end->last->when - begin->last->when).count();
    return runtime_usable();
}

// ---------------------------------------------------------------------------------------- graphs

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode)
{
    auto lock = runtime_lock();
    if (!stream || !known(stream) || stream->capture) {
        return runtime_result(cudaErrorStreamCaptureUnsupported);
    }
    stream->capture = new emulated_graph();
    stream->origin = true;
    stream->invalid = false;
    stream->n_operations = stream->n_joined = 0;
    return runtime_usable();
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    auto lock = runtime_lock();
    *graph = nullptr;
    if (!stream || !known(stream) || !stream->capture || !stream->origin) {
        return runtime_result(cudaErrorIllegalState);
    }
    emulated_graph *captured = stream->capture;
    cudaError_t code = stream->invalid ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
    for (emulated_stream *s : streams) {
        if (s->capture == captured) {
            if (code == cudaSuccess && !s->origin && s->n_joined < s->n_operations) {
                code = cudaErrorStreamCaptureUnjoined;
            }
            s->capture = nullptr;
        }
    }
    if (code != cudaSuccess) {
        delete captured;
        return runtime_result(code);
    }
    *graph = captured;
    return runtime_usable();
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status)
{
    auto lock = runtime_lock();
    bool capturing = stream && stream->capture;
    *status = !capturing        ? cudaStreamCaptureStatusNone
              : stream->invalid ? cudaStreamCaptureStatusInvalidated
                                : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    auto lock = runtime_lock();
    if (!graph) {
        return runtime_result(cudaErrorInvalidValue);
    }
    *exec = new emulated_graph_exec{graph->nodes};
    return runtime_usable();
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t)
{
    return runtime_usable();
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    auto lock = runtime_lock();
    if (!exec) {
        return runtime_result(cudaErrorInvalidValue);
    }
    for (const operation &node : exec->nodes) {
        // A node of its own, so that the same kernel twice is two.
        cudaError_t code = node.kernel ? emulated_enqueue(*node.kernel, stream) : enqueue(stream, node);
        if (code != cudaSuccess) {
            return code;
        }
    }
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    auto lock = runtime_lock();
    streams_finish(false);
    delete exec;
    return cudaSuccess;
}
