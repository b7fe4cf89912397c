// Device memory between processes: handles that another one exported, mapped side by side.

#include <unistd.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include "cistern/error.hpp"
#include "memory/cuda_captures.hpp"
#include "memory/shareable.hpp"

namespace cistern {

namespace {

using cuda::Address, cuda::DeviceContext, cuda::Entered, cuda::Handle, cuda::Result;

}  // namespace

FileDescriptor::~FileDescriptor() {
    if (number_ >= 0) close(number_);
}

SharedBuffer share_bytes(const Memory& memory, const void* data, std::size_t bytes) {
    if (const auto* const source = dynamic_cast<const Shareable*>(memory.source().get())) {
        return source->share(data, bytes);
    }
    const char* const why = memory.kind() == MemoryKind::device
                                ? "nothing could be mapped here, so it has no handles"
                                : "only device memory can";
    throw InvalidArgument("memory '" + memory.name() + "' cannot be shared: " + why);
}

void check_shared(const SharedBuffer& shared) {
    const auto refuse = [](const char* what) {
        throw InvalidArgument(std::string("not a shared buffer: ") + what);
    };
    if (shared.size == 0 || shared.parts.empty()) refuse("it has no bytes");
    std::size_t total = 0;
    for (const SharedBuffer::Part& part : shared.parts) {
        if (part.file.number() < 0) refuse("a part has no file descriptor");
        if (part.bytes == 0 || part.bytes > PTRDIFF_MAX - total) refuse("a part has no such size");
        total += part.bytes;
    }
    if (shared.offset >= shared.parts.front().bytes) refuse("it begins beyond its first part");
    const std::size_t last = shared.parts.back().bytes;
    if (shared.size > total - shared.offset || shared.offset + shared.size <= total - last) {
        refuse("it does not end in its last part");
    }
}

/// A range of addresses and the parts that are mapped there so far. Ends with both.
struct ImportedBuffer::Mapping {
    explicit Mapping(const SharedBuffer& shared)
        : device(DeviceContext::with(shared.device)),
          captures(cuda::Captures::of(device)),
          size(shared.size) {
        parts.reserve(shared.parts.size());
        for (const SharedBuffer::Part& part : shared.parts) bytes += part.bytes;
    }
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    ~Mapping() {
        if (range == 0) return;
        const Entered entered(device);
        const cuda::Driver& driver = device.driver();
        Address at = range;
        for (const std::size_t part : parts) {
            driver.unmap(at, part);
            at += part;
        }
        driver.unreserve(range, bytes);
    }

    /// Waits until no stream uses it. False if a capture keeps that from being said.
    [[nodiscard]] bool wait() const noexcept { return !ready || captures.wait_for_all(); }

    void map(const SharedBuffer& shared) {
        const Entered entered(device);
        const cuda::Driver& driver = device.driver();
        const auto check = [](Result result) { cuda::check("cannot map shared memory", result); };
        check(driver.reserve(&range, bytes, 0, 0, 0));
        Address at = range;
        for (const SharedBuffer::Part& part : shared.parts) {
            // The driver takes the number of the file in place of a pointer.
            // NOLINTNEXTLINE(performance-no-int-to-ptr)
            void* const file = reinterpret_cast<void*>(std::intptr_t{part.file.number()});
            Handle handle = 0;
            check(driver.import_handle(&handle, file, cuda::handle_is_file));
            const Result result = driver.map(at, part.bytes, 0, handle, 0);
            driver.release(handle);  // what is mapped stays
            check(result);
            parts.push_back(part.bytes);
            at += part.bytes;
        }
        const cuda::AccessDescription access{.location = {.id = device.ordinal()}};
        check(driver.set_access(range, bytes, &access, 1));
        data = range + shared.offset;
        ready = true;
    }

    const DeviceContext& device;
    cuda::Captures& captures;
    Address range = 0, data = 0;
    std::size_t bytes = 0, size;
    std::vector<std::size_t> parts;
    bool ready = false;       // somebody may use it
    Mapping* next = nullptr;  // that waits too

    /// Ends the mapping, if need be with the next one, and those that had to wait.
    static void end(std::unique_ptr<Mapping> mapping) noexcept {
        static std::mutex lock;
        static Mapping* waiting = nullptr;
        const auto keep = [&](std::unique_ptr<Mapping> one) {
            const std::scoped_lock hold(lock);
            one->next = waiting;
            waiting = one.release();
        };
        if (mapping != nullptr) keep(std::move(mapping));
        Mapping* all = nullptr;
        {
            const std::scoped_lock hold(lock);
            all = std::exchange(waiting, nullptr);
        }
        while (all != nullptr) {
            std::unique_ptr<Mapping> one(std::exchange(all, all->next));
            if (!one->wait()) keep(std::move(one));
        }
    }
};

ImportedBuffer::ImportedBuffer() noexcept = default;
ImportedBuffer::ImportedBuffer(ImportedBuffer&&) noexcept = default;
ImportedBuffer& ImportedBuffer::operator=(ImportedBuffer&& other) noexcept {
    if (this != &other) Mapping::end(std::exchange(mapping_, std::move(other.mapping_)));
    return *this;
}
ImportedBuffer::~ImportedBuffer() {
    if (mapping_ != nullptr) Mapping::end(std::move(mapping_));
}

ImportedBuffer::ImportedBuffer(const SharedBuffer& shared) {
    check_shared(shared);
    Mapping::end(nullptr);
    auto mapping = std::make_unique<Mapping>(shared);
    mapping->map(shared);
    mapping_ = std::move(mapping);
}

void* ImportedBuffer::data() const noexcept {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver's type of addresses is a number
    return empty() ? nullptr : reinterpret_cast<void*>(mapping_->data);
}
std::size_t ImportedBuffer::size() const noexcept { return empty() ? 0 : mapping_->size; }
int ImportedBuffer::device_id() const noexcept { return empty() ? -1 : mapping_->device.ordinal(); }

}  // namespace cistern
