#include "rank/llm/fresh_kernels.h"

#include <gtest/gtest.h>

#include <vector>

#include "proto/base/archive.h"
#include "rank/cost/hardware.h"

namespace tpsim::rank {
namespace {

using Decode = attention::FreshDecode;

const proto::HostProfile::Compiling& host() {
  static const proto::HostProfile::Compiling constants = load_host("h200-sxm").compiling();
  return constants;
}

double decode(FreshKernels& kernels, std::uint32_t requests, std::uint32_t length) {
  const std::vector<std::uint32_t> lengths(requests, length);
  attention::ForwardMetadata pass;
  pass.forward_mode = proto::DECODE;
  pass.decode_seq_lens = lengths;
  pass.capture_bucket = requests;
  return kernels.compile_seconds(pass, false);
}

double extend(FreshKernels& kernels, std::uint32_t requests, std::uint32_t length, bool eager = false) {
  const std::vector<std::uint32_t> lengths(requests, length), prefixes(requests, 0);
  attention::ForwardMetadata pass;
  pass.forward_mode = proto::EXTEND;
  pass.extend_lens = lengths;
  pass.extend_prefix_lens = prefixes;
  return kernels.compile_seconds(pass, eager);
}

// Triton has variants for 1, for multiples of 16 and for the rest, of requests and of the longest one's
// pages; the code that launches them differs for 1.
TEST(FreshKernels, AreCompiledOnceForEachKindOfSize) {
  FreshKernels kernels({.decode = Decode::kMetadata}, host());
  EXPECT_EQ(decode(kernels, 1, 1025), 0);  // met when the server was warmed up
  EXPECT_EQ(decode(kernels, 1, 1040), 0);
  const double first = decode(kernels, 16, 1025);
  const double longest = decode(kernels, 16, 1040);
  EXPECT_GT(first, longest);
  EXPECT_GT(longest, 0);
  EXPECT_EQ(decode(kernels, 32, 1041), 0);
  EXPECT_EQ(decode(kernels, 7, 1041), longest);
  EXPECT_EQ(decode(kernels, 8, 1042), 0);
  EXPECT_EQ(extend(kernels, 8, 1024), 0);

  FreshKernels none({}, host());
  EXPECT_EQ(decode(none, 16, 1025), 0);
}

// A closed load of 16 begins with all of them, unless requests come to a server that decodes one by one.
TEST(FreshKernels, BatchesOfADecodeServerGrow) {
  const std::vector<std::uint32_t> captured = {1, 2, 4, 8, 16};
  FreshKernelRules rules{.decode = Decode::kMetadata, .captured = captured, .served = {{1024, 16, 128}}};
  FreshKernels together(rules, host());
  EXPECT_EQ(decode(together, 16, 1025), 0);
  EXPECT_GT(decode(together, 4, 1025), 0);
  rules.decodes_alone = true;
  FreshKernels one_by_one(rules, host());
  for (const std::uint32_t length : {1025, 1040}) EXPECT_EQ(decode(one_by_one, 4, length), 0);
  rules.served = {{1024, 1, 128}};
  FreshKernels single(rules, host());
  EXPECT_GT(decode(single, 4, 1025), 0);
}

// With larger pages than of one token every power of two of requests is another kernel, and a free list that
// begins between two 16-byte words.
TEST(FreshKernels, OfLargePagesAreOnesForEachPowerOfTwo) {
  FreshKernels kernels({.page_size = 64}, host());
  const double first = extend(kernels, 6, 1024);  // 96 pages
  EXPECT_GT(first, 0);
  EXPECT_EQ(extend(kernels, 8, 1024), 0);
  EXPECT_EQ(extend(kernels, 3, 65), first);  // six pages
  EXPECT_EQ(extend(kernels, 4, 65), 0);
  EXPECT_EQ(extend(kernels, 1, 64), 0);  // one page: what follows begins at an odd one
  EXPECT_EQ(extend(kernels, 4, 65), first);
}

TEST(FreshKernels, OfEagerExpertsAreThoseOfMultiplesOf16) {
  FreshKernels kernels({.top_k = 6}, host());
  EXPECT_EQ(extend(kernels, 1, 1024, true), 0);
  EXPECT_EQ(extend(kernels, 1, 4074, false), 0);
  EXPECT_GT(extend(kernels, 1, 4074, true), 0);
  EXPECT_EQ(extend(kernels, 1, 3602, true), 0);
}

// cuDNN's engines: one for lengths up to each power of two, one beyond 4,096, others for multiples of 128.
TEST(FreshKernels, OfTorchNativeAreEnginesForRangesOfLengths) {
  FreshKernels kernels({.decode = Decode::kEngines, .served = {{1024, 4, 64}}}, host());
  EXPECT_EQ(decode(kernels, 1, 3010), 0);  // met when the server was warmed up
  EXPECT_EQ(decode(kernels, 8, 1500), 0);  // and by the load
  const double engine = decode(kernels, 1, 1152);
  EXPECT_GT(engine, 0);
  EXPECT_EQ(decode(kernels, 16, 1280), 0);
  EXPECT_EQ(decode(kernels, 1, 4097), engine);
  EXPECT_EQ(decode(kernels, 1, 16385), 0);
  EXPECT_EQ(decode(kernels, 1, 16384), engine);
  EXPECT_EQ(decode(kernels, 1, 2048), 0);
  EXPECT_EQ(decode(kernels, 1, 1024), engine);
  EXPECT_EQ(decode(kernels, 1, 300), engine);

  FreshKernels all({.decode = Decode::kEngines, .served = {{}}}, host());
  for (std::uint32_t length = 1; length < 9000; ++length) EXPECT_EQ(decode(all, 1, length), 0);
}

// What the server served before has been compiled.
TEST(FreshKernels, AreThereAfterALoadThatNeededThem) {
  FreshKernels kernels({.decode = Decode::kSplits,
                        .page_size = 64,
                        .chunk = 8192,
                        .captured = {1, 2, 4, 8, 12, 16},
                        .served = {{1024, 16}}},
                       host());
  EXPECT_EQ(decode(kernels, 16, 1025), 0);
  EXPECT_EQ(extend(kernels, 8, 1024), 0);
  EXPECT_GT(decode(kernels, 12, 1025), 0);
  EXPECT_GT(extend(kernels, 16, 512), 0);

  FreshKernels all({.decode = Decode::kMetadata, .page_size = 16, .top_k = 8, .served = {{}}}, host());
  for (std::uint32_t requests = 1; requests < 64; ++requests) {
    EXPECT_EQ(decode(all, requests, 999 + requests), 0);
    EXPECT_EQ(extend(all, requests, 100 + requests, true), 0);
  }
}

TEST(FreshKernels, OfACheckpointHaveMetWhatTheyHad) {
  const FreshKernelRules rules = {.page_size = 64};
  FreshKernels kernels(rules, host());
  EXPECT_GT(extend(kernels, 6, 1024), 0);
  EXPECT_GT(extend(kernels, 3, 65), 0);
  EXPECT_EQ(extend(kernels, 1, 64), 0);  // what follows begins at an odd page
  StateWriter writer;
  writer(kernels);
  FreshKernels later(rules, host());
  StateReader reader(writer.bytes());
  reader(later);
  EXPECT_TRUE(reader.at_end());
  EXPECT_EQ(extend(later, 6, 1024), extend(kernels, 6, 1024));
  EXPECT_EQ(extend(later, 6, 1024), 0);
  EXPECT_EQ(extend(later, 4, 65), extend(kernels, 4, 65));
}

}  // namespace
}  // namespace tpsim::rank
