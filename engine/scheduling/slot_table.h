// The content of each slot of a session, and the choice of a slot for a new request.
//
// A prompt is read in chunks that end at its cut points (cut_points.h), whoever reads it. A request
// that reuses the rows of an earlier one up to a cut point therefore runs the same steps as one
// that does not, from the first row that it reads on, and gives the same bytes. Rows of drawn
// tokens met the kernels of a decode step, and the rows read after them are cut elsewhere. Both are
// reused only by requests that ask for it, and only if the prompt continues after all of them.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/adapters_in_force.h"

namespace rullama {

class SlotTable {
 public:
  explicit SlotTable(int64_t slots);

  struct Choice {
    int32_t slot = 0;
    int64_t reused = 0;    // rows of the prompt that the slot holds
    bool goes_on = false;  // `reused` is all that the slot holds, else 0 or a cut point
  };
  // A free slot for this prompt, or nothing: the one that holds most of it, else an empty one, else
  // the one that was used least recently. At least one row of the prompt is left to be read. Only
  // rows of the same space count. `cuts` are those of the prompt; none: nothing is reused.
  // `answers`: rows of drawn tokens may be reused. `only`: the slot to choose; -1: any.
  // `can_return(slot, position)` says whether the session can go back to this position of a slot.
  template <typename CanReturn>
  std::optional<Choice> Choose(std::span<const int32_t> prompt, std::span<const int64_t> cuts,
                               bool answers, const PromptSpace& space, const CanReturn& can_return,
                               int32_t only = -1) const {
    std::optional<Choice> best;
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].busy) continue;
      const auto slot = static_cast<int32_t>(i);
      if (only >= 0 && slot != only) continue;
      Choice choice{slot, 0};
      const bool own = slots_[i].space == space;
      const int64_t common = own ? CommonRows(slots_[i], prompt) : 0;
      for (const int64_t cut : cuts) {
        if (cut <= common && can_return(slot, cut)) choice.reused = cut;
      }
      const int64_t held = std::ssize(slots_[i].tokens);
      if (own && answers && held > choice.reused && GoesOn(slots_[i], prompt) &&
          can_return(slot, held)) {
        choice = {.slot = slot, .reused = held, .goes_on = true};
      }
      if (!best || Suits(choice, *best)) best = choice;
    }
    return best;
  }

  [[nodiscard]] int64_t free_slots() const;
  [[nodiscard]] bool busy(int32_t slot) const { return slots_[static_cast<size_t>(slot)].busy; }
  [[nodiscard]] const PromptSpace& space(int32_t slot) const {
    return slots_[static_cast<size_t>(slot)].space;
  }
  // The first rows of a slot, which were read in chunks that end at cut points.
  [[nodiscard]] int64_t chunked(int32_t slot) const {
    return static_cast<int64_t>(slots_[static_cast<size_t>(slot)].chunked);
  }
  // The tokens of all rows of a slot.
  [[nodiscard]] std::span<const int32_t> tokens(int32_t slot) const {
    return slots_[static_cast<size_t>(slot)].tokens;
  }

  // The slot is taken for a request of this space that begins with `reused` rows of what it holds.
  void Take(const Choice& choice, const PromptSpace& space);
  // The slot, which is free, holds these tokens of a space, the first `chunked` of which were read
  // in chunks.
  void Fill(int32_t slot, std::span<const int32_t> tokens, int64_t chunked,
            const PromptSpace& space);
  // Rows of a prompt chunk were appended to the slot.
  void Append(int32_t slot, std::span<const int32_t> chunk);
  // The row of a drawn token was appended to the slot.
  void AppendDrawn(int32_t slot, int32_t token);
  // The slot is free; what it holds may be reused.
  void Release(int32_t slot);
  // The slot holds nothing that may be reused.
  void Forget(int32_t slot);

 private:
  struct Slot {
    bool busy = false;
    PromptSpace space;  // whose rows these are
    uint64_t last_used = 0;
    std::vector<int32_t> tokens;  // of all rows
    size_t chunked = 0;    // the first rows, which were read in chunks that end at cut points
    bool goes_on = false;  // later rows are read in other chunks
  };
  [[nodiscard]] static int64_t CommonRows(const Slot& slot, std::span<const int32_t> prompt);
  // Whether the prompt begins with all tokens of the slot, and has more.
  [[nodiscard]] static bool GoesOn(const Slot& slot, std::span<const int32_t> prompt);
  [[nodiscard]] bool Suits(const Choice& choice, const Choice& other) const;

  uint64_t uses_ = 0;
  std::vector<Slot> slots_;
};

}  // namespace rullama
