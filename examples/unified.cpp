// Arrays with a host and a device side, kept by exact shape and type.

#include <cistern/unified.hpp>
#include <iostream>

int main() {
    // [unified
    cistern::UnifiedPool pool;  // no device here: device() is host()
    for (int step = 0; step < 3; ++step) {
        auto buffer = pool.acquire<float>({512, 512});
        for (float& x : buffer->host_writable()) x = 1.0F;  // marks the host side newer
        float* const data = buffer->device();               // copies first, where there is a device
        data[0] += 1.0F;
        buffer->mark_device_dirty();
        std::cout << buffer->host()[0] << ' ' << to_string(buffer->state()) << '\n';
        pool.release(std::move(buffer));
    }
    const cistern::UnifiedStats stats = pool.stats();
    std::cout << stats.cache_hits << " of " << stats.total_acquired << " were kept ones\n";
    // ]
}
