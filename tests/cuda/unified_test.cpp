// Unified buffers with a real device side.

#include <cstring>

#include "gpu.hpp"

namespace cistern::test {
namespace {

class UnifiedOnDevice : public Gpu {
protected:
    static UnifiedPool pool() {
        UnifiedOptions options;
        options.device = Memory::device();
        options.pinned = Memory::pinned();
        return UnifiedPool(options);
    }
};

TEST_F(UnifiedOnDevice, FollowsBothSides) {
    UnifiedPool buffers = pool();
    auto buffer = buffers.acquire<unsigned char>(1 << 20, true);
    EXPECT_TRUE(buffer->pinned());
    std::memset(buffer->host_writable().data(), 7, buffer->bytes());
    EXPECT_EQ(buffer->state(), BufferState::host_dirty);

    void* const device = buffer->device();  // copies
    EXPECT_EQ(buffer->state(), BufferState::synchronized);
    cuda::Stream stream = make_stream();
    check(stream, device, buffer->bytes(), 7);
    fill(stream, device, buffer->bytes(), 9);
    EXPECT_EQ(mismatches(), 0U);

    buffer->mark_device_dirty();
    EXPECT_EQ(buffer->host()[12345], 9);
    EXPECT_EQ(buffer->state(), BufferState::synchronized);
    buffers.release(std::move(buffer));
}

TEST_F(UnifiedOnDevice, CopiesInAStreamsOrder) {
    UnifiedPool buffers = pool();
    cuda::Stream stream = make_stream();
    for (unsigned char value = 1; value < 20; ++value) {
        auto buffer = buffers.acquire<unsigned char>(300000, true);
        std::memset(buffer->host_writable().data(), value, buffer->bytes());
        buffer->sync_to_device(Stream(stream));
        EXPECT_EQ(buffer->state(), BufferState::synchronized);
        void* const device = buffer->device();
        check(stream, device, buffer->bytes(), value, late);
        fill(stream, device, buffer->bytes(), static_cast<unsigned char>(100 + value));
        buffer->mark_device_dirty();
        buffer->sync_to_host(Stream(stream));
        ASSERT_EQ(driver.stream_synchronize(stream), 0);
        EXPECT_EQ(buffer->host()[299999], 100 + value);
        buffer->free();
    }
    EXPECT_EQ(mismatches(), 0U);
}

TEST_F(UnifiedOnDevice, IsTheProcessesPoolToo) {
    auto lease = memory_pool().buffer<float>({3, 4});
    EXPECT_TRUE(lease->has_device());
    lease->fill(2.5F);
    EXPECT_NE(static_cast<const void*>(lease->device()),
              static_cast<const void*>(lease->host().data()));
}

}  // namespace
}  // namespace cistern::test
