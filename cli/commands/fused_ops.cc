#include "cli/commands/fused_ops.h"

#include <map>

namespace rullama::cli {

void DispatchRecorder::OnOp(const SegmentRun& run, const OpTime& time) {
  backend_ = run.device_name;
  if (parts_.empty() || parts_.back().graph != &run.graph) {
    parts_.push_back({&run.graph, run.device, std::vector(run.graph.ops.size(), kUnseen)});
    dispatches_.clear();
  }
  const auto [at, is_new] =
      dispatches_.try_emplace(std::vector(time.ops.begin(), time.ops.end()), next_);
  if (is_new) ++next_;
  for (const uint32_t op : time.ops) {
    // An op of several dispatches has the colour of the first.
    size_t& dispatch = parts_.back().dispatch_of_op[op];
    if (dispatch == kUnseen) dispatch = at->second;
  }
}

Result<std::vector<DrawnPart>> DispatchRecorder::Parts() const {
  bool fuses = false;
  std::vector<DrawnPart> parts = parts_;
  size_t unseen = next_;
  for (DrawnPart& part : parts) {
    std::map<size_t, size_t> ops;
    for (size_t& dispatch : part.dispatch_of_op) {
      if (dispatch == kUnseen) dispatch = unseen++;
      fuses = fuses || ++ops[dispatch] > 1;
    }
  }
  if (fuses) return parts;
  return MakeError(ErrorKind::kUsage, "graph.not_fused",
                   "backend '{}' runs every op by itself or does not tell when its ops run: leave "
                   "out --fused to see the ops that it gets",
                   backend_);
}

}  // namespace rullama::cli
