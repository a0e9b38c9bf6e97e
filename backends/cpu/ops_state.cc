// state_append: writes fresh rows to their positions in the ring buffers of the slots.
#include <algorithm>
#include <cstring>

#include "backends/cpu/op_rows.h"

namespace rullama::cpu {
namespace {

class StateAppendNode final : public Node {
 public:
  explicit StateAppendNode(const CompileContext& context)
      : state_(context.Result()),
        rows_(context.Input(operands::StateAppend::rows)),
        pos_(context.Input(operands::StateAppend::pos)),
        slot_(context.Input(operands::StateAppend::slot)) {}
  // One item: rows of a long chunk may overwrite each other, and a copy is limited by memory
  // bandwidth anyway.
  [[nodiscard]] int64_t Items(const Step& step) const override {
    return rows_.Rows(step) > 0 ? 1 : 0;
  }
  void Run(const Step& step, int /*worker*/, int64_t /*begin*/, int64_t /*end*/) override {
    const int64_t slots = state_.Dim(0, step);
    const int64_t capacity = state_.Dim(1, step);
    const int64_t count = rows_.Rows(step);
    const auto bytes =
        static_cast<size_t>(RowBytes(rows_.dtype, static_cast<uint64_t>(rows_.RowElements(step))));
    const auto* pos = pos_.as<const int32_t>();
    const auto* slot = slot_.as<const int32_t>();
    for (int64_t i = 0; i < count; ++i) {
      if (slot[i] < 0 || slot[i] >= slots || pos[i] < 0) {
        Fail("state_append: slot " + std::to_string(slot[i]) + ", position " +
             std::to_string(pos[i]) + " is outside the state of " + std::to_string(slots) +
             " slots");
        return;
      }
      // Rows are written in ascending order, so the latest row of a ring position remains.
      const int64_t at = slot[i] * capacity + pos[i] % capacity;
      std::memcpy(state_.data + static_cast<size_t>(at) * bytes,
                  rows_.data + static_cast<size_t>(i) * bytes, bytes);
    }
  }

 private:
  View state_, rows_, pos_, slot_;
};

}  // namespace

const OpRow rows::kStateAppend = {RL_OP_state_append, nullptr, AddNode<StateAppendNode>};

}  // namespace rullama::cpu
