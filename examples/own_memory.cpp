// A memory of your own: bytes in a temporary file, so that the system can write them to disk instead
// of running out.

#include <sys/mman.h>
#include <unistd.h>

#include <cistern/pool.hpp>
#include <cstdio>
#include <iostream>
#include <memory>

// [source
/// Maps a temporary file of its own for every block.
class FileSource : public cistern::MemorySource {
public:
    void* allocate(std::size_t bytes, std::size_t /*alignment: a page is enough*/) override {
        std::FILE* const file = std::tmpfile();
        if (file == nullptr) return nullptr;
        void* data = MAP_FAILED;
        if (ftruncate(fileno(file), static_cast<off_t>(bytes)) == 0) {
            data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
        }
        std::fclose(file);  // the mapping keeps the file
        return data == MAP_FAILED ? nullptr : data;
    }
    void deallocate(void* data, std::size_t bytes, std::size_t) noexcept override {
        munmap(data, bytes);
    }
    [[nodiscard]] std::string name() const override { return "file"; }
};
// ]

int main() {
    // [use
    cistern::Pool pool{cistern::Memory(std::make_shared<FileSource>()), {.name = "scratch"}};
    for (int step = 0; step < 10; ++step) {
        const auto field = pool.zeros<double>(300, 400);
        field(0, step) = 1.0;
    }
    std::cout << pool.explain().memory << ": " << pool.stats().hits << " hits, "
              << pool.stats().misses << " miss\n";
    // ]
}
