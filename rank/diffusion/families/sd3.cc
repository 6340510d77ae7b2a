// Stable Diffusion 3 and 3.5: blocks of two streams, the last of which lets go of the text.
//
// Facts: SGLang's runtime/models/dits/stablediffusion3.py, configs/{models/dits,pipeline_configs,sample}/
// stablediffusion3.py; Diffusers' transformer_sd3.py.
#include <array>

#include "rank/diffusion/joint_blocks.h"

namespace tpsim::rank {
namespace {

void read_sd3(const ConfigReader& config, TransformerConfig& t) {
  t.heads = config.number_or("num_attention_heads", 18);
  t.head_dim = config.number_or("attention_head_dim", 64);
  t.layers = config.number_or("num_layers", 18);
  t.ffn = 4 * t.width();
  t.in_channels = config.number_or("in_channels", 16);
  t.out_channels = config.number_or("out_channels", 16);
  t.text_dim = config.number_or("joint_attention_dim", 4096);
  t.pooled_dim = config.number_or("pooled_projection_dim", 2048);
  if (config.has("dual_attention_layers") && !config.json().at("dual_attention_layers").empty())
    throw_user_error("{}: key \"dual_attention_layers\" must be empty: a second attention is not priced",
                     config.where());
}

void write_sd3(const TransformerConfig& t, const PassShape& s, OperatorList& list) {
  const std::uint64_t d = t.width();
  const double wide = static_cast<double>(d);
  const std::uint64_t patch = std::uint64_t{t.patch} * t.patch;
  list.product(s.rows, t.in_channels * patch, d, 1);
  list.product(s.text_rows, t.text_dim, d, 1);
  write_embedder(s, t.frequencies, d, list);
  write_embedder(s, t.pooled_dim, d, list);
  if (t.layers > 0) {
    write_double_blocks(t, s, t.layers - 1, list);
    // The last: text gives keys and values only.
    list.within(Module::kModulation);
    list.product(s.batch, d, 8 * d, 1);
    list.within(Module::kAttention);
    list.product(s.rows, d, d, 4, Cut::kOutputs);
    list.product(s.text_rows, d, d, 3, Cut::kOutputs);
    list.self_attention(s.tokens, s.text, t.heads, t.head_dim, 1);
    list.within(Module::kMlp);
    list.product(s.rows, d, t.ffn, 1, Cut::kOutputs);
    list.within(Module::kImageMlpOut);
    list.product(s.rows, t.ffn, d, 1, Cut::kInputs);
    list.within(Module::kOutside);
  }
  list.elementwise(2 * s.rows * wide, 12);
  list.product(s.batch, d, 2 * d, 1);
  list.product(s.rows, d, t.out_channels * patch, 1);
}

constexpr std::array<std::string_view, 1> kSd3Classes = {"SD3Transformer2DModel"};
constexpr EncoderUse kSd3Encoders[] = {{.component = "text_encoder", .tokens = 77},
                                       {.component = "text_encoder_2", .tokens = 77},
                                       {.component = "text_encoder_3", .tokens = 256}};
constexpr std::array<PipelineRow, 1> kSd3Pipelines = {
    {{.class_name = "StableDiffusion3Pipeline",
      .defaults = {.width = 1024, .height = 1024, .steps = 50, .guidance = 7, .guided = true},
      .text = 333,
      .encoders = kSd3Encoders}}};

}  // namespace

extern const TransformerFamily kSd3Transformers;
const TransformerFamily kSd3Transformers = {.classes = kSd3Classes,
                                            .pipelines = kSd3Pipelines,
                                            .read = read_sd3,
                                            .write = write_sd3,
                                            .shards_text = false};

}  // namespace tpsim::rank
