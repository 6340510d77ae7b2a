// Launch lines as people have them: `VAR=1 python3 -m sglang.launch_server --model-path M \ --tp 8 # eight`.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tpsim::launch {

// What a shell makes of a command that does not pipe: quotes, backslashes (before the end of a line, too),
// and, of a `script`, comments and variables of the environment ($NAME, ${NAME}; of one that is not set
// kUnsetVariable and the name). Throws UserError for a quote that is not closed.
inline constexpr char kUnsetVariable = '\x01';
std::vector<std::string> shell_words(std::string_view command, bool script = false);

// A word as a shell reads it back, in quotes where it needs them; and such words as a line.
std::string shell_word(const std::string& word);
std::string shell_command(std::span<const std::string> words);

// Drops all up to the program whose flags follow: sglang.launch_server, `sglang serve`, sglang_router's two,
// a path to one of them. False where none is named, or the first word is a flag, which leaves `words` as they
// are.
bool drop_program(std::vector<std::string>& words);

// The flags of a launch line, a script: what follows its program, or all words where it names none. Throws as
// shell_words(), and for a variable that is not set in a value that is read.
std::vector<std::string> launch_flags(std::string_view line);

}  // namespace tpsim::launch
