#include "launch/commands/trace/inspect_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

namespace tpsim::launch {
namespace {

using scheduler::Distribution;
using scheduler::WorkloadStatistics;

// 12345678 → "12,345,678", whatever the locale.
std::string grouped(std::uint64_t value) {
  std::string digits = fmt::format("{}", value);
  for (std::size_t at = digits.size(); at > 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

// A bar of `length` eighths of a character cell.
std::string bar(std::size_t eighths) {
  constexpr std::array<std::string_view, 8> kPartial = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  std::string out;
  for (std::size_t i = 0; i < eighths / 8; ++i) out += "█";
  return out + std::string(kPartial[eighths % 8]);
}

nlohmann::ordered_json to_json(const Distribution& d) {
  return {{"mean", d.mean}, {"p1", d.p1},   {"p5", d.p5},   {"p25", d.p25}, {"p50", d.p50},
          {"p75", d.p75},   {"p90", d.p90}, {"p95", d.p95}, {"p99", d.p99}, {"max", d.max}};
}

void put_distribution(fmt::memory_buffer& out, std::string_view name, const Distribution& d) {
  fmt::format_to(std::back_inserter(out),
                 "  {:<8}{:>9.1f}{:>9.0f}{:>9.0f}{:>9.0f}{:>9.0f}{:>9.0f}{:>9.0f}{:>9.0f}{:>9.0f}{:>9.0f}\n",
                 name, d.mean, d.p1, d.p5, d.p25, d.p50, d.p75, d.p90, d.p95, d.p99, d.max);
}

void put_seconds(fmt::memory_buffer& out, std::string_view name, const Distribution& d) {
  fmt::format_to(std::back_inserter(out),
                 "  {:<18}mean {:.1f} s, p50 {:.1f}, p90 {:.1f}, p99 {:.1f}, max {:.1f}\n", name, d.mean,
                 d.p50, d.p90, d.p99, d.max);
}

}  // namespace

std::string inspect_text(const WorkloadStatistics& s) {
  fmt::memory_buffer out;
  const auto put = [&out](auto format, const auto&... args) {
    fmt::format_to(std::back_inserter(out), fmt::runtime(format), args...);
  };
  put("{} ({})\n", s.name, s.format);
  for (const std::string& note : s.notes) put("  note: {}\n", note);
  put("  requests          {}\n", grouped(s.requests));
  put("  prompt tokens     {} in {} runs\n", grouped(s.input_tokens), grouped(s.prompt_runs));
  put("  generated tokens  {}\n", grouped(s.output_tokens));
  if (s.sessions > 0) {
    put("  conversations     {} of {:.2f} turns, at most {:.0f}\n", grouped(s.sessions), s.session_turns.mean,
        s.session_turns.max);
    if (s.turns < s.requests) put("  single requests   {}\n", grouped(s.requests - s.turns));
    const std::uint64_t later = s.turns - s.sessions;
    if (later > 0) put_seconds(out, "between turns", s.turn_gap);
    if (s.named_think > 0) put_seconds(out, "think times", s.think_time);
    if (s.named_think < later) {
      put("  {} of {} later turns name no think time: they keep their distance to the turn before\n",
          grouped(later - s.named_think), grouped(later));
    }
  }
  if (s.namespaces > 1) put("  cache namespaces  {}\n", grouped(s.namespaces));
  if (s.duration > 0) {
    put("  duration          {:.1f} s, {:.3f} requests/s, burstiness {:.2f} (1 = Poisson)\n", s.duration,
        s.request_rate, s.burstiness);
  } else {
    put("  duration          0 s: all requests arrive at once\n");
  }
  put("\n  {:<8}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}\n", "tokens", "mean", "p1", "p5", "p25",
      "p50", "p75", "p90", "p95", "p99", "max");
  put_distribution(out, "prompt", s.input_length);
  put_distribution(out, "output", s.output_length);
  put("\n  best possible prefix hit rate (unlimited cache, every request done before the next)\n");
  for (const scheduler::BestHitRate& best : s.best_hit_rates) {
    put("  page size {:<4} {:>6.2f}%  {} tokens\n", best.page_size, 100 * best.hit_rate,
        grouped(best.hit_tokens));
  }
  if (!s.arrivals.empty()) {
    put("\n  requests/s over time, {:.4g} s a line\n", s.interval);
    const std::uint64_t most = *std::max_element(s.arrivals.begin(), s.arrivals.end());
    constexpr std::uint64_t kWidth = 50 * 8;
    for (std::size_t i = 0; i < s.arrivals.size(); ++i) {
      put("  {:>9.1f} s {:>9.3f} {}\n", static_cast<double>(i) * s.interval,
          static_cast<double>(s.arrivals[i]) / s.interval, bar(s.arrivals[i] * kWidth / most));
    }
  }
  return fmt::to_string(out);
}

std::string inspect_json(const WorkloadStatistics& s) {
  nlohmann::ordered_json json = {{"name", s.name},
                                 {"format", s.format},
                                 {"notes", s.notes},
                                 {"requests", s.requests},
                                 {"sessions", s.sessions},
                                 {"turns", s.turns},
                                 {"named_think_times", s.named_think},
                                 {"session_turns", to_json(s.session_turns)},
                                 {"turn_gap", to_json(s.turn_gap)},
                                 {"think_time", to_json(s.think_time)},
                                 {"namespaces", s.namespaces},
                                 {"total_input_tokens", s.input_tokens},
                                 {"total_output_tokens", s.output_tokens},
                                 {"prompt_runs", s.prompt_runs},
                                 {"input_length", to_json(s.input_length)},
                                 {"output_length", to_json(s.output_length)},
                                 {"duration", s.duration},
                                 {"request_rate", s.request_rate},
                                 {"burstiness", s.burstiness},
                                 {"interval", s.interval},
                                 {"arrivals", s.arrivals},
                                 {"best_hit_rates", nlohmann::ordered_json::array()}};
  for (const scheduler::BestHitRate& best : s.best_hit_rates) {
    json["best_hit_rates"].push_back(
        {{"page_size", best.page_size}, {"hit_tokens", best.hit_tokens}, {"hit_rate", best.hit_rate}});
  }
  // A file name need not be UTF-8; JSON must be.
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace tpsim::launch
