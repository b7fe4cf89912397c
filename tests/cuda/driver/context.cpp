// Devices and their primary contexts; each thread has a stack of current ones.

#include <array>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "call.hpp"

struct cistern::cuda::ContextTag {
    int ordinal = 0;
};

namespace stand_in {

namespace {

constexpr int most_devices = 16;

// Without a destructor: threads that end still call.
thread_local struct {
    std::array<Context, 16> contexts;
    std::size_t count;
} stack;

struct Attributes {
    std::mutex lock;
    std::map<int, int> values{{attribute_virtual_memory, 1},
                              {attribute_file_descriptors, 1},
                              {attribute_managed_memory, 1},
                              {attribute_concurrent_managed_access, 1},
                              {75, 9},   // compute capability, major
                              {76, 0}};  // and minor
};

Attributes& attributes() {
    static auto* const all = new Attributes;
    return *all;
}

bool exists(Device device) { return device >= 0 && device < device_count(); }

struct ErrorText {
    Result error;
    const char* name;
    const char* text;
};
constexpr std::array error_texts{
    ErrorText{success, "CUDA_SUCCESS", "no error"},
    ErrorText{invalid_value, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    ErrorText{error_out_of_memory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    ErrorText{not_initialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    ErrorText{error_deinitialized, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    ErrorText{100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    ErrorText{invalid_device, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    ErrorText{invalid_context, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    ErrorText{invalid_handle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    ErrorText{operating_system, "CUDA_ERROR_OPERATING_SYSTEM",
              "OS call failed or operation not supported on this OS"},
    ErrorText{error_not_ready, "CUDA_ERROR_NOT_READY", "device not ready"},
    ErrorText{illegal_address, "CUDA_ERROR_ILLEGAL_ADDRESS",
              "an illegal memory access was encountered"},
    ErrorText{not_permitted, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    ErrorText{not_supported, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    ErrorText{capture_unsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
              "operation not permitted when stream is capturing"},
};

const ErrorText* find(Result error) {
    for (const ErrorText& text : error_texts) {
        if (text.error == error) return &text;
    }
    return nullptr;
}

}  // namespace

int device_count() noexcept {
    static const int count = static_cast<int>(environment("TEST_CUDA_DEVICES", 2));
    return count < most_devices ? count : most_devices;
}

Context context_of(int ordinal) noexcept {
    static auto* const contexts = [] {
        auto* const all = new std::array<ContextTag, most_devices>;
        for (int i = 0; i < most_devices; ++i) all->at(static_cast<std::size_t>(i)).ordinal = i;
        return all;
    }();
    return &(*contexts)[static_cast<std::size_t>(ordinal)];
}

Context current_context() noexcept {
    return stack.count == 0 ? nullptr : stack.contexts[stack.count - 1];
}
int ordinal_of(Context context) noexcept { return context->ordinal; }

void set_attribute(int attribute, int value) {
    const std::scoped_lock hold(attributes().lock);
    attributes().values[attribute] = value;
}

}  // namespace stand_in

using namespace stand_in;

STAND_IN_EXPORT Result cuInit(unsigned flags) {
    return call("cuInit", nothing, [&] {
        if (flags != 0) return Result{invalid_value};
        if (device_count() == 0) return Result{100};
        initialize();
        return success;
    });
}

STAND_IN_EXPORT Result cuDriverGetVersion(int* version) {
    return call("cuDriverGetVersion", nothing, [&] {
        *version = static_cast<int>(environment("TEST_CUDA_VERSION", 13000));
        return success;
    });
}

STAND_IN_EXPORT Result cuGetErrorName(Result error, const char** name) {
    return call("cuGetErrorName", nothing, [&] {
        const ErrorText* const found = find(error);
        *name = found != nullptr ? found->name : nullptr;
        return found != nullptr ? success : Result{invalid_value};
    });
}

STAND_IN_EXPORT Result cuGetErrorString(Result error, const char** text) {
    return call("cuGetErrorString", nothing, [&] {
        const ErrorText* const found = find(error);
        *text = found != nullptr ? found->text : nullptr;
        return found != nullptr ? success : Result{invalid_value};
    });
}

STAND_IN_EXPORT Result cuDeviceGetCount(int* count) {
    return call("cuDeviceGetCount", start, [&] {
        *count = device_count();
        return success;
    });
}

STAND_IN_EXPORT Result cuDeviceGet(Device* device, int ordinal) {
    return call("cuDeviceGet", start, [&] {
        if (!exists(ordinal)) return Result{invalid_device};
        *device = ordinal;
        return success;
    });
}

STAND_IN_EXPORT Result cuDeviceGetAttribute(int* value, int attribute, Device device) {
    return call("cuDeviceGetAttribute", start, [&] {
        if (!exists(device)) return Result{invalid_device};
        const std::scoped_lock hold(attributes().lock);
        const auto found = attributes().values.find(attribute);
        *value = found != attributes().values.end() ? found->second : 0;
        return success;
    });
}

STAND_IN_EXPORT Result cuDeviceGetUuid_v2(Uuid* uuid, Device device) {
    return call("cuDeviceGetUuid_v2", start, [&] {
        if (!exists(device)) return Result{invalid_device};
        static const unsigned long long hidden = environment("TEST_CUDA_HIDDEN", 0);
        uuid->fill(0x5c);
        uuid->back() = static_cast<unsigned char>(hidden + static_cast<unsigned>(device));
        return success;
    });
}

STAND_IN_EXPORT Result cuDeviceTotalMem_v2(std::size_t* bytes, Device device) {
    return call("cuDeviceTotalMem_v2", start, [&] {
        if (!exists(device)) return Result{invalid_device};
        *bytes = total_bytes(device);
        return success;
    });
}

STAND_IN_EXPORT Result cuDevicePrimaryCtxRetain(Context* context, Device device) {
    return call("cuDevicePrimaryCtxRetain", stand_in::device, [&] {
        if (!exists(device)) return Result{invalid_device};
        *context = context_of(device);
        return success;
    });
}

STAND_IN_EXPORT Result cuCtxPushCurrent_v2(Context context) {
    return call("cuCtxPushCurrent_v2", start, [&] {
        if (context == nullptr) return Result{invalid_context};
        if (stack.count == stack.contexts.size()) stop("too many contexts pushed and not popped");
        stack.contexts[stack.count++] = context;
        return success;
    });
}

STAND_IN_EXPORT Result cuCtxPopCurrent_v2(Context* context) {
    return call("cuCtxPopCurrent_v2", start, [&] {
        if (stack.count == 0) return Result{invalid_context};
        if (context != nullptr) *context = current_context();
        --stack.count;
        return success;
    });
}

STAND_IN_EXPORT Result cuCtxGetCurrent(Context* context) {
    return call("cuCtxGetCurrent", start, [&] {
        *context = current_context();
        return success;
    });
}
