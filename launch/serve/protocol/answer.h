// One answer as it grows, and why it ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

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

}  // namespace tpsim::launch
