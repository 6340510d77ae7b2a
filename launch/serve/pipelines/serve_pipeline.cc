#include "launch/serve/pipelines/serve_pipeline.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "launch/cli/flag_command.h"
#include "launch/cli/terminal.h"
#include "launch/diffusion/pipeline_report.h"
#include "launch/diffusion/resolve.h"
#include "launch/flags/output_flags.h"
#include "launch/flags/server_args.h"
#include "launch/serve/live_args.h"
#include "launch/serve/pipelines/pipeline_service.h"
#include "launch/serve/wire/drain.h"
#include "launch/serve/wire/http_server.h"
#include "proto/base/error.h"
#include "proto/base/stop_flag.h"

namespace tpsim::launch {
namespace {

struct PipelineServeArgs : PipelineArgs {
  LiveArgs live;
};

int serve(PipelineServeArgs& args, bool speaks) {
  set_up_logging(args, args.ignored, speaks);
  check_pipeline_args(args);
  const Pipeline pipeline = load_pipeline_of(args);
  const ResolvedPipeline resolved = resolve(args, pipeline);
  const Generation usual = price(pipeline, resolved, resolved.request);
  if (!usual.fits)
    throw_user_error("--hardware {}: {}; or name the size that requests have by --width and --height",
                     args.hardware, usual.too_large);
  if (!speaks) return kDone;  // one process answers
  for (const std::string& note : resolved.notes) spdlog::info("{}", note);
  for (const std::string& what : usual.cost.uncalibrated) spdlog::warn("uncalibrated: {}", what);
  allow_descriptors();
  const StopFlag::Unhurried unhurried;
  const WallClock clock(args.live.speedup);
  const std::string name =
      args.live.served_model_name.empty() ? args.model_path : args.live.served_model_name;
  PipelineService service({.model_path = args.model_path,
                           .served_model_name = name,
                           .defaults = args.sampling,
                           .rules = {.replicas = resolved.parallel.dp,
                                     .max_outputs = args.batching_max_size,
                                     .delay_seconds = args.batching_delay_ms / 1e3,
                                     .batches = !pipeline.config.needs_image},
                           .max_open_requests = args.live.max_open_requests,
                           .deployment = generation_json(args, pipeline, resolved, usual)},
                          pipeline, resolved, clock);
  args.live.wire.threads = 1;  // the service's
  HttpServer server(args.live.wire, service);
  server.start();
  print(fmt::format("tpsim: {} is served at {}\n", name, server.url()));
  flush_output();
  Drain drain(server, unhurried, service.draining(), args.live.drain_timeout);
  constexpr std::chrono::milliseconds kLook{20};
  while (drain.go_on()) std::this_thread::sleep_for(kLook);
  const bool all_answered = server.exchanges() == 0;
  server.stop();
  return all_answered ? kDone : kStoppedEarly;
}

}  // namespace

void add_pipeline_serve(CLI::App& command, rank::MpiSession& session, Action& action) {
  add_flag_command<PipelineServeArgs>(
      command, action,
      [](FlagSet& flags, PipelineServeArgs& args) {
        declare_live(flags, args.live);
        declare_pipeline(flags, args);
        declare_sampling(flags, args);
        declare_logging(flags, args);
      },
      [&session](PipelineServeArgs& args, FlagSet&) { return serve(args, session.process() == 0); });
}

}  // namespace tpsim::launch
