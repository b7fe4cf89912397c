// Thrust and CCCL on a pool: sorts vectors of changing length, with their temporary memory from the pool
// too. Build: nvcc -std=c++20 thrust.cu -lcistern
#include "cistern/cuda_resource.hpp"  // first: it has CCCL show its resources

#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>

#include <cstdio>

static_assert(cuda::mr::async_resource_with<cistern::cuda_resource, cuda::mr::device_accessible>);

int main() {
    if (!cistern::cuda_available()) {
        std::puts("no CUDA device");
        return 0;
    }
    cistern::Pool pool(cistern::Memory::device());
    cudaStream_t stream = nullptr;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    bool sorted = true;
    for (int n = 1000; n < 3'000'000; n = n * 3 / 2) {
        const cistern::thrust_allocator<int> allocator(pool, stream);
        thrust::device_vector<int, cistern::thrust_allocator<int>> values(n, allocator);
        const auto policy = thrust::cuda::par(cistern::thrust_allocator<char>(pool, stream)).on(stream);
        thrust::sequence(policy, values.rbegin(), values.rend());
        thrust::sort(policy, values.begin(), values.end());
        sorted = sorted && thrust::is_sorted(policy, values.begin(), values.end());
    }

    cistern::cuda_resource resource(pool);
    void* const data = resource.allocate_async(1 << 20, stream);
    resource.deallocate_async(data, 1 << 20, stream);
    void* const settled = resource.allocate(1 << 20);
    resource.deallocate(settled, 1 << 20);

    const cistern::PoolStats stats = pool.stats();
    std::printf("sorted: %s, hit rate %.2f\n", sorted ? "yes" : "no", stats.hit_rate());
    cudaStreamDestroy(stream);
    return sorted && stats.lent_buffers.now == 0 ? 0 : 1;
}
