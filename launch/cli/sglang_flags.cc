#include "launch/cli/sglang_flags.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "proto/base/text.h"

namespace tpsim::launch {
namespace {

// sglang_flags.yaml.
constexpr char kText[] =
#include "sglang_flags.inc"
    ;

using Verdict = SglangFlag::Verdict;

struct Group {
  Verdict verdict;
  std::string reason;
  std::vector<std::string> words;
};

struct Table {
  std::vector<Group> groups;
  std::vector<std::string> own;  // the commands' own flags that begin as one of the families does
};

std::vector<std::string> words_of(const YAML::Node& node) {
  std::istringstream text(node.Scalar());
  return {std::istream_iterator<std::string>(text), {}};
}

Table read_table(const YAML::Node& node) {
  Table table{.groups = {{Verdict::kIgnored, "", words_of(node["ignored"])}}, .own = {}};
  if (node["own"]) table.own = words_of(node["own"]);
  for (const YAML::Node& group : node["refused"])
    table.groups.push_back({Verdict::kRefused, group["reason"].Scalar(), words_of(group["flags"])});
  return table;
}

const Table& table_of(SglangProgram program) {
  static const YAML::Node file = YAML::Load(kText);
  static const Table server = read_table(file), router = read_table(file["router"]),
                     diffusion = read_table(file["diffusion"]);
  return program == SglangProgram::kServer ? server : program == SglangProgram::kRouter ? router : diffusion;
}

// A word of the table as a flag.
SglangFlag parse_word(std::string_view word, const Group& group) {
  using Values = SglangFlag::Values;
  SglangFlag flag{.verdict = group.verdict, .values = Values::kNone, .harmless = {}, .reason = group.reason};
  if (const std::size_t equals = word.find('='); equals != std::string_view::npos) {
    flag.values = Values::kOne;
    flag.harmless = word.substr(equals + 1);
  } else if (word.ends_with('*')) {
    flag.values = Values::kMany;
  } else if (word.ends_with('?')) {
    flag.values = Values::kOneOrNone;
  }
  return flag;
}

bool names(std::string_view word, std::string_view name) {
  if (word.ends_with("-*")) return name.starts_with(word.substr(0, word.size() - 1));
  return word.substr(0, word.find_first_of("=*?")) == name;
}

}  // namespace

bool SglangFlag::changes_nothing(std::string_view value) const {
  if (values == Values::kNone) return value == "false";
  return !harmless.empty() && std::ranges::count(split_list(harmless, '|'), value) > 0;
}

std::optional<SglangFlag> find_sglang_flag(std::string_view name, SglangProgram program) {
  const Table& table = table_of(program);
  if (std::ranges::find(table.own, name) != table.own.end()) return std::nullopt;
  for (const bool families : {false, true}) {
    for (const Group& group : table.groups) {
      for (const std::string& word : group.words) {
        if (word.ends_with("-*") == families && names(word, name)) return parse_word(word, group);
      }
    }
  }
  // sglang_router.launch_server starts both.
  constexpr std::string_view kRouters = "router-";
  if (program == SglangProgram::kServer && name.starts_with(kRouters))
    return find_sglang_flag(name.substr(kRouters.size()), SglangProgram::kRouter);
  return std::nullopt;
}

bool begins_sglang_flag(std::string_view beginning) {
  for (const SglangProgram program :
       {SglangProgram::kServer, SglangProgram::kRouter, SglangProgram::kDiffusion}) {
    for (const Group& group : table_of(program).groups) {
      for (const std::string& word : group.words) {
        if (word.starts_with(beginning) || names(word, beginning)) return true;
      }
    }
  }
  return false;
}

}  // namespace tpsim::launch
