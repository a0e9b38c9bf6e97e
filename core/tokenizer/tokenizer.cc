#include "core/tokenizer/tokenizer.h"

#include <algorithm>
#include <new>

#include "core/tokenizer/detokenizer.h"

namespace rullama {
namespace {

constexpr std::string_view kReservedPrefix = "<unused";
// Longer tokens are never matched as a whole; the limit bounds the matcher's memory. Gemma's
// longest special token has 31 bytes.
constexpr size_t kMaxSpecialBytes = 256;
// Longer runs of newlines than this are never one token; Gemma has 31.
constexpr size_t kMaxNewlineRun = 1024;

bool IsReserved(std::string_view text) {
  return text.starts_with(kReservedPrefix) || text == "<mask>" || text == "[multimodal]";
}

TokenKind Classify(TokenType type, std::string_view text) {
  if (IsMarkerName(text)) return TokenKind::kControl;
  switch (type) {
    case TokenType::kControl:
    case TokenType::kUnknown:
      return TokenKind::kControl;
    case TokenType::kUserDefined:
      return TokenKind::kUserDefined;
    case TokenType::kByte:
      return ParseByteToken(text) ? TokenKind::kByte : TokenKind::kText;
    case TokenType::kUndefined:
    case TokenType::kNormal:
    case TokenType::kUnused:
      break;
  }
  return TokenKind::kText;
}

std::optional<TokenId> Narrow(const std::optional<uint64_t>& id) {
  if (!id) return std::nullopt;
  return static_cast<TokenId>(*id);  // CheckVocabulary has compared it with the vocabulary
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::Build(VocabularyData data) {
  RL_RETURN_IF_ERROR(CheckVocabulary(data));
  try {
    std::shared_ptr<Tokenizer> tokenizer(new Tokenizer());
    tokenizer->tokens_ = std::move(data.tokens);
    RL_RETURN_IF_ERROR(tokenizer->BuildTables(data));
    return tokenizer;
  } catch (const std::bad_alloc&) {
    return MakeError(ErrorKind::kOutOfMemory, "tokenizer.memory",
                     "not enough memory for the tables of the vocabulary");
  }
}

Status Tokenizer::BuildTables(const VocabularyData& data) {
  for (const std::string_view token : tokens_) {
    longest_token_ = std::max(longest_token_, token.size());
  }
  table_.Build(tokens_);
  ClassifyTokens(data);
  if (data.is_scored()) {
    BuildScoredMerges(*data.scores);
  } else {
    RL_RETURN_IF_ERROR(merges_.Build(data.merges, table_));
  }
  RL_RETURN_IF_ERROR(ResolveBytes(data));
  ResolveCharacters();
  ResolveEndOfGeneration(data);
  bos_id_ = data.bos_id ? Narrow(data.bos_id) : FindToken("<bos>");
  padding_id_ = Narrow(data.padding_id);
  for (const int64_t id : data.suppress_ids) suppressed_ids_.push_back(static_cast<TokenId>(id));
  return OkStatus();
}

// Control and byte tokens stand for something else than their spelling, which text must not become.
void Tokenizer::BuildScoredMerges(std::span<const float> scores) {
  std::vector<bool> is_piece(tokens_.size());
  for (size_t i = 0; i < tokens_.size(); ++i) {
    is_piece[i] = kinds_[i] == TokenKind::kText || kinds_[i] == TokenKind::kUserDefined;
  }
  merges_.BuildFromScores(tokens_, scores, is_piece, table_);
}

void Tokenizer::ClassifyTokens(const VocabularyData& data) {
  kinds_.assign(tokens_.size(), TokenKind::kText);
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const auto type =
        data.types.empty() ? TokenType::kNormal : static_cast<TokenType>(data.types[i]);
    // Nearly all tokens are plain text; only "<" starts a marker.
    if (type == TokenType::kNormal && !tokens_[i].starts_with('<')) continue;
    kinds_[i] = Classify(type, tokens_[i]);
    if (tokens_[i].size() > kMaxSpecialBytes) continue;
    const auto id = static_cast<TokenId>(i);
    if (kinds_[i] == TokenKind::kControl) {
      special_.Add(tokens_[i], id, /*trusted_only=*/true);
    } else if (kinds_[i] == TokenKind::kUserDefined) {
      // Reserved tokens were never trained; text that merely spells their names stays text.
      special_.Add(tokens_[i], id, /*trusted_only=*/IsReserved(tokens_[i]));
    }
  }
}

Status Tokenizer::ResolveBytes(const VocabularyData& data) {
  byte_ids_.fill(Narrow(data.unknown_id).value_or(kNoToken));
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if (kinds_[i] != TokenKind::kByte) continue;
    byte_ids_[*ParseByteToken(tokens_[i])] = static_cast<TokenId>(i);
  }
  if (std::find(byte_ids_.begin(), byte_ids_.end(), kNoToken) == byte_ids_.end()) return OkStatus();
  return MakeError(ErrorKind::kModelFile, "tokenizer.bytes",
                   "the vocabulary has neither all byte tokens <0x00> to <0xFF> nor an unknown "
                   "token; some text could not be encoded, convert or download the file again");
}

void Tokenizer::ResolveCharacters() {
  for (size_t c = 0; c < ascii_ids_.size(); ++c) {
    const char character = static_cast<char>(c);
    ascii_ids_[c] = table_.Find(character == ' ' ? kSpaceSymbol : std::string_view(&character, 1));
  }
  // Training and every reference treat a run of newlines as one piece, but not every file types
  // these tokens as user-defined, so they are found by their text.
  const std::string newlines(kMaxNewlineRun, '\n');
  newline_run_ids_.assign(1, kNoToken);
  for (size_t n = 1; n <= kMaxNewlineRun; ++n) {
    const TokenId id = table_.Find(std::string_view(newlines).substr(0, n));
    if (id == kNoToken) continue;
    newline_run_ids_.resize(n + 1, kNoToken);
    newline_run_ids_[n] = id;
  }
  // Text may be cut before a space, unless some token contains the byte in front followed by a
  // space: only then could a merge join the two sides. Gemma has one such token (">▁</").
  for (const std::string_view token : tokens_) {
    for (size_t at = token.find(kSpaceSymbol, 1); at != std::string_view::npos;
         at = token.find(kSpaceSymbol, at + 1)) {
      if (!token.substr(0, at).ends_with(kSpaceSymbol)) {
        joins_following_space_.set(static_cast<uint8_t>(token[at - 1]));
      }
    }
  }
}

void Tokenizer::ResolveEndOfGeneration(const VocabularyData& data) {
  for (const std::string_view text :
       {"<eos>", "<turn|>", "<|tool_response>", "<end_of_turn>", "<start_function_response>"}) {
    if (const auto id = FindToken(text)) eog_ids_.push_back(*id);
  }
  if (const auto id = Narrow(data.eos_id)) eog_ids_.push_back(*id);
  if (const auto id = Narrow(data.eot_id)) eog_ids_.push_back(*id);
  for (const int64_t id : data.extra_eos_ids) eog_ids_.push_back(static_cast<TokenId>(id));
  std::sort(eog_ids_.begin(), eog_ids_.end());
  eog_ids_.erase(std::unique(eog_ids_.begin(), eog_ids_.end()), eog_ids_.end());
  std::erase_if(eog_ids_, [this](TokenId id) { return TokenText(id) == "</s>"; });
}

void Tokenizer::AppendBytes(TokenId id, std::string& bytes) const {
  const std::string_view text = TokenText(id);
  if (kind(id) == TokenKind::kByte) {
    bytes += static_cast<char>(*ParseByteToken(text));
    return;
  }
  size_t at = 0;
  for (size_t space = kind(id) == TokenKind::kControl ? std::string_view::npos
                                                      : text.find(kSpaceSymbol);
       space != std::string_view::npos; space = text.find(kSpaceSymbol, at)) {
    bytes += text.substr(at, space - at);
    bytes += ' ';
    at = space + kSpaceSymbol.size();
  }
  bytes += text.substr(at);
}

std::optional<TokenId> Tokenizer::FindToken(std::string_view text) const {
  const TokenId id = table_.Find(text);
  if (id == kNoToken) return std::nullopt;
  return id;
}

bool Tokenizer::IsEndOfGeneration(TokenId id) const {
  return std::binary_search(eog_ids_.begin(), eog_ids_.end(), id);
}

Result<std::string> Tokenizer::Decode(std::span<const TokenId> ids, bool show_control) const {
  Detokenizer detokenizer(*this, show_control);
  std::string text;
  for (const TokenId id : ids) {
    RL_ASSIGN_OR_RETURN(const std::string_view piece, detokenizer.Push(id));
    text += piece;
  }
  text += detokenizer.Flush();
  return text;
}

}  // namespace rullama
