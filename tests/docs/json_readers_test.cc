// CONTRIBUTING.md: JSON that comes from outside is read by core/base/json_reader.h.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <string_view>

#include "tests/docs/source_text.h"

namespace rullama {
namespace {

namespace fs = std::filesystem;

// Files that call the library's parser, and what they give it.
const std::map<std::string, std::string_view> kParsers = {
    {"cli/bench/bench_output.cc", "a number that was formatted"},
    {"cli/chat/answer.cc", "arguments of a call, which were written from a value"},
    {"core/base/json_reader.cc", "foreign text"},
    {"server/anthropic/anthropic_tools.cc", "tools of a body that was read"},
    {"server/anthropic/messages_format.cc", "arguments of a call, which were written from a value"},
    {"server/ollama/endpoints_ollama.cc", "metadata that were written from a value"},
    {"server/endpoints_slots.cc", "settings that were written from values"},
    {"server/json_body.cc", "a body that was read"},
    {"server/ollama/ollama_format.cc", "arguments of a call, which were written from a value"},
    {"server/ollama/ollama_request.cc", "messages that were written from a value"},
    {"web/calls.cc", "arguments of a call, which were written from a value"},
};

TEST(JsonReaders, ForeignTextIsReadInOnePlace) {
  static const std::regex kCall(R"re([Jj]son::(parse|accept|sax_parse|from_[a-z]+)\()re");
  std::set<std::string> parsers;
  for (const char* folder : {"backends", "cli", "conformance", "core", "engine", "media", "models",
                             "downloads", "python", "samplers", "server", "web"}) {
    for (const auto& entry : fs::recursive_directory_iterator(SourceDirectory() / folder)) {
      const std::string extension = entry.path().extension().string();
      if ((extension != ".cc" && extension != ".h") || IsForTests(entry.path().filename().string()))
        continue;
      const std::string text = ReadText(entry.path());
      if (text.find("son::") != std::string::npos && std::regex_search(text, kCall))
        parsers.insert(fs::relative(entry.path(), SourceDirectory()).generic_string());
    }
  }
  for (const std::string& file : parsers) {
    EXPECT_TRUE(kParsers.contains(file))
        << file << " parses JSON; use ReadJson() of core/base/json_reader.h for foreign text";
  }
  for (const auto& [file, text] : kParsers) {
    EXPECT_TRUE(parsers.contains(file)) << file << " no longer parses " << text;
  }
}

}  // namespace
}  // namespace rullama
