// One answer as it grows and why it ended; how the answers to a call are written: one implementation for each
// protocol, as SGLang 0.5.12 writes them, field for field in its order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "launch/serve/protocol/generate_call.h"

namespace tpsim::launch {

struct FinishReason {
  enum class Kind : std::uint8_t { kStop, kLength, kAbort };

  Kind kind = Kind::kLength;
  std::string matched = {};     // kStop: the token id, or the string with its quotes, as JSON
  std::uint32_t length = 0;     // kLength
  std::string message = {};     // kAbort
  unsigned status = 0;          // kAbort: of the error that it is; 0: somebody wanted it
  std::string error_type = {};  // kAbort, where status is not 0

  // "stop", "length" or "abort".
  std::string_view type() const;
  bool is_error() const { return kind == Kind::kAbort && status != 0; }
  // As meta_info has it.
  std::string json() const;
};

struct Answer {
  std::string id;           // SGLang's rid
  std::uint32_t index = 0;  // in the call
  std::uint32_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0, retractions = 0;
  std::uint32_t cached_host = 0, cached_storage = 0;  // of cached_tokens
  // All that it says, as JSON writes it: its text without the quotes, its ids with commas between them.
  std::string text, ids;
  // How much of them its client was sent.
  std::size_t text_sent = 0, ids_sent = 0;
  bool begun = false;  // an event of it was sent
  std::optional<FinishReason> finish;
  double e2e_latency = 0;      // seconds of the replica's clock; of a finished one
  double first_sent_time = 0;  // seconds since 1970, when its client was first sent something; 0: not yet

  // Appends one token.
  void add_id(std::uint32_t token);
};

// Of the server, the same for all calls.
struct FormatOptions {
  std::string weight_version = "default";
  bool skip_tokenizer = false;                // SGLang's --skip-tokenizer-init: no text
  std::string tokenizer_note = {};            // /generate says it of its tokens; empty: they are the model's
  bool incremental_streaming_output = false;  // --incremental-streaming-output
  bool enable_cache_report = false;           // --enable-cache-report
  bool default_include_usage = false;         // --stream-response-default-include-usage
};

class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;
  // Whether a stream's head goes out before the first event; otherwise what fails before it has a status of
  // its own.
  virtual bool begins_at_once() const = 0;
  // Appends the events for what is new of `answer`, and marks it as sent.
  virtual void event(Answer& answer, std::string& out) = 0;
  // Appends the events that follow all answers. REQUIRES: all are finished.
  virtual void closing(std::span<Answer> answers, std::string& out) = 0;
  // The body of an answer that is no stream. REQUIRES: all are finished.
  virtual std::string whole(std::span<Answer> answers) = 0;
  // A stream that has begun and cannot go on: its last events.
  virtual void failed(unsigned status, std::string_view type, std::string_view message, std::string& out) = 0;
  // Whether text that was sent may be forgotten.
  virtual bool sends_deltas() const = 0;
};

// `options` must outlive it. `created`: seconds since 1970.
std::unique_ptr<AnswerFormat> make_native_format(const GenerateCall& call, const FormatOptions& options);
std::unique_ptr<AnswerFormat> make_completion_format(const GenerateCall& call, const FormatOptions& options,
                                                     std::int64_t created);
std::unique_ptr<AnswerFormat> make_chat_format(const GenerateCall& call, const FormatOptions& options,
                                               std::int64_t created);

}  // namespace tpsim::launch
