#pragma once
// A memory barrier that one thread imposes on all others of the process, so that they need none.

namespace cistern {

/// Returns whether impose_barrier() works here.
bool barrier_available() noexcept;
/// Has every running thread execute a full memory barrier before it returns.
void impose_barrier() noexcept;
/// To be called in the child of a fork.
void renew_barrier() noexcept;

}  // namespace cistern
