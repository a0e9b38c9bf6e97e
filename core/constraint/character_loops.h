// Configurations that every character of a set leads back to, such as the inside of a free string
// or the rest of a key once it differs from all known ones.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/constraint/automaton.h"
#include "core/constraint/character_set.h"

namespace rullama::constraint {

// Ownership: borrows the automaton. Thread safety: that of the automaton.
class CharacterLoops {
 public:
  explicit CharacterLoops(Automaton& automaton) : automaton_(automaton) {}

  // Whether each character of the set leads from the configuration back to it. What was found is
  // kept.
  [[nodiscard]] bool Has(ConfigId config, CharacterSet set);

  // Memory of what has been found so far.
  [[nodiscard]] size_t bytes() const { return answers_.capacity() * sizeof(Answers); }

 private:
  enum class Answer : uint8_t { kUnknown, kNo, kYes };
  using Answers = std::array<Answer, kCharacterSets>;

  [[nodiscard]] bool Find(ConfigId config, CharacterSet set);
  // Whether from `at`, in a state of the UTF-8 decoder, every end of a character leads to `config`.
  [[nodiscard]] bool EndsIn(ConfigId config, ConfigId at, int utf8_state, CharacterSet set);

  Automaton& automaton_;
  std::vector<Answers> answers_;                // by configuration
  std::vector<std::pair<ConfigId, int>> seen_;  // during a search: with states of the decoder
};

}  // namespace rullama::constraint
