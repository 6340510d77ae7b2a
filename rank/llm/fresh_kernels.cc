#include "rank/llm/fresh_kernels.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "proto/base/ceil_div.h"

namespace tpsim::rank {
namespace {

constexpr std::uint32_t kWarmUpTokens = 3000;
constexpr std::uint32_t kMostRequests = 256;

// 1 and multiples of 16 are constants or hints to Triton, all others alike.
std::uint64_t size_class(std::uint64_t value) { return value == 1 ? 1 : value % 16 == 0 ? 16 : 0; }

// Which of cuDNN's engines attends to `length` tokens, and whether it is the one for multiples of 128.
constexpr std::uint64_t kLargestEngine = 13;  // more than 4,096 tokens
std::uint64_t engine_size(std::uint32_t length) {
  return std::min(static_cast<std::uint64_t>(std::bit_width(length - 1)), kLargestEngine);
}
std::uint64_t engine_alignment(std::uint32_t length) { return length % 128 == 0 ? 1 : 0; }

std::uint32_t pages(std::uint32_t tokens, std::uint32_t page_size) { return ceil_div(tokens, page_size); }

}  // namespace

FreshKernels::FreshKernels(FreshKernelRules rules, const proto::HostProfile::Compiling& host)
    : rules_(std::move(rules)), host_(host) {
  for (const std::uint64_t length : {0, 16}) meet(Kernel::kMetadata, 1, length);
  meet(Kernel::kSplits, 1);
  meet(Kernel::kExtendPages, 1, 0);
  for (const std::uint64_t odd : {0, 1}) meet(Kernel::kDecodePages, 1, odd);
  meet(Kernel::kExperts, size_class(std::uint64_t{kWarmUpTokens} * rules_.top_k));
  meet(Kernel::kDrafts, 1);
  attend(kWarmUpTokens + 1);
  for (const ServedLoad& load : rules_.served) serve(load);
}

void FreshKernels::serve(const ServedLoad& load) {
  const bool all = load.input == 0;
  const std::uint32_t most = all ? kMostRequests : load.max_requests;
  const bool grows = all || (rules_.decodes_alone && most > 1);  // batches of all sizes up to that
  std::uint32_t together = most;                                 // in one prefill
  if (!all && rules_.chunk > 0) together = std::clamp(rules_.chunk / load.input, 1U, most);
  const auto bucket = std::lower_bound(rules_.captured.begin(), rules_.captured.end(), most);
  for (const std::uint64_t length : {0, 16}) {
    meet(Kernel::kMetadata, size_class(bucket == rules_.captured.end() ? most : *bucket), length);
    if (grows) meet(Kernel::kMetadata, 0, length);
  }
  meet(Kernel::kSplits, size_class(most));
  if (grows) meet(Kernel::kSplits, 0);
  if (most > 1) meet(Kernel::kLauncher, 0);
  // Requests that come one by one also make smaller prefills; half of a full one has been met by then.
  for (std::uint32_t size = std::bit_ceil(together); size > 0; size /= 2) {
    if (!all && 4 * size <= std::bit_ceil(together)) break;
    for (const std::uint64_t odd : {0, 1})
      if (odd == 0 || all) meet(Kernel::kExtendPages, size, odd);
  }
  for (std::uint32_t size = std::bit_ceil(most); size > 0; size = grows ? size / 2 : 0) {
    for (const std::uint64_t odd : {0, 1}) meet(Kernel::kDecodePages, size, odd);
    meet(Kernel::kDrafts, size);
  }
  meet(Kernel::kExperts, size_class(std::uint64_t{load.input} * rules_.top_k));
  if (all) meet(Kernel::kExperts, 0);
  for (std::uint32_t length = load.input + 1; !all && length <= load.input + load.output; ++length)
    attend(length);
  for (std::uint64_t size = 0; all && size <= kLargestEngine; ++size)
    for (const std::uint64_t aligned : {0, 1}) meet(Kernel::kEngine, size, aligned);
}

double FreshKernels::attend(std::uint32_t length) {
  return meet(Kernel::kEngine, engine_size(length), engine_alignment(length));
}

double FreshKernels::meet(Kernel kernel, std::uint64_t size, std::uint64_t other) {
  if (!met_.emplace(kernel, size, other).second) return 0;
  using Compiling = proto::HostProfile::Compiling;
  static constexpr double (Compiling::*kSeconds[])() const = {
      // in the order of Kernel
      &Compiling::metadata_seconds,     &Compiling::splits_seconds,       &Compiling::launcher_seconds,
      &Compiling::extend_pages_seconds, &Compiling::decode_pages_seconds, &Compiling::experts_seconds,
      &Compiling::drafts_seconds,       &Compiling::engine_seconds};
  return (host_.*kSeconds[static_cast<std::size_t>(kernel)])();
}

double FreshKernels::decode(std::uint32_t requests, std::uint32_t bucket, std::uint32_t longest) {
  const std::uint64_t size = size_class(std::max(requests, bucket));
  double seconds = 0;
  using attention::FreshDecode;
  if (rules_.decode == FreshDecode::kMetadata)
    seconds += meet(Kernel::kMetadata, size, size_class(pages(longest, rules_.page_size)) & 16);
  if (rules_.decode == FreshDecode::kSplits) seconds += meet(Kernel::kSplits, size);
  const bool launched_by_triton =
      rules_.decode == FreshDecode::kMetadata || rules_.decode == FreshDecode::kSplits;
  if (launched_by_triton && size != 1) seconds += meet(Kernel::kLauncher, 0);
  return seconds;
}

double FreshKernels::compile_seconds(const attention::ForwardMetadata& pass, bool eager) {
  double seconds = 0;
  const auto extends = static_cast<std::uint32_t>(pass.extend_lens.size());
  const auto decodes = static_cast<std::uint32_t>(pass.decode_seq_lens.size());
  if (attention::verifies_drafts(pass.forward_mode))
    return pass.forward_mode == proto::TARGET_VERIFY ? meet(Kernel::kDrafts, std::bit_ceil(extends)) : 0;
  std::uint64_t tokens = decodes;
  std::uint32_t taken = 0;
  for (std::size_t i = 0; i < extends; ++i) {
    tokens += pass.extend_lens[i];
    taken += pages(pass.extend_prefix_lens[i] + pass.extend_lens[i], rules_.page_size) -
             pages(pass.extend_prefix_lens[i], rules_.page_size);
  }
  std::uint32_t longest = 0;
  for (const std::uint32_t length : pass.decode_seq_lens) {
    longest = std::max(longest, length);
    if (rules_.decode == attention::FreshDecode::kEngines) seconds += attend(length);
    taken += (length - 1) % rules_.page_size == 0 ? 1 : 0;
  }
  if (rules_.page_size > 1) {
    if (extends > 0) seconds += meet(Kernel::kExtendPages, std::bit_ceil(extends), odd_pages_ ? 1 : 0);
    if (decodes > 0 && extends == 0)
      seconds += meet(Kernel::kDecodePages, std::bit_ceil(decodes), odd_pages_ ? 1 : 0);
    odd_pages_ = odd_pages_ != (taken % 2 != 0);
  }
  if (pass.forward_mode == proto::DECODE && decodes > 0)
    seconds += decode(decodes, pass.capture_bucket, longest);
  if (eager && rules_.top_k > 0) seconds += meet(Kernel::kExperts, size_class(tokens * rules_.top_k));
  return seconds;
}

}  // namespace tpsim::rank
