// Lines, files and compression.
#include <gtest/gtest.h>

#include <string>

#include "proto/base/error.h"
#include "scheduler/workload/trace_input.h"
#include "scheduler/workload/trace_reader.h"
#include "scheduler/workload/trace_writer.h"
#include "tests/unit/scheduler/workload/test_files.h"

namespace tpsim::scheduler {
namespace {

constexpr std::string_view kTrace =
    "{\"prompt_len\": 4, \"output_len\": 6}\n"
    "{\"prompt_len\": 5, \"output_len\": 7}\n";

// Gives `step` bytes at a time, as a pipe may.
class SlowSource : public ByteSource {
 public:
  SlowSource(std::string_view bytes, std::size_t step) : bytes_(bytes), step_(step) {}
  std::size_t read(char* out, std::size_t capacity) override {
    const std::size_t count = bytes_.copy(out, std::min(step_, capacity));
    bytes_.remove_prefix(count);
    return count;
  }

 private:
  std::string_view bytes_;
  std::size_t step_;
};

TEST(TraceInput, LinesWithTheirNumbersHoweverTheBytesCome) {
  for (std::size_t step = 1; step < 12; ++step) {
    TraceInput input(std::make_unique<SlowSource>("one\r\n\ntwo \nlast", step), "f");
    std::string_view line;
    ASSERT_TRUE(input.next_line(line));
    EXPECT_EQ(line, "one");
    EXPECT_EQ(input.place().line, 1u);
    ASSERT_TRUE(input.next_filled_line(line));
    EXPECT_EQ(line, "two ");
    EXPECT_EQ(input.place().line, 3u);
    input.unread_line();
    EXPECT_EQ(input.place_of_next_byte().line, 3u);
    ASSERT_TRUE(input.next_line(line));
    EXPECT_EQ(line, "two ");
    EXPECT_EQ(input.place().line, 3u);
    EXPECT_EQ(input.peek_filled(), 'l');
    EXPECT_EQ(input.get(), 'l');
    ASSERT_TRUE(input.next_line(line));
    EXPECT_EQ(line, "ast");
    EXPECT_EQ(input.place().line, 4u);
    EXPECT_FALSE(input.next_line(line));
    EXPECT_EQ(input.get(), -1);
  }
}

TEST(TraceInput, LinesLongerThanTheBuffer) {
  const std::string longest(3'000'000, 'x');
  TraceInput input(open_memory(longest), "f");
  std::string_view line;
  ASSERT_TRUE(input.next_line(line));
  EXPECT_EQ(line, longest);
}

TEST(InQuotes, ShowsWhatATerminalMayNot) {
  EXPECT_EQ(in_quotes("a\x1b[31m\n\xff"), "\"a\\x1b[31m\\x0a\\xff\"");
  EXPECT_EQ(in_quotes(std::string(50, 'y')), "\"" + std::string(40, 'y') + "…\"");
}

class Gzip : public ::testing::Test {
 protected:
  std::string pack(std::string_view text) {
    write_trace_file(folder_ / "t.gz", std::string(text));
    return testing::read_file(folder_ / "t.gz");
  }
  testing::TemporaryFolder folder_;
};

TEST_F(Gzip, IsToldByContentNotByName) {
  const std::string packed = pack(kTrace);
  ASSERT_TRUE(packed.starts_with("\x1f\x8b"));
  EXPECT_EQ(packed.substr(4, 4), std::string(4, '\0')) << "no time in the header";
  testing::write_file(folder_ / "plain.jsonl", packed);
  EXPECT_EQ(read_trace(folder_ / "plain.jsonl").requests.size(), 2u);
  testing::write_file(folder_ / "not.gz", kTrace);
  EXPECT_EQ(read_trace(folder_ / "not.gz").requests.size(), 2u);
}

TEST_F(Gzip, SeveralMembersAreOneFile) {
  const std::string packed = pack(kTrace);
  EXPECT_EQ(read_trace(packed + packed, "t").requests.size(), 4u);
}

TEST_F(Gzip, EveryTruncationAndEveryDamageIsNoticed) {
  const std::string packed = pack(kTrace);
  for (std::size_t length = 2; length < packed.size(); ++length) {
    EXPECT_THROW(read_trace(packed.substr(0, length), "t"), UserError) << length;
  }
  for (std::size_t at = 10; at < packed.size(); ++at) {  // behind the header
    std::string damaged = packed;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    try {
      // A few bits mean nothing, such as those that fill the last byte.
      EXPECT_TRUE(read_trace(damaged, "t").requests == read_trace(kTrace, "t").requests) << at;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("gzip"), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW(read_trace(packed + "tail", "t"), UserError);
}

TEST_F(Gzip, OfNothingIsEmpty) { EXPECT_THROW(read_trace(pack(""), "t"), UserError); }

}  // namespace
}  // namespace tpsim::scheduler
