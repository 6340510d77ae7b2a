#include "launch/serve/protocol/call_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "launch/serve/protocol/refusal.h"

namespace tpsim::launch {
namespace {

using nlohmann::json;

// Not null, false, 0, nor empty, nor a list of such.
bool asks(const json* value) {
  if (value == nullptr || value->is_null()) return false;
  if (value->is_boolean()) return value->get<bool>();
  if (value->is_number()) return value->get<double>() != 0;
  if (value->is_string()) return !value->get_ref<const std::string&>().empty();
  if (value->is_array())
    return std::any_of(value->begin(), value->end(), [](const json& entry) { return asks(&entry); });
  return !value->empty();
}

}  // namespace

void refuse_unsimulated(const JsonFields& fields) {
  struct Sentence {
    std::string_view field;
    std::string_view sentence;
  };
  static constexpr Sentence kSentences[] = {
      {"return_logprob", "nobody computes log probabilities here; leave it out"},
      {"return_hidden_states",
       "The server is not configured to return the hidden states. Please set "
       "`--enable-return-hidden-states` to enable this feature."},
      {"return_routed_experts", "routed experts are not simulated; leave it out"},
      {"return_indexer_topk", "the indexer's choices are not simulated; leave it out"},
      {"return_cached_tokens_details", "usage has them with --enable-cache-report; leave it out"},
      {"return_entropy", "nobody computes entropies here; leave it out"},
      {"custom_logit_processor",
       "The server is not configured to enable custom logit processor. Please set "
       "`--enable-custom-logit-processor` to enable this feature."},
      {"session_params",
       "sessions are not simulated; send the whole prompt, its prefix is found in the cache"},
      {"lora_path",
       "LoRA adapters are not simulated. Please launch the server without them and leave lora_path out."},
      {"input_embeds", "embeddings are not simulated; send text or input_ids"},
      {"image_data", "live requests are text only; images are simulated by `tpsim run`"},
      {"video_data", "videos are not simulated; leave it out"},
      {"audio_data", "audio is not simulated; leave it out"},
      {"positional_embed_overrides", "embeddings are not simulated; leave it out"},
      {"multi_item_delimiter_indices", "scoring of several items is not simulated; leave it out"},
  };
  for (const Sentence& known : kSentences) {
    if (asks(fields.find(known.field))) refuse_value(fmt::format("{}: {}", known.field, known.sentence));
  }
  for (const std::string_view rank : {"routed_dp_rank", "data_parallel_rank"}) {
    if (asks(fields.find(rank)))
      refuse_value(fmt::format(
          "{}: the server chooses data-parallel ranks by --load-balance-method; leave it out", rank));
  }
}

void read_common(const JsonFields& fields, GenerateCall& call) {
  call.rids = fields.texts("rid");
  std::vector<std::string> sorted = call.rids;
  std::sort(sorted.begin(), sorted.end());
  if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end())
    refuse_value(fmt::format("Duplicate request IDs detected within the request: ['{}']", *twice));
  const bool one_for_all = call.rids.size() == 1;
  if (!call.rids.empty() && !one_for_all && call.rids.size() != call.prompts.size())
    refuse_value("The specified rids length mismatch with the batch_size for batch processing.");
  if (const auto priority = fields.integer("priority", std::numeric_limits<std::int32_t>::min(),
                                           std::numeric_limits<std::int32_t>::max()))
    call.priority = static_cast<std::int32_t>(*priority);
  for (const std::string_view name : {"cache_salt", "extra_key"}) {
    const std::vector<std::string> keys = fields.texts(name);
    if (keys.size() > 1) refuse_value(fmt::format("{}: one for all prompts of a call is simulated", name));
    if (!keys.empty()) call.extra_key += keys.front();
  }
}

void check_size(const GenerateCall& call, const ParseLimits& limits) {
  if (call.prompts.size() * std::size_t{call.n} > limits.max_prompts)
    refuse_value(fmt::format("{} prompts with {} answers each are more than --max-prompts-per-call {} allows",
                             call.prompts.size(), call.n, limits.max_prompts));
}

}  // namespace tpsim::launch
