#include "launch/numeric/verify_pipeline.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string_view>
#include <utility>

#include "attention/diffusion/selection/diffusion_attention.h"
#include "proto/base/error.h"
#include "rank/numeric/diffusion/seeded_tensor.h"
#include "rank/numeric/diffusion/text_encoder.h"
#include "rank/parallel/numeric_executor.h"
#include "rank/weights/checkpoint.h"
#include "rank/weights/dummy_weights.h"
#include "rank/weights/tensor_source.h"

namespace tpsim::launch {
namespace {

using rank::Json;

constexpr std::string_view kConfig = "a configuration";

// Over the largest of `wanted`.
double difference(const std::vector<float>& values, const std::vector<float>& wanted) {
  double most = 0, largest = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double apart = std::abs(static_cast<double>(values[i]) - wanted[i]);
    most = std::isnan(apart) ? INFINITY : std::max(most, apart);
    largest = std::max(largest, std::abs(static_cast<double>(wanted[i])));
  }
  return largest > 0 ? most / largest : most;
}

// One loop, and one pass before it.
class Loop {
 public:
  Loop(const ComputedPipeline& pipeline, const LoopSize& size,
       const std::optional<rank::GuidedPrompt>& encoded)
      : pipeline_(pipeline),
        size_(size),
        shape_{pipeline.denoiser->channels(), size.latents[0], size.latents[1], size.latents[2]},
        latents_(rank::seeded_tensor("latents", size.seed, rank::elements(shape_))) {
    const auto patch = pipeline.denoiser->patch();
    for (std::size_t i = 0; i < 3; ++i) {
      if (size.latents[i] % patch[i] != 0)
        throw_user_error("--latent-size: its {} must be a multiple of the transformer's patch_size, {}",
                         std::array{"frames", "rows", "columns"}[i], patch[i]);
    }
    if (encoded) {
      prompt_ = *encoded;
      return;
    }
    const auto text = [&](const char* name) {
      const std::size_t count = std::size_t{size.prompt_tokens} * pipeline.denoiser->text_size();
      return rank::TextEmbeddings{
          size.prompt_tokens, rank::seeded_tensor(name, size.seed, count),
          rank::seeded_tensor(std::string("pooled_") + name, size.seed, pipeline.denoiser->pooled_size())};
    };
    prompt_ = {.prompt = text("prompt"), .negative = text("negative_prompt"), .guidance = size.guidance};
  }

  std::vector<float> first_pass(rank::SequenceRanks& ranks) const {
    const float timestep = scheduler()->timesteps().front();
    return pipeline_.denoiser
        ->forward(shape_, latents_, timestep, size_.guidance, std::vector{prompt_.prompt, prompt_.negative},
                  ranks)
        .front();
  }
  std::vector<float> latents(rank::SequenceRanks& ranks) const {
    return rank::denoise({pipeline_.denoiser.get(), pipeline_.second.get(), pipeline_.boundary}, *scheduler(),
                         shape_, latents_, prompt_, ranks);
  }

 private:
  std::unique_ptr<rank::FlowScheduler> scheduler() const {
    return rank::make_scheduler(rank::ConfigReader(pipeline_.scheduler, pipeline_.scheduler_path),
                                size_.steps, pipeline_.denoiser->schedule_tokens(shape_),
                                pipeline_.denoiser->log_shift(shape_, size_.steps));
  }

  const ComputedPipeline& pipeline_;
  const LoopSize& size_;
  rank::LatentShape shape_;
  std::vector<float> latents_;
  rank::GuidedPrompt prompt_;
};

// What the VAE makes of latents, those of the same bits once.
class Decoding {
 public:
  Decoding(const ComputedPipeline& pipeline, const LoopReference& reference)
      : pipeline_(pipeline), reference_(reference) {}
  // From the reference's pixels.
  double difference_of(const std::vector<float>& latents, rank::ThreadPool& pool) {
    if (latents == latents_) return difference_;
    const std::vector<float> pixels =
        pipeline_.decoder->decode(reference_.shape(pipeline_.denoiser->channels()), latents, pool);
    std::vector<float> kept;
    for (std::size_t i = 0; i < pixels.size(); i += reference_.pixels->stride) kept.push_back(pixels[i]);
    latents_ = latents;
    return difference_ = difference(kept, reference_.pixels->values);
  }

 private:
  const ComputedPipeline& pipeline_;
  const LoopReference& reference_;
  std::vector<float> latents_;
  double difference_ = 0;
};

// What `load` makes of a component's config.json and of its weights, `dummy` or its own.
template <typename Load>
auto load_component(const std::filesystem::path& at, bool dummy, const Load& load) {
  const Json json = read_pipeline_json("--model-path", at / "config.json", kConfig);
  const rank::ConfigReader config(json, (at / "config.json").string());
  return dummy ? load(config, rank::DummyWeights(/*seed=*/0)) : load(config, rank::Checkpoint(at.string()));
}

}  // namespace

bool PipelineRow::agrees(double tolerance) const {
  const bool same = std::max({difference, from_reference.value_or(0), pixels.value_or(0)}) <= tolerance;
  return same || !exact || kept < 1;
}

ComputedPipeline load_computed_pipeline(const std::string& folder, bool dummy) {
  const std::filesystem::path root = folder;
  std::error_code error;
  if (!std::filesystem::is_directory(root, error))
    throw_user_error(
        "--model-path {}: is a pipeline without weights; name a folder with model_index.json, "
        "transformer and scheduler",
        folder);
  const Json index = read_pipeline_json("--model-path", root / "model_index.json", kConfig);
  const rank::ConfigReader reader(index, (root / "model_index.json").string());
  // A timestep for each token (expand_timesteps) is the same for all where no image is given.
  ComputedPipeline out;
  out.class_name = reader.text("_class_name", "");
  out.distilled = reader.flag("is_distilled", false);
  out.denoiser = load_component(root / "transformer", dummy, rank::load_denoiser);
  out.scheduler_path = (root / "scheduler" / "scheduler_config.json").string();
  out.scheduler = read_pipeline_json("--model-path", out.scheduler_path, kConfig);
  if (!reader.has("boundary_ratio")) return out;
  out.second = load_component(root / "transformer_2", dummy, rank::load_denoiser);
  if (out.second->channels() != out.denoiser->channels() ||
      out.second->text_size() != out.denoiser->text_size() || out.second->patch() != out.denoiser->patch())
    throw_user_error("{}: key \"boundary_ratio\": transformer and transformer_2 are not of the same sizes",
                     reader.where());
  out.boundary = static_cast<float>(
      reader.real("boundary_ratio", 0, 0, 1) *
      rank::ConfigReader(out.scheduler, out.scheduler_path).number_or("num_train_timesteps", 1000));
  return out;
}

void load_decoder(const std::string& folder, const LoopReference& reference, bool dummy,
                  ComputedPipeline& pipeline) {
  pipeline.decoder = load_component(std::filesystem::path(folder) / "vae", dummy, rank::load_image_decoder);
  const rank::LatentShape pixels = pipeline.decoder->pixels(reference.shape(pipeline.denoiser->channels()));
  if (pixels != reference.pixels->shape)
    throw_user_error("--reference: \"pixels\" are {}; the VAE makes {}",
                     fmt::join(reference.pixels->shape, " x "), fmt::join(pixels, " x "));
}

namespace {

// Behind the rows come zeros up to `tokens` (WanPipeline), unless that is 0.
void give_rows(const rank::Denoiser& denoiser, std::uint32_t tokens, std::vector<float> rows,
               rank::TextEmbeddings& text) {
  const std::uint32_t width = denoiser.text_size();
  text.tokens = std::max(tokens, static_cast<std::uint32_t>(rows.size() / width));
  if (rows.size() % width != 0 || (tokens > 0 && text.tokens > tokens))
    throw_user_error("--reference: the text encoders make {} numbers; the transformer reads {}{}",
                     rows.size(), tokens > 0 ? fmt::format("at most {} times ", tokens) : "rows of ", width);
  rows.resize(std::size_t{text.tokens} * width);
  text.rows = std::move(rows);
}

}  // namespace

EncodedPrompt encode_prompt(const std::string& folder, const ComputedPipeline& pipeline,
                            const LoopReference& reference, bool dummy) {
  const rank::Denoiser& denoiser = *pipeline.denoiser;
  EncodedPrompt out{.prompt = {.prompt = {}, .negative = {}, .guidance = reference.size.guidance},
                    .differences = {}};
  rank::ThreadPool pool(1);
  for (const EncoderReference& of : reference.encoders) {
    const auto encoder =
        load_component(std::filesystem::path(folder) / of.folder, dummy,
                       [&](const rank::ConfigReader& config, const rank::TensorSource& source) {
                         return rank::load_text_encoder(config, source, pipeline.class_name);
                       });
    const auto give = [&](std::vector<float> rows, rank::TextEmbeddings& text) {
      if (encoder->pooled()) {
        text.pooled = std::move(rows);
      } else {
        give_rows(denoiser, reference.size.prompt_tokens, std::move(rows), text);
      }
    };
    std::vector<float> rows = encoder->rows(of.ids, pool);
    if (rows.size() != of.rows.size())
      throw_user_error("--reference: \"rows\" of {} has {} numbers; {} tokens have {}", of.folder,
                       of.rows.size(), of.ids.size(), rows.size());
    out.differences.push_back(difference(rows, of.rows));
    give(std::move(rows), out.prompt.prompt);
    if (!denoiser.guided(out.prompt.guidance)) continue;
    if (of.negative_ids.empty())
      throw_user_error("--reference: {} has no \"negative_ids\"; guidance takes a pass with them", of.folder);
    give(encoder->rows(of.negative_ids, pool), out.prompt.negative);
  }
  const rank::TextEmbeddings& text = out.prompt.prompt;
  if (text.tokens == 0 || text.pooled.size() != denoiser.pooled_size())
    throw_user_error(
        "--reference: \"text_encoders\" make {} rows and {} pooled numbers; the transformer "
        "reads rows and {}",
        text.tokens, text.pooled.size(), denoiser.pooled_size());
  return out;
}

std::vector<PipelineRow> verify_pipeline(const ComputedPipeline& pipeline, const SplitPlan& plan,
                                         rank::MpiSession& session,
                                         const std::function<void(const PipelineRow&)>& on_row) {
  const std::uint32_t ranks = plan.splits.front().ranks();
  const bool many = session.num_processes() > 1;
  const rank::ProcessGroup group = many ? session.process_group(ranks) : rank::ProcessGroup{};
  rank::ThreadPool pool(0, many ? group.job_on_host : 1);
  const Loop loop(pipeline, plan.reference ? plan.reference->size : plan.size, plan.prompt);

  const rank::SelfAttention dense{.backend = rank::head_backends().front()};
  std::vector<float> wanted;
  {
    rank::LocalCollectives alone(1);
    rank::SequenceRanks one({}, dense, alone, pool);
    wanted = loop.latents(one);
  }
  std::unique_ptr<rank::MpiCollectives> over_mpi;
  if (many) over_mpi = std::make_unique<rank::MpiCollectives>(group);
  // What only dense backends do is no row of the others, unless nothing else is asked for.
  const bool only_rings =
      std::ranges::all_of(plan.splits, [](const rank::SequenceSplit& split) { return split.ring > 1; });
  std::optional<Decoding> decoding;
  // All processes have the same latents.
  if (pipeline.decoder && plan.reference && session.process() == 0)
    decoding.emplace(pipeline, *plan.reference);
  std::vector<PipelineRow> rows;
  for (const std::string& name : plan.backends) {
    const attention::DiffusionBackend& backend =
        attention::find_diffusion_backend("--attention-backends", name);
    const rank::SelfAttention self{
        .backend = &rank::find_head_backend("--attention-backends", backend.name),
        .parameters = attention::read_diffusion_parameters(backend, plan.backend_config)};
    for (const rank::SequenceSplit& split : plan.splits) {
      if (split.ring > 1 && !self.backend->dense() && !only_rings) continue;
      PipelineRow row;
      row.split = split;
      row.backend = backend.name;
      row.exact = self.backend->rounded == nullptr;
      try {
        rank::LocalCollectives local(split.ranks());
        rank::Collectives& collectives = many ? static_cast<rank::Collectives&>(*over_mpi) : local;
        rank::SequenceRanks ranks_of_split(split, self, collectives, pool);
        const std::vector<float> latents = loop.latents(ranks_of_split);
        row.difference = difference(latents, wanted);
        const rank::KeptPairs& pairs = ranks_of_split.pairs();
        if (pairs.all > 0) row.kept = static_cast<double>(pairs.kept) / static_cast<double>(pairs.all);
        if (plan.reference)
          row.from_reference =
              std::max(difference(latents, plan.reference->latents),
                       difference(loop.first_pass(ranks_of_split), plan.reference->first_pass));
        if (decoding) row.pixels = decoding->difference_of(latents, pool);
      } catch (const UserError& error) {
        row.refused = error.what();
      }
      on_row(rows.emplace_back(std::move(row)));
    }
  }
  return rows;
}

}  // namespace tpsim::launch
