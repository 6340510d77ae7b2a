// JSON of clients. The fields of an object are read one by one: one that is missing or null has its default,
// one of another type is refused with its name. Numbers follow Python's: 16.0 is a whole number. And how a
// client is told that its request is not carried out.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "launch/serve/protocol/generate_call.h"

namespace tpsim::launch {

// Which of SGLang's error bodies.
enum class ErrorStyle {
  kPlain,   // {"error":{"message":...}}: what /generate answers to a wrong value
  kOpenAi,  // {"object":"error","message":...,"type":...,"param":null,"code":...}: all else
};

// A request that is not carried out.
class Refusal : public std::runtime_error {
 public:
  Refusal(unsigned status_code, std::string error_type, const std::string& sentence)
      : std::runtime_error(sentence), status(status_code), type(std::move(error_type)) {}

  unsigned status;
  std::string type;  // of kOpenAi
  // The call asked for a stream, in which /generate says what is wrong with a value.
  bool in_stream = false;
};

// A field that is missing or no such thing, in SGLang found before the request is looked at as a whole.
[[noreturn]] void refuse_field(std::string_view field, std::string_view sentence);
// A value that the server does not accept (a ValueError in SGLang).
[[noreturn]] void refuse_value(const std::string& sentence);

std::string error_body(ErrorStyle style, unsigned status, std::string_view type, std::string_view message);

// `body` as a JSON object. Throws Refusal: no JSON, no object, or nested deeper than anybody needs.
nlohmann::json parse_json_object(std::string_view body);

// OpenAI's, of a model that is not served: 404.
std::string model_not_found_body(std::string_view model);

class JsonFields {
 public:
  // `object` must outlive this. `prefix` goes in front of the names in sentences.
  explicit JsonFields(const nlohmann::json& object, std::string prefix = {});

  // The value; null where it is missing or null.
  const nlohmann::json* find(std::string_view name) const;
  bool boolean(std::string_view name, bool otherwise) const;
  std::optional<std::int64_t> integer(std::string_view name, std::int64_t least, std::int64_t most) const;
  std::optional<double> real(std::string_view name) const;
  std::optional<std::string> text(std::string_view name) const;
  // One, or a list.
  std::vector<std::string> texts(std::string_view name) const;
  std::vector<std::uint32_t> ids(std::string_view name) const;
  const std::string& prefix() const { return prefix_; }

 private:
  std::string path(std::string_view name) const { return prefix_ + std::string(name); }

  const nlohmann::json& object_;
  std::string prefix_;
};

// A whole number within the limits, or nothing.
std::optional<std::int64_t> whole_number(const nlohmann::json& value, std::int64_t least, std::int64_t most);
// Throws Refusal naming `field` where `value` is not a list of token ids.
std::vector<std::uint32_t> token_ids(const nlohmann::json& value, std::string_view field);

// Appends `text` as JSON writes it between the quotes. It is UTF-8; what is not becomes U+FFFD.
void append_escaped(std::string_view text, std::string& out);
// With its quotes.
std::string json_string(std::string_view text);

// What the bodies of all protocols have in common.

// Fields of SGLang's that ask for what is not simulated. Throws Refusal with SGLang's own sentence where a
// server without that feature has one.
void refuse_unsimulated(const JsonFields& fields);
// rid, priority and the namespace of the prefix cache, into `call`.
void read_common(const JsonFields& fields, GenerateCall& call);
// Throws Refusal where prompts times n are more than `limits` allows.
void check_size(const GenerateCall& call, const ParseLimits& limits);

inline constexpr std::int64_t kMostTokens = 1'000'000'000;  // of an answer
inline constexpr std::int64_t kMostAnswers = 1'000'000;     // `n` of a prompt

// How the fields of one protocol differ from another's.
struct SamplingNames {
  std::string_view max_new_tokens = "max_new_tokens";
  std::string_view min_new_tokens = "min_new_tokens";
  std::string_view seed = "sampling_seed";
  std::optional<std::uint32_t> default_max_new_tokens = 128;
};

// Of /generate's "sampling_params", or of the whole body of OpenAI's calls, whose `n` the caller reads.
// Throws Refusal.
SamplingFields parse_sampling(const JsonFields& fields, const SamplingNames& names);

}  // namespace tpsim::launch
