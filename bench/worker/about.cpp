// Allocators name their versions in their own ways; each is asked through its exported function, so
// that nothing here depends on their headers.

#include "about.hpp"

#include <dlfcn.h>
#include <gnu/libc-version.h>

#include <cistern/version.hpp>
#include <cstddef>
#include <cstdlib>
#include <filesystem>

#include "sources/all.hpp"

namespace bench {
namespace {

template <class Function>
Function* symbol(const char* name) {
    return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

std::string malloc_version() {
    if (auto* mallctl =
            symbol<int(const char*, void*, std::size_t*, void*, std::size_t)>("mallctl")) {
        const char* text = nullptr;
        std::size_t bytes = sizeof text;
        if (mallctl("version", &text, &bytes, nullptr, 0) == 0) return text;
    }
    if (auto* tc_version = symbol<const char*(int*, int*, const char**)>("tc_version")) {
        return tc_version(nullptr, nullptr, nullptr);
    }
    if (auto* mi_version = symbol<int()>("mi_version")) {
        const int version = mi_version();  // 209 for 2.0.9
        return std::to_string(version / 100) + '.' + std::to_string(version / 10 % 10) + '.' +
               std::to_string(version % 10);
    }
    const std::string library = malloc_library();
    if (library.find("libc.so") != std::string::npos) return gnu_get_libc_version();
    return std::filesystem::path(library).filename().string();
}

}  // namespace

std::string malloc_library() {
    Dl_info info{};
    if (dladdr(reinterpret_cast<void*>(&std::malloc), &info) == 0) return "";
    std::error_code error;
    const auto path = std::filesystem::canonical(info.dli_fname, error);
    return error ? std::string(info.dli_fname) : path.string();
}

std::string version_of(const std::string& source) {
    if (source.starts_with("cistern")) return cistern::version();
    if (source == "malloc") return malloc_version();
    if (source == "boost-pool") return boost_version();
    if (source.starts_with("pmr")) return "libstdc++ " + std::to_string(__GNUC__);
    return "";
}

}  // namespace bench
