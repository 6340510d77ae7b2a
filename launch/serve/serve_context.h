// What all calls of a server share.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/serve/http_counts.h"
#include "launch/serve/invented_answers.h"
#include "launch/serve/lateness.h"
#include "launch/serve/live/live_replica.h"
#include "launch/serve/protocol/answer_format.h"
#include "launch/serve/protocol/generate_call.h"
#include "launch/serve/request_names.h"
#include "launch/serve/wire/http_request.h"
#include "launch/tokenizer/chat_template.h"
#include "launch/tokenizer/tokenizer.h"

namespace tpsim::launch {

struct ServeContext {
  LiveReplica& replica;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat;
  InventedAnswers invented;
  FormatOptions format;
  ParseLimits parse_limits;
  bool computes = false;                    // --executor numeric
  std::vector<std::uint32_t> eos_ids = {};  // that end a computed answer
  std::uint32_t vocab_size = 0;             // of the model
  std::uint32_t context_length = 0;         // tokens
  std::uint32_t stream_interval = 1;
  std::uint32_t default_output_tokens = 256;
  std::optional<std::uint32_t> max_output_tokens = {};
  std::uint64_t max_open_requests = 65536;
  std::string model_name;
  HttpHeaders answer_headers = {};  // of every answer that has tokens

  RequestNames names = {};
  HttpCounts http = {};
  Lateness lateness = {};
  std::atomic<std::uint64_t> answers = 0;        // seeds of invented ones
  std::atomic<std::uint64_t> merged_deltas = 0;  // see LiveStatistics
  std::atomic<std::uint64_t> invalid_requests = 0;
  std::atomic<std::uint64_t> open_streams = 0;
  std::atomic<bool> draining = false;
};

}  // namespace tpsim::launch
