// What a client asks to be generated, in whichever protocol it said so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tpsim::launch {

// SGLang's SamplingParams, those that mean something here. What only decides which tokens are drawn has been
// checked and, as --executor modeled draws none, not kept; `undrawable` names the first of it that numeric
// execution cannot heed.
struct SamplingFields {
  std::optional<std::uint32_t> max_new_tokens = 128;  // none: what the context leaves
  double temperature = 1, top_p = 1;
  std::int64_t top_k = -1;  // -1: all
  std::optional<std::uint64_t> seed;
  std::vector<std::string> stop;
  std::vector<std::uint32_t> stop_token_ids;
  bool ignore_eos = false;
  bool skip_special_tokens = true;
  bool no_stop_trim = false;
  std::optional<std::uint32_t> stream_interval;
  std::string undrawable;
};

// A prompt as text or as ids; of a chat, its messages.
struct PromptInput {
  bool is_text = false;
  std::string text;
  std::vector<std::uint32_t> ids;
};

struct GenerateCall {
  enum class Api : std::uint8_t { kGenerate, kCompletions, kChat };

  Api api = Api::kGenerate;
  std::vector<PromptInput> prompts;      // at least one; of a chat one, filled in by its template
  std::vector<SamplingFields> sampling;  // one, or one for each prompt
  std::uint32_t n = 1;                   // answers to each prompt
  bool single = true;                    // /generate: the answer is an object, not a list
  bool stream = false;
  std::vector<std::string> rids;  // empty: the server makes them up; else one for each prompt, or one for all
  std::optional<std::int32_t> priority;
  std::string extra_key;             // namespace of the prefix cache; empty: none
  std::string routing_key;           // of a header, for the router's policy manual; empty: none
  std::optional<std::string> model;  // as the client says it

  // Of OpenAI's.
  bool echo = false;
  bool include_usage = false, continuous_usage_stats = false;
  // Of a chat: JSON, as it came.
  std::string messages, tools, chat_template_kwargs;
  bool continue_final_message = false;

  const SamplingFields& sampling_of(std::size_t prompt) const {
    return sampling[sampling.size() == 1 ? 0 : prompt];
  }
};

struct ParseLimits {
  std::size_t max_prompts = 4096;  // of one call, times n
};

// The body of POST /generate, /v1/completions, /v1/chat/completions. Throw Refusal.
GenerateCall parse_generate(std::string_view body, const ParseLimits& limits);
GenerateCall parse_completion(std::string_view body, const ParseLimits& limits);
GenerateCall parse_chat(std::string_view body, const ParseLimits& limits);

struct AbortCall {
  std::string rid;
  bool abort_all = false;
};
// The body of POST /abort_request.
AbortCall parse_abort(std::string_view body);

}  // namespace tpsim::launch
