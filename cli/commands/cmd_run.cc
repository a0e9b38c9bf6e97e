// rullama run: answers a prompt, or holds a conversation on a terminal.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/chat/answer.h"
#include "cli/chat/canvas_view.h"
#include "cli/chat/chat_loop.h"
#include "cli/chat/media_input.h"
#include "cli/chat/prompt.h"
#include "cli/commands/command.h"
#include "cli/commands/downloaded_model.h"
#include "cli/commands/json_text.h"
#include "cli/commands/loading.h"
#include "cli/commands/options.h"
#include "cli/commands/placement_text.h"
#include "cli/reports/trace.h"
#include "engine/engine_access.h"

namespace rullama::cli {
namespace {

struct RunFlags {
  ConfigFlags config;
  PromptFlags prompt;
  std::string model;                      // the first word without an option
  std::vector<std::string> prompt_words;  // those after it
  std::vector<NamedMedium> media;         // --image, --audio and --video, in their order
  std::optional<std::string> max_tokens;
  std::optional<std::string> schema;       // --json-schema
  std::optional<std::string> schema_path;  // --json-schema-file
  std::optional<std::string> tools_path;   // --tools
  TraceFlags trace;
  bool escape = false;
  bool no_history = false;
  bool conversation = false;  // the prompt, if there is one, is the first message
  bool json = false;
  bool pull = false;
};

// -e: backslash sequences of the command line become characters.
void UnescapeTexts(RunFlags& flags) {
  if (flags.prompt.text) flags.prompt.text = Unescape(*flags.prompt.text);
  for (std::string& word : flags.prompt_words) word = Unescape(word);
  for (ConfigFlags::Setting& setting : flags.config.settings) {
    if (setting.path == "generation.system") setting.text = Unescape(setting.text);
  }
  for (std::string& stop : flags.config.stop) stop = Unescape(stop);
}

// -n: -1 means no limit, whatever the configuration says; 0 evaluates the prompt only. The context
// is a limit in any case.
Result<int64_t> MaxTokens(const RunFlags& flags, const Config& config) {
  if (!flags.max_tokens) return config.generation.max_tokens.value_or(INT64_MAX);
  RL_ASSIGN_OR_RETURN(const int64_t most,
                      ParseInteger(*flags.max_tokens, "--predict", -1, INT64_MAX));
  return most < 0 ? INT64_MAX : most;
}

// A JSON text of the command line. No text at all would mean that nothing is asked for.
Status CheckJsonText(const std::string& text, std::string_view option) {
  if (text.find_first_not_of(" \t\r\n") != std::string::npos) return OkStatus();
  return MakeError(ErrorKind::kUsage, "usage.option", "the JSON text of {} is empty", option);
}

// Holds the answer to a schema and to calls of tools. The engine reports their errors.
Status ApplyConstraints(const RunFlags& flags, Request& request) {
  if (flags.schema && flags.schema_path) {
    return MakeError(ErrorKind::kUsage, "usage.option",
                     "--json-schema and --json-schema-file exclude each other; give one");
  }
  if (flags.schema) {
    request.json_schema = *flags.schema;
    RL_RETURN_IF_ERROR(CheckJsonText(request.json_schema, "--json-schema"));
  }
  if (flags.schema_path) {
    RL_ASSIGN_OR_RETURN(request.json_schema, ReadTextFile(*flags.schema_path, kMaxPromptBytes));
    RL_RETURN_IF_ERROR(CheckJsonText(request.json_schema, "--json-schema-file"));
  }
  if (flags.tools_path) {
    RL_ASSIGN_OR_RETURN(request.tools, ReadTextFile(*flags.tools_path, kMaxPromptBytes));
    RL_RETURN_IF_ERROR(CheckJsonText(request.tools, "--tools"));
  }
  return OkStatus();
}

// The settings that every request of this command has, whatever its prompt.
Result<Request> MakeRequest(const RunFlags& flags, const ModelSession& session) {
  Request request{.every_draft = true};
  RL_ASSIGN_OR_RETURN(request.max_tokens, MaxTokens(flags, session.config()));
  if (flags.tools_path && (session.config().generation.raw || !flags.prompt.ids_path.empty())) {
    return MakeError(
        ErrorKind::kUsage, "usage.option",
        "--tools belongs to a conversation, and --raw and --prompt-ids continue a text "
        "as it is; leave one of them out");
  }
  RL_RETURN_IF_ERROR(ApplyConstraints(flags, request));
  request.sampling.seed = static_cast<int64_t>(session.sampler().seed);
  return request;
}

// `canvas` draws canvases, if stdout is to be drawn on.
void ShowOnTerminal(std::shared_ptr<CanvasView> canvas, AnswerView& view) {
  view.on_step = [canvas](const Event& step) {
    if (step.draft.canvas == 0 && step.done == 1) canvas->StartLine();
    return canvas->Show(step.draft);
  };
  view.on_text = [canvas, write = view.on_text](std::string_view text) -> Status {
    RL_RETURN_IF_ERROR(canvas->Clear());
    canvas->Wrote(text);
    return write(text);
  };
  view.on_end = [canvas, end = view.on_end]() -> Status {
    RL_RETURN_IF_ERROR(canvas->Clear());
    return end();
  };
}

AnswerView JsonView(Console& console) {
  const auto delta = [&console](const char* what, const nlohmann::json& part) {
    return console.Write(JsonLine({{"type", "delta"}, {what, part}}));
  };
  return {.on_text = [delta](std::string_view text) { return delta("text", text); },
          .on_thought = [delta](std::string_view text) { return delta("thought", text); },
          .on_call = [delta](const ToolCall& call) { return delta("tool_call", CallAsJson(call)); },
          .on_step =
              [&console](const Event& step) { return console.Write(JsonLine(StepAsJson(step))); }};
}

AnswerView TextView(const Engine& engine, Console& console) {
  AnswerView view;
  const auto in_line = std::make_shared<bool>(false);
  view.on_text = [&console, in_line](std::string_view text) {
    *in_line = true;
    return console.Write(text);
  };
  // Thoughts are not the answer.
  view.on_thought = [&console](std::string_view text) {
    console.WriteError(console.Colored(text, "2"));
    return OkStatus();
  };
  // Each call has a line of its own.
  view.on_call = [&console, in_line](const ToolCall& call) {
    const bool breaks = std::exchange(*in_line, false);
    return console.Write((breaks ? "\n" : "") + JsonLine(CallAsJson(call)));
  };
  view.on_end = [in_line] {
    *in_line = false;
    return OkStatus();
  };
  if (engine.info().canvas_length > 0 && console.stdout_draws()) {
    const Tokenizer& tokenizer = EngineAccess::SessionOf(engine).tokenizer();
    ShowOnTerminal(std::make_shared<CanvasView>(tokenizer, console), view);
  }
  return view;
}

Result<int> AnswerOnce(const RunFlags& flags, const Prompt& prompt, TraceFile* trace,
                       Console& console) {
  RL_ASSIGN_OR_RETURN(const auto engine, OpenEngine(flags.config, console, trace));
  const ModelSession& session = EngineAccess::SessionOf(*engine);
  RL_ASSIGN_OR_RETURN(Request request, MakeRequest(flags, session));
  request.reuse_prefix = false;  // there is no second request
  RL_ASSIGN_OR_RETURN(request, WithPrompt(std::move(request), *engine, prompt));
  AnswerView view = flags.json ? JsonView(console) : TextView(*engine, console);
  view.on_media = [&](std::span<const MediumFacts> media) {
    for (const std::string& line : DescribeAttachments(prompt.attachments, media)) {
      console.Note(line);
    }
  };
  RL_ASSIGN_OR_RETURN(const Answer answer, GenerateAnswer(*engine, request, view, console));
  if (flags.json) {
    RL_RETURN_IF_ERROR(console.Write(JsonLine(AnswerAsJson(answer, engine->info()))));
  } else {
    if (answer.ends_in_text()) RL_RETURN_IF_ERROR(console.Write("\n"));
    console.Note(DescribeAnswer(answer));
    if (flags.config.verbose) console.Note(DescribeTimes(answer));
  }
  if (flags.config.verbose) {
    DescribePlacement(session.session().placement(), session.devices().policy.device_names,
                      console);
  }
  return 0;
}

Result<int> Converse(const RunFlags& flags, std::string first_message, TraceFile* trace,
                     Console& console) {
  RL_ASSIGN_OR_RETURN(const auto engine, OpenEngine(flags.config, console, trace));
  RL_ASSIGN_OR_RETURN(const Request request, MakeRequest(flags, EngineAccess::SessionOf(*engine)));
  return RunChatLoop(*engine, request, TextView(*engine, console),
                     {.verbose = flags.config.verbose,
                      .history = !flags.no_history,
                      .first_message = std::move(first_message),
                      .first_media = flags.media},
                     console);
}

Result<int> RunTraced(const RunFlags& flags, TraceFile* trace, Console& console) {
  if (flags.conversation && (!StdinIsTerminal() || flags.json || !flags.prompt.ids_path.empty())) {
    return MakeError(ErrorKind::kUsage, "usage.prompt",
                     "--conversation needs a terminal to type on, and goes neither with --json nor "
                     "with --prompt-ids; leave it out to answer one prompt");
  }
  if (!flags.media.empty() && !flags.prompt.ids_path.empty()) {
    return MakeError(ErrorKind::kUsage, "usage.prompt",
                     "--prompt-ids excludes --image, --audio and --video: it is the whole prompt");
  }
  RL_ASSIGN_OR_RETURN(std::optional<Prompt> prompt, ReadPrompt(flags.prompt));
  if (flags.conversation) {
    return Converse(flags, prompt ? prompt->text : std::string(), trace, console);
  }
  if (prompt) {
    RL_ASSIGN_OR_RETURN(prompt->attachments, OpenAttachments(flags.media));
    return AnswerOnce(flags, *prompt, trace, console);
  }
  if (!StdinIsTerminal()) {
    return MakeError(ErrorKind::kUsage, "usage.prompt",
                     "there is no prompt; give one with -p TEXT, -f FILE or on stdin");
  }
  if (flags.json) {
    return MakeError(ErrorKind::kUsage, "usage.prompt",
                     "--json answers one prompt; give it with -p TEXT, -f FILE or on stdin");
  }
  return Converse(flags, {}, trace, console);
}

Result<int> Run(const RunFlags& flags, Console& console) {
  RL_ASSIGN_OR_RETURN(const auto trace, TraceFile::Create(flags.trace));
  for (const NamedMedium& medium : flags.media) {
    if (trace != nullptr) RL_RETURN_IF_ERROR(trace->CheckIsNot(medium.path));
  }
  return TraceFile::Finish(trace, RunTraced(flags, trace.get(), console));
}

// Words without an option are the model and the prompt; after -m, all of them are the prompt.
Result<RunFlags> WithWords(RunFlags flags) {
  std::vector<std::string> words = std::move(flags.prompt_words);
  if (!flags.model.empty()) words.insert(words.begin(), flags.model);
  if (words.empty()) return flags;
  const auto is_model = [](const auto& setting) { return setting.path == "model.path"; };
  if (!flags.config.hub && std::ranges::none_of(flags.config.settings, is_model)) {
    if (!MayNameModel(words.front())) {
      return MakeError(
          ErrorKind::kUsage, "usage.model",
          "'{}' stands where a model is expected: rullama run MODEL [PROMPT]; a prompt "
          "alone is given with -p",
          words.front());
    }
    flags.config.settings.push_back({"model.path", words.front(), "MODEL"});
    words.erase(words.begin());
  }
  if (words.empty()) return flags;
  if (flags.prompt.text || !flags.prompt.ids_path.empty()) {
    return MakeError(ErrorKind::kUsage, "usage.prompt",
                     "there are two prompts: '{}' and the one of {}; quote a prompt of several "
                     "words",
                     words.front(), flags.prompt.text ? "-p" : "--prompt-ids");
  }
  flags.prompt.text = fmt::format("{}", fmt::join(words, " "));
  return flags;
}

Result<int> TakeWordsAndRun(const RunFlags& flags, Console& console) {
  RL_ASSIGN_OR_RETURN(const RunFlags complete, WithWords(flags));
  for (const ConfigFlags::Setting& setting : complete.config.settings) {
    if (setting.path != "model.path") continue;
    RL_RETURN_IF_ERROR(OfferToPull(setting.text, flags.pull, console));
  }
  return Run(complete, console);
}

// With --json an error is a record too, so that a reader of stdout needs no second stream.
Result<int> RunAndReport(const RunFlags& flags, Console& console) {
  Result<int> result = TakeWordsAndRun(flags, console);
  if (result || !flags.json || result.error().id == kPipeClosedId) return result;
  const Error& error = result.error();
  RL_RETURN_IF_ERROR(console.Write(JsonLine({{"type", "error"},
                                             {"error",
                                              {{"code", error.id},
                                               {"message", error.message},
                                               {"exit_code", static_cast<int>(error.kind)}}}})));
  return result;
}

// The options add to one list, each as soon as it is read, so that it has their order.
void AddMediaOptions(CLI::App& command, RunFlags& flags) {
  const auto add = [&](const char* name, FileKind kind, const char* help) {
    command
        .add_option_function<std::string>(
            name,
            [&flags, kind](const std::string& path) {
              flags.media.push_back({kind, path});
            },
            help)
        ->trigger_on_parse()
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)  // called for each
        ->option_text("FILE")
        ->group("Prompt");
  };
  add("--image", FileKind::kPicture,
      "Picture (JPEG, PNG, WebP, GIF, BMP, HEIC, AVIF); may be repeated");
  add("--audio", FileKind::kSound, "Sound (WAV, FLAC, Ogg, MP3); may be repeated");
  add("--video", FileKind::kVideo, "Video, whose frames ffmpeg makes; may be repeated");
  AddImageTokensOption(command, flags.config);
}

void AddPromptOptions(CLI::App& command, RunFlags& flags) {
  PromptFlags& prompt = flags.prompt;
  command.add_option("MODEL", flags.model, "GGUF file, or an Ollama name: gemma4:e2b")
      ->option_text(" ");
  command
      .add_option("PROMPT", flags.prompt_words, "The prompt; without one, a chat or standard input")
      ->option_text(" ");
  command.add_option("-p,--prompt", prompt.text, "The prompt; text on stdin is put after it")
      ->option_text("TEXT")
      ->group("Prompt");
  command.add_option("-f,--file", prompt.path, "Read the prompt from a file")
      ->option_text("FILE")
      ->group("Prompt");
  command.add_option("--prompt-ids", prompt.ids_path, "Token ids instead of text, as they are")
      ->option_text("FILE")
      ->group("Prompt");
  AddMediaOptions(command, flags);
  AddSetting(command, flags.config, "--system", "generation.system", "System prompt (also -sys)")
      ->option_text("TEXT")
      ->group("Prompt");
  const auto add_flag = [&](const char* name, const char* path, const char* value,
                            const char* help) {
    command
        .add_flag_callback(
            name,
            [&flags, path, value, name] {
              flags.config.settings.push_back({path, value, name});
            },
            help)
        ->group("Prompt");
  };
  add_flag("--raw", "generation.raw", "true", "Continue the text; no chat template");
  add_flag("--think", "generation.thinking", "true", "Let the model think before it answers");
  add_flag("--no-think", "generation.thinking", "false", "Answer at once");
}

}  // namespace

void AddRunCommand(CLI::App& app, CommandContext& context) {
  const auto flags = std::make_shared<RunFlags>();
  CLI::App* command = app.add_subcommand("run", "Answer a prompt, or chat on a terminal");
  AddPromptOptions(*command, *flags);
  AddModelOptions(*command, flags->config);
  AddTowerOption(*command, flags->config);
  AddSamplerOptions(*command, flags->config);
  AddDraftOptions(*command, flags->config);
  AddWarmUpOption(*command, flags->config, "off");
  AddDiffusionOptions(*command, flags->config);
  command
      ->add_option(
          "-n,--predict", flags->max_tokens,
          "Most tokens to generate; 0 only evaluates the prompt [default -1: until the turn ends "
          "or the context is full]")
      ->option_text("N");
  command->add_option("--stop", flags->config.stop, "Stop before this text; may be repeated")
      ->option_text("TEXT")
      ->allow_extra_args(false);
  const auto add_constraint = [command](const char* name, std::optional<std::string>& value,
                                        const char* text, const char* help) {
    command->add_option(name, value, help)->option_text(text)->group("Form of the answer");
  };
  add_constraint("-j,--json-schema", flags->schema, "SCHEMA",
                 "Write JSON that is valid under this schema; {} allows any");
  add_constraint("--json-schema-file", flags->schema_path, "FILE",
                 "The schema from a file (also -jf)");
  add_constraint("--tools", flags->tools_path, "FILE",
                 "Functions that the model may call, as the list 'tools' of the OpenAI API");
  command->add_flag("-i,--conversation,--interactive", flags->conversation,
                    "Chat on the terminal (also -cnv), as without a prompt; a prompt is the first "
                    "message");
  command->add_flag("--no-history", flags->no_history,
                    "In a chat: neither read nor write the file of earlier messages");
  command
      ->add_flag("-e,--escape", flags->escape,
                 "Read \\n, \\t and the like in the prompt, --system and --stop as the characters "
                 "they name")
      ->group("Prompt");
  command->add_flag("--json", flags->json, "One JSON object per line: delta, final, error");
  command->add_flag("--pull", flags->pull, "Download the model without asking if it is not here")
      ->group("Model");
  AddTraceOptions(*command, flags->trace);
  command->footer(R"(Examples:
  rullama run gemma4:e2b "Why is the sky blue?"
  rullama -m gemma4:e2b -p "Why is the sky blue?" -n 200
  rullama run -hf ggml-org/gemma-3-270m-it-GGUF "Why is the sky blue?"
  rullama -m model.gguf -f question.txt --greedy
  git diff | rullama -m gemma4:e2b -p "Write a commit message for:"
  rullama -m gemma4:e2b -p "Three colours" -j '{"type": "array", "items": {"type": "string"}}'
  rullama run gemma4:e2b "What does the sign say?" --image sign.jpg --image-tokens 560
  rullama --config configs/tiny.yaml -p "The prince" --seed 7 --json)");
  command->callback([flags, &context] {
    if (flags->escape) UnescapeTexts(*flags);
    context.action = [flags, &context] { return RunAndReport(*flags, context.console); };
  });
}

}  // namespace rullama::cli
