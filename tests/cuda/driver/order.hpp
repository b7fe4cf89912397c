#pragma once
// The order of work. Each stream has a thread that runs its work one piece after the other, each after
// a short random delay now and then: who forgets to wait for something sees it. A piece of work may
// also wait for pieces of other streams; these were launched before it, so nobody waits in a circle.
//
// While a stream is being captured its work becomes nodes of a graph instead.
//
// One lock, order().lock, guards all that is here but the queues of work. Work runs without it.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <unordered_map>
#include <vector>

#include "call.hpp"

namespace stand_in {

/// Becomes true when a piece of work is done.
class Completion {
public:
    void finish();
    void wait();
    [[nodiscard]] bool is_done() const noexcept { return done_; }

private:
    std::mutex lock_;
    std::condition_variable changed_;
    std::atomic<bool> done_{false};
};
using Ticket = std::shared_ptr<Completion>;

struct Work {
    std::function<void()> run;
    std::vector<Ticket> after;
    Ticket done;
};

/// What a user object's references keep alive; the last one to go calls its function.
struct UserObjectState {
    void* data;
    void (*destroy)(void*);
    std::atomic<unsigned long> references;
};

struct Node {
    std::function<void()> run;
    std::vector<std::size_t> after;
};

/// A graph, or an instance of one. Holds references of user objects until it is gone.
struct GraphState {
    std::vector<Node> nodes;
    std::map<std::shared_ptr<UserObjectState>, unsigned long> objects;

    GraphState() = default;
    GraphState(const GraphState& other);
    GraphState& operator=(const GraphState&) = delete;
    ~GraphState();
    /// Runs the nodes, each after those it depends on, in no other order.
    void run(unsigned seed) const;
};

struct Queue;

struct Capture {
    unsigned long long id;
    int mode;
    std::thread::id thread;
    std::shared_ptr<GraphState> graph = std::make_shared<GraphState>();
    Graph handle = nullptr;
    std::shared_ptr<Queue> origin;
    std::vector<std::shared_ptr<Queue>> streams;
    bool valid = true, ended = false;
};

/// A stream.
struct Queue : std::enable_shared_from_this<Queue> {
    Queue(Context in, bool waits_for_legacy, bool is_the_legacy_one);

    const unsigned long long id;
    const Context context;
    const bool blocking;  // waits for the legacy stream, and that one for it
    const bool legacy;

    Ticket last;                          // the work launched last
    std::shared_ptr<Capture> capture;     // while it is captured
    std::vector<std::size_t> frontier{};  // the nodes that its next one depends on

    void push(Work work);
    void wait_for_room();
    /// Lets the thread end once all work is done.
    void retire();

private:
    void serve();

    std::mutex lock_;
    std::condition_variable changed_, shorter_;
    std::deque<Work> work_;
    bool started_ = false, retired_ = false;
};

struct EventState {
    Context context;
    std::vector<Ticket> tickets;
    std::shared_ptr<Capture> capture;  // if it was last recorded in one
    std::vector<std::size_t> nodes;
};

struct Order {
    std::mutex lock;
    std::uintptr_t next_handle = 0x1000;
    unsigned long long next_id = 1;
    std::unordered_map<Stream, std::shared_ptr<Queue>> streams;  // those with handles of their own
    std::vector<Stream> free_handles;
    bool reuse_streams = environment("TEST_CUDA_REUSE_STREAMS", 0) != 0;
    std::vector<std::shared_ptr<Queue>> queues;  // all, and those destroyed that still have work
    std::unordered_map<Event, EventState> events;
    std::vector<std::shared_ptr<Capture>> captures;  // going on
    std::unordered_map<Graph, std::shared_ptr<GraphState>> graphs;
    std::unordered_map<UserObject, std::shared_ptr<UserObjectState>> objects;
    std::map<Context, std::shared_ptr<Queue>> legacy;

    template <class Handle>
    Handle new_handle() {
        return reinterpret_cast<Handle>(next_handle += 16);
    }
};
Order& order();

// These want order().lock held.
/// The stream of a handle, the default ones included. A destroyed one ends the process: the real
/// driver would crash, or worse.
std::shared_ptr<Queue> queue_of(Stream stream);
/// All of a context's streams that may have work.
std::vector<std::shared_ptr<Queue>> queues_of(Context context);
void invalidate(Capture& capture);
/// Ends one without a graph.
void abandon(Capture& capture);
/// Adds work to a stream, or to the graph it is captured into; then `done` stays as it is.
Result launch(Queue& queue, std::function<void()> run, Ticket* done = nullptr,
              std::vector<Ticket> after = {});

// These do not.
/// Drops references; the last one's function is called from a thread of its own.
void drop(UserObjectState& object, unsigned long count);
Result launch(Stream stream, std::function<void()> run, Ticket* done = nullptr);
/// Waits for all that was launched in a context.
void wait_for(Context context);

}  // namespace stand_in
