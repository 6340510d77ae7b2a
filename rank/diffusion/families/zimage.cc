// Z-Image: one stream of image and text, gated MLPs, refiners of each before.
//
// Facts: SGLang's runtime/models/dits/zimage.py, configs/{models/dits,pipeline_configs,sample}/zimage.py.
#include <array>

#include "rank/diffusion/joint_blocks.h"

namespace tpsim::rank {
namespace {

constexpr std::uint64_t kZImageModulation = 256;  // ADALN_EMBED_DIM

void read_zimage(const ConfigReader& config, TransformerConfig& t) {
  const std::uint32_t d = config.number_or("dim", 3840);
  t.heads = config.number_or("n_heads", 30);
  if (d % t.heads != 0)
    throw_user_error("{}: key \"dim\" is {}; it must be a multiple of \"n_heads\", {}", config.where(), d,
                     t.heads);
  t.head_dim = d / t.heads;
  t.layers = config.number_or("n_layers", 30);
  t.refiner_layers = config.number_or("n_refiner_layers", 2);
  t.ffn = std::uint64_t{d} * 8 / 3;
  t.in_channels = t.out_channels = config.number_or("in_channels", 16);
  t.text_dim = config.number_or("cap_feat_dim", 2560);
}

void zimage_blocks(const TransformerConfig& t, const PassShape& s, double rows, double tokens, double text,
                   double layers, bool modulated, bool exchanged, OperatorList& list) {
  const std::uint64_t d = t.width();
  const double wide = static_cast<double>(d);
  list.within(Module::kModulation);
  if (modulated) list.product(s.batch, kZImageModulation, 4 * d, layers);
  list.within(Module::kAttention);
  list.product(rows, d, d, 3 * layers, Cut::kOutputs, false);
  list.elementwise(kJointKernels.single / 6 * rows * wide, 6 * layers);
  list.self_attention(tokens, text, t.heads, t.head_dim, layers, exchanged);
  list.product(rows, d, d, layers, Cut::kInputs, false);
  list.within(Module::kMlp);
  list.product(rows, d, 2 * t.ffn, layers, Cut::kOutputs, false);
  list.elementwise(3 * rows * static_cast<double>(t.ffn), layers);
  list.product(rows, t.ffn, d, layers, Cut::kInputs, false);
  list.within(Module::kOutside);
  list.elementwise(4 * wide, kJointKernels.single_small * layers);
  list.weights((4 * wide + 2 * t.head_dim) * layers);
}

void write_zimage(const TransformerConfig& t, const PassShape& s, OperatorList& list) {
  const std::uint64_t d = t.width();
  const std::uint64_t patch = std::uint64_t{t.patch} * t.patch;
  list.product(s.rows, t.in_channels * patch, d, 1);
  list.product(s.text_rows, t.text_dim, d, 1);
  list.product(s.batch, t.frequencies, 1024, 1);
  list.product(s.batch, 1024, kZImageModulation, 1);
  list.weights(static_cast<double>(t.text_dim + 2 * d));
  zimage_blocks(t, s, s.rows, s.tokens, 0, t.refiner_layers, true, true, list);
  zimage_blocks(t, s, s.text_rows, 0, s.text, t.refiner_layers, false, false, list);
  zimage_blocks(t, s, s.rows + s.text_rows, s.tokens, s.text, t.layers, true, true, list);
  list.product(s.batch, kZImageModulation, d, 1);
  list.elementwise(4 * s.rows * static_cast<double>(d), 2);
  list.product(s.rows, d, t.out_channels * patch, 1);
  list.live((s.rows + s.text_rows) * static_cast<double>(6 * d + 3 * t.ffn));
}

constexpr std::array<std::string_view, 1> kZImageClasses = {"ZImageTransformer2DModel"};
// Captions are padded to 512 for the encoder, their tokens to a multiple of 32 for the transformer.
constexpr EncoderUse kZImageEncoders[] = {{.component = "text_encoder", .tokens = 512}};
// Of Turbo's 9 steps the last is no forward (../shared/data/diffusion/PUBLISHED.md).
constexpr std::array<PipelineRow, 1> kZImagePipelines = {
    {{.class_name = "ZImagePipeline",
      .defaults = {.width = 1024, .height = 1024, .steps = 50, .guidance = 5, .guided = true},
      .text = 0,
      .text_extra = 8,
      .text_multiple = 32,
      .encoders = kZImageEncoders,
      .steps_skipped = 1}}};

}  // namespace

extern const TransformerFamily kZimageTransformers;
const TransformerFamily kZimageTransformers = {.classes = kZImageClasses,
                                               .pipelines = kZImagePipelines,
                                               .read = read_zimage,
                                               .write = write_zimage,
                                               .shards_text = false,
                                               .kept = kModulationIsKept};

}  // namespace tpsim::rank
