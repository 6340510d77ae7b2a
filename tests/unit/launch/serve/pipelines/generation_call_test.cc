#include "launch/serve/pipelines/generation_call.h"

#include <gtest/gtest.h>

#include "launch/serve/pipelines/media.h"
#include "launch/serve/protocol/json_fields.h"

namespace tpsim::launch::generation_call_test {

using Kind = GenerationCall::Kind;

GenerationCall read(Kind kind, std::string body, const SamplingAsked& defaults = {}) {
  HttpRequest request;
  request.content_type = "application/json";
  request.body = std::move(body);
  return read_generation(kind, request, defaults);
}

GenerationCall read_parts(Kind kind, const std::string& parts) {
  HttpRequest request;
  request.content_type = R"(multipart/form-data; charset=utf-8; boundary="b 1")";
  request.body = parts + "--b 1--\r\n";
  return read_generation(kind, request, {});
}

std::string part(const std::string& name, const std::string& content, const std::string& file = "") {
  return "--b 1\r\nContent-Disposition: form-data; name=\"" + name + "\"" +
         (file.empty() ? "" : "; filename=\"" + file + "\"\r\nContent-Type: image/png") + "\r\n\r\n" +
         content + "\r\n";
}

std::string refusal(Kind kind, const std::string& body) {
  try {
    read(kind, body);
  } catch (const Refusal& refused) {
    return refused.what();
  }
  return "";
}

TEST(GenerationCall, ImagesAreAThousandPixelsWideWhereNothingIsSaid) {
  const GenerationCall call = read(Kind::kImage, R"({"prompt": "a cat"})");
  EXPECT_EQ(call.sampling.width, 1024U);
  EXPECT_EQ(call.sampling.height, 1024U);
  EXPECT_TRUE(call.as_url);
  SamplingAsked flags;
  flags.width = 640;
  EXPECT_EQ(read(Kind::kImage, R"({"prompt": ""})", flags).sampling.width, 640U);
  EXPECT_EQ(read(Kind::kImage, R"({"prompt": "", "size": "800x600", "width": 64})", flags).sampling.width,
            64U);
  EXPECT_EQ(read(Kind::kImage, R"({"prompt": "", "size": "800x600", "width": 64})", flags).sampling.height,
            600U);
  flags = {};
  flags.shortcuts[3].given = true;
  EXPECT_TRUE(read(Kind::kImage, R"({"prompt": ""})", flags).sampling.shortcuts[3].given);
  EXPECT_FALSE(read(Kind::kImage, R"({"prompt": "", "size": "64x64"})", flags).sampling.shortcuts[3].given);
}

TEST(GenerationCall, VideosAreFourSecondsOf24FramesWhereNothingIsSaid) {
  EXPECT_EQ(read(Kind::kVideo, R"({"prompt": ""})").sampling.frames, 96U);
  EXPECT_EQ(read(Kind::kVideo, R"({"prompt": "", "seconds": "2", "fps": 16})").sampling.frames, 32U);
  EXPECT_EQ(read(Kind::kVideo, R"({"prompt": "", "seconds": 2, "num_frames": 81})").sampling.frames, 81U);
  SamplingAsked flags;
  flags.frames = 17;
  EXPECT_EQ(read(Kind::kVideo, R"({"prompt": ""})", flags).sampling.frames, 17U);
  EXPECT_NE(refusal(Kind::kVideo, R"({"prompt": "", "seconds": 100000, "fps": 1000})"), "");
}

TEST(GenerationCall, OutputsAreOneToTen) {
  for (const auto& [n, outputs] : {std::pair{"-3", 1U}, {"0", 1U}, {"4", 4U}, {"99", 10U}})
    EXPECT_EQ(read(Kind::kImage, std::string(R"({"prompt": "", "n": )") + n + "}").sampling.outputs, outputs);
}

TEST(GenerationCall, WrappedFieldsGiveWay) {
  const GenerationCall call = read(
      Kind::kVideo,
      R"({"prompt": "p", "size": "64x32", "extra_body": "{\"size\": \"9x9\", \"num_inference_steps\": 7}"})");
  EXPECT_EQ(call.sampling.width, 64U);
  EXPECT_EQ(call.sampling.steps, 7U);
}

TEST(GenerationCall, FormsAreReadAndTheirPicturesLookedAt) {
  const GenerationCall call =
      read_parts(Kind::kEdit, part("prompt", "123") + part("image[]", test_picture(48, 32, 0), "a.png") +
                                  part("image[]", "no picture", "b.png") + part("num_inference_steps", "5"));
  EXPECT_EQ(call.prompt, "123");
  EXPECT_EQ(call.sampling.steps, 5U);
  ASSERT_EQ(call.sampling.images.size(), 2U);
  EXPECT_EQ(call.sampling.images[0], (std::array{48U, 32U}));
  EXPECT_EQ(call.sampling.images[1], (std::array{0U, 0U}));
  EXPECT_FALSE(call.as_url);
  EXPECT_THROW(read_parts(Kind::kEdit, "--b 1\r\nContent-Disposition: form-data; name=\"prompt\"\r\n"),
               Refusal);
  EXPECT_THROW(read_parts(Kind::kEdit, part("prompt", "no picture")), Refusal);
}

TEST(GenerationCall, WhatIsWrongIsNamed) {
  EXPECT_EQ(refusal(Kind::kImage, "{}"), "prompt: Field required");
  EXPECT_NE(refusal(Kind::kImage, R"({"prompt": 3})").find("prompt"), std::string::npos);
  EXPECT_NE(refusal(Kind::kImage, R"({"prompt": "", "size": "12"})").find("WIDTHxHEIGHT"), std::string::npos);
  EXPECT_NE(refusal(Kind::kImage, R"({"prompt": "", "num_inference_steps": 0})").find("num_inference_steps"),
            std::string::npos);
  EXPECT_NE(refusal(Kind::kImage, R"({"prompt": "", "enable_upscaling": true})").find("enable_upscaling"),
            std::string::npos);
  EXPECT_EQ(refusal(Kind::kImage, R"({"prompt": "", "enable_upscaling": false, "seed": [1, 2]})"), "");
  EXPECT_NE(refusal(Kind::kImage, R"({"prompt": "", "response_format": "mp3"})"), "");
}

}  // namespace tpsim::launch::generation_call_test
