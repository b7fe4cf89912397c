#pragma once
// A block and its descriptor. Descriptors live outside the memory they describe: the same code serves
// memory the host cannot read, and an overrun cannot corrupt them. They are allocated in slabs and
// never freed, so that a stale handle can always be told from a live one by its generation.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>

#include "base/list.hpp"
#include "cistern/detail/front.hpp"

namespace cistern {

class Core;

enum class BlockState : std::uint8_t {
    spare,    // describes nothing
    out,      // lent, or in a magazine or the depot
    idle,     // kept: a hole of the arena
    shelved,  // kept: a whole block on the shelf
    hollow,   // addresses of the arena without bytes, or with some that are not held
    leaving,  // on its way back to the memory, or to another place
    moved,    // addresses whose bytes have another place, but streams may still use them here
};

struct Block;

/// Large blocks are joined with what their thread released before one is lent, so that holes are fewer and larger; where
/// bytes are mapped in segments they have segments without small ones.
inline constexpr std::size_t large_from = 1 << 20;

/// A loan that its holder knows by a bare address, as one of several in a chain (interop/loans.cpp).
struct KnownLoan {
    Block* next = nullptr;
    const void* address = nullptr;
    std::uint32_t generation = 0;  // what the handle knew
    std::uint16_t slot = 0, rack = 0;
};

struct alignas(64) Block : detail::BlockFront {
    Block* before = nullptr;  // neighbours in the range, by address
    Block* after = nullptr;

    Links<Block> in_bin;            // a bin of the arena, or a list of whole or spare blocks
    Links<Block> in_age;            // idle blocks, oldest first; batches in the depot
    std::uint64_t released_at = 0;  // clock of the last release that reached the arena or shelf
    std::uint64_t order = 0;        // rises with every such release
    std::size_t slack = 0;  // what alignment added: bytes + slack are the addresses it spans
    BlockState state = BlockState::spare;
    bool in_arena = false;   // its addresses are part of the arena's range
    bool held_back = false;  // let go, but a capture keeps it from the driver
    bool zero = false;       // of a hole: every byte is known to be zero
    bool small = false;      // its segment is for small blocks
    bool seam = false;       // what lies before it is another segment
    bool backed = false;     // of a hollow one: it has bytes, which are not counted as held
    Core* core = nullptr;
    struct Uses* uses = nullptr;                        // by other streams
    KnownLoan known;                                    // guarded by a lock of its own
    std::uint64_t zero_generation = ~std::uint64_t{0};  // the loan whose bytes began as zero

    // What few blocks need.
    BlockFront* batch_last = nullptr;               // of the first block of a batch: the last one
    detail::Load batch_load = 0;                    // and what they all weigh
    std::size_t type = 0;                           // element type, where the pool separates them
    std::function<void(void*)>* deleter = nullptr;  // of adopted bytes

    [[nodiscard]] std::byte* begin() const noexcept { return static_cast<std::byte*>(data); }
    [[nodiscard]] std::byte* end() const noexcept { return begin() + bytes + slack; }
};

inline Block& block_of(detail::BlockFront& front) noexcept { return static_cast<Block&>(front); }

/// Spare descriptors of one pool, taken from and returned to the process's.
class BlockStore {
public:
    explicit BlockStore(Core& core) noexcept : core_(core) {}
    BlockStore(const BlockStore&) = delete;
    BlockStore& operator=(const BlockStore&) = delete;
    ~BlockStore();

    /// Makes sure that `count` calls of take() succeed. Throws std::bad_alloc.
    void reserve(std::size_t count);
    [[nodiscard]] std::size_t spares() const noexcept { return spares_; }
    /// Returns a blank descriptor; there must be a spare one.
    Block& take() noexcept;
    void give(Block& block) noexcept;

private:
    using Spares = Stack<Block, &Block::in_bin>;
    static Spares& process_spares() noexcept;
    static std::mutex& process_lock() noexcept;

    Core& core_;
    Spares own_;
    std::size_t spares_ = 0;

    friend class Registry;
};

}  // namespace cistern
