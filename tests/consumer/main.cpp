// A program that knows Cistern only as its users do. The conversion and the hidden name below would
// not compile with Cistern's own warnings: they are here to notice if those ever reach a consumer.
#include <cistern/cistern.hpp>
#include <cstdio>
#include <string>

int main() {
    cistern::Pool pool;
    auto field = pool.zeros<double>(3, 4);
    for (const double value : field.span()) {
        int field = value;
        if (field != 0) return 1;
    }

    const std::string headers = std::to_string(CISTERN_VERSION_MAJOR) + "." +
                                std::to_string(CISTERN_VERSION_MINOR) + "." +
                                std::to_string(CISTERN_VERSION_PATCH);
    std::printf("headers %s, library %s, build system %s\n", headers.c_str(), cistern::version(),
                BUILD_SYSTEM_SAYS);
    if (headers != cistern::version() || headers != BUILD_SYSTEM_SAYS) return 2;
    return pool.stats().lent_buffers.now == 1 ? 0 : 3;
}
