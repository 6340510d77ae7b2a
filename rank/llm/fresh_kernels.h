// What a server compiles when it meets a batch of a size that it has not had yet.
//
// SGLang 0.5 prepares a pass with small Triton kernels, and runs eager experts with one. Triton compiles a
// variant for an argument that is 1, one for multiples of 16 and one for other values, for every power of two
// where the number of requests is a constant of the kernel, and for a pool's free list that begins at 16
// bytes or between; where an argument becomes or stops being a constant, the C code that launches the kernel
// anew. The thread that issues passes waits. Every variant seen in the compiler's log of SGLang 0.5.12
// servers on H200s (shared/measure with the compiler timed) is one of these; which of them another server of
// the machine has left in Triton's cache on disk nobody can tell.
//
// torch_native's decode is cuDNN's, which compiles an engine the first time that its heuristics choose it:
// for KV lengths up to each power of two and beyond 4,096, and for multiples of 128 tokens another one each
// (stalls of a server's decode steps, and lengths tried one by one with PyTorch 2.11 alone). The plan that it
// builds for every single length is the backend's (attention/backends/torch_native.cc).
#pragma once

#include <cstdint>
#include <set>
#include <tuple>
#include <vector>

#include "attention/backend.h"
#include "attention/backend_description.h"
#include "proto/host.pb.h"

namespace tpsim::rank {

// A load that the server has served since it started.
struct ServedLoad {
  std::uint32_t input = 0;         // tokens of each prompt; 0: prompts and batches of all sizes
  std::uint32_t max_requests = 1;  // in flight
  std::uint32_t output = 1;        // tokens of each answer
};

struct FreshKernelRules {
  attention::FreshDecode decode = attention::FreshDecode::kNone;
  std::uint32_t page_size = 1;               // tokens
  std::uint32_t chunk = 0;                   // tokens of the largest prefill; 0: any number
  std::uint32_t top_k = 0;                   // of experts that Triton multiplies; 0: none
  std::vector<std::uint32_t> captured = {};  // batch sizes, ascending
  std::vector<ServedLoad> served = {};       // since its warm-up: one prompt of 3,000 tokens
  // A server that does not prefill: KV comes request by request, and its batches have all sizes up to a
  // load's (disaggregation/decode.py, get_new_prebuilt_batch). Elsewhere those of a closed load begin
  // together.
  bool decodes_alone = false;
};

class FreshKernels {
 public:
  FreshKernels(FreshKernelRules rules, const proto::HostProfile::Compiling& host);
  // Seconds that the host compiles before this pass; `eager`: its products are not in a captured graph.
  double compile_seconds(const attention::ForwardMetadata& pass, bool eager);

  template <typename Archive>
  void serialize(Archive& archive) {
    archive(met_, odd_pages_);
  }

 private:
  enum class Kernel : std::uint8_t {
    kMetadata,
    kSplits,
    kLauncher,
    kExtendPages,
    kDecodePages,
    kExperts,
    kDrafts,
    kEngine
  };
  // What it takes, where it is the first.
  double meet(Kernel kernel, std::uint64_t size, std::uint64_t other = 0);
  double decode(std::uint32_t requests, std::uint32_t bucket, std::uint32_t longest);
  double attend(std::uint32_t length);
  void serve(const ServedLoad& load);

  FreshKernelRules rules_;
  proto::HostProfile::Compiling host_;
  std::set<std::tuple<Kernel, std::uint64_t, std::uint64_t>> met_;
  bool odd_pages_ = false;  // handed out since the pool was flushed
};

}  // namespace tpsim::rank
