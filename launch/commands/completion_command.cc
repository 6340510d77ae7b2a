// `tpsim completion SHELL`: a script that completes commands and flags. It asks `--help` for them when a key
// is pressed, so that no list of them stands anywhere else, and programs beside tpsim answer for their own.
#include <cstddef>
#include <string>
#include <string_view>

#include "launch/cli/flag_command.h"
#include "launch/cli/flag_set.h"
#include "launch/cli/terminal.h"
#include "launch/commands/commands.h"
#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

// Flags, and commands where some follow: one a line.
constexpr std::string_view kWords = R"sh( --help 2>/dev/null | sed -n -e 's/^  \(-[^ ]*\).*/\1/p' \
    -e '/^Subcommands:/,$s/^  \([a-z][a-z-]*\) .*/\1/p' | tr , '\n')sh";

constexpr std::string_view kBash = R"sh(# Of tpsim, for bash: source <(tpsim completion bash)
_tpsim() {
  local word=${COMP_WORDS[COMP_CWORD]} asked=("${COMP_WORDS[0]}") i
  for ((i = 1; i < COMP_CWORD && i < 3; ++i)); do
    [[ ${COMP_WORDS[i]} =~ ^[a-z]+$ ]] || break
    asked+=("${COMP_WORDS[i]}")
  done
  COMPREPLY=()
  # A word that is neither a flag nor a command is a value: a file, as far as is known here.
  [[ $word == -* || ${#asked[@]} == "$COMP_CWORD" ]] || return 0
  mapfile -t COMPREPLY < <(compgen -W "$(_tpsim_words "${asked[@]}")" -- "$word")
}
complete -o default -F _tpsim tpsim
)sh";

constexpr std::string_view kZsh = R"sh(#compdef tpsim
# Of tpsim, for zsh: source <(tpsim completion zsh), after compinit
_tpsim() {
  local -a asked found
  local i
  asked=("$words[1]")
  for ((i = 2; i < CURRENT && i < 4; ++i)); do
    [[ $words[i] =~ '^[a-z]+$' ]] || break
    asked+=("$words[i]")
  done
  if [[ $words[CURRENT] == -* || $#asked == $((CURRENT - 1)) ]]; then
    found=(${(f)"$(_tpsim_words $asked)"})
    compadd -a found && return
  fi
  _files
}
if [[ $funcstack[1] == _tpsim ]]; then _tpsim "$@"; else compdef _tpsim tpsim; fi
)sh";

constexpr std::string_view kFish = R"sh(# Of tpsim, for fish: tpsim completion fish | source
function _tpsim
  set -l typed (commandline -opc)
  set -l asked $typed[1]
  for word in $typed[2..3]
    string match -qr '^[a-z]+$' -- $word; or break
    set -a asked $word
  end
  set -l word (commandline -ct)
  if string match -q -- '-*' $word; or test (count $asked) = (count $typed)
    _tpsim_words $asked
  end
end
complete -c tpsim -a '(_tpsim)'
)sh";

std::string script_of(const std::string& shell) {
  if (shell == "fish")
    return "function _tpsim_words\n  $argv" + std::string(kWords) + "\nend\n" + std::string(kFish);
  const std::string words = "_tpsim_words() {\n  \"$@\"" + std::string(kWords) + "\n}\n";
  if (shell == "bash") return words + std::string(kBash);
  if (shell == "zsh") {
    const std::size_t head = kZsh.find('\n') + 1;  // #compdef stands first
    return std::string(kZsh.substr(0, head)) + words + std::string(kZsh.substr(head));
  }
  throw_user_error("{}: is no shell whose completion is known, use bash, zsh or fish", shell);
}

struct CompletionArgs {
  std::string shell;
};

}  // namespace

void add_completion_command(CLI::App& command, rank::MpiSession&, Action& action) {
  add_flag_command<CompletionArgs>(
      command, action,
      [](FlagSet& flags, CompletionArgs& args) { flags.add_word("SHELL", "bash, zsh or fish", args.shell); },
      [](CompletionArgs& args, FlagSet&) {
        print(script_of(args.shell));
        return kDone;
      });
}

}  // namespace tpsim::launch
