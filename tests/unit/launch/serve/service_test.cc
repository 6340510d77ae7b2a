#include "launch/serve/service.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/launch/serve/served.h"

namespace tpsim::launch {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

TEST_F(Served, RoutesThatASimulationCannotAnswerSaySo) {
  start();
  for (const char* path :
       {"/v1/embeddings", "/start_profile", "/v1/responses/abc", "/hicache/storage-backend"}) {
    const HttpAnswer answer = client().ask("POST", path, "{}");
    EXPECT_EQ(answer.status, 404U) << path;
    EXPECT_FALSE(json::parse(answer.body)["message"].get<std::string>().empty()) << path;
  }
  const HttpAnswer unknown = client().ask("POST", "/v1/nothing", "{}");
  EXPECT_EQ(unknown.status, 404U);
  EXPECT_EQ(unknown.body, R"({"detail":"Not Found"})");
}

TEST_F(Served, TokenizesAndBack) {
  start();
  const auto ask = [this](const std::string& path, const std::string& body) {
    const HttpAnswer answer = client().ask("POST", path, body);
    EXPECT_EQ(answer.status, 200U) << answer.body;
    return json::parse(answer.body);
  };
  const json one = ask("/tokenize", R"({"prompt": "twelve bytes"})");
  EXPECT_EQ(one["count"], 3);
  EXPECT_EQ(one["tokens"].size(), 3U);
  EXPECT_EQ(one["max_model_len"], config.context_length);
  const json many = ask("/v1/tokenize", R"({"prompt": ["twelve bytes", "four"]})");
  EXPECT_EQ(many["count"], json::array({3, 1}));
  EXPECT_EQ(many["tokens"][0], one["tokens"]);
  EXPECT_GT(ask("/tokenize", R"({"messages": [{"role": "user", "content": "x"}]})")["count"], 0);
  // Texts that the server makes up are tokens again.
  const json ids = json::array({100, 200, 300});
  const json text = ask("/detokenize", json{{"tokens", ids}}.dump());
  EXPECT_EQ(ask("/tokenize", json{{"prompt", text["text"]}}.dump())["tokens"], ids);
  EXPECT_EQ(ask("/v1/detokenize", R"({"tokens": []})")["text"], "");
  EXPECT_EQ(client().ask("POST", "/tokenize", "{}").status, 400U);
  EXPECT_EQ(client().ask("POST", "/tokenize", R"({"prompt": "a", "messages": []})").status, 400U);
  EXPECT_EQ(client().ask("POST", "/detokenize", R"({"tokens": ["a"]})").status, 400U);
}

TEST_F(Served, AnswersGenerateAsSglangDoes) {
  start();
  const HttpAnswer answer =
      client().ask("POST", "/generate",
                   R"({"input_ids": [1, 2, 3], "sampling_params": {"max_new_tokens": 4}, "rid": "r"})");
  EXPECT_EQ(answer.status, 200U);
  const json body = json::parse(answer.body);
  EXPECT_EQ(body["output_ids"].size(), 4U);
  EXPECT_FALSE(body["text"].get<std::string>().empty());
  const json& meta = body["meta_info"];
  EXPECT_EQ(meta["id"], "r");
  EXPECT_EQ(meta["finish_reason"], (json{{"type", "length"}, {"length", 4}}));
  EXPECT_EQ(meta["prompt_tokens"], 3);
  EXPECT_EQ(meta["completion_tokens"], 4);
  EXPECT_EQ(meta["cached_tokens"], 0);
  EXPECT_GE(meta["e2e_latency"].get<double>(), 0.04);
  EXPECT_LT(meta["e2e_latency"].get<double>(), 0.2);
}

TEST_F(Served, StreamsOneEventAToken) {
  start();
  const HttpAnswer answer = client().ask(
      "POST", "/generate", R"({"text": "Hello", "stream": true, "sampling_params": {"max_new_tokens": 5}})");
  EXPECT_EQ(answer.content_type, "text/event-stream; charset=utf-8");
  const std::vector<std::string> events = answer.events();
  ASSERT_EQ(events.size(), 6U);
  EXPECT_EQ(events.back(), "[DONE]");
  std::string text;
  for (std::size_t i = 0; i < 5; ++i) {
    const json event = json::parse(events[i]);
    EXPECT_EQ(event["meta_info"]["completion_tokens"], i + 1);
    EXPECT_EQ(event["output_ids"].size(), i + 1);  // all so far
    EXPECT_TRUE(event["text"].get<std::string>().starts_with(text));
    text = event["text"];
    EXPECT_EQ(event["meta_info"]["finish_reason"].is_null(), i < 4);
  }
}

TEST_F(Served, StreamsWhatIsNewWhereAskedTo) {
  format.incremental_streaming_output = true;
  start();
  const HttpAnswer answer = client().ask(
      "POST", "/generate", R"({"text": "Hello", "stream": true, "sampling_params": {"max_new_tokens": 5}})");
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(json::parse(answer.events()[i])["output_ids"].size(), 1U);
}

TEST_F(Served, SkipTokenizerInitTalksInIds) {
  format.skip_tokenizer = true;
  start();
  HttpClient one = client();
  const json body = json::parse(
      one.ask("POST", "/generate", R"({"input_ids": [5], "sampling_params": {"max_new_tokens": 2}})").body);
  EXPECT_FALSE(body.contains("text"));
  EXPECT_EQ(body["output_ids"].size(), 2U);
  EXPECT_EQ(one.ask("POST", "/generate", R"({"text": "x"})").status, 400U);
}

TEST_F(Served, AnswersOfOneTurnAreFoundInTheCacheInTheNext) {
  start();
  HttpClient one = client();
  json prompt = json::array();
  for (int i = 0; i < 50; ++i) prompt.push_back(100 + i * 3);
  const auto ask = [&](const json& ids) {
    const json call = {{"input_ids", ids}, {"sampling_params", {{"max_new_tokens", 20}}}};
    return json::parse(one.ask("POST", "/generate", call.dump()).body);
  };
  const json first = ask(prompt);
  for (const json& id : first["output_ids"]) prompt.push_back(id);
  prompt.push_back(7);
  const json second = ask(prompt);
  EXPECT_EQ(second["meta_info"]["prompt_tokens"], 71);
  EXPECT_GE(second["meta_info"]["cached_tokens"].get<int>(), 69);
  EXPECT_EQ(second["meta_info"]["cached_tokens_details"]["device"], second["meta_info"]["cached_tokens"]);
}

TEST_F(Served, ExtraKeysDoNotShareAPrefix) {
  start();
  HttpClient one = client();
  const auto cached = [&](const std::string& key) {
    const json call = {{"input_ids", {1, 2, 3, 4, 5, 6, 7, 8}},
                       {"sampling_params", {{"max_new_tokens", 1}}},
                       {"extra_key", key}};
    return json::parse(one.ask("POST", "/generate", call.dump()).body)["meta_info"]["cached_tokens"]
        .get<int>();
  };
  EXPECT_EQ(cached("a"), 0);
  EXPECT_EQ(cached("b"), 0);
  EXPECT_EQ(cached("a"), 7);
}

TEST_F(Served, SeveralAnswersComeBehindTheirPrefix) {
  start();
  const HttpAnswer answer = client().ask(
      "POST", "/v1/completions",
      R"({"model": "m", "prompt": ["a b c d e f g h", "i j k l m n o p"], "n": 2, "max_tokens": 3})");
  const json body = json::parse(answer.body);
  ASSERT_EQ(body["choices"].size(), 4U);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(body["choices"][i]["index"], i);
  EXPECT_EQ(body["usage"]["completion_tokens"], 12);
  wait_until_idle();
  EXPECT_GT(fleet->statistics().cached_tokens, 0U);
}

TEST_F(Served, AnswersCompletions) {
  start();
  HttpClient one = client();
  const json body = json::parse(
      one.ask("POST", "/v1/completions", R"({"model": "m", "prompt": "Hello there", "echo": true})").body);
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["model"], "m");
  EXPECT_TRUE(body["choices"][0]["text"].get<std::string>().starts_with("Hello there"));
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(body["usage"]["completion_tokens"], 16);
  EXPECT_EQ(body["metadata"]["weight_version"], "default");
}

TEST_F(Served, StreamsChatsWithUsage) {
  start();
  const HttpAnswer answer =
      client().ask("POST", "/v1/chat/completions",
                   R"({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3,
                       "stream": true, "stream_options": {"include_usage": true}})");
  const std::vector<std::string> events = answer.events();
  ASSERT_EQ(events.size(), 7U) << answer.body;  // role, three pieces, the end, usage, [DONE]
  EXPECT_EQ(json::parse(events[0])["choices"][0]["delta"]["role"], "assistant");
  for (int i = 1; i <= 3; ++i)
    EXPECT_FALSE(json::parse(events[i])["choices"][0]["delta"]["content"].get<std::string>().empty());
  EXPECT_EQ(json::parse(events[4])["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(json::parse(events[5])["usage"]["completion_tokens"], 3);
  EXPECT_TRUE(json::parse(events[5])["choices"].empty());
  EXPECT_EQ(events[6], "[DONE]");
}

TEST_F(Served, AChatWithoutALimitEndsByItself) {
  start();
  const json body = json::parse(
      client()
          .ask("POST", "/v1/chat/completions", R"({"messages": [{"role": "user", "content": "Hi"}]})")
          .body);
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(body["usage"]["completion_tokens"], 256);
  EXPECT_EQ(body["choices"][0]["message"]["role"], "assistant");
}

TEST_F(Served, StopsAtItsStopStringAndFreesTheRest) {
  start();
  HttpClient one = client();
  const json whole = json::parse(
      one.ask("POST", "/generate", R"({"input_ids": [1], "sampling_params": {"max_new_tokens": 2}})").body);
  // Whatever the second word of some answer is: of a stream, so that it is known.
  const json call = {{"input_ids", {1, 2}},
                     {"stream", true},
                     {"sampling_params", {{"max_new_tokens", 4000}, {"stop", {" "}}}}};
  const HttpAnswer answer = one.ask("POST", "/generate", call.dump());
  const json last = json::parse(answer.events()[answer.events().size() - 2]);
  EXPECT_EQ(last["meta_info"]["finish_reason"], (json{{"type", "stop"}, {"matched", " "}}));
  EXPECT_EQ(last["text"].get<std::string>().find(' '), std::string::npos);
  EXPECT_FALSE(whole["text"].get<std::string>().empty());
  wait_until_idle();
}

TEST_F(Served, RefusesWhatDoesNotFit) {
  start();
  HttpClient one = client();
  const HttpAnswer longer = one.ask(
      "POST", "/generate", R"({"input_ids": [1, 2, 3], "sampling_params": {"max_new_tokens": 8190}})");
  EXPECT_EQ(longer.status, 400U);
  EXPECT_TRUE(json::parse(longer.body)["error"]["message"].get<std::string>().starts_with(
      "Requested token count exceeds the model's maximum context length of 8192 tokens."));
  const HttpAnswer beyond = one.ask("POST", "/generate", R"({"input_ids": [32000]})");
  EXPECT_EQ(beyond.status, 400U);
  const HttpAnswer openai =
      one.ask("POST", "/v1/completions", R"({"prompt": [1, 2, 3], "max_tokens": 8190})");
  EXPECT_EQ(openai.status, 400U);
  EXPECT_EQ(json::parse(openai.body)["type"], "BadRequestError");
  EXPECT_EQ(json::parse(openai.body)["code"], 400);
  // In a stream of /generate, the head was out before.
  const HttpAnswer streamed = one.ask("POST", "/generate", R"({"input_ids": [32000], "stream": true})");
  EXPECT_EQ(streamed.status, 200U);
  EXPECT_TRUE(json::parse(streamed.events().at(0)).contains("error"));
  EXPECT_EQ(streamed.events().at(1), "[DONE]");
}

TEST_F(Served, RefusesASecondRequestOfTheSameName) {
  start();
  HttpClient one = client(), two = client();
  const std::string call = R"({"input_ids": [1], "rid": "same", "sampling_params": {"max_new_tokens": 50}})";
  one.send("POST", "/generate", call);
  while (fleet->open_requests() == 0) std::this_thread::sleep_for(1ms);
  const HttpAnswer second = two.ask("POST", "/generate", call);
  EXPECT_EQ(second.status, 400U);
  EXPECT_EQ(json::parse(second.body)["error"]["message"], "Duplicate request ID detected: same");
  EXPECT_EQ(one.receive().status, 200U);
  EXPECT_EQ(two.ask("POST", "/generate", call).status, 200U);
}

TEST_F(Served, AClientThatVanishesFreesItsKv) {
  start();
  {
    HttpClient one = client();
    one.send("POST", "/generate",
             R"({"input_ids": [1, 2, 3], "stream": true, "sampling_params": {"max_new_tokens": 8000}})");
    EXPECT_FALSE(one.receive_some().empty());
  }
  wait_until_idle();
  EXPECT_EQ(fleet->statistics().kv_used_tokens, 0U);
  EXPECT_EQ(fleet->statistics().aborted_requests, 1U);
}

TEST_F(Served, AbortsByName) {
  start();
  HttpClient one = client(), other = client();
  one.send("POST", "/generate",
           R"({"input_ids": [1, 2, 3], "rid": "long", "sampling_params": {"max_new_tokens": 8000}})");
  while (fleet->statistics().num_running_reqs == 0) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(other.ask("POST", "/abort_request", R"({"rid": "lon"})").status, 200U);  // nobody's name
  EXPECT_EQ(other.ask("POST", "/abort_request", R"({"rid": "long"})").status, 200U);
  const json body = json::parse(one.receive().body);
  EXPECT_EQ(body["meta_info"]["finish_reason"]["type"], "abort");
  wait_until_idle();
}

TEST_F(Served, FlushesTheCacheWhereNothingRuns) {
  start();
  HttpClient one = client(), other = client();
  const std::string call = R"({"input_ids": [1, 2, 3, 4], "sampling_params": {"max_new_tokens": 1}})";
  one.ask("POST", "/generate", call);
  wait_until_idle();
  EXPECT_EQ(other.ask("POST", "/flush_cache").status, 200U);
  EXPECT_EQ(json::parse(one.ask("POST", "/generate", call).body)["meta_info"]["cached_tokens"], 0);
  one.send("POST", "/generate", R"({"input_ids": [1], "sampling_params": {"max_new_tokens": 100}})");
  while (fleet->open_requests() == 0) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(other.ask("POST", "/flush_cache").status, 400U);
  EXPECT_EQ(one.receive().status, 200U);
}

TEST_F(Served, AsksForItsKeys) {
  start({}, {.api_key = "user", .admin_api_key = "admin"});
  HttpClient one = client();
  EXPECT_EQ(one.ask("GET", "/v1/models").status, 401U);
  EXPECT_EQ(one.ask("GET", "/v1/models").body, R"({"error":"Unauthorized"})");
  EXPECT_EQ(one.ask("GET", "/v1/models", "", "authorization: Bearer user\r\n").status, 200U);
  EXPECT_EQ(one.ask("GET", "/v1/models", "", "authorization: Bearer use\r\n").status, 401U);
  EXPECT_EQ(one.ask("GET", "/health").status, 200U);
  EXPECT_EQ(one.ask("POST", "/flush_cache", "", "authorization: Bearer user\r\n").status, 401U);
  EXPECT_EQ(one.ask("POST", "/flush_cache", "", "authorization: bearer admin\r\n").status, 200U);
}

TEST_F(Served, TellsOfItself) {
  start();
  HttpClient one = client();
  EXPECT_EQ(json::parse(one.ask("GET", "/v1/models").body)["data"][0]["id"], "model");
  EXPECT_EQ(one.ask("GET", "/v1/models/model").status, 200U);
  EXPECT_EQ(one.ask("GET", "/v1/models/other").status, 404U);
  EXPECT_EQ(json::parse(one.ask("GET", "/get_model_info").body)["is_generation"], true);
  EXPECT_EQ(json::parse(one.ask("GET", "/get_server_info").body)["version"], "0.5.12");
  EXPECT_EQ(json::parse(one.ask("GET", "/get_load").body).size(), 1U);
  EXPECT_EQ(json::parse(one.ask("GET", "/v1/loads").body)["dp_rank_count"], 1);
  EXPECT_EQ(one.ask("GET", "/health_generate").status, 200U);
  EXPECT_EQ(one.ask("GET", "/").body, "\"SGLang is running\"");
  EXPECT_EQ(one.ask("GET", "/nothing").body, R"({"detail":"Not Found"})");
  EXPECT_EQ(one.ask("GET", "/generate").status, 405U);
  EXPECT_EQ(one.ask("POST", "/v1/completions", "{}", "content-type: text/plain\r\n").status, 400U);
}

// Not a moment later, or who counts the answers of several servers misses some.
TEST_F(Served, WhoHasAnAnswerFindsItCounted) {
  executor.seconds = 1e-4;  // passes follow faster than queues are looked at
  start();
  for (std::uint64_t i = 1; i <= 300; ++i) {
    ASSERT_EQ(client()
                  .ask("POST", "/generate", R"({"text": "a", "sampling_params": {"max_new_tokens": 1}})")
                  .status,
              200U);
    ASSERT_EQ(fleet->statistics().finished_requests, i);
  }
}

TEST_F(Served, RefusesWhereTheQueueIsFull) {
  config.max_running_requests = 1;
  start({.max_queued_requests = 1});
  std::vector<std::unique_ptr<HttpClient>> clients;
  unsigned refused = 0;
  for (int i = 0; i < 6; ++i) {
    clients.push_back(std::make_unique<HttpClient>(server->port()));
    clients.back()->send("POST", "/generate",
                         R"({"input_ids": [1], "sampling_params": {"max_new_tokens": 30}})");
    std::this_thread::sleep_for(30ms);
  }
  for (const auto& one : clients) {
    const HttpAnswer answer = one->receive();
    if (answer.status == 503U) {
      ++refused;
      EXPECT_EQ(json::parse(answer.body)["message"], "The request queue is full.");
    }
  }
  EXPECT_GE(refused, 3U);
}

TEST_F(Served, ASlowReaderFindsOneEventWithAllThatCameMeanwhile) {
  executor.seconds = 0.0005;
  format.incremental_streaming_output = false;
  start();
  HttpClient slow = client();
  slow.socket().set_option(boost::asio::socket_base::receive_buffer_size(4096));
  slow.send("POST", "/generate",
            R"({"input_ids": [1], "stream": true, "sampling_params": {"max_new_tokens": 4000}})");
  wait_until_idle();  // the replica is not held up
  const HttpAnswer answer = slow.receive();
  const std::vector<std::string> events = answer.events();
  EXPECT_LT(events.size(), 4000U);
  EXPECT_EQ(json::parse(events[events.size() - 2])["output_ids"].size(), 4000U);
  EXPECT_GT(service->statistics().merged_deltas, 0U);
}

// Of OpenAI's streams nothing is sent before the first token, not even that they are streams.
TEST_F(Served, StreamsThatNeverBeganAreNotOpen) {
  executor.seconds = 0.3;
  start();
  {
    HttpClient one = client();
    one.send("POST", "/v1/completions", R"({"model": "m", "prompt": "a", "max_tokens": 9, "stream": true})");
    while (fleet->open_requests() == 0) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(service->statistics().open_streams, 1U);
  }
  wait_until_idle();
  EXPECT_EQ(service->statistics().open_streams, 0U);
  const json prompt = std::vector<std::uint32_t>(9000, 1);
  const HttpAnswer refused = client().ask("POST", "/v1/completions",
                                          json{{"model", "m"}, {"prompt", prompt}, {"stream", true}}.dump());
  EXPECT_EQ(refused.status, 400U);
  EXPECT_EQ(service->statistics().open_streams, 0U);
}

// Its answers fill the socket anywhere, in the middle of a head, too.
TEST_F(Served, WhoAsksAheadAndDoesNotReadGetsEveryAnswerWhole) {
  start();
  HttpClient ahead = client();
  ahead.socket().set_option(boost::asio::socket_base::receive_buffer_size(64 << 10));
  constexpr int kCalls = 3000;
  std::string calls;
  for (int i = 0; i < kCalls; ++i)
    calls += "POST /generate HTTP/1.1\r\nhost: x\r\ncontent-length: 16\r\n\r\n{\"stream\": true}";
  ahead.send(calls);
  std::this_thread::sleep_for(200ms);
  const std::string first = ahead.receive().body;
  EXPECT_TRUE(first.ends_with("data: [DONE]\n\n")) << first;
  for (int i = 1; i < kCalls; ++i) ASSERT_EQ(ahead.receive().body, first) << "answer " << i;
}

TEST_F(Served, TimesAreThoseOfTheReplica) {
  start();
  HttpClient one = client();
  const auto sent = std::chrono::steady_clock::now();
  const HttpAnswer answer =
      one.ask("POST", "/generate", R"({"input_ids": [1], "sampling_params": {"max_new_tokens": 50}})");
  const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - sent).count();
  const double latency = json::parse(answer.body)["meta_info"]["e2e_latency"];
  EXPECT_NEAR(latency, 0.5, 0.011);
  EXPECT_NEAR(wall, latency, 0.1);
}

}  // namespace
}  // namespace tpsim::launch
