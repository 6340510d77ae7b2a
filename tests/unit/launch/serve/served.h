// A whole server in this process, with replicas whose passes are easy to predict.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "launch/serve/live/live_fleet.h"
#include "launch/serve/serve_context.h"
#include "launch/serve/server_info.h"
#include "launch/serve/service.h"
#include "launch/serve/wire/http_server.h"
#include "launch/tokenizer/open.h"
#include "scheduler/executor.h"
#include "scheduler/fleet.h"
#include "scheduler/router/router.h"
#include "tests/unit/launch/serve/http_client.h"

namespace tpsim::launch {

inline constexpr std::uint32_t kVocabulary = 32000;

// Ten milliseconds a pass. With `ids`, every request gets one of them after the other, as if it were
// computed.
class SteadyExecutor final : public scheduler::Executor {
 public:
  std::atomic<double> seconds = 0.01;
  scheduler::StepOutcome forward(const proto::ForwardBatch&) override { return {.step_time = seconds}; }
};

inline scheduler::SchedulerConfig small_pool() {
  scheduler::SchedulerConfig config;
  config.page_size = 1;
  config.max_total_num_tokens = 100000;
  config.max_running_requests = 256;
  config.chunked_prefill_size = 8192;
  config.context_length = 8192;
  config.check_invariants = true;
  return config;
}

class Served : public testing::Test {
 protected:
  void start(LiveConfig live = {}, ServiceConfig keys = {}, WireConfig wire = {}) {
    const OpenedTokenizer opened = open_tokenizer("", kVocabulary);
    LiveDescription description;
    description.max_total_num_tokens = config.max_total_num_tokens;
    scheduler::Fleet servers;
    servers.servers.assign(replicas, {&config, &executor, &front_end});
    servers.link = link;
    servers.decode.assign(decoders, {&decode, &executor, &front_end});
    LiveDescriptions descriptions;
    if (decoders > 0) description.worker_type = "prefill";
    descriptions.each.assign(replicas, description);
    description.worker_type = "decode";
    descriptions.each.insert(descriptions.each.end(), decoders, description);
    descriptions.all = description;
    fleet = std::make_unique<LiveFleet>(live, servers, LiveRouters{router, router}, clock, descriptions);
    context.reset(new ServeContext{.fleet = *fleet,
                                   .models = {{.name = "model",
                                               .tokenizer = opened.tokenizer,
                                               .chat = opened.chat,
                                               .invented = InventedAnswers(*opened.tokenizer, kVocabulary),
                                               .format = format,
                                               .vocab_size = kVocabulary,
                                               .context_length = config.context_length}},
                                   .parse_limits = {}});
    info.live.served_model_name = "model";
    info.sglang_release = "0.5.12";
    service = std::make_unique<Service>(keys, *context, info);
    wire.port = 0;
    server = std::make_unique<HttpServer>(wire, *service);
    service->watch(*server);
    server->start();
    stepping = std::thread([this] { fleet->run([this] { return !ended.load(); }); });
  }
  void TearDown() override {
    ended = true;
    stepping.join();
    fleet->abandon("the test is over");
    server->stop();
    service->stop();
  }
  HttpClient client() { return HttpClient(server->port()); }
  // Until nothing is at the replica any more, and its statistics, which look at queues now and then, say so.
  void wait_until_idle() {
    const auto idle = [this] {
      const LiveStatistics live = fleet->statistics();
      const std::uint64_t ended = live.finished_requests + live.aborted_requests + live.rejected_requests;
      return fleet->open_requests() == 0 && live.accepted_requests > 0 && ended == live.accepted_requests &&
             live.num_running_reqs == 0;
    };
    for (int i = 0; i < 5000 && !idle(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(idle());
  }

  SteadyExecutor executor;  // of all replicas
  scheduler::SchedulerConfig config = small_pool();
  scheduler::FrontEndConfig front_end;
  std::size_t replicas = 1;
  std::size_t decoders = 0;  // of pairs, with these and a link between
  scheduler::SchedulerConfig decode = config;
  scheduler::KvLinkConfig link;
  scheduler::RouterConfig router;
  FormatOptions format;
  WallClock clock;
  ServerInfo info;
  std::unique_ptr<LiveFleet> fleet;
  std::unique_ptr<ServeContext> context;
  std::unique_ptr<Service> service;
  std::unique_ptr<HttpServer> server;
  std::atomic<bool> ended = false;
  std::thread stepping;
};

}  // namespace tpsim::launch
