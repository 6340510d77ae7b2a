#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launch/cli/flag_command.h"
#include "launch/cli/terminal.h"
#include "launch/deployment/resolve.h"
#include "launch/deployment/router.h"
#include "launch/flags/server_args.h"
#include "launch/serve/live/live_fleet.h"
#include "launch/serve/live/live_request.h"
#include "launch/serve/serve_args.h"
#include "launch/serve/serve_context.h"
#include "launch/serve/server_info.h"
#include "launch/serve/service.h"
#include "launch/serve/wire/drain.h"
#include "launch/serve/wire/http_server.h"
#include "launch/simulation/stage.h"
#include "launch/tokenizer/open.h"
#include "proto/base/error.h"
#include "proto/base/stop_flag.h"
#include "rank/parallel/deployment_executor.h"
#include "scheduler/fleet.h"

namespace tpsim::launch {
namespace {

std::filesystem::path tokenizer_folder(const ServeArgs& args) {
  if (!args.tokenizer_path.empty()) return args.tokenizer_path;
  std::error_code ignored;
  return std::filesystem::is_directory(args.server.model_path, ignored) ? args.server.model_path : "";
}

// Of one replica.
LiveDescription describe(const ServeArgs& args, const Deployment& deployment, const OpenedTokenizer& opened) {
  const scheduler::SchedulerConfig& config = deployment.scheduler;
  const std::uint32_t dp_size = config.data_parallel.size;
  return {.served_model_name = args.model_name(),
          .model_path = args.server.model_path,
          .hardware = deployment.header.hardware(),
          .attention_backend = deployment.attention.backends.name(),
          .executor = args.server.executor,
          .tokenizer = opened.tokenizer->name(),
          .real_tokenizer = opened.tokenizer->real(),
          .tp_size = args.server.tp_size,
          .pp_size = config.pipeline.size,
          .dp_size = dp_size,
          .speedup = args.speedup,
          .page_size = config.page_size,
          .max_total_num_tokens = config.max_total_num_tokens * dp_size,
          .max_running_requests = config.max_running_requests * dp_size,
          .context_length = config.context_length,
          .speculative = config.speculation.enabled(),
          .speculative_num_draft_tokens = config.speculation.num_draft_tokens};
}

// Of all replicas, each of which is as `one`.
LiveDescription describe_all(const ServeArgs& args, const Deployment& deployment, LiveDescription one) {
  const std::uint32_t replicas = deployment.router.replicas;
  if (replicas == 1) return one;
  one.replicas = replicas;
  one.dp_size = replicas;
  one.max_total_num_tokens *= replicas;
  one.max_running_requests *= replicas;
  if (!args.server.router.given().empty()) one.router_policy = to_string(deployment.router.config.policy);
  return one;
}

// What a client should know of the answers.
std::vector<std::string> notes_of(const ServeArgs& args, const OpenedTokenizer& opened) {
  std::vector<std::string> notes = opened.notes;
  if (args.format.skip_tokenizer) notes.clear();
  if (!args.server.numeric())
    notes.push_back(
        "answers are invented: no model computed them, only how long they take; they have max_new_tokens "
        "tokens, or --default-output-tokens where a client sets no limit");
  return notes;
}

ServerInfo info_of(const ServeArgs& args, const Deployment& deployment, const OpenedTokenizer& opened) {
  ServerInfo info;
  const scheduler::SchedulerConfig& config = deployment.scheduler;
  info.live = describe_all(args, deployment, describe(args, deployment, opened));
  info.header = deployment.header;
  info.tokenizer_path = args.tokenizer_path.empty() ? args.server.model_path : args.tokenizer_path;
  info.weight_version = args.format.weight_version;
  if (!deployment.model.architecture.empty()) info.architectures = {deployment.model.architecture};
  info.has_image_understanding = args.server.images.enable_multimodal;
  info.sglang_release = config.sglang_release.name;
  info.max_total_num_tokens = config.max_total_num_tokens;
  info.max_running_requests = config.max_running_requests;
  // As the scheduler refuses prompts: SGLang's max_req_input_len.
  constexpr std::uint64_t kHeadroom = 6;
  const std::uint64_t longest = std::min<std::uint64_t>(config.context_length, config.max_total_num_tokens);
  info.max_req_input_len = static_cast<std::uint32_t>(longest > kHeadroom ? longest - kHeadroom : 0);
  info.front_end = front_end_kind(args);
  info.client_seconds = args.server.client_seconds.value_or(0);
  info.tokenizer = args.format.skip_tokenizer ? "none" : opened.tokenizer->name();
  info.chat_template = args.format.skip_tokenizer ? "none" : opened.chat->name();
  info.real_tokenizer = !args.format.skip_tokenizer && opened.tokenizer->real();
  info.real_chat_template = !args.format.skip_tokenizer && opened.chat->real();
  info.notes = notes_of(args, opened);
  info.started = std::time(nullptr);
  return info;
}

// Every answer says where tokens are not the model's own.
std::string tokenizer_note(const ServerInfo& info) {
  return info.real_tokenizer || info.tokenizer == "none" ? "" : info.tokenizer;
}

HttpHeaders answer_headers(const ServerInfo& info) {
  const std::string note = tokenizer_note(info);
  return note.empty() ? HttpHeaders{} : HttpHeaders{{"x-tpsim-tokenizer", note}};
}

std::vector<std::uint32_t> eos_of(const Deployment& deployment, const Tokenizer& tokenizer) {
  if (!deployment.scheduler.eos_token_ids.empty()) return deployment.scheduler.eos_token_ids;
  return {tokenizer.eos_ids().begin(), tokenizer.eos_ids().end()};
}

int serve_deployment_live(const Stage& stage, const ServeArgs& args, const Deployment& deployment) {
  const auto began = std::chrono::steady_clock::now();
  for (const std::string& note : deployment.notes) spdlog::info("{}", note);
  for (const std::string& warning : deployment.warnings) spdlog::warn("{}", warning);
  allow_descriptors();
  const std::uint32_t vocab_size = deployment.model.vocab_size;
  const OpenedTokenizer opened = open_tokenizer(tokenizer_folder(args), vocab_size);
  const ServerInfo info = info_of(args, deployment, opened);
  // A reader of token counts must know that they are estimates.
  for (const std::string& note : info.notes)
    spdlog::log(std::find(opened.notes.begin(), opened.notes.end(), note) == opened.notes.end()
                    ? spdlog::level::info
                    : spdlog::level::warn,
                "{}", note);
  if (deployment.router.replicas > 1 && !stage.alone())
    throw_user_error(
        "--dp-size {}: replicas are served by one process; leave mpirun out, it stands in for all GPUs",
        deployment.router.replicas);
  const std::unique_ptr<rank::DeploymentExecutor> executor = stage.make_executor(deployment);
  const scheduler::FrontEndConfig front_end = serve_front_end(args, deployment);
  const PricedReplicas replicas(deployment, executor.get());
  std::vector<scheduler::FleetServer> servers = replicas.fleet().servers;
  for (scheduler::FleetServer& server : servers) server.front_end = &front_end;

  // From here on a signal means: answer what has begun.
  const StopFlag::Unhurried unhurried;
  const WallClock clock(args.speedup);
  LiveDescriptions descriptions{.each = {}, .all = info.live};
  descriptions.all.startup_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  descriptions.each.assign(servers.size(), describe(args, deployment, opened));
  LiveFleet fleet({.computes = args.server.numeric(), .max_queued_requests = args.max_queued_requests},
                  servers, deployment.router.config, clock, descriptions);
  FormatOptions format = args.format;
  format.tokenizer_note = tokenizer_note(info);
  ServeContext context{.fleet = fleet,
                       .tokenizer = opened.tokenizer,
                       .chat = opened.chat,
                       .invented = InventedAnswers(*opened.tokenizer, vocab_size),
                       .format = std::move(format),
                       .parse_limits = {.max_prompts = args.max_prompts_per_call},
                       .computes = args.server.numeric(),
                       .eos_ids = eos_of(deployment, *opened.tokenizer),
                       .vocab_size = vocab_size,
                       .context_length = deployment.scheduler.context_length,
                       .stream_interval = args.server.stream_interval,
                       .default_output_tokens = args.default_output_tokens,
                       .max_output_tokens = args.max_output_tokens,
                       .max_open_requests = args.max_open_requests,
                       .answer_headers = answer_headers(info)};
  Service service({.api_key = args.api_key, .admin_api_key = args.admin_api_key}, context, info);
  HttpServer server(args.wire, service);
  service.watch(server);
  server.start();
  print(fmt::format("tpsim: {} is served at {}\n", info.live.served_model_name, server.url()));
  flush_output();

  Drain drain(server, unhurried, context.draining, args.drain_timeout);
  std::optional<std::string> loss;
  // mpirun ends the others a second after one has died: time to tell clients, whose streams go on meanwhile.
  constexpr std::chrono::milliseconds kLookAtRanks{50};
  auto looked = std::chrono::steady_clock::now();
  try {
    fleet.run([&] {
      if (const auto now = std::chrono::steady_clock::now(); now - looked >= kLookAtRanks) {
        looked = now;
        stage.check_alive();
      }
      return drain.go_on();
    });
  } catch (const scheduler::ExecutorLost& lost) {
    loss = lost.what();
  }
  const bool all_answered = !loss && server.exchanges() == 0;
  fleet.abandon(loss ? "The server has lost its ranks." : "The server is shutting down.");
  if (!all_answered) drain.last_words();
  server.stop();
  service.stop();
  if (loss) throw rank::RankLost(*loss);
  executor->finish();
  for (const auto& other : replicas.executors()) other->finish();
  return all_answered ? kDone : kStoppedEarly;
}

int serve(const ServeArgs& args, rank::MpiSession& session) {
  check_serve_args(args);
  set_up_logging(args.server, session.process() == 0);
  const std::vector<Deployment> deployments = resolve_deployments(args.server, /*compare=*/false);
  if (deployments.front().disaggregation.decode_side) refuse_replicas(deployments.front(), "serve");
  return run_on_ranks(args.server, deployments, session, [&](const Stage& stage) {
    return serve_deployment_live(stage, args, deployments.front());
  });
}

}  // namespace

void add_serve_command(CLI::App& command, rank::MpiSession& session, Action& action) {
  add_flag_command<ServeArgs>(
      command, action, [](FlagSet& flags, ServeArgs& args) { declare_serve_flags(flags, args); },
      [&session](ServeArgs& args, FlagSet&) { return serve(args, session); });
}

}  // namespace tpsim::launch
