// The programs behind `tpsim NAME`. To compare backends one need not wait until a server, fits and numeric
// execution are built: they are programs of their own beside tpsim, and each gives way to the one that a
// command line is for, as git does. One main (launch/tpsim.cc); what a program is linked with is the kProgram
// of its file in this folder.
#pragma once

#include <span>
#include <string_view>

#include "launch/cli/action.h"
#include "rank/parallel/mpi_session.h"

namespace CLI {
class App;
}

namespace tpsim::launch {

struct NumericExecution;  // launch/deployment/numeric_execution.h

// What follows `tpsim`.
struct CommandName {
  std::string_view name, description;
  std::string_view program;                // the one that carries it out,
  std::string_view computing_program;      // and the one where batches are computed; empty: none are
  std::string_view pipeline_program = "";  // and that for diffusion pipelines; empty: it is not about them
};

// In the order of `tpsim --help`.
inline constexpr CommandName kCommandNames[] = {
    {"run", "Serve a workload on one deployment", "tpsim", "tpsim-numeric", "tpsim-pipelines"},
    {"compare",
     "Serve the same workload once per attention backend or pair, and once for each value of the lists that "
     "flags marked [list] are given, such as --tp 4,8 --page-size 1,64: the best setting, the Pareto front "
     "and a row for each (--report-dir then receives sweep.csv instead of requests.csv and steps.csv)",
     "tpsim", "tpsim-numeric", "tpsim-pipelines"},
    {"plan",
     "What to launch on --gpus so many: searches the ways to share a model among them, backends and batches "
     "for a load and its service levels, and prints the best with the commands that start them (--report-dir "
     "then receives plan.json, too)",
     "tpsim-plan", ""},
    {"generate",
     "Compute the tokens that a model generates; of a diffusion pipeline, the time and memory of an image or "
     "video",
     "tpsim-numeric", "tpsim-numeric", "tpsim-pipelines"},
    {"verify",
     "Hold every backend, --tp and way to serve against a dense reference, by computing; of a diffusion "
     "pipeline every backend and split of its denoising",
     "tpsim-numeric", "tpsim-numeric", "tpsim-numeric"},
    {"replay", "Carry out a recorded stream of batches on another backend or executor", "tpsim",
     "tpsim-numeric"},
    {"backends", "What the attention backends can do, and which is chosen", "tpsim", "", "tpsim-pipelines"},
    {"models",
     "Families of models and GPUs, and what stands behind prices of each: server, kernels or datasheet",
     "tpsim", ""},
    {"validate",
     "Serve loads that real servers were measured with, and hold predicted against measured times",
     "tpsim-validate", ""},
    {"calibrate", "Fit a hardware profile to your own measurements", "tpsim-calibrate", ""},
    {"serve", "Serve live clients on the wall clock: SGLang's protocol and OpenAI's", "tpsim-serve",
     "tpsim-serve-numeric", "tpsim-serve"},
    {"trace", "Make, look into or convert a workload trace", "tpsim-trace", ""},
    {"completion", "Print a script that completes commands and flags in bash, zsh or fish", "tpsim", ""}};

// Declares the flags of `command`; when that was parsed, `action` becomes what carries it out and returns the
// exit status. All of them must outlive the action.
using AddCommand = void (*)(CLI::App& command, rank::MpiSession& session, Action& action);

struct LinkedCommand {
  std::string_view name;              // of kCommandNames
  AddCommand add;                     // for language models; null: not in this program
  AddCommand add_pipeline = nullptr;  // for diffusion pipelines, whose flags are others
};

struct Program {
  std::string_view name;  // of its file
  std::span<const LinkedCommand> commands;
  const NumericExecution* numeric = nullptr;  // null: it prices only
};

// This one.
extern const Program kProgram;
// What adds the command to this program; null where it is linked without it.
AddCommand find_linked(std::string_view command, bool pipeline);

// Whether `argv` asks about a diffusion pipeline: by --model-path (also of --config), as SGLang's own
// `generate` and `serve` decide, or by `backends --pipeline`.
bool asks_pipeline(int argc, const char* const* argv);

// Throws UserError where it asks a command that is about language models alone, or one that is about both and
// names neither.
void refuse_pipeline(int argc, const char* const* argv);

// The command that `argv` asks for: its first word, or after flags the first that names one; null for none.
const CommandName* command_of(int argc, const char* const* argv);
// The name of the program that carries out `argv`. Whether batches are computed is a guess, on the safe side:
// what computes can price, too.
std::string_view program_of(int argc, const char* const* argv);
// Becomes that program where it is another one, in the folder of this one. Returns where it is this one, or
// not built. REQUIRES: MPI was not begun.
void give_way(int argc, char** argv);

}  // namespace tpsim::launch
