#include "cli/chat/chat_loop.h"

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "cli/chat/chat_history.h"
#include "cli/chat/chat_input.h"
#include "cli/chat/conversation.h"
#include "cli/chat/media_words.h"
#include "cli/terminal/console.h"
#include "cli/terminal/line_input.h"
#include "cli/terminal/quiet_terminal.h"
#include "cli/terminal/signals.h"
#include "engine/engine_access.h"

namespace rullama::cli {
namespace {

constexpr std::string_view kHelp = R"(  /help, /?               this text
  /clear                  begin anew; the system prompt stays
  /image FILE             put a picture into the next message
  /audio FILE             put a sound into the next message
  /video FILE             put the frames of a video into the next message
  /set system [TEXT]      another system prompt, or none
  /set think | nothink    let the model think before it answers, or not
  /set verbose | quiet    show statistics after each answer, or not
  /set NAME VALUE         temperature, top_k, top_p, seed, num_predict and other
                          settings of the sampler, for the next answers
  /regen                  another answer to the last message
  /save FILE              write the messages to a file
  /load FILE              continue from the messages of a file
  /bye, /exit, /quit      leave
Ctrl-C stops an answer. At the prompt it clears the line; a second time it
leaves, as Ctrl-D does on an empty line.
"""                       begins and ends a message of several lines
\ at the end of a line    continues the message on the next one
Pasted lines are one message. Begin with a space to send a line that looks like
a command. Pictures, sounds and videos that are dropped on the terminal go with
the message. Arrow keys recall earlier messages, Ctrl-R searches them.
)";

// Settings that cannot change during a conversation.
constexpr std::string_view kFixedSettings[][2] = {{"num_ctx", "--ctx-size"}, {"stop", "--stop"}};

// Errors after which a conversation can continue.
bool IsSurvivable(const Error& error) {
  const std::string_view id = error.id;
  return id == "context.overflow" || id == "run.cancelled" || id == "io.open" ||
         id == "io.permission" || id.starts_with("chat.") || id.starts_with("media.");
}

// The kind of files that a command puts into the next message.
std::optional<FileKind> KindOfCommand(std::string_view name) {
  if (name == "image") return FileKind::kPicture;
  if (name == "audio") return FileKind::kSound;
  if (name == "video") return FileKind::kVideo;
  return std::nullopt;
}

bool TakesFile(std::string_view command) {
  return KindOfCommand(command) || command == "save" || command == "load";
}

bool IsFile(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

class ChatLoop {
 public:
  ChatLoop(Engine& engine, const Request& request, const AnswerView& view, const ChatOptions& chat,
           Console& console)
      : raw_(EngineAccess::SessionOf(engine).config().generation.raw),
        verbose_(chat.verbose),
        first_message_(chat.first_message),
        first_media_(chat.first_media),
        capacity_(engine.info().capacity),
        console_(console),
        conversation_(engine, request, view, console),
        history_(chat.history ? HistoryPath() : std::filesystem::path()),
        input_(LineInput::Open(!console.Colored("", "1").empty())) {
    for (const std::string& message : history_.Load()) input_->Remember(message);
  }

  Result<int> Run() {
    console_.Note("/help lists the commands; Ctrl-D or /bye ends the conversation");
    for (const NamedMedium& file : first_media_) RL_RETURN_IF_ERROR(OpenAndAttach(file));
    if (!IsBlank(first_message_)) {
      Keep(first_message_);
      RL_RETURN_IF_ERROR(Send(first_message_));
      ClearInterrupt();
    }
    for (;;) {
      std::string text;
      switch (input_->Read(assembler_.open() ? ". " : "> ", text)) {
        case LineInput::Event::kEnd:
          console_.WriteError("\n");
          return 0;
        case LineInput::Event::kInterrupted:
          console_.WriteError("\n");
          if (input_->typed()) interrupts_ = 0;
          // A SIGINT that is left pending makes the exit code.
          if (Terminated() || ++interrupts_ > 1) return 0;
          console_.WriteError("(Ctrl-C once more, Ctrl-D or /bye ends the conversation)\n");
          assembler_.Clear();
          break;
        case LineInput::Event::kText:
          interrupts_ = 0;
          RL_RETURN_IF_ERROR(Take(text));
          if (done_) return 0;
          break;
      }
      ClearInterrupt();
    }
  }

 private:
  Status Take(const std::string& text) {
    if (!assembler_.open() && IsBlank(text)) return OkStatus();
    if (const Status checked = CheckUtf8(text, "this"); !checked) {
      Fail(checked.error());
      return OkStatus();
    }
    if (!assembler_.open()) {
      if (const auto command = ParseChatCommand(text)) {
        Keep(text);
        return Execute(*command);
      }
    }
    const auto message = assembler_.Add(text);
    if (!message || IsBlank(*message)) return OkStatus();
    Keep(*message);
    return SendWithFiles(*message);
  }

  // A message that is nothing but files is about to be followed by their text.
  Status SendWithFiles(const std::string& message) {
    if (raw_) return Send(message);
    const MessageWithMedia found = TakeDroppedMedia(message, IsFile);
    for (const NamedMedium& medium : found.media) Attach(medium);
    return IsBlank(found.text) ? OkStatus() : Send(found.text);
  }

  Status OpenAndAttach(const NamedMedium& file) {
    RL_ASSIGN_OR_RETURN(Attachment attachment, OpenAttachment(file));
    return conversation_.Attach(std::move(attachment));
  }

  void Attach(const NamedMedium& named) {
    const Status attached = OpenAndAttach(named);
    if (!attached) return Fail(attached.error());
    console_.WriteError(
        fmt::format("The next message has the {} '{}'.\n", NameOf(named.kind), named.path));
  }

  // Keeps a message for the arrow keys, in this conversation and the next.
  void Keep(const std::string& text) {
    input_->Remember(text);
    history_.Append(text);
  }

  void Fail(const Error& error) { console_.Fail(error); }

  Status Send(const std::string& message) {
    return Show([&] { return conversation_.Say(message); });
  }

  // Shows the answer that `say` returns.
  Status Show(const std::function<Result<Answer>()>& say) {
    ClearInterrupt();
    const auto answer = SayQuietly(say);
    if (!answer) {
      if (!IsSurvivable(answer.error())) return tl::unexpected(answer.error());
      if (Terminated()) return OkStatus();
      if (answer.error().id == "run.cancelled") {
        console_.WriteError("\n");
      } else {
        Fail(answer.error());
      }
      return OkStatus();
    }
    const Completion& completion = answer->completion;
    const bool ended_early = completion.reason == StopReason::kCancelled;
    if (answer->ends_in_text() || ended_early) RL_RETURN_IF_ERROR(console_.Write("\n"));
    if (completion.reason == StopReason::kContextFull) {
      console_.Warn(
          fmt::format("the answer ends here: the context of {} tokens is full", capacity_));
    }
    if (verbose_) {
      console_.Note(DescribeAnswer(*answer));
      console_.Note(DescribeTimes(*answer));
    }
    return OkStatus();
  }

  // An answer has the screen for itself; keys pressed meanwhile belong to the next line.
  Result<Answer> SayQuietly(const std::function<Result<Answer>()>& say) {
    std::optional<QuietTerminal> quiet;
    if (input_->edits()) quiet.emplace();
    return say();
  }

  // Tells what a command has done, or why it has not.
  void Report(const Status& done, std::string_view text) {
    if (!done) return Fail(done.error());
    console_.WriteError(text);
  }

  Status Execute(const ChatCommand& command) {
    if (command.name != "regen") {
      ExecuteAtOnce(command);
      return OkStatus();
    }
    return Show([&] { return conversation_.SayAgain(); });
  }

  void ExecuteAtOnce(const ChatCommand& command) {
    const std::string_view name = command.name;
    if (name == "bye" || name == "exit" || name == "quit") {
      done_ = true;
    } else if (name == "help" || name == "?") {
      console_.WriteError(kHelp);
    } else if (name == "clear") {
      conversation_.Clear();
      console_.WriteError("The conversation begins anew.\n");
    } else if (TakesFile(name) && command.argument.empty()) {
      Fail({ErrorKind::kUsage, "chat.command", fmt::format("write /{} FILE", name)});
    } else if (const auto kind = KindOfCommand(name)) {
      Attach({*kind, UnquotedWord(command.argument)});
    } else if (name == "save") {
      const std::string path = UnquotedWord(command.argument);
      Report(conversation_.Save(path), "The messages are saved.\n");
    } else if (name == "load") {
      const std::string path = UnquotedWord(command.argument);
      Report(conversation_.Load(path), "The conversation continues from the file.\n");
    } else if (name == "set") {
      Set(SplitFirstWord(command.argument));
    } else {
      Fail({ErrorKind::kUsage, "chat.command",
            fmt::format("there is no command '/{}'; /help lists them, a space in front sends the "
                        "line to the model",
                        name)});
    }
  }

  void Set(const FirstWord& setting) {
    const std::string_view name = setting.word;
    if (name == "parameter") return Set(SplitFirstWord(setting.rest));  // as Ollama has it
    if (name == "verbose" || name == "quiet") {
      verbose_ = name == "verbose";
      if (verbose_) console_.set_verbosity(Verbosity::kNotes);
      console_.WriteError(verbose_ ? "Statistics are shown.\n" : "Statistics are not shown.\n");
      return;
    }
    for (const auto& [fixed, flag] : kFixedSettings) {
      if (name != fixed) continue;
      Fail({ErrorKind::kUsage, "chat.setting",
            fmt::format("'{}' cannot change within a session; leave and start again with {}", name,
                        flag)});
      return;
    }
    const bool thinking = name == "think" || name == "nothink";
    if (!thinking && name != "system") {
      SetAnswers(name == "temp" ? "temperature" : name, setting.rest);
    } else if (raw_) {
      Fail({ErrorKind::kUsage, "chat.setting",
            fmt::format("'{}' has no effect with --raw: text is continued as it is", name)});
    } else if (thinking) {
      conversation_.SetThinking(name == "think");
      console_.WriteError(name == "think" ? "The model thinks before it answers.\n"
                                          : "The model answers at once.\n");
    } else {
      conversation_.SetSystem(std::string(setting.rest));
      console_.WriteError(setting.rest.empty() ? "There is no system prompt.\n"
                                               : "The system prompt is set.\n");
    }
  }

  void SetAnswers(std::string_view name, std::string_view value) {
    const Result<bool> known = conversation_.SetAnswers(name, value);
    if (!known) return Fail(known.error());
    if (*known) return console_.WriteError(fmt::format("{} is {} from now on.\n", name, value));
    Fail({ErrorKind::kUsage, "chat.setting",
          fmt::format("there is no setting '{}'; expected system, think, nothink, verbose, quiet "
                      "or one of the sampler, such as temperature",
                      name)});
  }

  bool raw_;
  bool verbose_;
  std::string first_message_;
  std::vector<NamedMedium> first_media_;
  int64_t capacity_;
  Console& console_;
  Conversation conversation_;
  ChatHistory history_;
  std::unique_ptr<LineInput> input_;
  MessageAssembler assembler_;
  int interrupts_ = 0;  // in a row, at the prompt, without a key in between
  bool done_ = false;
};

}  // namespace

Result<int> RunChatLoop(Engine& engine, const Request& request, const AnswerView& view,
                        const ChatOptions& chat, Console& console) {
  return ChatLoop(engine, request, view, chat, console).Run();
}

}  // namespace rullama::cli
