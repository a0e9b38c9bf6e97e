#include "cli/reports/page.h"

#include <fmt/format.h>

#include "core/drawing/markup.h"
#include "core/drawing/style.h"

namespace rullama::cli {
namespace {

// The layout of a page; needs PictureStyle().
std::string_view PageStyle() {
  return R"css(*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
main{max-width:1080px;margin:0 auto;padding:24px 20px 64px}
h1{font-size:1.6rem;line-height:1.25;margin:0 0 8px;overflow-wrap:anywhere}
h2{font-size:1.25rem;margin:40px 0 8px;padding-top:16px;border-top:1px solid var(--line);overflow-wrap:anywhere}
h3{font-size:1rem;margin:28px 0 6px}
p{margin:8px 0;max-width:75ch;overflow-wrap:anywhere}.dim,figcaption{color:var(--dim)}
figure{margin:20px 0}figcaption{font-size:.9rem;margin-top:4px;max-width:85ch}
.wide{overflow-x:auto}.wide:focus-visible{outline:2px solid var(--c0)}
.wide svg{display:block;width:100%;min-width:800px;height:auto}.wide.natural svg{width:auto;min-width:0}
code,td.name{font-family:ui-monospace,monospace;font-size:.9em}code{overflow-wrap:anywhere}
table{border-collapse:collapse;font-size:.9rem}th{text-align:left;color:var(--dim);font-weight:600}
th,td{padding:4px 14px 4px 0;border-bottom:1px solid var(--line);vertical-align:top}
th.number,td.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.verdict{display:inline-block;padding:2px 12px;border-radius:6px;border:1.5px solid;font-weight:600}
.bad{color:var(--alarm)}.good{color:var(--good)}
details{margin:12px 0}summary{cursor:pointer;font-weight:600}
.flow{display:grid;grid-template-columns:1fr auto 1fr auto 1fr;gap:12px;align-items:center}
.flow ul{list-style:none;margin:0;padding:0;display:grid;gap:8px}
.flow li{background:var(--panel);border:1px solid var(--line);border-radius:6px;padding:6px 10px;font-size:.9rem;overflow-wrap:anywhere}
.flow li.bad{border:2px solid var(--alarm);color:inherit}.flow .arrow::before{content:"→";color:var(--dim);font-size:1.4rem}
@media (max-width:700px){main{padding:16px 14px 48px}.flow{grid-template-columns:1fr}
.flow .arrow{text-align:center}.flow .arrow::before{content:"↓"}th,td{padding-right:10px}}
)css";
}

std::string RowMarkup(const std::vector<Cell>& cells, std::string_view tag) {
  std::string row = "<tr>";
  for (const Cell& cell : cells) {
    const std::string css =
        cell.css_class.empty() ? "" : fmt::format(" class=\"{}\"", cell.css_class);
    row += fmt::format("<{0}{1}>{2}</{0}>", tag, css, drawing::Escaped(cell.text));
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
  body_ += fmt::format("<h2>{}</h2>\n", drawing::Escaped(title));
}

void Page::Subsection(std::string_view title) {
  body_ += fmt::format("<h3>{}</h3>\n", drawing::Escaped(title));
}

void Page::Paragraph(std::string_view text) {
  body_ += fmt::format("<p>{}</p>\n", drawing::Escaped(text));
}

void Page::Verdict(std::string_view text, bool good) {
  body_ += fmt::format("<p><span class=\"verdict {}\">{} {}</span></p>\n", good ? "good" : "bad",
                       good ? "✓" : "✗", drawing::Escaped(text));
}

void Page::Figure(std::string_view svg, std::string_view caption) {
  body_ += fmt::format(
      "<figure><div class=\"wide\" tabindex=\"0\">{}</div><figcaption>{}</figcaption></figure>\n",
      svg, drawing::Escaped(caption));
}

void Page::Drawing(std::string_view svg, std::string_view summary) {
  const std::string figure =
      fmt::format("<figure><div class=\"wide natural\" tabindex=\"0\">{}</div></figure>\n", svg);
  body_ += summary.empty() ? figure
                           : fmt::format("<details><summary>{}</summary>{}</details>\n",
                                         drawing::Escaped(summary), figure);
}

void Page::Table(const std::vector<Cell>& head, const std::vector<std::vector<Cell>>& rows) {
  body_ += TableMarkup(head, rows);
}

void Page::FoldedTable(std::string_view summary, const std::vector<Cell>& head,
                       const std::vector<std::vector<Cell>>& rows) {
  body_ += fmt::format("<details><summary>{}</summary>\n{}</details>\n", drawing::Escaped(summary),
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
      drawing::Escaped(title_), drawing::PictureStyle(), PageStyle(), body_);
}

}  // namespace rullama::cli
