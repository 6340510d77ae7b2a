#include "launch/serve/pipelines/pipeline_service.h"

#include <fmt/format.h>

#include <boost/uuid/random_generator.hpp>
#include <boost/uuid/uuid_io.hpp>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "launch/serve/page/prometheus_text.h"
#include "launch/serve/pipelines/media.h"
#include "launch/serve/protocol/json_fields.h"
#include "proto/base/error.h"
#include "proto/base/hash.h"
#include "proto/base/text.h"

namespace tpsim::launch {
namespace {

using Kind = GenerationCall::Kind;

constexpr std::string_view kImages = "/v1/images/", kVideos = "/v1/videos", kModels = "/v1/models/";
constexpr std::size_t kMostJobs = 10'000;  // that are remembered after their end
constexpr double kMebi = 1 << 20;

HttpResponse detail(unsigned status, const std::string& sentence) {
  return {.status = status, .body = fmt::format(R"({{"detail":{}}})", json_string(sentence))};
}
HttpResponse json_response(const nlohmann::ordered_json& json) {
  return {.body = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)};
}

// A whole number of a query; `otherwise` where it is left out; none: it is none, or outside the limits.
std::optional<std::size_t> query_number(const HttpRequest& request, std::string_view key,
                                        std::size_t otherwise, std::size_t least, std::size_t most) {
  const std::string_view text = request.parameter(key);
  if (text.empty()) return otherwise;
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most)
    return std::nullopt;
  return value;
}

}  // namespace

PipelineService::PipelineService(PipelineServiceConfig config, const Pipeline& pipeline,
                                 const ResolvedPipeline& resolved, const WallClock& clock)
    : config_(std::move(config)),
      pipeline_(pipeline),
      resolved_(resolved),
      clock_(clock),
      prices_(pipeline, resolved),
      queue_(config_.rules,
             [this](const rank::GenerationRequest& shape) { return prices_.of(shape).cost.seconds; }),
      metrics_(config_.rules.replicas) {}

HttpResponse PipelineService::refuse(unsigned status, const std::string& sentence) {
  return detail(status, sentence);
}

void PipelineService::handle(HttpRequest request, std::shared_ptr<Exchange> exchange) {
  thread_ = &exchange->thread();
  const std::string& path = request.path;
  const auto method_is = [&](std::string_view method) { return request.method == method; };
  if (path == "/v1/images/generations" || path == "/v1/images/edits") {
    if (method_is("POST"))
      create(path.ends_with("edits") ? Kind::kEdit : Kind::kImage, request, std::move(exchange));
    else
      exchange->respond(detail(405, "Method Not Allowed"));
  } else if (path == kVideos && method_is("POST")) {
    create(Kind::kVideo, request, std::move(exchange));
  } else if (path == kVideos || path.starts_with("/v1/videos/")) {
    exchange->respond(videos(request));
  } else if (!method_is("GET") && !method_is("HEAD")) {
    exchange->respond(
        detail(path == "/metrics" ? 405 : 404, path == "/metrics" ? "Method Not Allowed" : "Not Found"));
  } else if (constexpr std::string_view kContent = "/content";
             path.starts_with(kImages) && path.ends_with(kContent) &&
             path.size() > kImages.size() + kContent.size()) {
    const std::string id = path.substr(kImages.size(), path.size() - kImages.size() - kContent.size());
    exchange->respond(content(find(id, false), request, false));
  } else {
    exchange->respond(information(request));
  }
}

rank::GenerationRequest PipelineService::shape_of(const GenerationCall& call) const {
  const bool video = call.kind == Kind::kVideo;
  if (!call.task_type.empty() && to_lower(call.task_type) != to_lower(task_type()))
    throw_user_error("task_type {}: this pipeline's is {}", in_quotes(call.task_type), task_type());
  if (video != pipeline_.config.video)
    throw_user_error("{} makes {}: use {}", config_.served_model_name,
                     pipeline_.config.video ? "videos" : "images",
                     pipeline_.config.video ? "/v1/videos" : "/v1/images/generations");
  if (call.kind == Kind::kImage && pipeline_.config.needs_image)
    throw_user_error("{} changes images: use /v1/images/edits", config_.served_model_name);
  std::vector<std::string> notes;
  return resolve_request(call.sampling, pipeline_.config, resolved_.parallel.num_gpus, notes);
}

void PipelineService::create(Kind kind, const HttpRequest& request, std::shared_ptr<Exchange> exchange) {
  try {
    if (draining_) throw Refusal(503, "", "The server is shutting down.");
    if (queue_.num_open() >= config_.max_open_requests)
      throw Refusal(503, "",
                    fmt::format("{} requests are open, as many as --max-open-requests allows",
                                config_.max_open_requests));
    GenerationCall call = read_generation(kind, request, config_.defaults);
    Job job{.id = boost::uuids::to_string(boost::uuids::random_generator()()),
            .model = call.model.empty() ? config_.served_model_name : call.model,
            .prompt = std::move(call.prompt),
            .kind = kind,
            .shape = shape_of(call),
            .fps = call.fps,
            .created = std::time(nullptr),
            .as_url = call.as_url,
            .exchange = std::move(exchange)};
    job.seed = fnv1a(job.prompt);
    exchange = job.exchange;
    job.price = &prices_.of(job.shape);
    if (!job.price->fits) throw Refusal(500, "", fmt::format("out of memory: {}", job.price->too_large));
    // What may go along with it must fit, too: a batch that does not fails all of its requests.
    rank::GenerationRequest most = job.shape;
    if (config_.rules.batches && most.images.empty() && most.outputs < config_.rules.max_outputs) {
      most.outputs = config_.rules.max_outputs / most.outputs * most.outputs;
      if (const Generation& batch = prices_.of(most); !batch.fits)
        throw Refusal(500, "",
                      fmt::format("out of memory with --batching-max-size {}: {}", config_.rules.max_outputs,
                                  batch.too_large));
    }
    accept(std::move(job), clock_.seconds_at(request.arrived));
  } catch (const Refusal& refusal) {
    exchange->respond(detail(refusal.status, refusal.what()));
  } catch (const UserError& error) {
    exchange->respond(detail(400, error.what()));
  }
}

void PipelineService::accept(Job job, double arrived) {
  advance(arrived);
  job.queued = queue_.submit(job.shape, arrived);
  jobs_.push_back(std::move(job));
  const auto at = std::prev(jobs_.end());
  by_id_[at->id] = at;
  queued_[at->queued] = at;
  const auto exchange = at->kind == Kind::kVideo ? std::exchange(at->exchange, nullptr) : nullptr;
  if (exchange) exchange->respond(json_response(video_json(*at)));
  advance(arrived);
}

void PipelineService::advance(double now) {
  for (const RequestQueue::Ended& ended : queue_.finish(now)) {
    metrics_.on_finished(ended.served);
    const auto at = queued_.find(ended.id);
    finish(*at->second);
    queued_.erase(at);
  }
  forget_oldest();
  queue_.begin(now, [this](const rank::GenerationRequest& shape, const ServedRequest& head) {
    const QueueRules& rules = config_.rules;
    const char* const reason = rules.max_outputs == 1 || !rules.batches ? "dynamic_disabled"
                               : shape.outputs >= rules.max_outputs     ? "max_size"
                                                                        : "delay";
    metrics_.on_batch(head, reason, prices_.of(shape).cost);
  });
  const double next = queue_.next();
  if (next >= due_) return;  // somebody comes by then
  due_ = next;
  thread_->post_at(clock_.time_at(next), [this, next] {
    if (due_ == next) due_ = std::numeric_limits<double>::infinity();
    advance(std::max(next, clock_.now()));
  });
}

void PipelineService::finish(Job& job) {
  job.done = true;
  ++num_done_;
  job.completed = std::time(nullptr);
  if (job.exchange) std::exchange(job.exchange, nullptr)->respond(image_json(job));
}

void PipelineService::forget_oldest() {
  for (auto at = jobs_.begin(); num_done_ > kMostJobs;) {
    const auto job = at++;
    if (job->done) forget(job);
  }
}

void PipelineService::forget(Jobs::iterator job) {
  by_id_.erase(job->id);
  jobs_.erase(job);
  --num_done_;
}

PipelineService::Job* PipelineService::find(std::string_view id, bool video) {
  const auto at = by_id_.find(std::string(id));
  return at == by_id_.end() || (at->second->kind == Kind::kVideo) != video ? nullptr : &*at->second;
}

HttpResponse PipelineService::image_json(const Job& job) const {
  Json data = Json::array();
  std::string picture;
  if (!job.as_url) picture = base64(test_picture(job.shape.width, job.shape.height, job.seed));
  for (std::uint32_t i = 0; i < job.shape.outputs; ++i) {
    Json one = {{"b64_json", nullptr},
                {"url", nullptr},
                {"revised_prompt", job.prompt},
                {"file_path", nullptr},
                {"resize", nullptr}};
    if (!job.as_url)
      one["b64_json"] = picture;
    else
      one["url"] = job.shape.outputs == 1 ? fmt::format("/v1/images/{}/content", job.id)
                                          : fmt::format("/v1/images/{}/content?variant={}", job.id, i);
    data.push_back(std::move(one));
  }
  return json_response({{"id", job.id},
                        {"created", job.completed},
                        {"data", std::move(data)},
                        {"peak_memory_mb", job.price->cost.peak_bytes / kMebi},
                        {"inference_time_s", job.price->cost.seconds},
                        {"usage", nullptr}});
}

// As far as SGLang tells it: denoising steps that are done.
int PipelineService::progress(const Job& job) const {
  if (job.done) return 100;
  const ServedRequest* const served = queue_.running(job.queued);
  if (served == nullptr || job.price == nullptr) return 0;
  double before = 0, denoising = 0;
  for (const rank::StageCost& stage : job.price->cost.stages) {
    if (stage.name == "DenoisingStage")
      denoising += stage.seconds;
    else if (denoising == 0)
      before += stage.seconds;
  }
  const double scale = (served->end - served->start) / job.price->cost.seconds;  // of a batch
  const double passed = (clock_.now() - served->start) / scale - before;
  const double steps = std::floor(job.shape.steps * std::clamp(passed / denoising, 0.0, 1.0));
  return std::min(99, static_cast<int>(100 * steps / job.shape.steps));
}

PipelineService::Json PipelineService::video_json(const Job& job) const {
  const int percent = progress(job);
  Json json = {{"id", job.id},
               {"object", "video"},
               {"model", job.model},
               {"status", job.done      ? "completed"
                          : percent > 0 ? "in_progress"
                                        : "queued"},
               {"progress", percent},
               {"created_at", job.created},
               {"size", fmt::format("{}x{}", job.shape.width, job.shape.height)},
               {"seconds", fmt::format("{:.0f}", std::nearbyint(double{1} * job.shape.frames / job.fps))},
               {"quality", "standard"}};
  for (const char* const none : {"url", "urls", "remixed_from_video_id", "completed_at", "expires_at",
                                 "error", "file_path", "file_paths", "num_outputs", "peak_memory_mb",
                                 "inference_time_s", "revised_prompt", "action", "lidar"})
    json[none] = nullptr;
  if (job.done) {
    json["completed_at"] = job.completed;
    json["num_outputs"] = job.shape.outputs;
    json["peak_memory_mb"] = job.price->cost.peak_bytes / kMebi;
    json["inference_time_s"] = job.price->cost.seconds;
  }
  return json;
}

HttpResponse PipelineService::list_videos(const HttpRequest& request) const {
  const std::optional<std::size_t> limit = query_number(request, "limit", 20, 1, 100);
  if (!limit) return detail(422, "limit: Input should be a whole number from 1 to 100");
  const std::string_view order = request.parameter("order"), after = request.parameter("after");
  if (!order.empty() && order != "asc" && order != "desc")
    return detail(422, "order: Input should be 'asc' or 'desc'");
  std::vector<const Job*> all;
  for (const Job& job : jobs_) {
    if (job.kind == Kind::kVideo) all.push_back(&job);
  }
  if (order != "asc") std::reverse(all.begin(), all.end());
  if (!after.empty()) {
    const auto at = std::find_if(all.begin(), all.end(), [&](const Job* job) { return job->id == after; });
    all.erase(all.begin(), at == all.end() ? at : at + 1);
  }
  Json data = Json::array();
  for (std::size_t i = 0; i < std::min(*limit, all.size()); ++i) data.push_back(video_json(*all[i]));
  const Json first = data.empty() ? Json() : data.front()["id"],
             last = data.empty() ? Json() : data.back()["id"];
  return json_response({{"data", std::move(data)},
                        {"object", "list"},
                        {"first_id", first},
                        {"last_id", last},
                        {"has_more", all.size() > *limit}});
}

HttpResponse PipelineService::videos(const HttpRequest& request) {
  const bool get = request.method == "GET" || request.method == "HEAD";
  if (request.path == kVideos) return get ? list_videos(request) : detail(405, "Method Not Allowed");
  std::string_view id = std::string_view(request.path).substr(kVideos.size() + 1);
  const bool wants_content = id.ends_with("/content");
  if (wants_content) id.remove_suffix(std::string_view("/content").size());
  if (id.find('/') != std::string_view::npos) return detail(404, "Not Found");
  Job* const job = find(id, true);
  if (wants_content) return get ? content(job, request, true) : detail(405, "Method Not Allowed");
  if (!get && request.method != "DELETE") return detail(405, "Method Not Allowed");
  if (job == nullptr) return detail(404, "Video not found");
  Json json = video_json(*job);
  if (!get) {
    json["status"] = "deleted";
    // One that runs goes on, as there, and is found no more.
    const auto at = by_id_.extract(job->id).mapped();
    if (at->done) forget(at);
  }
  return json_response(json);
}

HttpResponse PipelineService::content(const Job* job, const HttpRequest& request, bool video) const {
  const char* const what = video ? "Video" : "Image";
  if (job == nullptr) return detail(404, fmt::format("{} not found", what));
  if (!job->done)
    return detail(404, video ? "Generation is still in-progress" : "Image is still being generated");
  if (!query_number(request, "variant", 0, 0, job->shape.outputs - 1))
    return detail(404, fmt::format("{} variant {} not found", what, request.parameter("variant")));
  const auto [width, height] = std::pair(job->shape.width, job->shape.height);
  return {.body = video ? test_video(width, height, job->seed, job->shape.frames, job->fps)
                        : test_picture(width, height, job->seed),
          .content_type = video ? "video/mp4" : "image/png",
          .headers = {{"content-disposition",
                       fmt::format(R"(attachment; filename="{}.{}")", job->id, video ? "mp4" : "png")}}};
}

const char* PipelineService::task_type() const {
  const rank::PipelineConfig& c = pipeline_.config;
  if (c.needs_image) return c.video ? "I2V" : "I2I";
  if (c.image_input) return c.video ? "TI2V" : "TI2I";
  return c.video ? "T2V" : "T2I";
}

PipelineService::Json PipelineService::model_card() const {
  const std::string& name = config_.served_model_name;
  return {{"id", name},
          {"object", "model"},
          {"created", std::time(nullptr)},
          {"owned_by", "sglang"},
          {"root", name},
          {"parent", nullptr},
          {"max_model_len", nullptr},
          {"num_gpus", resolved_.parallel.num_gpus},
          {"task_type", task_type()},
          {"supported_task_types", {task_type()}},
          {"pipeline_name", pipeline_.config.class_name},
          {"pipeline_class", pipeline_.config.class_name}};
}

HttpResponse PipelineService::information(const HttpRequest& request) const {
  const std::string& path = request.path;
  if (path == "/liveness") return {.body = R"({"status":"ok"})"};
  if (path == "/health" || path == "/health_generate")
    return draining_ ? HttpResponse{.status = 503, .body = ""} : HttpResponse{.body = R"({"status":"ok"})"};
  if (path == "/metrics")
    return {.body = metrics_.text(queue_, clock_.speedup()), .content_type = kPrometheusContentType};
  if (path == "/v1/models") return json_response({{"object", "list"}, {"data", {model_card()}}});
  if (path.starts_with(kModels)) {
    const std::string name = path.substr(kModels.size());
    if (name == config_.served_model_name) return json_response(model_card());
    return {.status = 404, .body = model_not_found_body(name)};
  }
  if (path == "/v1/model_info") return json_response({{"model_path", config_.model_path}});
  if (path == "/model_info") {
    const rank::PipelineConfig& c = pipeline_.config;
    return json_response({{"model_path", config_.model_path},
                          {"is_generation", true},
                          {"model_type", "diffusion"},
                          {"architectures", {c.class_name}},
                          {"has_image_understanding", c.image_input},
                          {"has_audio_understanding", false},
                          {"task_type", task_type()},
                          {"supported_task_types", {task_type()}},
                          {"output_types", {c.video ? "VIDEO" : "IMAGE"}},
                          {"is_image_gen", !c.video}});
  }
  if (path == "/server_info") {
    return json_response({{"model_path", config_.model_path},
                          {"served_model_name", config_.served_model_name},
                          {"tp_size", resolved_.parallel.tp},
                          {"dp_size", resolved_.parallel.dp},
                          {"version", "0.5.23"},
                          {"tpsim", config_.deployment}});
  }
  return detail(404, "Not Found");
}

}  // namespace tpsim::launch
