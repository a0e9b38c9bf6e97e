#include "bench/server_load/load_client.h"

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "bench/server_load/answer_events.h"

namespace rullama::bench {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::use_awaitable;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;

constexpr unsigned kHttp11 = 11;
constexpr size_t kBodyBytes = 64 << 10;  // read at a time
constexpr size_t kMostOfRefusal = 200;   // characters that an error shows
constexpr std::chrono::seconds kListTime{30};

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

template <typename Body>
http::request<Body> NewRequest(http::verb verb, const char* path, const Target& target) {
  http::request<Body> request{verb, path, kHttp11};
  request.set(http::field::host, target.host);
  request.set(http::field::authorization, "Bearer " + target.api_key);
  return request;
}

std::string BodyOf(const PlannedRequest& planned, const Target& target) {
  const nlohmann::json body{
      {"model", planned.model.empty() ? target.model : planned.model},
      {"messages", {{{"role", "user"}, {"content", planned.prompt}}}},
      {"max_tokens", planned.tokens},
      {"temperature", 1},
      {"seed", planned.seed},
      {"ignore_eos", true},
      {"stream", true},
      {"stream_options", {{"include_usage", true}}},
  };
  return body.dump();
}

tcp::endpoint EndpointOf(const Target& target) {
  return {asio::ip::make_address(target.address), target.port};
}

class LoadClient {
 public:
  LoadClient(asio::io_context& io, const Target& target, Clock::time_point begin,
             std::chrono::duration<double> limit, LoadResult& result)
      : stream_(io), timer_(io), target_(target), begin_(begin), limit_(limit), result_(result) {}

  asio::awaitable<void> Run(const std::vector<PlannedRequest>& plan) {
    for (const PlannedRequest& planned : plan) {
      co_await WaitUntil(planned.start);
      if (SecondsSince(begin_) > limit_.count()) co_return;
      Sample sample;
      if (planned.start > 0) sample.late = SecondsSince(begin_) - planned.start;
      try {
        co_await Ask(planned, sample);
      } catch (const std::exception& error) {
        sample.error = error.what();
        Close();
      }
      result_.samples.push_back(std::move(sample));
    }
    Close();
  }

 private:
  asio::awaitable<void> WaitUntil(double seconds) {
    if (seconds <= SecondsSince(begin_)) co_return;
    timer_.expires_at(begin_ + std::chrono::duration_cast<Clock::duration>(
                                   std::chrono::duration<double>(seconds)));
    co_await timer_.async_wait(use_awaitable);
  }

  // Takes one answer. Times count from before the connection, if there is none yet.
  asio::awaitable<void> Ask(const PlannedRequest& planned, Sample& sample) {
    const Clock::time_point sent = Clock::now();
    stream_.expires_at(begin_ + std::chrono::duration_cast<Clock::duration>(2 * limit_));
    if (!stream_.socket().is_open()) {
      co_await stream_.async_connect(EndpointOf(target_), use_awaitable);
      stream_.socket().set_option(tcp::no_delay(true));
    }
    auto request = NewRequest<http::string_body>(http::verb::post, "/v1/chat/completions", target_);
    request.set(http::field::content_type, "application/json");
    request.body() = BodyOf(planned, target_);
    request.prepare_payload();
    co_await http::async_write(stream_, request, use_awaitable);

    beast::flat_buffer buffer;
    http::response_parser<http::buffer_body> parser;
    parser.body_limit(UINT64_MAX);
    co_await http::async_read_header(stream_, buffer, parser, use_awaitable);
    if (parser.get().result() != http::status::ok) {
      const std::string text = co_await ReadText(buffer, parser);
      throw std::runtime_error(std::to_string(parser.get().result_int()) + ": " +
                               text.substr(0, kMostOfRefusal));
    }
    co_await ReadEvents(buffer, parser, sent, sample);
    sample.total = SecondsSince(sent);
    if (!parser.keep_alive()) Close();
  }

  asio::awaitable<void> ReadEvents(beast::flat_buffer& buffer,
                                   http::response_parser<http::buffer_body>& parser,
                                   Clock::time_point sent, Sample& sample) {
    AnswerEvents events;
    Clock::time_point last;
    while (!parser.is_done()) {
      const std::string_view bytes = co_await ReadSome(buffer, parser);
      const Clock::time_point now = Clock::now();
      // Events that come in one piece have no gap between them.
      for (int left = events.Take(bytes); left > 0; --left) {
        if (!sample.first_text) {
          sample.first_text = std::chrono::duration<double>(now - sent).count();
        } else {
          sample.gaps.push_back(std::chrono::duration<double>(now - last).count());
        }
        last = now;
      }
    }
    if (!events.done()) throw std::runtime_error("a stream ended without [DONE]");
    sample.tokens = events.tokens();
    sample.prompt_tokens = events.prompt_tokens();
  }

  // The next bytes of the body, which the next call overwrites.
  asio::awaitable<std::string_view> ReadSome(beast::flat_buffer& buffer,
                                             http::response_parser<http::buffer_body>& parser) {
    auto& body = parser.get().body();
    body.data = bytes_.data();
    body.size = bytes_.size();
    boost::system::error_code code;
    co_await http::async_read_some(stream_, buffer, parser,
                                   asio::redirect_error(use_awaitable, code));
    if (code && code != http::error::need_buffer) throw boost::system::system_error(code);
    co_return std::string_view(bytes_.data(), bytes_.size() - body.size);
  }

  asio::awaitable<std::string> ReadText(beast::flat_buffer& buffer,
                                        http::response_parser<http::buffer_body>& parser) {
    std::string text;
    while (!parser.is_done()) text += co_await ReadSome(buffer, parser);
    co_return text;
  }

  void Close() {
    boost::system::error_code ignored;
    stream_.socket().close(ignored);
  }

  beast::tcp_stream stream_;
  asio::steady_timer timer_;
  const Target& target_;
  Clock::time_point begin_;
  std::chrono::duration<double> limit_;
  LoadResult& result_;
  std::vector<char> bytes_ = std::vector<char>(kBodyBytes);
};

}  // namespace

Target TargetOf(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) {
    throw std::runtime_error("'" + url + "' is not an address of a server here: expected " +
                             std::string(kScheme) + "HOST:PORT");
  }
  std::string host = url.substr(kScheme.size());
  host.resize(std::min(host.size(), host.find('/')));
  const size_t colon = host.rfind(':');
  const bool has_port = colon != std::string::npos && host.find(']', colon) == std::string::npos;
  std::string name = host.substr(0, has_port ? colon : host.size());
  const std::string port = has_port ? host.substr(colon + 1) : "80";
  if (name.starts_with('[') && name.ends_with(']')) name = name.substr(1, name.size() - 2);
  asio::io_context io;
  const auto found = tcp::resolver(io).resolve(name, port);
  for (const auto& entry : found) {
    if (!entry.endpoint().address().is_loopback()) {
      throw std::runtime_error("only servers of this machine are loaded, found " +
                               entry.endpoint().address().to_string());
    }
  }
  const tcp::endpoint endpoint = found.begin()->endpoint();
  return {.address = endpoint.address().to_string(),
          .port = endpoint.port(),
          .host = host,
          .model = {},
          .api_key = {}};
}

std::string FirstModel(const Target& target) {
  asio::io_context io;
  beast::tcp_stream stream(io);
  stream.expires_after(kListTime);
  stream.connect(EndpointOf(target));
  http::write(stream, NewRequest<http::empty_body>(http::verb::get, "/v1/models", target));
  beast::flat_buffer buffer;
  http::response<http::string_body> answer;
  http::read(stream, buffer, answer);
  const auto json = nlohmann::json::parse(answer.body(), nullptr, /*allow_exceptions=*/false);
  if (answer.result() != http::status::ok || !json.is_object() || !json.contains("data") ||
      !json["data"].is_array() || json["data"].empty()) {
    throw std::runtime_error("/v1/models has no model: " + answer.body().substr(0, kMostOfRefusal));
  }
  return json["data"].front().value("id", "");
}

LoadResult RunClients(const Target& target, const std::vector<std::vector<PlannedRequest>>& plans,
                      std::chrono::duration<double> limit) {
  asio::io_context io(1);
  LoadResult result;
  const Clock::time_point begin = Clock::now();
  std::vector<std::unique_ptr<LoadClient>> clients;
  for (const std::vector<PlannedRequest>& plan : plans) {
    clients.push_back(std::make_unique<LoadClient>(io, target, begin, limit, result));
    asio::co_spawn(io, clients.back()->Run(plan), asio::detached);
  }
  io.run();
  result.seconds = SecondsSince(begin);
  return result;
}

}  // namespace rullama::bench
