#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "launch/cli/flag_values.h"
#include "launch/deployment/host.h"
#include "launch/flags/server_args.h"
#include "launch/serve/serve_args.h"
#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::launch {
namespace {

void declare_server(FlagSet& flags, ServeArgs& args) {
  flags.group("Server");
  flags.add_value("--api-key", "KEY", "that clients must send as a bearer token", text(args.api_key));
  flags.add_value("--admin-api-key", "KEY", "of /flush_cache and /abort_request, which then take no other",
                  text(args.admin_api_key));
  flags.add_value("--weight-version", "NAME", "that answers carry (default \"default\")",
                  text(args.format.weight_version));
  flags.add_value("--tokenizer-path", "DIR", "folder of the tokenizer (default: --model-path)",
                  text(args.tokenizer_path));
  flags.add_switch("--skip-tokenizer-init", "prompts come, and answers go, as token ids",
                   args.format.skip_tokenizer);
  flags.add_value("--stream-interval", "TOKENS", "of an answer that go out together (default 1)",
                  count(args.server.stream_interval, 1));
  for (const char* name : {"--incremental-streaming-output", "--stream-output"})
    flags.add_switch(name, "streams of /generate carry what is new, not all so far",
                     args.format.incremental_streaming_output);
  flags.add_switch("--stream-response-default-include-usage", "streams of OpenAI's protocol end with usage",
                   args.format.default_include_usage);
  flags.add_switch("--enable-cache-report", "usage tells cached tokens", args.format.enable_cache_report);
}

void declare_clock(FlagSet& flags, ServeArgs& args) {
  flags.group("Clock and answers");
  flags.add_value(
      "--front-end", "KIND",
      "what lies between clients and scheduler: text (SGLang's HTTP server with its tokenizer), ids (the "
      "same without), or none (default text; ids with --skip-tokenizer-init; none for --executor numeric)",
      [&args](std::string_view flag, const std::string& value) {
        word({"ids", "text", "none"}, args.server.front_end.emplace())(flag, value);
      });
  flags.add_value(
      "--client-seconds", "S",
      "that this server waits in place of a client, as --front-end was fitted to what clients in Python see: "
      "0.00102 for one that needs no time itself (default 0: clients that really run take theirs)",
      real(args.server.client_seconds, 0, true, 1, true));
  flags.add_value("--default-output-tokens", "N",
                  "of an answer that its client sets no limit to, in modeled execution, which does not know "
                  "when the model would end (default 256)",
                  count(args.default_output_tokens, 1));
}

void declare_limits(FlagSet& flags, ServeArgs& args) {
  flags.group("Limits");
  flags.add_value("--max-queued-requests", "N",
                  "that wait to be scheduled; more are answered 503 (default: any)",
                  count(args.max_queued_requests, 1));
  flags.add_value("--max-output-tokens", "N",
                  "of one answer; a call that asks for more is refused (default: context)",
                  count(args.max_output_tokens, 1));
  flags.add_value("--max-prompts-per-call", "N", "prompts times n of one call (default 4096)",
                  count(args.max_prompts_per_call, 1, 1'000'000));
  flags.add_value("--wire-threads", "N", "that read and write (default: half of the cores, at most 4)",
                  count(args.wire.threads, 1, 64));
}

// With --fleet a server's flags are of the file.
void refuse_server_flags(const ServerArgs& args) {
  CLI::App app;
  FlagSet flags(app);
  ServerArgs unused;
  declare_deployment_flags(flags, unused);
  const std::vector<std::string> of_server = flags.names(), of_load = load_flags();
  for (const auto& [flag, value] : args.given)
    if (std::ranges::find(of_server, flag) != of_server.end() &&
        std::ranges::find(of_load, flag) == of_load.end())
      throw_user_error("{}: is of a server; with --fleet it stands in the args of those that it is for",
                       flag);
}

}  // namespace

void declare_serve_flags(FlagSet& flags, ServeArgs& args) {
  args.wire.threads = std::clamp<std::size_t>(std::thread::hardware_concurrency() / 2, 1, 4);
  declare_live(flags, args);
  declare_server(flags, args);
  declare_clock(flags, args);
  declare_limits(flags, args);
  declare_deployment_flags(flags, args.server);
  flags.group("Fleet");
  declare_fleet(flags, args.server.router);
}

void check_serve_args(const ServeArgs& args) {
  if (args.server.router.fleet.empty())
    check_deployment_args(args.server);
  else
    refuse_server_flags(args.server);
  if (args.server.numeric() && args.speedup != 1)
    throw_user_error("--speedup {}: is for --executor modeled, numeric ranks take the time they take",
                     format_real(args.speedup));
  if (args.server.client_seconds && front_end_kind(args) == "none")
    throw_user_error("--client-seconds {}: is part of --front-end text or ids, and there is none",
                     format_real(*args.server.client_seconds));
  if (args.format.skip_tokenizer && !args.tokenizer_path.empty())
    throw_user_error("--tokenizer-path {}: excludes --skip-tokenizer-init, which needs no tokenizer",
                     args.tokenizer_path);
  if (!args.admin_api_key.empty() && args.admin_api_key == args.api_key)
    throw_user_error("--admin-api-key: is the same as --api-key; leave it out, or choose another");
}

std::string front_end_kind(const ServeArgs& args) {
  if (args.server.front_end) return *args.server.front_end;
  if (args.server.numeric()) return "none";
  return args.format.skip_tokenizer ? "ids" : "text";
}

scheduler::FrontEndConfig serve_front_end(const ServeArgs& args, const Deployment& deployment) {
  const std::string kind = front_end_kind(args);
  if (kind == "none") return {};
  const proto::HostProfile& host = deployment.host;
  scheduler::FrontEndConfig config =
      front_end_of(host, deployment.hardware.kernel_launch_seconds(), kind, args.server.tokenizer_worker_num,
                   args.server.sglang_release.rules);
  config.stream_interval = args.server.stream_interval;
  return scheduler::with_client(config, client_share_of(host), args.server.client_seconds.value_or(0));
}

}  // namespace tpsim::launch
