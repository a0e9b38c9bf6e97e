#include "engine/training/data_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/base/json_reader.h"
#include "core/base/mmap_file.h"
#include "core/base/printable.h"

namespace rullama {
namespace {

using DataJson = nlohmann::json;

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
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
    if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
    const size_t begin = std::min(text.find_first_not_of(" \t\r\n"), text.size());
    RL_RETURN_IF_ERROR(text.substr(begin).starts_with('[') ? ReadList(text) : ReadLines(text));
    if (!set_.examples.empty()) return std::move(set_);
    return MakeError(ErrorKind::kUsage, "data.empty",
                     "'{}' has nothing to learn from: {}; expected lines with an answer", name_,
                     set_.Describe());
  }

 private:
  [[nodiscard]] const DataKeys& keys() const { return options_.keys; }

  Status ReadLines(std::string_view text) {
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      std::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      ++line_;
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
      ++set_.lines;
      const auto object = ReadJson(line);
      if (!object) return BadJson(object.error());
      RL_RETURN_IF_ERROR(ReadObject(*object));
    }
    return OkStatus();
  }

  // A file that is one list. Its entries are counted from 1, as lines are.
  Status ReadList(std::string_view text) {
    place_ = "entry";
    const auto list = ReadJson(text);
    if (!list) {
      return MakeError(ErrorKind::kUsage, "data.line",
                       "'{}' begins with '[' and {}, expected one JSON object a line, or one JSON "
                       "list of them",
                       name_, list.error().ToString());
    }
    for (const DataJson& object : *list) {
      ++line_;
      ++set_.lines;
      RL_RETURN_IF_ERROR(ReadObject(object));
    }
    return OkStatus();
  }

  [[nodiscard]] tl::unexpected<Error> BadJson(const JsonFault& fault) const {
    const bool syntax = fault.kind == JsonFault::Kind::kSyntax;
    return BadLine(
        "found {}: the line {}; expected a JSON object, one a line, or a file that is "
        "one JSON list of them",
        syntax ? "no JSON" : "JSON that is not read", fault.ToString());
  }

  template <typename... Args>
  [[nodiscard]] tl::unexpected<Error> BadLine(fmt::format_string<Args...> format,
                                              Args&&... args) const {
    return MakeError(ErrorKind::kUsage, "data.line", "'{}', {} {}: {}", name_, place_, line_,
                     fmt::format(format, std::forward<Args>(args)...));
  }

  // The reason of an error of the chat template or the tokenizer, at the line.
  [[nodiscard]] tl::unexpected<Error> BadLine(const Error& error) const {
    return BadLine("{}", error.message);
  }

  Status ReadObject(const DataJson& object) {
    if (!object.is_object()) {
      return BadLine("found {}, expected a JSON object with {}, {} and {}, {}, or {} and {}",
                     object.type_name(), keys().messages, keys().prompt, keys().completion,
                     keys().text, kIdsKey, kTargetsKey);
    }
    const auto form = FormOfLine(object, keys());
    if (!form) return BadLine(form.error());
    if (!kind_) kind_ = form->kind;
    if (kind_ != form->kind) {
      return BadLine("found another kind of line than before, expected one kind in a file");
    }
    if (kind_ == LineKind::kTokens) {
      RL_ASSIGN_OR_RETURN(Example example, TokensOf(object));
      return AddTokens(std::move(example));
    }
    RL_ASSIGN_OR_RETURN(EncodedLine encoded, Encode(*form));
    return Add(std::move(encoded));
  }

  Result<EncodedLine> Encode(const DataForm& form) const {
    if (form.kind == LineKind::kText) {
      RL_ASSIGN_OR_RETURN(EncodedExample example, EncodeRaw({}, form.text));
      return EncodedLine{std::move(example), true};
    }
    if (form.kind == LineKind::kMessages) {
      if (options_.raw) {
        return BadLine(
            "found messages, which the chat template renders; expected prompt and "
            "completion or text with training.raw (--raw). Leave it out: a model "
            "without a chat template learns the end of each answer too");
      }
      return EncodeConversation(form.messages, form.tools, form.last_turn_only);
    }
    if (options_.raw) {
      RL_ASSIGN_OR_RETURN(EncodedExample example, EncodeRaw(form.prompt, form.text));
      return EncodedLine{std::move(example)};
    }
    return EncodeConversation(DataJson::array({{{"role", "user"}, {"content", form.prompt}},
                                               {{"role", "assistant"}, {"content", form.text}}}),
                              DataJson(), /*last_turn_only=*/false);
  }

  Result<EncodedLine> EncodeConversation(const DataJson& messages, const DataJson& tools,
                                         bool last_turn_only) const {
    for (const DataJson& message : messages.is_array() ? messages : DataJson::array()) {
      if (!message.is_object() || !message.contains("content")) continue;
      const DataJson& content = message["content"];
      const auto is_media = [](const DataJson& part) {
        return part.is_object() && part.value("type", DataJson("text")) != "text";
      };
      if (content.is_array() && std::ranges::any_of(content, is_media)) {
        return BadLine("found a part of a message that is not text, expected text only");
      }
    }
    const bool last = last_turn_only || options_.train_on == TrainOn::kLast;
    const TrainedTurns turns = last ? TrainedTurns::kLast : TrainedTurns::kAll;
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

  // BOS, text that is given, text that is learnt, EOS: each once, though the texts spell them out.
  // Both texts are encoded apart: so they are when a model continues the first.
  Result<EncodedExample> EncodeRaw(std::string_view given, std::string_view learnt) const {
    EncodedExample example;
    // A text alone may begin with BOS, which is not learnt.
    RL_ASSIGN_OR_RETURN(example.ids, TokensOf(given, /*add_bos=*/true));
    example.trained.resize(example.ids.size(), 0);
    RL_ASSIGN_OR_RETURN(auto ids, TokensOf(learnt, /*add_bos=*/false));
    const bool repeated = given.empty() && !ids.empty() && ids[0] == tokenizer_.bos_id();
    if (repeated) ids.erase(ids.begin());
    example.ids.insert(example.ids.end(), ids.begin(), ids.end());
    if (const auto eos = EndOfText(); eos && !Ends(ids)) example.ids.push_back(*eos);
    example.trained.resize(example.ids.size(), 1);
    if (options_.train_on == TrainOn::kAll && !example.trained.empty()) {
      std::fill(example.trained.begin() + 1, example.trained.end(), uint8_t{1});
    }
    return example;
  }

  Result<std::vector<TokenId>> TokensOf(std::string_view text, bool add_bos) const {
    auto ids = tokenizer_.Encode(text, {.add_bos = add_bos});
    if (!ids) return BadLine(ids.error());
    return *std::move(ids);
  }

  // The token that ends a text: <eos> or, without one, the first that ends generation.
  [[nodiscard]] std::optional<TokenId> EndOfText() const {
    if (const auto eos = tokenizer_.FindToken("<eos>")) return eos;
    const auto ends = tokenizer_.end_of_generation_ids();
    return ends.empty() ? std::nullopt : std::optional(ends[0]);
  }

  // Whether a token that ends generation ends the text, with nothing but line breaks after it.
  [[nodiscard]] bool Ends(std::span<const TokenId> ids) const {
    while (!ids.empty()) {
      if (tokenizer_.IsEndOfGeneration(ids.back())) return true;
      std::string bytes;
      tokenizer_.AppendBytes(ids.back(), bytes);
      if (bytes.find_first_not_of('\n') != std::string::npos) return false;
      ids = ids.first(ids.size() - 1);
    }
    return false;
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
    RL_ASSIGN_OR_RETURN(std::vector<int32_t> ids, NumbersOf(object, kIdsKey));
    RL_ASSIGN_OR_RETURN(std::vector<int32_t> targets, NumbersOf(object, kTargetsKey));
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
    return MakeError(ErrorKind::kUsage, "data.long",
                     "'{}', {} {}: found {} tokens, expected at most training.max_seq_length = {}",
                     name_, place_, line_, tokens, options_.max_tokens);
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

  // A text that is too long becomes several, each after a BOS.
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
                       "'{}', {} {}: found no token to learn, expected an answer", name_, place_,
                       line_);
    }
    if (set_.untrained++ == 0) set_.first_untrained = line_;
    return OkStatus();
  }

  const std::string& name_;
  const Model& model_;
  const Tokenizer& tokenizer_;
  const DataOptions& options_;
  std::string_view place_ = "line";
  int64_t line_ = 0;  // or entry of a list
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

std::string DataSet::DescribeFirst(const Tokenizer& tokenizer) const {
  constexpr size_t kShownBytes = 60;
  constexpr int64_t kShownTokens = 24;
  if (examples.empty()) return {};
  const Example& example = examples.front();
  const auto is_learnt = [](int32_t target) { return target != kNoTarget; };
  const auto first = std::ranges::find_if(example.targets, is_learnt);
  const auto last = std::find_if_not(first, example.targets.end(), is_learnt);
  const auto shown = [&](std::span<const int32_t> ids) {
    const auto text = tokenizer.Decode(ids, /*show_control=*/true);
    return text ? Printable(*text, kShownBytes) : std::string();
  };
  const int64_t before = first - example.targets.begin() + 1;
  const int64_t begin = std::max<int64_t>(0, before - kShownTokens);
  return fmt::format(
      "after \"{}\" the model learns \"{}\"",
      shown(std::span(example.ids)
                .subspan(static_cast<size_t>(begin), static_cast<size_t>(before - begin))),
      shown({first, last}));
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
