// The prompts of a call as tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "launch/serve/protocol/generate_call.h"
#include "launch/serve/serve_context.h"

namespace tpsim::launch {

// Of each prompt of `call`, tokenized where it is text; with how many tokens each answer may have set in
// `call.sampling`, of which there is then one for each prompt. Takes as long as tokenizing does. Throws
// Refusal with SGLang's sentences for what does not fit.
std::vector<std::vector<std::uint32_t>> tokenize(const ServeContext& context, GenerateCall& call);
// Of a chat alone, however many they are. REQUIRES: the server has a tokenizer. Throws Refusal.
std::vector<std::uint32_t> chat_tokens(const ServeContext& context, const GenerateCall& call);

}  // namespace tpsim::launch
