#include "launch/programs/program.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

namespace tpsim::launch {
namespace {

constexpr std::string_view kNumeric = "numeric";

bool file_mentions_numeric(const std::filesystem::path& file) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) return false;  // what is a pipe can be read once
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

}  // namespace

const LinkedCommand* find_linked(std::string_view command) {
  const auto at = std::ranges::find(kProgram.commands, command, &LinkedCommand::name);
  return at == kProgram.commands.end() ? nullptr : &*at;
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
  const bool computes = !command->computing_program.empty() && may_compute(argc, argv);
  if (find_linked(command->name) != nullptr && (!computes || kProgram.numeric != nullptr))
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
