// A call while it is served: its prompts at the replica, their answers as they grow, and the exchange that
// takes them.
//
// Everything happens on the exchange's thread. A client that reads slowly finds, each time it has taken what
// it was sent, one event with all that has come meanwhile; one that is gone has its requests cancelled.
//
// Several answers to one prompt (n > 1) are asked for when its prefix is in the cache, as SGLang does: a
// request for one token goes before them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "launch/serve/gate.h"
#include "launch/serve/live/live_request.h"
#include "launch/serve/protocol/answer_format.h"
#include "launch/serve/protocol/generate_call.h"
#include "launch/serve/serve_context.h"
#include "launch/serve/wire/exchange.h"

namespace tpsim::launch {

class LiveCall final : public ExchangeListener, public std::enable_shared_from_this<LiveCall> {
 public:
  // `prompts`: the tokens of call.prompts. `route`, a constant, is what the answer counts for; `pass`
  // is held until it is over.
  LiveCall(ServeContext& context, const ServedModel& model, std::string_view route, GenerateCall call,
           std::vector<std::vector<std::uint32_t>> prompts, std::chrono::steady_clock::time_point arrived,
           std::shared_ptr<Exchange> exchange, Gate::Pass pass);
  ~LiveCall() override;
  // Serves it. Throws Refusal where a name is another request's.
  void start();

  void on_ready() override { flush(); }
  void on_gone() override { end(); }

 private:
  class Choice;
  class Prefix;

  void take_names();
  void drop_name(Choice& choice);
  void begin();
  void submit_prefix(std::size_t prompt);
  void on_prefix(std::size_t prompt, const TokenNews& news);
  void submit_choices(std::chrono::steady_clock::time_point sent);
  scheduler::WorkloadRequest request_of(std::size_t prompt, std::uint32_t max_new_tokens) const;
  void on_finished(Choice& choice);
  void fail(unsigned status, const std::string& message);
  void flush();
  void flush_stream();
  void answer_whole();
  void end();

  ServeContext& context_;
  const ServedModel& model_;
  const std::string_view route_;
  GenerateCall call_;
  std::vector<std::vector<std::uint32_t>> prompts_;
  const std::chrono::steady_clock::time_point arrived_;
  const std::shared_ptr<Exchange> exchange_;
  const Gate::Pass pass_;
  std::unique_ptr<AnswerFormat> format_;
  std::vector<Answer> answers_;  // call_.n for each prompt, one prompt after another
  std::vector<std::unique_ptr<Choice>> choices_;
  std::unique_ptr<Prefix> prefix_;
  std::size_t unfinished_ = 0;
  bool streaming_ = false;  // the head is out
  bool counted_ = false;    // among the open streams
  bool over_ = false;       // answered, or nobody is there
  std::string out_;         // scratch
};

}  // namespace tpsim::launch
