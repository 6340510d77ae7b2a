// Bad input: each kind of fault has a sentence that names the line and says what would be right.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "proto/base/error.h"
#include "scheduler/workload/trace_reader.h"
#include "tests/unit/scheduler/workload/test_files.h"

namespace tpsim::scheduler {
namespace {

std::string complaint(std::string_view text, const ReadOptions& options = {}) {
  try {
    read_trace(text, "t.x", options);
  } catch (const UserError& error) {
    return error.what();
  }
  return "(accepted)";
}

struct Case {
  const char* name;
  std::string text;
  const char* begin;  // of the complaint: where
  const char* part;   // what is said
};

std::string moon(const std::string& fields) { return "{" + fields + "}\n"; }
const std::string kGoodMoon =
    moon(R"("timestamp": 5, "input_length": 600, "output_length": 5, "hash_ids": [0, 1])");
std::string azure(const std::string& line) {
  return "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n" + line + "\n";
}
std::string burst(const std::string& line) {
  return "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n" + line + "\n";
}
std::string tpsim_line(const std::string& fields) { return "{\"arrival_time\": 0, " + fields + "}\n"; }

std::vector<Case> cases() {
  return {
      // Any file.
      {"Empty", "", "t.x: ", "the file is empty"},
      {"Blank", "\n \n\n", "t.x: ", "the file is empty"},
      {"EmptyArray", "[]", "t.x: ", "no requests"},
      {"HeaderOnly", "TIMESTAMP,ContextTokens,GeneratedTokens\n", "t.x: ", "no requests"},
      {"Unknown", "hello\n", "t.x:1: ", "formats tried are mooncake, azure, burstgpt, sharegpt, tpsim"},
      {"UnknownObject", "\n{\"a\": 1}\n", "t.x:2: ", "format is not known"},
      {"Binary", std::string("\x00\x01\xff\xfe garbage", 12), "t.x:1: ", "\"\\x00\\x01\\xff\\xfe garbage\""},
      {"DamagedGzip", "\x1f\x8b\x08 nonsense nonsense", "t.x: ", "gzip data"},
      {"TruncatedGzip", "\x1f\x8b", "t.x: ", "gzip data ends too early"},
      {"ThinkTimeOfNobody", tpsim_line(R"("prompt_len": 3, "max_new_tokens": 1, "think_time": 2)"),
       "t.x:1: ", "think_time is given and session_id is not"},
      {"ThinkTimeInText",
       tpsim_line(R"("prompt_len": 3, "max_new_tokens": 1, "session_id": 1, "think_time": "2")"),
       "t.x:1: ", "think_time"},
      {"ThinkTimeNegative",
       tpsim_line(R"("prompt_len": 3, "max_new_tokens": 1, "session_id": 1, "think_time": -2)"),
       "t.x:1: ", "think_time"},
      {"ThinkTimeOfAges",
       tpsim_line(R"("prompt_len": 3, "max_new_tokens": 1, "session_id": 1, "think_time": 1e11)"),
       "t.x:1: ", "think_time is 100000000000 seconds"},
      // JSON.
      {"NotJson", kGoodMoon + "nonsense\n", "t.x:2: ", "not valid JSON"},
      {"TruncatedLine", kGoodMoon + kGoodMoon.substr(0, 40), "t.x:2: ", "not valid JSON at column 40"},
      {"TextBehindObject", kGoodMoon.substr(0, kGoodMoon.size() - 1) + " x\n", "t.x:1: ", "not valid JSON"},
      {"NotAnObject", kGoodMoon + "[1]\n", "t.x:2: ", "not a JSON object"},
      {"NaN", moon(R"("timestamp": NaN, "input_length": 1)"), "t.x:1: ", "not valid JSON"},
      {"Infinite", moon(R"("timestamp": 1e999, "input_length": 1)"), "t.x:1: ", "number overflow"},
      {"BadUtf8", moon("\"input_length\": \"\xc3\x28\""), "t.x:1: ", "not valid JSON"},
      {"RepeatedKey", moon(R"("timestamp": 1, "timestamp": 2, "input_length": 1)"), "t.x:1: ", "given twice"},
      {"OpenArray", "[{\"prompt_len\": 1, \"output_len\": 1}", "t.x:1: ", "not closed"},
      {"OpenObject", "[\n{\"prompt_len\": 1, \n", "t.x:2: ", "not closed"},
      {"ArrayWithoutComma", "[{\"prompt_len\": 1, \"output_len\": 1}\n{}]", "t.x:2: ", "comma"},
      {"ArrayOfNumbers", "[1, 2]", "t.x:1: ", "not an object"},
      {"TextBehindArray", "[{\"prompt_len\": 1, \"output_len\": 1}]\n]", "t.x:2: ", "after the end"},
      {"FaultInsideArray", "[\n{\"prompt_len\": 1, \"output_len\": 1},\n{\n\"prompt_len\": x}]",
       "t.x:4: ", "not valid JSON at column 15"},
      // Mooncake.
      {"NegativeLength", moon(R"("timestamp": 5, "input_length": -3, "output_length": 5, "hash_ids": [0])"),
       "t.x:1: ", "input_length is -3; a whole number from 1 to 2147483647 is needed"},
      {"MissingLength", moon(R"("timestamp": 5, "output_length": 5, "hash_ids": [0])"),
       "t.x:1: ", "input_length is missing"},
      {"ZeroPrompt", moon(R"("timestamp": 5, "input_length": 0, "output_length": 5, "hash_ids": [])"),
       "t.x:1: ", "input_length is 0"},
      {"ZeroOutput", moon(R"("timestamp": 5, "input_length": 1, "output_length": 0, "hash_ids": [1])"),
       "t.x:1: ", "output_length is 0"},
      {"HugeLength",
       moon(R"("timestamp": 5, "input_length": 2147483648, "output_length": 5, "hash_ids": [0])"),
       "t.x:1: ", "input_length is 2147483648"},
      {"HugerLength",
       moon(
           R"("timestamp": 5, "input_length": 99999999999999999999999, "output_length": 5, "hash_ids": [0])"),
       "t.x:1: ", "input_length is 1e+23"},
      {"BrokenLength", moon(R"("timestamp": 5, "input_length": 1.5, "output_length": 5, "hash_ids": [0])"),
       "t.x:1: ", "input_length is 1.5"},
      {"TextLength", moon(R"("timestamp": 5, "input_length": "9", "output_length": 5, "hash_ids": [0])"),
       "t.x:1: ", "input_length is the text \"9\""},
      {"NullLength", moon(R"("timestamp": 5, "input_length": null, "output_length": 5, "hash_ids": [0])"),
       "t.x:1: ", "input_length is null"},
      {"NegativeTime", moon(R"("timestamp": -5, "input_length": 1, "output_length": 5, "hash_ids": [0])"),
       "t.x:1: ", "timestamp is -5; a number, not negative"},
      {"HugeTime",
       kGoodMoon + moon(R"("timestamp": 1e30, "input_length": 1, "output_length": 5, "hash_ids": [0])"),
       "t.x:2: ", "times are at most"},
      {"PromptIsTrue", "{\"prompt\": true}\n", "t.x:1: ", "prompt is true; token ids"},
      {"ConversationsAreTrue", "{\"conversations\": true}\n",
       "t.x:1: ", "conversations is true; give prompt_len"},
      {"TimeIsTrue", moon(R"("timestamp": true, "input_length": 1, "output_length": 5, "hash_ids": [0])"),
       "t.x:1: ", "timestamp is true; a number"},
      {"Unsorted",
       kGoodMoon + moon(R"("timestamp": 4, "input_length": 1, "output_length": 5, "hash_ids": [0])"),
       "t.x:2: ", "tpsim trace convert --sort"},
      {"TooFewBlocks", moon(R"("timestamp": 5, "input_length": 513, "output_length": 5, "hash_ids": [0])"),
       "t.x:1: ", "1 hash_ids for an input_length of 513; 2 are needed"},
      {"TooManyBlocks",
       moon(R"("timestamp": 5, "input_length": 512, "output_length": 5, "hash_ids": [0, 1])"),
       "t.x:1: ", "1 are needed"},
      {"NoBlocks", moon(R"("timestamp": 5, "input_length": 512, "output_length": 5)"),
       "t.x:1: ", "hash_ids is missing"},
      {"NegativeBlock", moon(R"("timestamp": 5, "input_length": 512, "output_length": 5, "hash_ids": [-1])"),
       "t.x:1: ", "hash_ids is missing or not an array of whole numbers"},
      {"HugeBlock",
       moon(R"("timestamp": 5, "input_length": 512, "output_length": 5, "hash_ids": [549755813888])"),
       "t.x:1: ", "ids are at most 549755813887"},
      // CSV.
      {"TooFewColumns", azure("2023-11-16 18:15:47,3"), "t.x:3: ", "has 2 columns; the header names 3"},
      {"TooManyColumns", azure("2023-11-16 18:15:47,3,4,5"), "t.x:3: ", "has 4 columns"},
      {"MissingColumn", "TIMESTAMP,ContextTokens\n", "t.x:1: ", "no column GeneratedTokens"},
      {"TwoColumnsAlike", "TIMESTAMP,ContextTokens,ContextTokens,GeneratedTokens\n", "t.x:1: ", "twice"},
      {"OpenQuote", azure("\"2023-11-16 18:15:47,3,4"), "t.x:3: ", "a quote is not closed"},
      {"TextBehindQuote", azure("\"2023-11-16 18:15:47\"x,3,4"), "t.x:3: ", "after its closing quote"},
      {"CsvNegative", azure("2023-11-16 18:15:47,-3,4"), "t.x:3: ", "ContextTokens is \"-3\""},
      {"CsvEmptyCell", azure("2023-11-16 18:15:47,,4"), "t.x:3: ", "ContextTokens is empty"},
      {"CsvText", azure("2023-11-16 18:15:47,many,4"), "t.x:3: ", "ContextTokens is \"many\""},
      {"CsvNaN", azure("2023-11-16 18:15:47,nan,4"), "t.x:3: ", "ContextTokens is \"nan\""},
      {"CsvHuge", azure("2023-11-16 18:15:47,3,99999999999999999999"),
       "t.x:3: ", "GeneratedTokens is \"99999999999999999999\""},
      {"CsvZeroPrompt", azure("2023-11-16 18:15:47,0,4"), "t.x:3: ", "ContextTokens is \"0\""},
      {"CsvZeroOutput", azure("2023-11-16 18:15:47,4,0"), "t.x:3: ", "GeneratedTokens is \"0\""},
      {"CsvUnsorted", azure("2023-11-16 18:15:46.6805899,3,4"),
       "t.x:3: ", "arrives 1e-07 seconds before the one in front of it"},
      {"NoSuchDay", azure("2023-02-29 18:15:47,3,4"), "t.x:3: ", "TIMESTAMP is \"2023-02-29 18:15:47\""},
      {"NoSuchHour", azure("2023-11-16 24:15:47,3,4"), "t.x:3: ", "a date and time like 2023-11-16"},
      {"TruncatedTime", azure("2023-11-16 18:15,3,4"), "t.x:3: ", "TIMESTAMP is \"2023-11-16 18:15\""},
      {"NoFraction", azure("2023-11-16 18:15:47.,3,4"), "t.x:3: ", "TIMESTAMP"},
      {"BadOffset", azure("2023-11-16 18:15:47+1,3,4"), "t.x:3: ", "TIMESTAMP"},
      {"BurstInfinite", burst("inf,x,3,4,7,y"), "t.x:2: ", "Timestamp is \"inf\""},
      {"BurstNegativeTime", burst("-1,x,3,4,7,y"), "t.x:2: ", "Timestamp is \"-1\"; a number, not negative"},
      {"BurstZeroPrompt", burst("1,x,0,4,7,y"), "t.x:2: ", "Request tokens is \"0\""},
      {"BurstAllFailed", burst("1,x,5,0,5,y"), "t.x: ", "no requests"},
      // ShareGPT.
      {"OneTurn", R"([{"conversations": [{"from": "human", "value": "hi"}]}])", "t.x: ", "no requests"},
      {"NoTurns", R"([{"conversations": 3}])",
       "t.x:1: ", "conversations is 3; give prompt_len and output_len, or an array of turns"},
      {"TurnWithoutText", R"([{"conversations": [{"from": "human"}, {"value": "hi"}]}])",
       "t.x:1: ", "a turn of conversations has no text"},
      {"PromptText", R"({"prompt": "hi", "output_len": 4})", "t.x:1: ", "give both as texts"},
      {"TwoLengths", R"({"prompt_len": 1, "input_len": 2, "output_len": 4})", "t.x:1: ", "more than once"},
      {"NoOutput", R"({"prompt_len": 1})", "t.x:1: ", "output_len is missing"},
      {"EmptyIds", R"({"prompt": [], "output_len": 4})", "t.x:1: ", "prompt is empty"},
      {"EmptyOutputIds", R"({"prompt": [1], "output": []})", "t.x:1: ", "output is empty"},
      {"OutputLengthsDiffer", R"({"prompt": [1], "output": [1], "output_len": 2})",
       "t.x:1: ", "make them equal"},
      {"HugeId", R"({"prompt": [281474976710656], "output_len": 4})",
       "t.x:1: ", "ids are below 281474976710656"},
      {"NegativeId", R"({"prompt": [-1], "output_len": 4})", "t.x:1: ", "prompt is an object, or an array"},
      // tpsim.
      {"UnknownField", tpsim_line(R"("prompt_len": 1, "max_tokens": 1)"),
       "t.x:1: ", "\"max_tokens\" is not a field"},
      {"UnknownVersion", tpsim_line(R"("prompt_len": 1, "max_new_tokens": 1, "version": 2)"),
       "t.x:1: ", "version 2 of the format is not known"},
      {"NoPrompt", tpsim_line(R"("max_new_tokens": 1)"), "t.x:1: ", "the prompt is missing"},
      {"TwoPrompts", tpsim_line(R"("max_new_tokens": 1, "prompt": [1], "prompt_len": 2)"),
       "t.x:1: ", "more than once"},
      {"NoMaxNewTokens", tpsim_line(R"("prompt_len": 1)"), "t.x:1: ", "max_new_tokens is missing"},
      {"NoArrival", R"({"prompt_len": 1, "max_new_tokens": 1})", "t.x:1: ", "arrival_time is missing"},
      {"OutputDiffers", tpsim_line(R"("prompt_len": 1, "max_new_tokens": 3, "output": [[1, 2]])"),
       "t.x:1: ", "output has 2 tokens and max_new_tokens is 3"},
      {"EmptyPrompt", tpsim_line(R"("prompt": [], "max_new_tokens": 3)"), "t.x:1: ", "the prompt is empty"},
      {"EmptyRun", tpsim_line(R"("prompt": [[1, 0]], "max_new_tokens": 3)"), "t.x:1: ", "a run of 0 tokens"},
      {"HugeRun", tpsim_line(R"("prompt": [[1, 2147483648]], "max_new_tokens": 3)"),
       "t.x:1: ", "a run of 2147483648 tokens"},
      {"HugeSum", tpsim_line(R"("prompt": [[1, 2147483647], [0, 1]], "max_new_tokens": 3)"),
       "t.x:1: ", "position 1"},
      {"RunBeyondIds", tpsim_line(R"("prompt": [[281474976710655, 2]], "max_new_tokens": 3)"),
       "t.x:1: ", "ids are below"},
      {"BrokenPair", tpsim_line(R"("prompt": [[1, 2, 3]], "max_new_tokens": 3)"),
       "t.x:1: ", "runs [[first, length], …] are needed"},
      {"MixedPrompt", tpsim_line(R"("prompt": [[1, 2], 3], "max_new_tokens": 3)"), "t.x:1: ", "are needed"},
      {"PriorityText", tpsim_line(R"("prompt_len": 1, "max_new_tokens": 3, "priority": "high")"),
       "t.x:1: ", "priority"},
      {"PriorityHuge", tpsim_line(R"("prompt_len": 1, "max_new_tokens": 3, "priority": 2147483648)"),
       "t.x:1: ", "priority"},
      {"KeyIsList", tpsim_line(R"("prompt_len": 1, "max_new_tokens": 3, "extra_key": [1])"),
       "t.x:1: ", "extra_key is neither text nor"},
      {"NoRoomForIds",
       tpsim_line(R"("prompt": [281474976710655], "max_new_tokens": 3)") +
           tpsim_line(R"("prompt_len": 1, "max_new_tokens": 3)"),
       "t.x: ", "leave no room"},
  };
}

class BadInput : public ::testing::TestWithParam<Case> {};

TEST_P(BadInput, IsRefusedWithASentence) {
  const std::string said = complaint(GetParam().text);
  EXPECT_TRUE(said.starts_with(GetParam().begin)) << said;
  EXPECT_NE(said.find(GetParam().part), std::string::npos) << said;
  EXPECT_EQ(said.find('\n'), std::string::npos) << said;
}

INSTANTIATE_TEST_SUITE_P(All, BadInput, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(BadInput, UnknownFormatName) {
  ReadOptions options;
  options.format = "parquet";
  EXPECT_EQ(complaint(kGoodMoon, options),
            "there is no trace format \"parquet\"; the formats are auto, mooncake, azure, burstgpt, "
            "sharegpt, tpsim");
}

TEST(BadInput, ForcedFormatThatIsWrong) {
  ReadOptions options;
  options.format = "azure";
  EXPECT_NE(complaint(kGoodMoon, options).find("no column TIMESTAMP"), std::string::npos);
  options.format = "mooncake";
  EXPECT_NE(complaint(azure(""), options).find("t.x:1: not valid JSON"), std::string::npos);
}

TEST(BadInput, TooLongLine) {
  const std::string said = complaint("x" + std::string(std::size_t{65} << 20, 'y'));
  EXPECT_EQ(
      said,
      "t.x:1: the line is longer than 64 MiB; a trace has one request in each line, give the right file");
}

std::string file_complaint(const std::filesystem::path& path) {
  try {
    read_trace(path);
  } catch (const UserError& error) {
    return error.what();
  }
  return "(accepted)";
}

TEST(BadFile, MissingFolderAndUnreadable) {
  const testing::TemporaryFolder folder;
  EXPECT_NE(file_complaint(folder / "none.jsonl").find("none.jsonl: no such file"), std::string::npos);
  EXPECT_NE(file_complaint(folder / "").find("is a folder"), std::string::npos);
  EXPECT_NE(file_complaint("").find("no such file"), std::string::npos);
  testing::write_file(folder / "secret", kGoodMoon);
  ::chmod((folder / "secret").c_str(), 0);
  if (::geteuid() != 0) {  // root may read everything
    EXPECT_NE(file_complaint(folder / "secret").find("cannot be opened"), std::string::npos);
  }
}

}  // namespace
}  // namespace tpsim::scheduler
