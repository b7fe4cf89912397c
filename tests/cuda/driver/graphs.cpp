// Capture of streams into graphs, their launch, and the user objects that graphs keep.

#include <algorithm>

#include "order.hpp"

namespace stand_in {

namespace {

enum Mode { global = 0, thread_local_mode = 1, relaxed = 2 };

thread_local int thread_mode = global;

void forget(Capture& capture) {
    capture.ended = true;
    for (const auto& queue : capture.streams) {
        queue->capture = nullptr;
        queue->frontier.clear();
    }
    capture.streams.clear();
    std::erase_if(order().captures, [&](const auto& other) { return other.get() == &capture; });
}

/// Whether all of a capture's streams have come together again in the first.
bool is_joined(const Capture& capture) {
    std::vector<bool> reached(capture.graph->nodes.size());
    std::vector<std::size_t> next = capture.origin->frontier;
    while (!next.empty()) {
        const std::size_t node = next.back();
        next.pop_back();
        if (reached[node]) continue;
        reached[node] = true;
        const auto& after = capture.graph->nodes[node].after;
        next.insert(next.end(), after.begin(), after.end());
    }
    return std::ranges::all_of(capture.streams, [&](const auto& queue) {
        return std::ranges::all_of(queue->frontier,
                                   [&](std::size_t node) { return reached[node]; });
    });
}

std::shared_ptr<GraphState> graph_of(Graph graph) {
    const auto found = order().graphs.find(graph);
    return found != order().graphs.end() ? found->second : nullptr;
}

Result destroy(Graph graph) {
    const std::scoped_lock hold(order().lock);
    return order().graphs.erase(graph) == 1 ? success : Result{invalid_value};
}

}  // namespace

GraphState::GraphState(const GraphState& other) : nodes(other.nodes), objects(other.objects) {
    for (auto& [object, count] : objects) object->references += count = 1;
}

GraphState::~GraphState() {
    for (auto& [object, count] : objects) drop(*object, count);
}

void GraphState::run(unsigned seed) const {
    std::minstd_rand random(seed);
    std::vector<bool> done(nodes.size());
    for (std::size_t left = nodes.size(); left > 0; --left) {
        std::vector<std::size_t> ready;
        for (std::size_t i = 0; i < nodes.size(); ++i) {
            const auto& after = nodes[i].after;
            if (!done[i] && std::ranges::all_of(after, [&](auto node) { return done[node]; })) {
                ready.push_back(i);
            }
        }
        const std::size_t chosen = ready[random() % ready.size()];
        if (nodes[chosen].run && !is_poisoned()) nodes[chosen].run();
        done[chosen] = true;
    }
}

void drop(UserObjectState& object, unsigned long count) {
    const unsigned long before = object.references.fetch_sub(count);
    if (before < count) stop("more references of a user object released than there are");
    if (before > count) return;
    std::thread([destroy = object.destroy, data = object.data] {
        const InCallback inside;
        destroy(data);
    }).detach();
}

void invalidate(Capture& capture) { capture.valid = false; }

void abandon(Capture& capture) {
    const std::shared_ptr<Capture> kept = capture.origin->capture;  // its streams forget it
    forget(capture);
    capture.graph = nullptr;
    order().graphs.erase(capture.handle);
}

bool disturbs_a_capture() {
    if (thread_mode == relaxed) return false;
    const std::scoped_lock hold(order().lock);
    bool disturbs = false;
    for (const auto& capture : order().captures) {
        const bool mine = capture->thread == std::this_thread::get_id();
        if (mine ? capture->mode == relaxed : thread_mode != global || capture->mode != global) {
            continue;
        }
        invalidate(*capture);
        disturbs = true;
    }
    return disturbs;
}

}  // namespace stand_in

using namespace stand_in;

STAND_IN_EXPORT Result cuThreadExchangeStreamCaptureMode(int* mode) {
    return call("cuThreadExchangeStreamCaptureMode", start, [&] {
        if (*mode < global || *mode > relaxed) return Result{invalid_value};
        std::swap(*mode, thread_mode);
        return success;
    });
}

STAND_IN_EXPORT Result cuStreamBeginCapture_v2(Stream stream, int mode) {
    return call("cuStreamBeginCapture_v2", context, [&] {
        if (mode < global || mode > relaxed) return Result{invalid_value};
        const std::scoped_lock hold(order().lock);
        const auto queue = queue_of(stream);
        if (queue->legacy) return Result{capture_unsupported};
        if (queue->capture != nullptr) return Result{illegal_state};
        queue->capture = std::make_shared<Capture>();
        Capture& capture = *queue->capture;
        capture.id = order().next_id++;
        capture.mode = mode;
        capture.thread = std::this_thread::get_id();
        capture.handle = order().new_handle<Graph>();
        capture.origin = queue;
        capture.streams = {queue};
        order().graphs[capture.handle] = capture.graph;
        order().captures.push_back(queue->capture);
        return success;
    });
}

STAND_IN_EXPORT Result cuStreamEndCapture(Stream stream, Graph* graph) {
    return call("cuStreamEndCapture", context, [&] {
        *graph = nullptr;
        const std::scoped_lock hold(order().lock);
        const auto queue = queue_of(stream);
        const auto capture = queue->capture;
        if (capture == nullptr) return Result{illegal_state};
        if (capture->origin != queue) {
            invalidate(*capture);
            return Result{capture_unmatched};
        }
        if (capture->mode != relaxed && capture->thread != std::this_thread::get_id()) {
            invalidate(*capture);
            return Result{capture_wrong_thread};
        }
        const bool joined = is_joined(*capture);
        forget(*capture);
        capture->graph = nullptr;
        if (!capture->valid || !joined) {
            order().graphs.erase(capture->handle);
            return capture->valid ? Result{capture_unjoined} : Result{capture_invalidated};
        }
        *graph = capture->handle;
        return success;
    });
}

STAND_IN_EXPORT Result cuStreamGetCaptureInfo_v2(Stream stream, int* status, unsigned long long* id,
                                                 Graph* graph, const void** nodes,
                                                 std::size_t* count) {
    return call("cuStreamGetCaptureInfo_v2", context, [&] {
        const std::scoped_lock hold(order().lock);
        const auto queue = queue_of(stream);
        if (queue->legacy) {
            for (const auto& other : queues_of(queue->context)) {
                if (other->blocking && other->capture != nullptr) return Result{capture_implicit};
            }
        }
        const Capture* const capture = queue->capture.get();
        *status = capture == nullptr ? 0 : capture->valid ? 1 : 2;
        if (*status != 1) return success;
        if (id != nullptr) *id = capture->id;
        if (graph != nullptr) *graph = capture->handle;
        if (nodes != nullptr) *nodes = nullptr;
        if (count != nullptr) *count = queue->frontier.size();
        return success;
    });
}

// An instance is a graph whose nodes nobody changes any more.
STAND_IN_EXPORT Result cuGraphInstantiateWithFlags(Graph* instance, Graph graph,
                                                   unsigned long long) {
    return call("cuGraphInstantiateWithFlags", context, [&] {
        const std::scoped_lock hold(order().lock);
        const auto state = graph_of(graph);
        if (state == nullptr) return Result{invalid_value};
        *instance = order().new_handle<Graph>();
        order().graphs[*instance] = std::make_shared<GraphState>(*state);
        return success;
    });
}

STAND_IN_EXPORT Result cuGraphLaunch(Graph instance, Stream stream) {
    return call("cuGraphLaunch", context, [&] {
        const std::scoped_lock hold(order().lock);
        const auto state = graph_of(instance);
        if (state == nullptr) return Result{invalid_value};
        const auto seed = static_cast<unsigned>(order().next_id++);
        return launch(*queue_of(stream), [state, seed] { state->run(seed); });
    });
}

STAND_IN_EXPORT Result cuGraphDestroy(Graph graph) {
    return call("cuGraphDestroy", device, [&] { return destroy(graph); });
}

STAND_IN_EXPORT Result cuGraphExecDestroy(Graph instance) {
    return call("cuGraphExecDestroy", device, [&] { return destroy(instance); });
}

STAND_IN_EXPORT Result cuUserObjectCreate(UserObject* object, void* data, void (*destroy)(void*),
                                          unsigned count, unsigned flags) {
    return call("cuUserObjectCreate", start, [&] {
        if (destroy == nullptr || count == 0 || flags != 1) return Result{invalid_value};
        const std::scoped_lock hold(order().lock);
        *object = order().new_handle<UserObject>();
        order().objects[*object] =
            std::shared_ptr<UserObjectState>(new UserObjectState{data, destroy, count});
        return success;
    });
}

STAND_IN_EXPORT Result cuGraphRetainUserObject(Graph graph, UserObject object, unsigned count,
                                               unsigned flags) {
    return call("cuGraphRetainUserObject", start, [&] {
        const std::scoped_lock hold(order().lock);
        const auto state = graph_of(graph);
        const auto found = order().objects.find(object);
        if (state == nullptr || found == order().objects.end() || count == 0 || flags > 1) {
            return Result{invalid_value};
        }
        state->objects[found->second] += count;
        const bool moved = flags == 1;  // the caller's references become the graph's
        if (!moved) found->second->references += count;
        return success;
    });
}
