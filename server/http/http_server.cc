#include "server/http/http_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <new>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/alternate_stack.h"
#include "core/base/clock.h"
#include "core/base/printable.h"
#include "server/http/connection.h"

namespace rullama::server {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {
// Until memory is asked for again after the system has refused it.
constexpr std::chrono::milliseconds kMemoryPause{10};
}  // namespace

struct HttpServer::Impl {
  Impl() : acceptor(io) {}

  void Accept();
  void Admit(tcp::socket socket);
  // Closes the connection that has waited longest for a request, if any has waited long enough.
  bool CloseIdleOne(std::span<const std::shared_ptr<Connection>> open_ones) const;
  ApiResult<void> StartHandler(std::function<void()> work);
  void EndHandler();
  void RunSockets();
  std::vector<std::shared_ptr<Connection>> OpenConnections();

  asio::io_context io{1};
  // Keeps the thread of the sockets until the end.
  asio::executor_work_guard<asio::io_context::executor_type> guard = asio::make_work_guard(io);
  tcp::acceptor acceptor;
  bool accepting = false;  // a connection is waited for, or the pause before that
  std::shared_ptr<ConnectionContext> context;
  std::vector<std::weak_ptr<Connection>> connections;  // of the thread of the sockets
  std::thread thread;

  mutable std::mutex mutex;  // of what follows
  std::condition_variable idle;
  size_t handlers = 0;  // requests that are being answered
  size_t open = 0;
  bool closing = false;
};

std::vector<std::shared_ptr<Connection>> HttpServer::Impl::OpenConnections() {
  std::vector<std::shared_ptr<Connection>> open_ones;
  for (const auto& one : connections) {
    if (auto connection = one.lock()) open_ones.push_back(std::move(connection));
  }
  connections.assign(open_ones.begin(), open_ones.end());
  const std::lock_guard lock(mutex);
  open = open_ones.size();
  return open_ones;
}

void HttpServer::Impl::Accept() {
  acceptor.async_accept([this](const boost::system::error_code& failure, tcp::socket socket) {
    if (!acceptor.is_open()) return;
    accepting = false;
    try {
      if (!failure) Admit(std::move(socket));
    } catch (const std::bad_alloc&) {
      // Its socket, or its deadline, closes the connection.
    }
    if (!failure || failure == asio::error::connection_aborted) return Accept();
    // No descriptors are left: try again once some may be free.
    auto pause = std::make_shared<asio::steady_timer>(io, std::chrono::milliseconds(100));
    pause->async_wait([this, pause](const boost::system::error_code&) {
      accepting = false;
      if (acceptor.is_open()) Accept();
    });
    accepting = true;
  });
  accepting = true;
}

void HttpServer::Impl::Admit(tcp::socket socket) {
  boost::system::error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  const auto others = OpenConnections();
  const auto refused = static_cast<size_t>(
      std::ranges::count_if(others, [](const auto& one) { return one->refused(); }));
  const HttpLimits& limits = context->limits;
  const bool full = others.size() - refused >= limits.connections && !CloseIdleOne(others);
  if (full && refused >= limits.refused_connections) return;  // which closes the socket
  auto connection = std::make_shared<Connection>(std::move(socket), context);
  connections.push_back(connection);
  if (!full) return connection->Start();
  connection->RefuseAtOnce(MakeApiError(
      "too_many_connections",
      fmt::format("the server has {} connections, its limit (server.max_connections); close some",
                  limits.connections)));
}

bool HttpServer::Impl::CloseIdleOne(std::span<const std::shared_ptr<Connection>> open_ones) const {
  Connection* longest = nullptr;
  Clock::time_point since = Clock::now() - context->limits.idle_reuse;
  for (const auto& one : open_ones) {
    const auto idle_since = one->idle_since();
    if (!idle_since || *idle_since > since) continue;
    longest = one.get();
    since = *idle_since;
  }
  if (longest == nullptr) return false;
  longest->CloseWhenIdle();
  return true;
}

ApiResult<void> HttpServer::Impl::StartHandler(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex);
    if (closing) {
      return tl::unexpected(MakeApiError("shutting_down", "the server is shutting down"));
    }
    ++handlers;
  }
  try {
    std::thread([this, work = std::move(work)]() mutable {
      try {
        const AlternateStack stack;  // a request may load a model, which runs plugins
        work();
      } catch (const std::exception&) {
        // The exchange has gone, which closes the connection.
      }
      work = nullptr;  // with what it holds of the connection
      EndHandler();
    }).detach();
  } catch (const std::exception&) {  // std::system_error or std::bad_alloc
    EndHandler();
    return tl::unexpected(OutOfMemory());
  }
  return {};
}

void HttpServer::Impl::EndHandler() {
  const std::lock_guard lock(mutex);
  --handlers;
  idle.notify_all();
}

// Runs what the sockets have to do. A step of a connection that finds no memory ends that
// connection only, at the latest with its deadline or the end of its request.
void HttpServer::Impl::RunSockets() {
  for (;;) {
    try {
      if (acceptor.is_open() && !accepting) Accept();
      io.run();
      return;
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(kMemoryPause);
    }
  }
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpServerOptions& options,
                                                      HttpHandler handler) {
  auto impl = std::make_unique<Impl>();
  boost::system::error_code failure;
  tcp::resolver resolver(impl->io);
  const auto found =
      resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive, failure);
  if (!failure) {
    const tcp::endpoint endpoint = *found.begin();
    impl->acceptor.open(endpoint.protocol(), failure);
    if (!failure) impl->acceptor.set_option(tcp::acceptor::reuse_address(true), failure);
    if (!failure) impl->acceptor.bind(endpoint, failure);
    if (!failure) impl->acceptor.listen(asio::socket_base::max_listen_connections, failure);
  }
  if (failure) {
    return tl::unexpected(
        Error{ErrorKind::kIo, "server.bind",
              fmt::format("cannot listen on '{}', port {}: {}; choose another --host or --port, "
                          "or stop what listens there",
                          ShownName(options.host), options.port, failure.message())});
  }
  impl->context = std::make_shared<ConnectionContext>();
  impl->context->limits = options.limits;
  impl->context->allowed = options.allowed;
  impl->context->wants_body = options.wants_body;
  impl->context->body_memory = std::make_shared<BodyMemory>(
      std::max(options.limits.all_body_bytes, options.limits.body_bytes));
  impl->context->handler = std::move(handler);
  impl->context->start_handler = [impl = impl.get()](std::function<void()> work) {
    return impl->StartHandler(std::move(work));
  };
  impl->Accept();
  impl->thread = std::thread([impl = impl.get()] { impl->RunSockets(); });
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

uint16_t HttpServer::port() const {
  boost::system::error_code ignored;
  return impl_->acceptor.local_endpoint(ignored).port();
}

size_t HttpServer::connections() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->open;
}

void HttpServer::StopListening() {
  asio::post(impl_->io, [impl = impl_.get()] {
    boost::system::error_code ignored;
    impl->acceptor.close(ignored);
    for (const auto& connection : impl->OpenConnections()) connection->CloseWhenIdle();
  });
}

bool HttpServer::WaitUntilIdle(std::chrono::milliseconds limit) {
  std::unique_lock lock(impl_->mutex);
  return impl_->idle.wait_for(lock, limit, [this] { return impl_->handlers == 0; });
}

HttpServer::~HttpServer() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->closing = true;
  }
  asio::post(impl_->io, [impl = impl_.get()] {
    boost::system::error_code ignored;
    impl->acceptor.close(ignored);
    for (const auto& connection : impl->OpenConnections()) connection->Leave();
  });
  {
    std::unique_lock lock(impl_->mutex);
    impl_->idle.wait(lock, [this] { return impl_->handlers == 0; });
  }
  impl_->guard.reset();
  impl_->thread.join();
}

}  // namespace rullama::server
