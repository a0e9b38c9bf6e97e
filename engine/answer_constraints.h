// Makes the constraints of requests: what an answer may be, as a matcher that follows it.
//
// The trie of the vocabulary is made for the first request that needs it. Grammars and masks are
// kept for later requests of the same form.
//
// Ownership: borrows the model. Thread safety: Make() from any thread. Matchers belong to the
// engine's thread, which alone steps them.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/constraint/matcher.h"
#include "engine/api/request.h"
#include "engine/api/stats.h"
#include "engine/loading/loaded_model.h"

namespace rullama {

struct AnswerConstraint {
  std::optional<constraint::Matcher> matcher;  // none: the answer may be anything
  // Whether the answer is over once it is valid, so that reaching a limit there does not cut it.
  bool ends_when_valid = false;
  std::vector<std::string> ignored;     // keywords of the schemas that were skipped
  std::vector<std::string> unenforced;  // places in the tools that calls are not held to
};

class AnswerConstraints {
 public:
  explicit AnswerConstraints(const LoadedModel& model) : model_(model) {}

  // `opens_thought`: the prompt has begun a thought. Errors (kUsage): usage.request (two forms of
  // the text, tools that are to be called but not there), model.canvas (a model that denoises
  // cannot be held to a form); schema.invalid, schema.unsupported, schema.too_large.
  Result<AnswerConstraint> Make(const Request& request, bool thinking, bool opens_thought);
  // Seconds of each compilation so far.
  [[nodiscard]] Histogram compile_seconds() const;

 private:
  static constexpr size_t kMaxForms = 128;
  static constexpr size_t kMaxBytes = size_t{256} << 20;  // of all forms

  // State that answers of one form share.
  struct Form {
    std::string key;
    std::shared_ptr<constraint::MaskTable> masks;
    std::vector<std::string> ignored;
    std::vector<std::string> unenforced;
  };

  Result<Form> Compile(const Request& request, bool thinking, bool opens_thought);
  std::shared_ptr<const constraint::TokenTrie> Trie();
  // The form of a key, as the one used last, or null.
  const Form* Find(const std::string& key);
  void Keep(Form form);

  const LoadedModel& model_;
  mutable std::mutex mutex_;  // guards what follows
  Histogram compile_seconds_;
  std::shared_ptr<const constraint::TokenTrie> trie_;
  std::list<Form> forms_;  // the one used last is the first
};

}  // namespace rullama
