// Clients of a server that streams answers (/v1/chat/completions), all on one thread: the sockets
// of a load are many, and what a token takes here is a few microseconds.
//
// Thread safety: none.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/server_load/load_plan.h"
#include "bench/server_load/summary.h"

namespace rullama::bench {

struct Target {
  std::string address;  // of IP
  uint16_t port = 0;
  std::string host;  // of the field Host
  std::string model, api_key;
};

// The server of a URL, "http://127.0.0.1:8080". Errors: std::runtime_error for another scheme, and
// for an address that is not loopback: load is for one's own machine.
Target TargetOf(const std::string& url);

// The first model that the server lists. Errors: std::runtime_error.
std::string FirstModel(const Target& target);

struct LoadResult {
  std::vector<Sample> samples;
  double seconds = 0;
};

// Runs the plans of clients side by side, each on a connection of its own that it keeps; a plan's
// requests follow one another. No request begins after `limit`, and one that is not done by twice
// that time is given up.
LoadResult RunClients(const Target& target, const std::vector<std::vector<PlannedRequest>>& plans,
                      std::chrono::duration<double> limit);

}  // namespace rullama::bench
