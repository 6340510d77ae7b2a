#include "launch/cli/flag_values.h"

#include <algorithm>

#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::launch {

void refuse_choice(std::string_view flag, std::string_view value, std::span<const std::string_view> choices) {
  throw_user_error("{} {}: must be {}{}", flag, value, join_or(choices), did_you_mean(value, choices));
}

void check_word(std::string_view flag, const std::string& value, const Words& choices) {
  if (std::find(choices.begin(), choices.end(), value) == choices.end()) refuse_choice(flag, value, choices);
}

FlagSet::ReadList name_list(std::vector<std::string>& target) {
  return [&target](std::string_view flag, const std::vector<std::string>& values) {
    for (const std::string& value : values) {
      for (const std::string& name : split_list(value)) {
        if (name.empty()) throw_user_error("{}: has an empty name", flag);
        target.push_back(name);
      }
    }
  };
}

void check_text(std::string_view flag, const std::string& value) {
  if (value.empty()) throw_user_error("{}: the value is empty", flag);
}

}  // namespace tpsim::launch
