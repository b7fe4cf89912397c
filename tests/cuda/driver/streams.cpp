#include <algorithm>
#include <chrono>
#include <utility>

#include "order.hpp"

namespace stand_in {

Order& order() {
    static auto* const all = new Order;
    return *all;
}

void Completion::finish() {
    {
        const std::scoped_lock hold(lock_);
        done_ = true;
    }
    changed_.notify_all();
}

void Completion::wait() {
    std::unique_lock hold(lock_);
    changed_.wait(hold, [&] { return done_.load(); });
}

Queue::Queue(Context in, bool waits_for_legacy, bool is_the_legacy_one)
    : id(order().next_id++), context(in), blocking(waits_for_legacy), legacy(is_the_legacy_one) {}

namespace {

constexpr std::size_t most_queued = 1024;
thread_local std::shared_ptr<Queue>* full = nullptr;  // by this call

}  // namespace

void Queue::push(Work work) {
    const std::scoped_lock hold(lock_);
    work_.push_back(std::move(work));
    if (work_.size() >= most_queued && full == nullptr) {
        full = new std::shared_ptr<Queue>(shared_from_this());
    }
    if (!started_) {
        started_ = true;
        std::thread([self = shared_from_this()] { self->serve(); }).detach();
    }
    changed_.notify_one();
}

void Queue::wait_for_room() {
    std::unique_lock hold(lock_);
    shorter_.wait(hold, [&] { return work_.size() < most_queued; });
}

void wait_for_room() {
    if (full == nullptr) return;
    const std::unique_ptr<std::shared_ptr<Queue>> queue(std::exchange(full, nullptr));
    (*queue)->wait_for_room();
}

void Queue::retire() {
    const std::scoped_lock hold(lock_);
    retired_ = true;
    changed_.notify_one();
}

void Queue::serve() {
    static const auto longest = static_cast<unsigned>(environment("TEST_CUDA_DELAY_US", 200));
    std::minstd_rand random(static_cast<unsigned>(id));
    for (;;) {
        Work work;
        {
            std::unique_lock hold(lock_);
            changed_.wait(hold, [&] { return !work_.empty() || retired_; });
            if (work_.empty()) return;
            work = std::move(work_.front());
            work_.pop_front();
            if (work_.size() == most_queued - 1) shorter_.notify_all();
        }
        for (const Ticket& ticket : work.after) ticket->wait();
        if (longest > 0 && random() % 8 == 0) {
            std::this_thread::sleep_for(std::chrono::microseconds(random() % longest));
        }
        if (work.run && !is_poisoned()) work.run();
        work.run = nullptr;
        work.done->finish();
    }
}

namespace {

/// The thread's own default streams, one per context; they end with it. What runs later still, as the
/// thread ends, gets new ones.
using OfThread = std::map<Context, std::shared_ptr<Queue>>;
thread_local OfThread* of_thread = nullptr;
struct EndOfThread {
    ~EndOfThread() {
        if (of_thread == nullptr) return;
        for (auto& [context, queue] : *of_thread) queue->retire();
        delete std::exchange(of_thread, nullptr);
    }
};

std::shared_ptr<Queue> add_queue(Context context, bool blocking, bool legacy = false) {
    auto queue = std::make_shared<Queue>(context, blocking, legacy);
    order().queues.push_back(queue);
    return queue;
}

/// Forgets destroyed streams whose work is done.
void tidy() {
    std::erase_if(order().queues, [](const std::shared_ptr<Queue>& queue) {
        return queue.use_count() == 1 && (queue->last == nullptr || queue->last->is_done());
    });
}

Result record(EventState& event, Queue& queue) {
    if (queue.capture != nullptr) {
        if (!queue.capture->valid) return capture_invalidated;
        event.capture = queue.capture;
        event.nodes = queue.frontier;
        event.tickets.clear();
        return success;
    }
    Ticket done;
    if (const Result result = launch(queue, nullptr, &done); result != success) return result;
    event.tickets = {done};
    event.capture = nullptr;
    return success;
}

/// The stream joins the event's capture, if it is in none.
Result wait_captured(Queue& queue, const EventState& event) {
    if (event.capture->ended) return invalid_value;
    if (!event.capture->valid) return capture_invalidated;
    if (queue.legacy) {
        invalidate(*event.capture);
        return capture_implicit;
    }
    if (queue.capture == nullptr) {
        queue.capture = event.capture;
        queue.capture->streams.push_back(queue.shared_from_this());
        queue.frontier.clear();
    }
    if (queue.capture != event.capture) {
        invalidate(*queue.capture);
        invalidate(*event.capture);
        return capture_merge;
    }
    for (const std::size_t node : event.nodes) {
        if (std::ranges::count(queue.frontier, node) == 0) queue.frontier.push_back(node);
    }
    return success;
}

/// Invalidates all captures of a context; returns whether there were any.
bool end_captures_of(Context context) {
    bool any = false;
    for (const auto& queue : queues_of(context)) {
        if (queue->capture == nullptr) continue;
        invalidate(*queue->capture);
        any = true;
    }
    return any;
}

/// Finds an event; null for one that does not exist.
EventState* find(Event event) {
    const auto found = order().events.find(event);
    return found != order().events.end() ? &found->second : nullptr;
}

/// What an event waits for; an error if that cannot be told.
Result tickets_of(Event event, std::vector<Ticket>& tickets) {
    const std::scoped_lock hold(order().lock);
    const EventState* const state = find(event);
    if (state == nullptr) return invalid_handle;
    if (state->capture != nullptr) {  // an event of a capture never happens
        if (state->capture->ended) return invalid_value;
        invalidate(*state->capture);
        return captured_event;
    }
    tickets = state->tickets;
    return success;
}

/// What a stream has to do; an error if that cannot be told.
Result last_of(Stream stream, std::vector<Ticket>& tickets) {
    const std::scoped_lock hold(order().lock);
    const auto queue = queue_of(stream);
    if (queue->capture != nullptr) {
        invalidate(*queue->capture);
        return capture_unsupported;
    }
    Ticket done;
    if (const Result result = launch(*queue, nullptr, &done); result != success) return result;
    tickets = {done};
    return success;
}

bool are_done(const std::vector<Ticket>& tickets) {
    return std::ranges::all_of(tickets, [](const Ticket& ticket) { return ticket->is_done(); });
}

Result wait_all(const std::vector<Ticket>& tickets) {
    for (const Ticket& ticket : tickets) ticket->wait();
    return is_poisoned() ? Result{illegal_address} : success;
}

}  // namespace

std::shared_ptr<Queue> queue_of(Stream stream) {
    if (is_legacy(stream)) {
        auto& queue = order().legacy[current_context()];
        if (queue == nullptr) queue = add_queue(current_context(), false, true);
        return queue;
    }
    if (is_per_thread(stream)) {
        if (of_thread == nullptr) {
            thread_local const EndOfThread end;
            of_thread = new OfThread;
        }
        auto& queue = (*of_thread)[current_context()];
        if (queue == nullptr) queue = add_queue(current_context(), true);
        return queue;
    }
    const auto found = order().streams.find(stream);
    if (found == order().streams.end()) stop("use of a stream that does not exist (any more)");
    return found->second;
}

std::vector<std::shared_ptr<Queue>> queues_of(Context context) {
    std::vector<std::shared_ptr<Queue>> found;
    std::ranges::copy_if(order().queues, std::back_inserter(found),
                         [&](const auto& queue) { return queue->context == context; });
    return found;
}

Result launch(Queue& queue, std::function<void()> run, Ticket* done, std::vector<Ticket> after) {
    if (queue.capture != nullptr) {
        if (!queue.capture->valid) return capture_invalidated;
        std::vector<Node>& nodes = queue.capture->graph->nodes;
        nodes.push_back({std::move(run), queue.frontier});
        queue.frontier = {nodes.size() - 1};
        return success;
    }
    for (const auto& other : queues_of(queue.context)) {
        if (!(queue.legacy && other->blocking) && !(queue.blocking && other->legacy)) continue;
        if (other->capture != nullptr) {
            invalidate(*other->capture);
            return capture_implicit;
        }
        if (other->last != nullptr && !other->last->is_done()) after.push_back(other->last);
    }
    queue.last = std::make_shared<Completion>();
    if (done != nullptr) *done = queue.last;
    queue.push({std::move(run), std::move(after), queue.last});
    return success;
}

Result launch(Stream stream, std::function<void()> run, Ticket* done) {
    const std::scoped_lock hold(order().lock);
    return launch(*queue_of(stream), std::move(run), done);
}

void set_reuse_streams(bool reuse) {
    const std::scoped_lock hold(order().lock);
    order().reuse_streams = reuse;
}

void wait_for(Context context) {
    std::vector<Ticket> tickets;
    {
        const std::scoped_lock hold(order().lock);
        for (const auto& queue : queues_of(context)) {
            if (queue->last != nullptr) tickets.push_back(queue->last);
        }
        tidy();
    }
    for (const Ticket& ticket : tickets) ticket->wait();
}

}  // namespace stand_in

using namespace stand_in;

STAND_IN_EXPORT Result cuStreamCreate(Stream* stream, unsigned flags) {
    return call("cuStreamCreate", context, [&] {
        if (flags > 1) return Result{invalid_value};
        const std::scoped_lock hold(order().lock);
        if (order().reuse_streams && !order().free_handles.empty()) {
            *stream = order().free_handles.back();
            order().free_handles.pop_back();
        } else {
            *stream = order().new_handle<Stream>();
        }
        order().streams[*stream] = add_queue(current_context(), flags == 0);
        return success;
    });
}

STAND_IN_EXPORT Result cuStreamDestroy_v2(Stream stream) {
    return call("cuStreamDestroy_v2", device, [&] {
        if (is_legacy(stream) || is_per_thread(stream)) return Result{invalid_value};
        const std::scoped_lock hold(order().lock);
        const auto queue = queue_of(stream);
        if (queue->capture != nullptr) {
            invalidate(*queue->capture);
            if (queue->capture->origin == queue) abandon(*queue->capture);
        }
        queue->retire();
        order().streams.erase(stream);
        order().free_handles.push_back(stream);
        tidy();
        return success;
    });
}

STAND_IN_EXPORT Result cuStreamGetId(Stream stream, unsigned long long* id) {
    return call("cuStreamGetId", context, [&] {
        const std::scoped_lock hold(order().lock);
        const auto queue = queue_of(stream);
        if (queue->capture != nullptr) {
            invalidate(*queue->capture);
            return Result{capture_unsupported};
        }
        *id = queue->id;
        return success;
    });
}

STAND_IN_EXPORT Result cuStreamGetCtx(Stream stream, Context* of_stream) {
    return call("cuStreamGetCtx", context, [&] {
        const std::scoped_lock hold(order().lock);
        const auto queue = queue_of(stream);
        *of_stream = queue->context;
        return success;
    });
}

STAND_IN_EXPORT Result cuStreamQuery(Stream stream) {
    return call("cuStreamQuery", context | no_capture, [&] {
        const std::scoped_lock hold(order().lock);
        const auto queue = queue_of(stream);
        if (queue->capture != nullptr) {
            invalidate(*queue->capture);
            return Result{capture_unsupported};
        }
        return queue->last == nullptr || queue->last->is_done() ? success : error_not_ready;
    });
}

STAND_IN_EXPORT Result cuStreamSynchronize(Stream stream) {
    return call("cuStreamSynchronize", context | no_capture, [&] {
        std::vector<Ticket> tickets;
        const Result result = last_of(stream, tickets);
        return result == success ? wait_all(tickets) : result;
    });
}

STAND_IN_EXPORT Result cuCtxSynchronize() {
    return call("cuCtxSynchronize", context, [&] {
        {
            const std::scoped_lock hold(order().lock);
            if (end_captures_of(current_context())) return Result{capture_unsupported};
        }
        wait_for(current_context());
        return is_poisoned() ? Result{illegal_address} : success;
    });
}

STAND_IN_EXPORT Result cuLaunchHostFunc(Stream stream, void (*function)(void*), void* data) {
    return call("cuLaunchHostFunc", context, [&] {
        return launch(stream, [=] {
            const InCallback inside;
            function(data);
        });
    });
}

STAND_IN_EXPORT Result cuEventCreate(Event* event, unsigned flags) {
    return call("cuEventCreate", context, [&] {
        if (flags > 7) return Result{invalid_value};
        const std::scoped_lock hold(order().lock);
        *event = order().new_handle<Event>();
        order().events[*event] = {current_context(), {}, nullptr, {}};
        return success;
    });
}

STAND_IN_EXPORT Result cuEventDestroy_v2(Event event) {
    return call("cuEventDestroy_v2", device, [&] {
        const std::scoped_lock hold(order().lock);
        return order().events.erase(event) == 1 ? success : Result{invalid_handle};
    });
}

STAND_IN_EXPORT Result cuEventRecord(Event event, Stream stream) {
    return call("cuEventRecord", context, [&] {
        const std::scoped_lock hold(order().lock);
        EventState* const state = find(event);
        const auto queue = queue_of(stream);
        if (state == nullptr || state->context != queue->context) return Result{invalid_handle};
        return record(*state, *queue);
    });
}

STAND_IN_EXPORT Result cuCtxRecordEvent(Context of, Event event) {
    return call("cuCtxRecordEvent", device, [&] {
        const std::scoped_lock hold(order().lock);
        EventState* const state = find(event);
        if (of == nullptr) of = current_context();
        if (state == nullptr || state->context != of) return Result{invalid_handle};
        if (end_captures_of(of)) return Result{capture_unsupported};
        std::vector<Ticket> tickets;
        for (const auto& queue : queues_of(of)) {
            if (queue->last != nullptr) tickets.push_back(queue->last);
        }
        state->tickets = std::move(tickets);
        state->capture = nullptr;
        return success;
    });
}

STAND_IN_EXPORT Result cuEventQuery(Event event) {
    return call("cuEventQuery", device | no_capture, [&] {
        std::vector<Ticket> tickets;
        if (const Result result = tickets_of(event, tickets); result != success) return result;
        return are_done(tickets) ? success : error_not_ready;
    });
}

STAND_IN_EXPORT Result cuEventSynchronize(Event event) {
    return call("cuEventSynchronize", device | no_capture, [&] {
        std::vector<Ticket> tickets;
        const Result result = tickets_of(event, tickets);
        return result == success ? wait_all(tickets) : result;
    });
}

STAND_IN_EXPORT Result cuStreamWaitEvent(Stream stream, Event event, unsigned flags) {
    return call("cuStreamWaitEvent", context, [&] {
        if (flags != 0) return Result{invalid_value};
        const std::scoped_lock hold(order().lock);
        const EventState* const state = find(event);
        if (state == nullptr) return Result{invalid_handle};
        const auto queue = queue_of(stream);
        if (state->capture != nullptr) return wait_captured(*queue, *state);
        if (state->tickets.empty()) return success;  // never recorded
        if (queue->capture != nullptr) {
            invalidate(*queue->capture);
            return Result{capture_isolation};
        }
        return launch(*queue, nullptr, nullptr, state->tickets);
    });
}
