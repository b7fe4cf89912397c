// Memory from a std::pmr::memory_resource, in whole blocks; and what all memories share.

#include <cstring>
#include <memory_resource>
#include <new>
#include <utility>

#include "cistern/error.hpp"
#include "cistern/memory.hpp"

namespace cistern {

namespace {

class ResourceSource final : public MemorySource {
public:
    explicit ResourceSource(std::pmr::memory_resource& resource) : resource_(&resource) {}

    [[nodiscard]] std::string name() const override { return "resource"; }
    void* allocate(std::size_t bytes, std::size_t alignment) override {
        try {
            return resource_->allocate(bytes, alignment);
        } catch (const std::bad_alloc&) {
            return nullptr;
        }
    }
    void deallocate(void* data, std::size_t bytes, std::size_t alignment) noexcept override {
        resource_->deallocate(data, bytes, alignment);
    }

private:
    std::pmr::memory_resource* resource_;
};

}  // namespace

void MemorySource::zero(void* data, std::size_t bytes) noexcept { std::memset(data, 0, bytes); }

void MemorySource::copy(void* to, const void* from, std::size_t bytes) {
    std::memcpy(to, from, bytes);
}

Memory::Memory(std::shared_ptr<MemorySource> source) : source_(std::move(source)) {
    if (source_ == nullptr) throw InvalidArgument("a memory needs a source: null");
}

Memory Memory::from(std::pmr::memory_resource& resource) {
    return Memory(std::make_shared<ResourceSource>(resource));
}

}  // namespace cistern
