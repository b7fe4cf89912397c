// Binds the pool. The two verbs that programs call in their loops, empty and zeros, are plain CPython
// methods: they read their own arguments and go straight to the pool.

#include "pool.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cistern/cistern.hpp"
#include "errors.hpp"
#include "gil.hpp"
#include "lend.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace cistern::python {

namespace {

template <bool zeroed>
PyObject* lend(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
    return guarded<PyObject*>(nullptr, [&] {
        auto* const pool = nb::inst_ptr<PythonPool>(nb::handle(self));
        if (!nb::inst_ready(nb::handle(self))) {
            PyErr_SetString(PyExc_RuntimeError, "Pool.__init__() was not called");
            throw ErrorIsSet{};
        }
        if (count == 1 && keywords == nullptr) return pool->array(args[0], nullptr, zeroed);
        if (count == 2 && keywords == nullptr) return pool->array(args[0], args[1], zeroed);
        static constexpr const char* names[] = {"shape", "dtype", nullptr};
        PyObject* values[2];
        read_arguments(zeroed ? "zeros" : "empty", args, count, keywords, names, 1, values);
        return pool->array(values[0], values[1], zeroed);
    });
}

template <class Function>
PyCFunction as_method(Function* function) noexcept {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef methods[] = {
    {"empty", as_method(&lend<false>), METH_FASTCALL | METH_KEYWORDS,
     "empty($self, /, shape, dtype=None)\n--\n\n"
     "Lends an array with whatever its bytes held last: numpy.empty from the pool."},
    {"zeros", as_method(&lend<true>), METH_FASTCALL | METH_KEYWORDS,
     "zeros($self, /, shape, dtype=None)\n--\n\n"
     "Lends an array of zeros. Fresh pages are not zeroed twice."},
};

Fit fit_of(const std::string& kind, double max_waste, std::size_t block_bytes) {
    if (kind == "elastic") return Elastic{};
    if (kind == "exact") return ExactFit{};
    if (kind == "best") return BestFit{max_waste};
    return FixedBlock{block_bytes};
}

Evict evict_of(const std::string& name) {
    if (name == "smallest") return Evict::smallest;
    if (name == "largest") return Evict::largest;
    if (name == "oldest") return Evict::oldest;
    throw InvalidArgument("evict is 'oldest', 'smallest' or 'largest', not '" + name + "'");
}

Memory memory_of(const std::string& name, bool huge_pages, std::optional<std::size_t> numa_node,
                 std::optional<std::size_t> device) {
    const auto number = [](std::size_t given) {
        constexpr std::size_t most = std::numeric_limits<int>::max();  // no machine has that one
        return static_cast<int>(std::min(given, most));
    };
    if (name == "host") {
        if (device) {
            throw InvalidArgument("device is for memory 'pinned' and 'managed', not for 'host': " +
                                  std::to_string(*device));
        }
        const int node = numa_node ? number(*numa_node) : -1;
        return Memory::host({.huge_pages = huge_pages, .numa_node = node});
    }
    if (numa_node) {
        throw InvalidArgument("numa_node is for memory 'host', not for '" + name +
                              "': " + std::to_string(*numa_node));
    }
    if (name == "pinned") return Memory::pinned(number(device.value_or(0)));
    if (name == "managed") return Memory::managed(number(device.value_or(0)));
    if (name == "device") {
        throw Unavailable("NumPy's arrays cannot be on a device: use cistern.cuda.empty");
    }
    throw InvalidArgument("expected memory 'host', 'pinned' or 'managed': '" + name + "'");
}

template <class Options>  // PoolOptions or Limits: the names are the same
void apply(const LimitArguments& limits, Options& options) {
    if (limits.max_bytes) options.max_bytes = *limits.max_bytes;
    if (limits.max_idle_bytes) options.max_idle_bytes = *limits.max_idle_bytes;
    if (limits.max_idle_buffers) options.max_idle_buffers = *limits.max_idle_buffers;
    if (limits.max_buffer_bytes) options.max_buffer_bytes = *limits.max_buffer_bytes;
    if (limits.max_idle_milliseconds) {
        const std::chrono::milliseconds age(*limits.max_idle_milliseconds);
        options.max_idle_age = age;
    }
}

template <class Printable>
std::string printed(const Printable& value) {
    std::ostringstream out;
    out << value;
    return out.str();
}

using OptionalBytes = std::optional<std::size_t>;

void construct(PythonPool* place, const std::string& memory, bool huge_pages,
               std::optional<std::size_t> numa_node, std::optional<std::size_t> device,
               const std::string& name, const std::string& fit, double max_waste,
               std::size_t block_bytes, std::size_t alignment, OptionalBytes max_bytes,
               OptionalBytes max_idle_bytes, OptionalBytes max_idle_buffers,
               OptionalBytes max_buffer_bytes, std::optional<std::int64_t> max_idle_milliseconds,
               const std::string& evict, bool separate_types, bool wipe_on_release) {
    const bool fixed = fit == "fixed";
    PoolOptions options{.name = name,
                        .alignment = alignment,
                        .evict = evict_of(evict),
                        .separate_types = separate_types,
                        .wipe_on_release = wipe_on_release};
    // Arrays have a header; it does not count against the block that a user describes.
    const std::size_t header = std::max(alignment, least_header);
    if (fixed && block_bytes > no_limit - header) {
        throw InvalidArgument(
            "blocks of this size cannot be addressed: " + std::to_string(block_bytes) + " B");
    }
    options.fit = fit_of(fit, max_waste, block_bytes + header);
    apply({max_bytes, max_idle_bytes, max_idle_buffers, max_buffer_bytes, max_idle_milliseconds},
          options);
    new (place) PythonPool(Pool(memory_of(memory, huge_pages, numa_node, device), options),
                           fixed ? block_bytes : no_limit);
}

void set_limits(PythonPool& self, OptionalBytes max_bytes, OptionalBytes max_idle_bytes,
                OptionalBytes max_idle_buffers, OptionalBytes max_buffer_bytes,
                std::optional<std::int64_t> max_idle_milliseconds) {
    change_limits(self.pool(), {max_bytes, max_idle_bytes, max_idle_buffers, max_buffer_bytes,
                                max_idle_milliseconds});
}

nb::typed<nb::dict, nb::str, nb::int_> limits_of(PythonPool& self) {
    const PoolOptions now = self.pool().options();
    nb::typed<nb::dict, nb::str, nb::int_> result;
    result["max_bytes"] = now.max_bytes;
    result["max_idle_bytes"] = now.max_idle_bytes;
    result["max_idle_buffers"] = now.max_idle_buffers;
    result["max_buffer_bytes"] = now.max_buffer_bytes;
    result["max_idle_milliseconds"] = now.max_idle_age.count();
    return result;
}

using Texts = std::pair<std::string, std::string>;  // JSON, and for people

Texts texts_of_stats(PythonPool& self) {
    const PoolStats stats = self.pool().stats();
    return {stats.json(), printed(stats)};
}

using KeyRow = std::tuple<std::string, std::uint64_t, std::uint64_t>;  // key, buffers, bytes

Texts texts_of_explanation(PythonPool& self, const std::vector<KeyRow>& keys) {
    Explanation explanation = self.pool().explain();
    for (const auto& [key, buffers, bytes] : keys) {
        explanation.keys.push_back({.key = key, .lent_buffers = buffers, .lent_bytes = bytes});
    }
    return {explanation.json(), printed(explanation)};
}

std::size_t trim(PythonPool& self, std::size_t keep_idle_bytes) {
    const WithoutGil without;
    return self.pool().trim(keep_idle_bytes);
}

/// Returns a new handler that serves NumPy from this pool.
nb::object numpy_handler(PythonPool& self, std::size_t min_bytes) {
    PyObject* const capsule = Handler::make(self.pool(), min_bytes);
    if (capsule == nullptr) throw nb::python_error();
    return nb::steal(capsule);
}

}  // namespace

void change_limits(Pool& pool, const LimitArguments& changes) {
    const PoolOptions now = pool.options();
    Limits limits{now.max_bytes, now.max_idle_bytes, now.max_idle_buffers, now.max_buffer_bytes,
                  now.max_idle_age};
    apply(changes, limits);
    if (!changes.max_idle_bytes) {
        limits.max_idle_bytes = std::min(limits.max_idle_bytes, limits.max_bytes);
    }
    const WithoutGil without;
    pool.set_limits(limits);
}

void add_pool(nb::module_& module) {
    auto pool = nb::class_<PythonPool>(module, "Pool");
    pool.def("__init__", &construct, nb::kw_only(), "memory"_a, "huge_pages"_a, "numa_node"_a,
             "device"_a, "name"_a, "fit"_a, "max_waste"_a, "block_bytes"_a, "alignment"_a,
             "max_bytes"_a.none(), "max_idle_bytes"_a.none(), "max_idle_buffers"_a.none(),
             "max_buffer_bytes"_a.none(), "max_idle_milliseconds"_a.none(), "evict"_a,
             "separate_types"_a, "wipe_on_release"_a)
        .def("_set_limits", &set_limits, nb::kw_only(), "max_bytes"_a.none(),
             "max_idle_bytes"_a.none(), "max_idle_buffers"_a.none(), "max_buffer_bytes"_a.none(),
             "max_idle_milliseconds"_a.none())
        .def("_limits", &limits_of)
        .def("_stats", &texts_of_stats)
        .def("_explain", &texts_of_explanation, "keys"_a)
        .def("_trim", &trim, "keep_idle_bytes"_a)
        .def("_numpy_handler", &numpy_handler, "min_bytes"_a)
        .def_prop_ro("name", [](PythonPool& self) { return self.pool().options().name; })
        .def_prop_ro("memory", [](PythonPool& self) { return self.pool().memory().name(); });
    for (PyMethodDef& method : methods) {
        PyObject* const descriptor =
            PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(pool.ptr()), &method);
        if (descriptor == nullptr) throw nb::python_error();
        pool.attr(method.ml_name) = nb::steal(descriptor);
    }
}

}  // namespace cistern::python
