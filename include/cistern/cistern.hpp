#pragma once
// Everything, in one include.

#include "cistern/array.hpp"
#include "cistern/buffer.hpp"
#include "cistern/error.hpp"
#include "cistern/keyed.hpp"
#include "cistern/memory.hpp"
#include "cistern/pmr.hpp"
#include "cistern/pool.hpp"
#include "cistern/presets.hpp"
#include "cistern/ranged.hpp"
#include "cistern/scope.hpp"
#include "cistern/shape.hpp"
#include "cistern/stats.hpp"
#include "cistern/stream.hpp"
#include "cistern/unified.hpp"
#include "cistern/vector.hpp"
#include "cistern/version.hpp"
