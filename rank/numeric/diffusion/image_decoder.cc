#include "rank/numeric/diffusion/image_decoder.h"

#include <algorithm>
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

std::unique_ptr<ImageDecoder> load_image_decoder(const ConfigReader& config, const TensorSource& source) {
  const std::string name = config.text("_class_name", "");
  std::vector<std::string_view> names;
  for (const ImageDecoderFamily* const family : {&kAutoencoderKl, &kAutoencoderKlWan}) {
    if (std::ranges::find(family->class_names, name) != family->class_names.end())
      return family->load(config, source);
    names.insert(names.end(), family->class_names.begin(), family->class_names.end());
  }
  throw_user_error("{}: key \"_class_name\" is {}, which is not computed; computed are {}", config.where(),
                   name.empty() ? "missing" : name, join_or(names));
}

}  // namespace tpsim::rank
