#include "rank/weights/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <utility>

#include "tests/fuzz/mutate.h"
#include "tests/unit/rank/weights/expect_user_error.h"
#include "tests/unit/rank/weights/safetensors_writer.h"
#include "tests/unit/scheduler/workload/test_files.h"

namespace tpsim::rank {
namespace {

using testing::expect_user_error;
using testing::safetensors_file;
using testing::WrittenTensor;

class Safetensors : public ::testing::Test {
 protected:
  std::string write(std::string_view bytes) const {
    testing::write_file(folder_ / "x.safetensors", bytes);
    return (folder_ / "x.safetensors").string();
  }
  // The file is refused with a sentence that names it and has all `parts`.
  void expect_refused(std::string_view bytes, std::vector<std::string> parts) const {
    parts.emplace_back("x.safetensors: ");
    const std::string path = write(bytes);
    expect_user_error([&] { const SafetensorsFile file(path); }, parts);
  }
  void expect_header_refused(std::string_view header, std::string_view data,
                             std::vector<std::string> parts) const {
    expect_refused(safetensors_file(header, data), std::move(parts));
  }

  testing::TemporaryFolder folder_;
};

WrittenTensor random_tensor(std::mt19937_64& random, const std::string& name) {
  static constexpr std::array<std::pair<const char*, std::size_t>, 6> kTypes = {
      {{"F32", 4}, {"BF16", 2}, {"F16", 2}, {"U8", 1}, {"I64", 8}, {"F8_E4M3", 1}}};
  const auto& [dtype, width] = kTypes[random() % kTypes.size()];
  WrittenTensor tensor{name, dtype, {}, {}};
  std::uint64_t elements = 1;
  for (std::uint64_t rank = random() % 4; rank > 0; --rank) {
    tensor.shape.push_back(random() % 12 == 0 ? 0 : 1 + random() % 9);
    elements *= tensor.shape.back();
  }
  tensor.data.resize(elements * width);
  for (char& byte : tensor.data) byte = static_cast<char>(random());
  return tensor;
}

TEST_F(Safetensors, RandomFilesAreReadBackExactly) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 100; ++round) {
    std::vector<WrittenTensor> tensors;
    for (std::uint64_t count = random() % 12; count > 0; --count) {
      tensors.push_back(random_tensor(random, "layer." + std::to_string(count) + ".weight"));
    }
    const SafetensorsFile file(write(safetensors_file(tensors)));
    ASSERT_EQ(file.tensors().size(), tensors.size());
    for (const WrittenTensor& written : tensors) {
      const StoredTensor* tensor = file.find(written.name);
      ASSERT_NE(tensor, nullptr);
      EXPECT_EQ(tensor->name, written.name);
      EXPECT_EQ(tensor->shape, written.shape);
      EXPECT_EQ(to_string(tensor->type), written.dtype);
      if (!is_readable(tensor->type)) {
        float out = 0;
        expect_user_error([&] { file.read(*tensor, 0, 0, &out); },
                          {file.path(), written.name, written.dtype, "convert the checkpoint to bfloat16"});
        continue;
      }
      const std::uint64_t first = random() % (tensor->elements + 1);
      const std::uint64_t count = random() % (tensor->elements - first + 1);
      std::vector<float> read(count + 1, 77), expected(count);
      file.read(*tensor, first, count, read.data());
      to_fp32(tensor->type, written.data.data() + first * bits_of(tensor->type) / 8, count, expected.data());
      for (std::uint64_t i = 0; i < count; ++i) {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(read[i]), std::bit_cast<std::uint32_t>(expected[i]));
      }
      EXPECT_EQ(read[count], 77);
      float out = 0;
      EXPECT_THROW(file.read(*tensor, tensor->elements, 1, &out), std::logic_error);
      EXPECT_THROW(file.read(*tensor, tensor->elements + 1, 0, &out), std::logic_error);
      EXPECT_THROW(file.read(*tensor, 1, ~std::uint64_t{0}, &out), std::logic_error);
    }
    EXPECT_EQ(file.find("layer.weight"), nullptr);
  }
}

TEST_F(Safetensors, TheFileMayBeMoved) {
  SafetensorsFile first(write(safetensors_file({{"a", "F32", {2}, testing::bytes_of<float>({3, 4})}})));
  std::vector<SafetensorsFile> files;
  files.push_back(std::move(first));
  files.reserve(100);
  float out[2] = {};
  files[0].read(*files[0].find("a"), 0, 2, out);
  EXPECT_EQ(out[0], 3);
  EXPECT_EQ(out[1], 4);
}

TEST_F(Safetensors, WhatTheFormatAllowsIsTaken) {
  // No tensors; a scalar and empty tensors anywhere; data in another order than the header; metadata of
  // nothing; fields that a later version may add; spaces and line ends; an escaped name.
  EXPECT_TRUE(SafetensorsFile(write(safetensors_file("{}", ""))).tensors().empty());
  const std::string header =
      R"({"b":{"dtype":"F32","shape":[],"data_offsets":[2,6],"more":{"x":[1,{}]},"y":-1e3},
    "__metadata__":null, "e2":{"dtype":"F64","shape":[0,9223372036854775807],"data_offsets":[6,6]},
    "\u0061":{"data_offsets":[0,2],"shape":[1,1],"dtype":"BF16"},"e":{"dtype":"F32","shape":[3,0],"data_offsets":[2,2]}}   )";
  const SafetensorsFile file(write(safetensors_file(header, "\x80\x3f" + testing::bytes_of<float>({2.5F}))));
  ASSERT_EQ(file.tensors().size(), 4U);
  EXPECT_EQ(file.tensors()[0].name, "a");
  EXPECT_EQ(file.tensors()[1].name, "e");
  EXPECT_EQ(file.tensors()[2].name, "b");
  EXPECT_EQ(file.tensors()[3].name, "e2");
  float out = 0;
  file.read(*file.find("a"), 0, 1, &out);
  EXPECT_EQ(out, 1);
  file.read(*file.find("b"), 0, 1, &out);
  EXPECT_EQ(out, 2.5F);
  file.read(*file.find("e"), 0, 0, &out);
  // Half-byte elements that fill bytes.
  EXPECT_EQ(SafetensorsFile(
                write(safetensors_file(R"({"x":{"dtype":"F4","shape":[6],"data_offsets":[0,3]}})", "abc")))
                .tensors()
                .size(),
            1U);
}

TEST_F(Safetensors, FilesThatAreNone) {
  expect_user_error([&] { const SafetensorsFile file((folder_ / "none").string()); },
                    {"none: cannot be opened", "No such file"});
  expect_user_error([&] { const SafetensorsFile file((folder_ / "").string()); }, {"is not a file"});
  const std::string pipe = (folder_ / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_user_error([&] { const SafetensorsFile file(pipe); }, {"pipe: is not a file"});
  expect_refused("", {"has only 0 bytes", "8-byte length"});
  expect_refused("1234567", {"has only 7 bytes"});
  expect_refused("version https://git-lfs.github.com/spec/v1\noid sha256:1\n",
                 {"git-lfs pointer", "git lfs pull"});
  expect_refused("PK\x03\x04 a PyTorch archive", {"this is not a safetensors file"});
}

TEST_F(Safetensors, WrongHeaders) {
  std::string file = safetensors_file({{"a", "F32", {1}, "1234"}});
  const auto with_length = [&](std::uint64_t length) {
    std::memcpy(file.data(), &length, sizeof length);
    return file;
  };
  expect_refused(with_length(100'000'001), {"100000001 bytes long", "100000000 at most"});
  expect_refused(with_length(~std::uint64_t{0}), {"at most"});
  expect_refused(with_length(file.size()), {"the file is truncated"});
  expect_refused(with_length(file.size() - 7), {"the file is truncated"});
  expect_refused(with_length(0), {"does not begin with '{'"});
  expect_refused(with_length(20), {"is not valid JSON from byte"});
  expect_header_refused(" {}", "", {"does not begin with '{'"});
  expect_header_refused("[]", "", {"does not begin with '{'"});
  expect_header_refused("{}{}", "", {"is not valid JSON from byte 2 on"});
  expect_header_refused("{\"a\xff\":1}", "", {"is not valid JSON"});
  expect_header_refused(std::string("{}\0{", 4), "", {"zero byte at byte 2"});
  expect_header_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})", "1234",
                        {"not valid JSON"});
  expect_header_refused(R"({"__metadata__":{},"__metadata__":{}})", "", {"\"__metadata__\" twice"});
  expect_header_refused(R"({"__metadata__":[]})", "", {"must be an object of texts"});
  expect_header_refused(R"({"__metadata__":{"a":1}})", "", {"must be an object of texts"});
  expect_header_refused(R"({"__metadata__":{"a":{}}})", "", {"must be an object of texts"});
  // Deep nesting costs nothing, where it is skipped and where it is refused.
  expect_header_refused(std::string("{\"a\":{\"x\":") + std::string(1'000'000, '['), "", {"not valid JSON"});
  expect_header_refused(std::string("{\"a\":") + std::string(1'000'000, '['), "", {"is not described"});
}

TEST_F(Safetensors, WrongTensors) {
  const auto refused = [&](const std::string& fields, std::vector<std::string> parts) {
    parts.emplace_back("tensor \"w\"");
    expect_header_refused("{\"w\":" + fields + "}", "12345678", std::move(parts));
  };
  refused("3", {"is not described by an object"});
  refused("null", {"is not described by an object"});
  refused("{}", {"has no dtype"});
  refused(R"({"dtype":"F32","data_offsets":[0,8]})", {"has no shape"});
  refused(R"({"dtype":"F32","shape":[2]})", {"has no data_offsets"});
  refused(R"({"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]})", {"dtype twice"});
  refused(R"({"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]})", {"shape twice"});
  refused(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8],"data_offsets":[0,8]})", {"data_offsets twice"});
  refused(R"({"dtype":32,"shape":[2],"data_offsets":[0,8]})", {"dtype that is not a text"});
  refused(R"({"dtype":"float\u0033\u0001","shape":[2],"data_offsets":[0,8]})", {R"("float3\x01")"});
  refused(R"({"dtype":"F32","shape":2,"data_offsets":[0,8]})", {"shape that is not an array"});
  for (const char* shape :
       {"[-1]", "[2.0]", "[\"2\"]", "[[2]]", "[{}]", "[null]", "[18446744073709551616]", "[-0]"}) {
    refused(fmt::format(R"({{"dtype":"F32","shape":{},"data_offsets":[0,8]}})", shape),
            {"shape with something else"});
  }
  std::string ones;
  for (int i = 0; i < 40; ++i) ones += "1,";
  refused(fmt::format(R"({{"dtype":"F32","shape":[{}2],"data_offsets":[0,8]}})", ones),
          {"more than 32 dimensions"});
  refused(R"({"dtype":"F32","shape":[2],"data_offsets":8})", {"not an array"});
  refused(R"({"dtype":"F32","shape":[2],"data_offsets":[]})", {"has 0 data_offsets"});
  refused(R"({"dtype":"F32","shape":[2],"data_offsets":[8]})", {"has 1 data_offsets"});
  refused(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8,8]})", {"more than two"});
  refused(R"({"dtype":"F32","shape":[2],"data_offsets":[-8,0]})", {"not whole numbers"});
  refused(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8.0]})", {"not whole numbers"});
  refused(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})", {"the end lies before the begin"});
  refused(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})",
          {"F32 of shape [3]", "takes 12 bytes", "give 8"});
  refused(R"({"dtype":"BF16","shape":[2,4],"data_offsets":[0,8]})", {"takes 16 bytes"});
  refused(R"({"dtype":"F4","shape":[5],"data_offsets":[0,3]})", {"whole number of bytes"});
  refused(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]})", {"more than any file"});
  refused(R"({"dtype":"F32","shape":[4611686018427387906],"data_offsets":[0,8]})", {"more than any file"});
  refused(R"({"dtype":"U8","shape":[16],"data_offsets":[0,16]})",
          {"ends at byte 16", "only 8 bytes", "truncated"});
  refused(R"({"dtype":"U8","shape":[0],"data_offsets":[9,9]})", {"ends at byte 9", "only 8 bytes"});
  refused(R"({"dtype":"U8","shape":[4],"data_offsets":[4,8]})", {"4 bytes before", "holes"});
  expect_header_refused(R"({"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", "12345678",
                        {"the last 4 bytes belong to no tensor"});
  expect_header_refused("{}", "1", {"the last 1 bytes"});
  const std::string half = R"({"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  expect_header_refused("{\"v\":" + half + ",\"w\":" + half + "}", "12345678", {"\"v\" and \"w\" overlap"});
  expect_header_refused("{\"v\":" + half + R"(,"w":{"dtype":"U8","shape":[5],"data_offsets":[3,8]}})",
                        "12345678", {"\"v\" and \"w\" overlap"});
  expect_header_refused("{\"v\":" + half + R"(,"w":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}})", "1234",
                        {"\"v\" and \"w\" overlap"});
  // The same name twice, the second time in other letters of JSON.
  expect_header_refused("{\"v\":" + half + R"(,"\u0076":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                        "12345678", {"tensor \"v\" is there twice"});
  // A name of any length and content stays one short line.
  const std::string path = write(safetensors_file("{\"" + std::string(5000, 'n') + "\\n\":1}", ""));
  try {
    const SafetensorsFile file(path);
    ADD_FAILURE();
  } catch (const UserError& error) {
    EXPECT_LT(std::string_view(error.what()).size(), path.size() + 300);
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos);
  }
}

TEST_F(Safetensors, EveryTruncationIsRefused) {
  std::mt19937_64 random(2);
  const std::string whole = safetensors_file({{"a", "F32", {3}, std::string(12, 'a')},
                                              {"b", "U8", {0}, ""},
                                              {"c", "BF16", {2, 2}, std::string(8, 'c')}});
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::string path = write(std::string_view(whole).substr(0, size));
    expect_user_error([&] { const SafetensorsFile file(path); }, {path});
  }
  EXPECT_NO_THROW(SafetensorsFile{write(whole)});
}

// Whatever was done to a file, it is refused, or all of it can be read.
TEST_F(Safetensors, MutatedFilesNeverCrash) {
  std::mt19937_64 random(3);
  std::vector<std::string> seeds;
  for (int i = 0; i < 8; ++i) {
    std::vector<WrittenTensor> tensors;
    for (int t = 0; t <= i; ++t) tensors.push_back(random_tensor(random, "t" + std::to_string(t)));
    seeds.push_back(safetensors_file(tensors));
  }
  fuzz::Mutator mutator(seeds, 4);
  int opened = 0;
  for (int round = 0; round < 4000; ++round) {
    const std::string path = write(mutator.next());
    try {
      const SafetensorsFile file(path);
      ++opened;
      for (const StoredTensor& tensor : file.tensors()) {
        if (!is_readable(tensor.type)) continue;
        std::vector<float> out(tensor.elements);
        file.read(tensor, 0, tensor.elements, out.data());
      }
    } catch (const UserError& error) {
      ASSERT_NE(std::string_view(error.what()).find(path), std::string_view::npos) << error.what();
    }
  }
  EXPECT_GT(opened, 50);  // changes in the data are not the header's business
}

}  // namespace
}  // namespace tpsim::rank
