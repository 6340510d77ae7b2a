#include "launch/numeric/verify_pipeline.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

#include "attention/diffusion/selection/diffusion_attention.h"
#include "launch/numeric/pipeline_component.h"
#include "proto/base/error.h"
#include "rank/numeric/diffusion/seeded_tensor.h"
#include "rank/parallel/numeric_executor.h"
#include "rank/weights/tensor_source.h"

namespace tpsim::launch {
namespace {

// One loop, and one pass before it.
class Loop {
 public:
  Loop(const ComputedPipeline& pipeline, const LoopSize& size,
       const std::optional<rank::GuidedPrompt>& encoded)
      : pipeline_(pipeline),
        size_(size),
        shape_{pipeline.denoiser().channels(), size.latents[0], size.latents[1], size.latents[2]},
        latents_(rank::seeded_tensor("latents", size.seed, rank::elements(shape_))) {
    const auto patch = pipeline.denoiser().patch();
    for (std::size_t i = 0; i < 3; ++i) {
      if (size.latents[i] % patch[i] != 0)
        throw_user_error("--latent-size: its {} must be a multiple of the transformer's patch_size, {}",
                         std::array{"frames", "rows", "columns"}[i], patch[i]);
    }
    if (encoded) {
      prompt_ = *encoded;
      prompt_.condition = condition();
      show_image();
      return;
    }
    const auto text = [&](const char* name) {
      const std::size_t count = std::size_t{size.prompt_tokens} * pipeline.denoiser().text_size();
      return rank::TextEmbeddings{
          size.prompt_tokens, rank::seeded_tensor(name, size.seed, count),
          rank::seeded_tensor(std::string("pooled_") + name, size.seed, pipeline.denoiser().pooled_size())};
    };
    prompt_ = {.prompt = text("prompt"),
               .negative = text("negative_prompt"),
               .condition = condition(),
               .guidance = size.guidance};
    show_image();
  }

  std::vector<float> first_pass(rank::SequenceRanks& ranks) const {
    const float timestep = scheduler()->timesteps().front();
    std::vector<float> input = latents_;
    pipeline_.denoiser().give(shape_, prompt_.condition, input);
    input.insert(input.end(), prompt_.condition.begin(), prompt_.condition.end());
    return transformers(ranks)
        .first
        ->forward(shape_, input, timestep, size_.guidance, std::vector{prompt_.prompt, prompt_.negative},
                  ranks)
        .front();
  }
  std::vector<float> latents(rank::SequenceRanks& ranks) const {
    const ComputedPipeline::Transformers& both = transformers(ranks);
    return rank::denoise({both.first.get(), both.second.get(), pipeline_.boundary}, *scheduler(), shape_,
                         latents_, prompt_, ranks);
  }

 private:
  // Of an image by the rule what the image encoder makes, to both prompts.
  void show_image() {
    if (!pipeline_.embedder) return;
    const std::uint32_t side = pipeline_.embedder->side();
    rank::ThreadPool pool(1);
    prompt_.prompt.image = prompt_.negative.image = pipeline_.embedder->rows(image({3, 1, side, side}), pool);
  }
  // Of an image by the rule: what the VAE makes of it, where it is edited or is the first of the latents
  // (TI2V); else it is the first of the frames, others grey, behind a mask that says so.
  std::vector<float> condition() const {
    const std::uint32_t channels = shape_[0], more = pipeline_.denoiser().input_channels() - channels;
    const bool alone = pipeline_.class_name.starts_with("QwenImageEdit") ||
                       (more == 0 && pipeline_.class_name == "WanImageToVideoPipeline");
    if (more == 0 && !alone) return {};
    if (!pipeline_.decoder)
      throw_user_error(
          "--model-path: the transformer reads {} channels of an image beside {} of latents; they "
          "are computed with --reference, of a recording with pixels",
          alone ? channels : more, channels);
    const rank::LatentShape pixels =
        pipeline_.decoder->pixels({channels, alone ? 1 : shape_[1], shape_[2], shape_[3]});
    if (alone) return encoded(pixels, image(pixels));
    const std::uint32_t frames = pipeline_.decoder->pixels({channels, 2, 1, 1})[1] - 1;
    if (more != frames + channels)
      throw_user_error(
          "--model-path: the transformer reads {} channels of an image, which are {} of a mask and "
          "{} of the VAE's",
          more, frames, channels);
    const std::size_t latent_image = std::size_t{shape_[2]} * shape_[3];
    std::vector<float> out(frames * shape_[1] * latent_image);
    for (std::uint32_t i = 0; i < frames; ++i)
      std::fill_n(out.begin() + static_cast<std::ptrdiff_t>(i * shape_[1] * latent_image), latent_image,
                  1.0F);
    const std::vector<float> latents = encoded(pixels, image(pixels));
    out.insert(out.end(), latents.begin(), latents.end());
    return out;
  }
  // The rule's, in the first frame of pixels of this shape.
  std::vector<float> image(const rank::LatentShape& pixels) const {
    std::vector<float> out(rank::elements(pixels));
    const std::size_t plane = std::size_t{pixels[2]} * pixels[3];
    for (std::size_t i = 0; i < pixels[0] * plane; ++i)
      out[i / plane * pixels[1] * plane + i % plane] =
          static_cast<float>(rank::seeded_unit("image", size_.seed, i));
    return out;
  }
  std::vector<float> encoded(const rank::LatentShape& shape, const std::vector<float>& pixels) const {
    rank::ThreadPool pool(1);
    return pipeline_.decoder->encode(shape, pixels, pool);
  }
  const ComputedPipeline::Transformers& transformers(const rank::SequenceRanks& ranks) const {
    return ranks.split().tp > 1 ? pipeline_.cut : pipeline_.whole;
  }
  std::unique_ptr<rank::FlowScheduler> scheduler() const {
    return rank::make_scheduler(rank::ConfigReader(pipeline_.scheduler, pipeline_.scheduler_path),
                                size_.steps, pipeline_.denoiser().schedule_tokens(shape_),
                                pipeline_.denoiser().log_shift(shape_, size_.steps));
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
        pipeline_.decoder->decode(reference_.shape(pipeline_.denoiser().channels()), latents, pool);
    std::vector<float> kept;
    for (std::size_t i = 0; i < pixels.size(); i += reference_.pixels->stride) kept.push_back(pixels[i]);
    latents_ = latents;
    return difference_ = relative_difference(kept, reference_.pixels->values);
  }

 private:
  const ComputedPipeline& pipeline_;
  const LoopReference& reference_;
  std::vector<float> latents_;
  double difference_ = 0;
};

}  // namespace

bool PipelineRow::agrees(double tolerance) const {
  const bool same = std::max({difference, from_reference.value_or(0), pixels.value_or(0)}) <= tolerance;
  return same || !exact || kept < 1;
}

ComputedPipeline load_computed_pipeline(const std::string& folder, bool dummy, std::uint32_t tp_size) {
  const std::filesystem::path root = folder;
  std::error_code error;
  if (!std::filesystem::is_directory(root, error))
    throw_user_error(
        "--model-path {}: is a pipeline without weights; name a folder with model_index.json, "
        "transformer and scheduler",
        folder);
  const rank::Json index = read_pipeline_json("--model-path", root / "model_index.json", kComponentConfig);
  const rank::ConfigReader reader(index, (root / "model_index.json").string());
  // A timestep for each token (expand_timesteps) is the same for all where no image is given.
  ComputedPipeline out;
  out.class_name = reader.text("_class_name", "");
  out.distilled = reader.flag("is_distilled", false);
  out.tp_size = tp_size;
  const auto load = [&](const char* component, auto which) {
    const auto of = [&](std::uint32_t ranks) {
      return load_component(root / component, dummy,
                            [&](const rank::ConfigReader& config, const rank::TensorSource& source) {
                              return rank::load_denoiser(config, source, ranks);
                            });
    };
    out.whole.*which = of(1);
    if (tp_size > 1) out.cut.*which = of(tp_size);
  };
  load("transformer", &ComputedPipeline::Transformers::first);
  if (const std::uint32_t width = out.denoiser().image_size(); width > 0) {
    out.embedder = load_component(root / "image_encoder", dummy,
                                  [](const rank::ConfigReader& config, const rank::TensorSource& source) {
                                    return std::make_unique<rank::ImageEmbedder>(config, source);
                                  });
    if (out.embedder->width() != width)
      throw_user_error("{}: key \"image_dim\" is {}; the image encoder makes rows of {}",
                       (root / "transformer" / "config.json").string(), width, out.embedder->width());
  }
  out.scheduler_path = (root / "scheduler" / "scheduler_config.json").string();
  out.scheduler = read_pipeline_json("--model-path", out.scheduler_path, kComponentConfig);
  if (!reader.has("boundary_ratio")) return out;
  load("transformer_2", &ComputedPipeline::Transformers::second);
  const rank::Denoiser &first = *out.whole.first, &second = *out.whole.second;
  if (second.channels() != first.channels() || second.input_channels() != first.input_channels() ||
      second.text_size() != first.text_size() || second.patch() != first.patch())
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
  const rank::LatentShape pixels = pipeline.decoder->pixels(reference.shape(pipeline.denoiser().channels()));
  if (pixels != reference.pixels->shape)
    throw_user_error("--reference: \"pixels\" are {}; the VAE makes {}",
                     fmt::join(reference.pixels->shape, " x "), fmt::join(pixels, " x "));
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
        row.difference = relative_difference(latents, wanted);
        const rank::KeptPairs& pairs = ranks_of_split.pairs();
        if (pairs.all > 0) row.kept = static_cast<double>(pairs.kept) / static_cast<double>(pairs.all);
        if (plan.reference)
          row.from_reference =
              std::max(relative_difference(latents, plan.reference->latents),
                       relative_difference(loop.first_pass(ranks_of_split), plan.reference->first_pass));
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
