#include "engine/training/data_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/base/mmap_file.h"
#include "core/base/utf8.h"

namespace rullama {
namespace {

using DataJson = nlohmann::json;

constexpr const char* kIds = "ids";
constexpr const char* kTargets = "targets";

enum class LineKind : uint8_t { kMessages, kPrompt, kText, kTokens };

// The tokens of a line and which of them are learnt, before its length is looked at.
struct EncodedLine {
  EncodedExample example;
  bool is_text = false;  // may be split
};

class DataSetReader {
 public:
  DataSetReader(const std::string& name, const Model& model, const Tokenizer& tokenizer,
                const DataOptions& options)
      : name_(name), model_(model), tokenizer_(tokenizer), options_(options) {}

  Result<DataSet> Read(std::string_view text) {
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      std::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      ++line_;
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
      ++set_.lines;
      RL_RETURN_IF_ERROR(ReadLine(line));
    }
    if (!set_.examples.empty()) return std::move(set_);
    return MakeError(ErrorKind::kUsage, "data.empty",
                     "'{}' has nothing to learn from: {}; expected lines with an answer", name_,
                     set_.Describe());
  }

 private:
  [[nodiscard]] const DataKeys& keys() const { return options_.keys; }

  template <typename... Args>
  [[nodiscard]] tl::unexpected<Error> BadLine(fmt::format_string<Args...> format,
                                              Args&&... args) const {
    return MakeError(ErrorKind::kUsage, "data.line", "'{}', line {}: {}", name_, line_,
                     fmt::format(format, std::forward<Args>(args)...));
  }

  // The reason of an error of the chat template or the tokenizer, at the line.
  [[nodiscard]] tl::unexpected<Error> BadLine(const Error& error) const {
    return BadLine("{}", error.message);
  }

  Status ReadLine(std::string_view line) {
    if (const auto bad = FindInvalidUtf8(line)) {
      return BadLine("found a byte that is no UTF-8 at {}, expected UTF-8 text", *bad);
    }
    const DataJson object = DataJson::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!object.is_object()) {
      return BadLine("found {}, expected a JSON object with {}, {} and {}, {}, or {} and {}",
                     object.is_discarded() ? "no JSON" : object.type_name(), keys().messages,
                     keys().prompt, keys().completion, keys().text, kIds, kTargets);
    }
    RL_RETURN_IF_ERROR(CheckKind(object));
    if (kind_ == LineKind::kTokens) {
      RL_ASSIGN_OR_RETURN(Example example, TokensOf(object));
      return AddTokens(std::move(example));
    }
    RL_ASSIGN_OR_RETURN(EncodedLine encoded, Encode(object));
    return Add(std::move(encoded));
  }

  Status CheckKind(const DataJson& object) {
    std::optional<LineKind> kind;
    if (object.contains(keys().messages)) kind = LineKind::kMessages;
    if (object.contains(keys().prompt) || object.contains(keys().completion)) {
      if (kind) {
        return BadLine("found {} beside {} or {}, expected one of them", keys().messages,
                       keys().prompt, keys().completion);
      }
      kind = LineKind::kPrompt;
    }
    if (!kind && object.contains(keys().text)) kind = LineKind::kText;
    if (object.contains(kIds) || object.contains(kTargets)) {
      if (kind)
        return BadLine("found {} or {} beside a text, expected one of them", kIds, kTargets);
      kind = LineKind::kTokens;
    }
    if (!kind) {
      return BadLine(
          "found none of the keys {}, {} and {}, {}, {} and {}; expected a conversation, a prompt "
          "with its completion, a text, or tokens with their targets",
          keys().messages, keys().prompt, keys().completion, keys().text, kIds, kTargets);
    }
    if (!kind_) kind_ = kind;
    if (kind_ == kind) return OkStatus();
    return BadLine("found another kind of line than before, expected one kind in a file");
  }

  Result<std::string> TextOf(const DataJson& object, const std::string& key) const {
    const auto found = object.find(key);
    if (found == object.end()) return BadLine("found no '{}', expected a string", key);
    if (found->is_string()) return found->get<std::string>();
    return BadLine("'{}' is {}, expected a string", key, found->type_name());
  }

  Result<EncodedLine> Encode(const DataJson& object) const {
    switch (*kind_) {
      case LineKind::kMessages:
        if (options_.raw) {
          return BadLine("found messages, which the chat template renders; expected prompt and "
                         "completion or text with training.raw (--raw). Leave it out: a model "
                         "without a chat template learns the end of each answer too");
        }
        return EncodeConversation(object[keys().messages], object.value("tools", DataJson()));
      case LineKind::kText: {
        RL_ASSIGN_OR_RETURN(const std::string text, TextOf(object, keys().text));
        RL_ASSIGN_OR_RETURN(EncodedExample example, EncodeRaw({}, text));
        return EncodedLine{std::move(example), true};
      }
      case LineKind::kPrompt:
      case LineKind::kTokens:  // TokensOf reads these
        break;
    }
    RL_ASSIGN_OR_RETURN(const std::string prompt, TextOf(object, keys().prompt));
    RL_ASSIGN_OR_RETURN(const std::string completion, TextOf(object, keys().completion));
    if (options_.raw) {
      RL_ASSIGN_OR_RETURN(EncodedExample example, EncodeRaw(prompt, completion));
      return EncodedLine{std::move(example)};
    }
    return EncodeConversation(DataJson::array({{{"role", "user"}, {"content", prompt}},
                                               {{"role", "assistant"}, {"content", completion}}}),
                              DataJson());
  }

  Result<EncodedLine> EncodeConversation(const DataJson& messages, const DataJson& tools) const {
    for (const DataJson& message : messages.is_array() ? messages : DataJson::array()) {
      if (!message.is_object() || !message.contains("content")) continue;
      const DataJson& content = message["content"];
      const auto is_media = [](const DataJson& part) {
        return part.is_object() && part.value("type", DataJson("text")) != "text";
      };
      if (content.is_array() && std::ranges::any_of(content, is_media)) {
        return BadLine("found a part of a message that is no text, expected text only");
      }
    }
    const TrainedTurns turns =
        options_.train_on == TrainOn::kLast ? TrainedTurns::kLast : TrainedTurns::kAll;
    auto example = model_.EncodeExample(tokenizer_, messages, tools, turns, options_.thinking);
    if (!example && example.error().kind != ErrorKind::kUsage) {
      return tl::unexpected(std::move(example).error());
    }
    if (!example) return BadLine(example.error());
    if (options_.train_on == TrainOn::kAll) {
      std::fill(example->trained.begin() + 1, example->trained.end(), uint8_t{1});
    }
    return EncodedLine{*std::move(example)};
  }

  // BOS, text that is given, text that is learnt, EOS. Both texts are encoded apart: so they are
  // when a model goes on behind the first.
  Result<EncodedExample> EncodeRaw(std::string_view given, std::string_view learnt) const {
    const auto bos = tokenizer_.bos_id();
    const auto eos = EndOfText();
    EncodedExample example;
    if (bos) example.ids.push_back(*bos);
    RL_RETURN_IF_ERROR(AppendText(given, example));
    example.trained.resize(example.ids.size(), 0);
    RL_RETURN_IF_ERROR(AppendText(learnt, example));
    if (eos) example.ids.push_back(*eos);
    example.trained.resize(example.ids.size(), 1);
    if (options_.train_on == TrainOn::kAll && !example.trained.empty()) {
      std::fill(example.trained.begin() + 1, example.trained.end(), uint8_t{1});
    }
    return example;
  }

  // The token that ends a text: <eos> or, without one, the first that ends generation.
  [[nodiscard]] std::optional<TokenId> EndOfText() const {
    if (const auto eos = tokenizer_.FindToken("<eos>")) return eos;
    const auto ends = tokenizer_.end_of_generation_ids();
    return ends.empty() ? std::nullopt : std::optional(ends[0]);
  }

  Status AppendText(std::string_view text, EncodedExample& example) const {
    const auto ids = tokenizer_.Encode(text, {.parse_special = false});
    if (!ids) return BadLine(ids.error());
    example.ids.insert(example.ids.end(), ids->begin(), ids->end());
    return OkStatus();
  }

  Result<std::vector<int32_t>> NumbersOf(const DataJson& object, const std::string& key) const {
    const auto found = object.find(key);
    if (found == object.end()) return BadLine("found no '{}', expected a list of numbers", key);
    if (!found->is_array()) {
      return BadLine("'{}' is {}, expected a list of numbers", key, found->type_name());
    }
    std::vector<int32_t> numbers;
    numbers.reserve(found->size());
    for (const DataJson& number : *found) {
      const bool fits = number.is_number_integer() &&
                        number >= std::numeric_limits<int32_t>::min() &&
                        number <= std::numeric_limits<int32_t>::max();
      if (!fits) return BadLine("found {} in '{}', expected 32-bit integers", number.dump(), key);
      numbers.push_back(number.get<int32_t>());
    }
    return numbers;
  }

  // Tokens as they are. A target outside the vocabulary does not count (the op cross_entropy).
  Result<Example> TokensOf(const DataJson& object) const {
    RL_ASSIGN_OR_RETURN(std::vector<int32_t> ids, NumbersOf(object, kIds));
    RL_ASSIGN_OR_RETURN(std::vector<int32_t> targets, NumbersOf(object, kTargets));
    if (ids.empty() || ids.size() != targets.size()) {
      return BadLine("found {} ids and {} targets, expected as many of both, one at least",
                     ids.size(), targets.size());
    }
    const auto vocabulary = static_cast<int32_t>(tokenizer_.size());
    for (const int32_t id : ids) {
      if (id < 0 || id >= vocabulary) {
        return BadLine("found the token {}, expected 0 to {}", id, vocabulary - 1);
      }
    }
    for (int32_t& target : targets) {
      if (target < 0 || target >= vocabulary) target = kNoTarget;
    }
    return Example{.ids = std::move(ids), .targets = std::move(targets), .line = line_};
  }

  Status AddTokens(Example example) {
    const auto most = static_cast<size_t>(options_.max_tokens);
    if (example.ids.size() <= most) return Keep(std::move(example));
    if (options_.on_long == OnLongLine::kError) return TooLong(example.ids.size());
    example.ids.resize(most);
    example.targets.resize(most);
    if (options_.on_long == OnLongLine::kDrop || example.counted() == 0) {
      ++set_.dropped;
      return OkStatus();
    }
    ++set_.cut;
    return Keep(std::move(example));
  }

  [[nodiscard]] tl::unexpected<Error> TooLong(size_t tokens) const {
    return MakeError(
        ErrorKind::kUsage, "data.long",
        "'{}', line {}: found {} tokens, expected at most training.max_seq_length = {}", name_,
        line_, tokens, options_.max_tokens);
  }

  Status Add(EncodedLine line) {
    EncodedExample& example = line.example;
    const auto most = static_cast<size_t>(options_.max_tokens);
    if (example.ids.size() <= most) return AddExample(example);
    if (options_.on_long == OnLongLine::kError) return TooLong(example.ids.size());
    if (options_.on_long == OnLongLine::kDrop) {
      ++set_.dropped;
      return OkStatus();
    }
    if (line.is_text) return AddPieces(example);
    example.ids.resize(most);
    example.trained.resize(most);
    if (std::ranges::find(example.trained, uint8_t{1}) == example.trained.end()) {
      ++set_.dropped;
      return OkStatus();
    }
    ++set_.cut;
    return AddExample(example);
  }

  // A text that is too long becomes several, each behind a BOS.
  Status AddPieces(const EncodedExample& text) {
    ++set_.split;
    const size_t head = text.trained[0] == 0 ? 1 : 0;  // the BOS
    const size_t room = static_cast<size_t>(options_.max_tokens) - head;
    for (size_t begin = head; begin < text.ids.size(); begin += room) {
      const size_t count = std::min(room, text.ids.size() - begin);
      EncodedExample piece;
      piece.ids.assign(text.ids.begin(), text.ids.begin() + static_cast<ptrdiff_t>(head));
      const auto from = text.ids.begin() + static_cast<ptrdiff_t>(begin);
      piece.ids.insert(piece.ids.end(), from, from + static_cast<ptrdiff_t>(count));
      piece.trained.assign(head, 0);
      piece.trained.resize(piece.ids.size(), 1);
      RL_RETURN_IF_ERROR(AddExample(piece));
    }
    return OkStatus();
  }

  Status AddExample(const EncodedExample& encoded) {
    Example example{.ids = encoded.ids, .targets = {}, .line = line_};
    example.targets.assign(encoded.ids.size(), kNoTarget);
    for (size_t i = 0; i + 1 < encoded.ids.size(); ++i) {
      if (encoded.trained[i + 1] != 0) example.targets[i] = encoded.ids[i + 1];
    }
    for (const size_t end : encoded.ends) {
      if (end < example.targets.size()) example.targets[end] = EndOfText().value_or(kNoTarget);
    }
    return Keep(std::move(example));
  }

  Status Keep(Example example) {
    if (example.counted() > 0) {
      set_.examples.push_back(std::move(example));
      return OkStatus();
    }
    if (options_.strict) {
      return MakeError(ErrorKind::kUsage, "data.untrained",
                       "'{}', line {}: found no token to learn, expected an answer", name_, line_);
    }
    if (set_.untrained++ == 0) set_.first_untrained = line_;
    return OkStatus();
  }

  const std::string& name_;
  const Model& model_;
  const Tokenizer& tokenizer_;
  const DataOptions& options_;
  int64_t line_ = 0;
  std::optional<LineKind> kind_;
  DataSet set_;
};

}  // namespace

std::string DataSet::Describe() const {
  std::string text = fmt::format("{} lines, {} examples", lines, examples.size());
  if (cut > 0) text += fmt::format(", {} cut", cut);
  if (split > 0) text += fmt::format(", {} texts split", split);
  if (dropped > 0) text += fmt::format(", {} too long and dropped", dropped);
  if (untrained > 0) {
    text += fmt::format(", {} without a token to learn (the first is line {})", untrained,
                        first_untrained);
  }
  return text;
}

Result<DataSet> ParseDataSet(std::string_view text, const std::string& name, const Model& model,
                             const Tokenizer& tokenizer, const DataOptions& options) {
  return DataSetReader(name, model, tokenizer, options).Read(text);
}

Result<DataSet> ReadDataSet(const std::string& path, const Model& model, const Tokenizer& tokenizer,
                            const DataOptions& options) {
  RL_ASSIGN_OR_RETURN(const MmapFile file, MmapFile::Open(path));
  const std::span<const std::byte> bytes = file.bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return ParseDataSet(text, path, model, tokenizer, options);
}

}  // namespace rullama
