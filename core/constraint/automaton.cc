#include "core/constraint/automaton.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace rullama::constraint {
namespace {

size_t Mix(size_t hash, size_t value) {
  hash ^= value;
  hash *= 0x9E3779B97F4A7C15U;
  return hash ^ (hash >> 29);
}

}  // namespace

size_t Automaton::FrameHash::operator()(const Frame& frame) const {
  return Mix(Mix(Mix(0, frame.state), frame.count), frame.outer);
}

bool Automaton::FrameEqual::operator()(const Frame& a, const Frame& b) const {
  return a.state == b.state && a.count == b.count && a.outer == b.outer;
}

size_t Automaton::ReachedHash::operator()(const Reached& reached) const {
  return Mix(Mix(Mix(0, reached.state), reached.count), reached.frame);
}

Automaton::Automaton(std::shared_ptr<const Grammar> grammar) : grammar_(std::move(grammar)) {
  frames_.emplace_back();   // kNoFrame
  configs_.emplace_back();  // kNowhere
  Follow({.state = grammar_->start()});
  start_ = Intern();
}

ConfigId Automaton::FindStep(ConfigId from, uint32_t symbol_class) {
  if (configs_[from].thread_count == 0) return kNowhere;
  const Symbol symbol = grammar_->representative(symbol_class);
  for (size_t i = 0; i < configs_[from].thread_count; ++i) {
    const Thread thread = threads_[configs_[from].first_thread + i];
    for (const Grammar::Edge& edge : grammar_->edges(thread.state)) {
      if (edge.first > symbol) break;
      if (edge.last >= symbol) Follow({.state = edge.target, .frame = thread.frame});
    }
  }
  const ConfigId to = Intern();
  const size_t classes = grammar_->class_count();
  if (configs_[from].row == kNoRow) {
    configs_[from].row = rows_.size();
    rows_.resize(rows_.size() + classes, kUnknown);
  }
  rows_[configs_[from].row + symbol_class] = to;
  return to;
}

void Automaton::Follow(Reached from) {
  todo_.push_back(from);
  while (!todo_.empty()) {
    const Reached at = todo_.back();
    todo_.pop_back();
    if (DepthOf(at.frame) + grammar_->need(at.state, at.count).frames > kMaxFrames) continue;
    if (seen_.try_emplace(at).second) FollowOne(at);
  }
}

void Automaton::FollowOne(const Reached& at) {
  const Grammar::State& state = grammar_->state(at.state);
  switch (state.kind) {
    case Grammar::Kind::kPlain:
      if (!grammar_->edges(at.state).empty()) found_.push_back({at.frame, at.state});
      for (const StateId next : grammar_->epsilons(at.state)) {
        todo_.push_back({.state = next, .frame = at.frame});
      }
      break;
    case Grammar::Kind::kAccept: {
      if (at.frame == kNoFrame) {
        may_end_ = true;
        break;
      }
      const Frame& caller = frames_[at.frame];
      todo_.push_back(
          {caller.state + static_cast<StateId>(state.exit), caller.count, caller.outer});
      break;
    }
    case Grammar::Kind::kCall:
      todo_.push_back(
          {.state = grammar_->start(state.rule), .frame = FrameOf(state.next, 0, at.frame)});
      break;
    case Grammar::Kind::kRepeat:
      if (at.count >= state.min) todo_.push_back({.state = state.next, .frame = at.frame});
      if (at.count < state.max) {
        // Beyond the minimum, without a maximum, the count does not matter any more.
        const bool counts = state.max != kUnlimited || at.count < state.min;
        const uint32_t count = counts ? at.count + 1 : at.count;
        todo_.push_back(
            {.state = grammar_->start(state.rule), .frame = FrameOf(at.state, count, at.frame)});
      }
      break;
  }
}

Automaton::FrameId Automaton::FrameOf(StateId state, uint32_t count, FrameId outer) {
  Frame frame{.state = state, .count = count, .outer = outer};
  const auto [found, is_new] = frame_ids_.try_emplace(frame, static_cast<FrameId>(frames_.size()));
  if (!is_new) return found->second;
  frame.depth = frames_[outer].depth + 1;
  frame.symbols =
      std::min(kUnreachable, grammar_->need(state, count).symbols + frames_[outer].symbols);
  frames_.push_back(frame);
  return found->second;
}

ConfigId Automaton::Intern() {
  seen_.clear();
  std::ranges::sort(found_);
  DropStacks();
  size_t hash = may_end_ ? 1 : 0;
  for (const Thread& thread : found_) hash = Mix(Mix(hash, thread.frame), thread.state);
  const std::vector<Thread> found = std::exchange(found_, {});
  const bool may_end = std::exchange(may_end_, false);
  if (found.empty() && !may_end) return kNowhere;
  const auto same_hash = config_ids_.equal_range(hash);
  for (auto at = same_hash.first; at != same_hash.second; ++at) {
    if (configs_[at->second].may_end == may_end && std::ranges::equal(threads(at->second), found)) {
      return at->second;
    }
  }
  const auto id = static_cast<ConfigId>(configs_.size());
  configs_.push_back({.first_thread = threads_.size(),
                      .thread_count = static_cast<uint32_t>(found.size()),
                      .symbols = may_end ? 0 : SymbolsOf(found),
                      .may_end = may_end});
  threads_.insert(threads_.end(), found.begin(), found.end());
  config_ids_.emplace(hash, id);
  return id;
}

// Frames are numbered in the order in which they were first met; what stays must not depend on
// that.
void Automaton::DropStacks() {
  std::vector<FrameId> stacks;
  for (const Thread& thread : found_) {
    if (stacks.empty() || stacks.back() != thread.frame) stacks.push_back(thread.frame);
  }
  if (stacks.size() <= kMaxStacks) return;
  std::ranges::sort(stacks, [this](FrameId a, FrameId b) { return IsBefore(a, b); });
  stacks.resize(kMaxStacks);
  std::ranges::sort(stacks);
  std::erase_if(found_, [&](const Thread& thread) {
    return !std::ranges::binary_search(stacks, thread.frame);
  });
}

bool Automaton::IsBefore(FrameId a, FrameId b) const {
  for (; a != b; a = frames_[a].outer, b = frames_[b].outer) {
    const auto key = [](const Frame& f) { return std::tuple(f.depth, f.state, f.count); };
    if (key(frames_[a]) != key(frames_[b])) return key(frames_[a]) < key(frames_[b]);
  }
  return false;
}

uint32_t Automaton::SymbolsOf(std::span<const Thread> threads) const {
  uint32_t least = kUnreachable;
  for (const Thread& thread : threads) {
    least = std::min(least, grammar_->need(thread.state).symbols + frames_[thread.frame].symbols);
  }
  return least;
}

size_t Automaton::bytes() const {
  constexpr size_t kNode = 4 * sizeof(void*);  // of a hash table, without its value
  return frames_.size() * (2 * sizeof(Frame) + kNode) +
         configs_.size() * (sizeof(Config) + sizeof(size_t) + kNode) +
         threads_.capacity() * sizeof(Thread) + rows_.capacity() * sizeof(ConfigId);
}

ConfigId Automaton::Import(const Automaton& from, ConfigId config) {
  for (const Thread& thread : from.threads(config)) {
    std::vector<FrameId> frames;  // from the innermost on
    for (FrameId id = thread.frame; id != kNoFrame; id = from.frame(id).outer) {
      frames.push_back(id);
    }
    FrameId frame = kNoFrame;
    for (size_t i = frames.size(); i-- > 0;) {
      frame = FrameOf(from.frame(frames[i]).state, from.frame(frames[i]).count, frame);
    }
    found_.push_back({frame, thread.state});
  }
  may_end_ = from.may_end(config);
  return Intern();
}

}  // namespace rullama::constraint
