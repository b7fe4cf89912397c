// A pool behind the interfaces of CCCL and Thrust. Built where the CUDA toolkit is; needs no compiler of its own.

#include <limits>
#include <new>
#include <optional>

#include "cistern/cuda_resource.hpp"
#include "gpu.hpp"
#include "support/text.hpp"

namespace cistern::test {
namespace {

static_assert(::cuda::mr::async_resource_with<cuda_resource, ::cuda::mr::device_accessible>);

constexpr std::size_t bytes = 4_MiB, alignment = 256;

class Resource : public Gpu {
protected:
    void SetUp() override {
        Gpu::SetUp();
        if (!IsSkipped()) pool.emplace(Memory::device());
    }
    /// A stream as CUDA's runtime names it.
    static ::cuda::stream_ref ref(cuda::Stream stream) {
        return ::cuda::stream_ref(reinterpret_cast<cudaStream_t>(stream));
    }
    std::optional<Pool> pool;
};

TEST_F(Resource, LendsAndTakesBackInAStreamsOrder) {
    cuda_resource resource(*pool);
    const cuda::Stream stream = make_stream();
    void* last = nullptr;
    for (unsigned char i = 0; i < 20; ++i) {
        void* const data = resource.allocate_async(bytes, alignment, ref(stream));
        EXPECT_TRUE(last == nullptr || data == last);
        fill(stream, data, bytes, i, late);
        check(stream, data, bytes, i);
        resource.deallocate_async(data, bytes, alignment, ref(stream));
        last = data;
    }
    EXPECT_EQ(mismatches(), 0u);
    EXPECT_EQ(pool->stats().misses, 1u);
}

TEST_F(Resource, BytesGivenBackOnAnotherStreamAreLentAfterItsWork) {
    cuda_resource resource(*pool);
    const cuda::Stream first = make_stream(), second = make_stream();
    for (int i = 0; i < 5; ++i) {
        void* const data = resource.allocate_async(bytes, ref(first));
        EXPECT_EQ(driver.synchronize(), 0);
        fill(second, data, bytes, 4);
        check(second, data, bytes, 4, late);
        resource.deallocate_async(data, bytes, ref(second));
        void* const again = resource.allocate_async(bytes, ref(first));
        fill(first, again, bytes, 9);
        resource.deallocate_async(again, bytes, ref(first));
    }
    EXPECT_EQ(mismatches(), 0u);
}

TEST_F(Resource, BytesWithoutAStreamAreDoneWith) {
    cuda_resource resource(*pool);
    const cuda::Stream stream = make_stream(), other = make_stream();
    for (int i = 0; i < 5; ++i) {
        void* const used = resource.allocate_async(bytes, ref(stream));
        fill(stream, used, bytes, 0);
        check(stream, used, bytes, 0, late);
        resource.deallocate_async(used, bytes, ref(stream));
        void* const anywhere = resource.allocate(bytes);
        EXPECT_EQ(anywhere, used);
        fill(other, anywhere, bytes, 7);  // which waits for nobody
        EXPECT_EQ(driver.synchronize(), 0);
        resource.deallocate(anywhere, bytes);
    }
    EXPECT_EQ(mismatches(), 0u);
}

TEST_F(Resource, ServesBehindAReference) {
    cuda_resource resource(*pool);
    ::cuda::mr::async_resource_ref<::cuda::mr::device_accessible> any = resource;
    const cuda::Stream stream = make_stream();

    void* const data = any.allocate_async(bytes, alignment, ref(stream));
    EXPECT_EQ(pool->stats().lent_buffers.now, 1u);
    any.deallocate_async(data, bytes, alignment, ref(stream));

    EXPECT_EQ(pool->stats().lent_buffers.now, 0u);
    EXPECT_TRUE(any == ::cuda::mr::async_resource_ref<::cuda::mr::device_accessible>(resource));
}

TEST_F(Resource, IsEqualToOthersOfItsPool) {
    const Pool another{Memory::device()};
    EXPECT_EQ(cuda_resource(*pool), cuda_resource(*pool));
    EXPECT_NE(cuda_resource(*pool), cuda_resource(another));
    EXPECT_EQ(thrust_allocator<int>(*pool), thrust_allocator<int>(*pool));
    EXPECT_NE(thrust_allocator<int>(*pool), thrust_allocator<int>(another));
    EXPECT_EQ(cuda_resource(), cuda_resource(default_pool(MemoryKind::device)));
}

TEST_F(Resource, NoBytesHaveAnAddressToo) {
    cuda_resource resource(*pool);
    void* const one = resource.allocate(0);
    void* const two = resource.allocate(0);
    EXPECT_NE(one, nullptr);
    EXPECT_NE(one, two);
    resource.deallocate(one, 0);
    resource.deallocate(two, 0);
}

TEST_F(Resource, RefusesWhatCannotBeAndLendsNothing) {
    cuda_resource resource(Pool{Memory::device(), {.max_bytes = 8_MiB}});
    const cuda::Stream stream = make_stream();
    for (const std::size_t odd : {512U, 3U, 0U}) {
        const std::string text = text_of<InvalidArgument>(
            [&] { (void)resource.allocate_async(bytes, odd, ref(stream)); });
        EXPECT_TRUE(mentions(text, std::to_string(odd))) << text;
        EXPECT_TRUE(mentions(text, "256")) << text;
        EXPECT_THROW((void)resource.allocate(bytes, odd), InvalidArgument);
    }
    EXPECT_THROW((void)resource.allocate_async(9_MiB, ref(stream)), std::bad_alloc);
    EXPECT_THROW((void)resource.allocate(9_MiB), OutOfMemory);
    EXPECT_EQ(resource.pool().stats().lent_buffers.now, 0u);
}

TEST_F(Resource, AThrustAllocatorLendsInItsStreamsOrder) {
    const cuda::Stream stream = make_stream();
    thrust_allocator<double> allocator(*pool, stream);
    thrust_allocator<char> of_chars(allocator);
    EXPECT_EQ(of_chars.stream(), stream);
    for (unsigned char i = 0; i < 10; ++i) {
        const auto data = allocator.allocate(bytes / sizeof(double));
        fill(stream, data.get(), bytes, i, late);
        check(stream, data.get(), bytes, i);
        allocator.deallocate(data, bytes / sizeof(double));
        const auto chars = of_chars.allocate(bytes);
        fill(stream, chars.get(), bytes, 99);
        of_chars.deallocate(chars, bytes);
    }
    EXPECT_EQ(mismatches(), 0u);
    EXPECT_EQ(pool->stats().misses, 1u);
}

TEST_F(Resource, AThrustAllocatorRefusesMoreThanCanBeCounted) {
    thrust_allocator<double> allocator(*pool);
    EXPECT_THROW((void)allocator.allocate(std::numeric_limits<std::size_t>::max() / 8 + 2),
                 std::bad_array_new_length);
    EXPECT_EQ(pool->stats().lent_buffers.now, 0u);
}

}  // namespace
}  // namespace cistern::test
