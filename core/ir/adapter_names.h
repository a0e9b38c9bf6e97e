// Names of the inputs by which the rows of a step choose their adapters (core/passes/adapt.h).
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace rullama::adapter_names {

// i32[T, places]: the adapters of a group that each row has.
inline std::string Ids(int64_t group) { return fmt::format("adapters.{}.ids", group); }
// f32[T, places]: their factors. A place without an adapter has any id of the group and the factor
// 0.
inline std::string Factors(int64_t group) { return fmt::format("adapters.{}.factors", group); }

}  // namespace rullama::adapter_names
