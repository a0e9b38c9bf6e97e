#include "engine/scheduling/row_adapter_inputs.h"

#include <algorithm>
#include <cstddef>

#include "core/base/check.h"
#include "core/ir/adapter_names.h"

namespace rullama {

Status RowAdapterInputs::Set(Session& session, std::span<const AdaptersInForce* const> rows,
                             int64_t places, StepLane lane) {
  for (int64_t group = 0; group < std::ssize(graphs_.sizes); ++group) {
    // A group that has fewer adapters has fewer places.
    const int64_t of_group = std::min(places, graphs_.sizes[static_cast<size_t>(group)]);
    FillIn(rows, group, static_cast<size_t>(of_group));
    RL_RETURN_IF_ERROR(
        session.SetInput(adapter_names::Ids(group), std::as_bytes(std::span(ids_)), lane));
    RL_RETURN_IF_ERROR(
        session.SetInput(adapter_names::Factors(group), std::as_bytes(std::span(factors_)), lane));
  }
  return OkStatus();
}

void RowAdapterInputs::FillIn(std::span<const AdaptersInForce* const> rows, int64_t group,
                              size_t places) {
  ids_.assign(rows.size() * places, 0);
  factors_.assign(rows.size() * places, 0);
  for (size_t row = 0; row < rows.size(); ++row) {
    if (rows[row] == nullptr) continue;
    size_t used = 0;
    for (const auto& [id, scale] : rows[row]->scales) {
      const auto [of_group, number] = graphs_.seats[static_cast<size_t>(id)];
      if (of_group != group) continue;
      RL_CHECK(used < places);
      const size_t at = row * places + used++;
      ids_[at] = number;
      factors_[at] = static_cast<float>(scale);
    }
  }
}

}  // namespace rullama
