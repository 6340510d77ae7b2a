#include "rank/numeric/diffusion/image_decoder.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::rank {

extern const ImageDecoderFamily kAutoencoderKl, kAutoencoderKlWan;

std::vector<std::uint32_t> channel_list(const ConfigReader& config, const char* key,
                                        std::vector<std::uint32_t> otherwise) {
  const auto good = [](const Json& value) {
    return value.is_number_integer() && value.get<double>() >= 1 && value.get<double>() <= 65536;
  };
  return list_or(config, key, std::move(otherwise), good, "whole numbers of channels");
}

namespace {

// Of the encoder, of training, of tiles, and what is said twice.
constexpr std::string_view kNotTheDecoders[] = {
    "attn_scales",          "batch_norm_momentum",   "down_block_types", "dropout",
    "force_upcast",         "in_channels",           "input_channels",   "sample_size",
    "scale_factor_spatial", "scale_factor_temporal", "use_quant_conv"};

// A key that nobody asked for may be of another decoder.
void check_all_known(const ConfigReader& config) {
  for (const auto& [key, value] : config.json().items()) {
    const bool silent = value.is_null() || value == false || key.starts_with("_");
    if (!silent && !config.asked(key) && std::ranges::find(kNotTheDecoders, key) == std::end(kNotTheDecoders))
      throw_user_error("{}: key \"{}\" is not known of a {}", config.where(), key.substr(0, 40),
                       config.text("_class_name", ""));
  }
}

}  // namespace

std::vector<float> ImageDecoder::encode(const LatentShape& /*shape*/, std::span<const float> /*pixels*/,
                                        ThreadPool& /*pool*/) const {
  throw_user_error(
      "the VAE's encoder, which the image goes through, is computed of AutoencoderKLWan and "
      "AutoencoderKLQwenImage without residual levels, where the weights have it");
}

std::unique_ptr<ImageDecoder> load_image_decoder(const ConfigReader& config, const TensorSource& source) {
  const std::string name = config.text("_class_name", "");
  std::vector<std::string_view> names;
  for (const ImageDecoderFamily* const family : {&kAutoencoderKl, &kAutoencoderKlWan}) {
    if (std::ranges::find(family->class_names, name) != family->class_names.end()) {
      auto decoder = family->load(config, source);
      check_all_known(config);
      return decoder;
    }
    names.insert(names.end(), family->class_names.begin(), family->class_names.end());
  }
  throw_user_error("{}: key \"_class_name\" is {}, which is not computed; computed are {}", config.where(),
                   name.empty() ? "missing" : name, join_or(names));
}

}  // namespace tpsim::rank
