#include "tests/cli/screen.h"

#include <locale.h>
#include <wchar.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

namespace rullama::cli_test {
namespace {

constexpr size_t kTabWidth = 8;

size_t SequenceLength(unsigned char lead) {
  return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

int WidthOf(std::string_view character) {
  if (character.size() == 1) return 1;
  static const locale_t kUtf8 = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  wchar_t code = static_cast<unsigned char>(character[0]) & (0x7F >> character.size());
  for (const char c : character.substr(1)) code = (code << 6) | (c & 0x3F);
  const locale_t previous = ::uselocale(kUtf8);
  const int width = ::wcwidth(code);
  ::uselocale(previous);
  return std::max(width, 0);
}

int NumberOr(std::string_view parameters, int value) {
  return parameters.empty() ? value : std::atoi(std::string(parameters).c_str());
}

}  // namespace

Screen::Row& Screen::CurrentRow() { return lines_[static_cast<size_t>(row_)]; }

int Screen::Top() const { return std::max(static_cast<int>(lines_.size()) - rows_, 0); }

void Screen::LineFeed() {
  ++row_;
  if (row_ == static_cast<int>(lines_.size())) lines_.emplace_back();
  wraps_next_ = false;
}

void Screen::Put(const std::string& character, int width) {
  if (width == 0) {  // joins the character before it
    if (column_ > 0) CurrentRow().cells[static_cast<size_t>(column_) - 1] += character;
    return;
  }
  if (wraps_next_ || column_ + width > columns_) {
    LineFeed();
    column_ = 0;
    CurrentRow().continues = true;
  }
  if (inserting_) ShiftCells(width);
  auto& cells = CurrentRow().cells;
  cells.resize(std::max(cells.size(), static_cast<size_t>(column_ + width)), " ");
  cells[static_cast<size_t>(column_)] = character;
  if (width == 2) cells[static_cast<size_t>(column_) + 1].clear();
  column_ += width;
  wraps_next_ = column_ == columns_;
  if (wraps_next_) column_ = columns_ - 1;
}

// Makes room for `count` blanks at the cursor, or removes cells if it is negative.
void Screen::ShiftCells(int count) {
  auto& cells = CurrentRow().cells;
  cells.resize(static_cast<size_t>(columns_), " ");
  const auto at = cells.begin() + column_;
  if (count > 0) {
    cells.insert(at, static_cast<size_t>(count), " ");
  } else {
    cells.erase(at, at + std::min<ptrdiff_t>(-count, cells.end() - at));
  }
  cells.resize(static_cast<size_t>(columns_), " ");
}

void Screen::EraseInRow(int mode) {
  auto& cells = CurrentRow().cells;
  const auto column = static_cast<size_t>(column_);
  if (mode == 0 && cells.size() > column) cells.resize(column);
  if (mode == 1) std::fill_n(cells.begin(), std::min(column + 1, cells.size()), " ");
  if (mode == 2) cells.clear();
  wraps_next_ = false;
}

void Screen::EraseBelow() {
  EraseInRow(0);
  for (size_t row = static_cast<size_t>(row_) + 1; row < lines_.size(); ++row) lines_[row] = Row{};
}

void Screen::Escape(std::string_view parameters, char final) {
  const int count = std::max(NumberOr(parameters, 1), 1);
  switch (final) {
    case 'm':  // looks
      return;
    case 'A':
      row_ = std::max(row_ - count, Top());
      break;
    case 'B':
      row_ = std::min(row_ + count, static_cast<int>(lines_.size()) - 1);
      break;
    case 'C':
      column_ = std::min(column_ + count, columns_ - 1);
      break;
    case 'D':
      column_ = std::max(column_ - count, 0);
      break;
    case 'G':
      column_ = std::clamp(count - 1, 0, columns_ - 1);
      break;
    case 'J':
      if (NumberOr(parameters, 0) != 0) throw std::runtime_error("ESC[J of another kind");
      EraseBelow();
      break;
    case 'K':
      EraseInRow(NumberOr(parameters, 0));
      break;
    case 'P':
      ShiftCells(-count);
      break;
    case '@':
      ShiftCells(count);
      break;
    case 'h':
    case 'l':
      if (parameters == "4") {
        inserting_ = final == 'h';
      } else if (!parameters.starts_with('?')) {
        throw std::runtime_error("unknown mode " + std::string(parameters));
      }
      return;
    default:
      throw std::runtime_error("unknown sequence ESC[" + std::string(parameters) + final);
  }
  wraps_next_ = false;
}

void Screen::Feed(std::string_view bytes) {
  pending_ += bytes;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const auto lead = static_cast<unsigned char>(rest[0]);
    if (lead == 0x1B) {
      if (rest.size() < 2) break;
      if (rest[1] != '[')
        throw std::runtime_error("unknown sequence ESC " + std::string(1, rest[1]));
      const size_t end = rest.find_first_not_of("0123456789;?", 2);
      if (end == std::string_view::npos) break;
      Escape(rest.substr(2, end - 2), rest[end]);
      rest.remove_prefix(end + 1);
      continue;
    }
    const size_t length = SequenceLength(lead);
    if (rest.size() < length) break;
    const std::string character(rest.substr(0, length));
    rest.remove_prefix(length);
    if (lead == '\r') {
      column_ = 0;
      wraps_next_ = false;
    } else if (lead == '\n') {
      LineFeed();
    } else if (lead == '\b') {
      column_ = std::max(column_ - 1, 0);
      wraps_next_ = false;
    } else if (lead == '\t') {
      column_ = std::min(column_ / static_cast<int>(kTabWidth) * static_cast<int>(kTabWidth) +
                             static_cast<int>(kTabWidth),
                         columns_ - 1);
    } else if (lead >= 0x20) {
      Put(character, WidthOf(character));
    }
  }
  pending_ = std::string(rest);
}

std::string Screen::TextOf(const Row& row) {
  std::string text;
  for (const std::string& cell : row.cells) text += cell;
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

std::vector<std::string> Screen::Rows() const {
  std::vector<std::string> rows;
  for (const Row& row : lines_) rows.push_back(TextOf(row));
  while (!rows.empty() && rows.back().empty()) rows.pop_back();
  return rows;
}

std::string Screen::Text() const {
  std::string text;
  for (const Row& row : lines_) {
    if (&row != &lines_.front() && !row.continues) {
      text.erase(text.find_last_not_of(' ') + 1);
      text += '\n';
    }
    for (const std::string& cell : row.cells) text += cell;
  }
  text.erase(text.find_last_not_of(" \n") + 1);
  return text;
}

}  // namespace rullama::cli_test
