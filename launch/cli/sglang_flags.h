// The flags of SGLang's server and router that no command of tpsim has: which of them mean nothing to a
// simulation, so that a real launch line can be given as it is, and which would change the answer and are
// refused. They stand in sglang_flags.yaml.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tpsim::launch {

struct SglangFlag {
  enum class Verdict : std::uint8_t {
    kIgnored,  // about the server process, its clients or its logs: no step of the schedule depends on it
    kRefused,  // changes the answer and is not simulated; `reason` says so
  };
  enum class Values : std::uint8_t { kNone, kOne, kOneOrNone, kMany };

  Verdict verdict;
  Values values;
  std::string_view harmless;  // of a refused flag: values, separated by '|', that change nothing
  std::string_view reason;

  // Whether a refused flag may be given with this value: SGLang's default.
  bool changes_nothing(std::string_view value) const;
};

// Whose flags: SGLang's server's, its router's (sglang_router.launch_router), or those of its diffusion
// pipelines (sglang.multimodal_gen: `sglang generate` and `sglang serve` of one).
enum class SglangProgram : std::uint8_t { kServer, kRouter, kDiffusion };

// `name` without dashes ("pp-size"). nullopt where the program has no such flag, or tpsim has it itself.
std::optional<SglangFlag> find_sglang_flag(std::string_view name,
                                           SglangProgram program = SglangProgram::kServer);

// Whether a flag of any of its programs that tpsim has not itself begins with `beginning` ("pp-").
bool begins_sglang_flag(std::string_view beginning);

}  // namespace tpsim::launch
