// Runs a grammar, symbol by symbol. Its configurations, sets of stacks of rules, are found when
// they are first needed, and numbered; steps between known configurations are table look-ups.
//
// A configuration keeps only what leads to an end: within kMaxFrames rules inside one another, and
// with at most kMaxStacks different stacks, the shortest of which stay. So no configuration is
// without a way out, except kNowhere.
//
// Ownership: shares the grammar. Thread safety: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/constraint/grammar.h"

namespace rullama::constraint {

using ConfigId = uint32_t;

class Automaton {
 public:
  static constexpr ConfigId kNowhere = 0;
  static constexpr uint32_t kMaxFrames = 256;
  static constexpr size_t kMaxStacks = 64;

  // The remaining callers of a rule, as a list from the innermost on.
  using FrameId = uint32_t;
  static constexpr FrameId kNoFrame = 0;
  struct Frame {
    StateId state = 0;   // where the caller continues
    uint32_t count = 0;  // how often it has run the rule, this time included
    FrameId outer = kNoFrame;
    uint32_t depth = 0;    // frames, this one included
    uint32_t symbols = 0;  // the least number of symbols to the end, from its state on
  };
  // One way in which the symbols so far have been understood. Its state has edges.
  struct Thread {
    FrameId frame = kNoFrame;
    StateId state = 0;
    friend auto operator<=>(const Thread&, const Thread&) = default;
  };

  explicit Automaton(std::shared_ptr<const Grammar> grammar);

  [[nodiscard]] const Grammar& grammar() const { return *grammar_; }
  [[nodiscard]] ConfigId start() const { return start_; }

  // The configuration after a symbol; kNowhere if the grammar does not allow it.
  ConfigId Step(ConfigId from, Symbol symbol) {
    const uint32_t symbol_class = grammar_->class_of(symbol);
    const size_t row = configs_[from].row;
    if (row != kNoRow) {
      const ConfigId known = rows_[row + symbol_class];
      if (known != kUnknown) return known;
    }
    return FindStep(from, symbol_class);
  }

  // Whether the text may end here, and whether it must.
  [[nodiscard]] bool may_end(ConfigId config) const { return configs_[config].may_end; }
  [[nodiscard]] bool must_end(ConfigId config) const {
    return may_end(config) && threads(config).empty();
  }
  // The least number of symbols to the end.
  [[nodiscard]] uint32_t symbols_to_end(ConfigId config) const { return configs_[config].symbols; }
  [[nodiscard]] std::span<const Thread> threads(ConfigId config) const {
    return std::span(threads_).subspan(configs_[config].first_thread,
                                       configs_[config].thread_count);
  }
  [[nodiscard]] const Frame& frame(FrameId id) const { return frames_[id]; }

  // Memory of what has been found so far.
  [[nodiscard]] size_t bytes() const;

  // The same configuration of another automaton of the same grammar.
  ConfigId Import(const Automaton& from, ConfigId config);

 private:
  static constexpr size_t kNoRow = ~size_t{0};
  static constexpr ConfigId kUnknown = ~ConfigId{0};

  struct Config {
    size_t first_thread = 0;
    uint32_t thread_count = 0;
    uint32_t symbols = kUnreachable;
    bool may_end = false;
    size_t row = kNoRow;  // where its row of rows_ begins
  };
  struct FrameHash {
    size_t operator()(const Frame& frame) const;
  };
  struct FrameEqual {
    bool operator()(const Frame& a, const Frame& b) const;
  };
  // A state to be looked at while the states that need no symbol are found.
  struct Reached {
    StateId state = 0;
    uint32_t count = 0;
    FrameId frame = kNoFrame;
    friend bool operator==(const Reached&, const Reached&) = default;
  };
  struct ReachedHash {
    size_t operator()(const Reached& reached) const;
  };

  ConfigId FindStep(ConfigId from, uint32_t symbol_class);
  // Collects in found_ and may_end_ the states that are reached from a state without a symbol.
  void Follow(Reached from);
  void FollowOne(const Reached& at);
  void Push(const Reached& at, uint32_t count);
  [[nodiscard]] uint32_t DepthOf(FrameId frame) const { return frames_[frame].depth; }
  FrameId FrameOf(StateId state, uint32_t count, FrameId outer);
  // The configuration of the threads in found_, which it sorts.
  ConfigId Intern();
  void DropStacks();
  // An order of stacks by their contents.
  [[nodiscard]] bool IsBefore(FrameId a, FrameId b) const;
  [[nodiscard]] uint32_t SymbolsOf(std::span<const Thread> threads) const;

  std::shared_ptr<const Grammar> grammar_;
  std::vector<Frame> frames_;
  std::unordered_map<Frame, FrameId, FrameHash, FrameEqual> frame_ids_;
  std::vector<Config> configs_;
  std::vector<Thread> threads_;
  std::vector<ConfigId> rows_;
  std::unordered_multimap<size_t, ConfigId> config_ids_;  // by hash of the threads
  ConfigId start_ = kNowhere;
  // Memory that is reused from step to step.
  std::vector<Thread> found_;
  bool may_end_ = false;
  std::vector<Reached> todo_;
  std::unordered_map<Reached, char, ReachedHash> seen_;
};

}  // namespace rullama::constraint
