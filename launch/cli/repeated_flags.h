// A flag that is given twice is a slip: two values cannot both count, and neither would be a choice to rely
// on.
#pragma once

#include <span>
#include <string>

namespace CLI {
class App;
}

namespace tpsim::launch {

// `words`: the command line after the name of the program, where `root` has its subcommands. Throws UserError
// naming a flag that stands there twice, also under two of its names or with --flag=value.
void refuse_repeated_flags(const CLI::App& root, std::span<const std::string> words);

}  // namespace tpsim::launch
