#pragma once
// A doubly linked list through two pointers of its elements, and a stack: no allocation, O(1) insert and remove.

#include <utility>

namespace cistern {

template <class T>
struct Links {
    T* previous = nullptr;
    T* next = nullptr;
};

/// A list of T linked through the member `L`. An element is in at most one list per member.
template <class T, Links<T> T::*L>
class List {
public:
    [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
    [[nodiscard]] T* first() const noexcept { return first_; }
    [[nodiscard]] T* last() const noexcept { return last_; }
    [[nodiscard]] static T* after(const T& item) noexcept { return (item.*L).next; }

    void push_front(T& item) noexcept {
        item.*L = {nullptr, first_};
        (first_ != nullptr ? (first_->*L).previous : last_) = &item;
        first_ = &item;
    }
    void push_back(T& item) noexcept {
        item.*L = {last_, nullptr};
        (last_ != nullptr ? (last_->*L).next : first_) = &item;
        last_ = &item;
    }
    /// Inserts before `next`, or at the end if that is null.
    void insert_before(T* next, T& item) noexcept {
        if (next == nullptr) return push_back(item);
        item.*L = {(next->*L).previous, next};
        ((item.*L).previous != nullptr ? ((item.*L).previous->*L).next : first_) = &item;
        (next->*L).previous = &item;
    }
    void remove(T& item) noexcept {
        const Links<T> links = item.*L;
        (links.previous != nullptr ? (links.previous->*L).next : first_) = links.next;
        (links.next != nullptr ? (links.next->*L).previous : last_) = links.previous;
        item.*L = {};
    }

private:
    T* first_ = nullptr;
    T* last_ = nullptr;
};

/// A stack of T linked through the `next` of member `L`: touches no element but the one that comes or goes.
template <class T, Links<T> T::*L>
class Stack {
public:
    [[nodiscard]] bool empty() const noexcept { return top_ == nullptr; }
    void push(T& item) noexcept { (item.*L).next = std::exchange(top_, &item); }
    T& pop() noexcept {
        T& item = *top_;
        top_ = std::exchange((item.*L).next, nullptr);
        return item;
    }

private:
    T* top_ = nullptr;
};

}  // namespace cistern
