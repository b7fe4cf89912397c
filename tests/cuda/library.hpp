#pragma once
// The CUDA driver as tests use it: the library that Cistern loads too, real or stand-in.

#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <type_traits>

#include "driver/control.hpp"
#include "memory/cuda_driver.hpp"

namespace cistern::test {

// What tests call and Cistern does not; an instance of a graph passes as a Graph.
#define CISTERN_TEST_CUDA_FUNCTIONS(X)                                                           \
    X(destroy_stream, cuStreamDestroy_v2, (cuda::Stream stream))                                 \
    X(query_stream, cuStreamQuery, (cuda::Stream stream))                                        \
    X(launch_host, cuLaunchHostFunc, (cuda::Stream stream, void (*function)(void*), void* data)) \
    X(begin_capture, cuStreamBeginCapture_v2, (cuda::Stream stream, int mode))                   \
    X(end_capture, cuStreamEndCapture, (cuda::Stream stream, cuda::Graph * graph))               \
    X(instantiate, cuGraphInstantiateWithFlags,                                                  \
      (cuda::Graph * instance, cuda::Graph graph, unsigned long long flags))                     \
    X(launch_graph, cuGraphLaunch, (cuda::Graph instance, cuda::Stream stream))                  \
    X(destroy_graph, cuGraphDestroy, (cuda::Graph graph))                                        \
    X(destroy_instance, cuGraphExecDestroy, (cuda::Graph instance))

inline constexpr unsigned non_blocking = cuda::stream_non_blocking;
inline constexpr int capture_global = 0, capture_thread_local = 1, capture_relaxed = 2;

struct Library : cuda::Driver {
#define CISTERN_DECLARE(name, symbol, parameters) cuda::Result(*name) parameters = nullptr;
    CISTERN_TEST_CUDA_FUNCTIONS(CISTERN_DECLARE)
#undef CISTERN_DECLARE
    const DriverControl* control =
        nullptr;                // null: a real one, or a stand-in that is taken for one
    bool runs_kernels = false;  // a stand-in does not
    void* handle = nullptr;
    std::string missing;  // functions that it should have; the library itself if there is none

    /// Loads it once; the process keeps it.
    static const Library& get() {
        static const auto* const library = new Library(std::getenv("CISTERN_CUDA_DRIVER"));
        return *library;
    }
    [[nodiscard]] bool is_stand_in() const { return control != nullptr; }

    template <class Function>
    void find(Function& function, const char* symbol, bool needed = true) {
        void* const address = dlsym(handle, symbol);
        if (address == nullptr && needed) missing += std::string(" ") + symbol;
        function = reinterpret_cast<Function>(address);
    }

private:
    explicit Library(const char* named) {
        const char* const file = named != nullptr ? named : "libcuda.so.1";
        setenv("TEST_CUDA_DEVICES", "7", 0);  // of a stand-in: some tests want one to themselves
        handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
        if (handle == nullptr) {
            missing = dlerror();
            return;
        }
#define CISTERN_FIND(name, symbol, parameters) find(name, #symbol);
        CISTERN_CUDA_FUNCTIONS(CISTERN_FIND)
        CISTERN_TEST_CUDA_FUNCTIONS(CISTERN_FIND)
#undef CISTERN_FIND
#define CISTERN_FIND(name, symbol, parameters) find(name, #symbol, false);
        CISTERN_CUDA_OPTIONAL_FUNCTIONS(CISTERN_FIND)
#undef CISTERN_FIND
        const DriverControl* (*find_control)() = nullptr;
        find(find_control, "cistern_test_cuda_control", false);
        runs_kernels = find_control == nullptr;
        const bool disguised = std::getenv("TEST_CUDA_DISGUISED") != nullptr;
        if (find_control != nullptr && !disguised) control = find_control();
    }
};

}  // namespace cistern::test
