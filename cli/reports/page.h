// An HTML page in one file, without scripts and without requests to anywhere. It is readable
// without a mouse: what wide content hides is reached by the keyboard, and every picture has a
// name. Not thread-safe. Names and text arguments may hold anything: they are escaped.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rullama::cli {

struct Cell {
  std::string text;
  std::string css_class = {};  // "number", "name", "bad"; ours, not escaped
};

class Page {
 public:
  explicit Page(std::string title) : title_(std::move(title)) {}

  void Section(std::string_view title);     // a heading below that of the page
  void Subsection(std::string_view title);  // a heading below that of a section
  void Paragraph(std::string_view text);
  // A frame with a word that says whether what the section is about passes.
  void Verdict(std::string_view text, bool good);
  // `svg` is markup, as from InlineSvg().
  void Figure(std::string_view svg, std::string_view caption);
  // The same in its own size; hidden until `summary` is opened, if there is one.
  void Drawing(std::string_view svg, std::string_view summary = {});
  void Table(const std::vector<Cell>& head, const std::vector<std::vector<Cell>>& rows);
  // The same, hidden until `summary` is opened.
  void FoldedTable(std::string_view summary, const std::vector<Cell>& head,
                   const std::vector<std::vector<Cell>>& rows);
  void Markup(std::string_view markup) { body_ += markup; }

  // The whole file.
  [[nodiscard]] std::string ToHtml() const;

 private:
  std::string title_;
  std::string body_;
};

}  // namespace rullama::cli
