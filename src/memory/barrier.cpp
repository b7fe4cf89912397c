#include "memory/barrier.hpp"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace cistern {

namespace {

long membarrier(int command) noexcept { return syscall(SYS_membarrier, command, 0, 0); }

}  // namespace

bool barrier_available() noexcept {
    static const bool available = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
    return available;
}

void impose_barrier() noexcept { membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED); }

void renew_barrier() noexcept { membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED); }

}  // namespace cistern
