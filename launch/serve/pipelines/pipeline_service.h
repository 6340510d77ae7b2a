// What a pipeline's server answers: the routes of SGLang 0.5.23's sglang.multimodal_gen (http_server.py,
// openai/image_api.py, video_api.py, common_api.py) for images and videos.
//
// One thread of the wire carries all of it: requests are queued as `tpsim run` queues them, and answered when
// the wall has come to their end. Nothing is kept of a picture but its size and seed: it is drawn when asked
// for.
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>
#include <functional>
#include <limits>
#include <list>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>

#include "launch/diffusion/generation_prices.h"
#include "launch/diffusion/request_queue.h"
#include "launch/serve/live/wall_clock.h"
#include "launch/serve/pipelines/generation_call.h"
#include "launch/serve/pipelines/pipeline_metrics.h"
#include "launch/serve/wire/exchange.h"

namespace tpsim::launch {

struct PipelineServiceConfig {
  std::string model_path, served_model_name;
  SamplingAsked defaults;  // of what clients leave out
  QueueRules rules;
  std::uint32_t max_open_requests = 65536;
  nlohmann::ordered_json deployment;  // for /server_info
};

class PipelineService final : public HttpHandler {
 public:
  // All but `config` must outlive this.
  PipelineService(PipelineServiceConfig config, const Pipeline& pipeline, const ResolvedPipeline& resolved,
                  const WallClock& clock);

  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange) override;
  HttpResponse refuse(unsigned status, const std::string& sentence) override;
  // Set when nothing new is to be taken. Any thread.
  std::atomic<bool>& draining() { return draining_; }

 private:
  using Json = nlohmann::ordered_json;
  // A request that was accepted; an image's until its client has gone, too.
  struct Job {
    std::string id, model, prompt;
    GenerationCall::Kind kind{};
    rank::GenerationRequest shape;
    std::uint32_t fps = 24;
    std::uint64_t seed = 0;
    std::time_t created = 0, completed = 0;
    bool done = false, as_url = false;
    std::size_t queued = 0;              // its id in queue_
    std::shared_ptr<Exchange> exchange;  // an image's, until it is answered
    const Generation* price = nullptr;
  };
  using Jobs = std::list<Job>;  // in the order of arrival

  void create(GenerationCall::Kind kind, const HttpRequest& request, std::shared_ptr<Exchange> exchange);
  void accept(Job job, double arrived);
  rank::GenerationRequest shape_of(const GenerationCall& call) const;
  // Ends and begins what the clock has come to, and sees to it that this is done again when it is time.
  void advance(double now);
  void finish(Job& job);
  void forget_oldest();
  void forget(Jobs::iterator job);  // one that is done

  HttpResponse image_json(const Job& job) const;
  Json video_json(const Job& job) const;
  int progress(const Job& job) const;  // percent
  HttpResponse list_videos(const HttpRequest& request) const;
  HttpResponse content(const Job* job, const HttpRequest& request, bool video) const;
  HttpResponse videos(const HttpRequest& request);
  HttpResponse information(const HttpRequest& request) const;
  Json model_card() const;
  const char* task_type() const;
  Job* find(std::string_view id, bool video);

  const PipelineServiceConfig config_;
  const Pipeline& pipeline_;
  const ResolvedPipeline& resolved_;
  const WallClock& clock_;
  GenerationPrices prices_;
  RequestQueue queue_;
  PipelineMetrics metrics_;
  Jobs jobs_;
  std::unordered_map<std::string, Jobs::iterator> by_id_;
  std::unordered_map<std::size_t, Jobs::iterator> queued_;  // by id in queue_
  std::size_t num_done_ = 0;                                // of jobs_
  WireThread* thread_ = nullptr;                            // the one thread
  double due_ = std::numeric_limits<double>::infinity();    // when advance() is called next, of the clock
  std::atomic<bool> draining_ = false;
};

}  // namespace tpsim::launch
