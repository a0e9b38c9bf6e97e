// A conversation on a terminal: reads messages and commands, shows answers.
#pragma once

#include <string>
#include <vector>

#include "cli/chat/answer.h"
#include "cli/chat/media_words.h"

namespace rullama::cli {

struct ChatOptions {
  bool verbose = false;                       // statistics after each answer
  bool history = true;                        // read and write the file of earlier messages
  std::string first_message = {};             // sent before anything is typed
  std::vector<NamedMedium> first_media = {};  // before the first message
};

// Runs a conversation until /bye, Ctrl-D, two Ctrl-C in a row or SIGTERM. `request` is what every
// turn asks for, but for the prompt. The result is the exit code. Errors: those after which no
// answer is possible any more.
Result<int> RunChatLoop(Engine& engine, const Request& request, const AnswerView& view,
                        const ChatOptions& chat, Console& console);

}  // namespace rullama::cli
