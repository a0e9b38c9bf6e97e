#include "cli/reports/page.h"

#include <fmt/format.h>

#include "cli/reports/markup.h"
#include "cli/reports/style.h"

namespace rullama::cli {
namespace {

std::string RowMarkup(const std::vector<Cell>& cells, std::string_view tag) {
  std::string row = "<tr>";
  for (const Cell& cell : cells) {
    const std::string css =
        cell.css_class.empty() ? "" : fmt::format(" class=\"{}\"", cell.css_class);
    row += fmt::format("<{0}{1}>{2}</{0}>", tag, css, Escaped(cell.text));
  }
  return row + "</tr>\n";
}

std::string TableMarkup(const std::vector<Cell>& head, const std::vector<std::vector<Cell>>& rows) {
  std::string table = "<div class=\"wide\" tabindex=\"0\"><table>\n";
  if (!head.empty()) table += "<thead>" + RowMarkup(head, "th") + "</thead>\n";
  for (const std::vector<Cell>& row : rows) table += RowMarkup(row, "td");
  return table + "</table></div>\n";
}

}  // namespace

void Page::Section(std::string_view title) {
  body_ += fmt::format("<h2>{}</h2>\n", Escaped(title));
}

void Page::Subsection(std::string_view title) {
  body_ += fmt::format("<h3>{}</h3>\n", Escaped(title));
}

void Page::Paragraph(std::string_view text) { body_ += fmt::format("<p>{}</p>\n", Escaped(text)); }

void Page::Verdict(std::string_view text, bool good) {
  body_ += fmt::format("<p><span class=\"verdict {}\">{} {}</span></p>\n", good ? "good" : "bad",
                       good ? "✓" : "✗", Escaped(text));
}

void Page::Figure(std::string_view svg, std::string_view caption) {
  body_ += fmt::format(
      "<figure><div class=\"wide\" tabindex=\"0\">{}</div><figcaption>{}</figcaption></figure>\n",
      svg, Escaped(caption));
}

void Page::Drawing(std::string_view svg, std::string_view summary) {
  const std::string figure =
      fmt::format("<figure><div class=\"wide natural\" tabindex=\"0\">{}</div></figure>\n", svg);
  body_ += summary.empty() ? figure
                           : fmt::format("<details><summary>{}</summary>{}</details>\n",
                                         Escaped(summary), figure);
}

void Page::Table(const std::vector<Cell>& head, const std::vector<std::vector<Cell>>& rows) {
  body_ += TableMarkup(head, rows);
}

void Page::FoldedTable(std::string_view summary, const std::vector<Cell>& head,
                       const std::vector<std::vector<Cell>>& rows) {
  body_ += fmt::format("<details><summary>{}</summary>\n{}</details>\n", Escaped(summary),
                       TableMarkup(head, rows));
}

std::string Page::ToHtml() const {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" "
      "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
      "<title>{0}</title>\n<style>\n{1}{2}</style>\n</head>\n<body><main>\n<h1>{0}</h1>\n{3}"
      "</main></body>\n</html>\n",
      Escaped(title_), PictureStyle(), PageStyle(), body_);
}

}  // namespace rullama::cli
