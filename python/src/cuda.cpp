#include "cuda.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>
#include <string>

#include "cistern/cistern.h"
#include "cistern/cistern.hpp"
#include "cistern/ipc.hpp"
#include "cistern/stream.hpp"
#include "interop/open_lanes.hpp"
#include "pool.hpp"

namespace nb = nanobind;

// What PyTorch's pluggable allocator calls, found in this module by name. It takes null for memory like any
// other, so what fails has to throw; that ends as a Python exception.
extern "C" {
CISTERN_API void* cistern_torch_malloc(std::ptrdiff_t bytes, int device, void* stream) {
    void* const data = cistern_cuda_malloc(bytes, device, stream);
    if (data == nullptr && bytes != 0) {
        const bool full = cistern_last_error_code() == CISTERN_OUT_OF_MEMORY;
        throw std::runtime_error((full ? "CUDA out of memory, says Cistern: " : "Cistern: ") +
                                 std::string(cistern_last_error()));
    }
    return data;
}
CISTERN_API void cistern_torch_free(void* data, std::ptrdiff_t bytes, int device, void* stream) {
    cistern_cuda_free(data, bytes, device, stream);
}
CISTERN_API void cistern_torch_record_stream(void* data, void* stream) {
    cistern_cuda_used_on(data, stream);
}
}

namespace cistern::python {

namespace {

MemoryKind kind_of(const std::string& name) {
    if (name == "device") return MemoryKind::device;
    if (name == "pinned") return MemoryKind::pinned;
    if (name == "managed") return MemoryKind::managed;
    if (name == "host") return MemoryKind::host;
    throw InvalidArgument("expected 'host', 'pinned', 'device' or 'managed': '" + name + "'");
}

void* pointer_of(std::uintptr_t number) {
    return reinterpret_cast<void*>(number);  // NOLINT(performance-no-int-to-ptr): Python's form
}

/// A buffer that Python holds; gone with the object.
class Loan {
public:
    explicit Loan(Buffer&& buffer, int device) : buffer_(std::move(buffer)), device_(device) {}
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    ~Loan() {
        const nb::gil_scoped_release free;  // it may wait for the device
        buffer_.release();
    }

    [[nodiscard]] std::uintptr_t address() const {
        return reinterpret_cast<std::uintptr_t>(buffer_.data());
    }
    [[nodiscard]] std::size_t bytes() const { return buffer_.size(); }
    [[nodiscard]] int device() const { return device_; }
    void used_on(std::uintptr_t stream) { also_used_on(buffer_, pointer_of(stream)); }
    void hand_to(std::uintptr_t stream) { detail::hand_over(buffer_, pointer_of(stream)); }
    void release() { buffer_.release(); }
    [[nodiscard]] SharedBuffer shared() const { return share(buffer_); }
    /// Between these bytes and the host's at an address; done when it returns.
    void copy_from(std::uintptr_t host, std::size_t bytes) {
        check(bytes);
        buffer_.memory().source()->copy(buffer_.data(), pointer_of(host), bytes);
    }
    void copy_to(std::uintptr_t host, std::size_t bytes) const {
        check(bytes);
        buffer_.memory().source()->copy(pointer_of(host), buffer_.data(), bytes);
    }

private:
    void check(std::size_t bytes) const {
        if (bytes > buffer_.size()) {
            throw InvalidArgument("cannot copy " + std::to_string(bytes) + " B: the loan has " +
                                  std::to_string(buffer_.size()));
        }
    }

    Buffer buffer_;
    int device_;
};

Loan* lend(const std::string& kind, int device, std::size_t bytes, nb::object stream) {
    const bool ordered = !stream.is_none();
    void* const handle = ordered ? pointer_of(nb::cast<std::uintptr_t>(stream)) : nullptr;
    const nb::gil_scoped_release free;  // it may wait for the driver
    Pool& pool = default_pool(kind_of(kind), device);
    return new Loan(ordered ? detail::acquire_on_any(pool, bytes, handle) : pool.acquire(bytes),
                    device);
}

/// A loan, or what was opened, as an object with __dlpack__, which keeps it.
nb::object as_dlpack(nb::object owner, const std::vector<std::size_t>& shape, int code, int bits) {
    nb::ndarray<> array(
        pointer_of(nb::cast<std::uintptr_t>(owner.attr("ptr"))), shape.size(), shape.data(), owner,
        nullptr,
        nb::dlpack::dtype{static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(bits), 1},
        nb::device::cuda::value, nb::cast<int>(owner.attr("device")));
    return nb::cast(array);
}

using Parts =
    std::vector<std::pair<int, std::size_t>>;  // descriptors and how many bytes each names

/// What share() made, in this process or another; the descriptors are its own from now on.
void make_shared_buffer(SharedBuffer* self, const Parts& parts, std::size_t offset,
                        std::size_t bytes, nb::bytes uuid) {
    SharedBuffer shared;
    for (const auto& [file, size] : parts) shared.parts.push_back({FileDescriptor(file), size});
    shared.offset = offset;
    shared.size = bytes;
    if (uuid.size() != shared.device.size()) throw InvalidArgument("a UUID has 16 bytes");
    std::copy_n(uuid.c_str(), shared.device.size(), shared.device.begin());
    new (self) SharedBuffer(std::move(shared));
}

Parts parts_of(const SharedBuffer& shared) {
    Parts parts;
    for (const auto& part : shared.parts) parts.emplace_back(part.file.number(), part.bytes);
    return parts;
}

nb::bytes uuid_of(const SharedBuffer& shared) {
    return nb::bytes(shared.device.data(), shared.device.size());
}

/// Shared bytes that Python holds; unmapped with the object.
class Opened {
public:
    explicit Opened(const SharedBuffer& shared) : buffer_(shared) {}
    Opened(const Opened&) = delete;
    Opened& operator=(const Opened&) = delete;
    ~Opened() {
        const nb::gil_scoped_release free;  // it waits for the device
        buffer_ = ImportedBuffer();
    }

    [[nodiscard]] std::uintptr_t address() const {
        return reinterpret_cast<std::uintptr_t>(buffer_.data());
    }
    [[nodiscard]] std::size_t bytes() const { return buffer_.size(); }
    [[nodiscard]] int device() const { return buffer_.device_id(); }
    void used_on(std::uintptr_t) const {}
    void hand_to(std::uintptr_t) const {}

private:
    ImportedBuffer buffer_;
};

void add_sharing(nb::module_& module) {
    nb::class_<SharedBuffer>(module, "Shared", "Device memory for other processes.")
        .def("__init__", &make_shared_buffer, nb::arg("parts"), nb::arg("offset"),
             nb::arg("nbytes"), nb::arg("uuid"))
        .def_prop_ro("parts", &parts_of)
        .def_ro("offset", &SharedBuffer::offset)
        .def_ro("nbytes", &SharedBuffer::size)
        .def_prop_ro("uuid", &uuid_of);
    nb::class_<Opened>(module, "Opened", "Device memory of another process.")
        .def(nb::init<const SharedBuffer&>(), nb::arg("shared"),
             nb::call_guard<nb::gil_scoped_release>())
        .def_prop_ro("ptr", &Opened::address)
        .def_prop_ro("nbytes", &Opened::bytes)
        .def_prop_ro("device", &Opened::device)
        .def("also_used_on", &Opened::used_on, nb::arg("stream"),
             "Nothing to do: its end waits for all streams.")
        .def("hand_to", &Opened::hand_to, nb::arg("stream"), "Nothing to do either.");
}

}  // namespace

void add_cuda(nb::module_& module) {
    nb::class_<Loan>(module, "Loan", "Bytes on loan from a pool; they return with the object.")
        .def_prop_ro("ptr", &Loan::address)
        .def_prop_ro("nbytes", &Loan::bytes)
        .def_prop_ro("device", &Loan::device)
        .def("also_used_on", &Loan::used_on, nb::arg("stream"),
             "Say that work on this stream uses the bytes too.")
        .def("hand_to", &Loan::hand_to, nb::arg("stream"), nb::call_guard<nb::gil_scoped_release>(),
             "Say that from now on work on this stream uses the bytes: it waits for those before.")
        .def("copy_from", &Loan::copy_from, nb::arg("host"), nb::arg("nbytes"),
             nb::call_guard<nb::gil_scoped_release>(), "Copies from an address of the host.")
        .def("copy_to", &Loan::copy_to, nb::arg("host"), nb::arg("nbytes"),
             nb::call_guard<nb::gil_scoped_release>(), "Copies to an address of the host.")
        .def("share", &Loan::shared, nb::call_guard<nb::gil_scoped_release>(),
             "The bytes for other processes.")
        .def("release", &Loan::release, nb::call_guard<nb::gil_scoped_release>());
    add_sharing(module);
    module.def("cuda_available", &cuda_available);
    module.def("lend", &lend, nb::arg("kind"), nb::arg("device"), nb::arg("nbytes"),
               nb::arg("stream").none() = nb::none(),
               "Bytes of the process's pool on this memory, in a stream's order.");
    module.def("as_dlpack", &as_dlpack, nb::arg("loan"), nb::arg("shape"), nb::arg("code"),
               nb::arg("bits"));
    module.def(
        "default_stats_json",
        [](const std::string& kind, int device) {
            const nb::gil_scoped_release free;
            return default_pool(kind_of(kind), device).stats().json();
        },
        nb::arg("kind"), nb::arg("device") = 0);
    module.def(
        "default_explain",
        [](const std::string& kind, int device) {
            const nb::gil_scoped_release free;
            std::ostringstream out;
            out << default_pool(kind_of(kind), device).explain();
            return out.str();
        },
        nb::arg("kind"), nb::arg("device") = 0);
    module.def(
        "default_trim",
        [](const std::string& kind, int device, std::size_t keep) {
            const nb::gil_scoped_release free;
            return default_pool(kind_of(kind), device).trim(keep);
        },
        nb::arg("kind"), nb::arg("device") = 0, nb::arg("keep_idle_bytes") = 0);
    module.def(
        "default_set_limits",
        [](const std::string& kind, int device, std::optional<std::size_t> max_bytes,
           std::optional<std::size_t> max_idle_bytes, std::optional<std::size_t> max_idle_buffers,
           std::optional<std::size_t> max_buffer_bytes,
           std::optional<std::int64_t> max_idle_milliseconds) {
            const auto pool = [&]() -> Pool& {
                const nb::gil_scoped_release free;  // it may start the driver
                return default_pool(kind_of(kind), device);
            };
            change_limits(pool(), {max_bytes, max_idle_bytes, max_idle_buffers, max_buffer_bytes,
                                   max_idle_milliseconds});
        },
        nb::arg("kind"), nb::arg("device"), nb::kw_only(), nb::arg("max_bytes").none(),
        nb::arg("max_idle_bytes").none(), nb::arg("max_idle_buffers").none(),
        nb::arg("max_buffer_bytes").none(), nb::arg("max_idle_milliseconds").none());
    module.def("torch_record_stream",
               [] { return reinterpret_cast<std::uintptr_t>(&cistern_torch_record_stream); });
}

}  // namespace cistern::python
