#include "launch/flags/checkpoint_flags.h"

#include "launch/cli/flag_values.h"
#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::launch {
void declare_checkpoints(FlagSet& flags, CheckpointArgs& args) {
  flags.add_value("--checkpoint", "FILE",
                  "receives the state of the run now and then, so that --resume goes on should the run be "
                  "killed; removed at the end of the run",
                  text(args.checkpoint));
  flags.add_value("--checkpoint-every", "SECONDS", "of the wall clock, between two states (default 60)",
                  real(args.checkpoint_every, 0, true, 1e6, true));
  flags.add_value("--resume", "FILE",
                  "goes on from this checkpoint of a run with the same flags, and keeps writing it; the "
                  "report is that of a run that was never interrupted, byte for byte (with --checkpoint of "
                  "the same FILE: begins where there is none)",
                  text(args.resume));
}

void check_checkpoints(const CheckpointArgs& args, const OutputArgs& output, bool compare, bool numeric) {
  const std::string& file = args.checkpoint_file();
  if (file.empty()) {
    if (args.checkpoint_every)
      throw_user_error("--checkpoint-every {}: needs --checkpoint, the file to write",
                       format_real(*args.checkpoint_every));
    return;
  }
  const char* const flag = args.resume.empty() ? "--checkpoint" : "--resume";
  if (compare) throw_user_error("{} {}: is of one run, use `tpsim run`", flag, file);
  if (!args.resume.empty() && !args.checkpoint.empty() && args.checkpoint != args.resume)
    throw_user_error("--checkpoint {}: --resume {} goes on in its own file; name the same one, or one alone",
                     args.checkpoint, args.resume);
  if (numeric)
    throw_user_error(
        "{} {}: keeps priced runs, numeric execution is on the wall clock; use --executor modeled", flag,
        file);
  if (!output.trace_out.empty())
    throw_user_error("{} {}: excludes --trace-out, which begins with the run; leave one out", flag, file);
  if (!output.record_batches.empty())
    throw_user_error(
        "{} {}: excludes --record-batches, whose stream would begin in the middle; leave one out", flag,
        file);
}

}  // namespace tpsim::launch
