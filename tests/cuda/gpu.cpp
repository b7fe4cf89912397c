#include "gpu.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace cistern::test {

namespace {

using Function = struct FunctionTag*;
using Module = struct ModuleTag*;

constexpr const char* ptx = R"(
.version 7.0
.target sm_70
.address_size 64

.visible .entry fill(.param .u64 data, .param .u64 bytes, .param .u32 value)
{
    .reg .pred %p1;
    .reg .b32 %r<6>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [data];
    ld.param.u64 %rd2, [bytes];
    ld.param.u32 %r1, [value];
    cvta.to.global.u64 %rd1, %rd1;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    cvt.u64.u32 %rd3, %r5;
    mov.u32 %r2, %nctaid.x;
    mul.lo.u32 %r2, %r2, %r3;
    cvt.u64.u32 %rd4, %r2;
next:
    setp.ge.u64 %p1, %rd3, %rd2;
    @%p1 bra done;
    add.u64 %rd5, %rd1, %rd3;
    st.global.u8 [%rd5], %r1;
    add.u64 %rd3, %rd3, %rd4;
    bra next;
done:
    ret;
}

.visible .entry check(.param .u64 data, .param .u64 bytes, .param .u32 value, .param .u64 wrong)
{
    .reg .pred %p<3>;
    .reg .b32 %r<7>;
    .reg .b64 %rd<7>;
    ld.param.u64 %rd1, [data];
    ld.param.u64 %rd2, [bytes];
    ld.param.u32 %r1, [value];
    ld.param.u64 %rd6, [wrong];
    cvta.to.global.u64 %rd1, %rd1;
    cvta.to.global.u64 %rd6, %rd6;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    cvt.u64.u32 %rd3, %r5;
    mov.u32 %r2, %nctaid.x;
    mul.lo.u32 %r2, %r2, %r3;
    cvt.u64.u32 %rd4, %r2;
next:
    setp.ge.u64 %p1, %rd3, %rd2;
    @%p1 bra done;
    add.u64 %rd5, %rd1, %rd3;
    ld.global.u8 %r6, [%rd5];
    setp.ne.u32 %p2, %r6, %r1;
    @%p2 red.global.add.u32 [%rd6], 1;
    add.u64 %rd3, %rd3, %rd4;
    bra next;
done:
    ret;
}

.visible .entry spin(.param .u64 cycles)
{
    .reg .pred %p1;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [cycles];
    mov.u64 %rd2, %clock64;
next:
    mov.u64 %rd3, %clock64;
    sub.u64 %rd4, %rd3, %rd2;
    setp.lt.u64 %p1, %rd4, %rd1;
    @%p1 bra next;
    ret;
}
)";

constexpr auto a_while = std::chrono::microseconds(500);
constexpr unsigned long long a_while_in_cycles = 1'000'000;

}  // namespace

/// The kernels on a real device, loaded once.
struct Gpu::Kernels {
    cuda::Result (*launch)(Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                           unsigned, cuda::Stream, void**, void**) = nullptr;
    Function fill = nullptr, check = nullptr, spin = nullptr;
    cuda::Address wrong = 0;  // on the device

    static const Kernels& get(Library driver) {
        static const auto* const kernels = new Kernels(driver);
        return *kernels;
    }

    void run(Function function, unsigned blocks, unsigned threads, cuda::Stream stream,
             void** parameters) const {
        EXPECT_EQ(launch(function, blocks, 1, 1, threads, 1, 1, 0, stream, parameters, nullptr), 0);
    }

private:
    explicit Kernels(Library& driver) {
        cuda::Result (*load)(Module*, const void*) = nullptr;
        cuda::Result (*find)(Function*, Module, const char*) = nullptr;
        driver.find(load, "cuModuleLoadData");
        driver.find(find, "cuModuleGetFunction");
        driver.find(launch, "cuLaunchKernel");
        Module module = nullptr;
        EXPECT_EQ(load(&module, ptx), 0);
        EXPECT_EQ(find(&fill, module, "fill"), 0);
        EXPECT_EQ(find(&check, module, "check"), 0);
        EXPECT_EQ(find(&spin, module, "spin"), 0);
        EXPECT_EQ(driver.allocate(&wrong, sizeof(unsigned)), 0);
        EXPECT_EQ(driver.set_async(wrong, 0, sizeof(unsigned), nullptr), 0);
    }
};

void Gpu::SetUp() {
    if (driver.handle == nullptr) GTEST_SKIP() << driver.missing;
    ASSERT_EQ(driver.missing, "");
    ASSERT_EQ(driver.init(0), 0);
    ASSERT_EQ(driver.retain_context(&context, 0), 0);
    ASSERT_EQ(driver.push_context(context), 0);
    static_cast<void>(Pool{Memory::device()});  // lets those go that earlier tests left
    if (!driver.runs_kernels) return;
    kernels_ = &Kernels::get(driver);
    // Code is loaded when first used, which a capture would not bear.
    const cuda::Stream stream = make_stream();
    cuda::Address some = 0;
    ASSERT_EQ(driver.allocate(&some, 64), 0);
    fill(stream, reinterpret_cast<void*>(some), 64, 1, late);
    check(stream, reinterpret_cast<void*>(some), 64, 1);
    ASSERT_EQ(driver.free(some), 0);
    ASSERT_EQ(driver.set_async(kernels_->wrong, 0, sizeof(unsigned), nullptr), 0);
}

void Gpu::TearDown() {
    if (context == nullptr) return;
    driver.synchronize();
    for (const cuda::Stream stream : streams_) driver.destroy_stream(stream);
    cuda::Context popped = nullptr;
    driver.pop_context(&popped);
}

cuda::Stream Gpu::make_stream(unsigned flags) {
    cuda::Stream stream = nullptr;
    EXPECT_EQ(driver.create_stream(&stream, flags), 0);
    const std::scoped_lock hold(lock_);
    streams_.push_back(stream);
    return stream;
}

void Gpu::destroy(cuda::Stream stream) {
    {
        const std::scoped_lock hold(lock_);
        std::erase(streams_, stream);
    }
    EXPECT_EQ(driver.destroy_stream(stream), 0);
}

void Gpu::fill(cuda::Stream stream, void* data, std::size_t bytes, unsigned char value,
               bool after_a_while) {
    launch(stream, true, data, bytes, value, after_a_while);
}

void Gpu::check(cuda::Stream stream, const void* data, std::size_t bytes, unsigned char value,
                bool after_a_while) {
    launch(stream, false, const_cast<void*>(data), bytes, value, after_a_while);
}

void Gpu::launch(cuda::Stream stream, bool fills, void* data, std::size_t bytes,
                 unsigned char value, bool slowly) {
    if (kernels_ == nullptr) {
        Job* job = nullptr;
        {
            const std::scoped_lock hold(lock_);
            job = &jobs_.emplace_back(Job{this, data, bytes, value, slowly});
        }
        EXPECT_EQ(driver.launch_host(stream, fills ? fill_on_host : check_on_host, job), 0);
        return;
    }
    if (slowly) {
        unsigned long long cycles = a_while_in_cycles;
        std::array<void*, 1> parameters{&cycles};
        kernels_->run(kernels_->spin, 1, 1, stream, parameters.data());
    }
    unsigned wide = value;
    cuda::Address wrong = kernels_->wrong;
    std::array<void*, 4> parameters{&data, &bytes, &wide, &wrong};
    const auto blocks = static_cast<unsigned>(std::clamp<std::size_t>(bytes / 1024, 1, 256));
    kernels_->run(fills ? kernels_->fill : kernels_->check, blocks, 256, stream, parameters.data());
}

void Gpu::fill_on_host(void* data) {
    const Job& job = *static_cast<Job*>(data);
    if (job.slowly) std::this_thread::sleep_for(a_while);
    auto* const bytes = static_cast<unsigned char*>(job.data);
    std::fill(bytes, bytes + job.bytes, job.value);
}

void Gpu::check_on_host(void* data) {
    const Job& job = *static_cast<Job*>(data);
    if (job.slowly) std::this_thread::sleep_for(a_while);
    const auto* const bytes = static_cast<const unsigned char*>(job.data);
    if (bytes[0] == job.value && std::memcmp(bytes, bytes + 1, job.bytes - 1) == 0) return;
    const auto right = std::count(bytes, bytes + job.bytes, job.value);
    job.gpu->wrong_ += static_cast<unsigned>(job.bytes - static_cast<std::size_t>(right));
}

void Gpu::follow(cuda::Stream stream, cuda::Stream other) {
    cuda::Event event = nullptr;
    ASSERT_EQ(driver.create_event(&event, cuda::event_without_timing), 0);
    ASSERT_EQ(driver.record_event(event, other), 0);
    ASSERT_EQ(driver.stream_wait(stream, event, 0), 0);
    ASSERT_EQ(driver.destroy_event(event), 0);
}

unsigned Gpu::mismatches() {
    EXPECT_EQ(driver.synchronize(), 0);
    if (kernels_ == nullptr) return wrong_;
    unsigned wrong = 0;
    EXPECT_EQ(driver.copy(reinterpret_cast<cuda::Address>(&wrong), kernels_->wrong, sizeof wrong),
              0);
    return wrong;
}

std::vector<unsigned char> Gpu::read(const Buffer& buffer) {
    EXPECT_EQ(driver.synchronize(), 0);
    std::vector<unsigned char> bytes(buffer.size());
    EXPECT_EQ(driver.copy(reinterpret_cast<cuda::Address>(bytes.data()),
                          reinterpret_cast<cuda::Address>(buffer.data()), bytes.size()),
              0);
    return bytes;
}

}  // namespace cistern::test
