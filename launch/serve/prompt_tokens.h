// The prompts of a call as tokens; and /tokenize and /detokenize (TokenizeRequest and DetokenizeRequest of
// SGLang 0.5.12).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "launch/serve/protocol/generate_call.h"
#include "launch/serve/serve_context.h"
#include "launch/serve/wire/http_message.h"

namespace tpsim::launch {

// Of each prompt of `call`, for `model`, tokenized where it is text; with how many tokens each answer may
// have set in `call.sampling`, of which there is then one for each prompt. Takes as long as tokenizing does.
// Throws Refusal with SGLang's sentences for what does not fit.
std::vector<std::vector<std::uint32_t>> tokenize(const ServeContext& context, const ServedModel& model,
                                                 GenerateCall& call);
// Throw Refusal. Take as long as tokenizing does.
HttpResponse tokenize_answer(const ServeContext& context, std::string_view body);
HttpResponse detokenize_answer(const ServeContext& context, std::string_view body);

}  // namespace tpsim::launch
