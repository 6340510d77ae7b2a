// Qwen-Image and its edit models: 60 blocks of two streams; input images are more tokens.
//
// Facts: SGLang's runtime/models/dits/qwen_image.py, configs/{models/dits/qwenimage,pipeline_configs/
// qwen_image,sample/qwenimage}.py.
#include <array>

#include "rank/diffusion/joint_blocks.h"

namespace tpsim::rank {
namespace {

// Counted in the blocks, whose norms, modulations and gates are fused; not measured.
constexpr JointKernels kQwenImageKernels{.stream = 16, .small = 3};

void read_qwen_image(const ConfigReader& config, TransformerConfig& t) {
  t.heads = config.number_or("num_attention_heads", 24);
  t.head_dim = config.number_or("attention_head_dim", 128);
  t.layers = config.number_or("num_layers", 60);
  t.ffn = 4 * t.width();
  t.in_channels = config.number_or("in_channels", 64);
  t.out_channels = config.number_or("out_channels", 16) * 4;
  t.text_dim = config.number_or("joint_attention_dim", 3584);
}

void write_qwen_image(const TransformerConfig& t, const PassShape& s, OperatorList& list) {
  const std::uint64_t d = t.width();
  list.product(s.rows, t.in_channels, d, 1);
  list.elementwise(4 * s.text_rows * static_cast<double>(t.text_dim), 1);
  list.weights(static_cast<double>(t.text_dim));
  list.product(s.text_rows, t.text_dim, d, 1);
  write_embedder(s, t.frequencies, d, list);
  write_double_blocks(t, s, t.layers, list, kQwenImageKernels);
  list.product(s.batch, d, 2 * d, 1);
  list.elementwise(4 * s.rows * static_cast<double>(d), 2);
  list.product(s.rows, d, t.out_channels, 1);
}

constexpr std::array<std::string_view, 1> kQwenImageClasses = {"QwenImageTransformer2DModel"};
// Of the template's tokens 34 (64 with an image) come before the prompt and are cut off, 5 behind it stay.
constexpr EncoderUse kQwenImageText[] = {{.component = "text_encoder", .template_tokens = 39}};
constexpr EncoderUse kQwenImageImage[] = {{.component = "text_encoder", .template_tokens = 69}};
constexpr SamplingDefaults kQwenImageDefaults = {
    .width = 1024, .height = 1024, .steps = 50, .guidance = 4, .guided = true};
constexpr SamplingDefaults kQwenImagePlus = {
    .width = 1024, .height = 1024, .steps = 40, .guidance = 4, .guided = true};
constexpr std::array<PipelineRow, 3> kQwenImagePipelines = {{{.class_name = "QwenImagePipeline",
                                                              .defaults = kQwenImageDefaults,
                                                              .text = 0,
                                                              .text_extra = 5,
                                                              .encoders = kQwenImageText},
                                                             {.class_name = "QwenImageEditPipeline",
                                                              .image_input = true,
                                                              .needs_image = true,
                                                              .defaults = kQwenImageDefaults,
                                                              .text = 0,
                                                              .text_extra = 5,
                                                              .reference_tokens = true,
                                                              .encoders = kQwenImageImage,
                                                              .image_shown = 1024.0 * 1024},
                                                             {.class_name = "QwenImageEditPlusPipeline",
                                                              .image_input = true,
                                                              .needs_image = true,
                                                              .defaults = kQwenImagePlus,
                                                              .text = 0,
                                                              .text_extra = 5,
                                                              .reference_tokens = true,
                                                              .encoders = kQwenImageImage,
                                                              .image_shown = 384.0 * 384}}};

}  // namespace

extern const TransformerFamily kQwenImageTransformers;
const TransformerFamily kQwenImageTransformers = {.classes = kQwenImageClasses,
                                                  .pipelines = kQwenImagePipelines,
                                                  .read = read_qwen_image,
                                                  .write = write_qwen_image};

}  // namespace tpsim::rank
