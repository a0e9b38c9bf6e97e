#include "core/constraint/character_loops.h"

#include <algorithm>

#include "core/constraint/content_dfa.h"

namespace rullama::constraint {

bool CharacterLoops::Has(ConfigId config, CharacterSet set) {
  if (config >= answers_.size()) answers_.resize(size_t{config} * 2 + 1);
  Answer& answer = answers_[config][static_cast<size_t>(set)];
  if (answer == Answer::kUnknown) answer = Find(config, set) ? Answer::kYes : Answer::kNo;
  return answer == Answer::kYes;
}

bool CharacterLoops::Find(ConfigId config, CharacterSet set) {
  // Most configurations do not loop, which one letter shows.
  if (automaton_.Step(config, 'a') != config) return false;
  seen_.clear();
  return EndsIn(config, config, 0, set);
}

bool CharacterLoops::EndsIn(ConfigId config, ConfigId at, int utf8_state, CharacterSet set) {
  for (int i = 0; i < 256; ++i) {
    const auto byte = static_cast<uint8_t>(i);
    if (utf8_state == 0 && !MayBegin(set, byte)) continue;
    const int next_state = NextUtf8State(utf8_state, byte);
    if (next_state < 0) continue;
    const ConfigId next = automaton_.Step(at, byte);
    if (next_state == 0) {
      if (next != config) return false;
      continue;
    }
    if (next == Automaton::kNowhere) return false;
    const std::pair reached(next, next_state);
    if (std::ranges::find(seen_, reached) != seen_.end()) continue;
    seen_.push_back(reached);
    if (!EndsIn(config, next, next_state, set)) return false;
  }
  return true;
}

}  // namespace rullama::constraint
