#include "launch/lab/served/batch_comparison.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <utility>

namespace tpsim::launch {
namespace {

// Seconds since the decode batch before; 0 where `batch` does not say.
double decode_interval(const MeasuredBatch& batch) {
  if (!batch.decode || batch.tokens_per_second <= 0) return 0;
  return batch.running * std::max(1.0, batch.accept_len) / batch.tokens_per_second;
}

// A decode batch whose interval is a decode step's and nothing else's.
bool is_clean(const std::vector<MeasuredBatch>& batches, std::size_t i) {
  return i > 0 && i < batches.size() && batches[i].decode && batches[i - 1].decode &&
         (i + 1 == batches.size() || batches[i + 1].decode) && decode_interval(batches[i]) > 0;
}

// The size by which steps are found (KV tokens, or new tokens) and the time, in order of the size.
using Sized = std::vector<std::pair<std::uint64_t, double>>;

const std::pair<std::uint64_t, double>* nearest(const Sized& steps, std::uint64_t size) {
  if (steps.empty()) return nullptr;
  auto above = std::lower_bound(steps.begin(), steps.end(), std::pair(size, -1.0));
  if (above == steps.end()) return &steps.back();
  if (above == steps.begin()) return &*above;
  const auto below = std::prev(above);
  return size - below->first <= above->first - size ? &*below : &*above;
}

bool only_decodes(const std::vector<ServedStep>& steps, std::size_t i) {
  return i < steps.size() && steps[i].decode && !steps[i].prefill;
}

// The run's prefills by their requests, each as prefill_steps() would see it: a pass that the host issues
// while a prefill runs is shorter by that, and what it is shorter by is the prefill's.
std::map<std::uint32_t, Sized> served_prefills(const std::vector<ServedStep>& steps) {
  std::map<std::uint32_t, Sized> known;
  std::size_t end = 0;
  for (std::size_t begin = 0; begin < steps.size(); begin = end) {
    end = begin + 1;
    if (!steps[begin].prefill || steps[begin].decode) continue;
    while (end < steps.size() && steps[end].prefill && !steps[end].decode) ++end;
    double hidden = 0;
    if (begin >= 2 && only_decodes(steps, begin - 1) && only_decodes(steps, begin - 2) &&
        only_decodes(steps, end) && only_decodes(steps, end + 1)) {
      hidden =
          steps[begin - 1].seconds + steps[end].seconds - steps[begin - 2].seconds - steps[end + 1].seconds;
      hidden /= static_cast<double>(end - begin);
    }
    for (std::size_t i = begin; i < end; ++i)
      known[steps[i].new_seqs].emplace_back(steps[i].new_tokens, std::max(0.0, steps[i].seconds + hidden));
  }
  return known;
}

void sort(std::map<std::uint32_t, Sized>& steps) {
  for (auto& [count, list] : steps) std::sort(list.begin(), list.end());
}

struct Point {
  double time, step_ms;
  std::uint32_t running;
};

proto::BatchTimeline timeline(const std::vector<Point>& all, std::size_t points) {
  proto::BatchTimeline out;
  const std::size_t per_point =
      std::max<std::size_t>(1, (all.size() + points - 1) / std::max<std::size_t>(1, points));
  for (std::size_t begin = 0; begin < all.size(); begin += per_point) {
    const auto from = all.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto to = all.begin() + static_cast<std::ptrdiff_t>(std::min(all.size(), begin + per_point));
    const Point& longest =
        *std::max_element(from, to, [](const Point& a, const Point& b) { return a.step_ms < b.step_ms; });
    out.add_time(longest.time);
    out.add_step_ms(longest.step_ms);
    out.add_running(longest.running);
  }
  return out;
}

// Between the two values around the place where they differ.
double quantile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

std::vector<MeasuredStep> decode_steps(const std::vector<MeasuredBatch>& batches) {
  std::vector<MeasuredStep> steps;
  for (std::size_t i = 0; i < batches.size(); ++i)
    if (is_clean(batches, i)) steps.push_back({decode_interval(batches[i]), i, 1});
  return steps;
}

std::vector<MeasuredStep> prefill_steps(const std::vector<MeasuredBatch>& batches) {
  std::vector<MeasuredStep> steps;
  for (std::size_t begin = 0; begin < batches.size(); ++begin) {
    if (batches[begin].decode) continue;
    std::size_t end = begin;
    while (end < batches.size() && !batches[end].decode) ++end;
    // Idle before it: the time since the last decode batch is not the prefill's alone.
    const bool busy = batches[begin].running > 0;
    if (busy && begin >= 2 && is_clean(batches, begin - 2) && is_clean(batches, end + 1)) {
      const double seconds = decode_interval(batches[begin - 1]) + decode_interval(batches[end]) -
                             decode_interval(batches[begin - 2]) - decode_interval(batches[end + 1]);
      if (seconds > 0) steps.push_back({seconds, begin, end - begin});
    }
    begin = end;
  }
  return steps;
}

std::vector<MeasuredStep> predicted_decode_steps(const std::vector<MeasuredBatch>& batches,
                                                 const std::vector<ServedStep>& steps) {
  std::map<std::uint32_t, Sized> known;
  for (const ServedStep& step : steps)
    if (step.decode && !step.prefill) known[step.running].emplace_back(step.kv_tokens, step.seconds);
  sort(known);
  std::vector<MeasuredStep> out = decode_steps(batches);
  for (MeasuredStep& step : out) {
    const MeasuredBatch& batch = batches[step.first];
    const auto list = known.find(batch.running);
    const auto* const found = list == known.end() ? nullptr : nearest(list->second, batch.kv_tokens);
    if (found != nullptr) step.predicted = found->second;
  }
  return out;
}

std::vector<MeasuredStep> predicted_prefill_steps(const std::vector<MeasuredBatch>& batches,
                                                  const std::vector<ServedStep>& steps) {
  std::map<std::uint32_t, Sized> known = served_prefills(steps);
  sort(known);
  std::vector<MeasuredStep> out = prefill_steps(batches);
  for (MeasuredStep& step : out) {
    double seconds = 0;
    for (std::size_t i = step.first; i < step.first + step.count; ++i) {
      const auto list = known.find(batches[i].new_seqs);
      const auto* const found = list == known.end() ? nullptr : nearest(list->second, batches[i].new_tokens);
      const auto wanted = static_cast<double>(batches[i].new_tokens);
      if (found == nullptr || std::abs(static_cast<double>(found->first) - wanted) > 0.02 * wanted) {
        seconds = 0;
        break;
      }
      seconds += found->second;
    }
    step.predicted = seconds;
  }
  return out;
}

proto::StepComparison compare(const char* mode, const std::vector<MeasuredStep>& predicted) {
  proto::StepComparison out;
  out.set_mode(mode);
  for (const MeasuredStep& step : predicted) {
    if (step.predicted > 0) {
      out.add_ratios(step.predicted / step.seconds);
    } else {
      out.set_without_counterpart(out.without_counterpart() + 1);
    }
  }
  out.set_steps(static_cast<std::uint64_t>(out.ratios_size()));
  return out;
}

proto::BatchTimeline measured_timeline(const std::vector<MeasuredBatch>& batches, std::size_t points) {
  std::vector<Point> all;
  double time = 0;
  bool begun = false;
  for (const MeasuredBatch& batch : batches) {
    const double interval = decode_interval(batch);
    if (interval <= 0) continue;
    if (begun) {
      time += interval;
      all.push_back({time, 1e3 * interval, batch.running});
    }
    begun = true;
  }
  return timeline(all, points);
}

proto::BatchTimeline served_timeline(const std::vector<ServedStep>& steps, std::size_t points) {
  std::vector<Point> all;
  const ServedStep* before = nullptr;
  double begin = 0;
  for (const ServedStep& step : steps) {
    if (!step.decode) continue;
    if (before == nullptr) {
      begin = step.end;
    } else {
      all.push_back({step.end - begin, 1e3 * (step.end - before->end), step.running});
    }
    before = &step;
  }
  return timeline(all, points);
}

proto::ErrorFigures error_figures(const std::vector<double>& ratios) {
  proto::ErrorFigures out;
  if (ratios.empty()) return out;
  std::vector<double> sorted = ratios;
  std::sort(sorted.begin(), sorted.end());
  out.set_median_ratio(quantile(sorted, 0.5));
  double sum = 0;
  for (double& ratio : sorted) {
    ratio = std::abs(ratio - 1);
    sum += ratio;
  }
  std::sort(sorted.begin(), sorted.end());
  out.set_count(sorted.size());
  out.set_mean(sum / static_cast<double>(sorted.size()));
  out.set_median(quantile(sorted, 0.5));
  out.set_p90(quantile(sorted, 0.9));
  return out;
}

}  // namespace tpsim::launch
