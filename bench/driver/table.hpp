#pragma once
// Tables for people.

#include <string>
#include <vector>

#include "run.hpp"

namespace bench {

/// Prints a group: Cistern beside its reference with the verdicts, then the others on the same work.
void print_group(const GroupResult& group);
/// Prints every promise with its worst line, and how many hold.
void print_summary(const std::vector<GroupResult>& groups);
/// Prints who did not take part and what was tuned.
void print_notes(const Workers& workers);

}  // namespace bench
