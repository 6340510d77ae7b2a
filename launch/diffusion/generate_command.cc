#include <fmt/format.h>
#include <unistd.h>

#include "launch/cli/flag_command.h"
#include "launch/cli/terminal.h"
#include "launch/diffusion/diffusion_commands.h"
#include "launch/diffusion/pipeline_report.h"
#include "launch/diffusion/resolve.h"
#include "launch/flags/server_args.h"
#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

int generate(const PipelineArgs& args, bool speaks) {
  set_up_logging(args, args.ignored, speaks);
  check_pipeline_args(args);
  const Pipeline pipeline = load_pipeline_of(args);
  const ResolvedPipeline resolved = resolve(args, pipeline);
  const Generation generation = price(pipeline, resolved, resolved.request);
  if (!speaks) return kDone;
  const Json report = generation_json(args, pipeline, resolved, generation);
  const std::optional<std::string> page = write_pipeline_report(args, report);
  if (args.quiet) return kDone;
  print(generation_text(report, shows_colours(STDOUT_FILENO)));
  if (page) print(fmt::format("\nReport: {}\n", *page));
  return kDone;
}

}  // namespace

void add_pipeline_generate(CLI::App& command, rank::MpiSession& session, Action& action) {
  add_flag_command<PipelineArgs>(
      command, action,
      [](FlagSet& flags, PipelineArgs& args) {
        declare_pipeline(flags, args);
        declare_sampling(flags, args);
        declare_report(flags, args);
      },
      [&session](PipelineArgs& args, FlagSet&) { return generate(args, session.process() == 0); });
}

}  // namespace tpsim::launch
