// What the server answers: SGLang's routes and OpenAI's.
#pragma once

#include <boost/asio/thread_pool.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "launch/serve/gate.h"
#include "launch/serve/protocol/json_fields.h"
#include "launch/serve/serve_context.h"
#include "launch/serve/server_info.h"
#include "launch/serve/wire/exchange.h"
#include "launch/serve/wire/http_message.h"
#include "launch/serve/wire/http_server.h"

namespace tpsim::launch {

struct ServiceConfig {
  std::string api_key, admin_api_key;  // empty: none is asked for
};

class Service final : public HttpHandler {
 public:
  // `context` and `info` must outlive it.
  Service(const ServiceConfig& config, ServeContext& context, const ServerInfo& info);

  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange) override;
  HttpResponse refuse(unsigned status, const std::string& sentence) override;
  // Whose connections the pages count; before it starts.
  void watch(const HttpServer& server) { server_ = &server; }
  // Nothing is handled any more: lets go of the exchanges that it holds, before the server that they belong
  // to is gone.
  void stop() {
    background_.reset();
    if (context_.gate != nullptr) context_.gate->close();
  }
  // What a live page shows, with the counts of the wire.
  LiveStatistics statistics() const { return with_wire(context_.fleet.statistics()); }

 private:
  // One call that a route has to answer.
  struct Call {
    HttpRequest request;
    std::shared_ptr<Exchange> exchange;
    std::string_view route;  // a constant
    Gate::Pass pass = {};    // of the router's gate, if it has one
  };
  enum class Key { kNone, kUser, kAdmin };
  struct Route {
    std::string_view path;
    std::string methods;  // with commas between them
    Key key;
    void (Service::*answer)(Call call);
    bool of_router = false;  // known where one stands before several replicas
  };
  static const Route kRoutes[];
  const Route* find_route(std::string_view path) const;
  bool routed() const { return !info_.live.router_policy.empty(); }

  LiveStatistics with_wire(LiveStatistics live) const;
  bool admitted(Key key, const HttpRequest& request) const;
  void respond(const Call& call, HttpResponse response);
  void refuse_call(const Call& call, unsigned status, std::string_view type, const std::string& sentence,
                   bool plain = false);
  void generate(Call call, GenerateCall (*parse)(std::string_view, const ParseLimits&));
  void let_in(Call call, GenerateCall (*parse)(std::string_view, const ParseLimits&));
  void begin(Call call, GenerateCall (*parse)(std::string_view, const ParseLimits&));
  // What a router answers where nobody serves the model that `parsed` names, or it names none.
  void answer_no_model(const Call& call, const GenerateCall& parsed);
  void answer_tokens(Call call, HttpResponse (*answer)(const ServeContext&, std::string_view));
  void refused(Call& call, const Refusal& refusal, bool native_stream);

  void on_generate(Call call);
  void on_completions(Call call);
  void on_chat(Call call);
  void on_health(Call call);
  void on_health_generate(Call call);
  void on_root(Call call);
  void on_models(Call call);
  void on_model(Call call);
  void on_model_info(Call call);
  void on_server_info(Call call);
  void on_get_load(Call call);
  void on_loads(Call call);
  void on_flush_cache(Call call);
  void on_workers(Call call);
  void on_router_loads(Call call);
  void on_liveness(Call call);
  void on_readiness(Call call);
  void on_abort(Call call);
  void on_tokenize(Call call);
  void on_detokenize(Call call);
  void on_ping(Call call);
  void on_metrics(Call call);
  void on_live(Call call);
  void on_live_data(Call call);

  const ServiceConfig config_;
  ServeContext& context_;
  const ServerInfo& info_;
  const HttpServer* server_ = nullptr;
  // One thread that reads what is long, which would hold up the streams of a thread of the wire.
  std::optional<boost::asio::thread_pool> background_{std::in_place, 1};
};

}  // namespace tpsim::launch
