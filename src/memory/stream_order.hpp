#pragma once
// What a pool has to know of streams: whose work is done in which order. Implemented by memories that
// streams use. No call is made while a lock is held.

#include <cstddef>
#include <cstdint>

namespace cistern {

/// A stream as it was when it was looked at.
struct StreamInfo {
    void* handle = nullptr;
    std::uint64_t id = 0;       // of this stream alone, while the process lives
    std::uint64_t capture = 0;  // which capture it is part of; 0 for none
    void* graph = nullptr;      // that is being captured
    bool fleeting = false;      // to others, or later, the handle may name another stream or none
};

class StreamOrder {
public:
    virtual ~StreamOrder() = default;
    StreamOrder() = default;
    StreamOrder(const StreamOrder&) = delete;
    StreamOrder& operator=(const StreamOrder&) = delete;

    /// Throws InvalidArgument for a stream of another device, DeviceError if the driver fails. If the stream is being
    /// captured, that is remembered: see may_mark_all().
    [[nodiscard]] virtual StreamInfo look_at(void* stream) const = 0;
    /// Whether the host uses the bytes as soon as it has them, in no stream's order.
    [[nodiscard]] virtual bool host_uses() const noexcept = 0;

    /// What a pool keeps idle at most unless told otherwise; 0: as on the host.
    [[nodiscard]] virtual std::size_t usual_max_idle_bytes() const noexcept = 0;

    /// Events. Those that can fail throw DeviceError.
    [[nodiscard]] virtual void* make_event() const = 0;
    virtual void drop_event(void* event) const noexcept = 0;
    /// Marks the work that the stream has been given so far. False, doing nothing, if it may not be used.
    virtual bool record(void* event, const StreamInfo& stream) const = 0;
    /// Whether work of the pool's own may be given to the stream: it would become part of a capture of that, and
    /// the default stream's would end those of blocking streams.
    [[nodiscard]] virtual bool may_use(const StreamInfo& stream) const noexcept = 0;
    /// Whether the capture that a stream was part of when it was looked at is known to go on.
    [[nodiscard]] virtual bool goes_on(const StreamInfo& captured) const noexcept = 0;
    /// False while a blocking stream is captured, or any that was looked at meanwhile: to mark or to wait for all work
    /// would end that. Of other captures nobody can tell before they are ended so.
    [[nodiscard]] virtual bool may_mark_all() const noexcept = 0;
    /// Marks all work that the device has been given so far, whatever became of its streams. False, and nothing
    /// marked, while a stream is being captured.
    [[nodiscard]] virtual bool record_all(void* event) const = 0;
    /// Has what the stream is given from now on wait for the event.
    virtual void wait(const StreamInfo& stream, void* event) const = 0;
    [[nodiscard]] virtual bool is_done(void* event) const noexcept = 0;
    /// Waits on the host. False if the event cannot tell while a stream is being captured. After a failure of the
    /// device there is nothing to wait for.
    [[nodiscard]] virtual bool wait_on_host(void* event) const noexcept = 0;
    /// Waits on the host for all work of the device: where an event cannot be had. False, without waiting, while a
    /// stream is being captured. After a failure of the device there is nothing to wait for.
    [[nodiscard]] virtual bool wait_for_all() const noexcept = 0;

    /// Calls gone(object) once the graph and all that was made of it are gone.
    virtual void tell_when_gone(void* graph, void* object, void (*gone)(void*)) const = 0;

    /// In the stream's order.
    virtual void zero(const StreamInfo& stream, void* data, std::size_t bytes) const = 0;
    virtual void copy(const StreamInfo& stream, void* to, const void* from,
                      std::size_t bytes) const = 0;
};

}  // namespace cistern
