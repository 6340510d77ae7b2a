// What stands in for a tokenizer: one token for four bytes. An id's text is a space and three characters, and
// such a text is that id again, so that what the server answers counts as many tokens when it comes back in a
// prompt. Equal texts have equal ids, and their prefixes too, up to four bytes: prefixes are shared as with a
// real one.
#pragma once

#include <cstdint>
#include <memory>

#include "launch/tokenizer/tokenizer.h"

namespace tpsim::launch {

// REQUIRES: vocab_size > 0.
std::unique_ptr<Tokenizer> four_bytes_a_token(std::uint32_t vocab_size);

}  // namespace tpsim::launch
