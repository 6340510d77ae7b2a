// Quantised tensors equal what Transformers, compressed-tensors, AutoAWQ and the formats' own sentences make
// of them, bit for bit (tests/golden/quantised, made by tests/references/quantised.py).

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rank/weights/checkpoint.h"
#include "rank/weights/safetensors.h"
#include "tests/unit/rank/weights/expect_user_error.h"
#include "tests/unit/rank/weights/safetensors_writer.h"
#include "tests/unit/scheduler/workload/test_files.h"

namespace tpsim::rank {
namespace {

using testing::bytes_of;
using testing::expect_user_error;
using testing::safetensors_file;
using testing::WrittenTensor;

const std::string kFolder = std::string(TPSIM_SOURCE_DIR) + "/tests/golden/quantised";

TEST(DequantisedSource, EveryFormatBitForBit) {
  const DequantisedSource source{Checkpoint(kFolder)};
  const SafetensorsFile expected(kFolder + "/expected.safetensors");
  ASSERT_GE(expected.tensors().size(), 14U);
  for (const StoredTensor& tensor : expected.tensors()) {
    ASSERT_TRUE(source.has(tensor.name)) << tensor.name;
    source.require(tensor.name, tensor.shape);
    std::vector<float> wanted(tensor.elements);
    std::vector<float> got(tensor.elements);
    expected.read(tensor, 0, tensor.elements, wanted.data());
    source.read(tensor.name, 0, tensor.elements, got.data());
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(wanted[i]))
          << tensor.name << " at " << i << ": " << got[i] << ", and should be " << wanted[i];
    // Any range of it reads the same.
    for (std::uint64_t first = 0; first < tensor.elements; first += 37) {
      const std::uint64_t count = std::min<std::uint64_t>(tensor.elements - first, 53);
      std::vector<float> part(count);
      source.read(tensor.name, first, count, part.data());
      for (std::uint64_t i = 0; i < count; ++i)
        ASSERT_EQ(std::bit_cast<std::uint32_t>(part[i]), std::bit_cast<std::uint32_t>(wanted[first + i]));
    }
  }
  EXPECT_FALSE(source.has("block.bias"));
  EXPECT_FALSE(source.has("nothing.weight"));
}

class BadParts : public ::testing::Test {
 protected:
  void expect_refused(const std::vector<WrittenTensor>& tensors,
                      const std::vector<std::string>& parts) const {
    testing::write_file(folder_ / "model.safetensors", std::string_view(safetensors_file(tensors)));
    const DequantisedSource source{Checkpoint((folder_ / "").string())};
    expect_user_error([&] { source.require("x.weight", {8, 16}); }, parts);
  }
  static WrittenTensor tensor(const std::string& name, const std::string& type,
                              std::vector<std::uint64_t> shape, std::size_t bytes) {
    return {name, type, std::move(shape), std::string(bytes, '\1')};
  }
  testing::TemporaryFolder folder_;
};

TEST_F(BadParts, AreNamed) {
  const WrittenTensor fp8 = tensor("x.weight", "F8_E4M3", {8, 16}, 128);
  expect_refused({fp8}, {"\"x.weight\"", "\"x.weight_scale\" is missing"});
  expect_refused({fp8, tensor("x.weight_scale", "F32", {3}, 12)}, {"\"x.weight_scale\"", "[3]"});
  expect_refused({fp8, tensor("x.weight_scale", "I32", {1}, 4)}, {"\"x.weight_scale\"", "I32"});
  expect_refused({fp8, tensor("x.weight_scale_inv", "F32", {1, 0}, 0)}, {"\"x.weight_scale_inv\""});
  expect_refused({tensor("x.weight", "F8_E4M3", {128}, 128), tensor("x.weight_scale", "F32", {1}, 4)},
                 {"\"x.weight\"", "a matrix"});
  const WrittenTensor fp4 = tensor("x.weight", "U8", {8, 8}, 64);
  expect_refused({fp4}, {"\"x.weight_scale\" is missing"});
  expect_refused(
      {fp4, tensor("x.weight_scale", "F8_E4M3", {8, 2}, 16), tensor("x.weight_scale_2", "F32", {1}, 4)},
      {"\"x.weight_scale\"", "[8, 1]"});
  const WrittenTensor codes = tensor("x.qweight", "I32", {2, 8}, 64);
  expect_refused({codes}, {"\"x.scales\" is missing"});
  const WrittenTensor scales = tensor("x.scales", "F16", {1, 8}, 16);
  expect_refused({codes, scales}, {"\"x.qzeros\" is missing"});
  expect_refused({codes, scales, tensor("x.qzeros", "I32", {1, 2}, 8)}, {"\"x.qzeros\"", "[1, 1]"});
  const WrittenTensor zeros = tensor("x.qzeros", "I32", {1, 1}, 4);
  expect_refused({codes, scales, zeros, tensor("x.g_idx", "I32", {16}, 64)},
                 {"\"x.g_idx\"", "groups below 1"});
  expect_refused({tensor("x.qweight", "I32", {2, 3}, 24), scales, zeros}, {"\"x.qweight\"", "8 outputs"});
  const WrittenTensor packed = tensor("x.weight_packed", "I32", {8, 2}, 64);
  expect_refused({packed, tensor("x.weight_scale", "BF16", {8, 1}, 16)}, {"\"x.weight_shape\" is missing"});
  const WrittenTensor shape{"x.weight_shape", "I64", {2}, bytes_of<std::int64_t>({8, 64})};
  expect_refused({packed, tensor("x.weight_scale", "BF16", {8, 1}, 16), shape}, {"\"x.weight_packed\""});
  // Sound, but not what config.json asks for.
  expect_refused({tensor("x.weight", "F8_E4M3", {4, 16}, 64), tensor("x.weight_scale", "F32", {1}, 4)},
                 {"makes up shape [4, 16]", "asks for [8, 16]"});
}

}  // namespace
}  // namespace tpsim::rank
