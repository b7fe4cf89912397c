#include "actors.hpp"

#include <array>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <iterator>
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

constexpr std::size_t queue_length = 4, batches_per_step = 64;

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

/// A queue of bounded length; nullopt says that nothing follows.
template <class Message>
class Queue {
public:
    void push(std::optional<Message> message) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return messages_.size() < queue_length; });
        messages_.push_back(std::move(message));
        changed_.notify_all();
    }
    std::optional<Message> pop() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return !messages_.empty(); });
        std::optional<Message> message = std::move(messages_.front());
        messages_.pop_front();
        changed_.notify_all();
        return message;
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::optional<Message>> messages_;
};

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
    const std::size_t pixels = size.pixels, features = size.pixels / 4;
    double checksum = 0;

    Meter meter(budget, 12 * size.most_images * pixels * sizeof(float));
    Buffers buffers;
    Queue<Batch> batches;
    Queue<Extracted> results;
    {
        const std::jthread transform([&] {
            while (std::optional<Batch> batch = batches.pop()) {
                const std::size_t images = batch->images;
                meter.live.add(images * features * sizeof(double));
                Features out = buffers.template take<double>(images, features);
                extract(Buffers::data(batch->pixels), Buffers::data(out), images * features);
                batch->pixels = Pixels();
                meter.live.remove(images * pixels * sizeof(float));
                results.push(Extracted{images, std::move(out)});
            }
            results.push(std::nullopt);
        });
        const std::jthread consumer([&] {
            while (std::optional<Extracted> result = results.pop()) {
                const std::size_t images = result->images;
                checksum += energy(Buffers::data(result->features), images * features);
                result->features = Features();
                meter.live.remove(images * features * sizeof(double));
            }
        });
        std::uint64_t index = 0;
        do {
            for (std::size_t i = 0; i < batches_per_step; ++i, ++index) {
                const std::size_t images = images_in(index, size.most_images);
                meter.live.add(images * pixels * sizeof(float));
                Pixels drawn = buffers.template take<float>(images, pixels);
                draw(Buffers::data(drawn), images * pixels, index);
                batches.push(Batch{images, std::move(drawn)});
            }
        } while (meter.more());
        batches.push(std::nullopt);
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
