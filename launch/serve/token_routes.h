// /tokenize and /detokenize: TokenizeRequest and DetokenizeRequest of SGLang 0.5.12.
#pragma once

#include <string>
#include <string_view>

#include "launch/serve/serve_context.h"

namespace tpsim::launch {

// The bodies of the answers. Throw Refusal. Take as long as tokenizing does.
std::string tokenize_answer(const ServeContext& context, std::string_view body);
std::string detokenize_answer(const ServeContext& context, std::string_view body);

}  // namespace tpsim::launch
