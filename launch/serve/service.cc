#include "launch/serve/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/algorithm/string/predicate.hpp>
#include <boost/algorithm/string/trim.hpp>
#include <boost/asio/post.hpp>
#include <charconv>
#include <chrono>
#include <iterator>
#include <optional>
#include <utility>

#include "launch/serve/live_call.h"
#include "launch/serve/page/live_page.h"
#include "launch/serve/page/prometheus_text.h"
#include "launch/serve/prompt_tokens.h"
#include "launch/serve/protocol/json_fields.h"
#include "launch/serve/server_info.h"
#include "proto/base/random.h"
#include "proto/base/text.h"
#include "scheduler/router/worker_health.h"

namespace tpsim::launch {
namespace {

// Bodies that are read, and tokenized, elsewhere: shorter ones take less than handing them over would.
constexpr std::size_t kLongBody = 32 << 10;

// In time that does not tell how much of it is right.
bool equal_secrets(std::string_view a, std::string_view b) {
  unsigned char differ = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i)
    differ |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  return differ == 0;
}

bool carries(const std::string& authorization, const std::string& key) {
  constexpr std::string_view kScheme = "bearer ";
  return boost::algorithm::istarts_with(authorization, kScheme) &&
         equal_secrets(std::string_view(authorization).substr(kScheme.size()), key);
}

bool is_json(const HttpRequest& request) {
  std::string type = request.content_type.substr(0, request.content_type.find(';'));
  boost::algorithm::trim_right(type);
  return boost::algorithm::iequals(type, "application/json");
}

// Why `work` cannot be carried out; none: it was.
template <typename Work>
std::optional<Refusal> refusal_of(const Work& work) {
  try {
    work();
    return std::nullopt;
  } catch (const Refusal& refusal) {
    return refusal;
  } catch (const std::exception& error) {
    return Refusal(500, "InternalServerError", fmt::format("Internal server error: {}", error.what()));
  }
}

}  // namespace

const Service::Route Service::kRoutes[] = {
    {"/generate", "POST,PUT", Key::kUser, &Service::on_generate},
    {"/v1/completions", "POST", Key::kUser, &Service::on_completions},
    {"/v1/chat/completions", "POST", Key::kUser, &Service::on_chat},
    {"/v1/models", "GET", Key::kUser, &Service::on_models},
    {"/v1/models/{model}", "GET", Key::kUser, &Service::on_model},
    {"/health", "GET", Key::kNone, &Service::on_health},
    {"/health_generate", "GET", Key::kNone, &Service::on_health_generate},
    {"/ping", "GET", Key::kUser, &Service::on_ping},
    {"/", "GET,HEAD", Key::kUser, &Service::on_root},
    {"/get_model_info", "GET", Key::kUser, &Service::on_model_info},
    {"/model_info", "GET", Key::kUser, &Service::on_model_info},
    {"/get_server_info", "GET", Key::kUser, &Service::on_server_info},
    {"/server_info", "GET", Key::kUser, &Service::on_server_info},
    {"/get_load", "GET", Key::kUser, &Service::on_get_load},
    {"/v1/loads", "GET", Key::kUser, &Service::on_loads},
    {"/metrics", "GET", Key::kNone, &Service::on_metrics},
    {"/live", "GET,HEAD", Key::kNone, &Service::on_live},
    {"/live/data", "GET", Key::kUser, &Service::on_live_data},
    {"/flush_cache", "GET,POST", Key::kAdmin, &Service::on_flush_cache},
    {"/abort_request", "POST", Key::kAdmin, &Service::on_abort},
    {"/tokenize", "POST", Key::kUser, &Service::on_tokenize},
    {"/v1/tokenize", "POST", Key::kUser, &Service::on_tokenize},
    {"/detokenize", "POST", Key::kUser, &Service::on_detokenize},
    {"/v1/detokenize", "POST", Key::kUser, &Service::on_detokenize},
    {"/invocations", "POST", Key::kUser, &Service::on_chat},
    {"/workers", "GET", Key::kUser, &Service::on_workers, /*of_router=*/true},
    {"/get_loads", "GET", Key::kUser, &Service::on_router_loads, /*of_router=*/true},
    {"/liveness", "GET", Key::kNone, &Service::on_liveness, /*of_router=*/true},
    {"/readiness", "GET", Key::kNone, &Service::on_readiness, /*of_router=*/true},
};

Service::Service(const ServiceConfig& config, ServeContext& context, const ServerInfo& info)
    : config_(config), context_(context), info_(info) {}

const Service::Route* Service::find_route(std::string_view path) const {
  constexpr std::string_view kModel = "/v1/models/";
  if (path.starts_with(kModel) && path.size() > kModel.size()) path = "/v1/models/{model}";
  const auto found = std::find_if(std::begin(kRoutes), std::end(kRoutes), [&](const Route& route) {
    return route.path == path && (routed() || !route.of_router);
  });
  return found == std::end(kRoutes) ? nullptr : found;
}

// SGLang's decide_request_auth().
bool Service::admitted(Key key, const HttpRequest& request) const {
  const std::string* wanted = nullptr;
  if (key == Key::kUser) wanted = &config_.api_key;
  if (key == Key::kAdmin) wanted = config_.admin_api_key.empty() ? &config_.api_key : &config_.admin_api_key;
  return wanted == nullptr || wanted->empty() || carries(request.authorization, *wanted);
}

void Service::handle(HttpRequest request, std::shared_ptr<Exchange> exchange) {
  const Route* const route = find_route(request.path);
  std::optional<RefusedRoute> refused;
  if (route == nullptr) refused = find_refused_route(request.path);
  const std::string_view counted = route != nullptr ? route->path : refused ? refused->path : "other";
  Call call{std::move(request), std::move(exchange), counted};
  if (!admitted(route == nullptr ? Key::kUser : route->key, call.request)) {
    respond(call, {.status = 401, .body = R"({"error":"Unauthorized"})"});
  } else if (refused) {
    // No 5xx: clients would try again.
    refuse_call(call, 404, "NotFoundError", fmt::format("{}: {}", refused->path, refused->why));
  } else if (route == nullptr) {
    respond(call, {.status = 404, .body = R"({"detail":"Not Found"})"});
  } else if (const auto methods = split_list(route->methods);
             std::find(methods.begin(), methods.end(), call.request.method) == methods.end()) {
    respond(call, {.status = 405,
                   .body = R"({"detail":"Method Not Allowed"})",
                   .headers = {{"allow", fmt::format("{}", fmt::join(methods, ", "))}}});
  } else {
    (this->*route->answer)(std::move(call));
  }
}

HttpResponse Service::refuse(unsigned status, const std::string& sentence) {
  ++context_.invalid_requests;
  context_.counts.add("other", "", status);
  return {.status = status, .body = error_body(ErrorStyle::kOpenAi, status, status_name(status), sentence)};
}

void Service::respond(const Call& call, HttpResponse response) {
  static constexpr std::string_view kMethods[] = {"GET", "POST", "PUT", "HEAD", "DELETE", "OPTIONS"};
  const auto known = std::find(std::begin(kMethods), std::end(kMethods), call.request.method);
  context_.counts.add(call.route, known == std::end(kMethods) ? "" : *known, response.status);
  if (response.status >= 400 && response.status < 500) ++context_.invalid_requests;
  call.exchange->respond(response);
}

void Service::refuse_call(const Call& call, unsigned status, std::string_view type,
                          const std::string& sentence, bool plain) {
  respond(call,
          {.status = status,
           .body = error_body(plain ? ErrorStyle::kPlain : ErrorStyle::kOpenAi, status, type, sentence)});
}

void Service::generate(Call call, GenerateCall (*parse)(std::string_view, const ParseLimits&)) {
  if (call.request.path.starts_with("/v1/") && !is_json(call.request)) {
    refuse_call(call, 400, "Bad Request", "Unsupported Media Type: Only 'application/json' is allowed");
  } else if (context_.draining) {
    refuse_call(call, 503, "503", "The server is shutting down.");
  } else if (context_.fleet.open_requests() >= context_.max_open_requests) {
    refuse_call(call, 503, "503",
                fmt::format("{} requests are open, as many as --max-open-requests allows",
                            context_.max_open_requests));
  } else if (context_.gate == nullptr) {
    let_in(std::move(call), parse);
  } else {
    const auto shared = std::make_shared<Call>(std::move(call));
    context_.gate->enter(
        shared->exchange->thread(),
        [this, shared, parse](Gate::Pass pass, bool waited) {
          if (waited) shared->request.arrived = std::chrono::steady_clock::now();
          shared->pass = std::move(pass);
          let_in(std::move(*shared), parse);
        },
        [this, shared](unsigned status) { respond(*shared, {.status = status, .body = ""}); });
  }
}

void Service::let_in(Call call, GenerateCall (*parse)(std::string_view, const ParseLimits&)) {
  if (call.request.body.size() < kLongBody) {
    begin(std::move(call), parse);
  } else {
    const auto shared = std::make_shared<Call>(std::move(call));
    boost::asio::post(*background_, [this, shared, parse] { begin(std::move(*shared), parse); });
  }
}

// On the exchange's thread, or in the background.
void Service::begin(Call call, GenerateCall (*parse)(std::string_view, const ParseLimits&)) {
  struct Outcome {
    Call call;
    GenerateCall parsed;
    const ServedModel* model = nullptr;
    std::vector<std::vector<std::uint32_t>> prompts;
    std::optional<Refusal> refusal;
    bool native_stream = false;
  };
  const auto outcome = std::make_shared<Outcome>();
  outcome->call = std::move(call);
  const bool here = outcome->call.request.body.size() < kLongBody;
  outcome->refusal = refusal_of([&] {
    outcome->parsed = parse(outcome->call.request.body, context_.parse_limits);
    const bool any = outcome->parsed.api == GenerateCall::Api::kGenerate && context_.models.size() == 1;
    outcome->model =
        any && !outcome->parsed.model ? &context_.models.front() : context_.find_model(outcome->parsed.model);
    if (outcome->model == nullptr) return;
    std::string().swap(outcome->call.request.body);
    outcome->parsed.routing_key = std::move(outcome->call.request.routing_key);
    outcome->native_stream = outcome->parsed.stream && outcome->parsed.api == GenerateCall::Api::kGenerate;
    outcome->prompts = tokenize(context_, *outcome->model, outcome->parsed);
  });
  const auto finish = [this, outcome] {
    if (!outcome->refusal && outcome->model == nullptr) {
      answer_no_model(outcome->call, outcome->parsed);
      return;
    }
    if (!outcome->refusal) {
      outcome->refusal = refusal_of([&] {
        std::make_shared<LiveCall>(context_, *outcome->model, outcome->call.route, std::move(outcome->parsed),
                                   std::move(outcome->prompts), outcome->call.request.arrived,
                                   outcome->call.exchange, std::move(outcome->call.pass))
            ->start();
      });
    }
    if (outcome->refusal)
      refused(outcome->call, *outcome->refusal, outcome->native_stream || outcome->refusal->in_stream);
  };
  if (here)
    finish();
  else
    outcome->call.exchange->thread().post(finish);
}

// As sglang_router 0.3.2 did before two models.
void Service::answer_no_model(const Call& call, const GenerateCall& parsed) {
  if (!parsed.model && parsed.api != GenerateCall::Api::kChat) {
    std::string sentence = "Model must be specified. Available models: ";
    for (const ServedModel& model : context_.models)
      sentence += (&model == context_.models.data() ? "" : ", ") + model.name;
    const std::string& body = call.request.body;
    if (parsed.api == GenerateCall::Api::kCompletions)
      sentence = fmt::format(
          "Failed to deserialize the JSON body into the target type: missing field `model` at line {} column "
          "{}",
          1 + std::ranges::count(body, '\n'), body.size() - (body.rfind('\n') + 1));
    respond(call, {.status = parsed.api == GenerateCall::Api::kGenerate ? 400U : 422U,
                   .body = sentence,
                   .content_type = "text/plain; charset=utf-8"});
    return;
  }
  // After all attempts, which find nobody.
  const scheduler::RetryConfig& retry = context_.retry;
  double pause = 0;
  for (std::uint32_t failed = 1; failed < retry.max_retries; ++failed)
    pause += scheduler::retry_backoff(retry, failed, unit_interval(mix64(++context_.answers)));
  const auto due = call.request.arrived + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                              std::chrono::duration<double>(pause / info_.live.speedup));
  call.exchange->thread().post_at(due, [this, call] {
    respond(call, {.status = 503,
                   .body = R"~({"error":{"type":"Service Unavailable","code":"no_available_workers",)~"
                           R"~("message":"No available workers (all circuits open or unhealthy)"}})~",
                   .headers = {{"x-smg-error-code", "no_available_workers"}}});
  });
}

// What /generate finds wrong with a value it says within the stream that was asked for.
void Service::refused(Call& call, const Refusal& refusal, bool native_stream) {
  const bool value = refusal.type == "BadRequestError";
  const bool native = call.route == "/generate";
  if (!native_stream || !value) {
    refuse_call(call, refusal.status, refusal.type, refusal.what(), native && value);
    return;
  }
  ++context_.invalid_requests;
  context_.counts.add(call.route, "POST", 200);
  call.exchange->begin_stream("text/event-stream; charset=utf-8", {});
  call.exchange->write(fmt::format("data: {}\n\ndata: [DONE]\n\n",
                                   error_body(ErrorStyle::kPlain, 400, refusal.type, refusal.what())));
  call.exchange->end_stream();
}

void Service::on_generate(Call call) { generate(std::move(call), parse_generate); }
void Service::on_completions(Call call) { generate(std::move(call), parse_completion); }
void Service::on_chat(Call call) { generate(std::move(call), parse_chat); }

void Service::on_tokenize(Call call) { answer_tokens(std::move(call), tokenize_answer); }
void Service::on_detokenize(Call call) { answer_tokens(std::move(call), detokenize_answer); }

void Service::answer_tokens(Call call, HttpResponse (*answer)(const ServeContext&, std::string_view)) {
  const auto shared = std::make_shared<Call>(std::move(call));
  // Texts of any length: not on the thread that streams wait for.
  boost::asio::post(*background_, [this, shared, answer] {
    HttpResponse response;
    const std::optional<Refusal> refusal =
        refusal_of([&] { response = answer(context_, shared->request.body); });
    shared->exchange->thread().post([this, shared, response, refusal] {
      if (refusal)
        refuse_call(*shared, refusal->status, refusal->type, refusal->what());
      else
        respond(*shared, response);
    });
  });
}

void Service::on_health(Call call) { respond(call, {.status = context_.draining ? 503U : 200U, .body = ""}); }

// One token where nothing runs; where something does, the server has shown that it lives. A router asks no
// worker.
void Service::on_health_generate(Call call) {
  if (context_.draining || routed() || context_.fleet.open_requests() > 0) {
    on_health(std::move(call));
    return;
  }
  class Probe final : public LiveRequest {
   public:
    Probe(std::shared_ptr<Exchange> exchange, ServeContext& context)
        : exchange_(std::move(exchange)), context_(context) {}
    WireThread& thread() const override { return exchange_->thread(); }
    void on_news(const TokenNews& news) override {
      if (std::exchange(answered_, true)) return;
      const unsigned status = news.count > 0 ? 200 : 503;
      context_.counts.add("/health_generate", "GET", status);
      exchange_->respond({.status = status, .body = ""});
    }

   private:
    const std::shared_ptr<Exchange> exchange_;
    ServeContext& context_;
    bool answered_ = false;
  };
  auto request = std::make_shared<scheduler::WorkloadRequest>();
  request->prompt.append({0, 1});
  request->max_new_tokens = 1;
  context_.fleet.submit(std::move(request), call.request.arrived,
                        std::make_shared<Probe>(call.exchange, context_));
}

void Service::on_ping(Call call) { respond(call, {.body = ""}); }

// A browser gets the page; a client that looks for SGLang finds it.
void Service::on_root(Call call) {
  if (call.request.accept.find("text/html") != std::string::npos)
    on_live(std::move(call));
  else
    respond(call, {.body = R"("SGLang is running")"});
}

void Service::on_metrics(Call call) {
  respond(call, {.body = prometheus_text(statistics()), .content_type = std::string(kPrometheusContentType)});
}

void Service::on_live(Call call) {
  respond(call, {.body = live_page(), .content_type = "text/html; charset=utf-8"});
}

void Service::on_live_data(Call call) {
  double after = -1;
  const std::string_view text = call.request.parameter("after");
  if (std::from_chars(text.data(), text.data() + text.size(), after).ec != std::errc()) after = -1;
  LiveStatistics shown = statistics();
  const std::string_view one = call.request.parameter("replica");
  std::size_t replica = shown.replicas.size();
  std::from_chars(one.data(), one.data() + one.size(), replica);
  if (replica < shown.replicas.size()) {
    LiveStatistics alone = with_wire(context_.fleet.statistics(replica));
    alone.replicas = std::move(shown.replicas);
    shown = std::move(alone);
  }
  respond(call, {.body = live_page_data(shown, after), .headers = {{"cache-control", "no-store"}}});
}

void Service::on_models(Call call) { respond(call, {.body = models_json(info_)}); }

void Service::on_model(Call call) {
  const std::string name = call.request.path.substr(std::string_view("/v1/models/").size());
  if (const std::optional<std::string> card = model_card_json(info_, name))
    respond(call, {.body = *card});
  else
    respond(call, {.status = 404, .body = model_not_found_body(name)});
}

void Service::on_model_info(Call call) { respond(call, {.body = model_info_json(info_)}); }
void Service::on_server_info(Call call) { respond(call, {.body = server_info_json(info_, statistics())}); }
void Service::on_get_load(Call call) { respond(call, {.body = load_json(statistics())}); }
void Service::on_loads(Call call) { respond(call, {.body = loads_json(info_, statistics())}); }

void Service::on_workers(Call call) { respond(call, {.body = workers_json(statistics())}); }
void Service::on_router_loads(Call call) { respond(call, {.body = router_loads_json(statistics())}); }
void Service::on_liveness(Call call) {
  respond(call, {.body = "OK", .content_type = "text/plain; charset=utf-8"});
}
void Service::on_readiness(Call call) {
  if (context_.draining) return on_health(std::move(call));
  respond(call, {.body = router_readiness_json(context_.fleet.size())});
}

void Service::on_flush_cache(Call call) {
  const auto shared = std::make_shared<Call>(std::move(call));
  context_.fleet.flush_cache([this, shared](bool flushed) {
    shared->exchange->thread().post([this, shared, flushed] {
      if (flushed && routed()) {
        respond(*shared, {.body = router_flush_json(context_.fleet.size())});
        return;
      }
      const std::string body =
          flushed ? "Cache flushed.\nPlease check backend logs for more details. (When there are running or "
                    "waiting requests, the operation will not be performed.)\n"
                  : "Flush cache failed.\n";
      respond(*shared,
              {.status = flushed ? 200U : 400U, .body = body, .content_type = "text/plain; charset=utf-8"});
    });
  });
}

void Service::on_abort(Call call) {
  try {
    const AbortCall abort = parse_abort(call.request.body);
    // As SGLang: a name that nobody has asks for nothing, and one that somebody has stands for all that begin
    // so.
    if (abort.abort_all || context_.names.contains(abort.rid)) {
      for (const std::uint64_t id : context_.names.starting_with(abort.abort_all ? "" : abort.rid))
        context_.fleet.cancel(id);
    }
    respond(call, {.body = ""});
  } catch (const Refusal& refusal) {
    refuse_call(call, refusal.status, refusal.type, refusal.what());
  }
}

LiveStatistics Service::with_wire(LiveStatistics live) const {
  live.draining = context_.draining;
  live.merged_deltas = context_.merged_deltas;
  live.invalid_requests = context_.invalid_requests;
  live.open_streams = context_.open_streams;
  if (server_ != nullptr) live.open_connections = server_->connections();
  context_.counts.copy_to(live);
  return live;
}

}  // namespace tpsim::launch
