// Names of the inputs by which the rows of a step choose their adapters (core/passes/adapt.h).
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace rullama::adapter_names {

// i32[T, 1]: the adapter that each row has in a place of a group.
inline std::string Id(int64_t group, int64_t place) {
  return fmt::format("adapters.{}.{}.id", group, place);
}
// f32[T, 1, 1]: its factor. A row without an adapter in this place has any id and the factor 0.
inline std::string Factor(int64_t group, int64_t place) {
  return fmt::format("adapters.{}.{}.factor", group, place);
}

}  // namespace rullama::adapter_names
