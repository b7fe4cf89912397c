#include "memory/cuda_streams.hpp"

#include "cistern/error.hpp"

namespace cistern::cuda {

namespace {

Stream stream_of(const StreamInfo& info) noexcept { return static_cast<Stream>(info.handle); }
Event event_of(void* event) noexcept { return static_cast<Event>(event); }

/// The legacy stream is never captured itself.
Capture capture_of(const Driver& driver, void* stream) noexcept {
    Capture capture;
    const bool answered =
        !is_legacy(stream) && ask(driver, static_cast<Stream>(stream), capture) == success;
    return answered ? capture : Capture{};
}

}  // namespace

void wait_for(void* stream) noexcept {
    const Driver* const driver = cuda::driver();
    Context context = nullptr;
    if (driver == nullptr ||
        driver->stream_context(static_cast<Stream>(stream), &context) != success ||
        driver->push_context(context) != success) {
        return;
    }
    int mode = 2;  // relaxed
    driver->exchange_capture_mode(&mode);
    if (capture_of(*driver, stream).status == 0) {
        driver->stream_synchronize(static_cast<Stream>(stream));
    }
    driver->exchange_capture_mode(&mode);
    driver->pop_context(&context);
}

StreamInfo Streams::look_at(void* stream) const {
    const Entered entered(device_);
    StreamInfo info;
    info.handle = stream;
    info.fleeting = is_per_thread(stream);
    if (!is_legacy(stream) && !is_per_thread(stream)) {
        Context context = nullptr;
        check("not a stream", driver().stream_context(static_cast<Stream>(stream), &context));
        if (context != device_.context()) {
            throw InvalidArgument(
                "stream belongs to another device than the memory, which is device " +
                std::to_string(device_.ordinal()) + "'s");
        }
    }
    if (const Capture capture = capture_of(driver(), stream); capture.status != 0) {
        constexpr int invalidated = 2;
        if (capture.status == invalidated) throw DeviceError("the stream's capture has failed");
        // To ask for its number would end the capture; within it the handle tells streams apart.
        info.id = reinterpret_cast<std::uintptr_t>(stream);
        info.capture = capture.id;
        info.graph = capture.graph;
        captures_.watch(static_cast<Stream>(stream), capture.id);
        return info;
    }
    unsigned long long id = 0;
    check("not a stream", driver().stream_id(static_cast<Stream>(stream), &id));
    info.id = id;
    return info;
}

void* Streams::make_event() const {
    const Entered entered(device_);
    Event event = nullptr;
    check("cannot make an event", driver().create_event(&event, event_without_timing));
    return event;
}

void Streams::drop_event(void* event) const noexcept {
    const Entered entered(device_);
    driver().destroy_event(event_of(event));
}

bool Streams::may_use(const StreamInfo& stream) const noexcept {
    const Entered entered(device_);
    if (is_legacy(stream.handle)) return !captures_.blocking();
    const Capture capture = capture_of(driver(), stream.handle);
    if (capture.status == 0) return true;
    captures_.watch(stream_of(stream), capture.id);
    return false;
}

bool Streams::record(void* event, const StreamInfo& stream) const {
    const Entered entered(device_);
    if (!may_use(stream)) return false;
    check("cannot mark a stream's work", driver().record_event(event_of(event), stream_of(stream)));
    return true;
}

bool Streams::record_all(void* event) const {
    const Entered entered(device_);
    if (captures_.any()) return false;
    if (driver().record_context != nullptr) {
        const Result result = driver().record_context(device_.context(), event_of(event));
        if (result == success) return true;
        if (is_of_a_capture(result)) return false;  // one that nobody knew of
    }
    if (!captures_.wait_for_all()) return false;
    check("cannot mark a stream's work", driver().record_event(event_of(event), legacy_stream()));
    return true;
}

void Streams::wait(const StreamInfo& stream, void* event) const {
    const Entered entered(device_);
    check("a stream cannot wait", driver().stream_wait(stream_of(stream), event_of(event), 0));
}

bool Streams::is_done(void* event) const noexcept {
    const Entered entered(device_);
    const Result result = driver().query_event(event_of(event));
    if (result == success || result == error_not_ready) return result == success;
    return captures_.wait_for_all();  // it cannot tell
}

bool Streams::wait_on_host(void* event) const noexcept {
    const Entered entered(device_);
    return driver().synchronize_event(event_of(event)) == success || captures_.wait_for_all();
}

void Streams::tell_when_gone(void* graph, void* object, void (*gone)(void*)) const {
    constexpr unsigned without_waiting = 1, pass_reference = 1;
    const Entered entered(device_);
    UserObject kept = nullptr;
    check("cannot attach memory to a graph",
          driver().create_user_object(&kept, object, gone, 1, without_waiting));
    check("cannot attach memory to a graph",
          driver().retain_user_object(static_cast<Graph>(graph), kept, 1, pass_reference));
}

void Streams::zero(const StreamInfo& stream, void* data, std::size_t bytes) const {
    const Entered entered(device_);
    check("cannot zero", driver().set_async(address_of(data), 0, bytes, stream_of(stream)));
}

void Streams::copy(const StreamInfo& stream, void* to, const void* from, std::size_t bytes) const {
    const Entered entered(device_);
    check("cannot copy",
          driver().copy_async(address_of(to), address_of(from), bytes, stream_of(stream)));
}

}  // namespace cistern::cuda
