#include "launch/simulation/checkpoint.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <string_view>

#include "proto/versions.h"
#include "tests/unit/rank/config/errors.h"

namespace tpsim::launch {
namespace {

std::string sealed(std::string_view body) {
  ByteHash hash;
  hash.add(body);
  return checkpoint_head() + std::string(body) + checkpoint_tail(hash);
}

std::string refusal_of(const std::string& text) {
  return rank::refusal([&text] { checkpoint_body(text, "f"); });
}

TEST(CheckpointText, GivesBackItsBody) {
  EXPECT_EQ(checkpoint_body(sealed("the state"), "f"), "the state");
  EXPECT_EQ(checkpoint_body(sealed(""), "f"), "");
  EXPECT_EQ(refusal_of("{}"), "--resume f: is not a checkpoint; give a file that --checkpoint wrote");
  std::string other = sealed("the state");
  other[std::string_view("tpsim checkpoint\n").size()] ^= 64;
  EXPECT_EQ(refusal_of(other),
            fmt::format("--resume f: has version {}, and this program goes on from version {}; begin anew",
                        kCheckpointVersion ^ 64, kCheckpointVersion));
}

TEST(CheckpointText, DamagedInAnyWayIsRefused) {
  std::mt19937_64 random(3);
  std::string state(300, '\0');
  for (char& byte : state) byte = static_cast<char>(random());
  const std::string text = sealed(state);
  for (std::size_t length = 0; length < text.size(); ++length)
    ASSERT_NE(refusal_of(text.substr(0, length)), "") << length;
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = text;
      damaged[at] = static_cast<char>(damaged[at] ^ 1 << bit);
      ASSERT_NE(refusal_of(damaged), "") << at;
    }
  }
}

TEST(RunIdentity, NamesWhatDiffers) {
  const RunIdentity was = {{"--page-size", "1"},
                           {"--enable-mixed-chunk", "true"},
                           {"(requests)", "3 requests"},
                           {"(program)", "a"},
                           {"(deployment)", "b"}};
  const auto refused = [&was](const RunIdentity& is) {
    return rank::refusal([&] { check_identity(was, is, "f"); });
  };
  EXPECT_EQ(refused(was), "");
  RunIdentity is = was;
  is["--page-size"] = "16";
  EXPECT_EQ(
      refused(is),
      "--resume f: is of a run with --page-size 1, and this one is with --page-size 16; give the flags of "
      "that run");
  is = was;
  is.erase("--enable-mixed-chunk");
  EXPECT_EQ(
      refused(is),
      "--resume f: is of a run with --enable-mixed-chunk, and this one is without --enable-mixed-chunk; "
      "give the flags of that run");
  is = was;
  is["--trace"] = "t";
  is["(requests)"] = "4 requests";
  EXPECT_EQ(
      refused(is),
      "--resume f: is of a run without --trace, and this one is with --trace t; give the flags of that run");
  is.erase("--trace");
  EXPECT_EQ(
      refused(is),
      "--resume f: is of other requests (3 requests; now 4 requests); give the file that it was, or begin "
      "anew");
  is = was;
  is["(deployment)"] = "c";
  EXPECT_EQ(refused(is),
            "--resume f: is of another model or GPU under the same names; restore the files that the flags "
            "name, or begin anew");
  is["(program)"] = "b";
  EXPECT_EQ(refused(is),
            "--resume f: was written by another build of tpsim; go on with that one, or begin anew");
}

class CheckpointFiles : public ::testing::Test {
 protected:
  std::filesystem::path path() const { return folder_ / "state"; }
  void SetUp() override {
    // Of this process: tests run at the same time.
    std::string name = std::filesystem::path(::testing::TempDir()) / "tpsim-checkpoint-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  static bool leave(CheckpointFile& file, std::string_view body) {
    file.begin();
    file.write(body);
    return file.commit();
  }

 private:
  std::filesystem::path folder_;
};

TEST_F(CheckpointFiles, AreReplacedAsAWhole) {
  {
    CheckpointFile file(path(), /*resume=*/false);
    EXPECT_FALSE(file.there());
    ASSERT_TRUE(leave(file, "one"));
    EXPECT_TRUE(file.there());
    EXPECT_EQ(checkpoint_body(file.text(), "f"), "one");
    file.begin();
    file.write("half");  // killed here
    EXPECT_EQ(checkpoint_body(file.text(), "f"), "one");
  }
  CheckpointFile file(path(), /*resume=*/true);
  EXPECT_EQ(checkpoint_body(file.text(), "f"), "one");
  ASSERT_TRUE(leave(file, "two"));
  EXPECT_EQ(checkpoint_body(file.text(), "f"), "two");
  file.remove();
  EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST_F(CheckpointFiles, BelongToOneRunAtATime) {
  const std::string name = path().string();
  CheckpointFile first(path(), /*resume=*/false);
  EXPECT_EQ(rank::refusal([&] { CheckpointFile(path(), false); }),
            "--checkpoint " + name + ": another run writes it; give each its own file");
  ASSERT_TRUE(leave(first, "one"));
  EXPECT_EQ(rank::refusal([&] { CheckpointFile(path(), true); }),
            "--resume " + name + ": another run writes it; give each its own file");
  EXPECT_EQ(
      rank::refusal([&] { CheckpointFile(path(), false); }),
      "--checkpoint " + name + ": is there already; go on with it by --resume " + name + ", or remove it");
}

TEST_F(CheckpointFiles, ThatCannotBeWrittenLeaveTheOneBefore) {
  CheckpointFile file(path(), /*resume=*/false);
  ASSERT_TRUE(leave(file, "one"));
  std::filesystem::create_directory(path().string() + ".tmp");
  EXPECT_FALSE(leave(file, "two"));
  EXPECT_EQ(file.trouble(), "Is a directory");
  EXPECT_EQ(checkpoint_body(file.text(), "f"), "one");
}

TEST_F(CheckpointFiles, OfARunThatNeverCameToOneLeaveNothing) {
  { const CheckpointFile file(path(), /*resume=*/false); }
  EXPECT_FALSE(std::filesystem::exists(path().string() + ".tmp"));
  EXPECT_NE(rank::refusal([&] { CheckpointFile(path(), true); }), "");
}

}  // namespace
}  // namespace tpsim::launch
