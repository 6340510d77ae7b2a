#include "launch/numeric/pipeline_reference.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "proto/base/error.h"
#include "rank/config/image_layout.h"
#include "rank/cost/hardware.h"

namespace tpsim::launch {
namespace {

using rank::Json;

std::vector<float> numbers(const Json& json, const char* key, std::size_t count, const std::string& path) {
  const bool there = json.contains(key) && json.at(key).is_array() && json.at(key).size() == count;
  if (!there || !std::ranges::all_of(json.at(key), [](const Json& x) { return x.is_number(); }))
    throw_user_error("--reference {}: key \"{}\" must be a list of {} numbers", path, key, count);
  return json.at(key).get<std::vector<float>>();
}

// Channels, frames, rows and columns.
rank::LatentShape read_shape(const Json& json, const char* key, const std::string& path) {
  const std::vector<float> sizes = numbers(json, key, 4, path);
  if (!std::ranges::all_of(sizes, [](float x) { return x >= 1 && x <= 8192 && x == std::floor(x); }))
    throw_user_error("--reference {}: key \"{}\" must be channels, frames, rows and columns", path, key);
  rank::LatentShape out{};
  std::ranges::transform(sizes, out.begin(), [](float x) { return static_cast<std::uint32_t>(x); });
  return out;
}

// Of keys PREFIXids and PREFIXpadding.
rank::PromptTokens read_tokens(const Json& encoder, const std::string& prefix, const std::string& path) {
  const std::string name = prefix + "ids";
  const char* const key = name.c_str();
  rank::PromptTokens out;
  for (const float id : numbers(encoder, key, encoder.at(key).size(), path)) {
    if (id < 0 || id != std::floor(id) || id >= 1 << 24)
      throw_user_error("--reference {}: \"{}\" has {}, which is no token", path, key, id);
    out.ids.push_back(static_cast<std::uint32_t>(id));
  }
  const rank::ConfigReader reader(encoder, fmt::format("--reference {}: text_encoders", path));
  out.padding = reader.number_or((prefix + "padding").c_str(), 0, 0);
  if (out.padding >= out.ids.size())
    throw_user_error("--reference {}: \"{}padding\" is {}, of {} ids", path, prefix, out.padding,
                     out.ids.size());
  return out;
}

// Where an image stands in both prompts, and which.
rank::BatchImage read_image(const Json& image, const std::string& path) {
  if (!image.is_object())
    throw_user_error("--reference {}: key \"image\" of a text encoder must be an object", path);
  const rank::ConfigReader reader(image, fmt::format("--reference {}: image", path));
  const auto side = [&](const char* key) { return reader.number(key, 1, rank::kMaxImageSide); };
  return {.position = reader.number("position", 0),
          .tokens = reader.number("tokens"),
          .width = side("width"),
          .height = side("height"),
          .content = reader.number("content", 0)};
}

EncoderReference read_encoder(const Json& encoder, const std::string& path) {
  const bool good = encoder.is_object() && encoder.contains("folder") && encoder.at("folder").is_string() &&
                    encoder.contains("ids") && encoder.at("ids").is_array() && !encoder.at("ids").empty() &&
                    encoder.contains("rows") && encoder.at("rows").is_array();
  if (!good)
    throw_user_error("--reference {}: key \"text_encoders\": one is no object of folder, ids and rows", path);
  EncoderReference read;
  read.folder = encoder.at("folder").get<std::string>();
  read.tokens = read_tokens(encoder, "", path);
  if (encoder.contains("negative_ids")) read.negative = read_tokens(encoder, "negative_", path);
  if (encoder.contains("image"))
    read.tokens.image = read.negative.image = read_image(encoder.at("image"), path);
  read.rows = numbers(encoder, "rows", encoder.at("rows").size(), path);
  return read;
}

PixelReference read_pixels(const Json& json, const std::string& path) {
  if (!json.is_object()) throw_user_error("--reference {}: key \"pixels\" is no object", path);
  const rank::ConfigReader reader(json, fmt::format("--reference {}: pixels", path));
  PixelReference out{
      .shape = read_shape(json, "shape", path), .stride = reader.number_or("stride", 1), .values = {}};
  out.values = numbers(json, "values", (rank::elements(out.shape) - 1) / out.stride + 1, path);
  return out;
}

}  // namespace

Json read_pipeline_json(const std::string& flag, const std::filesystem::path& path, std::string_view kind) {
  return rank::parse_object(rank::small_file(path.string(), flag, kind), path.string(), kind,
                            "tests/golden/diffusion");
}

LoopReference read_loop_reference(const std::string& path, std::uint32_t channels) {
  const Json json = read_pipeline_json("--reference", path, "a recording of Diffusers");
  const rank::ConfigReader reader(json, fmt::format("--reference {}", path));
  LoopReference out;
  const rank::LatentShape shape = read_shape(json, "latent_shape", path);
  if (shape[0] != channels)
    throw_user_error("--reference {}: key \"latent_shape\" must begin with {} channels", path, channels);
  out.size.latents = {shape[1], shape[2], shape[3]};
  out.size.steps = reader.number("steps");
  out.size.seed = reader.number("seed", 0);
  out.size.guidance = static_cast<float>(reader.real("guidance_scale", 1, 0, 1000));
  const std::size_t count = rank::elements(shape);
  out.first_pass = numbers(json, "first_pass", count, path);
  out.latents = numbers(json, "latents", count, path);
  if (reader.has("text_encoders")) {
    if (!json.at("text_encoders").is_array())
      throw_user_error("--reference {}: key \"text_encoders\" must be a list", path);
    for (const Json& encoder : json.at("text_encoders")) out.encoders.push_back(read_encoder(encoder, path));
  }
  out.size.prompt_tokens =
      out.encoders.empty() ? reader.number("text_tokens") : reader.number_or("text_tokens", 0, 0);
  if (reader.has("pixels")) out.pixels = read_pixels(json.at("pixels"), path);
  return out;
}

double relative_difference(const std::vector<float>& values, const std::vector<float>& wanted) {
  double most = 0, largest = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double apart = std::abs(static_cast<double>(values[i]) - wanted[i]);
    most = std::isnan(apart) ? INFINITY : std::max(most, apart);
    largest = std::max(largest, std::abs(static_cast<double>(wanted[i])));
  }
  return largest > 0 ? most / largest : most;
}

}  // namespace tpsim::launch
