#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <deque>
#include <filesystem>
#include <functional>
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
#include "launch/fleet/fleet.h"
#include "launch/fleet/fleet_file.h"
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

// Of all replicas, behind a router that may be none; `name`: of what they serve.
LiveDescription describe_all(const std::vector<LiveDescription>& each, const std::string& name,
                             std::string_view router_policy) {
  LiveDescription all = each.front();
  all.served_model_name = name;
  if (each.size() == 1) return all;
  all.replicas = all.dp_size = static_cast<std::uint32_t>(each.size());
  all.router_policy = router_policy;
  all.max_total_num_tokens = all.max_running_requests = 0;
  for (const LiveDescription& one : each) {
    all.max_total_num_tokens += one.max_total_num_tokens;
    all.max_running_requests += one.max_running_requests;
    all.context_length = std::max(all.context_length, one.context_length);
    if (all.hardware.find(one.hardware) == std::string::npos) all.hardware += " + " + one.hardware;
  }
  return all;
}

// A model that is served, by servers of which `deployment` is one's.
struct LiveModel {
  std::string name;
  const Deployment& deployment;
  OpenedTokenizer opened;
  std::uint32_t context_length = 0;  // tokens; the longest of its servers
};

// Of their tokenizers.
std::vector<std::string> tokenizer_notes(const ServeArgs& args, const std::vector<LiveModel>& models) {
  std::vector<std::string> notes;
  for (const LiveModel& model : models)
    for (const std::string& note : model.opened.notes)
      if (!args.format.skip_tokenizer && std::ranges::find(notes, note) == notes.end()) notes.push_back(note);
  return notes;
}

// What a client should know of the answers.
std::vector<std::string> notes_of(const ServeArgs& args, const std::vector<LiveModel>& models) {
  std::vector<std::string> notes = tokenizer_notes(args, models);
  if (!args.server.numeric())
    notes.push_back(
        "answers are invented: no model computed them, only how long they take; they have max_new_tokens "
        "tokens, or --default-output-tokens where a client sets no limit");
  return notes;
}

// `live`: of all replicas, of which the first serves the first of `models`. `by_name`: a router tells these
// apart.
ServerInfo info_of(const ServeArgs& args, const std::vector<LiveModel>& models, bool by_name,
                   LiveDescription live) {
  const Deployment& deployment = models.front().deployment;
  const OpenedTokenizer& opened = models.front().opened;
  ServerInfo info;
  for (const LiveModel& model : models)
    if (by_name) info.models.emplace_back(model.name, model.context_length);
  const scheduler::SchedulerConfig& config = deployment.scheduler;
  info.live = std::move(live);
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
  info.notes = notes_of(args, models);
  info.started = std::time(nullptr);
  return info;
}

std::vector<std::uint32_t> eos_of(const Deployment& deployment, const Tokenizer& tokenizer) {
  if (!deployment.scheduler.eos_token_ids.empty()) return deployment.scheduler.eos_token_ids;
  return {tokenizer.eos_ids().begin(), tokenizer.eos_ids().end()};
}

// `number`: WorkloadRequest::model.
ServedModel served_model(const ServeArgs& args, const LiveModel& model, std::uint16_t number) {
  const Tokenizer& tokenizer = *model.opened.tokenizer;
  const std::uint32_t vocab_size = model.deployment.model.vocab_size;
  ServedModel served{.name = model.name,
                     .number = number,
                     .tokenizer = model.opened.tokenizer,
                     .chat = model.opened.chat,
                     .invented = InventedAnswers(tokenizer, vocab_size),
                     .format = args.format,
                     .eos_ids = eos_of(model.deployment, tokenizer),
                     .vocab_size = vocab_size,
                     .context_length = model.context_length};
  // Every answer says where tokens are not the model's own.
  if (args.format.skip_tokenizer || tokenizer.real()) return served;
  served.format.tokenizer_note = tokenizer.name();
  served.answer_headers = {{"x-tpsim-tokenizer", std::string(tokenizer.name())}};
  return served;
}

// What is served; `first`: of the first server.
struct LiveServers {
  LiveServers(const Deployment& first, const scheduler::Fleet& servers) : first(first), servers(servers) {}

  // `count` servers more, that are alike.
  void describe(std::uint32_t count, LiveDescription description, std::string_view worker_type) {
    description.worker_type = worker_type;
    descriptions.each.insert(descriptions.each.end(), count, description);
  }
  // The model of servers that are `deployment`, with the tokenizer of the first of them. The reference is
  // valid until the next call.
  const LiveModel& take_model(const ServeArgs& args, const std::string& name, const Deployment& deployment) {
    auto model = std::ranges::find(models, name, &LiveModel::name);
    if (model == models.end()) {
      models.push_back(
          {name, deployment, open_tokenizer(tokenizer_folder(args), deployment.model.vocab_size)});
      model = models.end() - 1;
    }
    model->context_length = std::max(model->context_length, deployment.scheduler.context_length);
    return *model;
  }
  void describe_together(std::string_view policy) {
    std::vector<std::string> names;
    for (const LiveModel& model : models) names.push_back(model.name);
    descriptions.all = describe_all(descriptions.each, fmt::format("{}", fmt::join(names, " + ")), policy);
  }
  // All have the front end of a client's own.
  void put_behind(const scheduler::FrontEndConfig& front_end) {
    for (std::vector<scheduler::FleetServer>* side : {&servers.servers, &servers.decode})
      for (scheduler::FleetServer& server : *side)
        if (server.front_end == nullptr) server.front_end = &front_end;
  }
  bool split() const { return !servers.decode.empty(); }
  // Of the router before them.
  std::string policy() const {
    std::string text(to_string(first.router.config.policy));
    if (split()) text += fmt::format(", {} for decode", to_string(first.disaggregation.decode_router.policy));
    return text;
  }

  const Deployment& first;
  scheduler::Fleet servers;
  LiveDescriptions descriptions;
  std::vector<LiveModel> models = {};
  // A router with --enable-igw: requests say which of the models they are for; where there are several, the
  // replicas of each.
  bool by_name = false;
  std::vector<std::vector<std::uint32_t>> replicas_of_models = {};
};

// `check`: called now and then; throws where the servers cannot go on.
int serve_live(const ServeArgs& args, LiveServers served, std::chrono::steady_clock::time_point began,
               const std::function<void()>& check) {
  const Deployment& deployment = served.first;
  allow_descriptors();
  const ServerInfo info = info_of(args, served.models, served.by_name, served.descriptions.all);
  const std::vector<std::string> estimates = tokenizer_notes(args, served.models);
  // A reader of token counts must know that they are estimates.
  for (const std::string& note : info.notes)
    spdlog::log(
        std::ranges::find(estimates, note) == estimates.end() ? spdlog::level::info : spdlog::level::warn,
        "{}", note);

  // From here on a signal means: answer what has begun.
  const StopFlag::Unhurried unhurried;
  const WallClock clock(args.speedup);
  served.descriptions.all.startup_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  scheduler::RouterConfig router = deployment.router.config;
  router.models = std::move(served.replicas_of_models);
  LiveFleet fleet({.computes = args.server.numeric(), .max_queued_requests = args.max_queued_requests},
                  served.servers, {std::move(router), deployment.disaggregation.decode_router}, clock,
                  served.descriptions);
  std::vector<ServedModel> models;
  for (const LiveModel& model : served.models)
    models.push_back(served_model(args, model, static_cast<std::uint16_t>(models.size() + 1)));
  ServeContext context{.fleet = fleet,
                       .models = std::move(models),
                       .by_name = served.by_name,
                       .parse_limits = {.max_prompts = args.max_prompts_per_call},
                       .computes = args.server.numeric(),
                       .stream_interval = args.server.stream_interval,
                       .default_output_tokens = args.default_output_tokens,
                       .max_output_tokens = args.max_output_tokens,
                       .max_open_requests = args.max_open_requests};
  context.retry = args.server.elastic.config.retry;
  if (args.server.elastic.disable_retries) context.retry.max_retries = 1;
  if (const scheduler::AdmissionConfig& limits = deployment.router.elastic.admission; limits.capacity > 0)
    context.gate = std::make_shared<Gate>(limits, clock);
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
        check();
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
  return all_answered ? kDone : kStoppedEarly;
}

void say_notes(const Deployment& deployment) {
  for (const std::string& note : deployment.notes) spdlog::info("{}", note);
  for (const std::string& warning : deployment.warnings) spdlog::warn("{}", warning);
}

int serve_deployment_live(const Stage& stage, const ServeArgs& args, const Deployment& deployment) {
  const auto began = std::chrono::steady_clock::now();
  say_notes(deployment);
  const Disaggregation& pairs = deployment.disaggregation;
  if (deployment.replicas() > 1 && !stage.alone())
    throw_user_error(
        "{}: replicas are served by one process; leave mpirun out, it stands in for all GPUs",
        pairs.decode_side ? "--pd-disaggregation" : fmt::format("--dp-size {}", deployment.router.replicas));
  const std::unique_ptr<rank::DeploymentExecutor> executor = stage.make_executor(deployment);
  const scheduler::FrontEndConfig front_end = serve_front_end(args, deployment);
  const PricedReplicas replicas(deployment, executor.get());
  LiveServers served(deployment, replicas.fleet());
  served.put_behind(front_end);
  const OpenedTokenizer opened = served.take_model(args, args.model_name(), deployment).opened;
  if (pairs.decode_side) {
    ServeArgs decode = args;
    decode.server = decode_server_args(args.server);
    served.describe(pairs.prefill, describe(args, deployment, opened), "prefill");
    served.take_model(args, args.model_name(), *pairs.decode_side);
    served.describe(pairs.decode, describe(decode, *pairs.decode_side, opened), "decode");
  } else {
    served.describe(deployment.router.replicas, describe(args, deployment, opened), "regular");
  }
  const bool routed = pairs.decode_side || !args.server.router.given().empty();
  served.describe_together(routed ? served.policy() : "");
  const int status = serve_live(args, std::move(served), began, [&] { stage.check_alive(); });
  executor->finish();
  for (const auto& other : replicas.executors()) other->finish();
  return status;
}

void refuse_what_is_of_one_model(const ServeArgs& args, const Fleet& fleet) {
  if (!fleet.models.empty() && !args.served_model_name.empty())
    throw_user_error("--served-model-name {}: behind a router with --enable-igw it stands in the args of {}",
                     args.served_model_name, fleet.path);
  if (fleet.models.size() > 1 && !args.tokenizer_path.empty())
    throw_user_error(
        "--tokenizer-path {}: is of one model, {} serves {}; give each its folder as --model-path there",
        args.tokenizer_path, fleet.path, fleet.models.size());
}

// Unequal servers: --fleet.
int serve_fleet(const ServeArgs& asked, rank::MpiSession& session) {
  const auto began = std::chrono::steady_clock::now();
  if (session.num_processes() > 1)
    throw_user_error("--fleet: is served by one process; leave mpirun out, it stands in for all GPUs");
  const Fleet fleet =
      resolve_fleet(read_fleet_file(asked.server.router.fleet), asked.server, /*loaded=*/false);
  if (!fleet.ignored_flags.empty())
    spdlog::warn("{}: {}: of no meaning to a simulation", fleet.path, fmt::join(fleet.ignored_flags, ", "));
  refuse_what_is_of_one_model(asked, fleet);
  const Deployment& first = fleet.members.front().deployment;
  ServeArgs args = asked;
  args.server = fleet.members.front().args;
  args.server.elastic = asked.server.elastic;
  std::deque<scheduler::FrontEndConfig> front_ends;
  PricedReplicas replicas = fleet.split() ? PricedReplicas(first) : PricedReplicas();
  LiveServers served(first, {});
  served.by_name = !fleet.models.empty();
  for (std::size_t i = 0; fleet.models.size() > 1 && i < fleet.models.size(); ++i)
    served.replicas_of_models.push_back(fleet.replicas_of(i));
  for (const FleetMember& member : fleet.members) {
    say_notes(member.deployment);
    ServeArgs of = args;
    of.server = member.args;
    if (served.by_name) of.served_model_name = fleet.models[member.model].name;
    const std::string name = served.by_name ? of.served_model_name : args.model_name();
    const LiveModel& model = served.take_model(of, name, member.deployment);
    front_ends.push_back(serve_front_end(of, member.deployment));
    if (!fleet.split()) replicas.add(member.deployment, member.count, front_ends.back());
    const char* const side = &member == &fleet.members.front() ? "prefill" : "decode";
    served.describe(member.count, describe(of, member.deployment, model.opened),
                    fleet.split() ? side : "regular");
  }
  served.servers = replicas.fleet();
  served.put_behind(front_ends.front());
  served.describe_together(served.policy());
  const int status = serve_live(args, std::move(served), began, [] {});
  for (const auto& executor : replicas.executors()) executor->finish();
  return status;
}

int serve(const ServeArgs& args, rank::MpiSession& session) {
  check_serve_args(args);
  set_up_logging(args.server, session.process() == 0);
  if (!args.server.router.fleet.empty()) return serve_fleet(args, session);
  const std::vector<Deployment> deployments = resolve_deployments(args.server, /*compare=*/false);
  return run_on_ranks(args.server, deployments, session, [&](const Stage& stage) {
    return serve_deployment_live(stage, args, deployments.front());
  });
}

}  // namespace

void add_serve_command(CLI::App& command, rank::MpiSession& session, Action& action) {
  add_flag_command<ServeArgs>(
      command, action, [](FlagSet& flags, ServeArgs& args) { declare_serve_flags(flags, args); },
      [&session](ServeArgs& args, FlagSet& flags) {
        args.server.given = flags.given();
        return serve(args, session);
      });
}

}  // namespace tpsim::launch
