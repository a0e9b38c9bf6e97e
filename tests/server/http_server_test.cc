// HTTP as clients send it: whole, in parts, wrong, too large, too slow.
#include "server/http/http_server.h"

#include <gmock/gmock.h>
#include <pthread.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <future>
#include <new>
#include <optional>
#include <string>
#include <thread>

#include "core/base/must_test_util.h"
#include "server/http/deadline.h"
#include "tests/server/client.h"

namespace rullama::server {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Answers with method, path and body.
void Echo(Exchange& exchange) {
  const HttpRequest& request = exchange.request();
  exchange.Send({.status = 200,
                 .content_type = "text/plain",
                 .body = request.method + " " + request.path + " " + request.body,
                 .fields = {}});
}

std::unique_ptr<HttpServer> Start(HttpHandler handler = Echo, HttpLimits limits = {},
                                  std::function<bool(const HttpRequest&)> wants_body = {}) {
  return Must(HttpServer::Start(
      {.limits = limits,
       .allowed = {.hosts = {"models.example"}, .origins = {"https://chat.example"}},
       .wants_body = std::move(wants_body)},
      std::move(handler)));
}

struct Exchanged {
  const char* name;
  std::string sent;
  int status;
};

std::string Get(const std::string& target, const std::string& fields = "Host: localhost\r\n") {
  return "GET " + target + " HTTP/1.1\r\nConnection: close\r\n" + fields + "\r\n";
}

TEST(HttpServerTest, EachRequestHasItsStatus) {
  const auto server = Start();
  std::string many_fields = "Host: localhost\r\n";
  for (int i = 0; i < 100; ++i) many_fields += "X-" + std::to_string(i) + ": 1\r\n";
  const Exchanged table[] = {
      {"plain", Get("/a"), 200},
      {"absolute form", Get("http://localhost/a"), 200},
      {"listed origin", Get("/a", "Host: localhost\r\nOrigin: https://chat.example\r\n"), 200},
      {"HTTP/1.0 without a host", "GET /a HTTP/1.0\r\n\r\n", 200},
      {"allowed name", Get("/a", "Host: Models.Example:80\r\n"), 200},
      {"IPv6", Get("/a", "Host: [::1]:80\r\n"), 200},
      {"own origin", Get("/a", "Host: localhost\r\nOrigin: http://localhost\r\n"), 200},
      {"no host", Get("/a", ""), 400},
      {"two hosts", Get("/a", "Host: localhost\r\nHost: localhost\r\n"), 400},
      {"foreign host", Get("/a", "Host: evil.example\r\n"), 403},
      {"IPv6 without a port", Get("/a", "Host: [::1]\r\n"), 200},
      {"more after IPv6", Get("/a", "Host: [::1]evil.com\r\n"), 403},
      {"half of IPv6", Get("/a", "Host: [::1\r\n"), 403},
      {"port that is a name", Get("/a", "Host: 127.0.0.1:evil.com\r\n"), 403},
      {"foreign origin", Get("/a", "Host: localhost\r\nOrigin: http://evil.example\r\n"), 403},
      {"no origin", Get("/a", "Host: localhost\r\nOrigin: null\r\n"), 403},
      {"bad escape", Get("/%zz"), 400},
      {"escaped zero", Get("/a%00b"), 400},
      {"up", Get("/a/../b"), 400},
      {"escaped up", Get("/a/%2e%2e/b"), 400},
      {"long path", Get("/" + std::string(2048, 'a')), 414},
      {"long header", Get("/a", "Host: localhost\r\nX: " + std::string(20000, 'a') + "\r\n"), 431},
      {"many fields", Get("/a", many_fields), 431},
      {"compressed", Get("/a", "Host: localhost\r\nContent-Encoding: gzip\r\n"), 415},
      {"compressed by the second field",
       Get("/a", "Host: localhost\r\nContent-Encoding: identity\r\nContent-Encoding: gzip\r\n"),
       415},
      {"chunks of HTTP/1.0",
       "POST /a HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n"
       "0\r\n\r\n",
       400},
      {"two codings",
       Get("/a",
           "Host: localhost\r\nTransfer-Encoding: chunked\r\n"
           "Transfer-Encoding: identity\r\n"),
       400},
      {"short chunk extension",
       Get("/a", "Host: localhost\r\nTransfer-Encoding: chunked\r\n") + "1;a=b\r\nx\r\n0\r\n\r\n",
       200},
      {"long chunk extension",
       Get("/a", "Host: localhost\r\nTransfer-Encoding: chunked\r\n") +
           "1;a=" + std::string(300, 'b') + "\r\nx\r\n0\r\n\r\n",
       400},
      {"curl's default", Get("/a", "Host: h\r\nHost2: a\r\n"), 403},
      {"length is not a number", Get("/a", "Host: localhost\r\nContent-Length: x\r\n"), 400},
      {"two lengths", Get("/a", "Host: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n"),
       400},
      {"length and chunks",
       Get("/a", "Host: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n"), 400},
      {"too long a body", Get("/a", "Host: localhost\r\nContent-Length: 67108865\r\n"), 413},
      {"no HTTP", "hello\r\n\r\n", 400},
      {"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
      {"control character", Get("/a", "Host: localhost\r\nX: a\001b\r\n"), 400},
  };
  for (const Exchanged& row : table) {
    Client client(server->port());
    client.Send(row.sent);
    const std::string answer = client.ReadAll();
    EXPECT_EQ(StatusOf(answer), row.status) << row.name << ": " << answer;
    const bool is_error = BodyOf(answer).find(R"("error":{)") != std::string::npos;
    EXPECT_EQ(is_error, row.status != 200) << row.name;
  }
}

TEST(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  const auto server = Start();
  Client client(server->port());
  std::string requests;
  for (int i = 0; i < 3; ++i) {
    requests += "GET /" + std::to_string(i) + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
  }
  client.Send(requests + Get("/last"));
  const std::string answers = client.ReadAll();
  size_t at = 0;
  for (const char* body : {"GET /0 ", "GET /1 ", "GET /2 ", "GET /last "}) {
    at = answers.find(body, at);
    ASSERT_NE(at, std::string::npos) << body << " in " << answers;
  }
}

TEST(HttpServerTest, ChunkedBodiesAndContinueAreUnderstood) {
  const auto server = Start();
  Client client(server->port());
  client.Send(
      "POST /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
      "Expect: 100-continue\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(client.ReadUntil("\r\n\r\n"), StartsWith("HTTP/1.1 100 Continue"));
  client.Send("3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
  EXPECT_THAT(client.ReadAll(), HasSubstr("POST /a abcde"));
}

TEST(HttpServerTest, SlowRequestsAreCutOff) {
  HttpLimits limits;
  limits.header_timeout = std::chrono::milliseconds(100);
  limits.body_timeout = std::chrono::milliseconds(100);
  const auto server = Start(Echo, limits);
  Client header(server->port());
  header.Send("GET /a HT");
  EXPECT_EQ(StatusOf(header.ReadAll()), 408);
  Client body(server->port());
  body.Send("POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nab");
  EXPECT_EQ(StatusOf(body.ReadAll()), 408);
}

TEST(HttpServerTest, ADeadlineThatIsStoppedWhileItExpiresDoesNothing) {
  boost::asio::io_context io;
  Deadline first(io.get_executor());
  Deadline second(io.get_executor());
  bool expired = false;
  first.Start(std::chrono::milliseconds(0), [&] { second.Stop(); });
  second.Start(std::chrono::milliseconds(1), [&] { expired = true; });
  // Both handlers are in the queue of `io` when the first one runs.
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  io.run();
  EXPECT_FALSE(expired);
}

TEST(HttpServerTest, ConnectionsWithoutARequestAreClosed) {
  HttpLimits limits;
  limits.idle_timeout = std::chrono::milliseconds(100);
  const auto server = Start(Echo, limits);
  Client idle(server->port());
  EXPECT_EQ(idle.ReadAll(), "");
}

TEST(HttpServerTest, StreamsComeInChunksAndEnd) {
  const auto server = Start([](Exchange& exchange) {
    exchange.Begin({.status = 200, .content_type = "text/plain", .body = {}, .fields = {}});
    exchange.Write("one");
    exchange.Write("two");
    exchange.End();
  });
  Client client(server->port());
  client.Send(Get("/a"));
  EXPECT_EQ(BodyOf(client.ReadAll()), "3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n");
  Client old(server->port());
  old.Send("GET /a HTTP/1.0\r\n\r\n");
  EXPECT_EQ(BodyOf(old.ReadAll()), "onetwo");
}

// A client sends `sent` and then no more. The handler of the request hears of it, and writes
// nothing.
void ExpectThatLeavingIsHeard(const std::string& sent) {
  std::promise<void> left;
  std::promise<bool> written;
  const auto server = Start([&](Exchange& exchange) {
    exchange.OnLeave([&left] { left.set_value(); });
    left.get_future().wait();
    exchange.OnLeave({});
    written.set_value(exchange.Write("x"));
  });
  Client client(server->port());
  client.Send(sent);
  client.EndSending();
  auto heard = written.get_future();
  ASSERT_EQ(heard.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  EXPECT_FALSE(heard.get());
}

TEST(HttpServerTest, AHandlerHearsThatItsClientLeft) {
  ExpectThatLeavingIsHeard("GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n");
}

TEST(HttpServerTest, AHandlerHearsThatItsClientLeftAfterUnreadBytes) {
  const std::string more_than_is_read_ahead(100'000, 'G');
  ExpectThatLeavingIsHeard("GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n" + more_than_is_read_ahead);
}

TEST(HttpServerTest, MoreThanIsReadAheadIsReadLater) {
  const auto server = Start();
  Client client(server->port());
  std::string requests;
  for (int i = 0; i < 600; ++i) requests += "GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n";
  client.Send(requests + Get("/last"));
  EXPECT_THAT(client.ReadAll(), HasSubstr("GET /last "));
}

TEST(HttpServerTest, ABodyThatIsNotWantedIsNotRead) {
  const auto server =
      Start(Echo, {}, [](const HttpRequest& head) { return head.path != "/unwanted"; });
  for (const char* length : {"Content-Length: 60000000", "Transfer-Encoding: chunked"}) {
    Client client(server->port());
    client.Send("POST /unwanted HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n" +
                std::string(length) + "\r\n\r\n");
    const std::string answer = client.ReadUntil("POST /unwanted ");
    EXPECT_EQ(StatusOf(answer), 200) << "without the body, and without 100: " << answer;
    EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
    client.Send(std::string(100'000, 'x'));  // the answer is read in spite of it
    EXPECT_EQ(client.ReadAll(), "");
  }
  EXPECT_THAT(Ask(server->port(), "/wanted", "body"), HasSubstr("POST /wanted body"));
}

TEST(HttpServerTest, BodiesOfAllRequestsTogetherHaveALimit) {
  std::promise<void> go;
  std::shared_future<void> gone = go.get_future().share();
  std::promise<void> held;
  HttpLimits limits;
  limits.body_bytes = 1 << 20;
  limits.all_body_bytes = 1 << 20;
  const auto server = Start(
      [&](Exchange& exchange) {
        if (exchange.request().path == "/hold") {
          held.set_value();
          gone.wait();
        }
        exchange.Send({.status = 200, .body = {}, .fields = {}});
      },
      limits);
  Client first(server->port());
  first.Send(Post("/hold", std::string(600'000, 'x')));
  held.get_future().wait();
  const std::string second = std::string(600'000, 'x');
  const std::string refused = Ask(server->port(), "/a", second);
  EXPECT_EQ(StatusOf(refused), 503) << refused;
  EXPECT_THAT(refused, HasSubstr("too_many_bodies"));
  EXPECT_THAT(refused, HasSubstr("Retry-After: 1\r\n"));
  EXPECT_EQ(StatusOf(Ask(server->port(), "/a", std::string(60'000, 'x'))), 200) << "a small one";
  go.set_value();
  EXPECT_EQ(StatusOf(first.ReadAll()), 200);
  ASSERT_TRUE(server->WaitUntilIdle(std::chrono::seconds(60)));
  EXPECT_EQ(StatusOf(Ask(server->port(), "/a", second)), 200);
}

// The thread of the sockets is held up here, so that the write finds out first.
TEST(HttpServerTest, AHandlerThatWritesHearsThatItsClientLeftBeforeTheWriteFails) {
  std::promise<void> listens;
  std::promise<void> held;
  std::promise<void> release;
  std::promise<void> closed;
  std::promise<bool> heard;
  const auto server = Start([&](Exchange& exchange) {
    const bool holds = exchange.request().path == "/hold";
    std::promise<void> left;
    std::atomic<bool> has_left = false;
    exchange.OnLeave([&, holds] {
      has_left = true;
      if (!holds) return;
      held.set_value();
      release.get_future().wait();
      left.set_value();
    });
    if (holds) {
      listens.set_value();
      left.get_future().wait();
      exchange.OnLeave({});
      return;
    }
    exchange.Begin({.status = 200, .content_type = "text/plain", .body = {}, .fields = {}});
    exchange.Write("x");
    closed.get_future().wait();
    // The pause keeps the buffer of the socket from filling before the system knows of the close.
    while (exchange.Write("x")) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    exchange.OnLeave({});
    heard.set_value(has_left);
  });
  Client holder(server->port());
  auto leaver = std::make_optional<Client>(server->port());
  leaver->Send("GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n");
  leaver->ReadUntil("1\r\nx\r\n");
  holder.Send("GET /hold HTTP/1.1\r\nHost: localhost\r\n\r\n");
  listens.get_future().wait();
  holder.EndSending();
  held.get_future().wait();
  leaver.reset();
  closed.set_value();
  auto told = heard.get_future();
  const auto status = told.wait_for(std::chrono::seconds(60));
  release.set_value();
  ASSERT_EQ(status, std::future_status::ready);
  EXPECT_TRUE(told.get());
}

TEST(HttpServerTest, AClientThatDoesNotReadHasNotLeft) {
  std::promise<bool> written;
  std::atomic<bool> left = false;
  HttpLimits limits;
  limits.write_timeout = std::chrono::milliseconds(100);
  const auto server = Start(
      [&](Exchange& exchange) {
        exchange.OnLeave([&left] { left = true; });
        exchange.Begin({.status = 200, .content_type = "text/plain", .body = {}, .fields = {}});
        const std::string much(1 << 20, 'x');
        while (exchange.Write(much)) {
        }
        exchange.OnLeave({});
        written.set_value(left);
      },
      limits);
  Client client(server->port());
  client.Send("GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_FALSE(written.get_future().get());
}

TEST(HttpServerTest, ConnectionsBeyondTheLimitAreTold) {
  HttpLimits limits;
  limits.connections = 1;
  const auto server = Start(Echo, limits);
  Client first(server->port());
  first.Send("GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(first.ReadUntil("GET /a "), HasSubstr("200 OK"));
  Client second(server->port());
  EXPECT_EQ(StatusOf(second.ReadAll()), 503);
}

TEST(HttpServerTest, AConnectionThatWaitsForARequestGivesItsPlaceToANewOne) {
  HttpLimits limits;
  limits.connections = 1;
  limits.idle_reuse = std::chrono::milliseconds(0);
  const auto server = Start(Echo, limits);
  Client first(server->port());
  first.Send("GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n");
  first.ReadUntil("GET /a ");
  // It waits for its next request only some time after its client has read the answer.
  int status = 503;
  while (status == 503) {
    Client second(server->port());
    second.Send(Get("/a"));
    status = StatusOf(second.ReadAll());
  }
  EXPECT_EQ(status, 200);
  EXPECT_EQ(first.ReadAll(), "");
}

TEST(HttpServerTest, OnlySoManyConnectionsAreToldOfTheLimit) {
  HttpLimits limits;
  limits.connections = 1;
  limits.refused_connections = 1;
  const auto server = Start(Echo, limits);
  Client first(server->port());
  first.Send("GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n");
  first.ReadUntil("GET /a ");
  Client second(server->port());  // stays open until it is closed or has been told for a while
  EXPECT_THAT(second.ReadUntil("too_many_connections"), StartsWith("HTTP/1.1 503"));
  Client third(server->port());
  EXPECT_EQ(third.ReadAll(), "");
}

// While it lives, the system refuses every new thread of the process: its stack fits nowhere.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge = before_;
    pthread_attr_setstacksize(&huge, size_t{1} << 60);
    EXPECT_EQ(pthread_setattr_default_np(&huge), 0);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;
  ~NoThreads() { EXPECT_EQ(pthread_setattr_default_np(&before_), 0); }

 private:
  pthread_attr_t before_;
};

TEST(HttpServerTest, ARequestThatGetsNoThreadIsToldSo) {
  const auto server = Start();
  {
    const NoThreads none;
    Client client(server->port());
    client.Send(Get("/a"));
    const std::string answer = client.ReadAll();
    EXPECT_EQ(StatusOf(answer), 503);
    EXPECT_THAT(answer, HasSubstr("\"out_of_memory\""));
  }
  Client client(server->port());
  client.Send(Get("/a"));
  EXPECT_EQ(StatusOf(client.ReadAll()), 200);
  EXPECT_TRUE(server->WaitUntilIdle(std::chrono::seconds(60)));
}

TEST(HttpServerTest, ARequestThatGetsNoMemoryIsToldSo) {
  const auto server = Start([](Exchange& exchange) {
    if (exchange.request().path == "/begun")
      exchange.Begin({.status = 200, .body = {}, .fields = {}});
    throw std::bad_alloc();
  });
  Client whole(server->port());
  whole.Send(Get("/whole"));
  const std::string answer = whole.ReadAll();
  EXPECT_EQ(StatusOf(answer), 503);
  EXPECT_THAT(answer, HasSubstr("\"out_of_memory\""));
  Client begun(server->port());
  begun.Send(Get("/begun"));
  const std::string part = begun.ReadAll();
  EXPECT_EQ(StatusOf(part), 200);
  EXPECT_THAT(part, EndsWith("\r\n\r\n"));  // without the chunk that ends an answer
}

TEST(HttpServerTest, APortInUseIsAnError) {
  const auto server = Start();
  const auto second = HttpServer::Start({.port = server->port()}, Echo);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().id, "server.bind");
}

TEST(HttpServerTest, DrainingLetsRunningAnswersEnd) {
  std::promise<void> go;
  std::promise<void> started;
  const auto server = Start([&](Exchange& exchange) {
    started.set_value();
    go.get_future().wait();
    Echo(exchange);
  });
  Client client(server->port());
  client.Send("GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n");
  started.get_future().wait();
  server->StopListening();
  EXPECT_FALSE(server->WaitUntilIdle(std::chrono::milliseconds(1)));
  go.set_value();
  EXPECT_THAT(client.ReadAll(), HasSubstr("GET /a "));
  EXPECT_TRUE(server->WaitUntilIdle(std::chrono::seconds(60)));
}

}  // namespace
}  // namespace rullama::server
