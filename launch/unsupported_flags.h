// SGLang's flags that tpsim knows of and does not simulate: refused by name, never ignored.
#pragma once

#include <string>

namespace tpsim::launch {

// Throws UserError with the reason where `flag` ("--pp-size") is a flag of SGLang's server that this version
// of tpsim does not implement; returns otherwise.
void refuse_unsupported_flag(const std::string& flag);

}  // namespace tpsim::launch
