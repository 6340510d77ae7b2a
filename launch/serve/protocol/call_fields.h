// What the bodies of all protocols have in common.
#pragma once

#include "launch/serve/protocol/generate_call.h"
#include "launch/serve/protocol/json_fields.h"

namespace tpsim::launch {

// Fields of SGLang's that ask for what is not simulated. Throws Refusal with SGLang's own sentence where a
// server without that feature has one.
void refuse_unsimulated(const JsonFields& fields);
// rid, priority and the namespace of the prefix cache, into `call`.
void read_common(const JsonFields& fields, GenerateCall& call);
// Throws Refusal where prompts times n are more than `limits` allows.
void check_size(const GenerateCall& call, const ParseLimits& limits);

}  // namespace tpsim::launch
