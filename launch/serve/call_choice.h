// One answer of a call as the replica's news make it: its ids, its text, and where it ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/serve/live/live_request.h"
#include "launch/serve/protocol/answer_format.h"
#include "launch/serve/protocol/generate_call.h"
#include "launch/serve/serve_context.h"
#include "scheduler/request_source.h"

namespace tpsim::launch {

// A number for a client's name of its cache's namespace, or of its session; 0 for none. Names are not kept:
// two that share a number share caches where their prompts are equal, too, or a replica.
std::uint32_t hash_of_name(std::string_view name);

// Finds where an answer ends by one of its stop strings, as its text comes.
class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> stops);

  struct Match {
    std::string_view stop;
    std::size_t bytes_from_start;  // of the text so far, from where the stop string begins to its end
  };
  // The next piece of the text. At the first stop string that is whole (the one that begins first), says so;
  // no further call after it. Nothing for an empty list.
  std::optional<Match> push(std::string_view piece);
  // The last `bytes` bytes of the text, as many as a match reaches back at most.
  std::string_view last(std::size_t bytes) const {
    return std::string_view(tail_).substr(tail_.size() - bytes);
  }
  // Whether the end of the text may be the beginning of a stop string.
  bool may_begin() const;

 private:
  const std::vector<std::string> stops_;
  std::size_t longest_ = 0;
  std::string tail_;  // what may still be part of a match, and the last piece
};

class CallChoice {
 public:
  // `answer` and `sampling` must outlive it.
  CallChoice(const ServeContext& context, const ServedModel& model, const SamplingFields& sampling,
             Answer& answer, bool wants_ids);

  // How many tokens to ask the replica for.
  std::uint32_t tokens_to_ask(std::uint64_t prompt_tokens);
  // Modeled execution: the request whose output it will be told.
  void will_say(scheduler::RequestPtr request) { request_ = std::move(request); }
  // Takes what is new; sets the answer's finish where it ends here.
  void take(const TokenNews& news);
  // Whether a stream tells what came after the first `before` tokens, or waits for more (SGLang's
  // stream_interval, and the possible beginning of a stop string).
  bool shows(std::uint32_t before) const;
  // Right before an event, or the whole answer, is written.
  void before_event();
  // What was sent need not be kept.
  void forget_sent();
  Answer& answer() { return answer_; }

 private:
  void take_token(std::uint32_t id);
  void add_text(std::string_view piece);
  void finish(const TokenNews& news);
  std::uint32_t next_id(const TokenNews& news, std::uint32_t i);

  const ServeContext& context_;
  const ServedModel& model_;
  const SamplingFields& sampling_;
  Answer& answer_;
  const bool wants_ids_;
  StopStrings stops_;
  std::unique_ptr<TextStream> text_;  // of computed ids
  scheduler::RequestPtr request_;
  std::size_t run_ = 0;  // of its output, from which the next id comes
  std::uint32_t run_offset_ = 0;
  std::uint32_t last_id_ = 0;
  bool ends_by_itself_ = false;  // its client set no limit
};

}  // namespace tpsim::launch
