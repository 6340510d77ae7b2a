// SGLang's --enable-prefill-delayer: all data-parallel ranks agree, before each pass, whether any of them may
// begin prefills. They wait where only some have a prefill, and where those that run leave fewer places than
// a prefill has been seen to fill, so that ranks prefill together and in larger batches.
//
// Source: SGLang 0.5.23 managers/prefill_delayer.py; 0.5.12's where `bounded` is false.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <tuple>

namespace tpsim::scheduler {

struct PrefillDelayerConfig {
  bool enabled = false;
  std::uint32_t max_delay_passes = 30;
  std::optional<double> token_usage_low_watermark;  // below it nothing waits
  std::optional<double> queue_min_ratio;            // prefills wait for so many requests of those that run
  double max_delay_seconds = 5;                     // of `queue_min_ratio`

  bool operator==(const PrefillDelayerConfig&) const = default;
};

// What a rank says before a pass. All 0 where nothing asked to be prefilled.
struct PrefillBid {
  bool asked = false;  // a request would be prefilled, were it allowed
  double token_usage = 0;
  std::size_t running = 0;
  std::size_t waiting = 0;
  std::size_t max_prefill_bs = 0;  // requests of its largest prefill; SGLang's name
};

class PrefillDelayer {
 public:
  // `bounded`: whether ranks that all ask wait no longer than others do (ReleaseRules).
  PrefillDelayer(const PrefillDelayerConfig& config, std::size_t max_running_requests, bool bounded)
      : config_(config), max_running_requests_(max_running_requests), bounded_(bounded) {}

  // Whether the pass formed at `now` (seconds) may begin prefills. REQUIRES: bids of all ranks.
  bool allows(std::span<const PrefillBid> bids, double now);

  auto state() { return std::tie(delayed_passes_, delayed_since_, skipped_first_); }

 private:
  bool wants_more(std::span<const PrefillBid> bids, double now) const;
  bool delay(double now);
  bool allow();

  const PrefillDelayerConfig config_;
  const std::size_t max_running_requests_;  // of a rank
  const bool bounded_;
  std::uint32_t delayed_passes_ = 0;
  double delayed_since_ = 0;
  bool skipped_first_ = false;
};

// The largest of a rank's prefills, for its bids: of the last 16 that were tried, or of all that there were.
class PrefillSizes {
 public:
  std::size_t largest() const { return largest_; }
  void add_to_recent(std::size_t requests);
  void add_to_all(std::size_t requests) { largest_ = std::max(largest_, requests); }

  auto state() { return std::tie(recent_, largest_); }

 private:
  static constexpr std::size_t kRecent = 16;  // SGLANG_PREFILL_DELAYER_MAX_PREFILL_BS_WINDOW_SIZE
  std::deque<std::size_t> recent_;
  std::size_t largest_ = 0;
};

}  // namespace tpsim::scheduler
