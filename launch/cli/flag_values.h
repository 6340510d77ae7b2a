// Readers of one flag's value: what a declaration hands to FlagSet. Each refers to its target, which must
// outlive the FlagSet, and throws UserError with a sentence that names flag, value and what would do.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "launch/cli/flag_set.h"
#include "proto/base/text.h"

namespace tpsim::launch {

// No count of tokens or requests in a run comes near; larger ones are slips of the keyboard.
inline constexpr std::uint64_t kMaxCount = 1'000'000'000;

// A word of the command line and what it stands for.
template <typename T>
struct Named {
  std::string_view name;
  T value;
};

template <typename T, std::size_t N>
constexpr std::string_view name_of(const std::array<Named<T>, N>& table, T value) {
  for (const auto& entry : table) {
    if (entry.value == value) return entry.name;
  }
  return "?";
}

[[noreturn]] void refuse_choice(std::string_view flag, std::string_view value,
                                std::span<const std::string_view> choices);

// Reads a word out of `table` into `target`.
template <typename T, std::size_t N, typename Target>
FlagSet::ReadValue choice(const std::array<Named<T>, N>& table, Target& target) {
  return [&table, &target](std::string_view flag, const std::string& value) {
    std::vector<std::string_view> names;
    for (const auto& entry : table) {
      if (entry.name == value) {
        target = entry.value;
        return;
      }
      names.push_back(entry.name);
    }
    refuse_choice(flag, value, names);
  };
}

using Words = std::vector<std::string_view>;
void check_word(std::string_view flag, const std::string& value, const Words& choices);
void check_text(std::string_view flag, const std::string& value);

// Below, `target` is of its kind or an optional one.

// One of `choices`; of those that `meant` has, what they mean.
template <typename T>
FlagSet::ReadValue word(Words choices, T& target, std::map<std::string, std::string> meant = {}) {
  return [meant = std::move(meant), choices = std::move(choices), &target](std::string_view flag,
                                                                           const std::string& value) {
    check_word(flag, value, choices);
    const auto other = meant.find(value);
    target = other == meant.end() ? value : other->second;
  };
}

template <typename T>
FlagSet::ReadValue text(T& target) {
  return [&target](std::string_view flag, const std::string& value) {
    check_text(flag, value);
    target = value;
  };
}

// Names with commas between them, added to `target`: of a flag that takes a list.
FlagSet::ReadList name_list(std::vector<std::string>& target);

template <typename T>
FlagSet::ReadValue count(T& target, std::uint64_t min, std::uint64_t max = kMaxCount) {
  return [&target, min, max](std::string_view flag, const std::string& value) {
    using Number = std::conditional_t<std::is_arithmetic_v<T>, T, std::uint64_t>;
    if constexpr (std::is_arithmetic_v<T>)
      target = static_cast<Number>(parse_count(flag, value, min, max));
    else
      target = static_cast<typename T::value_type>(parse_count(flag, value, min, max));
  };
}

template <typename T>
FlagSet::ReadValue real(T& target, double min, bool min_included, double max, bool max_included) {
  return [=, &target](std::string_view flag, const std::string& value) {
    target = parse_real(flag, value, min, min_included, max, max_included);
  };
}

}  // namespace tpsim::launch
