// What the user asked for: the flags of `tpsim run` and `tpsim compare` under SGLang's names, one struct a
// subject, each with its declarations and checks in its subject's file of this folder. What was left open (an
// empty optional) is chosen in launch/deployment, where model, GPU and attention backend are known.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launch/cli/flag_set.h"
#include "launch/flags/attention_flags.h"
#include "launch/flags/batch_flags.h"
#include "launch/flags/disaggregation_flags.h"
#include "launch/flags/elastic_flags.h"
#include "launch/flags/hicache_flags.h"
#include "launch/flags/host_flags.h"
#include "launch/flags/image_flags.h"
#include "launch/flags/kernel_flags.h"
#include "launch/flags/load_flags.h"
#include "launch/flags/memory_flags.h"
#include "launch/flags/model_flags.h"
#include "launch/flags/output_flags.h"
#include "launch/flags/parallel_flags.h"
#include "launch/flags/router_flags.h"
#include "launch/flags/speculation_flags.h"
#include "launch/flags/state_flags.h"

namespace tpsim::launch {

// All subjects side by side, so that a flag is read as SGLang's server_args has it (args.page_size); six
// are members, whose fields would not say what they are of.
struct ServerArgs : ModelArgs,
                    KernelArgs,
                    AttentionArgs,
                    MemoryArgs,
                    StateArgs,
                    BatchArgs,
                    HostArgs,
                    LoadArgs,
                    OutputArgs {
  ParallelArgs parallel;
  SpeculationArgs speculation;
  ImageArgs images;
  RouterArgs router;
  ElasticArgs elastic;
  DisaggregationArgs disaggregation;
  HiCacheArgs hicache;

  std::map<std::string, std::string> given;  // flags, as FlagSet::given()
  // Flags of SGLang's server that were given and mean nothing here.
  std::vector<std::string> ignored_flags;

  // Of compare.
  std::optional<std::uint32_t>
      jobs;            // settings of a sweep served at once by each process; threads of replicas
  bool swept = false;  // one setting of a sweep (launch/simulation/sweep.h)
};

// Declares the flags of run (or, with `compare`, of compare) in `flags`; they are read into `args`, which
// must outlive `flags`.
void declare_server_flags(FlagSet& flags, ServerArgs& args, bool compare);
// The same without a load, for one deployment: generate, verify, replay.
void declare_deployment_flags(FlagSet& flags, ServerArgs& args);

// --hardware, --model-path and what else decides which attention backends can run: of `tpsim backends`.
void declare_backends_flags(FlagSet& flags, ServerArgs& args);

// Canonical names of what asks no server for anything: of loads and outputs.
std::vector<std::string> load_flags();

// The flags that `tpsim compare` takes lists for: the settings that a user chooses between.
std::span<const std::string_view> sweepable_flags();

// Checks that need more than one flag, after all were read: what must be given, what excludes what.
// Throws UserError.
void check_server_args(const ServerArgs& args, bool compare);
void check_deployment_args(const ServerArgs& args);

// Of a decode server of `args`: its flags, with those of --decode-args over them. Throws UserError.
ServerArgs decode_server_args(const ServerArgs& args);

// Log lines go to standard error at --log-level. `speaks`: whether this process, 0 of them all, logs at all.
// Says which of the flags that were given mean nothing to a simulation.
void set_up_logging(const ServerArgs& args, bool speaks);
// Of any command; `ignored`: flags of SGLang that mean nothing here.
void set_up_logging(const OutputArgs& args, const std::vector<std::string>& ignored, bool speaks);

// The flags of `tpsim run` or `tpsim compare` from a list of words instead of a command line: the same
// declarations, checks and sentences. Throws UserError.
ServerArgs read_run_flags(std::vector<std::string> words, bool compare = false);

}  // namespace tpsim::launch
