// A rendered conversation as stretches of template text and of text that came from outside.
//
// Keeping them apart is what makes prompt injection through marker strings impossible: only
// template text is searched for markers when the prompt is turned into tokens (encoding.h).
// Thread safety: plain data.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rullama::chat {

struct PromptSegment {
  std::string text;
  bool is_template = false;
  bool is_trained = false;   // the model is to learn to write it
  bool ends_answer = false;  // the model is to learn to end after it, without a marker in the text
};

struct ChatPrompt {
  std::vector<PromptSegment> segments;  // never empty texts; neighbours differ
  bool opens_thought = false;           // the text ends inside a thought, which the model continues

  [[nodiscard]] std::string ToString() const;
};

class PromptWriter {
 public:
  void Template(std::string_view text) { Append(text, true); }
  void User(std::string_view text) { Append(text, false); }
  // Whether what follows is to be learnt.
  void SetTrained(bool trained) { trained_ = trained; }
  // The model is to learn to end its answer here, though no marker in the text says so. Something
  // has been written before.
  void EndAnswer() { prompt_.segments.back().ends_answer = true; }
  // The text ends inside a thought.
  void OpenThought() { prompt_.opens_thought = true; }
  ChatPrompt Finish() && { return std::move(prompt_); }

 private:
  void Append(std::string_view text, bool is_template);
  ChatPrompt prompt_;
  bool trained_ = false;
};

}  // namespace rullama::chat
