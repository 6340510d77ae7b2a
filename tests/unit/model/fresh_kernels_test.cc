#include "rank/model/fresh_kernels.h"

#include <gtest/gtest.h>

#include <vector>

#include "proto/base/archive.h"

namespace tpsim::rank {
namespace {

using Decode = FreshKernelRules::Decode;

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
  FreshKernels kernels({.decode = Decode::kFa3});
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

  FreshKernels none({});
  EXPECT_EQ(decode(none, 16, 1025), 0);
}

// With larger pages than of one token every power of two of requests is another kernel, and a free list that
// begins between two 16-byte words.
TEST(FreshKernels, OfLargePagesAreOnesForEachPowerOfTwo) {
  FreshKernels kernels({.page_size = 64});
  const double first = extend(kernels, 6, 1024);  // 96 pages
  EXPECT_GT(first, 0);
  EXPECT_EQ(extend(kernels, 8, 1024), 0);
  EXPECT_EQ(extend(kernels, 3, 65), first);  // six pages
  EXPECT_EQ(extend(kernels, 4, 65), 0);
  EXPECT_EQ(extend(kernels, 1, 64), 0);  // one page: what follows begins at an odd one
  EXPECT_EQ(extend(kernels, 4, 65), first);
}

TEST(FreshKernels, OfEagerExpertsAreThoseOfMultiplesOf16) {
  FreshKernels kernels({.top_k = 6});
  EXPECT_EQ(extend(kernels, 1, 1024, true), 0);
  EXPECT_EQ(extend(kernels, 1, 4074, false), 0);
  EXPECT_GT(extend(kernels, 1, 4074, true), 0);
  EXPECT_EQ(extend(kernels, 1, 3602, true), 0);
}

// cuDNN's engines: one for lengths up to each power of two, one beyond 4,096, others for multiples of 128.
TEST(FreshKernels, OfTorchNativeAreEnginesForRangesOfLengths) {
  FreshKernels kernels({.decode = Decode::kTorchNative, .served = {{1024, 4, 64}}});
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

  FreshKernels all({.decode = Decode::kTorchNative, .served = {{}}});
  for (std::uint32_t length = 1; length < 9000; ++length) EXPECT_EQ(decode(all, 1, length), 0);
}

// What the server served before has been compiled.
TEST(FreshKernels, AreThereAfterALoadThatNeededThem) {
  FreshKernels kernels({.decode = Decode::kTriton,
                        .page_size = 64,
                        .chunk = 8192,
                        .captured = {1, 2, 4, 8, 12, 16},
                        .served = {{1024, 16}}});
  EXPECT_EQ(decode(kernels, 16, 1025), 0);
  EXPECT_EQ(extend(kernels, 8, 1024), 0);
  EXPECT_GT(decode(kernels, 12, 1025), 0);
  EXPECT_GT(extend(kernels, 16, 512), 0);

  FreshKernels all({.decode = Decode::kFa3, .page_size = 16, .top_k = 8, .served = {{}}});
  for (std::uint32_t requests = 1; requests < 64; ++requests) {
    EXPECT_EQ(decode(all, requests, 999 + requests), 0);
    EXPECT_EQ(extend(all, requests, 100 + requests, true), 0);
  }
}

TEST(FreshKernels, OfACheckpointHaveMetWhatTheyHad) {
  const FreshKernelRules rules = {.page_size = 64};
  FreshKernels kernels(rules);
  EXPECT_GT(extend(kernels, 6, 1024), 0);
  EXPECT_GT(extend(kernels, 3, 65), 0);
  EXPECT_EQ(extend(kernels, 1, 64), 0);  // what follows begins at an odd page
  StateWriter writer;
  writer(kernels);
  FreshKernels later(rules);
  StateReader reader(writer.bytes());
  reader(later);
  EXPECT_TRUE(reader.at_end());
  EXPECT_EQ(extend(later, 6, 1024), extend(kernels, 6, 1024));
  EXPECT_EQ(extend(later, 6, 1024), 0);
  EXPECT_EQ(extend(later, 4, 65), extend(kernels, 4, 65));
}

}  // namespace
}  // namespace tpsim::rank
