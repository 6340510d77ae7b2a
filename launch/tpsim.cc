// The tpsim program: one command a run, one sentence where it cannot be carried out.
#include <google/protobuf/stubs/logging.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "launch/cli/flag_command.h"
#include "launch/cli/pasted_line.h"
#include "launch/cli/terminal.h"
#include "launch/deployment/numeric_execution.h"
#include "launch/programs/program.h"
#include "proto/base/error.h"
#include "proto/base/stop_flag.h"
#include "proto/base/text.h"
#include "rank/parallel/deployment_executor.h"
#include "rank/parallel/mpi_session.h"

namespace {

using tpsim::launch::Action;

std::vector<std::string_view> names_of(const std::vector<const CLI::App*>& commands) {
  std::vector<std::string_view> names;
  for (const CLI::App* command : commands) names.push_back(command->get_name());
  return names;
}

std::vector<std::string_view> subcommands_of(const CLI::App& app) {
  return names_of(app.get_subcommands([](const CLI::App*) { return true; }));
}

// What is wrong with a word that CLI11 did not expect.
std::string sentence_of_extra(const CLI::App& root, const CLI::App& app, const std::string& path) {
  const std::vector<std::string> extras = root.remaining(true);
  const std::string word = extras.empty() ? "?" : extras.front();
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  const std::vector<std::string_view> names(flags.begin(), flags.end());
  const std::string_view guess = tpsim::nearest(word, names);
  return fmt::format(
      "{}: is not expected by `{}`, {}", word, path,
      guess.empty() ? fmt::format("see `{} --help`", path) : fmt::format("did you mean {}?", guess));
}

// CLI11's complaint as a sentence of tpsim's, with the command that it is about.
std::string sentence_of(const CLI::ParseError& error, const CLI::App& root) {
  const CLI::App* app = &root;
  std::string path = root.get_name();
  while (!app->get_subcommands().empty()) {
    app = app->get_subcommands().front();
    path += " " + app->get_name();
  }
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) return sentence_of_extra(root, *app, path);
  const std::vector<std::string_view> commands = subcommands_of(*app);
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr && !commands.empty())
    return fmt::format("{}: a command is required: {}, see `{} --help`", app->get_name(),
                       tpsim::join_or(commands), path);
  std::string text = error.what();
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  while (!text.empty() && (text.back() == ' ' || text.back() == '.')) text.pop_back();
  return fmt::format("{}, see `{} --help`", text, path);
}

// Throws where the first word is no command.
void check_command(const CLI::App& root, int argc, char** argv) {
  const std::vector<std::string_view> names = subcommands_of(root);
  if (argc < 2)
    tpsim::throw_user_error("a command is required: {}, see `tpsim --help`", tpsim::join_or(names));
  const std::string_view word = argv[1];
  if (word.empty() || word.front() != '-') {
    for (std::string_view name : names) {
      if (name == word) return;
    }
    const std::string_view guess = tpsim::nearest(word, names);
    tpsim::throw_user_error("{}: is no command, {}", word,
                            guess.empty() ? fmt::format("use {}", tpsim::join_or(names))
                                          : fmt::format("did you mean {}?", guess));
  }
}

// Adds the command that the first word names; all of them where it names none. Hundreds of flags are not
// declared in an instant.
void add_commands(CLI::App& root, int argc, char** argv, tpsim::rank::MpiSession& session, Action& action) {
  const std::string_view word = argc > 1 ? argv[1] : "";
  const bool named = std::ranges::any_of(tpsim::launch::kCommandNames,
                                         [&](const auto& command) { return command.name == word; });
  tpsim::launch::refuse_pipeline(argc, argv);
  const bool pipeline = tpsim::launch::asks_pipeline(argc, argv);
  for (const auto& [name, description, program, computing_program, pipeline_program] :
       tpsim::launch::kCommandNames) {
    if (named && name != word) continue;
    CLI::App& command = *root.add_subcommand(std::string(name), std::string(description));
    if (const auto add = tpsim::launch::find_linked(name, pipeline)) {
      add(command, session, action);
    } else if (named) {
      tpsim::throw_user_error(
          "{0}: is a program of its own, {1}, which is not built here; `./launch/run {0}` builds and starts "
          "it, `ninja -C build {1}` builds it",
          name, tpsim::launch::program_of(argc, argv));
    }
  }
}

// `speaks`: this process prints for all.
int run_program(int argc, char** argv, tpsim::rank::MpiSession& session, bool speaks) {
  CLI::App root("Simulates a tensor-parallel LLM deployment under a workload, per attention backend",
                "tpsim");
  root.set_version_flag("--version", "tpsim " TPSIM_VERSION);
  root.get_formatter()->column_width(44);
  root.require_subcommand(0, 1);  // behind the first, the name of a command is a value
  Action action;
  add_commands(root, argc, argv, session, action);
  try {
    check_command(root, argc, argv);
    std::vector<std::string> words =
        tpsim::launch::spell_out(root, std::vector<std::string>(argv + 1, argv + argc));
    tpsim::launch::refuse_repeated_flags(root, words);
    std::ranges::reverse(words);  // CLI11 takes a stack
    root.parse(words);
  } catch (const CLI::Success& help) {
    std::ostringstream text;
    const int status = root.exit(help, text, text);
    if (speaks) tpsim::launch::print(text.str());
    return status;
  } catch (const CLI::ParseError& error) {
    throw tpsim::UserError(sentence_of(error, root));
  }
  if (!action) tpsim::throw_user_error("{}: is a flag, begin with a command, see `tpsim --help`", argv[1]);
  return action();
}

// The command line without what a user need not know of it: `tpsim help run` is `tpsim run --help`, and
// behind a command stands what a page says to paste, `NAME=VALUE python3 -m sglang.launch_server`. Variables
// that are read here are set.
std::vector<char*> command_line(int argc, char** argv) {
  static char help[] = "--help";
  std::vector<char*> words(argv, argv + argc);
  if (argc > 1 && std::string_view(argv[1]) == "help") {
    words = argc > 2 ? std::vector<char*>{argv[0], argv[2], help} : std::vector<char*>{argv[0], help};
  } else if (argc > 2) {
    const tpsim::launch::PastedLine pasted = tpsim::launch::pasted_line(std::span(words).subspan(2));
    std::vector<std::string> unread;
    for (const std::string& variable : pasted.environment) {
      const std::string name = variable.substr(0, variable.find('='));
      if (name == "SGLANG_PP_LAYER_PARTITION" || name == "SGLANG_VLM_CACHE_SIZE_MB" ||
          name == "SGLANG_CACHE_DIT_ENABLED")
        setenv(name.c_str(), variable.c_str() + name.size() + 1, 1);
      else
        unread.push_back(name);
    }
    if (!unread.empty())
      std::fprintf(stderr, "tpsim: warning: %s: the server's environment is not looked at\n",
                   tpsim::printable(fmt::format("{}", fmt::join(unread, ", "))).c_str());
    words.erase(words.begin() + 2, words.begin() + 2 + static_cast<std::ptrdiff_t>(pasted.words));
  }
  words.push_back(nullptr);
  return words;
}

// launch/run learns the exit status from the file that TPSIM_STATUS_FILE names, where mpirun has one of its
// own: "running" from when signals are heeded, then the number.
void tell_launcher(bool speaks, const std::string& status) {
  const char* const path = std::getenv("TPSIM_STATUS_FILE");
  if (path == nullptr || !speaks) return;
  if (std::FILE* const file = std::fopen(path, "w")) {
    std::fputs(status.c_str(), file);
    std::fclose(file);
  }
}

int guarded(int argc, char** argv, tpsim::rank::MpiSession& session, bool speaks) {
  const auto say = [speaks](const std::string& sentence) {
    if (speaks) std::fprintf(stderr, "tpsim: %s\n", tpsim::printable(sentence).c_str());
  };
  try {
    const int status = run_program(argc, argv, session, speaks);
    tpsim::launch::flush_output();
    return status;
  } catch (const tpsim::UserError& error) {
    say(error.what());
    return tpsim::launch::kRefused;
  } catch (const tpsim::launch::OutputClosed&) {
    return tpsim::launch::kRefused;
  } catch (const tpsim::Stopped&) {
    say("interrupted; nothing was finished");
    return tpsim::launch::kStoppedEarly;
  } catch (const tpsim::rank::RankLost& error) {
    say(error.what());
    return tpsim::launch::kStoppedEarly;
  } catch (const std::exception& error) {
    // A defect: whichever process meets it says so, and the others must not wait for it.
    std::fprintf(stderr, "tpsim: internal error, please report it: %s\n", error.what());
    if (session.num_processes() > 1) session.abort(tpsim::launch::kInternalError);
    return tpsim::launch::kInternalError;
  }
}

// A run touches some 20 MB here and there: in huge pages that is ten page faults, not thousands, and hardly a
// miss of the TLB. Many systems give huge pages only to who asks; where they give none nothing is lost.
void ask_for_huge_pages() {
#if defined(__GLIBC__) && defined(MADV_HUGEPAGE)
  constexpr std::size_t kHeap = std::size_t{32} << 20;
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  mallopt(M_TOP_PAD, kHeap);         // the heap grows by so much at a time,
  mallopt(M_TRIM_THRESHOLD, kHeap);  // keeps it,
  mallopt(M_MMAP_THRESHOLD, kHeap);  // and large blocks lie in it, too
  void* const first = std::malloc(kHugePage);
  const auto at = reinterpret_cast<std::uintptr_t>(first);
  const auto end = reinterpret_cast<std::uintptr_t>(sbrk(0));
  if (at < end && end - at > kHugePage && end - at <= 2 * kHeap) {  // it is of the heap
    const std::uintptr_t aligned = (at + kHugePage - 1) / kHugePage * kHugePage;
    madvise(reinterpret_cast<void*>(aligned), end - aligned, MADV_HUGEPAGE);
  }
  std::free(first);
#endif
}

}  // namespace

int main(int argc, char** argv) {
  namespace launch = tpsim::launch;
  std::vector<char*> words = command_line(argc, argv);
  argc = static_cast<int>(words.size()) - 1;
  argv = words.data();
  // For launch/run, which builds what a command line needs.
  if (argc > 1 && std::string_view(argv[1]) == "--print-program") {
    launch::print(std::string(launch::program_of(argc - 1, argv + 1)) + "\n");
    return 0;
  }
  launch::give_way(argc, argv);
  if (launch::kProgram.numeric != nullptr) launch::link_numeric_execution(*launch::kProgram.numeric);
  ask_for_huge_pages();
  tpsim::launch::guard_standard_descriptors();
  tpsim::StopFlag::install();
  tpsim::rank::MpiSession session;
  const bool speaks = session.process() == 0;
  tell_launcher(speaks, "running");
  // What Protobuf would print of a damaged message is said by our own sentence.
  google::protobuf::SetLogHandler(nullptr);
  const int status = guarded(argc, argv, session, speaks);
  std::fflush(stdout);  // the end of the session may be the end of the process
  tell_launcher(speaks, std::to_string(status));
  return status;
}
