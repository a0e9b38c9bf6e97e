#include "bench/server_load/answer_events.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

namespace rullama::bench {
namespace {

constexpr std::string_view kData = "data: ";
constexpr size_t kMostOfEvent = 200;  // characters that an error shows

bool IsText(const nlohmann::json& delta, const char* name) {
  const auto found = delta.find(name);
  return found != delta.end() && found->is_string() &&
         !found->get_ref<const std::string&>().empty();
}

}  // namespace

bool AnswerEvents::HasText(std::string_view event) {
  const nlohmann::json json = nlohmann::json::parse(event, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    throw std::runtime_error("an event is not a JSON object: " +
                             std::string(event.substr(0, kMostOfEvent)));
  }
  if (json.contains("error")) {
    throw std::runtime_error("the server's error: " + json["error"].dump().substr(0, kMostOfEvent));
  }
  if (const auto usage = json.find("usage"); usage != json.end() && usage->is_object()) {
    tokens_ = usage->value("completion_tokens", int64_t{0});
    prompt_tokens_ = usage->value("prompt_tokens", int64_t{0});
  }
  const auto choices = json.find("choices");
  if (choices == json.end() || !choices->is_array() || choices->empty()) return false;
  const nlohmann::json delta = choices->front().value("delta", nlohmann::json::object());
  return IsText(delta, "content") || IsText(delta, "reasoning_content");
}

int AnswerEvents::Take(std::string_view bytes) {
  int with_text = 0;
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    begun_ += bytes.substr(0, end);
    if (end == std::string_view::npos) break;
    bytes.remove_prefix(end + 1);
    std::string_view line = begun_;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with(kData)) {
      line.remove_prefix(kData.size());
      if (line == "[DONE]") {
        done_ = true;
      } else if (HasText(line)) {
        ++with_text;
      }
    }
    begun_.clear();
  }
  return with_text;
}

}  // namespace rullama::bench
