#include "backends/cpu/op_times.h"

#include <algorithm>
#include <numeric>

namespace rullama::cpu {

OpTimes::OpTimes(uint32_t ops, size_t nodes, int workers)
    : ops_(ops),
      records_(nodes * static_cast<size_t>(workers)),
      workers_(static_cast<size_t>(workers)) {
  std::iota(ops_.begin(), ops_.end(), uint32_t{0});
  for (size_t i = 0; i < workers_.size(); ++i) workers_[i].first = i * nodes;
}

void OpTimes::Start() {
  for (Worker& worker : workers_) worker.count = 0;
  is_gathered_ = false;
}

std::span<const rl_op_time> OpTimes::Gather() {
  if (!is_gathered_) {
    gathered_ = 0;
    for (const Worker& worker : workers_) {
      const auto from = records_.begin() + static_cast<std::ptrdiff_t>(worker.first);
      const auto to = records_.begin() + static_cast<std::ptrdiff_t>(gathered_);
      std::copy_n(from, worker.count, to);  // `to` is not after `from`
      gathered_ += worker.count;
    }
    is_gathered_ = true;
  }
  return std::span(records_).first(gathered_);
}

}  // namespace rullama::cpu
