// A client of HTTP that sends exactly the bytes it is given.
#pragma once

#include <gtest/gtest.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace rullama::server {

// Thread safety: none. Errors of the connection end in exceptions, which fail a test.
class Client {
 public:
  explicit Client(uint16_t port) : socket_(io_) {
    socket_.connect({boost::asio::ip::make_address("127.0.0.1"), port});
  }

  void Send(std::string_view bytes) {
    boost::asio::write(socket_, boost::asio::buffer(bytes.data(), bytes.size()));
  }
  void EndSending() { socket_.shutdown(boost::asio::ip::tcp::socket::shutdown_send); }
  // Returns all bytes up to the close by the server.
  std::string ReadAll() {
    std::string text;
    boost::system::error_code end;
    boost::asio::read(socket_, boost::asio::dynamic_buffer(text), end);
    return text;
  }
  // Returns the bytes up to and including `mark`.
  std::string ReadUntil(std::string_view mark) {
    std::string text;
    while (text.find(mark) == std::string::npos) {
      char piece[1024];
      boost::system::error_code end;
      const size_t bytes = socket_.read_some(boost::asio::buffer(piece), end);
      if (end) break;
      text.append(piece, bytes);
    }
    return text;
  }

 private:
  boost::asio::io_context io_;
  boost::asio::ip::tcp::socket socket_;
};

// The bytes of a request with a body that closes the connection after its answer.
inline std::string Post(std::string_view path, std::string_view body,
                        std::string_view fields = "") {
  return "POST " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" +
         "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n" + std::string(fields) + "\r\n" + std::string(body);
}

// The status of an answer; 0 if there is none.
inline int StatusOf(std::string_view answer) {
  if (!answer.starts_with("HTTP/1.1 ")) return 0;
  return std::stoi(std::string(answer.substr(9, 3)));
}

inline std::string BodyOf(std::string_view answer) {
  const size_t end = answer.find("\r\n\r\n");
  return end == std::string_view::npos ? "" : std::string(answer.substr(end + 4));
}

// The answer to a request with a body, with its head.
inline std::string Ask(uint16_t port, std::string_view path, std::string_view body,
                       std::string_view fields = "") {
  Client client(port);
  client.Send(Post(path, body, fields));
  return client.ReadAll();
}

// The JSON of the answer to a request that succeeds.
inline nlohmann::json AskForJson(uint16_t port, std::string_view path, std::string_view body,
                                 std::string_view fields = "") {
  const std::string answer = Ask(port, path, body, fields);
  EXPECT_EQ(StatusOf(answer), 200) << answer;
  return nlohmann::json::parse(BodyOf(answer));
}

}  // namespace rullama::server
