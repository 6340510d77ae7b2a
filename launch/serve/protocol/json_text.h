// Text as JSON writes it.
#pragma once

#include <string>
#include <string_view>

namespace tpsim::launch {

// Appends what stands between the quotes. `text` is UTF-8; what is not becomes U+FFFD.
void append_escaped(std::string_view text, std::string& out);
// With its quotes.
std::string json_string(std::string_view text);

}  // namespace tpsim::launch
