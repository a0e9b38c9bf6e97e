#include "engine/scheduling/row_adapter_inputs.h"

#include <algorithm>
#include <cstddef>

#include "core/base/check.h"
#include "core/ir/adapter_names.h"

namespace rullama {

Status RowAdapterInputs::Set(Session& session, std::span<const AdaptersInForce* const> rows,
                             int64_t places, StepLane lane) {
  const auto all = graphs_.sizes.size() * static_cast<size_t>(places);
  ids_.resize(std::max(ids_.size(), all));
  factors_.resize(std::max(factors_.size(), all));
  for (size_t i = 0; i < all; ++i) {
    ids_[i].assign(rows.size(), 0);
    factors_[i].assign(rows.size(), 0);
  }
  std::vector<int64_t> used(graphs_.sizes.size());
  for (size_t row = 0; row < rows.size(); ++row) {
    if (rows[row] == nullptr) continue;
    std::ranges::fill(used, 0);
    for (const auto& [id, scale] : rows[row]->scales) {
      const auto [group, number] = graphs_.seats[static_cast<size_t>(id)];
      const int64_t place = used[static_cast<size_t>(group)]++;
      RL_CHECK(place < places);
      const auto at = static_cast<size_t>(group * places + place);
      ids_[at][row] = number;
      factors_[at][row] = static_cast<float>(scale);
    }
  }
  for (int64_t group = 0; group < std::ssize(graphs_.sizes); ++group) {
    // A group that has fewer adapters has fewer places.
    const int64_t of_group = std::min(places, graphs_.sizes[static_cast<size_t>(group)]);
    for (int64_t place = 0; place < of_group; ++place) {
      const auto at = static_cast<size_t>(group * places + place);
      RL_RETURN_IF_ERROR(session.SetInput(adapter_names::Id(group, place),
                                          std::as_bytes(std::span(ids_[at])), lane));
      RL_RETURN_IF_ERROR(session.SetInput(adapter_names::Factor(group, place),
                                          std::as_bytes(std::span(factors_[at])), lane));
    }
  }
  return OkStatus();
}

}  // namespace rullama
