#include "memory/cuda_driver.hpp"

#include <dlfcn.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

#include "cistern/error.hpp"
#include "cistern/memory.hpp"

namespace cistern::cuda {

namespace {

constexpr int oldest_version = 12000;  // streams have numbers since then

std::string text_of_version(int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// Whether a process that had started the driver forked this one, where it cannot be used.
std::atomic<bool> forked{
    false};  // relaxed: the child begins with one thread, and it stays as it is
constexpr const char* why_forked = "this process was forked after CUDA was used: start it by exec";

/// What came of looking for the driver. Kept as long as the process: buffers in statics may outlive
/// everything else.
struct Found {
    Driver driver;
    std::string why;  // there is none; empty if there is

    Found() {
        why = look();
        const auto in_child = [] { forked.store(true, std::memory_order_relaxed); };
        if (why.empty()) pthread_atfork(nullptr, nullptr, in_child);
    }

private:
    [[nodiscard]] std::string look() {
        if (!CISTERN_HAS_CUDA) return "this build was made without CUDA";
        const char* const named = secure_getenv("CISTERN_CUDA_DRIVER");
        const char* const file = named != nullptr ? named : "libcuda.so.1";
        void* const library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) return std::string("no CUDA driver: ") + dlerror();
        const char* missing = nullptr;
        const auto find = [&](auto& function, const char* symbol, bool needed) {
            void* const address = dlsym(library, symbol);
            if (address == nullptr && needed) missing = symbol;
            function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
        };
        find(driver.driver_version, "cuDriverGetVersion", true);
        if (missing == nullptr && driver.driver_version(&driver.version) == success &&
            driver.version < oldest_version) {
            return "the CUDA driver is too old: " + text_of_version(driver.version) + ", needs " +
                   text_of_version(oldest_version);
        }
#define CISTERN_FIND(name, symbol, parameters) find(driver.name, #symbol, true);
        CISTERN_CUDA_FUNCTIONS(CISTERN_FIND)
#undef CISTERN_FIND
#define CISTERN_FIND(name, symbol, parameters) find(driver.name, #symbol, false);
        CISTERN_CUDA_OPTIONAL_FUNCTIONS(CISTERN_FIND)
#undef CISTERN_FIND
        if (missing != nullptr) {
            return std::string("the CUDA driver lacks a function: ") + missing + " is not in " +
                   file;
        }
        if (const Result result = driver.init(0); result != success) {
            return text(result, "the CUDA driver does not start");
        }
        if (const Result result = driver.device_count(&driver.devices); result != success) {
            return text(result, "the CUDA driver cannot count devices");
        }
        return driver.devices == 0 ? "there is no CUDA device" : "";
    }

    [[nodiscard]] std::string text(Result error, const char* what) const {
        const char* name = nullptr;
        const char* words = nullptr;
        driver.error_name(error, &name);
        driver.error_text(error, &words);
        std::string text = std::string(what) + ": ";
        text += name != nullptr ? name : "error " + std::to_string(error);
        if (words != nullptr) text += std::string(" (") + words + ")";
        if (forked.load(std::memory_order_relaxed)) text += std::string(": ") + why_forked;
        return text;
    }
    friend std::string cistern::cuda::text_of(const char* what, Result error);
};

const Found& found() {
    static const auto* const result = new Found;
    return *result;
}

}  // namespace

const Driver* driver() noexcept {
    try {
        const bool usable = found().why.empty() && !forked.load(std::memory_order_relaxed);
        return usable ? &found().driver : nullptr;
    } catch (...) {  // no memory even for the words
        return nullptr;
    }
}

const Driver& require_driver() {
    if (!found().why.empty()) throw Unavailable(found().why);
    if (forked.load(std::memory_order_relaxed)) throw Unavailable(why_forked);
    return found().driver;
}

std::string text_of(const char* what, Result error) { return found().text(error, what); }

std::string text_of(const Uuid& uuid) {
    constexpr const char* digits = "0123456789abcdef";
    std::string text = "GPU-";
    for (std::size_t i = 0; i < uuid.size(); ++i) {
        if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
        text += {digits[uuid[i] >> 4], digits[uuid[i] & 15]};
    }
    return text;
}

void check(const char* what, Result result) {
    if (result != success) throw DeviceError(text_of(what, result));
}

const DeviceContext& DeviceContext::of(int ordinal) {
    const Driver& driver = require_driver();
    if (ordinal < 0 || ordinal >= driver.devices) {
        throw InvalidArgument("there is no such CUDA device: " + std::to_string(ordinal) +
                              ", devices " + std::to_string(driver.devices));
    }
    static std::mutex lock;
    static auto* const devices = new std::vector<std::unique_ptr<const DeviceContext>>;
    const std::scoped_lock hold(lock);
    devices->resize(static_cast<std::size_t>(driver.devices));
    auto& device = devices->at(static_cast<std::size_t>(ordinal));
    if (device == nullptr) device.reset(new DeviceContext(driver, ordinal));
    return *device;
}

const DeviceContext& DeviceContext::with(const Uuid& uuid) {
    const Driver& driver = require_driver();
    for (int ordinal = 0; ordinal < driver.devices; ++ordinal) {
        Device device = 0;
        Uuid its{};
        check("cannot find the device", driver.device(&device, ordinal));
        check("cannot find the device", driver.device_uuid(&its, device));
        if (its == uuid) return of(ordinal);
    }
    throw Unavailable("no device that this process sees has these bytes: " + text_of(uuid));
}

DeviceContext::DeviceContext(const Driver& driver, int ordinal)
    : driver_(&driver), ordinal_(ordinal) {
    check("cannot open the device", driver.device(&device_, ordinal));
    check("cannot open the device", driver.retain_context(&context_, device_));
    check("cannot tell the device's memory", driver.device_total(&total_bytes_, device_));
}

bool DeviceContext::has(int attribute) const noexcept {
    int value = 0;
    return driver_->device_attribute(&value, attribute, device_) == success && value != 0;
}

Uuid DeviceContext::uuid() const {
    Uuid uuid{};
    check("cannot tell the device's UUID", driver_->device_uuid(&uuid, device_));
    return uuid;
}

Entered::Entered(const DeviceContext& device) noexcept : driver_(device.driver()) {
    Context current = nullptr;
    if (driver_.current_context(&current) != success || current != device.context()) {
        pushed_ = driver_.push_context(device.context()) == success;
    }
    driver_.exchange_capture_mode(&mode_);
}

Entered::~Entered() {
    driver_.exchange_capture_mode(&mode_);
    Context popped = nullptr;
    if (pushed_) driver_.pop_context(&popped);
}

}  // namespace cistern::cuda
