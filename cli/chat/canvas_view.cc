#include "cli/chat/canvas_view.h"

#include <locale.h>
#include <unistd.h>
#include <wchar.h>

#include <algorithm>

#include "core/base/utf8.h"
#include "core/tokenizer/detokenizer.h"

namespace rullama::cli {
namespace {

constexpr std::string_view kDim = "\x1b[2m";
constexpr std::string_view kPlain = "\x1b[0m";

// One character of a text and the columns it takes.
struct Character {
  std::string_view bytes;
  int width = 1;
};

int WidthOf(wchar_t code) {
  // The width of a character is a property of Unicode, not of the user's language.
  static const locale_t kUtf8 = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  if (kUtf8 == nullptr) return 1;
  const locale_t previous = ::uselocale(kUtf8);
  const int width = ::wcwidth(code);
  ::uselocale(previous);
  return std::max(width, 0);
}

// `text` is valid UTF-8. Control characters would move the cursor: all but the newline become '?'.
Character TakeCharacter(std::string_view& text) {
  const size_t length = std::max<size_t>(Utf8SequenceLength(text), 1);
  Character character{text.substr(0, length)};
  const auto lead = static_cast<unsigned char>(text[0]);
  text.remove_prefix(length);
  if (length == 1) {
    const bool control = lead < 0x20 || lead >= 0x7F;
    if (control && lead != '\n') character.bytes = lead == '\t' ? " " : "?";
    return character;
  }
  wchar_t code = lead & (0x7F >> length);
  for (const char c : character.bytes.substr(1)) code = (code << 6) | (c & 0x3F);
  character.width = WidthOf(code);
  return character;
}

class Layout {
 public:
  Layout(int column, int columns) : column_(column), columns_(columns) {}

  void Add(const CanvasPiece& piece) {
    std::string_view text = piece.text;
    while (!text.empty()) {
      const Character character = TakeCharacter(text);
      if (character.bytes == "\n") {
        BreakLine();
        continue;
      }
      // The last column stays free: whether a terminal wraps after it is its own secret.
      if (column_ + character.width > columns_ - 1) BreakLine();
      SetDim(!piece.decided);
      lines_.back() += character.bytes;
      column_ += character.width;
    }
  }
  std::vector<std::string> Finish() && {
    SetDim(false);
    return std::move(lines_);
  }

 private:
  void BreakLine() {
    SetDim(false);
    lines_.emplace_back();
    column_ = 0;
  }
  void SetDim(bool dim) {
    if (dim != dim_) lines_.back() += dim ? kDim : kPlain;
    dim_ = dim;
  }

  int column_;
  int columns_;
  bool dim_ = false;
  std::vector<std::string> lines_ = {""};
};

}  // namespace

std::vector<std::string> LayOutCanvas(std::span<const CanvasPiece> pieces, int column,
                                      const TerminalSize& size) {
  Layout layout(column, size.columns);
  for (const CanvasPiece& piece : pieces) layout.Add(piece);
  std::vector<std::string> lines = std::move(layout).Finish();
  const auto most = static_cast<size_t>(std::max(size.rows - 1, 1));
  if (lines.size() > most) lines.erase(lines.begin(), lines.end() - static_cast<ptrdiff_t>(most));
  return lines;
}

CanvasView::CanvasView(const Tokenizer& tokenizer, Console& console)
    : tokenizer_(tokenizer), console_(console) {}

Status CanvasView::Show(const CanvasDraft& draft) {
  std::vector<CanvasPiece> pieces;
  Detokenizer detokenizer(tokenizer_);
  const std::span<const TokenId> ends = tokenizer_.end_of_generation_ids();
  for (size_t row = 0; row < draft.ids.size(); ++row) {
    const int32_t token = draft.ids[row];
    if (std::ranges::find(ends, token) != ends.end()) break;
    RL_ASSIGN_OR_RETURN(const std::string_view text, detokenizer.Push(token));
    pieces.push_back({std::string(text), draft.accepted[row] != 0});
  }
  const auto lines = LayOutCanvas(pieces, column_, SizeOfTerminal(STDOUT_FILENO));
  RL_RETURN_IF_ERROR(Clear());
  shown_lines_ = lines.size();
  return console_.Write(fmt::format("{}", fmt::join(lines, "\n")));
}

Status CanvasView::Clear() {
  if (shown_lines_ == 0) return OkStatus();
  std::string codes;
  if (shown_lines_ > 1) codes += fmt::format("\x1b[{}A", shown_lines_ - 1);
  codes += '\r';
  if (column_ > 0) codes += fmt::format("\x1b[{}C", column_);
  shown_lines_ = 0;
  return console_.Write(codes + "\x1b[J");
}

void CanvasView::Wrote(std::string_view text) {
  const int columns = SizeOfTerminal(STDOUT_FILENO).columns;
  while (!text.empty()) {
    const Character character = TakeCharacter(text);
    column_ = character.bytes == "\n"               ? 0
              : column_ + character.width > columns ? character.width
                                                    : column_ + character.width;
  }
}

}  // namespace rullama::cli
