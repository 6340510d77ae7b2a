#include "proto/base/output_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <string>

#include "proto/base/error.h"

namespace tpsim {
namespace {

namespace fs = std::filesystem;

class OutputFileTest : public ::testing::TestWithParam<OutputFile::Temporary> {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("tpsim-output-" + std::to_string(getpid()) + "-" +
                                           std::to_string(static_cast<int>(GetParam())));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  void put(const std::string& name, const std::string& text) const { std::ofstream(folder_ / name) << text; }
  static std::string read(const fs::path& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  struct stat status(const std::string& name) const {
    struct stat out = {};
    lstat((folder_ / name).c_str(), &out);
    return out;
  }
  void write(const fs::path& path, const std::string& text) const {
    OutputFile file(path, "--output", OutputFile::kSmallGzip, GetParam());
    file.write(text);
    file.commit();
  }
  std::string refusal(const fs::path& path) const {
    try {
      write(path, "x");
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }

  fs::path folder_;
};

INSTANTIATE_TEST_SUITE_P(Temporaries, OutputFileTest,
                         ::testing::Values(OutputFile::Temporary::kNameless, OutputFile::Temporary::kNamed));

TEST_P(OutputFileTest, AppearsWholeOrNotAtAll) {
  {
    OutputFile file(folder_ / "a", "--output", OutputFile::kSmallGzip, GetParam());
    file.write(std::string(200'000, 'x'));
    file.finish();
    EXPECT_FALSE(fs::exists(folder_ / "a"));
  }
  EXPECT_EQ(files(), 0u);
  write(folder_ / "a", "one");
  EXPECT_EQ(read(folder_ / "a"), "one");
  {
    OutputFile file(folder_ / "a", "--output", OutputFile::kSmallGzip, GetParam());
    file.write("two");
  }
  EXPECT_EQ(read(folder_ / "a"), "one");
  EXPECT_EQ(files(), 1u);
}

TEST_P(OutputFileTest, KeepsModeAndOwner) {
  put("a", "old");
  chmod((folder_ / "a").c_str(), 0640);
  const bool root = geteuid() == 0;
  if (root) {
    ASSERT_EQ(chown((folder_ / "a").c_str(), 12, 34), 0);
  }
  write(folder_ / "a", "new");
  const struct stat after = status("a");
  EXPECT_EQ(read(folder_ / "a"), "new");
  EXPECT_EQ(after.st_mode & 07777, 0640u);
  if (root) {
    EXPECT_EQ(after.st_uid, 12u);
    EXPECT_EQ(after.st_gid, 34u);
  }
  write(folder_ / "b", "new");
  const mode_t mask = umask(0);
  umask(mask);
  EXPECT_EQ(status("b").st_mode & 07777, 0666 & ~mask);
}

TEST_P(OutputFileTest, FollowsLinks) {
  put("a", "old");
  fs::create_symlink("a", folder_ / "link");
  fs::create_symlink(folder_ / "link", folder_ / "link2");
  fs::create_symlink("later", folder_ / "dangling");
  fs::create_symlink("loop", folder_ / "loop");
  write(folder_ / "link2", "new");
  write(folder_ / "dangling", "made");
  EXPECT_EQ(read(folder_ / "a"), "new");
  EXPECT_EQ(read(folder_ / "later"), "made");
  EXPECT_TRUE(S_ISLNK(status("link").st_mode) && S_ISLNK(status("link2").st_mode));
  EXPECT_TRUE(S_ISLNK(status("dangling").st_mode));
  EXPECT_NE(refusal(folder_ / "loop").find("--output: cannot be written"), std::string::npos);
  EXPECT_EQ(files(), 6u);
}

TEST_P(OutputFileTest, WritesThroughWhatIsNoRegularFile) {
  ASSERT_EQ(mkfifo((folder_ / "fifo").c_str(), 0600), 0);
  std::future<std::string> reader = std::async(std::launch::async, [&] { return read(folder_ / "fifo"); });
  const std::string text(300'000, 'y');
  write(folder_ / "fifo", text);
  EXPECT_EQ(reader.get(), text);
  EXPECT_TRUE(S_ISFIFO(status("fifo").st_mode));
  if (mknod((folder_ / "null").c_str(), S_IFCHR | 0600, makedev(1, 3)) == 0 &&
      mknod((folder_ / "full").c_str(), S_IFCHR | 0600, makedev(1, 7)) == 0) {
    write(folder_ / "null", text);
    EXPECT_EQ(refusal(folder_ / "full"), "--output: cannot be written: No space left on device");
    EXPECT_TRUE(S_ISCHR(status("null").st_mode) && S_ISCHR(status("full").st_mode));
  }
}

TEST_P(OutputFileTest, WritesToDescriptorsWhereTheyAre) {
  put("a", "");
  const int descriptor = open((folder_ / "a").c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_GE(descriptor, 0);
  ASSERT_EQ(::write(descriptor, "before ", 7), 7);
  write("/dev/fd/" + std::to_string(descriptor), "after");
  fs::create_symlink("/proc/self/fd/" + std::to_string(descriptor), folder_ / "link");
  write(folder_ / "link", " all");
  ASSERT_EQ(::write(descriptor, ".", 1), 1);
  close(descriptor);
  EXPECT_EQ(read(folder_ / "a"), "before after all.");
  EXPECT_NE(refusal(folder_ / "link").find("Bad file descriptor"), std::string::npos);
}

TEST_P(OutputFileTest, RefusesFoldersAndMissingPlaces) {
  fs::create_directories(folder_ / "sub");
  EXPECT_NE(refusal(folder_ / "sub").find("is a folder"), std::string::npos);
  EXPECT_NE(refusal(folder_ / "no" / "where").find("No such file"), std::string::npos);
  EXPECT_NE(refusal(folder_ / "new" / "").find("cannot be written"), std::string::npos);
  EXPECT_NE(refusal("").find("cannot be written"), std::string::npos);
  EXPECT_NE(refusal(folder_ / std::string(300, 'n')).find("cannot be written"), std::string::npos);
  EXPECT_EQ(files(), 1u);
}

TEST_P(OutputFileTest, CompressesByName) {
  std::string text;
  for (int i = 0; i < 50'000; ++i) text += std::to_string(i) + "\n";
  write(folder_ / "a.gz", text);
  write(folder_ / "b.gz", text);
  EXPECT_EQ(read(folder_ / "a.gz"), read(folder_ / "b.gz"));
  EXPECT_LT(fs::file_size(folder_ / "a.gz"), text.size() / 2);
  const gzFile file = gzopen((folder_ / "a.gz").c_str(), "rb");
  std::string back(text.size() + 1, '\0');
  const int size = gzread(file, back.data(), static_cast<unsigned>(back.size()));
  gzclose(file);
  EXPECT_EQ(back.substr(0, static_cast<std::size_t>(size)), text);
}

TEST_P(OutputFileTest, NamedOnesAreRemovedFromASignalHandler) {
  OutputFile file(folder_ / "a", "--output", OutputFile::kSmallGzip, GetParam());
  EXPECT_EQ(files(), GetParam() == OutputFile::Temporary::kNamed ? 1u : 0u);
  OutputFile::remove_temporaries();
  EXPECT_EQ(files(), 0u);
}

}  // namespace
}  // namespace tpsim
