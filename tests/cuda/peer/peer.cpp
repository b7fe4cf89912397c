// The other process of ipc_test.cpp, with a driver of its own. Its socket is descriptor 3.
//
//     cistern_cuda_peer add                receives a buffer and adds 1 to each of its bytes; answers "done"
//     cistern_cuda_peer lend BYTES VALUE   sends a buffer full of VALUE, and exits
//     cistern_cuda_peer name               receives a buffer; answers the number of its device here, or the
//                                          text of the error

#include <unistd.h>

#include <string>
#include <vector>

#include "../library.hpp"
#include "cistern/cistern.hpp"

namespace {

using namespace cistern;
using test::Library;

constexpr int socket_number = 3;

cuda::Address address_of(const void* data) { return reinterpret_cast<cuda::Address>(data); }

void enter_device(const Library& driver) {
    cuda::Context context = nullptr;
    cuda::check("no driver", driver.init(0));
    cuda::check("no context", driver.retain_context(&context, 0));
    cuda::check("no context", driver.push_context(context));
}

void answer(const std::string& text) {
    if (write(socket_number, text.data(), text.size()) < 0) _exit(3);
}

int add() {
    const Library& driver = Library::get();
    enter_device(driver);
    const ImportedBuffer mine{receive(socket_number)};
    std::vector<unsigned char> bytes(mine.size());
    cuda::check("copy",
                driver.copy(address_of(bytes.data()), address_of(mine.data()), mine.size()));
    for (unsigned char& byte : bytes) ++byte;
    cuda::check("copy",
                driver.copy(address_of(mine.data()), address_of(bytes.data()), mine.size()));
    cuda::check("synchronize", driver.synchronize());
    answer("done");
    return 0;
}

int lend(std::size_t bytes, unsigned char value) {
    const Library& driver = Library::get();
    enter_device(driver);
    Pool pool{Memory::device()};
    const Buffer buffer = pool.acquire(bytes);
    cuda::check("fill", driver.set_async(address_of(buffer.data()), value, bytes, nullptr));
    cuda::check("synchronize", driver.synchronize());
    send(share(buffer), socket_number);
    return 0;
}

int name() {
    try {
        answer("device " + std::to_string(ImportedBuffer(receive(socket_number)).device_id()));
    } catch (const Unavailable& error) {
        answer(std::string("Unavailable: ") + error.what());
    }
    return 0;
}

}  // namespace

int main(int count, char** arguments) {
    const std::string command = count > 1 ? arguments[1] : "";
    if (command == "add") return add();
    if (command == "lend" && count == 4) {
        return lend(std::stoull(arguments[2]),
                    static_cast<unsigned char>(std::stoul(arguments[3])));
    }
    return command == "name" ? name() : 2;
}
