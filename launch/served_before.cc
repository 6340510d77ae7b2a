#include "launch/served_before.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>

#include "launch/flag_values.h"
#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::launch {

std::vector<rank::ServedLoad> parse_served_before(std::string_view flag, const std::string& text) {
  constexpr const char* kForms =
      "must be warmup, or loads as closed:INPUT:OUTPUT:CONCURRENCY:PROMPTS, burst:INPUT:OUTPUT:PROMPTS or "
      "azure:FROM:TO:SCALE, divided by commas";
  std::vector<rank::ServedLoad> loads;
  for (const std::string& name : split_list(text)) {
    std::string words = name;
    std::replace(words.begin(), words.end(), ':', ',');
    const std::vector<std::string> parts = split_list(words);
    const auto number = [&](std::size_t i) {
      try {
        return static_cast<std::uint32_t>(parse_count(flag, parts[i], 1, kMaxCount));
      } catch (const UserError&) {
        throw_user_error("{} {}: {}", flag, text, kForms);
      }
    };
    if (name == "warmup") continue;
    if (parts[0] == "closed" && parts.size() == 5) {
      loads.push_back({number(1), number(3), number(2)});
    } else if (parts[0] == "burst" && parts.size() == 4) {
      loads.push_back({number(1), number(3), number(2)});
    } else if (parts.size() > 1 && parts[0] != "closed" && parts[0] != "burst" &&
               std::isalpha(static_cast<unsigned char>(parts[0].empty() ? 0 : parts[0].front())) != 0) {
      loads.push_back({});
    } else {
      throw_user_error("{} {}: {}", flag, text, kForms);
    }
  }
  return loads;
}

}  // namespace tpsim::launch
