// The chat page: one file of HTML (web/page and chat_page.js) that asks nobody but this server.
#pragma once

#include <string_view>

#include "server/http/exchange.h"

namespace rullama::server {

// The bytes of the page.
std::string_view ChatPageText();

// The page with a policy that lets only its own script and style run.
HttpAnswer ChatPage();

}  // namespace rullama::server
