#include "core/gguf/atomic_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>

#include "core/base/read_file_test_util.h"

namespace rullama {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr std::array kBothKinds = {AtomicFile::Temporary::kUnnamed, AtomicFile::Temporary::kNamed};

class AtomicFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "atomic_file_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  [[nodiscard]] fs::path Path(const std::string& name) const { return folder_ / name; }
  [[nodiscard]] fs::path Put(const std::string& name, std::string_view content) const {
    std::ofstream(Path(name), std::ios::binary) << content;
    return Path(name);
  }
  [[nodiscard]] std::string Content(const std::string& name) const {
    return ReadWholeFile(Path(name));
  }
  [[nodiscard]] std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      names.push_back(entry.path().filename());
    }
    return names;
  }
  static Status Write(const fs::path& path, std::string_view text,
                      AtomicFile::Temporary kind = AtomicFile::Temporary::kUnnamed) {
    RL_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path, kind));
    RL_RETURN_IF_ERROR(file.Append(std::as_bytes(std::span(text))));
    return file.Commit();
  }
  static std::string IdOf(const Status& status) { return status ? "" : status.error().id; }
  // Runs `body` in a process of its own, which is then killed. Returns its id.
  template <typename Body>
  static pid_t Kill(Body body) {
    const pid_t process = ::fork();
    if (process == 0) {
      body();
      ::raise(SIGKILL);
    }
    ::waitpid(process, nullptr, 0);
    return process;
  }

  fs::path folder_;
};

TEST_F(AtomicFileTest, TheFileAppearsWhenItIsComplete) {
  for (const auto kind : kBothKinds) {
    const fs::path path = Put("out", "old");
    {
      auto file = AtomicFile::Create(path, kind);
      ASSERT_TRUE(file) << file.error().ToString();
      ASSERT_TRUE(file->Append(std::as_bytes(std::span("lost", 4))));
      EXPECT_EQ(Content("out"), "old");
    }
    EXPECT_THAT(Names(), ElementsAre("out"));
    ASSERT_TRUE(Write(path, "new", kind));
    EXPECT_EQ(Content("out"), "new");
    EXPECT_THAT(Names(), ElementsAre("out"));
    ASSERT_TRUE(Write(Path("second"), "2", kind));
    EXPECT_EQ(Content("second"), "2");
    fs::remove(Path("second"));
  }
}

TEST_F(AtomicFileTest, AFileKeepsItsMode) {
  for (const auto kind : kBothKinds) {
    const fs::path path = Put("secret", "old");
    fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
    ASSERT_TRUE(Write(path, "new", kind));
    EXPECT_EQ(Content("secret"), "new");
    EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  }
}

TEST_F(AtomicFileTest, LinksAreFollowed) {
  fs::create_directory(Path("sub"));
  (void)Put("sub/model", "old");
  fs::create_symlink("sub/model", Path("link"));
  fs::create_symlink("link", Path("link_of_link"));
  for (const auto kind : kBothKinds) {
    ASSERT_TRUE(Write(Path("link_of_link"), "new", kind));
    EXPECT_EQ(Content("sub/model"), "new");
    EXPECT_TRUE(fs::is_symlink(Path("link")) && fs::is_symlink(Path("link_of_link")));
    (void)Put("sub/model", "old");
  }
  fs::create_symlink("sub/not_yet", Path("dangling"));
  ASSERT_TRUE(Write(Path("dangling"), "made"));
  EXPECT_EQ(Content("sub/not_yet"), "made");
  EXPECT_TRUE(fs::is_symlink(Path("dangling")));
  fs::create_symlink("loop", Path("loop"));
  EXPECT_EQ(IdOf(Write(Path("loop"), "x")), "io.open");
}

TEST_F(AtomicFileTest, TheOtherNameOfAHardLinkKeepsItsContent) {
  const fs::path path = Put("one", "old");
  fs::create_hard_link(path, Path("two"));
  ASSERT_TRUE(Write(path, "new"));
  EXPECT_EQ(Content("one"), "new");
  EXPECT_EQ(Content("two"), "old");
}

// A terminal is a device that needs no privilege to make. Renaming over it would fail.
TEST_F(AtomicFileTest, ADeviceIsWrittenTo) {
  int outside = -1;
  int inside = -1;
  std::array<char, 128> name = {};
  ASSERT_EQ(::openpty(&outside, &inside, name.data(), nullptr, nullptr), 0);
  fs::create_symlink(name.data(), Path("link"));
  for (const fs::path& path : {fs::path(name.data()), Path("link")}) {
    const Status status = Write(path, "logits");
    ASSERT_TRUE(status) << status.error().ToString();
    std::array<char, 16> buffer = {};
    EXPECT_EQ(::read(outside, buffer.data(), buffer.size()), 6);
    EXPECT_STREQ(buffer.data(), "logits");
    EXPECT_TRUE(fs::is_character_file(name.data()));
  }
  EXPECT_THAT(Names(), ElementsAre("link"));
  ::close(inside);
  ::close(outside);
}

// Nodes of a private folder stand in for those of /dev, which a fault would destroy.
TEST_F(AtomicFileTest, ADeviceNodeStaysADevice) {
  const fs::path node = Path("null");
  ASSERT_EQ(::mknod(node.c_str(), S_IFCHR | 0600, makedev(1, 3)), 0)
      << "this test makes a device node, which needs root (CAP_MKNOD): " << std::strerror(errno);
  ASSERT_TRUE(Write(node, "gone"));
  EXPECT_TRUE(fs::is_character_file(node));
  const fs::path full = Path("full");
  ASSERT_EQ(::mknod(full.c_str(), S_IFCHR | 0600, makedev(1, 7)), 0);
  EXPECT_EQ(IdOf(Write(full, "too much")), "io.disk_full");
  EXPECT_TRUE(fs::is_character_file(full));
  EXPECT_THAT(Names(), UnorderedElementsAre("null", "full"));
}

TEST_F(AtomicFileTest, AFifoIsWrittenTo) {
  const fs::path fifo = Path("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  std::string received;
  std::jthread reader([&] {
    std::ifstream file(fifo, std::ios::binary);
    received.assign(std::istreambuf_iterator<char>(file), {});
  });
  const Status status = Write(fifo, "logits");
  EXPECT_TRUE(status) << status.error().ToString();
  // A writer that is not there would keep the reader waiting.
  const int fd = ::open(fifo.c_str(), O_WRONLY | O_NONBLOCK);
  if (fd >= 0) ::close(fd);
  reader.join();
  EXPECT_EQ(received, "logits");
  EXPECT_TRUE(fs::is_fifo(fifo));
}

TEST_F(AtomicFileTest, ADescriptorIsWrittenToWhereItIs) {
  const fs::path path = Put("log", "first ");
  const int fd = ::open(path.c_str(), O_WRONLY | O_APPEND);
  ASSERT_GE(fd, 0);
  const std::string number = std::to_string(fd);
  fs::create_symlink("/dev/fd/" + number, Path("link"));
  ASSERT_TRUE(Write("/dev/fd/" + number, "second "));
  ASSERT_TRUE(Write("/proc/self/fd/" + number, "third "));
  ASSERT_TRUE(Write(Path("link"), "fourth"));
  ::close(fd);
  EXPECT_EQ(Content("log"), "first second third fourth");
  EXPECT_THAT(Names(), UnorderedElementsAre("log", "link"));
  EXPECT_FALSE(Write("/dev/fd/" + number, "closed"));
}

TEST_F(AtomicFileTest, WhatIsReadIsNotReplaced) {
  const fs::path model = Put("model", "weights");
  fs::create_symlink("model", Path("link"));
  fs::create_hard_link(model, Path("hard"));
  for (const char* name : {"model", "link", "hard"}) {
    const auto file = AtomicFile::Create(Path(name));
    ASSERT_TRUE(file);
    const Status status = file->CheckIsNot(model);
    EXPECT_EQ(IdOf(status), "io.same_file") << name;
    EXPECT_EQ(status.error().kind, ErrorKind::kUsage);
    EXPECT_TRUE(file->CheckIsNot(""));
    EXPECT_TRUE(file->CheckIsNot(Path("missing")));
  }
  const auto other = AtomicFile::Create(Path("other"));
  EXPECT_TRUE(other->CheckIsNot(model));
  EXPECT_EQ(Content("model"), "weights");
}

TEST_F(AtomicFileTest, ImpossibleNamesAreNoticedAtOnce) {
  EXPECT_EQ(IdOf(Write("", "x")), "io.output_name");
  for (const fs::path& path : {folder_, Path(""), Path("new/"), Path("."), Path("no/such/file")}) {
    const auto file = AtomicFile::Create(path);
    ASSERT_FALSE(file) << path;
    EXPECT_EQ(file.error().id, "io.open") << path;
  }
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = Path("socket").string();
  ASSERT_LT(name.size(), sizeof(address.sun_path));
  name.copy(address.sun_path, name.size());
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  const Status socket = Write(Path("socket"), "x");
  EXPECT_EQ(IdOf(socket), "io.open");
  EXPECT_THAT(socket.error().message, HasSubstr("a socket"));
  ::close(fd);
}

TEST_F(AtomicFileTest, AFileThatMayNotBeWrittenIsNotReplaced) {
  const fs::path path = Put("fixed", "old");
  fs::permissions(path, fs::perms::owner_read | fs::perms::others_read);
  fs::permissions(folder_, fs::perms::all);
  const uid_t user = ::geteuid();
  // Root may write everything, so it becomes somebody else.
  ASSERT_TRUE(user != 0 || ::seteuid(65534) == 0);
  const Status status = Write(path, "new");
  ASSERT_TRUE(user != 0 || ::seteuid(user) == 0);
  EXPECT_EQ(IdOf(status), "io.permission");
  EXPECT_EQ(Content("fixed"), "old");
}

TEST_F(AtomicFileTest, NothingStaysOfAKilledProcess) {
  for (const auto kind : kBothKinds) {
    const fs::path path = Put("out", "old");
    Kill([&] {
      auto file = AtomicFile::Create(path, kind);
      if (file) (void)file->Append(std::vector<std::byte>(3 << 20));
      ::raise(SIGKILL);  // before the destructor
    });
    EXPECT_EQ(Content("out"), "old");
    if (kind == AtomicFile::Temporary::kNamed) {
      EXPECT_EQ(Names().size(), 2U);
    }
    ASSERT_TRUE(Write(path, "new", kind));
    EXPECT_THAT(Names(), ElementsAre("out"));
  }
}

TEST_F(AtomicFileTest, AKilledProcessLeavesNothingWhereFilesNeedNoName) {
  const int probe = ::open(folder_.c_str(), O_TMPFILE | O_WRONLY, 0600);
  if (probe >= 0) ::close(probe);
  Kill([&] {
    const auto file = AtomicFile::Create(Path("out"));
    ::raise(SIGKILL);
  });
  EXPECT_EQ(Names().size(), probe >= 0 ? 0U : 1U);
}

TEST_F(AtomicFileTest, OnlyLeftoversOfTheSameOutputAreRemoved) {
  const std::string dead = std::to_string(Kill([] {}));
  const std::string alive = std::to_string(::getpid());
  const std::string kept[] = {
      ".out.partial-" + alive + "-77",     // in use
      ".other.partial-" + dead + "-0",     // another output
      ".out.partial-" + dead + "-0.mine",  // not a name of ours
      ".out.partial-" + dead,              //
      "out.partial-" + dead + "-0",        //
  };
  for (const std::string& name : kept) (void)Put(name, "");
  (void)Put("target", "t");
  // A link is not ours, nor is what it leads to.
  fs::create_symlink("target", Path(".out.partial-" + dead + "-3"));
  (void)Put(".out.partial-" + dead + "-0", "left");
  // One that somebody holds, in another PID namespace for instance.
  const fs::path held = Put(".out.partial-" + dead + "-1", "held");
  const int lock = ::open(held.c_str(), O_WRONLY);
  ASSERT_EQ(::flock(lock, LOCK_EX), 0);
  ASSERT_TRUE(Write(Path("out"), "new"));
  ::close(lock);
  const auto names = Names();
  EXPECT_THAT(names, ::testing::Not(::testing::Contains(".out.partial-" + dead + "-0")));
  EXPECT_THAT(names, ::testing::Contains(held.filename().string()));
  EXPECT_THAT(names, ::testing::Contains(".out.partial-" + dead + "-3"));
  EXPECT_THAT(names, ::testing::Contains("target"));
  for (const std::string& name : kept) EXPECT_THAT(names, ::testing::Contains(name));
}

TEST_F(AtomicFileTest, ALimitOnTheSizeOfFilesIsAnError) {
  const auto before = ::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small{4096, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status =
      Write(Path("out"), std::string(2 << 20, 'x'), AtomicFile::Temporary::kNamed);
  ::setrlimit(RLIMIT_FSIZE, &limit);
  ::signal(SIGXFSZ, before);
  EXPECT_EQ(IdOf(status), "io.write");
  EXPECT_THAT(status.error().message, HasSubstr("ulimit -f"));
  EXPECT_THAT(Names(), IsEmpty());
}

}  // namespace
}  // namespace rullama
