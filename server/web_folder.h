// The folder of the page that runs models in the browser (docs/browser.md), as it is built: its
// files are sent as they are, with the headers that give the page threads.
#pragma once

#include <string>
#include <string_view>

#include "core/base/status.h"
#include "server/http/exchange.h"

namespace rullama::server {

// Error server.web_folder unless the folder has a page.
Status CheckWebFolder(const std::string& path);

// The file of the folder that has this name. Errors: io.open, also for one that pages do not ask
// for; io.permission.
Result<HttpAnswer> WebFile(const std::string& folder, std::string_view name);

}  // namespace rullama::server
