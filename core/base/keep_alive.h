// The time that a model stays loaded after its last answer, as Ollama writes it. Pure functions.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace rullama {

using KeepAlive = std::chrono::milliseconds;  // negative: for ever
inline constexpr KeepAlive kForEver{-1};

// A number of seconds; a negative one, or one beyond 100 years, means for ever.
KeepAlive KeepAliveOf(double seconds);

// A duration as Go writes it, "1h30m" or "-1m", or a number of seconds; nothing for anything else.
std::optional<KeepAlive> ParseKeepAlive(std::string_view text);
// The text from which ParseKeepAlive() reads `keep`: "1h30m", "500ms", "0s"; "-1" for ever.
std::string KeepAliveText(KeepAlive keep);

}  // namespace rullama
