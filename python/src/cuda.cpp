#include "cuda.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <sstream>
#include <stdexcept>
#include <string>

#include "cistern/cistern.h"
#include "cistern/cistern.hpp"
#include "cistern/stream.hpp"
#include "interop/open_lanes.hpp"

namespace nb = nanobind;

// What PyTorch's pluggable allocator calls, found in this module by name. It takes null for memory like any
// other, so what fails has to throw; that ends as a Python exception.
extern "C" {
CISTERN_API void* cistern_torch_malloc(std::ptrdiff_t bytes, int device, void* stream) {
    void* const data = cistern_cuda_malloc(bytes, device, stream);
    if (data == nullptr && bytes != 0) {
        throw std::runtime_error(std::string("CUDA out of memory, says Cistern: ") +
                                 cistern_last_error());
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

    [[nodiscard]] std::uintptr_t address() const {
        return reinterpret_cast<std::uintptr_t>(buffer_.data());
    }
    [[nodiscard]] std::size_t bytes() const { return buffer_.size(); }
    [[nodiscard]] int device() const { return device_; }
    void used_on(std::uintptr_t stream) { also_used_on(buffer_, pointer_of(stream)); }
    void release() { buffer_.release(); }

private:
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

/// The loan as an object with __dlpack__, which keeps it.
nb::object as_dlpack(nb::object owner, const std::vector<std::size_t>& shape, int code, int bits) {
    const Loan& loan = nb::cast<const Loan&>(owner);
    nb::ndarray<> array(
        pointer_of(loan.address()), shape.size(), shape.data(), owner, nullptr,
        nb::dlpack::dtype{static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(bits), 1},
        nb::device::cuda::value, loan.device());
    return nb::cast(array);
}

}  // namespace

void add_cuda(nb::module_& module) {
    nb::class_<Loan>(module, "Loan", "Bytes on loan from a pool; they return with the object.")
        .def_prop_ro("ptr", &Loan::address)
        .def_prop_ro("nbytes", &Loan::bytes)
        .def_prop_ro("device", &Loan::device)
        .def("also_used_on", &Loan::used_on, nb::arg("stream"),
             "Say that work on this stream uses the bytes too.")
        .def("release", &Loan::release, nb::call_guard<nb::gil_scoped_release>());
    module.def("cuda_available", &cuda_available);
    module.def("lend", &lend, nb::arg("kind"), nb::arg("device"), nb::arg("nbytes"),
               nb::arg("stream").none() = nb::none(),
               "Bytes of the process's pool on this memory, in a stream's order.");
    module.def("as_dlpack", &as_dlpack, nb::arg("loan"), nb::arg("shape"), nb::arg("code"),
               nb::arg("bits"));
    module.def(
        "default_stats_json",
        [](const std::string& kind, int device) {
            return default_pool(kind_of(kind), device).stats().json();
        },
        nb::arg("kind"), nb::arg("device") = 0);
    module.def(
        "default_explain",
        [](const std::string& kind, int device) {
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
    module.def("torch_record_stream",
               [] { return reinterpret_cast<std::uintptr_t>(&cistern_torch_record_stream); });
}

}  // namespace cistern::python
