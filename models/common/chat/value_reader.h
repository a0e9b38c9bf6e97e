// Reads the arguments of a call that a model has written: objects and lists in braces and brackets,
// like JSON, whose texts, names and words each family writes in its own way.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace rullama::chat {

class ValueReader {
 protected:
  // Of two members of the same name.
  enum class EqualNames : bool { kFirstStays, kLastStays };

  // `name_ends`: the characters before which a name without quotes ends.
  ValueReader(std::string_view text, std::string_view name_ends, EqualNames equal_names)
      : rest_(text), name_ends_(name_ends), equal_names_(equal_names) {}
  virtual ~ValueReader() = default;

  // The next value, after white space; nothing if it is not well formed, or nested deeper than
  // kMaxJsonDepth.
  std::optional<nlohmann::json> Value(int depth);

  // White space is that of JSON.
  static std::string_view WithoutSpace(std::string_view text);
  void SkipSpace();
  // Takes `expected`, after white space, if it comes next.
  bool Take(std::string_view expected);
  // The text up to `mark`, which is taken too; nothing if there is none.
  std::optional<std::string> TakeUntil(std::string_view mark);
  // The text that has not been read.
  std::string_view rest_;

 private:
  // Whether a quoted text comes next.
  [[nodiscard]] virtual bool IsQuoted() const = 0;
  virtual std::optional<std::string> QuotedText() = 0;
  // A value without quotes that is neither an object nor a list.
  virtual std::optional<nlohmann::json> Word() = 0;

  std::optional<nlohmann::json> Object(int depth);
  std::optional<nlohmann::json> List(int depth);
  // The name of a member and the colon after it.
  std::optional<std::string> Name();
  std::optional<std::string> PlainName();

  std::string_view name_ends_;
  EqualNames equal_names_;
};

}  // namespace rullama::chat
