#include "scheduler/workload/images.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "kvcache/radix_cache.h"
#include "proto/base/error.h"
#include "scheduler/workload/benchmark_datasets.h"
#include "scheduler/workload/trace_reader.h"
#include "scheduler/workload/trace_writer.h"

namespace tpsim::scheduler {
namespace {

// As many tokens as pixels are wide, and a marker on both sides.
ImageTokens wide(std::uint32_t width, std::uint32_t) { return {1, width, 1}; }

std::vector<kvcache::TokenId> ids(const kvcache::TokenSequence& sequence) {
  std::vector<kvcache::TokenId> out;
  for (const kvcache::TokenRun& run : sequence.runs()) {
    for (std::uint32_t i = 0; i < run.length; ++i) out.push_back(run.first + i);
  }
  return out;
}

Workload placed(const std::string& text, std::uint32_t width = 0, std::uint32_t height = 0) {
  Workload workload = read_trace(text, "trace", {});
  ImagePlacer placer(workload.name, wide, width, height);
  for (WorkloadRequest& request : workload.requests) placer.place(request);
  return workload;
}

TEST(Images, StandWhereTheTraceSays) {
  const Workload workload = placed(
      R"({"arrival_time":0,"prompt":[[100,5]],"max_new_tokens":1,"images":[[3,9],[2,9],[3,9]],"image_ids":[7,8,7],"image_positions":[0,2,5]})");
  const WorkloadRequest& request = workload.requests[0];
  const std::vector<kvcache::TokenId> prompt = ids(request.prompt);
  ASSERT_EQ(prompt.size(), 5U + 3 + 2 + 3 + 6);
  ASSERT_EQ(request.images.size(), 3U);
  EXPECT_EQ(request.images[0].position, 1U);
  EXPECT_EQ(request.images[1].position, 1U + 3 + 1 + 2 + 1);
  EXPECT_EQ(request.images[2].position, prompt.size() - 4);
  // The text in its order, and equal images as equal ids.
  std::vector<kvcache::TokenId> text;
  for (const kvcache::TokenId id : prompt) {
    if (id < kGeneratedTokenBase) text.push_back(id);
  }
  EXPECT_EQ(text, (std::vector<kvcache::TokenId>{100, 101, 102, 103, 104}));
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(prompt[request.images[0].position + i], prompt[request.images[2].position + i]);
    EXPECT_GE(prompt[request.images[0].position + i], kImageTokenBase);
  }
  EXPECT_NE(prompt[request.images[0].position], prompt[request.images[1].position]);
}

// Prompts share what is equal in front: the same image, and nothing of another.
TEST(Images, EqualImagesSharePrefixes) {
  const char* const lines =
      R"({"arrival_time":0,"prompt_len":5,"max_new_tokens":1,"images":[[40,9]],"image_ids":[1]}
{"arrival_time":1,"prompt_len":5,"max_new_tokens":1,"images":[[40,9]],"image_ids":[1]}
{"arrival_time":2,"prompt_len":5,"max_new_tokens":1,"images":[[40,9]],"image_ids":[2]}
{"arrival_time":3,"prompt_len":5,"max_new_tokens":1,"images":[[41,9]],"image_ids":[1]})";
  const Workload workload = placed(lines);
  kvcache::RadixCache cache({}, nullptr, nullptr);
  cache.insert(workload.requests[0].prompt, 1000, {}, 0, 0);
  const auto shared = [&](std::size_t i) {
    return cache.match_prefix(workload.requests[i].prompt, 1000, 0).matched_tokens;
  };
  EXPECT_EQ(shared(1), 1U + 40 + 1);
  EXPECT_EQ(shared(2), 1U) << "the marker";
  EXPECT_EQ(shared(3), 1U) << "another size";
}

TEST(Images, AzureCountsThemInTheContext) {
  const std::string text =
      "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2024-10-15 00:00:00.0,2,100,5\n"
      "2024-10-15 00:00:01.0,0,30,5\n2024-10-15 00:00:02.0,3,10,5\n";
  const Workload workload = placed(text, 20, 7);
  EXPECT_EQ(workload.requests[0].prompt.size(), 100U);
  EXPECT_EQ(workload.requests[0].images[1].position, 20U + 3);
  EXPECT_EQ(workload.requests[1].prompt.size(), 30U);
  EXPECT_EQ(workload.requests[2].prompt.size(), 3U * 22 + 1)
      << "more images than it has room for, and one token";
  EXPECT_THROW(placed(text), UserError) << "their size is not known";
}

TEST(Images, SurviveTheOwnFormat) {
  const std::string line =
      R"({"arrival_time":0,"prompt":[[0,5]],"max_new_tokens":1,"images":[[3,9],[2,9]],"image_ids":[7,8],"image_positions":[0,2]})";
  const Workload once = read_trace(line, "trace", {});
  EXPECT_EQ(read_trace(format_trace(once, "tpsim"), "trace", {}).requests, once.requests);
  const Workload unnamed =
      read_trace(R"({"arrival_time":0,"prompt":[[0,5]],"max_new_tokens":1,"images":[[3,9]]})", "trace", {});
  EXPECT_EQ(read_trace(format_trace(unnamed, "tpsim"), "trace", {}).requests, unnamed.requests);
  EXPECT_THROW(format_trace(once, "mooncake"), UserError);
  EXPECT_THROW(format_trace(once, "azure"), UserError);
}

TEST(Images, RefusesNonsense) {
  const auto line = [](const std::string& fields) {
    return R"({"arrival_time":0,"prompt_len":5,"max_new_tokens":1,)" + fields + "}";
  };
  for (const char* const fields :
       {R"("images":3)", R"("images":[3,4])", R"("images":[[0,4]])", R"("images":[[4,70000]])",
        R"("image_ids":[1])", R"("images":[[4,4]],"image_ids":[1,2])",
        R"("images":[[4,4]],"image_ids":[9223372036854775808])",
        R"("images":[[4,4],[4,4]],"image_positions":[2,1])", R"("image_positions":[2])"}) {
    EXPECT_THROW(read_trace(line(fields), "trace", {}), UserError) << fields;
  }
  EXPECT_NO_THROW(placed(line(R"("images":[])")));
  EXPECT_THROW(placed(line(R"("images":[[4,4]],"image_positions":[6])")), UserError) << "behind the prompt";
}

// Lengths of the text are those that the benchmark draws; images differ, unless they are blank.
TEST(Images, TheBenchmarksDataset) {
  ImageOptions options;
  options.text = {.num_prompts = 50,
                  .random_input_len = 100,
                  .random_output_len = 20,
                  .random_range_ratio = 0.5,
                  .seed = 4};
  options.image_count = 3;
  options.resolution = parse_image_resolution("random:10x20-30x40");
  const Workload plain = in_memory(RandomWorkload(options.text));
  const Workload workload = in_memory(ImageWorkload(options));
  ASSERT_EQ(workload.requests.size(), 50U);
  for (std::size_t i = 0; i < workload.requests.size(); ++i) {
    EXPECT_EQ(workload.requests[i].prompt.size(), plain.requests[i].prompt.size());
    EXPECT_EQ(workload.requests[i].max_new_tokens, plain.requests[i].max_new_tokens);
    ASSERT_EQ(workload.requests[i].images.size(), 3U);
    for (const ImageInput& image : workload.requests[i].images) {
      EXPECT_GE(image.height, 10U);
      EXPECT_LE(image.height, 30U);
      EXPECT_GE(image.width, 20U);
      EXPECT_LE(image.width, 40U);
    }
  }
  EXPECT_NE(workload.requests[0].images[0].content, workload.requests[0].images[1].content);
  options.blank = true;
  EXPECT_EQ(in_memory(ImageWorkload(options)).requests[0].images[0].content,
            in_memory(ImageWorkload(options)).requests[9].images[2].content);
  options.random_image_count = true;
  for (const WorkloadRequest& request : in_memory(ImageWorkload(options)).requests) {
    EXPECT_GE(request.images.size(), 1U);
    EXPECT_LE(request.images.size(), 3U);
  }
}

TEST(Images, Resolutions) {
  EXPECT_EQ(parse_image_resolution("720p").max_width, 1280U);
  EXPECT_EQ(parse_image_resolution("1080x1920").min_width, 1920U);
  for (const char* const text :
       {"", "x", "0x5", "5x", "5x70000", "720", "random:1x1", "random:9x9-1x1", "1080px"})
    EXPECT_THROW(parse_image_resolution(text), UserError) << text;
}

}  // namespace
}  // namespace tpsim::scheduler
