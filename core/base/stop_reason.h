// Why an answer ended. Part of the public interface.
#pragma once

#include <string_view>

namespace rullama {

enum class StopReason {
  kEndOfGeneration,  // the model ended its turn
  kMaxTokens,
  kContextFull,
  kCancelled,
  kStopped,  // by a stop text, or by whoever receives the tokens
};

constexpr std::string_view NameOf(StopReason reason) {
  switch (reason) {
    case StopReason::kEndOfGeneration:
      return "eog";
    case StopReason::kMaxTokens:
      return "length";
    case StopReason::kContextFull:
      return "context";
    case StopReason::kCancelled:
      return "cancelled";
    case StopReason::kStopped:
      return "stop";
  }
  return "unknown";
}

}  // namespace rullama
