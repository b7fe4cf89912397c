// Where bytes come from: names, kinds, equality, and what is refused.

#include "cistern/memory.hpp"

#include <gtest/gtest.h>
#include <sys/sysinfo.h>

#include <cstdint>
#include <memory>
#include <memory_resource>

#include "cistern/pool.hpp"
#include "cistern/version.hpp"
#include "support/literals.hpp"
#include "support/patterns.hpp"
#include "support/sources.hpp"
#include "support/text.hpp"

namespace cistern::test {

namespace {

/// A memory that says it is something else.
class Labelled : public FailingSource {
public:
    [[nodiscard]] std::string name() const override { return "labelled"; }
    [[nodiscard]] MemoryKind kind() const noexcept override { return MemoryKind::pinned; }
    [[nodiscard]] int device_id() const noexcept override { return 3; }
    [[nodiscard]] bool host_accessible() const noexcept override { return false; }
    void zero(void* data, std::size_t bytes) noexcept override {
        ++zeroed;
        MemorySource::zero(data, bytes);
    }
    int zeroed = 0;
};

}  // namespace

TEST(HostMemory, SaysWhatItIs) {
    const Memory memory = Memory::host();

    EXPECT_EQ(memory.kind(), MemoryKind::host);
    EXPECT_EQ(memory.name(), "host");
    EXPECT_EQ(memory.device_id(), -1);
    EXPECT_TRUE(memory.host_accessible());
    EXPECT_NE(memory.source(), nullptr);
}

TEST(HostMemory, RefusesANodeThatDoesNotExist) {
    EXPECT_THROW((void)Memory::host({.numa_node = 4096}), InvalidArgument);
    EXPECT_THROW((void)Memory::host({.numa_node = -2}), InvalidArgument);

    const std::string text =
        text_of<InvalidArgument>([] { (void)Memory::host({.numa_node = 4096}); });

    EXPECT_TRUE(mentions(text, "4096")) << text;
}

TEST(HostMemory, OnANodeLendsBytes) {
    Pool pool{Memory::host({.numa_node = 0})};

    const Buffer buffer = pool.acquire(4_MiB);
    write_pattern(buffer.data(), buffer.size(), 1);

    EXPECT_TRUE(has_pattern(buffer.data(), buffer.size(), 1));
}

TEST(HostMemory, OfOneKindIsOneMemory) {
    EXPECT_EQ(Memory::host(), Memory::host());
    EXPECT_EQ(Memory::host({.numa_node = 0}), Memory::host({.numa_node = 0}));
    EXPECT_EQ(Memory::host({.huge_pages = false}), Memory::host({.huge_pages = false}));
    EXPECT_NE(Memory::host(), Memory::host({.huge_pages = false}));
    EXPECT_NE(Memory::host(), Memory::host({.numa_node = 0}));
}

TEST(HostMemory, LendsNoMoreAtOnceThanTheMachineHas) {
    struct sysinfo info {};
    ASSERT_EQ(sysinfo(&info), 0);
    const std::size_t all =
        static_cast<std::size_t>(info.totalram + info.totalswap) * info.mem_unit;
    Pool pool;
    EXPECT_TRUE(pool.try_acquire(all + 1_MiB).empty());
    EXPECT_THROW((void)pool.acquire(2 * all), OutOfMemory);
    EXPECT_EQ(pool.stats().held_bytes.now, 0u);
    EXPECT_FALSE(pool.acquire(1_MiB).empty());
}

TEST(SimulatedMemory, HandsOutAddressesWithoutBytes) {
    const Memory memory = Memory::simulated();
    Pool pool{memory};

    const Buffer huge = pool.acquire(std::size_t{1} << 40);

    EXPECT_FALSE(memory.host_accessible());
    EXPECT_EQ(memory.name(), "simulated");
    EXPECT_NE(huge.data(), nullptr);
    EXPECT_EQ(pool.stats().lent_bytes.now, std::size_t{1} << 40);
}

TEST(ResourceMemory, TakesItsBytesFromTheResource) {
    CountingResource resource;
    {
        Pool pool{Memory::from(resource)};
        const Buffer buffer = pool.acquire(100_KiB);
        EXPECT_GE(resource.outstanding().bytes.load(), 100_KiB);
        EXPECT_EQ(resource.outstanding().bytes.load(), pool.stats().held_bytes.now);
    }

    EXPECT_EQ(resource.outstanding().bytes.load(), 0u);
    EXPECT_EQ(Memory::from(resource).kind(), MemoryKind::host);
    EXPECT_TRUE(Memory::from(resource).host_accessible());
}

TEST(ResourceMemory, ThatIsExhaustedIsOutOfMemory) {
    Pool pool{Memory::from(*std::pmr::null_memory_resource())};

    EXPECT_THROW((void)pool.acquire(64), OutOfMemory);
    EXPECT_TRUE(pool.try_acquire(64).empty());

    EXPECT_EQ(pool.stats().failures, 2u);
    EXPECT_EQ(pool.stats().held_bytes.now, 0u);
}

TEST(OwnMemory, MustExist) { EXPECT_THROW(Memory{nullptr}, InvalidArgument); }

TEST(OwnMemory, IsAskedWhatItIs) {
    const Memory memory{std::make_shared<Labelled>()};

    EXPECT_EQ(memory.name(), "labelled");
    EXPECT_EQ(memory.kind(), MemoryKind::pinned);
    EXPECT_EQ(memory.device_id(), 3);
    EXPECT_FALSE(memory.host_accessible());
}

TEST(OwnMemory, ZeroesItsOwnBytes) {
    const auto source = std::make_shared<Labelled>();
    Pool pool{Memory{source}};
    { const Buffer used = pool.acquire(64_KiB); }

    const Buffer zeroed = pool.acquire_zeroed(64_KiB);

    EXPECT_EQ(source->zeroed, 1);
    EXPECT_TRUE(all_zero(zeroed.data(), zeroed.size()));
}

TEST(OwnMemory, IsAlignedAsThePoolSays) {
    Pool pool{Memory{std::make_shared<FailingSource>()}, {.alignment = 64_KiB}};

    const Buffer buffer = pool.acquire(100);

    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64_KiB, 0u);
}

TEST(OwnMemory, LivesAsLongAsAnythingInIt) {
    auto source = std::make_shared<FailingSource>();
    const std::weak_ptr<FailingSource> watched = source;
    Buffer buffer;
    {
        Pool pool{Memory{std::move(source)}};
        buffer = pool.acquire(64_KiB);
    }
    EXPECT_FALSE(watched.expired());

    buffer.release();

    EXPECT_TRUE(watched.expired());
}

TEST(Memories, AreEqualIfTheyAreTheSame) {
    const Memory a = Memory::simulated(), b = Memory::simulated();
    const Memory same = a;

    EXPECT_EQ(a, same);
    EXPECT_NE(a, b);
}

TEST(Version, IsThatOfTheHeaders) {
    const std::string headers = std::to_string(CISTERN_VERSION_MAJOR) + "." +
                                std::to_string(CISTERN_VERSION_MINOR) + "." +
                                std::to_string(CISTERN_VERSION_PATCH);

    EXPECT_EQ(version(), headers);
}

}  // namespace cistern::test
