#pragma once
// The order of CUDA streams on one device.

#include "memory/cuda_captures.hpp"
#include "memory/stream_order.hpp"

namespace cistern::cuda {

/// Waits on the host for a stream's work, whichever device's it is, unless it is being captured.
void wait_for(void* stream) noexcept;

class Streams : public StreamOrder {
public:
    explicit Streams(const DeviceContext& device)
        : device_(device), captures_(Captures::of(device)) {}

    [[nodiscard]] StreamInfo look_at(void* stream) const override;
    [[nodiscard]] void* make_event() const override;
    void drop_event(void* event) const noexcept override;
    bool record(void* event, const StreamInfo& stream) const override;
    [[nodiscard]] bool may_use(const StreamInfo& stream) const noexcept override;
    [[nodiscard]] bool goes_on(const StreamInfo& captured) const noexcept override {
        return captures_.goes_on(captured.capture);
    }
    [[nodiscard]] bool may_mark_all() const noexcept override { return !captures_.any(); }
    [[nodiscard]] bool record_all(void* event) const override;
    void wait(const StreamInfo& stream, void* event) const override;
    [[nodiscard]] bool is_done(void* event) const noexcept override;
    [[nodiscard]] bool wait_on_host(void* event) const noexcept override;
    [[nodiscard]] bool wait_for_all() const noexcept override { return captures_.wait_for_all(); }
    void tell_when_gone(void* graph, void* object, void (*gone)(void*)) const override;
    void zero(const StreamInfo& stream, void* data, std::size_t bytes) const override;
    void copy(const StreamInfo& stream, void* to, const void* from,
              std::size_t bytes) const override;

protected:
    [[nodiscard]] const DeviceContext& device() const noexcept { return device_; }
    [[nodiscard]] const Driver& driver() const noexcept { return device_.driver(); }

private:
    const DeviceContext& device_;
    Captures& captures_;
};

}  // namespace cistern::cuda
