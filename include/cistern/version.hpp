#pragma once
// The version of the headers; cistern::version() is that of the library actually linked.

#define CISTERN_VERSION_MAJOR 0
#define CISTERN_VERSION_MINOR 1
#define CISTERN_VERSION_PATCH 0

namespace [[gnu::visibility("default")]] cistern {

/// Returns the version of the linked library, as "major.minor.patch".
const char* version() noexcept;

}  // namespace cistern
