#include "downloads/http_client.h"

#include <curl/curl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "core/base/check.h"
#include "core/base/printable.h"

namespace rullama::downloads {
namespace {

constexpr int kMaxRedirects = 10;
constexpr size_t kMaxSaidBytes = 4096;
constexpr long kReceiveBytes = 256 << 10;
constexpr long kConnectSeconds = 30;
constexpr size_t kMaxHeadBytes = 256 << 10;

bool IsRedirect(long status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

// Failures that another try does not mend.
bool IsTlsFailure(CURLcode code) {
  switch (code) {
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_PINNEDPUBKEYNOTMATCH:
    case CURLE_PEER_FAILED_VERIFICATION:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::string HttpHead::Field(const std::string& name) const {
  const auto found = fields.find(name);
  return found == fields.end() ? std::string() : found->second;
}

// One request, with libcurl's handle for the address it is at.
class HttpTransfer {
 public:
  HttpTransfer(HttpClient& owner, HttpRequest what)
      : client(owner), request(std::move(what)), easy(::curl_easy_init()), first(request.url) {
    RL_CHECK(easy != nullptr);
    outcome.head.url = request.url;
  }
  ~HttpTransfer() {
    ::curl_easy_cleanup(easy);
    ::curl_slist_free_all(headers);
  }
  HttpTransfer(const HttpTransfer&) = delete;
  HttpTransfer& operator=(const HttpTransfer&) = delete;

  // Prepares the handle for the address `outcome.head.url`.
  void SetUp();

  size_t TakeHeadLine(std::string_view line);
  size_t TakeBody(std::string_view bytes);
  curl_socket_t OpenSocket(const curl_sockaddr& address);

  HttpClient& client;
  HttpRequest request;
  CURL* easy;
  curl_slist* headers = nullptr;
  Url first;
  HttpOutcome outcome;
  bool done = false;
  bool from_public = false;  // an earlier address was public
  bool proxied = false;
  bool blocked = false;  // the address was not public, and may not be used
  size_t head_bytes = 0;
  char error[CURL_ERROR_SIZE] = {};

 private:
  bool EndHead();
};

struct HttpClient::Multi {
  CURLM* handle = nullptr;
  std::vector<std::unique_ptr<HttpTransfer>> transfers;
};

namespace {

size_t OnHeadLine(char* data, size_t size, size_t count, void* user) {
  return static_cast<HttpTransfer*>(user)->TakeHeadLine({data, size * count});
}
size_t OnBodyBytes(char* data, size_t size, size_t count, void* user) {
  return static_cast<HttpTransfer*>(user)->TakeBody({data, size * count});
}
curl_socket_t OnOpenSocket(void* user, curlsocktype /*purpose*/, curl_sockaddr* address) {
  return static_cast<HttpTransfer*>(user)->OpenSocket(*address);
}

}  // namespace

void HttpTransfer::SetUp() {
  const HttpClientOptions& options = client.options_;
  const Url& url = outcome.head.url;
  ::curl_easy_reset(easy);
  ::curl_slist_free_all(std::exchange(headers, nullptr));
  error[0] = '\0';
  head_bytes = 0;
  const auto add = [this](const std::string& line) {
    headers = ::curl_slist_append(headers, line.c_str());
  };
  add("Accept-Encoding: identity");
  for (const std::string& line : request.headers) add(line);
  if (!request.authorization.empty() && url.Origin() == first.Origin()) {
    add("Authorization: " + request.authorization);
  }
  const auto set = [this](CURLoption option, auto value) {
    RL_CHECK(::curl_easy_setopt(easy, option, value) == CURLE_OK);
  };
  const std::string proxy = ProxyOf(url, options.getenv);
  proxied = !proxy.empty();
  set(CURLOPT_URL, url.text.c_str());
  if (request.method == "POST") {
    add("Expect:");  // an answer to the head alone would cost a round trip
    set(CURLOPT_POST, 1L);
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    set(CURLOPT_POSTFIELDS, request.body.c_str());
  } else if (request.method != "GET") {
    set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
  }
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_HTTPHEADER, headers);
  set(CURLOPT_USERAGENT, options.user_agent.c_str());
  set(CURLOPT_PROXY, proxy.c_str());
  set(CURLOPT_NOPROXY, "");
  set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_QUICK_EXIT, 1L);  // a request that ends does not wait for the resolver
  set(CURLOPT_TCP_KEEPALIVE, 1L);
  set(CURLOPT_BUFFERSIZE, kReceiveBytes);
  set(CURLOPT_CONNECTTIMEOUT, std::min<long>(kConnectSeconds, options.stall_seconds));
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(options.stall_seconds));
  set(CURLOPT_ERRORBUFFER, static_cast<char*>(error));
  set(CURLOPT_PRIVATE, static_cast<void*>(this));
  set(CURLOPT_HEADERFUNCTION, &OnHeadLine);
  set(CURLOPT_HEADERDATA, static_cast<void*>(this));
  set(CURLOPT_WRITEFUNCTION, &OnBodyBytes);
  set(CURLOPT_WRITEDATA, static_cast<void*>(this));
  set(CURLOPT_OPENSOCKETFUNCTION, &OnOpenSocket);
  set(CURLOPT_OPENSOCKETDATA, static_cast<void*>(this));
  for (const char* name : {"CURL_CA_BUNDLE", "SSL_CERT_FILE"}) {
    const char* file = options.getenv(name);
    if (file != nullptr && *file != '\0') set(CURLOPT_CAINFO, file);
  }
}

size_t HttpTransfer::TakeHeadLine(std::string_view line) {
  head_bytes += line.size();
  if (head_bytes > kMaxHeadBytes) return 0;
  const size_t taken = line.size();
  if (line.starts_with("HTTP/")) {
    outcome.head.fields.clear();
    return taken;
  }
  while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back())) != 0) {
    line.remove_suffix(1);
  }
  if (line.empty()) return EndHead() ? taken : 0;
  const size_t colon = line.find(':');
  if (colon == line.npos) return taken;
  std::string name(line.substr(0, colon));
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  line.remove_prefix(colon + 1);
  while (!line.empty() && std::isspace(static_cast<unsigned char>(line.front())) != 0) {
    line.remove_prefix(1);
  }
  outcome.head.fields[name] = line;
  return taken;
}

bool HttpTransfer::EndHead() {
  ::curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &outcome.head.status);
  const bool success = outcome.head.status >= 200 && outcome.head.status < 300;
  if (!success || !request.on_head || request.on_head(outcome.head)) return true;
  outcome.stopped = true;
  return false;
}

size_t HttpTransfer::TakeBody(std::string_view bytes) {
  const long status = outcome.head.status;
  if (IsRedirect(status)) return bytes.size();
  if (status >= 200 && status < 300) {
    if (!request.on_body || request.on_body(bytes)) return bytes.size();
    outcome.stopped = true;
    return 0;
  }
  outcome.said += bytes.substr(0, kMaxSaidBytes - outcome.said.size());
  // A registry announces more for 416 than it sends.
  const bool enough = status == 416 || outcome.said.size() == kMaxSaidBytes;
  outcome.stopped = outcome.stopped || enough;
  return enough ? 0 : bytes.size();
}

curl_socket_t HttpTransfer::OpenSocket(const curl_sockaddr& address) {
  if (!proxied) {
    const bool is_public = IsPublicAddress(address.addr);
    if (from_public && !is_public) {
      blocked = true;
      return CURL_SOCKET_BAD;
    }
    client.public_[outcome.head.url.Origin()] = is_public;
  }
  return ::socket(address.family, address.socktype | SOCK_CLOEXEC, address.protocol);
}

HttpClient::HttpClient(HttpClientOptions options)
    : options_(std::move(options)), multi_(std::make_unique<Multi>()) {
  [[maybe_unused]] static const CURLcode begun = ::curl_global_init(CURL_GLOBAL_DEFAULT);
  multi_->handle = ::curl_multi_init();
  RL_CHECK(multi_->handle != nullptr);
  // Several parts of a file are to have several connections, with HTTP/2 as well.
  ::curl_multi_setopt(multi_->handle, CURLMOPT_PIPELINING, long{CURLPIPE_NOTHING});
}

HttpClient::~HttpClient() {
  while (!multi_->transfers.empty()) Drop(multi_->transfers.back().get());
  ::curl_multi_cleanup(multi_->handle);
}

HttpTransfer* HttpClient::Start(HttpRequest request) {
  auto transfer = std::make_unique<HttpTransfer>(*this, std::move(request));
  HttpTransfer* const started = transfer.get();
  multi_->transfers.push_back(std::move(transfer));
  started->SetUp();
  ::curl_multi_add_handle(multi_->handle, started->easy);
  return started;
}

void HttpClient::Drop(HttpTransfer* transfer) {
  ::curl_multi_remove_handle(multi_->handle, transfer->easy);
  std::erase_if(multi_->transfers, [transfer](const auto& held) { return held.get() == transfer; });
}

const HttpOutcome* HttpClient::OutcomeOf(const HttpTransfer& transfer) {
  return transfer.done ? &transfer.outcome : nullptr;
}

void HttpClient::Poll(std::chrono::milliseconds limit) {
  int running = 0;
  ::curl_multi_perform(multi_->handle, &running);
  bool finished = false;
  int left = 0;
  while (const CURLMsg* message = ::curl_multi_info_read(multi_->handle, &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    void* user = nullptr;
    ::curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &user);
    const CURLcode code = message->data.result;
    auto& transfer = *static_cast<HttpTransfer*>(user);
    ::curl_multi_remove_handle(multi_->handle, transfer.easy);
    Finish(transfer, code);
    finished = finished || transfer.done;
  }
  if (!finished)
    ::curl_multi_poll(multi_->handle, nullptr, 0, static_cast<int>(limit.count()), nullptr);
}

void HttpClient::Finish(HttpTransfer& transfer, int code) {
  HttpOutcome& outcome = transfer.outcome;
  if (options_.trace) {
    options_.trace(fmt::format("{} {} -> {}", transfer.request.method, outcome.head.url.Shown(),
                               outcome.head.status));
  }
  const bool follows = transfer.request.method == "GET" && IsRedirect(outcome.head.status);
  if (code == CURLE_OK && follows && Follow(transfer)) return;
  transfer.done = true;
  curl_off_t wait = 0;
  if (::curl_easy_getinfo(transfer.easy, CURLINFO_RETRY_AFTER, &wait) == CURLE_OK && wait > 0) {
    outcome.retry_after_s = wait;
  }
  if (code == CURLE_OK || outcome.stopped || outcome.refusal) return;
  const auto result = static_cast<CURLcode>(code);
  const std::string reason =
      ShownName(transfer.error[0] != '\0' ? transfer.error : ::curl_easy_strerror(result));
  if (transfer.blocked) {
    outcome.refusal = MakeError(ErrorKind::kIo, "pull.redirect",
                                "a public address redirects to '{}', which is on this machine or "
                                "in a private network; this is not followed",
                                ShownName(outcome.head.url.Origin()))
                          .value();
  } else if (IsTlsFailure(result)) {
    outcome.refusal =
        MakeError(ErrorKind::kIo, "pull.network",
                  "no trusted connection to '{}': {}; SSL_CERT_FILE names the file of "
                  "certificates",
                  ShownName(outcome.head.url.Origin()), reason)
            .value();
  } else {
    outcome.failure = reason;
  }
}

bool HttpClient::Follow(HttpTransfer& transfer) {
  HttpOutcome& outcome = transfer.outcome;
  const Url from = outcome.head.url;
  const auto refuse = [&](std::string_view why) {
    outcome.refusal =
        MakeError(ErrorKind::kIo, "pull.redirect", "'{}' {}", ShownName(from.Shown()), why).value();
    return false;
  };
  if (++outcome.head.redirects > kMaxRedirects) return refuse("redirects more than 10 times");
  const auto to = ResolveUrl(from, outcome.head.Field("location"));
  if (!to) return refuse("redirects to an address that is not one of http or https");
  if (from.encrypted() && !to->encrypted()) return refuse("redirects to an unencrypted address");
  const HostKind kind = KindOfHost(from.host);
  if (kind == HostKind::kName) {
    const auto known = public_.find(from.Origin());
    transfer.from_public |= known == public_.end() || known->second;
  } else {
    transfer.from_public |= kind == HostKind::kPublic;
  }
  const HostKind next = KindOfHost(to->host);
  if (transfer.from_public && (next == HostKind::kLoopback || next == HostKind::kPrivate)) {
    return refuse(
        fmt::format("redirects from a public address to '{}', which is on this machine "
                    "or in a private network",
                    ShownName(to->host)));
  }
  if (!CheckPlainHttp(*to, options_.insecure, false)) {
    return refuse("redirects to another machine without encryption");
  }
  outcome.head = {.status = 0, .url = *to, .redirects = outcome.head.redirects};
  transfer.SetUp();
  ::curl_multi_add_handle(multi_->handle, transfer.easy);
  return true;
}

}  // namespace rullama::downloads
