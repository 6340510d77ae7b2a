// What each format means.
#include <gtest/gtest.h>

#include <vector>

#include "scheduler/workload/trace_reader.h"

namespace tpsim::scheduler {
namespace {

using kvcache::TokenRun;
using kvcache::TokenSequence;

Workload read(std::string_view text, const ReadOptions& options = {}) {
  return read_trace(text, "t", options);
}

TokenSequence runs(std::vector<TokenRun> list) { return TokenSequence(list); }

TEST(Mooncake, BlocksBecomeRunsOfTokens) {
  const Workload workload =
      read(R"({"timestamp": 1000, "input_length": 1030, "output_length": 5, "hash_ids": [0, 1, 7]})"
           "\n"
           R"({"timestamp": 1027, "input_length": 1024, "output_length": 1, "hash_ids": [3, 2]})"
           "\n");
  EXPECT_EQ(workload.format, "mooncake");
  EXPECT_EQ(workload.name, "t");
  ASSERT_EQ(workload.requests.size(), 2u);
  EXPECT_EQ(workload.requests[0].arrival_time, 0);
  EXPECT_EQ(workload.requests[0].prompt, runs({{0, 1024}, {7 * 512, 6}}));
  EXPECT_EQ(workload.requests[0].max_new_tokens, 5u);
  EXPECT_EQ(workload.requests[1].arrival_time, 0.027);
  EXPECT_EQ(workload.requests[1].prompt, runs({{3 * 512, 512}, {2 * 512, 512}}));
}

TEST(Mooncake, OtherKeysAndBlankLinesAndMissingLastLineEndAreFine) {
  const Workload workload = read(
      "\n{\"chat\": {\"timestamp\": [1]}, \"timestamp\": 0, \"input_length\": 1.0, \"output_length\": 1, "
      "\"hash_ids\": [4]}\r\n  \n"
      R"({"timestamp": 0, "input_length": 2, "output_length": 1, "hash_ids": [4], "type": "x"})");
  ASSERT_EQ(workload.requests.size(), 2u);
  EXPECT_EQ(workload.requests[1].prompt, runs({{2048, 2}}));
}

TEST(Azure, LengthsBecomePromptsThatShareNothing) {
  const Workload workload = read(
      "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
      "2023-11-16 23:59:59.6805900,374,44\r\n"
      "2023-11-17 00:00:00.6805901,396,109");
  EXPECT_EQ(workload.format, "azure");
  ASSERT_EQ(workload.requests.size(), 2u);
  EXPECT_EQ(workload.requests[0].prompt, runs({{0, 374}}));
  EXPECT_EQ(workload.requests[1].prompt, runs({{374, 396}}));
  EXPECT_EQ(workload.requests[1].arrival_time, 1.0000001);
  EXPECT_EQ(workload.requests[1].max_new_tokens, 109u);
}

TEST(Azure, TimesMayHaveAnOffsetAndColumnsAnyOrder) {
  const Workload workload = read(
      "GeneratedTokens,TIMESTAMP,ContextTokens\n"
      "1,2024-02-29 01:00:00.5+01:00,7\n"
      "1,2024-02-29T00:00:01Z,7\n"
      "1,2024-02-28 23:00:02-0100,7\n"
      "1,2024-03-01 00:00:00,7\n");
  EXPECT_EQ(workload.requests[1].arrival_time, 0.5);
  EXPECT_EQ(workload.requests[2].arrival_time, 1.5);
  EXPECT_EQ(workload.requests[3].arrival_time, 86399.5);
}

TEST(BurstGpt, FailedRequestsAreLeftOutWithANote) {
  const Workload workload = read(
      "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
      "5,ChatGPT,472,18,490,Conversation log\n"
      "45,GPT-4,1087,0,1087,API log\n"
      "46,GPT-4,0,0,0,API log\n"
      "118,GPT-4,417,276,693,Conversation log\n");
  EXPECT_EQ(workload.format, "burstgpt");
  ASSERT_EQ(workload.requests.size(), 2u);
  EXPECT_EQ(workload.requests[1].arrival_time, 113);
  EXPECT_EQ(workload.requests[1].prompt.size(), 417u);
  EXPECT_EQ(workload.notes, std::vector<std::string>{"2 failed requests (Response tokens 0) were left out"});
}

TEST(BurstGpt, NewerReleasesNameTheConversation) {
  const Workload workload = read(
      "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
      "0.5,\"a, \"\"b\"\"\",1.25,ChatGPT,472,18,490,Conversation log\n"
      "1.5,,2,GPT-4,7,8,15,API log\n"
      "2.5,x,2,GPT-4,7,8,15,API log\n"
      "3.5, \"a, \"\"b\"\"\" ,2,GPT-4,7,8,15,API log\n");
  ASSERT_EQ(workload.requests.size(), 4u);
  EXPECT_EQ(workload.requests[0].session, 1u);
  EXPECT_EQ(workload.requests[1].session, 0u);
  EXPECT_EQ(workload.requests[2].session, 2u);
  EXPECT_EQ(workload.requests[3].session, 1u);
}

TEST(ShareGpt, LengthsFromAnArray) {
  const Workload workload = read(
      "[\n {\"id\": \"x\", \"prompt_len\": 10, \"output_len\": 20},\n {\"input_len\": 7,\n  \"output_len\": "
      "3, "
      "\"extra\": {\"a\": [1, \"]}\\\"\"]}}\n]\n");
  EXPECT_EQ(workload.format, "sharegpt");
  ASSERT_EQ(workload.requests.size(), 2u);
  EXPECT_EQ(workload.requests[0].prompt, runs({{0, 10}}));
  EXPECT_EQ(workload.requests[1].prompt, runs({{10, 7}}));
  EXPECT_EQ(workload.requests[1].max_new_tokens, 3u);
  EXPECT_EQ(workload.requests[1].arrival_time, 0);
}

TEST(ShareGpt, TokenIdsAndLengthsStayApart) {
  const Workload workload = read(R"({"prompt_len": 4, "output_len": 6, "prompt": "text", "output": "text"})"
                                 "\n"
                                 R"({"prompt": [5, 6, 7, 1], "output": [100, 10]})"
                                 "\n");
  EXPECT_EQ(workload.requests[0].prompt, runs({{101, 4}})) << "above every id that is named";
  EXPECT_EQ(workload.requests[1].prompt, runs({{5, 3}, {1, 1}}));
  EXPECT_EQ(workload.requests[1].output, runs({{100, 1}, {10, 1}}));
  EXPECT_EQ(workload.requests[1].max_new_tokens, 2u);
}

// Two turns of four; an answer that is empty; Chinese, whose characters are no words.
constexpr const char* kTexts =
    R"([{"id": "a", "conversations": [{"from": "human", "value": "one two three"}, {"from": "gpt", "value": "one  two\nthree four five six"}, {"from": "human", "value": "x"}]},)"
    R"( {"conversation": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": ""}]},)"
    R"( {"prompt": "\u4f60\u597d ok", "output": "hi"}, {"conversations": []}])";

TEST(ShareGpt, TextsAreCountedByWords) {
  const Workload workload = read(kTexts);
  ASSERT_EQ(workload.requests.size(), 3u);
  EXPECT_EQ(workload.requests[0].prompt.size(), 4u);
  EXPECT_EQ(workload.requests[0].max_new_tokens, 8u);
  EXPECT_EQ(workload.requests[1].max_new_tokens, 1u)
      << "SGLang shuffles such, too, before it leaves them out";
  EXPECT_EQ(workload.requests[2].prompt.size(), 3u);
  EXPECT_EQ(workload.requests[2].max_new_tokens, 1u);
  ASSERT_EQ(workload.notes.size(), 2u);
  EXPECT_NE(workload.notes[0].find("4 tokens are counted for 3 words"), std::string::npos);
  EXPECT_NE(workload.notes[1].find("1 conversations of fewer than two turns"), std::string::npos);
}

TEST(ShareGpt, TextsAreCountedByATokenizer) {
  const Workload workload = read(kTexts, {.count_tokens = [](std::string_view text) { return text.size(); }});
  ASSERT_EQ(workload.requests.size(), 3u);
  EXPECT_EQ(workload.requests[0].prompt.size(), 13u);
  EXPECT_EQ(workload.requests[2].max_new_tokens, 2u);
  EXPECT_EQ(workload.notes.size(), 1u);
}

TEST(Formats, KnowWhetherContentsAreKnown) {
  EXPECT_TRUE(read(kTexts).lengths_only);
  EXPECT_TRUE(read("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:47,3,4\n").lengths_only);
  EXPECT_FALSE(
      read(R"([{"prompt_len": 3, "output_len": 4}, {"prompt": [1, 2], "output_len": 4}])").lengths_only);
  const WorkloadInMemory kept(read(kTexts));
  EXPECT_TRUE(kept.outline().lengths_only);
  EXPECT_TRUE(in_memory(kept).lengths_only);
}

TEST(Tpsim, EveryField) {
  const Workload workload = read(
      R"({"arrival_time": 0.5, "prompt": [[7, 3], [10, 1], [4, 2]], "max_new_tokens": 2, "output": [[50, 2]],)"
      R"( "priority": -3, "extra_key": "lora é", "session_id": "a", "version": 1})"
      "\n"
      R"({"arrival_time": 1, "prompt_ids": [1, 2, 9], "output": [5, 6, 7], "session_id": 17, "extra_key": null})"
      "\n"
      R"({"arrival_time": 1, "prompt_len": 8, "max_new_tokens": 1, "extra_key": "b", "model": "m", "session_id": "a", "think_time": 7.25})"
      "\n"
      R"({"arrival_time": 1, "prompt": [8], "max_new_tokens": 1, "extra_key": "lora é"})"
      "\n");
  EXPECT_EQ(workload.format, "tpsim");
  ASSERT_EQ(workload.requests.size(), 4u);
  const WorkloadRequest& first = workload.requests[0];
  EXPECT_EQ(first.arrival_time, 0);
  EXPECT_EQ(first.prompt, runs({{7, 4}, {4, 2}}));
  EXPECT_EQ(first.output, runs({{50, 2}}));
  EXPECT_EQ(first.priority, -3);
  EXPECT_EQ(first.extra_key, 1u);
  EXPECT_EQ(first.session, 1u);
  EXPECT_EQ(workload.requests[1].arrival_time, 0.5);
  EXPECT_EQ(workload.requests[1].prompt, runs({{1, 2}, {9, 1}}));
  EXPECT_EQ(workload.requests[1].max_new_tokens, 3u);
  EXPECT_EQ(workload.requests[1].session, 2u);
  EXPECT_EQ(workload.requests[1].extra_key, 0u);
  EXPECT_EQ(workload.requests[2].prompt, runs({{52, 8}}));
  EXPECT_EQ(workload.requests[2].think_time, 7.25);
  EXPECT_EQ(workload.requests[1].think_time, std::nullopt);
  EXPECT_EQ(workload.requests[2].session, 1u);
  EXPECT_EQ(workload.requests[3].extra_key, 1u);
  EXPECT_EQ(workload.extra_keys, (std::vector<std::string>{"", "lora é", "b"}));
  EXPECT_EQ(workload.models, (std::vector<std::string>{"m"}));
  EXPECT_EQ(workload.requests[2].model, 1u);
  EXPECT_EQ(workload.requests[3].model, 0u);
}

TEST(ReadOptions, NumPromptsStopsReadingBeforeLaterFaults) {
  ReadOptions options;
  options.num_prompts = 1;
  const Workload workload = read("{\"prompt_len\": 4, \"output_len\": 6}\nnonsense\n", options);
  EXPECT_EQ(workload.requests.size(), 1u);
}

TEST(ReadOptions, SortPutsInOrderAndRenumbers) {
  ReadOptions options;
  options.sort = true;
  const Workload workload = read(
      R"({"arrival_time": 3, "prompt": [[7, 3]], "max_new_tokens": 2, "session_id": "a", "extra_key": "x"})"
      "\n"
      R"({"arrival_time": 1, "prompt": [[8, 3]], "max_new_tokens": 2, "session_id": "b", "extra_key": "y"})"
      "\n"
      R"({"arrival_time": 1, "prompt": [[9, 3]], "max_new_tokens": 2})",
      options);
  ASSERT_EQ(workload.requests.size(), 3u);
  EXPECT_EQ(workload.requests[0].prompt, runs({{8, 3}}));
  EXPECT_EQ(workload.requests[0].arrival_time, 0);
  EXPECT_EQ(workload.requests[0].session, 1u);
  EXPECT_EQ(workload.requests[0].extra_key, 1u);
  EXPECT_EQ(workload.requests[1].prompt, runs({{9, 3}}));
  EXPECT_EQ(workload.requests[2].arrival_time, 2);
  EXPECT_EQ(workload.requests[2].session, 2u);
  EXPECT_EQ(workload.extra_keys, (std::vector<std::string>{"", "y", "x"}));
}

TEST(ReadOptions, FormatCanBeForced) {
  ReadOptions options;
  options.format = "tpsim";
  EXPECT_EQ(read(R"({"prompt_len": 4, "max_new_tokens": 6, "arrival_time": 0})", options).format, "tpsim");
  for (const std::string& name : trace_format_names()) {
    options.format = name;
    EXPECT_ANY_THROW(read("junk\n", options)) << name;
  }
}

TEST(Input, ByteOrderMarkIsSkipped) {
  EXPECT_EQ(read("\xef\xbb\xbfTIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,3,4\n").format,
            "azure");
}

}  // namespace
}  // namespace tpsim::scheduler
