#include "rank/diffusion/encoder.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace tpsim::rank {
namespace {

using EncoderKind = EncoderConfig::Kind;

struct EncoderRow {
  std::string_view class_name;
  EncoderKind kind;
  // Kernels of a layer: by passes that wait for the host on an H100 (tests/calibration/measured/
  // h100-sxm_diffusion.json) and an H200 (../shared/data/diffusion/vae_encoder.json), over the seconds of a
  // launch that its profile has.
  double launches;
  bool qk_norm = false, qkv_bias = false;
  bool text_only = false;  // load_weights() of SGLang's class leaves out the head and the tower
  // Its layers are LocalAttention (runtime/models/encoders/*.py). T5 multiplies and adds its bias, CLIP's
  // layers are those of language models, Gemma 3 calls PyTorch's attention.
  bool selects = false;
};
constexpr EncoderRow kEncoderRows[] = {
    {"T5EncoderModel", EncoderKind::kT5, 22},
    {"UMT5EncoderModel", EncoderKind::kT5, 22},
    {"CLIPTextModel", EncoderKind::kClip, 13},
    {"CLIPTextModelWithProjection", EncoderKind::kClip, 13},
    {"CLIPVisionModel", EncoderKind::kClipVision, 13},
    {"CLIPVisionModelWithProjection", EncoderKind::kClipVision, 13},
    {"LlamaModel", EncoderKind::kLanguage, 28, false, false, false, true},
    {"LlamaForCausalLM", EncoderKind::kLanguage, 28, false, false, false, true},
    {"Qwen2_5_VLForConditionalGeneration", EncoderKind::kLanguage, 28, false, true, false, true},
    {"Qwen3Model", EncoderKind::kLanguage, 31, true, false, false, true},
    {"Qwen3ForCausalLM", EncoderKind::kLanguage, 31, true, false, false, true},
    {"Mistral3ForConditionalGeneration", EncoderKind::kLanguage, 28, false, false, true, true},
    {"Gemma3ForConditionalGeneration", EncoderKind::kLanguage, 40, true},
};

const EncoderRow* find_encoder(std::string_view name) {
  const auto* const row = std::ranges::find(kEncoderRows, name, &EncoderRow::class_name);
  return row == std::end(kEncoderRows) ? nullptr : row;
}

void read_t5(const ConfigReader& c, EncoderConfig& e) {
  e.hidden = c.number_or("d_model", 4096);
  e.heads = e.kv_heads = c.number_or("num_heads", 64);
  e.head_dim = c.number_or("d_kv", 64);
  e.ffn = c.number_or("d_ff", 10240);
  e.layers = c.number_or("num_layers", 24);
  e.vocab = c.number_or("vocab_size", 32128);
  e.gated = c.text("feed_forward_proj", "gated-gelu").starts_with("gated");
}

void read_clip(const ConfigReader& c, EncoderConfig& e) {
  e.hidden = c.number_or("hidden_size", 768);
  e.ffn = c.number_or("intermediate_size", 3072);
  e.layers = c.number_or("num_hidden_layers", 12);
  e.heads = e.kv_heads = c.number_or("num_attention_heads", 12);
  e.head_dim = static_cast<std::uint32_t>(e.hidden / e.heads);
  e.gated = false;
  e.qkv_bias = true;
  if (e.kind == EncoderKind::kClip) {
    e.vocab = c.number_or("vocab_size", 49408);
    e.positions = c.number_or("max_position_embeddings", 77);
  } else {
    const std::uint32_t side = c.number_or("image_size", 224) / c.number_or("patch_size", 14);
    e.positions = std::uint64_t{side} * side + 1;
    e.vision_patch = c.number_or("patch_size", 14);
  }
}

void read_language(const ConfigReader& c, EncoderConfig& e) {
  e.hidden = c.number("hidden_size");
  e.ffn = c.number("intermediate_size");
  e.layers = c.number("num_hidden_layers");
  e.heads = c.number("num_attention_heads");
  e.kv_heads = c.number_or("num_key_value_heads", e.heads);
  e.head_dim = c.number_or("head_dim", static_cast<std::uint32_t>(e.hidden / e.heads));
  e.vocab = c.number_or("vocab_size", 32000);
}

void write_layers(double rows, double layers, std::uint64_t hidden, std::uint64_t q, std::uint64_t kv,
                  std::uint64_t ffn, bool gated, bool bias, OperatorList& list) {
  const double wide = static_cast<double>(hidden);
  list.product(rows, hidden, q + 2 * kv, layers, Cut::kOutputs, bias);
  list.product(rows, q, hidden, layers, Cut::kInputs, bias && !gated);
  list.product(rows, hidden, (gated ? 2 : 1) * ffn, layers, Cut::kOutputs, !gated && bias);
  list.elementwise((gated ? 3 : 2) * rows * static_cast<double>(ffn), layers);
  list.product(rows, ffn, hidden, layers, Cut::kInputs, !gated && bias);
  list.elementwise(4 * rows * wide, 3 * layers);
  list.weights(2 * wide * layers);
}

}  // namespace

bool is_encoder(const std::string& class_name) { return find_encoder(class_name) != nullptr; }

EncoderConfig read_encoder(const std::string& class_name, const ConfigReader& config) {
  const EncoderRow* const row = find_encoder(class_name);
  if (row == nullptr) throw_user_error("{}: no encoder {}", config.where(), class_name);
  EncoderConfig e;
  e.kind = row->kind;
  e.launches = row->launches;
  e.qk_norm = row->qk_norm;
  e.qkv_bias = row->qkv_bias;
  e.text_only = row->text_only;
  e.selects = row->selects;
  switch (e.kind) {
    case EncoderKind::kT5:
      read_t5(config, e);
      e.tied = true;
      e.biased_positions = class_name == "UMT5EncoderModel";
      return e;
    case EncoderKind::kClip:
    case EncoderKind::kClipVision:
      read_clip(config, e);
      if (class_name.ends_with("WithProjection")) e.projection = config.number_or("projection_dim", 512);
      return e;
    case EncoderKind::kLanguage:
      break;
  }
  if (config.has("text_config")) {
    read_language(ConfigReader(config.json().at("text_config"), config.where()), e);
  } else {
    read_language(config, e);
  }
  e.tied =
      config.flag("tie_word_embeddings", class_name.starts_with("Gemma") || class_name.ends_with("Model"));
  if (config.has("vision_config")) {
    const ConfigReader vision(config.json().at("vision_config"), config.where());
    e.vision_layers =
        vision.has("depth") ? vision.number("depth") : vision.number_or("num_hidden_layers", 24);
    e.vision_hidden = vision.number_or("hidden_size", 1024);
    e.vision_ffn = vision.number_or("intermediate_size", 4096);
    e.vision_heads =
        vision.has("num_heads") ? vision.number("num_heads") : vision.number_or("num_attention_heads", 16);
    e.vision_patch = vision.number_or("patch_size", 14);
  }
  return e;
}

EncoderConfig loaded_encoder(EncoderConfig encoder) {
  if (encoder.text_only) {
    encoder.tied = true;
    encoder.vision_layers = 0;
  }
  return encoder;
}

double encoder_table_parameters(const EncoderConfig& e) {
  const double hidden = static_cast<double>(e.hidden);
  double sum = static_cast<double>(e.vocab) * hidden * (e.tied ? 1 : 2) +
               static_cast<double>(e.positions) * hidden + static_cast<double>(e.projection) * hidden;
  if (e.kind == EncoderKind::kClipVision) sum += 3.0 * e.vision_patch * e.vision_patch * hidden;
  return sum;
}

void write_encoder(const EncoderConfig& e, double batch, double tokens, double patches, OperatorList& list) {
  const double rows = batch * tokens, layers = e.layers;
  const std::uint64_t q = std::uint64_t{e.heads} * e.head_dim, kv = std::uint64_t{e.kv_heads} * e.head_dim;
  write_layers(rows, layers, e.hidden, q, kv, e.ffn, e.gated, e.qkv_bias, list);
  if (e.biased_positions) list.weights(32.0 * e.heads * layers);
  if (e.qk_norm) list.elementwise(4 * rows * static_cast<double>(q + kv), layers);
  if (e.qk_norm) list.weights(2.0 * e.head_dim * layers);
  list.self_attention(tokens, 0, e.heads, e.head_dim, layers, false);
  list.live(rows * static_cast<double>(4 * e.hidden + (e.gated ? 3 : 2) * e.ffn));
  if (e.vision_layers == 0) return;
  const double seen = batch * patches;
  const std::uint64_t v = e.vision_hidden, merged = v * e.vision_merge * e.vision_merge;
  const std::uint64_t patch = std::uint64_t{3} * 2 * e.vision_patch * e.vision_patch;
  list.product(seen, patch, v, 1, Cut::kWhole, false);
  write_layers(seen, e.vision_layers, v, v, v, e.vision_ffn, true, true, list);
  if (patches > 0)
    list.self_attention(patches, 0, e.vision_heads, static_cast<std::uint32_t>(v / e.vision_heads),
                        e.vision_layers, false);
  list.product(seen / (e.vision_merge * e.vision_merge), merged, merged, 1);
  list.product(seen / (e.vision_merge * e.vision_merge), merged, e.hidden, 1);
}

}  // namespace tpsim::rank
