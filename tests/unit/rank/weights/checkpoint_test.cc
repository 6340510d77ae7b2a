#include "rank/weights/checkpoint.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <stdexcept>

#include "tests/unit/rank/weights/expect_user_error.h"
#include "tests/unit/rank/weights/safetensors_writer.h"
#include "tests/unit/scheduler/workload/test_files.h"

namespace tpsim::rank {
namespace {

using testing::bytes_of;
using testing::expect_user_error;
using testing::safetensors_file;
using testing::WrittenTensor;

WrittenTensor scalar(const std::string& name, float value) {
  return {name, "F32", {1}, bytes_of<float>({value})};
}

class CheckpointTest : public ::testing::Test {
 protected:
  void write(const std::string& name, std::string_view bytes) const {
    testing::write_file(folder_ / name, bytes);
  }
  void write(const std::string& name, const std::vector<WrittenTensor>& tensors) const {
    write(name, std::string_view(safetensors_file(tensors)));
  }
  void write_index(const std::string& weight_map) const {
    write("model.safetensors.index.json", std::string_view("{\"weight_map\":{" + weight_map + "}}"));
  }
  std::string path(const std::string& name = "") const { return (folder_ / name).string(); }
  Checkpoint open() const { return Checkpoint(path()); }
  void expect_refused(const std::vector<std::string>& parts) const {
    expect_user_error([&] { open(); }, parts);
  }
  static float value(const Checkpoint& checkpoint, const std::string& name) {
    float out = 0;
    checkpoint.read(name, 0, 1, &out);
    return out;
  }

  testing::TemporaryFolder folder_;
};

TEST_F(CheckpointTest, AnIndexDecides) {
  write("1.safetensors", {scalar("a", 1), scalar("b", 2)});
  write("2.safetensors", {scalar("b", 3), scalar("c", 4)});
  write("model.safetensors", {scalar("a", 5)});
  write_index(R"("a":"1.safetensors","b":"2.safetensors")");
  const Checkpoint checkpoint = open();
  EXPECT_EQ(value(checkpoint, "a"), 1);
  EXPECT_EQ(value(checkpoint, "b"), 3);
  EXPECT_TRUE(checkpoint.has("a"));
  EXPECT_FALSE(checkpoint.has("c"));  // not in the index
  // The folder may also be named by its config.json.
  write("config.json", std::string_view("{}"));
  EXPECT_EQ(value(Checkpoint(path("config.json")), "b"), 3);
}

TEST_F(CheckpointTest, OneFileBeforeAny) {
  write("1.safetensors", {scalar("a", 1)});
  write("2.safetensors", {scalar("b", 2)});
  EXPECT_EQ(value(open(), "a"), 1);
  EXPECT_EQ(value(open(), "b"), 2);
  write("model.safetensors", {scalar("a", 5)});
  EXPECT_EQ(value(open(), "a"), 5);
  EXPECT_FALSE(open().has("b"));
}

TEST_F(CheckpointTest, ReadsConvertedRanges) {
  write("model.safetensors", {{"h", "BF16", {2, 2}, bytes_of<std::uint16_t>({0x3f80, 0x4000, 0xc040, 0})},
                              {"f", "F16", {3}, bytes_of<std::uint16_t>({0x3c00, 0x0001, 0xfbff})}});
  const Checkpoint checkpoint = open();
  float out[3] = {};
  checkpoint.require("h", {2, 2});
  checkpoint.read("h", 1, 2, out);
  EXPECT_EQ(out[0], 2);
  EXPECT_EQ(out[1], -3);
  checkpoint.require("f", {3});
  checkpoint.read("f", 0, 3, out);
  EXPECT_EQ(out[0], 1);
  EXPECT_EQ(out[1], 0x1p-24F);
  EXPECT_EQ(out[2], -65504);
  EXPECT_THROW(checkpoint.read("g", 0, 1, out), std::logic_error);
  EXPECT_THROW(checkpoint.read("h", 3, 2, out), std::logic_error);
}

TEST_F(CheckpointTest, RequireNamesFileAndTensor) {
  write("model.safetensors", {{"w", "BF16", {2, 2}, std::string(8, 0)}, {"q", "F8_E4M3", {2}, "12"}});
  const Checkpoint checkpoint = open();
  EXPECT_NO_THROW(checkpoint.require("w", {2, 2}));
  expect_user_error([&] { checkpoint.require("w", {4}); },
                    {path("model.safetensors"), "tensor \"w\" has shape [2, 2]", "asks for [4]"});
  expect_user_error([&] { checkpoint.require("v", {4, 1}); }, {"has no tensor \"v\"", "shape [4, 1]"});
  expect_user_error([&] { checkpoint.require("q", {2}); }, {"tensor \"q\" is stored as F8_E4M3", "bfloat16"});
  EXPECT_TRUE(checkpoint.has("q"));
}

TEST_F(CheckpointTest, FoldersWithoutWeights) {
  expect_user_error([&] { Checkpoint{path("nowhere")}; },
                    {"--model-path", "nowhere: there is no such folder"});
  expect_refused({"--model-path", "has no *.safetensors", "--load-format dummy"});
  write("pytorch_model.bin", std::string_view("x"));
  expect_refused({"only files like pytorch_model.bin", "convert"});
}

TEST_F(CheckpointTest, WhatAnIndexPromisesIsThere) {
  write("1.safetensors", {scalar("a", 1)});
  write_index(R"("a":"1.safetensors","b":"2.safetensors")");
  expect_refused({path("2.safetensors") + ": is missing", "model.safetensors.index.json"});
  write("2.safetensors", {scalar("c", 1)});
  expect_refused({path("2.safetensors") + ": has no tensor \"b\"", "model.safetensors.index.json"});
  write("2.safetensors", std::string_view("12345678"));
  expect_refused({path("2.safetensors") + ": "});
  write_index("");
  expect_refused({"model.safetensors.index.json: \"weight_map\" is empty"});
  write("model.safetensors.index.json", std::string_view(""));
  expect_refused({"model.safetensors.index.json", "not valid JSON"});
}

TEST_F(CheckpointTest, OneTensorInTwoFiles) {
  write("1.safetensors", {scalar("a", 1)});
  write("2.safetensors", {scalar("a", 1)});
  expect_refused({path("2.safetensors"), "tensor \"a\" is also in " + path("1.safetensors")});
}

TEST_F(CheckpointTest, TheBytesOfAnyType) {
  write("model.safetensors", {{"codes", "U8", {2, 3}, std::string("\1\2\3\4\5\6")}});
  const Checkpoint checkpoint = open();
  EXPECT_FALSE(checkpoint.view("other"));
  const auto view = checkpoint.view("codes");
  ASSERT_TRUE(view);
  EXPECT_EQ(view->type, StoredType::kU8);
  EXPECT_EQ(view->shape, (std::vector<std::uint64_t>{2, 3}));
  EXPECT_EQ(std::string_view(view->data, 6), "\1\2\3\4\5\6");
  // As numbers only through DequantisedSource.
  expect_user_error([&] { checkpoint.require("codes", {2, 3}); }, {"codes", "U8"});
}

}  // namespace
}  // namespace tpsim::rank
