// Arbitrary bytes as a client of HTTP sends them: whatever is answered is HTTP, and the server ends
// the connection when the client has ended its side.
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "server/http/http_server.h"

namespace {

using boost::asio::ip::tcp;
using rullama::server::Exchange;
using rullama::server::HttpServer;

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}

// Answers at once, or in parts if the path says so.
void Answer(Exchange& exchange) {
  if (exchange.request().path != "/parts") {
    exchange.Send({.status = 200, .body = exchange.request().body, .fields = {}});
  } else if (exchange.Begin({.status = 200, .body = {}, .fields = {}})) {
    exchange.Write(exchange.request().body);
    exchange.End();
  }
}

HttpServer& Server() {
  static const auto server = HttpServer::Start({}, Answer);
  Require(server.has_value(), "the server starts");
  return **server;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  boost::asio::io_context io;
  tcp::socket socket(io);
  boost::system::error_code failure;
  do {
    socket = tcp::socket(io);
    socket.connect({boost::asio::ip::address_v4::loopback(), Server().port()}, failure);
  } while (failure == boost::asio::error::interrupted);  // by the timer of the fuzzer
  Require(!failure, "the server takes connections");
  boost::system::error_code closed;  // the server may have answered and closed before the end
  boost::asio::write(socket, boost::asio::buffer(data, size), closed);
  socket.shutdown(tcp::socket::shutdown_send, closed);
  std::string answer;
  boost::asio::read(socket, boost::asio::dynamic_buffer(answer), closed);
  Require(answer.empty() || answer.starts_with("HTTP/1.1 "), "an answer is HTTP");
  return 0;
}
