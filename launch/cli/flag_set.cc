#include "launch/cli/flag_set.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "launch/cli/config_file.h"
#include "launch/cli/sglang_flags.h"
#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::launch {

namespace {

// The values of a list that was written with commas; a file may have them in its name.
std::vector<std::string> split(const std::vector<std::string>& values) {
  std::error_code too_long;
  if (values.size() != 1 || std::filesystem::exists(values.front(), too_long)) return values;
  return split_list(values.front());
}

// `values`: of a switch, what a config file says or "true".
bool refuses(const SglangFlag& flag, const std::vector<std::string>& values) {
  const auto harmless = [&flag](const std::string& value) { return flag.changes_nothing(value); };
  return flag.verdict == SglangFlag::Verdict::kRefused &&
         (values.empty() || !std::all_of(values.begin(), values.end(), harmless));
}

// Flags that are refused, those for the same reason together: a user is told of all of them at once.
class Refusals {
 public:
  void add(const std::string& name, std::string_view reason) {
    const auto known = std::find_if(reasons_.begin(), reasons_.end(),
                                    [reason](const auto& other) { return other.first == reason; });
    if (known == reasons_.end())
      reasons_.emplace_back(reason, "--" + name);
    else
      known->second += ", --" + name;
  }
  void throw_any() const {
    std::string text;
    for (const auto& [reason, names] : reasons_)
      text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", names, reason);
    if (!text.empty()) throw UserError(text);
  }

 private:
  std::vector<std::pair<std::string, std::string>> reasons_;  // with the flags, in order of appearance
};

// Whether it reads as what a switch is given, or a list of it.
bool is_truth(const std::string& word) {
  return std::ranges::all_of(split_list(word),
                             [](const std::string& item) { return item == "true" || item == "false"; });
}

}  // namespace

FlagSet::FlagSet(CLI::App& app) : app_(app) {
  app_.allow_extras();
  add(Kind::kValue, "--config", "FILE",
      "YAML file whose keys are flags without their dashes; flags given here win",
      [this](std::string_view flag, const std::vector<std::string>& values) {
        if (values.back().empty()) throw_user_error("{}: the value is empty, name a YAML file", flag);
        config_path_ = values.back();
      });
}

void FlagSet::add(Kind kind, const std::string& names, const std::string& metavar, const std::string& help,
                  ReadList read) {
  CLI::Option* option = nullptr;
  if (kind == Kind::kSwitch) {
    option = app_.add_flag(names, help);
  } else {
    option = app_.add_option(
        names, [](const CLI::results_t&) { return true; }, help);
    option->type_name(metavar);
    if (kind == Kind::kList) option->expected(1, CLI::detail::expected_max_vector_size)->allow_extra_args();
    if (kind == Kind::kBoolean) option->expected(0, 1)->default_str("true");
  }
  option->group(group_);
  const std::vector<std::string> aliases = option->get_lnames();
  flags_.push_back({kind, "--" + aliases.front(), aliases, option, std::move(read)});
}

void FlagSet::add_value(const std::string& names, const std::string& metavar, const std::string& help,
                        ReadValue read) {
  add(Kind::kValue, names, metavar, help,
      [read = std::move(read)](std::string_view flag, const std::vector<std::string>& values) {
        read(flag, values.back());
      });
}

void FlagSet::add_flags_value(const std::string& name, const std::string& help, ReadValue read) {
  add_value(name, "FLAGS", help, std::move(read));
  flags_.back().of_flags = true;
}

void FlagSet::add_list(const std::string& names, const std::string& metavar, const std::string& help,
                       ReadList read) {
  add(Kind::kList, names, metavar, help, std::move(read));
}

void FlagSet::add_switch(const std::string& names, const std::string& help, bool& target) {
  add(Kind::kSwitch, names, "", help,
      [&target](std::string_view flag, const std::vector<std::string>& values) {
        const std::string& value = values.back();
        if (value != "true" && value != "false")
          throw_user_error("{} {}: must be true or false", flag, value);
        target = value == "true";
      });
}

void FlagSet::add_boolean(const std::string& names, const std::string& help, std::optional<bool>& target) {
  add(Kind::kBoolean, names, "[true|false]", help,
      [&target](std::string_view flag, const std::vector<std::string>& values) {
        const std::string value = values.empty() ? "true" : to_lower(values.back());
        if (value != "true" && value != "false")
          throw_user_error("{} {}: must be true or false", flag, values.back());
        target = value == "true";
      });
}

void FlagSet::add_word(const std::string& metavar, const std::string& help, std::string& target,
                       bool required) {
  app_.add_option(metavar, target, help)->required(required);
}

void FlagSet::mark_lists(std::span<const std::string_view> names, bool taken) {
  for (Flag& flag : flags_) {
    if (std::find(names.begin(), names.end(), flag.name) == names.end()) continue;
    flag.lists = taken ? Lists::kTaken : Lists::kRefused;
    const char* const how = flag.kind == Kind::kSwitch ? " [list: =true,false]" : " [list]";
    if (taken) flag.option->description(flag.option->get_description() + how);
  }
}

void FlagSet::read_values(const Flag& flag, const std::vector<std::string>& values) {
  given_[flag.name] = fmt::format("{}", fmt::join(values, " "));
  const std::vector<std::string> items = flag.lists == Lists::kNone ? values : split(values);
  if (flag.lists == Lists::kNone || items.size() == 1) {
    flag.read(flag.name, values);
    return;
  }
  if (flag.lists == Lists::kRefused)
    throw_user_error("{} {}: takes one value here; `tpsim compare` takes a list and runs every value of it",
                     flag.name, fmt::join(items, ","));
  for (const std::string& item : items) {
    if (item.empty())
      throw_user_error("{} {}: a value of the list is empty", flag.name, fmt::join(items, ","));
    if (std::count(items.begin(), items.end(), item) > 1)
      throw_user_error("{} {}: {} is listed twice", flag.name, fmt::join(items, ","), item);
    flag.read(flag.name, {item});
  }
  lists_.push_back({flag.name, items});
}

void FlagSet::set(std::string_view name, const std::string& value) const {
  const auto flag = std::find_if(flags_.begin(), flags_.end(), [&](const Flag& f) { return f.name == name; });
  flag->read(flag->name, {value});
}

std::vector<std::string> FlagSet::names() const {
  std::vector<std::string> names;
  for (const Flag& flag : flags_) names.push_back(flag.name);
  return names;
}

std::vector<std::string_view> FlagSet::known_names() const {
  std::vector<std::string_view> names;
  for (const Flag& flag : flags_) names.insert(names.end(), flag.aliases.begin(), flag.aliases.end());
  return names;
}

std::string FlagSet::unknown(std::string_view name) const {
  // What vLLM, genai-perf and people call them.
  using Names = std::pair<std::string_view, std::string_view>;
  constexpr std::array<Names, 11> kElsewhere = {{{"max-model-len", "context-length"},
                                                 {"gpu-memory-utilization", "mem-fraction-static"},
                                                 {"max-num-seqs", "max-running-requests"},
                                                 {"max-num-batched-tokens", "chunked-prefill-size"},
                                                 {"isl", "random-input-len"},
                                                 {"osl", "random-output-len"},
                                                 {"qps", "request-rate"},
                                                 {"dataset", "dataset-name"},
                                                 {"gpu", "hardware"},
                                                 {"gpu-type", "hardware"},
                                                 {"num-gpus", "gpus"}}};
  const std::vector<std::string_view> known = known_names();
  std::string_view guess = nearest(name, known);
  for (const auto& [elsewhere, here] : kElsewhere) {
    if (name == elsewhere && std::ranges::find(known, here) != known.end()) guess = here;
  }
  return fmt::format("unknown flag{}", guess.empty() ? fmt::format(", see `tpsim {} --help`", app_.get_name())
                                                     : fmt::format(", did you mean --{}?", guess));
}

// `values`: of a switch, what a config file says or "true".
void FlagSet::take_sglang_flag(const std::string& name, const SglangFlag& flag,
                               const std::vector<std::string>& values) {
  if (refuses(flag, values)) throw_user_error("--{}: {}", name, flag.reason);
  if (flag.verdict == SglangFlag::Verdict::kRefused) return;  // and given with what changes nothing
  if (ignored_ == nullptr)
    throw_user_error("--{}: is about SGLang's server process, which `tpsim {}` does not start; leave it out",
                     name, app_.get_name());
  ignored_->push_back("--" + name);
}

// What CLI11 did not know: flags of SGLang with their values, and mistakes.
void FlagSet::take_extras() {
  using Values = SglangFlag::Values;
  const std::vector<std::string> words = app_.remaining();
  Refusals refusals;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i].rfind("--", 0) != 0)
      throw_user_error(
          "{0}: `tpsim {1}` takes flags only{2}, see `tpsim {1} --help`", words[i], app_.get_name(),
          is_truth(words[i]) ? ", and a switch its value behind =, as in --flag=" + words[i] : "");
    const std::size_t equals = words[i].find('=');
    const bool joined = equals != std::string::npos;
    const std::string name = words[i].substr(2, joined ? equals - 2 : std::string::npos);
    const auto value_follows = [&] { return i + 1 < words.size() && words[i + 1].rfind("--", 0) != 0; };
    const std::optional<SglangFlag> flag = find_sglang_flag(name, program_);
    if (!flag) {
      refusals.add(name, unknown(name));
      while (value_follows()) ++i;
      continue;
    }
    std::vector<std::string> values;
    if (joined) values.push_back(words[i].substr(equals + 1));
    if (flag->values == Values::kNone) {
      if (joined) throw_user_error("--{}: takes no value", name);
      values.emplace_back("true");
    } else if (!joined) {
      while (value_follows() && (values.empty() || flag->values == Values::kMany))
        values.push_back(words[++i]);
    }
    if (values.empty() && flag->values == Values::kOne && flag->verdict != SglangFlag::Verdict::kRefused)
      throw_user_error("--{}: needs a value", name);
    if (refuses(*flag, values))
      refusals.add(name, flag->reason);
    else
      take_sglang_flag(name, *flag, values);
  }
  refusals.throw_any();
}

void FlagSet::refuse_missing_values() const {
  for (const Flag& flag : flags_) {
    if (flag.kind == Kind::kSwitch || flag.of_flags) continue;
    for (const std::string& value : flag.option->results()) {
      if (value.starts_with("--")) throw_user_error("{}: needs a value, and {} follows it", flag.name, value);
    }
  }
}

void FlagSet::read() {
  refuse_missing_values();
  std::vector<std::string> wrong;  // a user is told of all at once
  const auto note = [&wrong](const auto& reading) {
    try {
      reading();
    } catch (const UserError& error) {
      wrong.emplace_back(error.what());
    }
  };
  note([this] { take_extras(); });
  // --config is the first flag.
  if (flags_.front().option->count() > 0)
    flags_.front().read(flags_.front().name, flags_.front().option->results());
  std::vector<ConfigEntry> entries;
  if (!config_path_.empty()) entries = read_config_file(config_path_);

  // Unknown keys first: a misspelt key must not hide behind another error.
  for (const ConfigEntry& entry : entries) {
    std::vector<std::string_view> names = known_names();
    std::erase(names, "config");
    if (std::find(names.begin(), names.end(), entry.key) != names.end()) continue;
    const std::optional<SglangFlag> flag = find_sglang_flag(entry.key, program_);
    if (!flag) {
      throw_user_error("{}:{}: {}: not an option of `tpsim {}`{}", config_path_, entry.line, entry.key,
                       app_.get_name(), did_you_mean(entry.key, names));
    }
    try {
      take_sglang_flag(entry.key, *flag, entry.values);
    } catch (const UserError& error) {
      throw_user_error("{}:{}: {}", config_path_, entry.line, error.what());
    }
  }

  for (const Flag& flag : flags_) {
    if (flag.name == "--config") continue;
    if (flag.option->count() > 0) {
      note([&] { read_values(flag, flag.option->results()); });
      continue;
    }
    for (const ConfigEntry& entry : entries) {
      if (std::find(flag.aliases.begin(), flag.aliases.end(), entry.key) == flag.aliases.end()) continue;
      note([&] {
        try {
          if (flag.kind != Kind::kList && flag.lists == Lists::kNone && entry.values.size() != 1)
            throw_user_error("{}: takes one value, not a list of {}", entry.key, entry.values.size());
          read_values(flag, entry.values);
        } catch (const UserError& error) {
          throw_user_error("{}:{}: {}", config_path_, entry.line, error.what());
        }
      });
    }
  }
  if (!wrong.empty()) throw_user_error("{}", fmt::join(wrong, "; "));
}

}  // namespace tpsim::launch
