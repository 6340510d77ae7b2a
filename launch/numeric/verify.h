// Whether sharding, paging, prefix reuse, batching and the backends' plans change what a model says: the same
// prompts through every combination, against the dense reference (rank/numeric/dense_reference.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "launch/flags/server_args.h"
#include "launch/simulation/prompts.h"

namespace tpsim::launch {

struct VerifyPlan {
  std::vector<std::string> backends;
  std::vector<std::uint32_t> tp_sizes;
  std::vector<Prompt> prompts;
  std::uint32_t max_new_tokens = 16;
  double tolerance = 1e-4;  // of a logit, relative to the largest of its prompt
};

// All variants of one backend at one --tp.
struct VerifyRow {
  std::uint32_t tp_size = 1;
  std::string backend;
  std::string refused;  // why the backend cannot serve this model; empty: it can
  std::uint32_t variants = 0;
  std::uint64_t cached_tokens = 0;  // prompt tokens that were reused, in all variants
  double largest_difference = 0;    // of a logit at the last prompt position, relative
  std::string worst_variant;
  std::uint32_t tokens = 0;        // generated, in all variants
  std::uint32_t wrong_tokens = 0;  // unlike the reference's greedy ones
  bool agrees(double tolerance) const;
};

// Computes all of it in this process. `on_progress` is told what is computed now, and how many of all
// requests were served; `on_row` each row. Throws UserError where the model or a prompt cannot be served at
// all.
std::vector<VerifyRow> verify(const ServerArgs& args, const VerifyPlan& plan,
                              const std::function<void(const std::string& what, std::uint64_t served,
                                                       std::uint64_t total)>& on_progress,
                              const std::function<void(const VerifyRow& row)>& on_row);

// Prompts that share prefixes and differ in length, seeded.
std::vector<Prompt> make_verify_prompts(std::uint32_t vocab_size, std::uint32_t longest, std::uint64_t seed);

}  // namespace tpsim::launch
