#include "launch/programs/program.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <system_error>

#include "launch/cli/config_file.h"
#include "proto/base/error.h"
#include "proto/base/text.h"
#include "rank/config/pipeline_names.h"

namespace tpsim::launch {
namespace {

constexpr std::string_view kNumeric = "numeric";

bool is_file(const std::filesystem::path& file) {
  std::error_code error;
  return std::filesystem::is_regular_file(file, error);  // what is a pipe can be read once
}

bool file_mentions_numeric(const std::filesystem::path& file) {
  if (!is_file(file)) return false;
  std::ifstream in(file);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  return text.find(kNumeric) != std::string::npos;
}

// --executor numeric, or a configuration that may say so.
bool may_compute(int argc, const char* const* argv) {
  constexpr std::string_view kConfig = "--config";
  for (int i = 2; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word.ends_with(kNumeric)) return true;
    if (!word.starts_with(kConfig)) continue;
    if (word.size() == kConfig.size() && i + 1 < argc && file_mentions_numeric(argv[i + 1])) return true;
    if (word.size() > kConfig.size() && word[kConfig.size()] == '=' &&
        file_mentions_numeric(word.substr(kConfig.size() + 1)))
      return true;
  }
  return false;
}

// What follows one of `flags`, or stands behind its =.
std::optional<std::string> value_of(int argc, const char* const* argv,
                                    std::initializer_list<std::string_view> flags) {
  for (int i = 2; i < argc; ++i) {
    const std::string_view word = argv[i], name = word.substr(0, word.find('='));
    if (std::ranges::find(flags, name) == flags.end()) continue;
    if (name.size() < word.size()) return std::string(word.substr(name.size() + 1));
    if (i + 1 < argc) return argv[i + 1];
  }
  return std::nullopt;
}

// The model that --model-path names, also of --config; of a list, which `compare` takes, the first. Empty:
// none.
std::string asked_model(int argc, const char* const* argv) {
  if (const std::optional<std::string> model = value_of(argc, argv, {"--model-path", "--model"}))
    return split_list(*model).front();
  const std::optional<std::string> config = value_of(argc, argv, {"--config"});
  if (!config || !is_file(*config)) return "";
  try {
    for (const ConfigEntry& entry : read_config_file(*config)) {
      if ((entry.key == "model-path" || entry.key == "model") && !entry.values.empty())
        return split_list(entry.values.front()).front();
    }
  } catch (const UserError&) {
  }  // said when the file is read in earnest
  return "";
}

}  // namespace

AddCommand find_linked(std::string_view command, bool pipeline) {
  const auto at = std::ranges::find(kProgram.commands, command, &LinkedCommand::name);
  if (at == kProgram.commands.end()) return nullptr;
  return pipeline ? at->add_pipeline : at->add;
}

bool asks_pipeline(int argc, const char* const* argv) {
  const CommandName* const command = command_of(argc, argv);
  if (command == nullptr || command->pipeline_program.empty()) return false;
  if (command->name == "backends" &&
      std::ranges::count(std::span(argv + 1, argv + argc), std::string_view("--pipeline")) > 0)
    return true;
  return rank::is_pipeline(asked_model(argc, argv));
}

void refuse_pipeline(int argc, const char* const* argv) {
  const CommandName* const command = command_of(argc, argv);
  if (command == nullptr) return;
  const std::string model = asked_model(argc, argv);
  const bool pipeline = rank::is_pipeline(model);
  if (!command->pipeline_program.empty()) {
    // Which flags there are depends on the model: of one that is unknown, none would be.
    if (!pipeline && !model.empty()) rank::check_model_known(model);
    return;
  }
  if (!pipeline) return;
  std::vector<std::string_view> others;
  for (const CommandName& other : kCommandNames)
    if (!other.pipeline_program.empty()) others.push_back(other.name);
  throw_user_error("--model-path {}: is a diffusion pipeline, of which there is no `tpsim {}`; use {}", model,
                   command->name, join_or(others));
}

const CommandName* command_of(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const auto at = std::ranges::find(kCommandNames, std::string_view(argv[i]), &CommandName::name);
    if (at != std::end(kCommandNames)) return at;
    if (argv[1][0] != '-') return nullptr;
  }
  return nullptr;
}

std::string_view program_of(int argc, const char* const* argv) {
  const CommandName* const command = command_of(argc, argv);
  if (command == nullptr) return kProgram.name;
  if (asks_pipeline(argc, argv)) return command->pipeline_program;
  const bool computes = !command->computing_program.empty() && may_compute(argc, argv);
  if (find_linked(command->name, false) != nullptr && (!computes || kProgram.numeric != nullptr))
    return kProgram.name;
  return computes ? command->computing_program : command->program;
}

void give_way(int argc, char** argv) {
  const std::string_view name = program_of(argc, argv);
  if (name == kProgram.name) return;
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  execv((self.parent_path() / name).c_str(), argv);
}

}  // namespace tpsim::launch
