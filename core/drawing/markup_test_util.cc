#include "core/drawing/markup_test_util.h"

#include <fmt/format.h>

#include <regex>
#include <set>
#include <vector>

namespace rullama::drawing {
namespace {

bool IsVoid(const std::string& tag) { return tag == "meta" || tag == "br"; }

std::string FaultOfAttributes(const std::string& text) {
  static const std::regex kAttribute(R"re(\s+([a-zA-Z][-a-zA-Z0-9:]*)="([^"<]*)")re");
  std::set<std::string> names;
  std::string rest = text;
  for (std::smatch match;
       std::regex_search(rest, match, kAttribute, std::regex_constants::match_continuous);) {
    if (!names.insert(match[1]).second) return "twice: " + match[1].str();
    rest = match.suffix();
  }
  return rest.empty() ? "" : "not an attribute: " + rest;
}

}  // namespace

std::string MarkupFault(std::string_view markup) {
  static const std::regex kTag(R"re(^<(/?)([a-zA-Z][a-zA-Z0-9]*)([^>]*?)(/?)>)re");
  std::vector<std::string> open;
  for (size_t at = markup.find('<'); at != markup.npos; at = markup.find('<', at + 1)) {
    if (markup.substr(at).starts_with("<!DOCTYPE html>")) continue;
    const std::string text(markup.substr(at, markup.find('>', at) + 1 - at));
    std::smatch tag;
    if (!std::regex_match(text, tag, kTag)) return "not a tag: " + text;
    if (const std::string fault = FaultOfAttributes(tag[3]); !fault.empty()) return fault;
    if (tag[1].length() > 0) {
      if (open.empty() || open.back() != tag[2]) return "closes another element: " + text;
      open.pop_back();
    } else if (tag[4].length() == 0 && !IsVoid(tag[2])) {
      open.push_back(tag[2]);
    }
  }
  return open.empty() ? "" : "not closed: " + open.back();
}

std::string ForeignPart(std::string_view markup) {
  static const std::regex kTag("<[^>]*>");
  static const std::regex kText("\"[^\"]*\"");
  static const std::regex kForeign(
      R"re(^<(script|img|iframe|link|object|embed|image|use|a)\b|\s(src|href|style|on[a-z]+)\s*=)re");
  const std::string text(markup);
  for (std::sregex_iterator at(text.begin(), text.end(), kTag), end; at != end; ++at) {
    // The value of an attribute is text.
    if (std::regex_search(std::regex_replace(at->str(), kText, "\"\""), kForeign)) return at->str();
  }
  static const std::regex kForeignStyle("url\\(|@import");
  std::smatch found;
  return std::regex_search(text, found, kForeignStyle) ? found.str() : "";
}

}  // namespace rullama::drawing
