// Speculative decoding, as far as the scheduler knows of it: how many tokens a step may need, and, where
// nothing is computed, how many drafts it keeps.
//
// A step drafts some tokens of every running request and verifies num_draft_tokens of them, the token sampled
// last included, in one pass of the target model. A request keeps 1 to num_draft_tokens tokens of it: the
// drafts that the model agrees with and the one that it samples after them.
//
// Source: SGLang 0.5.23 speculative/spec_info.py, mem_cache/allocation_sizing.py, managers/schedule_batch.py
// (_new_tokens_required_next_decode_spec_v2), and of 0.5.12 schedule_batch.py
// (new_tokens_required_next_decode) and managers/utils.py.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "scheduler/releases/sglang_release.h"

namespace tpsim::scheduler {

// NEXTN is another name of EAGLE.
enum class SpeculativeAlgorithm : std::uint8_t { kNone, kEagle, kEagle3, kStandalone, kNgram };

// How long the accepted path is: a distribution of the tokens that a request keeps of one step, from 1 on.
class AcceptLengths {
 public:
  // Nothing is known; draw() must not be called.
  AcceptLengths() = default;
  // weights[i] is how often i + 1 tokens are kept, in any unit; some weight is positive, none negative.
  explicit AcceptLengths(std::span<const double> weights);

  // From the probability rates[i] that the first guess of draft i + 1 is right where all before it were; the
  // last rate goes on where there are more drafts. With topk guesses for each token the r-th (from 0) is
  // taken to be right with rate * (1 - rate)^r; nobody measured that. The tree of them is SGLang's: the topk
  // best leaves grow in each of num_steps steps, and the best num_draft_tokens - 1 nodes of all are verified
  // (select_top_k_tokens of speculative/spec_utils.py, organize_draft_results of eagle_utils.py).
  // REQUIRES: rates is not empty; num_steps, topk >= 1; num_draft_tokens >= 2.
  static AcceptLengths from_rates(std::span<const double> rates, std::uint32_t num_steps, std::uint32_t topk,
                                  std::uint32_t num_draft_tokens);

  bool known() const { return !cumulative_.empty(); }
  std::uint32_t longest() const { return static_cast<std::uint32_t>(cumulative_.size()); }
  double mean() const;
  // The tokens that request `id` keeps of its step number `step`: the same whatever it is batched with.
  std::uint32_t draw(std::uint64_t seed, std::uint64_t id, std::uint32_t step) const;

 private:
  std::vector<double> cumulative_;  // probability of at most i + 1 tokens; the last is 1
};

// Acceptance that changes while an answer grows: an n-gram cache knows nothing at first, and later
// repetitions, so that requests which began together end together. From each step of a request on, the first
// is 0, one distribution holds until the next.
class AcceptanceByStep {
 public:
  AcceptanceByStep() = default;
  AcceptanceByStep(AcceptLengths everywhere);  // NOLINT(google-explicit-constructor)
  // REQUIRES: `step` is above those before; the first is 0. `lengths` is known.
  void from(std::uint32_t step, AcceptLengths lengths);

  bool known() const { return !stages_.empty(); }
  // REQUIRES: known().
  const AcceptLengths& at(std::uint32_t step) const;

 private:
  struct Stage {
    std::uint32_t step;
    AcceptLengths lengths;
  };
  std::vector<Stage> stages_;
};

struct SpeculationConfig {
  SpeculativeAlgorithm algorithm = SpeculativeAlgorithm::kNone;
  std::uint32_t num_steps = 1;         // passes of the draft model, the one that extends it included
  std::uint32_t topk = 1;              // guesses for each token
  std::uint32_t num_draft_tokens = 1;  // verified of a request in a step
  // SGLang's spec v2: a step finds room for two allocated beforehand, for the result of the one before may be
  // unknown. Otherwise the step allocates what it may need and gives back what it did not keep.
  bool v2 = true;
  bool retracts_longest_first = true;  // else what joined the batch last gives way first
  bool computed = false;               // numeric execution finds out what is accepted
  AcceptanceByStep accepted = {};      // else: of requests of which the trace says nothing

  bool enabled() const { return algorithm != SpeculativeAlgorithm::kNone; }
  bool has_draft_model() const { return enabled() && algorithm != SpeculativeAlgorithm::kNgram; }
  // One that reads what the target computed (SGLang's is_eagle).
  bool has_head() const {
    return algorithm == SpeculativeAlgorithm::kEagle || algorithm == SpeculativeAlgorithm::kEagle3;
  }

  // What the releases differ in: v2 and retracts_longest_first. Overlap may be asked for in spec v1, too.
  void follow(const SglangRelease& release, bool disable_overlap_schedule);

  // Tokens after a request's KV that a step may write (v2: a multiple of two of them are reserved).
  std::uint32_t alloc_len_per_decode(std::uint32_t page_size) const;
  // Slots that spec v1 takes to draft after `length` tokens of a request, and gives back before it verifies.
  std::uint32_t drafted_tokens_v1(std::uint32_t length, std::uint32_t page_size) const;
  // What a step of spec v1 must find free for each request.
  std::uint32_t tokens_of_step_v1(std::uint32_t page_size) const;
};

}  // namespace tpsim::scheduler
