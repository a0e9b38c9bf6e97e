// The picture on a terminal after it received some bytes: enough of an xterm for the program's
// output and for a line editor. Everything that scrolled off the top is kept. Unknown escape
// sequences throw, so that a test cannot pass by misunderstanding them. Thread safety: none.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rullama::cli_test {

class Screen {
 public:
  Screen(int columns, int rows) : columns_(columns), rows_(rows) {}

  void Feed(std::string_view bytes);

  // The rows as they are shown, without blanks at their ends and without empty rows at the bottom.
  [[nodiscard]] std::vector<std::string> Rows() const;
  // The same as text; rows that continue a line that was too long are joined with it.
  [[nodiscard]] std::string Text() const;

 private:
  struct Row {
    std::vector<std::string> cells;  // a wide character is followed by an empty cell
    bool continues = false;          // the row above was too long
  };

  void Put(const std::string& character, int width);
  void LineFeed();
  void Escape(std::string_view parameters, char final);
  void EraseInRow(int mode);
  void EraseBelow();
  void ShiftCells(int count);
  Row& CurrentRow();
  [[nodiscard]] int Top() const;
  static std::string TextOf(const Row& row);

  int columns_;
  int rows_;
  std::vector<Row> lines_ = {Row{}};
  int row_ = 0;  // in lines_
  int column_ = 0;
  bool wraps_next_ = false;  // the last column is filled; the next character goes to the next row
  bool inserting_ = false;
  std::string pending_;  // the beginning of a sequence
};

}  // namespace rullama::cli_test
