// Vision encoders: pixels that a script can make, positions of images' tokens, and for every model of
// tests/golden/vision (made by tests/references/make_vision_references.py) that its tower and the dense
// reference say what Transformers says, whole, cut over ranks, or whole on each.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "rank/config/rope.h"
#include "rank/numeric/dense_reference.h"
#include "rank/numeric/pass.h"
#include "rank/numeric/vision/image_encoder.h"
#include "rank/numeric/vision/patches.h"
#include "rank/numeric/vision/tower_layers.h"
#include "rank/weights/checkpoint.h"

namespace tpsim::rank {
namespace {

// Of make_vision_references.py: pixels((1, 3, 2, 2), 7, 40, 24).
TEST(Pixels, AreThoseOfTheScript) {
  ImageLayout layout;
  layout.height = layout.width = 2;
  const ImagePixels pixels = make_pixels(layout, image_seed(7, 40, 24));
  ASSERT_EQ(pixels.values.size(), 12U);
  const std::array<float, 4> wanted = {0.393105388F, -0.220840096F, 0.146316648F, -0.364184499F};
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_EQ(pixels.values[i], wanted[i]);
  for (const float value : pixels.values) {
    EXPECT_GE(value, -1);
    EXPECT_LT(value, 1);
  }
  EXPECT_NE(make_pixels(layout, image_seed(7, 24, 40)).values, pixels.values);
  EXPECT_NE(make_pixels(layout, image_seed(8, 40, 24)).values, pixels.values);
}

// Token by token, as the models' code lists them.
TEST(ImagePositions, AreThoseOfAList) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<ImageSpan> images;
    std::vector<std::array<std::uint32_t, 3>> wanted;
    std::uint32_t next = 0;
    const auto text = [&](std::uint32_t count) {
      for (std::uint32_t i = 0; i < count; ++i, ++next) wanted.push_back({next, next, next});
    };
    for (std::uint32_t i = random() % 4; i > 0; --i) {
      text(random() % 5);
      const std::uint32_t rows = 1 + random() % 6;
      const std::uint32_t columns = 1 + random() % 6;
      images.push_back({static_cast<std::uint32_t>(wanted.size()), rows, columns});
      for (std::uint32_t y = 0; y < rows; ++y) {
        for (std::uint32_t x = 0; x < columns; ++x) wanted.push_back({next, next + y, next + x});
      }
      next += std::max(rows, columns);
    }
    text(1 + random() % 5);
    for (std::uint32_t place = 0; place < wanted.size(); ++place)
      ASSERT_EQ(image_position(images, place), wanted[place]) << "round " << round << ", token " << place;
  }
}

TEST(RotaryEmbedding, TurnsSectionsByTheirOwnPositions) {
  for (const bool interleaved : {false, true}) {
    RopeConfig config;
    config.mrope_section = {4, 2, 2};
    config.mrope_interleaved = interleaved;
    const RotaryEmbedding rope(config, 16, 512);
    const std::array<std::uint32_t, 3> position{5, 70, 300};
    const std::array<std::uint32_t, 8> axes = interleaved
                                                  ? std::array<std::uint32_t, 8>{0, 1, 2, 0, 1, 2, 0, 0}
                                                  : std::array<std::uint32_t, 8>{0, 0, 0, 0, 1, 1, 2, 2};
    std::array<float, 8> cos{}, sin{};
    rope.angles(position, 512, cos.data(), sin.data());
    for (std::uint32_t i = 0; i < 8; ++i) {
      const double angle = position[axes[i]] * std::pow(10000.0, -2.0 * i / 16);
      EXPECT_NEAR(cos[i], std::cos(angle), 1e-6);
      EXPECT_NEAR(sin[i], std::sin(angle), 1e-6);
    }
  }
}

TEST(AttendSegments, IsSoftmaxAttentionOfEachSegment) {
  constexpr std::uint32_t kHeads = 3, kDim = 5, kRows = 17;
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> qkv(std::size_t{kRows} * 3 * kHeads * kDim);
  for (float& value : qkv) value = normal(random);
  const std::vector<std::uint32_t> begins{0, 1, 9, 17};
  std::vector<float> out(std::size_t{kRows} * kHeads * kDim);
  ThreadPool pool(2);
  attend_segments(qkv.data(), kHeads, kDim, begins, 0.4F, out.data(), pool);
  const auto at = [&](std::uint32_t row, std::uint32_t part, std::uint32_t head, std::uint32_t c) {
    return double{qkv[((row * 3 + part) * kHeads + head) * kDim + c]};
  };
  for (std::uint32_t row = 0; row < kRows; ++row) {
    const auto end = std::upper_bound(begins.begin(), begins.end(), row);
    for (std::uint32_t head = 0; head < kHeads; ++head) {
      double sum = 0;
      std::array<double, kDim> wanted{};
      for (std::uint32_t j = *(end - 1); j < *end; ++j) {
        double score = 0;
        for (std::uint32_t c = 0; c < kDim; ++c) score += at(row, 0, head, c) * at(j, 1, head, c);
        const double weight = std::exp(score * 0.4);
        sum += weight;
        for (std::uint32_t c = 0; c < kDim; ++c) wanted[c] += weight * at(j, 2, head, c);
      }
      for (std::uint32_t c = 0; c < kDim; ++c)
        EXPECT_NEAR(out[(std::size_t{row} * kHeads + head) * kDim + c], wanted[c] / sum, 1e-5);
    }
  }
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(TPSIM_VISION_MODELS)) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class VisionModels : public ::testing::TestWithParam<std::string> {
 protected:
  VisionModels()
      : folder_(std::string(TPSIM_VISION_MODELS) + "/" + GetParam()), model_(load_model_config(folder_)) {
    model_.vision.served = true;
  }

  std::unique_ptr<ImageEncoder> encoder(const ParallelLayout& layout, bool replicated,
                                        Collectives& collectives) {
    ModelConfig model = model_;
    model.vision.replicated = replicated;
    return std::make_unique<ImageEncoder>(
        model, layout, WeightType::kFp32, [this] { return std::make_unique<Checkpoint>(folder_); },
        collectives, pool_);
  }

  const std::string folder_;
  ModelConfig model_;
  ThreadPool pool_{2};
};

TEST_P(VisionModels, TheDenseReferenceWithTheTowersRowsSaysWhatTransformersSays) {
  LocalCollectives alone(1);
  const std::unique_ptr<ImageEncoder> encoder = this->encoder({}, false, alone);
  const Checkpoint weights(folder_);
  const DenseReference dense(model_, weights);
  std::ifstream file(folder_ + "/reference.json");
  const nlohmann::json reference = nlohmann::json::parse(file);
  for (const auto& prompt : reference.at("prompts")) {
    const auto text = prompt.at("prompt_ids").get<std::vector<std::uint32_t>>();
    const nlohmann::json none = nlohmann::json::array();
    const auto& sizes = prompt.contains("images") ? prompt.at("images") : none;
    std::vector<std::uint32_t> ids;
    DenseImages images;
    std::size_t done = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const std::uint32_t width = sizes[i][0];
      const std::uint32_t height = sizes[i][1];
      const std::size_t position = prompt.at("image_positions")[i];
      ids.insert(ids.end(), text.begin() + static_cast<std::ptrdiff_t>(done),
                 text.begin() + static_cast<std::ptrdiff_t>(position));
      done = position;
      const VisionConfig& vision = model_.vision;
      ids.insert(ids.end(), vision.marker_ids_before.begin(), vision.marker_ids_before.end());
      const ImageLayout layout = image_layout(vision, width, height);
      const std::uint32_t merged = vision.patch_size * vision.merge_size;
      images.spans.push_back({ids.size(), layout.height / merged, layout.width / merged});
      const std::vector<float> rows =
          encoder->encode(layout, image_seed(prompt.at("image_ids")[i], width, height), 0, 0);
      auto row = rows.begin();
      for (const std::uint32_t token : encoder->image_tokens(layout)) {
        if (token != VisionTower::kEmbedded) {
          ids.push_back(token);
          continue;
        }
        const auto end = row + static_cast<std::ptrdiff_t>(encoder->row_size());
        images.rows.push_back({ids.size(), {row, end}});
        ids.push_back(0);
        row = end;
      }
      EXPECT_EQ(row, rows.end());
      ids.insert(ids.end(), vision.marker_ids_after.begin(), vision.marker_ids_after.end());
    }
    ids.insert(ids.end(), text.begin() + static_cast<std::ptrdiff_t>(done), text.end());
    ASSERT_EQ(ids.size(), prompt.at("prompt_tokens").get<std::size_t>());
    const auto tokens = prompt.at("token_ids").get<std::vector<std::uint32_t>>();
    const auto logits = prompt.at("logits").get<std::vector<double>>();
    const std::size_t length = ids.size();
    ids.insert(ids.end(), tokens.begin(), tokens.end() - 1);
    const std::vector<double> all = dense.forward(ids, images);
    double largest = 0;
    for (const double logit : logits) largest = std::max(largest, std::fabs(logit));
    for (std::size_t i = 0; i < logits.size(); ++i)
      ASSERT_NEAR(all[(length - 1) * model_.vocab_size + i], logits[i], 1e-4 * largest);
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      const auto row = all.begin() + static_cast<std::ptrdiff_t>((length - 1 + t) * model_.vocab_size);
      ASSERT_EQ(std::max_element(row, row + model_.vocab_size) - row, tokens[t]) << "token " << t;
    }
  }
}

TEST_P(VisionModels, RanksTogetherMakeWhatOneMakes) {
  LocalCollectives alone(1);
  const ImageLayout layout = image_layout(model_.vision, 61, 90);
  const std::uint64_t seed = image_seed(9, 61, 90);
  const std::vector<float> wanted = encoder({}, false, alone)->encode(layout, seed, 0, 0);
  for (const std::uint32_t tp : {2U, 4U}) {
    if (model_.vision.num_heads % tp != 0) continue;
    LocalCollectives together(tp);
    ParallelLayout of_all;
    of_all.tp_size = tp;
    const std::vector<float> cut = encoder(of_all, false, together)->encode(layout, seed, 0, 0);
    ASSERT_EQ(cut.size(), wanted.size());
    for (std::size_t i = 0; i < cut.size(); ++i) ASSERT_NEAR(cut[i], wanted[i], 1e-4) << "--tp " << tp;
    // Whoever has the image computes it whole: the same bits.
    const auto replicated = encoder(of_all, true, together);
    for (std::uint32_t index = 0; index < tp; ++index)
      ASSERT_EQ(replicated->encode(layout, seed, 0, index), wanted);
    // Two data-parallel ranks, each with its half of the others.
    of_all.dp_size = 2;
    const auto halves = encoder(of_all, false, together);
    const std::vector<float> first = halves->encode(layout, seed, 0, 0);
    ASSERT_EQ(first, halves->encode(layout, seed, 1, 0));
    for (std::size_t i = 0; i < first.size(); ++i) ASSERT_NEAR(first[i], wanted[i], 1e-4);
  }
}

std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (const char separator : {'-', '.'}) std::replace(name.begin(), name.end(), separator, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, VisionModels, ::testing::ValuesIn(model_names()), test_name);

}  // namespace
}  // namespace tpsim::rank
