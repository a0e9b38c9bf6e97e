// The folder of the page that runs models in the browser (docs/browser.md), as it is built: its
// files are sent as they are, with the headers that give the page threads.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "server/http/exchange.h"

namespace rullama::server {

// The files of the page, as they were when they were read: a build that writes them again disturbs
// no answer.
//
// Thread safety: immutable after Read; any thread may ask.
class WebFolder {
 public:
  // Error server.web_folder unless the folder has a page whose files can be read.
  static Result<WebFolder> Read(const std::string& path);

  // The file of this name, or status 304 if the client has it: its ETag is in `if_none_match`, the
  // field of the request. Error io.open if there is none.
  [[nodiscard]] Result<HttpAnswer> Answer(std::string_view name,
                                          std::string_view if_none_match) const;

 private:
  struct File {
    std::string_view type;
    std::string etag;
    std::string bytes;
  };
  std::map<std::string, File, std::less<>> files_;
};

}  // namespace rullama::server
