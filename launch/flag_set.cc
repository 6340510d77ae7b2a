#include "launch/flag_set.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "launch/text.h"
#include "launch/unsupported_flags.h"
#include "proto/error.h"

namespace tpsim::launch {

namespace {

// The values of a list that was written with commas; a file may have them in its name.
std::vector<std::string> split(const std::vector<std::string>& values) {
  std::error_code too_long;
  if (values.size() != 1 || std::filesystem::exists(values.front(), too_long)) return values;
  std::vector<std::string> items;
  const std::string& text = values.front();
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t comma = std::min(text.find(',', start), text.size());
    items.push_back(text.substr(start, comma - start));
    start = comma + 1;
  }
  return items;
}

}  // namespace

FlagSet::FlagSet(CLI::App& app) : app_(app) {
  app_.allow_extras();
  add(Kind::kValue, "--config", "FILE",
      "YAML file whose keys are flags without their dashes; flags given here win",
      [this](std::string_view, const std::vector<std::string>& values) { config_path_ = values.back(); });
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

void FlagSet::mark_lists(std::span<const std::string_view> names, Lists lists) {
  for (Flag& flag : flags_) {
    if (std::find(names.begin(), names.end(), flag.name) != names.end()) flag.lists = lists;
  }
}

void FlagSet::take_lists(std::span<const std::string_view> names) {
  mark_lists(names, Lists::kTaken);
  for (Flag& flag : flags_) {
    if (flag.lists == Lists::kTaken) flag.option->description(flag.option->get_description() + " [list]");
  }
}

void FlagSet::refuse_lists(std::span<const std::string_view> names) { mark_lists(names, Lists::kRefused); }

void FlagSet::read_values(const Flag& flag, const std::vector<std::string>& values) {
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

std::vector<std::string_view> FlagSet::known_names() const {
  std::vector<std::string_view> names;
  for (const Flag& flag : flags_) names.insert(names.end(), flag.aliases.begin(), flag.aliases.end());
  return names;
}

void FlagSet::refuse_unknown() const {
  const std::vector<std::string> extras = app_.remaining();
  if (extras.empty()) return;
  std::string word = extras.front();
  if (word.rfind("--", 0) != 0)
    throw_user_error("{}: `tpsim {}` takes flags only, see `tpsim {} --help`", word, app_.get_name(),
                     app_.get_name());
  word = word.substr(2, word.find('=') == std::string::npos ? word.npos : word.find('=') - 2);
  refuse_unsupported_flag("--" + word);
  const std::string_view guess = nearest(word, known_names());
  if (guess.empty()) throw_user_error("--{}: unknown flag, see `tpsim {} --help`", word, app_.get_name());
  throw_user_error("--{}: unknown flag, did you mean --{}?", word, guess);
}

void FlagSet::refuse_missing_values() const {
  for (const Flag& flag : flags_) {
    if (flag.kind == Kind::kSwitch) continue;
    for (const std::string& value : flag.option->results()) {
      if (value.rfind("--", 0) == 0)
        throw_user_error("{}: needs a value, and {} follows it", flag.name, value);
    }
  }
}

void FlagSet::read() {
  refuse_missing_values();
  refuse_unknown();
  // --config is the first flag.
  if (flags_.front().option->count() > 0)
    flags_.front().read(flags_.front().name, flags_.front().option->results());
  std::vector<ConfigEntry> entries;
  if (!config_path_.empty()) entries = read_config_file(config_path_);

  // Unknown keys first: a misspelt key must not hide behind another error.
  for (const ConfigEntry& entry : entries) {
    const std::vector<std::string_view> names = known_names();
    if (entry.key != "config" && std::find(names.begin(), names.end(), entry.key) != names.end()) continue;
    try {
      refuse_unsupported_flag("--" + entry.key);
    } catch (const UserError& error) {
      throw_user_error("{}:{}: {}", config_path_, entry.line, error.what());
    }
    const std::string_view guess = nearest(entry.key, names);
    throw_user_error("{}:{}: {}: not an option of `tpsim {}`{}", config_path_, entry.line, entry.key,
                     app_.get_name(), guess.empty() ? "" : fmt::format(", did you mean {}?", guess));
  }

  for (const Flag& flag : flags_) {
    if (flag.name == "--config") continue;
    if (flag.option->count() > 0) {
      read_values(flag, flag.option->results());
      continue;
    }
    for (const ConfigEntry& entry : entries) {
      if (std::find(flag.aliases.begin(), flag.aliases.end(), entry.key) == flag.aliases.end()) continue;
      try {
        if (flag.kind != Kind::kList && flag.lists == Lists::kNone && entry.values.size() != 1)
          throw_user_error("{}: takes one value, not a list of {}", entry.key, entry.values.size());
        read_values(flag, entry.values);
      } catch (const UserError& error) {
        throw_user_error("{}:{}: {}", config_path_, entry.line, error.what());
      }
    }
  }
}

}  // namespace tpsim::launch
