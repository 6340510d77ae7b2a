#include "launch/serve/prompt_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "launch/serve/protocol/refusal.h"
#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

std::string chat_text(const ServeContext& context, const GenerateCall& call) {
  try {
    return context.chat->apply(
        {.messages = call.messages, .tools = call.tools, .template_arguments = call.chat_template_kwargs});
  } catch (const UserError& error) {
    refuse_value(error.what());
  }
}

std::vector<std::uint32_t> encode(const ServeContext& context, const GenerateCall& call,
                                  PromptInput& prompt) {
  if (call.api == GenerateCall::Api::kChat) {
    if (context.format.skip_tokenizer)
      refuse_value("--skip-tokenizer-init: messages need a tokenizer, send input_ids to /generate");
    prompt.text = chat_text(context, call);
    return context.tokenizer->encode(prompt.text, !context.chat->real());
  }
  if (!prompt.is_text) return std::move(prompt.ids);
  if (context.format.skip_tokenizer)
    refuse_value(
        "The engine initialized with skip_tokenizer_init=True cannot accept text prompts. Please provide "
        "input_ids or re-initialize the engine with skip_tokenizer_init=False.");
  return context.tokenizer->encode(prompt.text, true);
}

void check(const ServeContext& context, const std::vector<std::uint32_t>& ids,
           const SamplingFields& sampling) {
  if (ids.empty()) refuse_value("input_ids cannot be empty.");
  const auto beyond =
      std::find_if(ids.begin(), ids.end(), [&](std::uint32_t id) { return id >= context.vocab_size; });
  if (beyond != ids.end())
    refuse_value(fmt::format("The input_ids contain {}, which is not below the vocab size ({}).", *beyond,
                             context.vocab_size));
  const std::uint64_t length = ids.size();
  if (length >= context.context_length)
    refuse_value(fmt::format("The input ({} tokens) is longer than the model's context length ({} tokens).",
                             length, context.context_length));
  if (!sampling.max_new_tokens) return;
  const std::uint64_t wanted = *sampling.max_new_tokens;
  if (length + wanted > context.context_length)
    refuse_value(
        fmt::format("Requested token count exceeds the model's maximum context length of {} tokens. You "
                    "requested a total of {} "
                    "tokens: {} tokens from the input messages and {} tokens for the completion. Please "
                    "reduce the number of "
                    "tokens in the input messages or the completion to fit within the limit.",
                    context.context_length, length + wanted, length, wanted));
  if (context.max_output_tokens && wanted > *context.max_output_tokens)
    refuse_value(fmt::format("{} tokens for the completion are more than --max-output-tokens {} allows",
                             wanted, *context.max_output_tokens));
}

}  // namespace

std::vector<std::uint32_t> chat_tokens(const ServeContext& context, const GenerateCall& call) {
  return context.tokenizer->encode(chat_text(context, call), !context.chat->real());
}

std::vector<std::vector<std::uint32_t>> tokenize(const ServeContext& context, GenerateCall& call) {
  if (call.sampling.size() == 1) call.sampling.resize(call.prompts.size(), call.sampling.front());
  std::vector<std::vector<std::uint32_t>> prompts;
  for (std::size_t i = 0; i < call.prompts.size(); ++i) {
    const SamplingFields& sampling = call.sampling[i];
    prompts.push_back(encode(context, call, call.prompts[i]));
    check(context, prompts.back(), sampling);
    if (context.computes && !sampling.undrawable.empty())
      refuse_value(
          fmt::format("{}: numeric execution draws by temperature, top_k and top_p alone; leave it out",
                      sampling.undrawable));
    if (call.echo && !call.prompts[i].is_text)
      call.prompts[i].text = context.tokenizer->decode(prompts.back(), true);
  }
  return prompts;
}

}  // namespace tpsim::launch
