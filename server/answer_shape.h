// The JSON of answers of /v1/chat/completions and /v1/completions, whole and in chunks.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "engine/api/request.h"

namespace rullama::server {

// What does not change within an answer.
class AnswerShape {
 public:
  // `thought_tokens`: how many of the drawn tokens were of thoughts.
  AnswerShape(bool chat, std::string model, std::string fingerprint);

  [[nodiscard]] std::string Whole(const Completion& answer, int64_t thought_tokens) const;

  // The pieces of a stream, each an event with its line ends. `usage`: the stream ends with the
  // counts, so that every chunk in front has a null there.
  [[nodiscard]] std::string First(bool usage) const;
  [[nodiscard]] std::string Part(const Event& event, int64_t call_index, bool usage) const;
  // The reason of the end, the counts if asked for, and the mark of the end.
  [[nodiscard]] std::string Last(const Completion& answer, int64_t thought_tokens,
                                 bool usage) const;

 private:
  [[nodiscard]] nlohmann::json Base(bool chunk) const;
  [[nodiscard]] nlohmann::json Chunk(nlohmann::json delta, nlohmann::json reason, bool usage) const;

  bool chat_;
  std::string id_;
  int64_t created_;
  std::string model_;
  std::string fingerprint_;
};

// JSON on one line; bytes that are no UTF-8 are replaced.
std::string Dump(const nlohmann::json& value);
// "chatcmpl-" and 24 random letters and digits.
std::string MakeId(std::string_view prefix);

}  // namespace rullama::server
