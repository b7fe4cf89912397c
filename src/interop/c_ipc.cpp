// Device memory between processes, for the C ABI. What is opened is known by its address.

#include <map>
#include <mutex>

#include "cistern/cistern.h"
#include "cistern/ipc.hpp"
#include "interop/c_call.hpp"
#include "interop/text.hpp"
#include "memory/shareable.hpp"

namespace cistern::detail {

namespace {

/// What this process has opened. Never destroyed, and no lock is held while the driver is called.
class Opened {
public:
    static Opened& instance() {
        static auto* const all = new Opened;
        return *all;
    }
    void add(ImportedBuffer&& buffer) {
        const std::scoped_lock hold(lock_);
        void* const data = buffer.data();
        buffers_.try_emplace(data, std::move(buffer));
    }
    /// Returns an empty one if nothing was opened at this address.
    ImportedBuffer remove(void* data) {
        const std::scoped_lock hold(lock_);
        const auto node = buffers_.extract(data);
        return node.empty() ? ImportedBuffer() : std::move(node.mapped());
    }

private:
    std::mutex lock_;
    std::map<void*, ImportedBuffer> buffers_;
};

/// The table must not be locked while the driver exports. But no number is given out twice: if it still
/// names the buffer afterwards, the buffer was lent all the time, and its handles with it.
SharedBuffer share(cistern_buffer buffer) {
    auto& table = BufferTable::instance();
    struct Lent {
        Memory memory;
        const void* data;
        std::size_t bytes;
    };
    const Lent lent = table.read(buffer, [](const Buffer& its) {
        if (its.empty()) throw InvalidArgument("an empty buffer cannot be shared");
        return Lent{its.memory(), its.data(), its.size()};
    });
    SharedBuffer shared = share_bytes(lent.memory, lent.data, lent.bytes);
    table.read(buffer, [](const Buffer&) { return 0; });
    return shared;
}

}  // namespace

}  // namespace cistern::detail

using namespace cistern;
using detail::call;
using detail::status_of;

cistern_status cistern_share(cistern_buffer buffer, int socket) {
    return status_of([&] { send(detail::share(buffer), socket); });
}

void* cistern_open_shared(int socket, size_t* bytes, int32_t* device) {
    return call([&] {
        detail::check_pointer(bytes, "bytes");
        ImportedBuffer buffer{receive(socket)};
        void* const data = buffer.data();
        const std::size_t size = buffer.size();
        const int device_id = buffer.device_id();
        detail::Opened::instance().add(std::move(buffer));
        *bytes = size;
        if (device != nullptr) *device = device_id;
        return data;
    });
}

cistern_status cistern_close_shared(void* data) {
    return status_of([&] {
        if (data != nullptr && detail::Opened::instance().remove(data).empty()) {
            throw InvalidArgument("nothing was opened at this address: " +
                                  detail::text_of_address(data));
        }
    });
}
