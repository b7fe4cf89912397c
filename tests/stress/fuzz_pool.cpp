// The model of model.hpp driven by libFuzzer: bytes are choices.
//
//     cmake --preset fuzz && cmake --build --preset fuzz --target fuzz_pool && build/fuzz/tests/fuzz_pool

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "stress/model.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
    using namespace cistern::test;
    ByteChoices choices(data, bytes);
    Model model(choices);
    while (!choices.done()) {
        const std::string wrong = model.step();
        if (wrong.empty()) continue;
        std::fputs(wrong.c_str(), stderr);
        std::abort();
    }
    return 0;
}
