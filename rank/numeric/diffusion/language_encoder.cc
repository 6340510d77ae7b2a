// Language models as text encoders: the pass that serves them (rank/numeric/numeric_forward.h), of which a
// pipeline reads hidden states.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "attention/selection/registry.h"
#include "proto/base/error.h"
#include "rank/config/families.h"
#include "rank/config/image_layout.h"
#include "rank/cost/hardware.h"
#include "rank/numeric/diffusion/denoiser_layers.h"
#include "rank/numeric/diffusion/text_encoder.h"
#include "rank/numeric/numeric_forward.h"
#include "rank/numeric/vision/image_encoder.h"
#include "rank/weights/renamed_source.h"

namespace tpsim::rank {
namespace {

// Diffusers 0.42.1, pipelines/z_image/pipeline_z_image.py, qwenimage/pipeline_qwenimage.py and
// pipeline_qwenimage_edit.py, flux2/pipeline_flux2_klein.py.
struct HiddenStates {
  std::string_view pipeline;
  bool before_last_layer = false;
  std::vector<std::uint32_t> before_layers = {};  // side by side; none of both: behind the last norm
  std::uint32_t dropped = 0;                      // first tokens, those of the template
  // Where --tp-size does not divide the heads, SGLang's attention is whole on every rank, and so is all here.
  bool whole_where_uncut = false;
  bool sees_image = false;  // that the prompt is about
};
const HiddenStates kHiddenStates[] = {
    {.pipeline = "ZImagePipeline", .before_last_layer = true},
    {.pipeline = "QwenImagePipeline", .dropped = 34, .whole_where_uncut = true},
    {.pipeline = "QwenImageEditPipeline", .dropped = 64, .whole_where_uncut = true, .sees_image = true},
    {.pipeline = "Flux2KleinPipeline", .before_layers = {9, 18, 27}}};

class LanguageEncoder : public TextEncoder {
 public:
  LanguageEncoder(ModelConfig model, const TensorSource& source, const HiddenStates& states,
                  const Collectives& ranks)
      : model_(std::move(model)),
        dropped_(states.dropped),
        whole_(states.whole_where_uncut && model_.num_attention_heads % ranks.tp_size() != 0) {
    options_.hidden_layers = states.before_layers;
    if (states.before_last_layer) options_.hidden_layers = {model_.num_layers - 1};
    if (options_.hidden_layers.empty()) {
      options_.hidden = NumericOptions::Hidden::kNormed;
    } else if (options_.hidden_layers.back() >= model_.num_layers) {
      throw_user_error("{}: key \"num_hidden_layers\" is {}; a {} reads what goes into layer {}", model_.name,
                       model_.num_layers, states.pipeline, options_.hidden_layers.back());
    }
    LocalCollectives alone(1);
    if (!whole_)
      refuse_uncut(ranks.tp_size(), model_.num_attention_heads, "num_attention_heads", model_.name);
    weights_ = load_ranks(model_, source, options_, whole_ ? alone : ranks);
    if (!states.sees_image) return;
    images_ = std::make_shared<ImageEncoder>(
        model_, ParallelLayout{}, WeightType::kFp32,
        [&source] { return std::make_unique<RenamedSource>(source, RenamedSource::Names{}); }, alone_, pool_);
    images_->image_tokens(image_layout(model_.vision, kAnySide, kAnySide));  // reads the weights
  }

  std::vector<float> rows(const PromptTokens& tokens, Collectives& ranks, ThreadPool& pool) const override {
    const std::vector<std::uint32_t>& ids = tokens.ids;
    const auto count = static_cast<std::uint32_t>(ids.size());
    if (count <= dropped_)
      throw_user_error("{} tokens: the first {}, those of the template, are dropped", count, dropped_);
    for (const std::uint32_t id : ids)
      if (id >= model_.vocab_size) throw_user_error("token {}: the vocabulary has {}", id, model_.vocab_size);
    check_image(tokens.image, count);
    NumericOptions options = options_;
    options.num_pages = count;
    LocalCollectives alone(1);
    // What a backend plans is none of the numbers: any that is dense does.
    const std::string backend = attention::choose_backend({}).backend;
    NumericForward forward(
        model_, weights_, options,
        attention::create_attention_backend(backend, load_hardware("h100-sxm"), options.page_size),
        whole_ ? alone : ranks, pool, images_);
    std::vector<std::uint32_t> pages(count);
    std::iota(pages.begin(), pages.end(), 0U);
    const std::uint32_t none = 0;
    const std::span<const std::uint32_t> table = pages;
    TokenBatch batch;
    batch.metadata.forward_mode = proto::EXTEND;
    batch.token_ids = ids;
    batch.q_lens = batch.metadata.extend_lens = {&count, 1};
    batch.prefix_lens = batch.metadata.extend_prefix_lens = {&none, 1};
    batch.page_tables = {&table, 1};
    const std::uint32_t unpadded = count - tokens.padding;
    if (tokens.padding > 0) batch.unpadded = {&unpadded, 1};
    const std::span<const BatchImage> images =
        tokens.image ? std::span(&*tokens.image, 1) : std::span<const BatchImage>{};
    if (tokens.image) batch.images = {&images, 1};
    forward.forward({&batch, 1});
    const std::span<const float> hidden =
        forward.hidden().subspan(std::size_t{dropped_} * model_.hidden_size);
    return {hidden.begin(), hidden.end()};
  }

 private:
  static constexpr std::uint32_t kAnySide = 224;  // of an image, whose layout is not looked at

  void check_image(const std::optional<BatchImage>& image, std::uint32_t count) const {
    if (image.has_value() != (images_ != nullptr))
      throw_user_error("--reference: \"image\" of a text encoder is {}",
                       image ? "given, and this one sees none" : "missing, and this one sees one");
    if (!image) return;
    const std::uint32_t tokens = image_layout(model_.vision, image->width, image->height).tokens;
    if (image->tokens != tokens || image->position >= count || count - image->position < tokens)
      throw_user_error("--reference: \"image\" has {} tokens from {} on, of {}; {} x {} pixels have {}",
                       image->tokens, image->position, count, image->width, image->height, tokens);
  }

  const ModelConfig model_;
  const std::uint32_t dropped_;
  const bool whole_;
  NumericOptions options_;
  LoadedRanks weights_;
  // Images are whole in every process.
  LocalCollectives alone_{1};
  ThreadPool pool_{1};
  std::shared_ptr<ImageEncoder> images_;
};

// A model that was saved without its head says so in its architecture (Qwen3Model).
std::string with_head(const std::string& architecture) {
  constexpr std::string_view kBare = "Model";
  if (!architecture.ends_with(kBare)) return architecture;
  const std::string stem = architecture.substr(0, architecture.size() - kBare.size());
  for (const char* const head : {"ForCausalLM", "ForConditionalGeneration"})
    if (find_architecture(stem + head).family != nullptr) return stem + head;
  return architecture;
}

std::unique_ptr<TextEncoder> load_language_encoder(const ConfigReader& config, const TensorSource& source,
                                                   const std::string& pipeline, const Collectives& ranks) {
  const auto* const states = std::ranges::find(kHiddenStates, pipeline, &HiddenStates::pipeline);
  if (states == std::end(kHiddenStates))
    throw_user_error("{}: key \"model_type\" is {}: what a {} reads of it is not known", config.where(),
                     config.text("model_type", ""), pipeline);
  Json json = config.json();
  if (json.contains("architectures"))
    for (Json& name : json["architectures"])
      if (name.is_string()) name = with_head(name.get<std::string>());
  ModelConfig model = parse_model_config(json.dump(), config.where());
  model.tie_word_embeddings = true;  // nobody reads the head
  model.vision.served = states->sees_image && model.vision.present();
  if (states->sees_image && !model.vision.served)
    throw_user_error("{}: has no \"vision_config\"; a {} shows an image to it", config.where(), pipeline);
  return std::make_unique<LanguageEncoder>(std::move(model), source, *states, ranks);
}

}  // namespace

extern const TextEncoderFamily kLanguageEncoder;
const TextEncoderFamily kLanguageEncoder = {.model_types = {"qwen3", "qwen2_5_vl"},
                                            .load = load_language_encoder};

}  // namespace tpsim::rank
