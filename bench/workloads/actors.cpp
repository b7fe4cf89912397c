#include "actors.hpp"

#include <array>
#include <barrier>
#include <cstddef>
#include <deque>
#include <iterator>
#include <limits>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <typeindex>
#include <typeinfo>
#include <utility>

#include "cistern/pool.hpp"
#include "cistern/presets.hpp"
#include "meter.hpp"

namespace cistern::workloads {

namespace {

constexpr std::size_t batches_per_step = 64;
constexpr std::size_t mailbox_length = 4;
constexpr std::size_t batches_in_flight = 2 * mailbox_length + 2;  // and one that is being drawn

/// A batch is `images` × `pixels` floats; it becomes `images` × pixels / 4 doubles.
struct Size {
    std::size_t most_images, pixels;
};

Size size_of(Scale scale) {
    switch (scale) {
        case Scale::small:
            return {8, 256};
        case Scale::medium:
            return {32, 65'536};
        case Scale::recorded:
            break;
    }
    return {64, 262'144};
}

/// Returns how many images batch `index` has: any number from 1 to `most`, in no order.
std::size_t images_in(std::uint64_t index, std::size_t most) {
    std::uint64_t bits = (index + 1) * 0x9e3779b97f4a7c15U;
    bits = (bits ^ (bits >> 31)) * 0xbf58476d1ce4e5b9U;
    return 1 + (bits >> 33) % most;
}

class MallocBuffers {
public:
    template <class T>
    using Array = std::unique_ptr<T[]>;

    template <class T>
    Array<T> take(std::size_t rows, std::size_t columns) {
        return std::make_unique_for_overwrite<T[]>(rows * columns);
    }
    template <class T>
    static T* data(const Array<T>& array) {
        return array.get();
    }
    void count(Report&) const {}
};

class CisternBuffers {
public:
    template <class T>
    using Array = cistern::Array<T, 2>;

    template <class T>
    Array<T> take(std::size_t rows, std::size_t columns) {
        return pool_.array<T>(rows, columns);
    }
    template <class T>
    static T* data(const Array<T>& array) {
        return array.data();
    }
    void count(Report& report) const { report.hits = pool_.stats().hits; }

private:
    Pool pool_{Memory::host(), presets::unified()};
};

/// The seed's rule: idle buffers in the order of their release, under a mutex; the newest of the same
/// shape, type and kind of memory serves.
class SeedBuffers {
    struct Key {
        std::array<std::size_t, 2> shape;
        std::type_index type;
        bool pinned;
        bool operator==(const Key&) const = default;
    };
    struct Stored {
        Key key;
        std::unique_ptr<std::byte[]> data;
    };

public:
    /// Goes back to its pool at the end of its life.
    template <class T>
    class Array {
    public:
        Array() = default;
        Array(SeedBuffers& pool, Stored stored) : pool_(&pool), stored_(std::move(stored)) {}
        Array(Array&& other) noexcept
            : pool_(std::exchange(other.pool_, nullptr)), stored_(std::move(other.stored_)) {}
        Array& operator=(Array&& other) noexcept {
            std::swap(pool_, other.pool_);
            std::swap(stored_, other.stored_);
            return *this;
        }
        ~Array() {
            if (pool_ != nullptr) pool_->give(std::move(*stored_));
        }
        [[nodiscard]] T* data() const { return reinterpret_cast<T*>(stored_->data.get()); }

    private:
        SeedBuffers* pool_ = nullptr;
        std::optional<Stored> stored_;
    };

    template <class T>
    Array<T> take(std::size_t rows, std::size_t columns) {
        const Key key{{rows, columns}, typeid(T), false};
        {
            const std::lock_guard lock(mutex_);
            for (auto stored = idle_.rbegin(); stored != idle_.rend(); ++stored) {
                if (stored->key != key) continue;
                Stored found = std::move(*stored);
                idle_.erase(std::next(stored).base());
                ++hits_;
                return {*this, std::move(found)};
            }
        }
        return {*this,
                {key, std::make_unique_for_overwrite<std::byte[]>(rows * columns * sizeof(T))}};
    }
    template <class T>
    static T* data(const Array<T>& array) {
        return array.data();
    }
    void count(Report& report) const { report.hits = hits_; }

private:
    static constexpr std::size_t max_idle_buffers = 100;

    void give(Stored stored) {
        const std::lock_guard lock(mutex_);
        idle_.push_back(std::move(stored));
        if (idle_.size() > max_idle_buffers) idle_.pop_front();
    }

    std::mutex mutex_;
    std::list<Stored> idle_;
    std::uint64_t hits_ = 0;
};

template <class Message>
Message pop(std::deque<Message>& mailbox) {
    Message message = std::move(mailbox.front());
    mailbox.pop_front();
    return message;
}

void draw(float* pixels, std::size_t count, std::uint64_t index) {
    const auto phase = static_cast<float>(index % 97);
    for (std::size_t row = 0; row + 256 <= count; row += 256) {
        for (std::size_t i = 0; i < 256; ++i)
            pixels[row + i] = 0.01F * static_cast<float>(i) + phase;
    }
}

/// Four neighbouring pixels become one feature.
void extract(const float* pixels, double* features, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        const float* const four = pixels + 4 * i;
        features[i] = static_cast<double>((four[0] + four[1]) * (four[2] - 0.5F * four[3]));
    }
}

double energy(const double* features, std::size_t count) {
    std::array<double, 4> sums = {};
    for (std::size_t i = 0; i + 4 <= count; i += 4) {
        for (std::size_t lane = 0; lane < 4; ++lane) {
            sums[lane] += features[i + lane] * features[i + lane];
        }
    }
    return sums[0] + sums[1] + sums[2] + sums[3];
}

/// The actors go on in ticks. In the first half of a tick each takes a message and asks for the array
/// that it will write; in the second it works, passes the array on, and gives back the one it read.
/// A message waits `mailbox_length` ticks in a mailbox, and so `batches_in_flight` are on their way
/// whenever the producer starts another, however fast the threads are.
template <class Buffers>
Report measure(const Size& size, const Budget& budget) {
    using Pixels = typename Buffers::template Array<float>;
    using Features = typename Buffers::template Array<double>;
    struct Batch {
        std::size_t images;
        Pixels pixels;
    };
    struct Extracted {
        std::size_t images;
        Features features;
    };
    constexpr std::uint64_t until_extracted = mailbox_length + 1,
                            until_consumed = 2 * until_extracted;
    const std::size_t pixels = size.pixels, features = size.pixels / 4;
    double checksum = 0;

    Meter meter(budget, batches_in_flight * size.most_images * pixels * sizeof(float));
    Buffers buffers;
    std::deque<Batch> batches;  // filled in second halves of ticks, emptied in first ones
    std::deque<Extracted> results;
    std::uint64_t last_tick = std::numeric_limits<std::uint64_t>::max();
    std::barrier half(3);

    const auto transform = [&] {
        for (std::uint64_t tick = 0; tick <= last_tick; ++tick) {
            const bool waits = tick < until_extracted || batches.empty();
            std::optional<Batch> batch;
            Features out;
            if (!waits) {
                batch = pop(batches);
                meter.live.add(batch->images * features * sizeof(double));
                out = buffers.template take<double>(batch->images, features);
            }
            half.arrive_and_wait();
            if (!waits) {
                const std::size_t images = batch->images;
                extract(Buffers::data(batch->pixels), Buffers::data(out), images * features);
                results.push_back({images, std::move(out)});
                batch.reset();
                meter.live.remove(images * pixels * sizeof(float));
            }
            half.arrive_and_wait();
        }
    };
    const auto consume = [&] {
        for (std::uint64_t tick = 0; tick <= last_tick; ++tick) {
            const bool waits = tick < until_consumed || results.empty();
            std::optional<Extracted> result;
            if (!waits) result = pop(results);
            half.arrive_and_wait();
            if (!waits) {
                const std::size_t images = result->images;
                checksum += energy(Buffers::data(result->features), images * features);
                result.reset();
                meter.live.remove(images * features * sizeof(double));
            }
            half.arrive_and_wait();
        }
    };
    const auto produce = [&] {
        bool more = true;
        for (std::uint64_t tick = 0; tick <= last_tick; ++tick) {
            const std::size_t images = images_in(tick, size.most_images);
            Pixels drawn;
            if (more) {
                meter.live.add(images * pixels * sizeof(float));
                drawn = buffers.template take<float>(images, pixels);
            }
            half.arrive_and_wait();
            if (more) {
                draw(Buffers::data(drawn), images * pixels, tick);
                batches.push_back({images, std::move(drawn)});
                if ((tick + 1) % batches_per_step == 0 && !meter.more()) {
                    more = false;
                    last_tick = tick + until_consumed;
                }
            }
            half.arrive_and_wait();
        }
    };
    {
        const std::jthread transformer(transform), consumer(consume);
        produce();
    }
    Report report = meter.report(checksum);
    buffers.count(report);
    return report;
}

}  // namespace

Report run_actors(Store store, Scale scale, const Budget& budget) {
    const Size size = size_of(scale);
    switch (store) {
        case Store::cistern:
            return measure<CisternBuffers>(size, budget);
        case Store::malloc:
            return measure<MallocBuffers>(size, budget);
        case Store::seed:
            break;
    }
    return measure<SeedBuffers>(size, budget);
}

}  // namespace cistern::workloads
