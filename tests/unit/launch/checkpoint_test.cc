#include "launch/checkpoint.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>

#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

std::string refusal(const std::string& text, const RunIdentity& identity) {
  try {
    read_checkpoint(text, "f", identity);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(Checkpoint, HoldsTheStateOfItsOwnRunOnly) {
  const RunIdentity identity = {
      {"page_size", "1"}, {"trace", "t"}, {"(requests)", "3 requests"}, {"(program)", "a"}};
  const std::string text = checkpoint_text(identity, "the state");
  EXPECT_EQ(read_checkpoint(text, "f", identity), "the state");
  RunIdentity other = identity;
  other["page_size"] = "16";
  EXPECT_EQ(refusal(text, other),
            "--resume f: is of a run with --page-size 1, and now it is 16; give the flags of that run");
  other = identity;
  other.erase("trace");
  EXPECT_EQ(refusal(text, other),
            "--resume f: is of a run with --trace t, and now it is not given; give the flags of that run");
  other = identity;
  other["(requests)"] = "4 requests";
  EXPECT_EQ(refusal(text, other),
            "--resume f: is of other requests (3 requests, now 4 requests); give the trace of that run");
  other = identity;
  other["(program)"] = "b";
  EXPECT_EQ(refusal(text, other),
            "--resume f: was written by another build of tpsim; go on with that one, or begin anew");
}

TEST(Checkpoint, DamagedInAnyWayIsRefused) {
  const RunIdentity identity = {{"page_size", "1"}};
  std::mt19937_64 random(3);
  std::string state(300, '\0');
  for (char& byte : state) byte = static_cast<char>(random());
  const std::string text = checkpoint_text(identity, state);
  for (std::size_t length = 0; length < text.size(); ++length)
    ASSERT_NE(refusal(text.substr(0, length), identity), "") << length;
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = text;
      damaged[at] = static_cast<char>(damaged[at] ^ 1 << bit);
      ASSERT_NE(refusal(damaged, identity), "") << at;
    }
  }
  for (int round = 0; round < 20'000; ++round) {
    std::string damaged = text;
    for (std::uint64_t changes = 1 + random() % 8; changes > 0; --changes) {
      const std::size_t at = random() % damaged.size();
      switch (random() % 3) {
        case 0:
          damaged[at] = static_cast<char>(random());
          break;
        case 1:
          damaged.erase(at, random() % 20);
          break;
        default:
          damaged.insert(at, damaged.substr(random() % damaged.size(), random() % 20));
      }
      if (damaged.empty()) damaged = "t";
    }
    if (damaged != text) {
      ASSERT_NE(refusal(damaged, identity), "") << round;
    }
  }
}

}  // namespace
}  // namespace tpsim::launch
