#include "server/routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "server/endpoints.h"

namespace rullama::server {
namespace {

constexpr bool kOpen = false;  // needs no key

constexpr Route kRoutes[] = {
    {"GET", "/", Root, kOpen},
    {"GET", "/web/*", WebPage, kOpen, &ApiOptions::web},
    {"GET", "/health", Health, kOpen},
    {"GET", "/v1/health", Health, kOpen},
    {"GET", "/props", Props},
    {"GET", "/slots", Slots},
    {"POST", "/slots/*", ActOnSlot},
    {"GET", "/lora-adapters", ListAdapters},
    {"POST", "/lora-adapters", SetAdapters},
    {"GET", "/mcp/tools", ListTools, true, &ApiOptions::tools},
    {"POST", "/mcp/call", CallTool, true, &ApiOptions::tools},
    {"GET", "/metrics", MetricsText, true, &ApiOptions::metrics},
    {"GET", "/tokenizer_info", TokenizerInfo},
    {"POST", "/tokenize", Tokenize},
    {"POST", "/detokenize", Detokenize},
    {"POST", "/apply-template", ApplyTemplate},
    {"GET", "/v1/models", ListModels},
    {"GET", "/v1/models/*", ShowModel},
    {"POST", "/v1/chat/completions", ChatCompletions},
    {"POST", "/v1/completions", Completions},
    {"POST", "/v1/embeddings", Embeddings, true, &ApiOptions::embeddings},
    {"POST", "/v1/responses", Responses},
    {"POST", "/v1/responses/input_tokens", ResponsesInputTokens},
    {"POST", "/v1/messages", Messages},
    {"POST", "/v1/messages/count_tokens", MessagesCountTokens},
    {"GET", "/api/version", OllamaVersion},
    {"GET", "/api/tags", OllamaTags},
    {"POST", "/api/show", OllamaShow},
    {"GET", "/api/ps", OllamaPs},
    {"POST", "/api/chat", OllamaChat},
    {"POST", "/api/generate", OllamaGenerate},
    {"POST", "/api/embed", OllamaEmbed, true, &ApiOptions::embeddings},
    {"POST", "/api/embeddings", OllamaEmbeddings, true, &ApiOptions::embeddings},
    {"POST", "/api/pull", OllamaPull, true, &ApiOptions::allow_pull},
};

// Endpoints of both APIs that this server does not have, with any method.
constexpr std::string_view kNotHere[] = {
    "/v1/images/*",        "/v1/audio/*",       "/v1/files/*",       "/v1/uploads/*",
    "/v1/batches/*",       "/v1/fine_tuning/*", "/v1/assistants/*",  "/v1/threads/*",
    "/v1/vector_stores/*", "/v1/moderations/*", "/v1/realtime/*",    "/v1/conversations/*",
    "/v1/rerank/*",        "/v1/responses/*",   "/api/pull/*",       "/api/push/*",
    "/api/create/*",       "/api/copy/*",       "/api/delete/*",     "/api/blobs/*",
    "/api/me/*",           "/api/signout/*",    "/api/web_search/*", "/api/web_fetch/*",
};

bool Matches(std::string_view pattern, std::string_view path) {
  if (!pattern.ends_with("/*")) return pattern == path;
  pattern.remove_suffix(2);
  return path.starts_with(pattern) &&
         (path.size() == pattern.size() || path[pattern.size()] == '/');
}

FoundRoute FindPath(std::string_view method, std::string_view path, const ApiOptions& options) {
  FoundRoute found;
  if (method == "HEAD") method = "GET";
  for (const Route& route : kRoutes) {
    if (!Matches(route.path, path)) continue;
    if (route.enabled != nullptr && !(options.*route.enabled)) continue;
    if (route.method == method) {
      found.route = &route;
      return found;
    }
    found.allowed = route.method == "GET" ? "GET, HEAD" : route.method;
  }
  found.not_implemented =
      found.allowed.empty() &&
      std::any_of(std::begin(kNotHere), std::end(kNotHere),
                  [&](std::string_view pattern) { return Matches(pattern, path); });
  return found;
}

}  // namespace

FoundRoute FindRoute(std::string_view method, std::string_view path, const ApiOptions& options) {
  FoundRoute found = FindPath(method, path, options);
  if (found.route != nullptr || !found.allowed.empty() || found.not_implemented) return found;
  return FindPath(method, fmt::format("/v1{}", path), options);
}

}  // namespace rullama::server
