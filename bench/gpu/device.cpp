#include "device.hpp"

#include <array>
#include <cstdio>
#include <cstdlib>

namespace bench {

namespace {

// Two kernels, in the form that every driver compiles for the device it finds.
constexpr const char* kernels = R"ptx(
.version 7.0
.target sm_70
.address_size 64

.visible .entry fill(.param .u64 data, .param .u64 words, .param .u32 value)
{
    .reg .pred %p; .reg .b32 %r<6>; .reg .b64 %d<6>;
    ld.param.u64 %d0, [data]; ld.param.u64 %d1, [words]; ld.param.u32 %r0, [value];
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3; cvt.u64.u32 %d2, %r4;
    mov.u32 %r5, %nctaid.x; mul.lo.u32 %r5, %r5, %r2; cvt.u64.u32 %d3, %r5;
LOOP:
    setp.ge.u64 %p, %d2, %d1; @%p bra DONE;
    shl.b64 %d4, %d2, 2; add.u64 %d4, %d0, %d4; st.global.u32 [%d4], %r0;
    add.u64 %d2, %d2, %d3; bra LOOP;
DONE:
    ret;
}

.visible .entry compare(.param .u64 data, .param .u64 words, .param .u32 value, .param .u64 errors)
{
    .reg .pred %p; .reg .b32 %r<8>; .reg .b64 %d<8>;
    ld.param.u64 %d0, [data]; ld.param.u64 %d1, [words]; ld.param.u32 %r0, [value];
    ld.param.u64 %d5, [errors];
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3; cvt.u64.u32 %d2, %r4;
    mov.u32 %r5, %nctaid.x; mul.lo.u32 %r5, %r5, %r2; cvt.u64.u32 %d3, %r5;
LOOP:
    setp.ge.u64 %p, %d2, %d1; @%p bra DONE;
    shl.b64 %d4, %d2, 2; add.u64 %d4, %d0, %d4; ld.global.u32 %r6, [%d4];
    setp.eq.u32 %p, %r6, %r0; @%p bra NEXT;
    mov.u64 %d6, 1; red.global.add.u64 [%d5], %d6;
NEXT:
    add.u64 %d2, %d2, %d3; bra LOOP;
DONE:
    ret;
}
)ptx";

constexpr unsigned threads_per_block = 256, most_blocks = 1024;

unsigned blocks_for(std::size_t words) {
    const std::size_t blocks = (words + threads_per_block - 1) / threads_per_block;
    return static_cast<unsigned>(blocks < most_blocks ? blocks : most_blocks);
}

}  // namespace

void check(const char* call, CUresult result) {
    if (result == CUDA_SUCCESS) return;
    const char* text = nullptr;
    cuGetErrorString(result, &text);
    std::fprintf(stderr, "%s: %s\n", call, text != nullptr ? text : "unknown error");
    std::exit(1);
}

Device::Device() {
    BENCH_CHECK(cuInit(0));
    BENCH_CHECK(cuDeviceGet(&device_, 0));
    BENCH_CHECK(cuDevicePrimaryCtxRetain(&context_, device_));
    enter();
    BENCH_CHECK(cuModuleLoadData(&module_, kernels));
    BENCH_CHECK(cuModuleGetFunction(&fill_, module_, "fill"));
    BENCH_CHECK(cuModuleGetFunction(&compare_, module_, "compare"));
    BENCH_CHECK(cuMemAlloc(&errors_, sizeof(std::uint64_t)));
    BENCH_CHECK(cuMemsetD8(errors_, 0, sizeof(std::uint64_t)));
}

Device::~Device() { cuMemFree(errors_); }

void Device::enter() const { BENCH_CHECK(cuCtxSetCurrent(context_)); }

std::string Device::name() const {
    std::array<char, 128> name{};
    BENCH_CHECK(cuDeviceGetName(name.data(), static_cast<int>(name.size()), device_));
    return name.data();
}

void Device::fill(CUstream stream, void* data, std::size_t words, std::uint32_t value) const {
    std::array<void*, 3> arguments = {&data, &words, &value};
    BENCH_CHECK(cuLaunchKernel(fill_, blocks_for(words), 1, 1, threads_per_block, 1, 1, 0, stream,
                               arguments.data(), nullptr));
}

void Device::compare(CUstream stream, void* data, std::size_t words, std::uint32_t value) const {
    CUdeviceptr errors = errors_;
    std::array<void*, 4> arguments = {&data, &words, &value, &errors};
    BENCH_CHECK(cuLaunchKernel(compare_, blocks_for(words), 1, 1, threads_per_block, 1, 1, 0,
                               stream, arguments.data(), nullptr));
}

std::uint64_t Device::errors() const {
    BENCH_CHECK(cuCtxSynchronize());
    std::uint64_t errors = 0;
    BENCH_CHECK(cuMemcpyDtoH(&errors, errors_, sizeof errors));
    return errors;
}

}  // namespace bench
