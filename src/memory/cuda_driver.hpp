#pragma once
// The CUDA driver, found when it is first needed: one build serves machines with and without it. Only
// what Cistern calls is declared here, with the driver's own layouts (tests/unit/cuda_types_test.cpp
// compares them with cuda.h where there is one), so that no toolkit is needed to build.
//
// CISTERN_CUDA_DRIVER names another library than libcuda.so.1.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace cistern::cuda {

using Result = int;
using Device = int;
using Address = unsigned long long;  // CUdeviceptr
using Handle = unsigned long long;   // of physical memory
using Context = struct ContextTag*;
using Stream = struct StreamTag*;
using Event = struct EventTag*;
using Graph = struct GraphTag*;
using UserObject = struct UserObjectTag*;
using Uuid = std::array<unsigned char, 16>;

inline Address address_of(const void* data) noexcept { return reinterpret_cast<Address>(data); }

inline constexpr Result success = 0, error_out_of_memory = 2, error_deinitialized = 4,
                        error_not_ready = 600, error_capture_implicit = 906;

/// Whether a call was refused because a stream is being captured.
constexpr bool is_of_a_capture(Result result) noexcept { return result >= 900 && result <= 908; }

// The default streams have fixed handles; null is the legacy one too.
inline Stream legacy_stream() noexcept { return nullptr; }
inline bool is_legacy(const void* stream) noexcept {
    return reinterpret_cast<std::uintptr_t>(stream) <= 1;
}
inline bool is_per_thread(const void* stream) noexcept {
    return reinterpret_cast<std::uintptr_t>(stream) == 2;
}

struct Location {
    int type = 1;  // a device
    int id = 0;
};
struct AllocationProperties {
    int type = 1;                    // pinned, the only one
    int requested_handle_types = 0;  // handle_is_file, where it can be exported
    Location location;
    void* metadata = nullptr;
    struct {
        unsigned char compression = 0, direct_rdma = 0;
        unsigned short usage = 0;
        unsigned char reserved[4] = {};
    } flags;
};
struct AccessDescription {
    Location location;
    int flags = 3;  // read and write
};

inline constexpr int attribute_virtual_memory = 102, attribute_file_descriptors = 103,
                     attribute_managed_memory = 83, attribute_concurrent_managed_access = 89;
inline constexpr int handle_is_file = 1;  // a POSIX file descriptor
inline constexpr unsigned event_without_timing = 2, attach_global = 1, register_portable = 1,
                          stream_non_blocking = 1;

// name in Driver, the driver's symbol, parameters
#define CISTERN_CUDA_FUNCTIONS(X)                                                                 \
    X(init, cuInit, (unsigned flags))                                                             \
    X(driver_version, cuDriverGetVersion, (int* version))                                         \
    X(error_name, cuGetErrorName, (Result error, const char** name))                              \
    X(error_text, cuGetErrorString, (Result error, const char** text))                            \
    X(device_count, cuDeviceGetCount, (int* count))                                               \
    X(device, cuDeviceGet, (Device * device, int ordinal))                                        \
    X(device_attribute, cuDeviceGetAttribute, (int* value, int attribute, Device device))         \
    X(device_total, cuDeviceTotalMem_v2, (std::size_t * bytes, Device device))                    \
    X(device_uuid, cuDeviceGetUuid_v2, (Uuid * uuid, Device device))                              \
    X(retain_context, cuDevicePrimaryCtxRetain, (Context * context, Device device))               \
    X(push_context, cuCtxPushCurrent_v2, (Context context))                                       \
    X(pop_context, cuCtxPopCurrent_v2, (Context * context))                                       \
    X(current_context, cuCtxGetCurrent, (Context * context))                                      \
    X(synchronize, cuCtxSynchronize, ())                                                          \
    X(memory_info, cuMemGetInfo_v2, (std::size_t * free, std::size_t * total))                    \
    X(allocate, cuMemAlloc_v2, (Address * data, std::size_t bytes))                               \
    X(free, cuMemFree_v2, (Address data))                                                         \
    X(allocate_managed, cuMemAllocManaged, (Address * data, std::size_t bytes, unsigned flags))   \
    X(register_host, cuMemHostRegister_v2, (void* data, std::size_t bytes, unsigned flags))       \
    X(unregister_host, cuMemHostUnregister, (void* data))                                         \
    X(granularity, cuMemGetAllocationGranularity,                                                 \
      (std::size_t * bytes, const AllocationProperties* properties, int option))                  \
    X(reserve, cuMemAddressReserve,                                                               \
      (Address * data, std::size_t bytes, std::size_t alignment, Address wish,                    \
       unsigned long long flags))                                                                 \
    X(unreserve, cuMemAddressFree, (Address data, std::size_t bytes))                             \
    X(create, cuMemCreate,                                                                        \
      (Handle * handle, std::size_t bytes, const AllocationProperties* properties,                \
       unsigned long long flags))                                                                 \
    X(release, cuMemRelease, (Handle handle))                                                     \
    X(map, cuMemMap,                                                                              \
      (Address data, std::size_t bytes, std::size_t offset, Handle handle,                        \
       unsigned long long flags))                                                                 \
    X(unmap, cuMemUnmap, (Address data, std::size_t bytes))                                       \
    X(set_access, cuMemSetAccess,                                                                 \
      (Address data, std::size_t bytes, const AccessDescription* access, std::size_t count))      \
    X(export_handle, cuMemExportToShareableHandle,                                                \
      (void* exported, Handle handle, int type, unsigned long long flags))                        \
    X(import_handle, cuMemImportFromShareableHandle, (Handle * handle, void* exported, int type)) \
    X(copy, cuMemcpy, (Address to, Address from, std::size_t bytes))                              \
    X(copy_async, cuMemcpyAsync, (Address to, Address from, std::size_t bytes, Stream stream))    \
    X(set_async, cuMemsetD8Async,                                                                 \
      (Address data, unsigned char value, std::size_t bytes, Stream stream))                      \
    X(create_stream, cuStreamCreate, (Stream * stream, unsigned flags))                           \
    X(stream_id, cuStreamGetId, (Stream stream, unsigned long long* id))                          \
    X(stream_context, cuStreamGetCtx, (Stream stream, Context * context))                         \
    X(stream_synchronize, cuStreamSynchronize, (Stream stream))                                   \
    X(stream_wait, cuStreamWaitEvent, (Stream stream, Event event, unsigned flags))               \
    X(capture_info, cuStreamGetCaptureInfo_v2,                                                    \
      (Stream stream, int* status, unsigned long long* id, Graph* graph, const void** nodes,      \
       std::size_t* count))                                                                       \
    X(exchange_capture_mode, cuThreadExchangeStreamCaptureMode, (int* mode))                      \
    X(create_event, cuEventCreate, (Event * event, unsigned flags))                               \
    X(destroy_event, cuEventDestroy_v2, (Event event))                                            \
    X(record_event, cuEventRecord, (Event event, Stream stream))                                  \
    X(query_event, cuEventQuery, (Event event))                                                   \
    X(synchronize_event, cuEventSynchronize, (Event event))                                       \
    X(create_user_object, cuUserObjectCreate,                                                     \
      (UserObject * object, void* data, void (*destroy)(void*), unsigned count, unsigned flags))  \
    X(retain_user_object, cuGraphRetainUserObject,                                                \
      (Graph graph, UserObject object, unsigned count, unsigned flags))

// Those that older drivers lack; null there.
#define CISTERN_CUDA_OPTIONAL_FUNCTIONS(X) \
    X(record_context, cuCtxRecordEvent, (Context context, Event event))

struct Driver {
// NOLINTBEGIN(bugprone-macro-parentheses): these are declarations
#define CISTERN_DECLARE(name, symbol, parameters) Result(*name) parameters = nullptr;
    CISTERN_CUDA_FUNCTIONS(CISTERN_DECLARE)
    CISTERN_CUDA_OPTIONAL_FUNCTIONS(CISTERN_DECLARE)
#undef CISTERN_DECLARE
    // NOLINTEND(bugprone-macro-parentheses)
    int version = 0;  // 1000 × major + 10 × minor
    int devices = 0;
};

/// Returns the driver, loaded and initialised; null where there is none that serves.
const Driver* driver() noexcept;
/// The same; throws Unavailable, saying why.
const Driver& require_driver();

/// Returns "what: NAME (text)" for an error of the driver.
std::string text_of(const char* what, Result error);
/// Returns a UUID as nvidia-smi prints it.
std::string text_of(const Uuid& uuid);
/// Throws DeviceError unless `result` is success.
void check(const char* what, Result result);

/// A device and its primary context, which programs that use the CUDA runtime share. Never released.
class DeviceContext {
public:
    /// Throws Unavailable without a driver or devices, InvalidArgument for a number out of range.
    static const DeviceContext& of(int ordinal);
    /// Throws Unavailable, also if no visible device has this UUID.
    static const DeviceContext& with(const Uuid& uuid);

    [[nodiscard]] const Driver& driver() const noexcept { return *driver_; }
    [[nodiscard]] int ordinal() const noexcept { return ordinal_; }
    [[nodiscard]] Context context() const noexcept { return context_; }
    [[nodiscard]] std::size_t total_bytes() const noexcept { return total_bytes_; }
    [[nodiscard]] bool has(int attribute) const noexcept;
    /// Throws DeviceError.
    [[nodiscard]] Uuid uuid() const;

private:
    DeviceContext(const Driver& driver, int ordinal);

    const Driver* driver_;
    int ordinal_;
    Device device_ = 0;
    Context context_ = nullptr;
    std::size_t total_bytes_ = 0;
};

/// Makes a device's context the thread's current one while it lives, and lets the thread allocate
/// while some stream is being captured.
class Entered {
public:
    explicit Entered(const DeviceContext& device) noexcept;
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;
    ~Entered();

private:
    const Driver& driver_;
    bool pushed_ = false;
    int mode_ = 2;  // relaxed
};

}  // namespace cistern::cuda
