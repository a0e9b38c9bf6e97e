// The file of `rullama serve --log-prompts`: the bodies of requests, for operators who want to read
// the requests.
//
// Ownership: owns the open file. Thread safety: all member functions from any thread.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "core/base/status.h"

namespace rullama::cli {

class PromptLog {
 public:
  // Opens the file to append to it; only its owner may read it. Error io.open.
  static Result<std::unique_ptr<PromptLog>> Open(const std::string& path);
  PromptLog(const PromptLog&) = delete;
  PromptLog& operator=(const PromptLog&) = delete;
  ~PromptLog();

  // Appends a line. Error io.write.
  Status Write(std::string_view line);

 private:
  PromptLog(int file, std::string path) : file_(file), path_(std::move(path)) {}

  int file_;
  std::string path_;
  std::mutex mutex_;  // one line at a time
};

}  // namespace rullama::cli
