// What clients may ask, and how wrong requests are answered.
#include <gtest/gtest.h>

#include <string>

#include "launch/serve/protocol/generate_call.h"
#include "launch/serve/protocol/json_fields.h"

namespace tpsim::launch {
namespace {

using Parse = GenerateCall (*)(std::string_view, const ParseLimits&);

// "TYPE: sentence", or "accepted".
std::string refusal(Parse parse, const std::string& body) {
  try {
    parse(body, {});
  } catch (const Refusal& refused) {
    EXPECT_EQ(refused.status, 400U);
    return refused.type + ": " + refused.what();
  }
  return "accepted";
}

TEST(GenerateRequest, HasSglangsDefaults) {
  const GenerateCall call = parse_generate(R"({"text": "Hi"})", {});
  EXPECT_TRUE(call.single);
  EXPECT_FALSE(call.stream);
  EXPECT_EQ(call.n, 1U);
  ASSERT_EQ(call.prompts.size(), 1U);
  EXPECT_TRUE(call.prompts[0].is_text);
  const SamplingFields& sampling = call.sampling_of(0);
  EXPECT_EQ(sampling.max_new_tokens, 128U);
  EXPECT_EQ(sampling.temperature, 1);
  EXPECT_EQ(sampling.top_k, -1);
  EXPECT_FALSE(sampling.ignore_eos);
  EXPECT_TRUE(sampling.skip_special_tokens);
}

TEST(GenerateRequest, TakesWhatBenchServingSends) {
  const GenerateCall call = parse_generate(
      R"({"text": "x", "sampling_params": {"temperature": 0.0, "max_new_tokens": 16, "ignore_eos": true},
          "stream": true, "lora_path": null, "return_logprob": false, "return_routed_experts": false,
          "logprob_start_len": -1, "image_data": null})",
      {});
  EXPECT_TRUE(call.stream);
  EXPECT_EQ(call.sampling_of(0).max_new_tokens, 16U);
  EXPECT_TRUE(call.sampling_of(0).ignore_eos);
}

TEST(GenerateRequest, TakesBatchesWithAListOfParameters) {
  const GenerateCall call = parse_generate(
      R"({"input_ids": [[1, 2], [3]], "sampling_params": [{"max_new_tokens": 1}, {"max_new_tokens": null}],
          "rid": ["a", "b"]})",
      {});
  EXPECT_FALSE(call.single);
  ASSERT_EQ(call.prompts.size(), 2U);
  EXPECT_EQ(call.prompts[1].ids, std::vector<std::uint32_t>{3});
  EXPECT_EQ(call.sampling_of(0).max_new_tokens, 1U);
  EXPECT_FALSE(call.sampling_of(1).max_new_tokens);
  EXPECT_EQ(call.rids, (std::vector<std::string>{"a", "b"}));
}

TEST(GenerateRequest, IdsWinOverText) {
  const GenerateCall call = parse_generate(R"({"text": "Hi", "input_ids": [7]})", {});
  EXPECT_FALSE(call.prompts.at(0).is_text);
}

TEST(GenerateRequest, RefusesWithSglangsSentences) {
  EXPECT_EQ(refusal(parse_generate, "{}"),
            "BadRequestError: Either text, input_ids or input_embeds should be provided.");
  EXPECT_EQ(refusal(parse_generate, R"({"input_ids": []})"), "BadRequestError: input_ids cannot be empty.");
  EXPECT_EQ(refusal(parse_generate, R"({"text": "x", "sampling_params": {"temperature": -1}})"),
            "BadRequestError: temperature must be non-negative, got -1.");
  EXPECT_EQ(refusal(parse_generate, R"({"text": "x", "sampling_params": {"top_p": 0}})"),
            "BadRequestError: top_p must be in (0, 1], got 0.");
  EXPECT_EQ(refusal(parse_generate, R"({"text": "x", "sampling_params": {"top_k": 0}})"),
            "BadRequestError: top_k must be -1 (disable) or at least 1, got 0.");
  EXPECT_EQ(refusal(parse_generate, R"({"text": ["x", "y"], "rid": ["a", "b", "c"]})"),
            "BadRequestError: The specified rids length mismatch with the batch_size for batch processing.");
  EXPECT_EQ(refusal(parse_generate, R"({"text": ["x", "y"], "sampling_params": [{"n": 1}, {"n": 2}]})"),
            "BadRequestError: The parallel_sample_num should be the same for all samples in sample params.");
}

TEST(GenerateRequest, RefusesWhatIsNoJsonOrOfAnotherType) {
  EXPECT_EQ(refusal(parse_generate, "{"), "Bad Request: body: JSON decode error at byte 2");
  EXPECT_EQ(refusal(parse_generate, "[]"), "Bad Request: body: must be a JSON object");
  EXPECT_EQ(refusal(parse_generate, R"({"text": 5})"),
            "Bad Request: text: Input should be a string or a list of strings");
  EXPECT_EQ(refusal(parse_generate, R"({"text": "x", "stream": "yes"})"),
            "Bad Request: stream: Input should be a valid boolean");
  EXPECT_EQ(refusal(parse_generate, R"({"input_ids": [1, -2]})"),
            "Bad Request: input_ids: Input should be a list of token ids, whole numbers from 0");
  EXPECT_EQ(refusal(parse_generate, R"({"text": "\ud800"})").substr(0, 12), "Bad Request:");
  EXPECT_EQ(refusal(parse_generate, "{\"text\": \"\xFF\"}").substr(0, 12), "Bad Request:");
  EXPECT_EQ(
      refusal(parse_generate, R"({"text": "x", "sampling_params": {"temperature": 1e999}})").substr(0, 12),
      "Bad Request:");
}

TEST(GenerateRequest, RefusesNestingThatOnlyExhaustsAStack) {
  const std::string deep = R"({"text": )" + std::string(100000, '[') + std::string(100000, ']') + "}";
  EXPECT_EQ(refusal(parse_generate, deep), "Bad Request: body: is nested more than 64 levels deep");
  EXPECT_EQ(refusal(parse_generate,
                    R"({"text": "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["})"),
            "accepted");
}

TEST(GenerateRequest, RefusesWhatIsNotSimulated) {
  for (const char* field :
       {R"("return_logprob": true)", R"("return_logprob": [false, true])", R"("image_data": "a.png")",
        R"("session_params": {"id": "s"})", R"("lora_path": "adapter")", R"("input_embeds": [[0.5]])",
        R"("return_hidden_states": true)", R"("sampling_params": {"regex": "a+"})",
        R"("routed_dp_rank": 1)"}) {
    const std::string answer = refusal(parse_generate, std::string(R"({"text": "x", )") + field + "}");
    EXPECT_TRUE(answer.starts_with("BadRequestError: ")) << field << ": " << answer;
  }
}

// SGLang's SamplingParams fails with what it does not know; nothing is silently left out here.
TEST(GenerateRequest, RefusesNamesThatAreNoSamplingParameters) {
  EXPECT_EQ(
      refusal(parse_generate, R"({"text": "x", "sampling_params": {"max_tokens": 5}})"),
      "BadRequestError: sampling_params.max_tokens: is not a sampling parameter; max_new_tokens limits an "
      "answer");
  EXPECT_EQ(refusal(parse_generate, R"({"text": "x", "sampling_params": {"temprature": 5}})"),
            "BadRequestError: sampling_params.temprature: is not a sampling parameter");
  EXPECT_EQ(refusal(parse_generate, R"({"text": "x", "sampling_params": {"custom_params": {}, "top_k": 3,
                                         "spaces_between_special_tokens": false, "sampling_seed": 4}})"),
            "accepted");
}

TEST(GenerateRequest, LimitsTheAnswersOfOneCall) {
  try {
    parse_generate(R"({"text": ["a", "b"], "sampling_params": {"n": 3}})", {.max_prompts = 5});
    ADD_FAILURE();
  } catch (const Refusal& refused) {
    EXPECT_STREQ(refused.what(),
                 "2 prompts with 3 answers each are more than --max-prompts-per-call 5 allows");
  }
}

TEST(CompletionRequest, HasOpenAisDefaults) {
  const GenerateCall call = parse_completion(R"({"model": "m", "prompt": "Hi"})", {});
  EXPECT_EQ(call.model, "m");
  EXPECT_EQ(call.sampling_of(0).max_new_tokens, 16U);
  EXPECT_FALSE(call.include_usage);
}

TEST(CompletionRequest, TakesEachKindOfPrompt) {
  EXPECT_EQ(parse_completion(R"({"prompt": ["a", "b"]})", {}).prompts.size(), 2U);
  EXPECT_EQ(parse_completion(R"({"prompt": [1, 2, 3]})", {}).prompts.at(0).ids.size(), 3U);
  EXPECT_EQ(parse_completion(R"({"prompt": [[1, 2], [3]]})", {}).prompts.size(), 2U);
  EXPECT_EQ(refusal(parse_completion, R"({"prompt": ""})"), "BadRequestError: Prompt cannot be empty");
  EXPECT_EQ(refusal(parse_completion, R"({"prompt": []})"), "BadRequestError: Prompt cannot be empty");
  EXPECT_EQ(refusal(parse_completion, R"({})"), "Bad Request: prompt: Field required");
  EXPECT_EQ(refusal(parse_completion, R"({"prompt": "x", "max_tokens": 0})"),
            "Bad Request: max_tokens: Value error, max_tokens must be positive");
}

TEST(ChatRequest, KeepsItsMessagesAndLimits) {
  const GenerateCall call = parse_chat(
      R"({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_completion_tokens": 5,
          "max_tokens": 9, "stream": true, "stream_options": {"include_usage": true}})",
      {});
  EXPECT_EQ(call.messages, R"([{"content":"Hi","role":"user"}])");
  EXPECT_EQ(call.sampling_of(0).max_new_tokens, 5U);
  EXPECT_TRUE(call.include_usage);
  EXPECT_FALSE(
      parse_chat(R"({"messages": [{"role": "user", "content": "x"}]})", {}).sampling_of(0).max_new_tokens);
}

// What ChatCompletionRequest's validators and serving_chat.py make of them.
TEST(ChatRequest, TellsTheTemplateHowToReason) {
  const auto arguments = [](const std::string& more) {
    return parse_chat(R"({"messages": [{"role": "user", "content": "x"}])" + more + "}", {})
        .chat_template_kwargs;
  };
  EXPECT_EQ(arguments(""), "");
  EXPECT_EQ(arguments(R"(, "reasoning_effort": "low")"), R"({"reasoning_effort":"low"})");
  EXPECT_EQ(arguments(R"(, "reasoning_effort": "none")"),
            R"({"enable_thinking":false,"reasoning_effort":"none","thinking":false})");
  EXPECT_EQ(arguments(R"(, "reasoning_effort": "none", "chat_template_kwargs": {"thinking": true})"),
            R"({"enable_thinking":false,"reasoning_effort":"none","thinking":true})");
  EXPECT_EQ(arguments(R"(, "reasoning": {"effort": "high", "enabled": true})"),
            R"({"enable_thinking":true,"reasoning_effort":"high","thinking":true})");
  EXPECT_EQ(
      refusal(parse_chat, R"({"messages": [{"role": "user", "content": "x"}], "reasoning_effort": "much"})"),
      refusal(parse_chat, R"({"messages": [{"role": "user", "content": "x"}],
                                    "reasoning_effort": "more"})"));
}

TEST(ChatRequest, ToolsThatMayNotBeCalledAreNotInThePrompt) {
  const auto parsed = [](const std::string& choice) {
    return parse_chat(R"({"messages": [{"role": "user", "content": "x"}],
                          "tools": [{"type": "function", "function": {"name": "f"}}])" +
                          choice + "}",
                      {});
  };
  EXPECT_NE(parsed("").tools, "");
  EXPECT_NE(parsed(R"(, "tool_choice": "auto")").tools, "");
  EXPECT_FALSE(parsed("").sampling_of(0).skip_special_tokens);
  EXPECT_EQ(parsed(R"(, "tool_choice": "none")").tools, "");
  EXPECT_TRUE(parsed(R"(, "tool_choice": "none")").sampling_of(0).skip_special_tokens);
}

TEST(ChatRequest, RefusesWhatIsNoConversation) {
  EXPECT_EQ(refusal(parse_chat, R"({"messages": []})"), "BadRequestError: Messages cannot be empty.");
  EXPECT_EQ(refusal(parse_chat, R"({"messages": [{"role": "pope", "content": "x"}]})").substr(0, 27),
            "Bad Request: messages.role:");
  EXPECT_EQ(refusal(parse_chat, R"({"messages": [{"role": "user"}]})"),
            "Bad Request: messages.content: Field required");
  EXPECT_EQ(refusal(parse_chat, R"({"messages": [{"role": "user", "content": [{"type": "image_url",
            "image_url": {"url": "x"}}]}]})"),
            "BadRequestError: image_url: live requests are text only; images are simulated by `tpsim run`");
  EXPECT_TRUE(refusal(parse_chat, R"({"messages": [{"role": "user", "content": "x"}], "logprobs": true})")
                  .starts_with("BadRequestError: logprobs"));
  EXPECT_TRUE(refusal(parse_chat, R"({"messages": [{"role": "user", "content": "x"}],
                                      "response_format": {"type": "json_object"}})")
                  .starts_with("BadRequestError: response_format"));
  EXPECT_EQ(
      refusal(parse_chat, R"({"messages": [{"role": "user", "content": "x"}], "tool_choice": "required"})"),
      "BadRequestError: Tools cannot be empty if tool choice is set to required.");
}

TEST(AbortRequest, NamesOneOrAll) {
  EXPECT_EQ(parse_abort(R"({"rid": "a"})").rid, "a");
  EXPECT_TRUE(parse_abort(R"({"abort_all": true})").abort_all);
}

}  // namespace
}  // namespace tpsim::launch
