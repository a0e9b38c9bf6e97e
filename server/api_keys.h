// The keys of the clients that may use the server.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/sha256.h"
#include "core/base/status.h"

namespace rullama::server {

// A key and a number that stands for it elsewhere, not 0.
struct KeyOwner {
  uint64_t client = 0;
  std::string name;
  std::string lasting = {};  // tells it from others in files, also after a restart
  // The same, and whatever the secret: for files that outlive the folder of the secret.
  std::string without_secret = {};
};

// Thread safety: immutable once filled. Keeps no key, only digests. Those that are compared are
// under a number that is drawn when the program starts, so that comparing them takes the same time
// whatever was given.
class ApiKeys {
 public:
  ApiKeys();
  // The numbers and lasting names of keys are those of any other start with this secret.
  explicit ApiKeys(std::string secret);

  // Lines "name:key" or "key"; a key has 8 to 256 visible characters of ASCII. Empty lines and
  // those that begin with '#' are passed over. `source` begins the message of an error:
  // server.api_key (kUsage).
  Status AddLines(std::string_view text, std::string_view source);
  // The same of a file or pipe. Errors: io.open; server.api_key also without a key, and above 1
  // MiB.
  Status AddFile(const std::string& path);

  // None of these keys. A key that is added there has the number that it has here.
  [[nodiscard]] ApiKeys WithoutKeys() const;

  [[nodiscard]] bool empty() const { return keys_.empty(); }
  // The owner of a key, or nothing.
  [[nodiscard]] std::optional<KeyOwner> Find(std::string_view key) const;

 private:
  struct Entry {
    Sha256Digest digest;
    Sha256Digest plain_digest;  // without the number
    std::string name;
    bool named = false;  // in the file
  };
  Status Add(std::string_view line, std::string_view source);
  [[nodiscard]] Sha256Digest DigestOf(std::string_view key) const;

  std::string salt_;
  std::vector<Entry> keys_;
};

}  // namespace rullama::server
