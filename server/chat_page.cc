#include "server/chat_page.h"

#include <fmt/format.h>

#include <span>
#include <string>

#include "core/base/sha256.h"
#include "server/base64.h"

namespace rullama::server {
namespace {

// 'sha256-...' of what stands between the two tags.
std::string HashOf(std::string_view page, std::string_view open, std::string_view close) {
  const size_t begin = page.find(open) + open.size();
  const std::string_view text = page.substr(begin, page.find(close, begin) - begin);
  const Sha256Digest digest = Sha256(text);
  return fmt::format("'sha256-{}'", Base64(std::as_bytes(std::span(digest))));
}

}  // namespace

HttpAnswer ChatPage() {
  const std::string_view page = ChatPageText();
  static const std::string kPolicy = fmt::format(
      "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; img-src data:; "
      "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
      HashOf(page, "<script>", "</script>"), HashOf(page, "<style>", "</style>"));
  return {.status = 200,
          .content_type = "text/html; charset=utf-8",
          .body = std::string(page),
          .fields = {{"Content-Security-Policy", kPolicy},
                     {"Referrer-Policy", "no-referrer"},
                     {"Cache-Control", "no-cache"}}};
}

}  // namespace rullama::server
