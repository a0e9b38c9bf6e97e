// A client of HTTP that sends exactly the bytes it is given.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>

namespace rullama::server {

// Thread safety: none. Errors of the connection end in std::system_error, which fails a test.
// Sockets of the system: the templates of Boost.Asio would take each test seconds to compile.
class Client {
 public:
  explicit Client(uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      const int error = errno;
      ::close(socket_);
      throw std::system_error(error, std::generic_category(), "connect");
    }
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client() { ::close(socket_); }

  void Send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0) throw std::system_error(errno, std::generic_category(), "send");
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
  }
  void EndSending() const { ::shutdown(socket_, SHUT_WR); }
  // Returns all bytes up to the close by the server.
  [[nodiscard]] std::string ReadAll() const { return Read({}); }
  // Returns the bytes up to and including `mark`, and those that came with it.
  std::string ReadUntil(std::string_view mark) const { return Read(mark); }

 private:
  // Without a mark: up to the end.
  [[nodiscard]] std::string Read(std::string_view mark) const {
    std::string text;
    while (mark.empty() || text.find(mark) == std::string::npos) {
      char piece[4096];
      const ssize_t bytes = ::recv(socket_, piece, sizeof(piece), 0);
      if (bytes <= 0) break;
      text.append(piece, static_cast<size_t>(bytes));
    }
    return text;
  }

  int socket_;
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
