// The bytes of the devices. Virtual memory is what the system calls that: reserved ranges are mappings
// that nobody may touch, handles are files in memory, mapped into them. So the host can read what a
// "device" holds, which only tests do.
//
// One lock guards the books; work that touches bytes holds it shared, so that nothing is unmapped under
// it. Work that comes to unmapped bytes poisons the context, as a kernel would.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <shared_mutex>

#include "order.hpp"

namespace stand_in {

namespace {

constexpr std::size_t granularity_bytes = std::size_t{2} << 20;
constexpr std::size_t plain_grain = 512;
constexpr std::size_t page = 4096;

/// A handle's bytes. They are the device's while the handle is held or mapped.
struct Physical {
    int file;
    std::size_t bytes;
    int device;  // -1 where another process created it
    ino_t inode;
    bool exportable;
    unsigned references = 1;  // handles and mappings
};

struct Mapping {
    std::size_t bytes;
    std::shared_ptr<Physical> physical;  // null for plain and managed allocations
    int device;
    bool accessible, managed;
};

struct Books {
    std::shared_mutex lock;
    std::array<std::size_t, 16> used{}, total{};
    std::map<Address, std::size_t> reserved;
    std::map<Address, Mapping> mappings;
    std::map<Address, std::size_t> registered;
    std::map<Handle, std::shared_ptr<Physical>> handles;
    Handle next_handle = 0x7000;

    Books() { total.fill(environment("TEST_CUDA_BYTES", std::size_t{1} << 30)); }
};

Books& books() {
    static auto* const all = new Books;
    return *all;
}

void* pointer(Address address) { return reinterpret_cast<void*>(address); }
std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

/// The entry of a map of ranges that holds an address.
template <class Map>
auto containing(Map& ranges, Address address, auto bytes_of) {
    auto next = ranges.upper_bound(address);
    if (next == ranges.begin()) return ranges.end();
    --next;
    return address - next->first < bytes_of(next->second) ? next : ranges.end();
}
auto mapping_of(Address address) {
    return containing(books().mappings, address, [](const Mapping& m) { return m.bytes; });
}
auto registration_of(Address address) {
    return containing(books().registered, address, [](std::size_t bytes) { return bytes; });
}
auto reservation_of(Address address) {
    return containing(books().reserved, address, [](std::size_t bytes) { return bytes; });
}

bool take(int device, std::size_t bytes) {
    std::size_t& used = books().used.at(static_cast<std::size_t>(device));
    const std::size_t total = books().total.at(static_cast<std::size_t>(device));
    if (used > total || bytes > total - used) return false;
    used += bytes;
    return true;
}

void drop(const std::shared_ptr<Physical>& physical) {
    if (--physical->references > 0) return;
    if (physical->device >= 0) {
        books().used.at(static_cast<std::size_t>(physical->device)) -= physical->bytes;
    }
    close(physical->file);
}

/// Whether a device may touch all of a range.
bool is_accessible(Address data, std::size_t bytes) {
    for (const Address end = data + bytes; data < end;) {
        const auto found = mapping_of(data);
        if (found == books().mappings.end() || !found->second.accessible) return false;
        data = found->first + found->second.bytes;
    }
    return true;
}

enum class Kind { device, managed, registered, pageable };

/// What a copy's side is; nothing if it is not one thing from end to end.
std::optional<Kind> kind_of(Address data, std::size_t bytes) {
    const Address last = data + bytes - 1;
    if (const auto found = mapping_of(data); found != books().mappings.end()) {
        if (!is_accessible(data, bytes)) return {};
        return found->second.managed ? Kind::managed : Kind::device;
    }
    if (reservation_of(data) != books().reserved.end()) return {};
    const auto first_page = registration_of(data), last_page = registration_of(last);
    if (first_page != last_page) return {};
    return first_page != books().registered.end() ? Kind::registered : Kind::pageable;
}

/// Runs work on bytes of a device that it must be able to reach.
template <class Body>
void touch(Address data, std::size_t bytes, bool on_device, Body body) {
    const std::shared_lock hold(books().lock);
    if (on_device && !is_accessible(data, bytes)) {
        poison();
        return;
    }
    body();
}

Result copy(Address to, Address from, std::size_t bytes, Stream stream, bool wait) {
    if (bytes == 0) return success;
    std::optional<Kind> to_kind, from_kind;
    {
        const std::shared_lock hold(books().lock);
        to_kind = kind_of(to, bytes);
        from_kind = kind_of(from, bytes);
    }
    if (!to_kind || !from_kind) return invalid_value;
    const bool to_device = *to_kind < Kind::registered, from_device = *from_kind < Kind::registered;
    Ticket done;
    const Result result = launch(
        stream,
        [=] {
            touch(from, bytes, from_device, [&] {
                if (to_device && !is_accessible(to, bytes)) return poison();
                std::memmove(pointer(to), pointer(from), bytes);
            });
        },
        &done);
    // What the host may change or read at once is copied at once; between devices nobody waits.
    const bool pageable = *to_kind == Kind::pageable || *from_kind == Kind::pageable;
    wait = (wait && !(to_device && from_device)) || pageable;
    if (result == success && wait && done != nullptr) done->wait();
    return result == success && is_poisoned() ? Result{illegal_address} : result;
}

/// Maps bytes that belong to a device or to both sides.
Address map_plain(std::size_t bytes) {
    void* const data = mmap(nullptr, round_up(bytes, page), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return data != MAP_FAILED ? address_of(data) : 0;
}

Result allocate(Address* data, std::size_t bytes, bool managed) {
    if (bytes == 0) return invalid_value;
    if (bytes > PTRDIFF_MAX / 2) return error_out_of_memory;
    bytes = round_up(bytes, plain_grain);
    const std::unique_lock hold(books().lock);
    const int device = ordinal_of(current_context());
    if (!managed && !take(device, bytes)) return error_out_of_memory;
    *data = map_plain(bytes);
    if (*data == 0) {
        if (!managed) books().used.at(static_cast<std::size_t>(device)) -= bytes;
        return error_out_of_memory;
    }
    books().mappings[*data] = {bytes, nullptr, device, true, managed};
    return success;
}

bool is_whole(std::size_t bytes) { return bytes > 0 && bytes % granularity_bytes == 0; }

bool is_reserved(Address data, std::size_t bytes) {
    const auto found = reservation_of(data);
    return found != books().reserved.end() && data - found->first <= found->second - bytes &&
           bytes <= found->second;
}

/// The mappings that lie in a range, if they fill it from end to end.
std::vector<std::map<Address, Mapping>::iterator> filling(Address data, std::size_t bytes) {
    std::vector<std::map<Address, Mapping>::iterator> found;
    for (const Address end = data + bytes; data < end;) {
        const auto mapping = books().mappings.find(data);
        if (mapping == books().mappings.end() || mapping->second.physical == nullptr ||
            mapping->second.bytes > end - data) {
            return {};
        }
        found.push_back(mapping);
        data += mapping->second.bytes;
    }
    return found;
}

Result reserve(Address* data, std::size_t bytes, std::size_t alignment) {
    if (!is_whole(bytes) || (alignment & (alignment - 1)) != 0) return invalid_value;
    if (bytes > PTRDIFF_MAX / 2) return error_out_of_memory;
    alignment = std::max(alignment, granularity_bytes);
    void* const start = mmap(nullptr, bytes + alignment, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) return error_out_of_memory;
    *data = round_up(address_of(start), alignment);
    const std::size_t before = *data - address_of(start);
    if (before > 0) munmap(start, before);
    munmap(pointer(*data + bytes), alignment - before);
    const std::unique_lock hold(books().lock);
    books().reserved[*data] = bytes;
    return success;
}

Result map(Address data, std::size_t bytes, const std::shared_ptr<Physical>& physical) {
    if (!is_reserved(data, bytes)) return invalid_value;
    const auto next = books().mappings.lower_bound(data);
    if (next != books().mappings.end() && next->first < data + bytes) return invalid_value;
    if (mapping_of(data) != books().mappings.end()) return invalid_value;
    if (mmap(pointer(data), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, physical->file, 0) ==
        MAP_FAILED) {
        return error_out_of_memory;
    }
    ++physical->references;
    books().mappings[data] = {bytes, physical, physical->device, false, false};
    return success;
}

}  // namespace

std::size_t bytes_in_use(int device) {
    const std::shared_lock hold(books().lock);
    return books().used.at(static_cast<std::size_t>(device));
}

std::size_t managed_bytes() {
    const std::shared_lock hold(books().lock);
    std::size_t sum = 0;
    for (const auto& [address, mapping] : books().mappings) {
        if (mapping.managed) sum += mapping.bytes;
    }
    return sum;
}

std::size_t total_bytes(int device) {
    const std::shared_lock hold(books().lock);
    return books().total.at(static_cast<std::size_t>(device));
}

void set_total_bytes(int device, std::size_t bytes) {
    const std::unique_lock hold(books().lock);
    books().total.at(static_cast<std::size_t>(device)) = bytes;
}

std::size_t handle_count() {
    const std::shared_lock hold(books().lock);
    return books().handles.size();
}

std::size_t range_count() {
    const std::shared_lock hold(books().lock);
    return books().reserved.size();
}

}  // namespace stand_in

using namespace stand_in;

STAND_IN_EXPORT Result cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
    return call("cuMemGetInfo_v2", context, [&] {
        const int current = ordinal_of(current_context());
        *total = total_bytes(current);
        *free = *total - std::min(*total, bytes_in_use(current));
        return success;
    });
}

STAND_IN_EXPORT Result cuMemAlloc_v2(Address* data, std::size_t bytes) {
    return call("cuMemAlloc_v2", context | no_capture,
                [&] { return allocate(data, bytes, false); });
}

STAND_IN_EXPORT Result cuMemAllocManaged(Address* data, std::size_t bytes, unsigned flags) {
    return call("cuMemAllocManaged", context | no_capture, [&] {
        return flags == 1 || flags == 2 ? allocate(data, bytes, true) : Result{invalid_value};
    });
}

STAND_IN_EXPORT Result cuMemFree_v2(Address data) {
    return call("cuMemFree_v2", context | no_capture, [&] {
        if (data == 0) return success;
        wait_for(current_context());
        const std::unique_lock hold(books().lock);
        const auto found = books().mappings.find(data);
        if (found == books().mappings.end() || found->second.physical != nullptr) {
            return Result{invalid_value};
        }
        const Mapping& mapping = found->second;
        munmap(pointer(data), round_up(mapping.bytes, page));
        if (!mapping.managed) {
            books().used.at(static_cast<std::size_t>(mapping.device)) -= mapping.bytes;
        }
        books().mappings.erase(found);
        return success;
    });
}

STAND_IN_EXPORT Result cuMemHostRegister_v2(void* data, std::size_t bytes, unsigned) {
    return call("cuMemHostRegister_v2", context | no_capture, [&] {
        if (data == nullptr || bytes == 0) return Result{invalid_value};
        const Address from = address_of(data) / page * page;
        const Address to = round_up(address_of(data) + bytes, page);
        std::vector<unsigned char> resident((to - from) / page);
        if (mincore(pointer(from), to - from, resident.data()) != 0) return Result{invalid_value};
        const std::unique_lock hold(books().lock);
        const auto next = books().registered.lower_bound(address_of(data));
        if ((next != books().registered.end() && next->first / page * page < to) ||
            registration_of(from) != books().registered.end() ||
            registration_of(address_of(data)) != books().registered.end()) {
            return Result{already_registered};
        }
        books().registered[address_of(data)] = bytes;
        return success;
    });
}

STAND_IN_EXPORT Result cuMemHostUnregister(void* data) {
    return call("cuMemHostUnregister", context | no_capture, [&] {
        wait_for(current_context());
        const std::unique_lock hold(books().lock);
        return books().registered.erase(address_of(data)) == 1 ? success : Result{not_registered};
    });
}

STAND_IN_EXPORT Result cuMemGetAllocationGranularity(std::size_t* bytes,
                                                     const AllocationProperties* properties, int) {
    return call("cuMemGetAllocationGranularity", start, [&] {
        const Location& location = properties->location;
        if (location.type != 1 || location.id < 0 || location.id >= device_count()) {
            return Result{invalid_device};
        }
        *bytes = granularity_bytes;
        return success;
    });
}

STAND_IN_EXPORT Result cuMemAddressReserve(Address* data, std::size_t bytes, std::size_t alignment,
                                           Address, unsigned long long flags) {
    return call("cuMemAddressReserve", device, [&] {
        return flags == 0 ? reserve(data, bytes, alignment) : Result{invalid_value};
    });
}

STAND_IN_EXPORT Result cuMemAddressFree(Address data, std::size_t bytes) {
    return call("cuMemAddressFree", device, [&] {
        const std::unique_lock hold(books().lock);
        const auto found = books().reserved.find(data);
        if (found == books().reserved.end() || found->second != bytes) return Result{invalid_value};
        const auto mapped = books().mappings.lower_bound(data);
        if (mapped != books().mappings.end() && mapped->first < data + bytes) {
            return Result{invalid_value};
        }
        munmap(pointer(data), bytes);
        books().reserved.erase(found);
        return success;
    });
}

STAND_IN_EXPORT Result cuMemCreate(Handle* handle, std::size_t bytes,
                                   const AllocationProperties* properties,
                                   unsigned long long flags) {
    return call("cuMemCreate", device | no_capture, [&] {
        const Location& location = properties->location;
        if (!is_whole(bytes) || flags != 0 || properties->type != 1 || location.type != 1) {
            return Result{invalid_value};
        }
        if (location.id < 0 || location.id >= device_count()) return Result{invalid_device};
        const std::unique_lock hold(books().lock);
        if (!take(location.id, bytes)) return error_out_of_memory;
        const int file = memfd_create("device", MFD_CLOEXEC);
        struct stat status {};
        if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0 || fstat(file, &status)) {
            stop("the system has no file for a handle");
        }
        *handle = ++books().next_handle;
        books().handles[*handle] = std::make_shared<Physical>(
            Physical{file, bytes, location.id, status.st_ino,
                     properties->requested_handle_types == handle_is_file});
        return success;
    });
}

STAND_IN_EXPORT Result cuMemRelease(Handle handle) {
    return call("cuMemRelease", device, [&] {
        const std::unique_lock hold(books().lock);
        const auto found = books().handles.find(handle);
        if (found == books().handles.end()) return Result{invalid_value};
        drop(found->second);
        books().handles.erase(found);
        return success;
    });
}

STAND_IN_EXPORT Result cuMemMap(Address data, std::size_t bytes, std::size_t offset, Handle handle,
                                unsigned long long flags) {
    return call("cuMemMap", device | no_capture, [&] {
        const std::unique_lock hold(books().lock);
        const auto found = books().handles.find(handle);
        if (found == books().handles.end() || flags != 0) return Result{invalid_value};
        if (offset != 0 || bytes != found->second->bytes) return Result{not_supported};
        return map(data, bytes, found->second);
    });
}

STAND_IN_EXPORT Result cuMemUnmap(Address data, std::size_t bytes) {
    return call("cuMemUnmap", device | no_capture, [&] {
        const std::unique_lock hold(books().lock);
        const auto mappings = filling(data, bytes);
        if (mappings.empty()) return Result{invalid_value};
        mmap(pointer(data), bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        for (const auto& mapping : mappings) {
            drop(mapping->second.physical);
            books().mappings.erase(mapping);
        }
        return success;
    });
}

STAND_IN_EXPORT Result cuMemSetAccess(Address data, std::size_t bytes,
                                      const AccessDescription* access, std::size_t count) {
    return call("cuMemSetAccess", device | no_capture, [&] {
        const std::unique_lock hold(books().lock);
        const auto mappings = filling(data, bytes);
        if (mappings.empty() || count == 0) return Result{invalid_value};
        int protection = PROT_NONE;
        for (std::size_t i = 0; i < count; ++i) {
            const Location& location = access[i].location;
            if (location.type != 1 || location.id < 0 || location.id >= device_count()) {
                return Result{invalid_device};
            }
            if ((access[i].flags & 1) != 0) protection |= PROT_READ;
            if (access[i].flags == 3) protection |= PROT_WRITE;
        }
        mprotect(pointer(data), bytes, protection);
        for (const auto& mapping : mappings) mapping->second.accessible = protection != PROT_NONE;
        return success;
    });
}

STAND_IN_EXPORT Result cuMemExportToShareableHandle(void* exported, Handle handle, int type,
                                                    unsigned long long) {
    return call("cuMemExportToShareableHandle", device, [&] {
        const std::shared_lock hold(books().lock);
        const auto found = books().handles.find(handle);
        if (found == books().handles.end() || type != handle_is_file ||
            !found->second->exportable) {
            return Result{invalid_value};
        }
        const int file = fcntl(found->second->file, F_DUPFD_CLOEXEC, 0);
        if (file < 0) return Result{operating_system};
        std::memcpy(exported, &file, sizeof file);
        return success;
    });
}

STAND_IN_EXPORT Result cuMemImportFromShareableHandle(Handle* handle, void* exported, int type) {
    return call("cuMemImportFromShareableHandle", device, [&] {
        const int given = static_cast<int>(reinterpret_cast<std::intptr_t>(exported));
        struct stat status {};
        if (type != handle_is_file || fstat(given, &status) != 0 ||
            !is_whole(static_cast<std::size_t>(status.st_size))) {
            return Result{invalid_value};
        }
        const std::unique_lock hold(books().lock);
        *handle = ++books().next_handle;
        auto& physical = books().handles[*handle];
        for (const auto& [other, known] : books().handles) {
            if (known != nullptr && known->inode == status.st_ino) physical = known;
        }
        if (physical != nullptr) {
            ++physical->references;
        } else {
            physical = std::make_shared<Physical>(Physical{fcntl(given, F_DUPFD_CLOEXEC, 0),
                                                           static_cast<std::size_t>(status.st_size),
                                                           -1, status.st_ino, true});
        }
        return success;
    });
}

STAND_IN_EXPORT Result cuMemcpy(Address to, Address from, std::size_t bytes) {
    return call("cuMemcpy", context | no_capture,
                [&] { return copy(to, from, bytes, legacy_stream(), true); });
}

STAND_IN_EXPORT Result cuMemcpyAsync(Address to, Address from, std::size_t bytes, Stream stream) {
    return call("cuMemcpyAsync", context, [&] { return copy(to, from, bytes, stream, false); });
}

STAND_IN_EXPORT Result cuMemsetD8Async(Address data, unsigned char value, std::size_t bytes,
                                       Stream stream) {
    return call("cuMemsetD8Async", context, [&] {
        if (bytes == 0) return success;
        std::optional<Kind> kind;
        {
            const std::shared_lock hold(books().lock);
            kind = kind_of(data, bytes);
        }
        if (!kind || *kind == Kind::pageable) return Result{invalid_value};
        const bool on_device = *kind != Kind::registered;
        return launch(stream, [=] {
            touch(data, bytes, on_device, [&] { std::memset(pointer(data), value, bytes); });
        });
    });
}
