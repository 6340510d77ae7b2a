#include "launch/lab/passes/diffusion_passes.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <string_view>

#include "attention/diffusion/selection/diffusion_attention.h"
#include "launch/diffusion/likely.h"
#include "proto/base/error.h"
#include "rank/config/pipeline_names.h"
#include "rank/cost/hardware.h"
#include "rank/diffusion/pipeline.h"

namespace tpsim::launch {
namespace {

using nlohmann::json;

std::string text_of(const json& row, const char* key) {
  const auto at = row.find(key);
  return at != row.end() && at->is_string() ? at->get<std::string>() : std::string();
}

std::optional<double> number_of(const json& row, const char* key) {
  const auto at = row.find(key);
  if (at == row.end() || !at->is_number() || at->get<double>() <= 0) return std::nullopt;
  return at->get<double>();
}

// "wan2.1-14b" is measured as the text-to-video pipeline.
rank::PipelineConfig pipeline_of(const std::string& model) {
  std::string name = model;
  if (const std::size_t dash = model.find('-'); !rank::is_pipeline(name) && dash != std::string::npos)
    name.insert(dash + 1, "t2v-");
  if (!rank::is_pipeline(name)) throw_user_error("model {}: is not in rank/catalogue/pipelines", model);
  return rank::load_pipeline(name);
}

// Pixels of a video's height to its width, as the checkpoints are published for.
std::uint32_t width_of(std::uint32_t height) {
  return height == 480 ? 832 : (height * 16 / 9 + 15) / 16 * 16;
}

std::uint32_t count_of(const std::ssub_match& match) {
  return match.matched ? static_cast<std::uint32_t>(std::stoul(match.str())) : 1;
}

rank::GenerationRequest request_of(const std::string& text) {
  static const std::regex kVideo(R"((\d{1,5})p(\d{1,5})(?: batch(\d{1,3}))?)"),
      kImage(R"((\d{1,5})(?: batch(\d{1,3}))?)");
  rank::GenerationRequest request;
  request.steps = 1;
  std::smatch match;
  if (std::regex_match(text, match, kVideo)) {
    request.height = count_of(match[1]);
    request.width = width_of(request.height);
    request.frames = count_of(match[2]);
    request.outputs = count_of(match[3]);
  } else if (std::regex_match(text, match, kImage)) {
    request.width = request.height = count_of(match[1]);
    request.outputs = count_of(match[2]);
  } else {
    throw_user_error("case {}: is neither as 480p81 nor as 1024", text);
  }
  return request;
}

rank::PipelinePlan plan_of(const std::string& mode, const rank::PipelineConfig& config,
                           const std::string& backend) {
  static const std::regex kMode(R"((one|ulysses|ring|cfg)(\d{1,3})?)");
  rank::PipelinePlan plan;
  std::smatch match;
  if (!std::regex_match(mode, match, kMode))
    throw_user_error("mode {}: is not one, ulysses2, ring2 or cfg2", mode);
  plan.num_gpus = count_of(match[2]);
  if (match[1] == "ulysses") plan.ulysses = plan.num_gpus;
  if (match[1] == "ring") plan.ring = plan.num_gpus;
  if (match[1] == "cfg") plan.cfg = plan.num_gpus;
  const attention::DiffusionBackend& row = attention::find_diffusion_backend("backend", backend);
  for (const rank::PipelineComponent& component : config.components)
    plan.attention[component.name] = {&row, &row, attention::read_diffusion_parameters(row, "")};
  return plan;
}

void set(proto::MeasuredFigure& figure, double measured, double predicted_seconds) {
  figure.set_measured(measured);
  figure.set_predicted(predicted_seconds * 1e3);
}

// A forward of a transformer.
void predict_transformer(const json& row, const proto::HardwareProfile& hardware, proto::ValidatedRow& out) {
  const std::string sdpa = text_of(row, "sdpa");
  const std::string backend = sdpa.empty()      ? text_of(row, "backend")
                              : sdpa == "cudnn" ? "torch_cudnn_sdpa"
                                                : "torch_sdpa";
  const std::string mode = text_of(row, "mode").empty() ? "one" : text_of(row, "mode");
  out.set_backend(backend);
  out.set_settings(mode);
  const rank::PipelineConfig config = pipeline_of(text_of(row, "model"));
  const rank::PipelinePlan plan = plan_of(mode, config, backend);
  out.set_tp(plan.num_gpus);
  rank::GenerationRequest request = request_of(text_of(row, "case"));
  request.guided = plan.cfg > 1;
  request.steps = 1;
  const rank::PipelineCost cost(config, plan, hardware);
  const rank::StageCost pass = cost.forward("transformer", request, 0);
  double attention = 0;
  for (const rank::OperatorShare& share : pass.operators)
    if (share.name.ends_with("attention")) attention += share.seconds;
  if (const auto ms = number_of(row, "ms"); ms && sdpa.empty()) {
    set(*out.mutable_ms(), *ms, pass.seconds);
    *out.mutable_traits() = generation_traits(config, plan, request, hardware.name());
  }
  if (const auto ms = number_of(row, "attention_ms")) set(*out.mutable_attention_ms(), *ms, attention);
}

// A decode of Wan's VAE, or UMT5.
void predict_component(const json& row, const proto::HardwareProfile& hardware, proto::ValidatedRow& out) {
  const std::string what = text_of(row, "what"), dtype = text_of(row, "dtype");
  rank::PipelineConfig config = rank::load_pipeline("wan2.1-t2v-1.3b");
  rank::PipelinePlan plan = plan_of("one", config, "torch_sdpa");
  const bool fp32 = dtype.ends_with("float32") || dtype == "fp32";
  const auto ms = number_of(row, "ms");
  if (!ms) throw_user_error("ms: is missing");
  out.set_settings(fp32 ? "fp32" : "bf16");
  if (what == "wan vae decode") {
    plan.vae_fp32 = fp32;
    plan.diffusers_vae = true;
    set(*out.mutable_ms(), *ms,
        rank::PipelineCost(config, plan, hardware).decode(request_of(text_of(row, "case"))).seconds);
  } else if (what == "umt5-xxl encoder") {
    static const std::regex kShape(R"((\d{1,3})x(\d{1,5}))");
    const std::string shape = text_of(row, "case");
    std::smatch match;
    if (!std::regex_match(shape, match, kShape)) throw_user_error("case {}: is not as 1x512", shape);
    for (rank::PipelineComponent& component : config.components)
      if (component.kind == rank::ComponentKind::kTextEncoder) component.bytes_per_parameter = fp32 ? 4 : 2;
    rank::GenerationRequest request = request_of("480p17");
    request.outputs = count_of(match[1]);
    request.prompt_tokens = count_of(match[2]);
    set(*out.mutable_ms(), *ms, rank::PipelineCost(config, plan, hardware).encode_text(request).seconds);
  } else {
    throw_user_error("{}: is no pass that a generation has by itself", what);
  }
}

}  // namespace

bool holds_diffusion_passes(const std::filesystem::path& path) { return path.extension() == ".json"; }

void predict_diffusion_passes(const std::filesystem::path& path, const std::string& hardware,
                              proto::Validation& validation) {
  std::ifstream in(path);
  if (!in) throw_user_error("--measurements {}: cannot be read", path.string());
  const json rows = json::parse(std::string((std::istreambuf_iterator<char>(in)), {}), nullptr, false);
  if (!rows.is_array())
    throw_user_error("--measurements {}: is not a JSON list of measured passes", path.string());
  const std::string gpu = hardware.empty() ? "h200-sxm" : hardware;
  const proto::HardwareProfile profile = rank::load_hardware(gpu);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const json& row = rows[i];
    if (!row.is_object() || !row.contains("case") || (!row.contains("what") && !row.contains("model")))
      throw_user_error("--measurements {}: entry {} has no \"case\" with a \"model\" or \"what\"",
                       path.string(), i + 1);
    proto::ValidatedRow out;
    const bool component = row.contains("what");
    out.set_model(component ? text_of(row, "what") : text_of(row, "model"));
    out.set_hardware(gpu);
    out.set_load(text_of(row, "case"));
    out.set_file(fmt::format("{}:{}", path.string(), i + 1));
    const std::string name = fmt::format("{} {}", out.model(), text_of(row, "case"));
    try {
      if (component)
        predict_component(row, profile, out);
      else
        predict_transformer(row, profile, out);
      out.set_id(
          fmt::format("{} {}{}{}", name, out.settings(), out.backend().empty() ? "" : " ", out.backend()));
      *validation.add_rows() = std::move(out);
    } catch (const UserError& error) {
      proto::NotAsked& refused = *validation.add_not_asked();
      refused.set_id(name);
      refused.set_load(text_of(row, "case"));
      refused.set_file(out.file());
      refused.set_reason(error.what());
    }
  }
}

}  // namespace tpsim::launch
