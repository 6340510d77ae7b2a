// Launch lines as people have them: `VAR=1 python3 -m sglang.launch_server --model-path M \ --tp 8 # eight`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tpsim::launch {

// What a shell makes of a command that neither pipes nor expands: quotes, backslashes (before the end of a
// line, too), and, with `comments`, # to the end of the line. Throws UserError for a quote that is not
// closed.
std::vector<std::string> shell_words(std::string_view command, bool comments = false);

// Drops all up to the program whose flags follow: sglang.launch_server, `sglang serve`, sglang_router's two,
// a path to one of them. False where none is named, which leaves `words` as they are.
bool drop_program(std::vector<std::string>& words);

// The flags of a launch line: what follows its program, or all words where it names none. Variables of the
// environment ($NAME, ${NAME}) are set in. Throws UserError for one that is not set, and for a quote that is
// not closed.
std::vector<std::string> launch_flags(std::string_view line);

}  // namespace tpsim::launch
