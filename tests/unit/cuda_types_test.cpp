// What Cistern says about the CUDA driver is what cuda.h says, where there is one: checked when this is
// compiled.

#include <gtest/gtest.h>

#include "memory/cuda_driver.hpp"

#if __has_include(<cuda.h>)

#define __CUDA_API_VERSION_INTERNAL  // the names with their versions, as the library has them
#include <cuda.h>

#include <cstddef>
#include <type_traits>

namespace cistern::cuda {
namespace {

// Constants.
static_assert(success == CUDA_SUCCESS);
static_assert(error_out_of_memory == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(error_deinitialized == CUDA_ERROR_DEINITIALIZED);
static_assert(error_not_ready == CUDA_ERROR_NOT_READY);
static_assert(attribute_virtual_memory == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
static_assert(attribute_file_descriptors ==
              CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
static_assert(attribute_managed_memory == CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY);
static_assert(attribute_concurrent_managed_access == CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS);
static_assert(handle_is_file == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
static_assert(event_without_timing == CU_EVENT_DISABLE_TIMING);
static_assert(attach_global == CU_MEM_ATTACH_GLOBAL);
static_assert(register_portable == CU_MEMHOSTREGISTER_PORTABLE);

// Defaults of the structs, which are constants too.
static_assert(Location{}.type == CU_MEM_LOCATION_TYPE_DEVICE);
static_assert(AllocationProperties{}.type == CU_MEM_ALLOCATION_TYPE_PINNED);
static_assert(AccessDescription{}.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

// Layouts.
static_assert(sizeof(Location) == sizeof(CUmemLocation));
static_assert(offsetof(Location, type) == offsetof(CUmemLocation, type));
static_assert(offsetof(Location, id) == offsetof(CUmemLocation, id));
using Properties = AllocationProperties;
using TheirProperties = CUmemAllocationProp;
static_assert(sizeof(Properties) == sizeof(TheirProperties));
static_assert(alignof(Properties) == alignof(TheirProperties));
static_assert(offsetof(Properties, type) == offsetof(TheirProperties, type));
static_assert(offsetof(Properties, requested_handle_types) ==
              offsetof(TheirProperties, requestedHandleTypes));
static_assert(offsetof(Properties, location) == offsetof(TheirProperties, location));
static_assert(offsetof(Properties, metadata) == offsetof(TheirProperties, win32HandleMetaData));
static_assert(offsetof(Properties, flags) == offsetof(TheirProperties, allocFlags));
static_assert(offsetof(Properties, flags.compression) ==
              offsetof(TheirProperties, allocFlags.compressionType));
static_assert(offsetof(Properties, flags.direct_rdma) ==
              offsetof(TheirProperties, allocFlags.gpuDirectRDMACapable));
static_assert(offsetof(Properties, flags.usage) == offsetof(TheirProperties, allocFlags.usage));
static_assert(sizeof(AccessDescription) == sizeof(CUmemAccessDesc));
static_assert(offsetof(AccessDescription, location) == offsetof(CUmemAccessDesc, location));
static_assert(offsetof(AccessDescription, flags) == offsetof(CUmemAccessDesc, flags));
static_assert(sizeof(Address) == sizeof(CUdeviceptr));
static_assert(sizeof(Handle) == sizeof(CUmemGenericAllocationHandle));
static_assert(sizeof(Device) == sizeof(CUdevice));
static_assert(sizeof(Uuid) == sizeof(CUuuid));
static_assert(sizeof(Result) == sizeof(CUresult));

/// Whether two types travel alike: pointers with pointers, whole numbers with those of their size.
template <class Ours, class Theirs>
constexpr bool alike = std::is_pointer_v<Ours> == std::is_pointer_v<Theirs> &&
                       (std::is_pointer_v<Ours> || std::is_integral_v<Ours>)&&sizeof(Ours) ==
                           sizeof(Theirs);

template <class Ours, class Theirs>
constexpr bool agree = false;
template <class... Ours, class... Theirs>
    requires(sizeof...(Ours) == sizeof...(Theirs))
constexpr bool agree<Result (*)(Ours...), CUresult (*)(Theirs...)> = (alike<Ours, Theirs> && ...);

#define CISTERN_COMPARE(name, symbol, parameters) \
    static_assert(agree<decltype(Driver::name), decltype(&::symbol)>, #symbol);
CISTERN_CUDA_FUNCTIONS(CISTERN_COMPARE)
#if CUDA_VERSION >= 12050
CISTERN_CUDA_OPTIONAL_FUNCTIONS(CISTERN_COMPARE)
#endif

TEST(CudaTypes, AreThoseOfTheDriver) {
    EXPECT_EQ(is_legacy(CU_STREAM_LEGACY), true);
    EXPECT_EQ(is_legacy(nullptr), true);
    EXPECT_EQ(is_legacy(CU_STREAM_PER_THREAD), false);
    EXPECT_EQ(is_per_thread(CU_STREAM_PER_THREAD), true);
}

}  // namespace
}  // namespace cistern::cuda

#else

TEST(CudaTypes, AreThoseOfTheDriver) { GTEST_SKIP() << "there is no cuda.h to compare with"; }

#endif
