// Answers byte for byte as SGLang 0.5.12's own classes write them
// (tests/references/record_served_answers.py).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launch/serve/protocol/answer_format.h"
#include "launch/serve/protocol/json_fields.h"
#include "launch/serve/server_info.h"

namespace tpsim::launch {
namespace {

using nlohmann::json;

constexpr std::int64_t kCreated = 1700000000;

std::string recorded(const char* name) {
  static const json all = json::parse(std::ifstream(TPSIM_RECORDED_ANSWERS));
  return all.at(name).get<std::string>();
}
std::string event(const char* name) { return "data: " + recorded(name) + "\n\n"; }

GenerateCall call_of(GenerateCall::Api api) {
  GenerateCall call;
  call.api = api;
  call.model = "m";
  call.stream = true;
  call.prompts.resize(1);
  call.sampling.resize(1);
  return call;
}

Answer answer_of(const std::string& text, std::uint32_t tokens, std::uint32_t index = 0) {
  Answer answer;
  answer.id = "abc";
  answer.index = index;
  answer.prompt_tokens = 3;
  answer.completion_tokens = tokens;
  append_escaped(text, answer.text);
  return answer;
}

TEST(CompletionFormat, WritesPiecesAsSglang) {
  const GenerateCall call = call_of(GenerateCall::Api::kCompletions);
  const FormatOptions options;
  const auto format = make_completion_format(call, options, kCreated);
  Answer answer = answer_of(" say \"é\"", 1, 1);
  std::string out;
  format->event(answer, out);
  EXPECT_EQ(out, event("completion_piece"));
}

TEST(CompletionFormat, WritesTheEndAndUsage) {
  GenerateCall call = call_of(GenerateCall::Api::kCompletions);
  call.include_usage = call.continuous_usage_stats = true;
  FormatOptions options;
  const auto format = make_completion_format(call, options, kCreated);
  std::vector<Answer> answers = {answer_of("", 2)};
  answers[0].finish = FinishReason{.kind = FinishReason::Kind::kStop, .matched = json_string("x\"")};
  answers[0].cached_tokens = 2;
  std::string out;
  format->event(answers[0], out);
  EXPECT_EQ(out, event("completion_last"));
  out.clear();
  format->closing(answers, out);
  EXPECT_EQ(out, event("completion_usage") + "data: [DONE]\n\n");
  out.clear();
  options.enable_cache_report = true;
  format->closing(answers, out);
  EXPECT_EQ(out, event("completion_usage_cached") + "data: [DONE]\n\n");
}

TEST(CompletionFormat, WritesAWholeAnswer) {
  GenerateCall call = call_of(GenerateCall::Api::kCompletions);
  call.stream = false;
  const FormatOptions options;
  std::vector<Answer> answers = {answer_of(" a", 2)};
  answers[0].finish = FinishReason{.kind = FinishReason::Kind::kLength, .length = 2};
  EXPECT_EQ(make_completion_format(call, options, kCreated)->whole(answers), recorded("completion"));
}

TEST(ChatFormat, WritesRolePiecesEndsAndUsageAsSglang) {
  GenerateCall call = call_of(GenerateCall::Api::kChat);
  call.include_usage = true;
  const FormatOptions options;
  const auto format = make_chat_format(call, options, kCreated);
  std::vector<Answer> answers = {answer_of(" say \"é\"", 2)};
  std::string out;
  format->event(answers[0], out);
  EXPECT_EQ(out, recorded("chat_role") + recorded("chat_piece"));
  answers[0].finish = FinishReason{.kind = FinishReason::Kind::kStop, .matched = json_string("x")};
  out.clear();
  format->event(answers[0], out);
  EXPECT_EQ(out, "");
  format->closing(answers, out);
  EXPECT_EQ(out, recorded("chat_stop") + event("chat_usage") + "data: [DONE]\n\n");
}

TEST(ChatFormat, WritesUsageWithEachPieceWhereAsked) {
  GenerateCall call = call_of(GenerateCall::Api::kChat);
  call.continuous_usage_stats = true;
  const FormatOptions options;
  const auto format = make_chat_format(call, options, kCreated);
  std::vector<Answer> answers = {answer_of(" a", 1)};
  std::string out;
  format->event(answers[0], out);
  EXPECT_EQ(out, recorded("chat_role") + recorded("chat_piece_usage"));
  answers[0].finish = FinishReason{.kind = FinishReason::Kind::kLength, .length = 1};
  out.clear();
  format->closing(answers, out);
  EXPECT_EQ(out, recorded("chat_length") + "data: [DONE]\n\n");
}

TEST(ChatFormat, WritesAWholeAnswer) {
  GenerateCall call = call_of(GenerateCall::Api::kChat);
  call.stream = false;
  const FormatOptions options{.enable_cache_report = true};
  std::vector<Answer> answers = {answer_of(" a", 2)};
  answers[0].cached_tokens = 1;
  answers[0].finish = FinishReason{.kind = FinishReason::Kind::kStop, .matched = "7"};
  EXPECT_EQ(make_chat_format(call, options, kCreated)->whole(answers), recorded("chat"));
}

TEST(NativeFormat, WritesAllSoFarInSglangsOrder) {
  GenerateCall call = call_of(GenerateCall::Api::kGenerate);
  const FormatOptions options;
  const auto format = make_native_format(call, options);
  Answer answer = answer_of(" a", 1);
  answer.add_id(5);
  std::string out;
  format->event(answer, out);
  EXPECT_EQ(
      out,
      "data: {\"text\":\" a\",\"output_ids\":[5],\"meta_info\":{\"id\":\"abc\",\"finish_reason\":null,"
      "\"prompt_tokens\":3,\"weight_version\":\"default\",\"num_retractions\":0,\"reasoning_tokens\":0,"
      "\"completion_tokens\":1,\"cached_tokens\":0,\"cached_tokens_details\":null,\"dp_rank\":null}}\n\n");
  answer.text += " b";
  answer.add_id(6);
  answer.completion_tokens = 2;
  answer.cached_tokens = 2;
  answer.finish = FinishReason{.kind = FinishReason::Kind::kLength, .length = 2};
  answer.e2e_latency = 0.5;
  out.clear();
  format->event(answer, out);
  EXPECT_EQ(out,
            "data: {\"text\":\" a b\",\"output_ids\":[5,6],\"meta_info\":{\"id\":\"abc\",\"finish_reason\":"
            "{\"type\":\"length\",\"length\":2},\"prompt_tokens\":3,\"weight_version\":\"default\","
            "\"num_retractions\":0,\"reasoning_tokens\":0,\"completion_tokens\":2,\"cached_tokens\":2,"
            "\"cached_tokens_details\":{\"device\":2,\"host\":0},\"dp_rank\":null,\"e2e_latency\":0.5}}\n\n");
}

TEST(NativeFormat, NumbersTheEventsOfABatch) {
  GenerateCall call = call_of(GenerateCall::Api::kGenerate);
  call.single = false;
  const FormatOptions options;
  Answer answer = answer_of("", 1, 3);
  std::string out;
  make_native_format(call, options)->event(answer, out);
  EXPECT_TRUE(out.ends_with("},\"index\":3}\n\n")) << out;
}

TEST(Errors, AreWrittenAsSglangs) {
  EXPECT_EQ(error_body(ErrorStyle::kOpenAi, 400, "BadRequestError", "no"), recorded("error"));
  EXPECT_EQ(error_body(ErrorStyle::kPlain, 400, "", "a \"b\""), R"({"error":{"message":"a \"b\""}})");
}

TEST(Pages, ListModelsAsSglang) {
  ServerInfo info;
  info.live.served_model_name = "m";
  info.live.context_length = 8192;
  info.started = kCreated;
  EXPECT_EQ(models_json(info), recorded("models"));
}

TEST(JsonText, EscapesWhatItMustAndReplacesWhatIsNoText) {
  EXPECT_EQ(json_string("a\"\\\n\t\x01/é漢🙂"), "\"a\\\"\\\\\\n\\t\\u0001/é漢🙂\"");
  EXPECT_EQ(json_string("\xFF\xC0\xAF"), "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
  EXPECT_EQ(json_string("\xED\xA0\x80"), "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");  // a surrogate
  EXPECT_EQ(json_string("\xF0\x9F\x99"), "\"\xEF\xBF\xBD\"");                          // cut short
}

}  // namespace
}  // namespace tpsim::launch
