#include "cli/terminal/line_input.h"

#include <histedit.h>
#include <locale.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "cli/terminal/signals.h"
#include "core/base/utf8.h"

namespace rullama::cli {
namespace {

constexpr size_t kMaxLineBytes = size_t{1} << 20;
constexpr int kHistorySize = 1000;
constexpr wchar_t kReplacement = 0xFFFD;
constexpr std::string_view kPasteOn = "\x1b[?2004h";
constexpr std::string_view kPasteOff = "\x1b[?2004l";
constexpr std::wstring_view kPasteEnd = L"\x1b[201~";
// Around characters of a prompt that take no room on the screen.
constexpr char kHidden = '\1';

void WriteTo(int fd, std::string_view text) {
  // Nothing can be done about an error here.
  [[maybe_unused]] const ssize_t written = ::write(fd, text.data(), text.size());
}

// Lines as the terminal's own editing gives them.
class PlainInput final : public LineInput {
 public:
  explicit PlainInput(int out) : out_(out) {}

  Event Read(const std::string& prompt, std::string& text) override {
    WriteTo(out_, prompt);
    typed_ = false;
    SetEditing(true);
    const Event event = ReadLine(text);
    SetEditing(false);
    return event;
  }
  // The terminal's own editing shows only whole lines.
  [[nodiscard]] bool typed() const override { return typed_; }
  [[nodiscard]] bool edits() const override { return false; }
  void Remember(const std::string&) override {}

 private:
  Event ReadLine(std::string& line) {
    for (;;) {
      const size_t end = buffer_.find('\n');
      if (end != std::string::npos) {
        line = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        return Event::kText;
      }
      if (Terminated()) return Event::kEnd;
      if (Interrupted()) {
        buffer_.clear();
        return Event::kInterrupted;
      }
      if (!WaitForInput()) continue;
      char chunk[4096];
      const ssize_t count = ::read(STDIN_FILENO, chunk, sizeof(chunk));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0 || buffer_.size() > kMaxLineBytes) return Event::kEnd;
      buffer_.append(chunk, static_cast<size_t>(count));
      typed_ = true;
    }
  }

  int out_;
  bool typed_ = false;
  std::string buffer_;
};

// libedit works with wide characters; input is UTF-8 whatever the user's language is.
void UseUtf8() {
  ::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) ::setlocale(LC_CTYPE, "C.UTF-8");
}

struct FileCloser {
  void operator()(FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<FILE, FileCloser>;

class EditedInput final : public LineInput {
 public:
  // Null if the terminal refuses.
  static std::unique_ptr<EditedInput> Open(int out, bool color) {
    UseUtf8();
    auto input = std::unique_ptr<EditedInput>(new EditedInput(out, color));
    input->in_.reset(::fdopen(::dup(STDIN_FILENO), "r"));
    input->file_.reset(::fdopen(::dup(out), "w"));
    if (!input->in_ || !input->file_) return nullptr;
    FILE* file = input->file_.get();
    input->edit_ = ::el_init("rullama", input->in_.get(), file, file);
    input->history_ = ::history_init();
    if (input->edit_ == nullptr || input->history_ == nullptr) return nullptr;
    input->SetUp();
    return input;
  }
  ~EditedInput() override {
    if (edit_ != nullptr) ::el_end(edit_);
    if (history_ != nullptr) ::history_end(history_);
  }
  EditedInput(const EditedInput&) = delete;
  EditedInput& operator=(const EditedInput&) = delete;

  Event Read(const std::string& prompt, std::string& text) override {
    prompt_ = color_ ? std::string() + kHidden + "\x1b[1m" + kHidden + prompt + kHidden +
                           "\x1b[0m" + kHidden
                     : prompt;
    typed_ = false;
    SetEditing(true);
    // The terminal is prepared before the prompt appears; otherwise early input would be shown
    // twice.
    ::el_set(edit_, EL_PREP_TERM, 1);
    WriteTo(out_, kPasteOn);
    // A new size needs no new line here: none is shown yet.
    if (TakeTerminalChange()) ::el_resize(edit_);
    int count = 0;
    const char* line = ::el_gets(edit_, &count);
    WriteTo(out_, kPasteOff);
    SetEditing(false);
    if (line == nullptr || count <= 0) {
      const bool interrupted = Interrupted() && !Terminated();
      if (interrupted) WriteTo(out_, "^C");
      return interrupted ? Event::kInterrupted : Event::kEnd;
    }
    text.assign(line, static_cast<size_t>(count));
    if (text.ends_with('\n')) text.pop_back();
    return Event::kText;
  }

  [[nodiscard]] bool typed() const override { return typed_; }
  [[nodiscard]] bool edits() const override { return true; }

  void Remember(const std::string& text) override {
    HistEvent event;
    ::history(history_, &event, H_ENTER, text.c_str());
  }

 private:
  EditedInput(int out, bool color) : out_(out), color_(color) {}

  static EditedInput& Of(EditLine* edit) {
    void* self = nullptr;
    ::el_get(edit, EL_CLIENTDATA, &self);
    return *static_cast<EditedInput*>(self);
  }

  static char* Prompt(EditLine* edit) { return Of(edit).prompt_.data(); }

  // Reads a character for libedit: returns 1 and sets the character, or returns -1.
  static int ReadCharacter(EditLine* edit, wchar_t* character) {
    std::string bytes;
    for (;;) {
      if (Interrupted() || Terminated()) return -1;
      if (TakeTerminalChange()) Of(edit).Redraw();
      if (!WaitForInput()) continue;
      char byte = 0;
      const ssize_t count = ::read(STDIN_FILENO, &byte, 1);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return -1;
      Of(edit).typed_ = true;
      bytes += byte;
      bool incomplete = false;
      const size_t length = Utf8SequenceLength(bytes, &incomplete);
      if (length == 0 && incomplete) continue;
      *character = length == 0 ? kReplacement : Decode(bytes);
      return 1;
    }
  }

  // Decodes one valid UTF-8 sequence.
  static wchar_t Decode(std::string_view bytes) {
    const auto lead = static_cast<unsigned char>(bytes[0]);
    if (bytes.size() == 1) return lead;
    wchar_t code = lead & (0x7F >> bytes.size());
    for (const char c : bytes.substr(1)) code = (code << 6) | (c & 0x3F);
    return code;
  }

  // All that is pasted becomes part of the line, its line ends too.
  static unsigned char Paste(EditLine* edit, int) {
    std::wstring pasted;
    wchar_t character = 0;
    while (!pasted.ends_with(kPasteEnd)) {
      if (pasted.size() > kMaxLineBytes || ReadCharacter(edit, &character) != 1) return CC_EOF;
      const bool second = character == L'\n' && pasted.ends_with(L'\r');
      if (second) pasted.pop_back();
      pasted += character;
    }
    pasted.resize(pasted.size() - kPasteEnd.size());
    for (wchar_t& c : pasted) {
      if (c == L'\r') c = L'\n';
    }
    while (pasted.ends_with(L'\n')) pasted.pop_back();
    if (!pasted.empty() && ::el_winsertstr(edit, pasted.c_str()) != 0) return CC_ERROR;
    return CC_REFRESH;
  }

  // Redraws the line after the terminal's size changed, or after the program was stopped and
  // another one used the terminal.
  void Redraw() {
    ::el_set(edit_, EL_PREP_TERM, 0);
    ::el_set(edit_, EL_PREP_TERM, 1);
    WriteTo(out_, kPasteOn);
    ::el_resize(edit_);
    ::el_set(edit_, EL_REFRESH);
  }

  void Bind(const char* keys, const char* function) {
    ::el_set(edit_, EL_BIND, keys, function, static_cast<const char*>(nullptr));
  }

  void SetUp() {
    ::el_set(edit_, EL_CLIENTDATA, static_cast<void*>(this));
    ::el_set(edit_, EL_EDITOR, "emacs");
    ::el_set(edit_, EL_PROMPT_ESC, &EditedInput::Prompt, kHidden);
    ::el_set(edit_, EL_GETCFN, &EditedInput::ReadCharacter);
    HistEvent event;
    ::history(history_, &event, H_SETSIZE, kHistorySize);
    ::history(history_, &event, H_SETUNIQUE, 1);
    ::el_set(edit_, EL_HIST, ::history, history_);
    // The wide form: the narrow one would leak its copies of the names.
    ::el_wset(edit_, EL_ADDFN, L"rullama-paste", L"insert what the terminal pastes",
              &EditedInput::Paste);
    Bind("\x1b[200~", "rullama-paste");
    Bind("\x1b[3~", "ed-delete-next-char");
    for (const char* keys : {"\x1b[1~", "\x1b[7~", "\x1b[H", "\x1bOH"})
      Bind(keys, "ed-move-to-beg");
    for (const char* keys : {"\x1b[4~", "\x1b[8~", "\x1b[F", "\x1bOF"})
      Bind(keys, "ed-move-to-end");
    Bind("\x1b[1;5D", "ed-prev-word");
    Bind("\x1b[1;5C", "em-next-word");
    Bind("^W", "ed-delete-prev-word");
    Bind("^R", "em-inc-search-prev");
  }

  int out_;
  bool color_;
  bool typed_ = false;
  std::string prompt_;
  File in_;
  File file_;
  EditLine* edit_ = nullptr;
  History* history_ = nullptr;
};

}  // namespace

std::unique_ptr<LineInput> LineInput::Open(bool color) {
  const bool shows_on_stderr = ::isatty(STDERR_FILENO) == 1 || ::isatty(STDOUT_FILENO) != 1;
  const int out = shows_on_stderr ? STDERR_FILENO : STDOUT_FILENO;
  const char* term = std::getenv("TERM");
  const bool moves = term != nullptr && *term != '\0' && std::string_view(term) != "dumb";
  if (moves && ::isatty(out) == 1) {
    if (auto edited = EditedInput::Open(out, color)) return edited;
  }
  return std::make_unique<PlainInput>(out);
}

}  // namespace rullama::cli
