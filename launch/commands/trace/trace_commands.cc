#include "launch/commands/trace/trace_commands.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <vector>

#include "launch/cli/terminal.h"
#include "proto/base/error.h"
#include "scheduler/workload/conversations.h"
#include "scheduler/workload/statistics.h"
#include "scheduler/workload/trace_reader.h"
#include "scheduler/workload/trace_writer.h"

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

// For a terminal: a table of lengths, the best hit rates and a bar for each interval of time.
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

// The same figures as one JSON object, unrounded.
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

std::string format_list(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

struct InspectFlags {
  std::string file;
  scheduler::ReadOptions read;
  std::vector<std::uint32_t> page_sizes = {16, 64};
  std::uint32_t intervals = 30;
  bool json = false;
};

int inspect(const InspectFlags& flags) {
  constexpr std::uint32_t kMaxPageSize = 1 << 20;
  constexpr std::uint32_t kMaxIntervals = 100'000;
  std::vector<std::uint32_t> page_sizes = {1};
  for (const std::uint32_t page_size : flags.page_sizes) {
    if (page_size == 0 || page_size > kMaxPageSize) {
      throw_user_error("--page-size is {}; a whole number from 1 to {} is needed", page_size, kMaxPageSize);
    }
    if (page_size != 1) page_sizes.push_back(page_size);
  }
  if (flags.intervals == 0 || flags.intervals > kMaxIntervals) {
    throw_user_error("--intervals is {}; a whole number from 1 to {} is needed", flags.intervals,
                     kMaxIntervals);
  }
  const std::unique_ptr<const scheduler::StreamedWorkload> workload =
      scheduler::open_trace(flags.file, flags.read);
  const scheduler::WorkloadStatistics statistics =
      scheduler::describe(*workload, page_sizes, flags.intervals);
  print(flags.json ? inspect_json(statistics) : inspect_text(statistics));
  return 0;
}

struct ConvertFlags {
  std::string input;
  std::string output;
  scheduler::ReadOptions read;
  std::string format = "tpsim";
  double time_scale = 1;
};

int convert(const ConvertFlags& flags) {
  if (!(flags.time_scale >= 0 && flags.time_scale <= 1e6)) {
    throw_user_error("--time-scale is {}; a number from 0 to 1000000 is needed (0.5 = twice as fast)",
                     flags.time_scale);
  }
  scheduler::Workload workload = scheduler::read_trace(std::filesystem::path(flags.input), flags.read);
  for (scheduler::WorkloadRequest& request : workload.requests) {
    request.arrival_time *= flags.time_scale;
    if (request.think_time) *request.think_time *= flags.time_scale;
  }
  const bool printed =
      scheduler::write_trace_file(flags.output, scheduler::format_trace(workload, flags.format));
  for (const std::string& note : workload.notes) fmt::print(stderr, "note: {}\n", note);
  if (printed) return 0;
  print(fmt::format("{}: {} requests, {} → {}\n", flags.output, workload.requests.size(), workload.format,
                    flags.format));
  return 0;
}

struct GenerateFlags {
  std::string output;
  scheduler::ConversationOptions options;
};

int generate(const GenerateFlags& flags) {
  const scheduler::Workload workload = scheduler::make_conversations(flags.options);
  const bool printed = scheduler::write_trace_file(flags.output, scheduler::format_trace(workload, "tpsim"));
  if (printed) return 0;
  print(fmt::format("{}: {} requests over {:.1f} s; see `tpsim trace inspect {}`\n", flags.output,
                    workload.requests.size(), workload.requests.back().arrival_time, flags.output));
  return 0;
}

// Whether `text` is wholly a number that `Number` holds.
template <typename Number>
bool reads(const std::string& text) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end;
}

// An option for a number, or several. CLI11 alone would take -1, and what is too large, for the largest whole
// number, and nothing for 0.
template <typename Number>
CLI::Option* add_number(CLI::App& command, const std::string& name, Number& value,
                        const std::string& description) {
  return command.add_option(name, value, description)->check([](const std::string& text) {
    using Item = std::conditional_t<std::is_arithmetic_v<Number>, Number, std::uint32_t>;
    if (reads<Item>(text)) return std::string();
    return std::is_integral_v<Item>
               ? fmt::format("{} is not a whole number from 0 to {}", text, std::numeric_limits<Item>::max())
               : text + " is not a number";
  });
}

// The flags live as long as the command: CLI11 keeps references to them.
template <typename Flags>
std::shared_ptr<Flags> flags_of(CLI::App& command, Action& action, int (*act)(const Flags&)) {
  auto flags = std::make_shared<Flags>();
  command.option_defaults()->always_capture_default();
  command.final_callback([flags, &action, act] { action = [flags, act] { return act(*flags); }; });
  return flags;
}

void add_inspect(CLI::App& trace, Action& action) {
  CLI::App& command = *trace.add_subcommand(
      "inspect",
      "Print counts, length percentiles, arrivals over time and the best possible prefix hit rate");
  const auto flags = flags_of<InspectFlags>(command, action, inspect);
  command.add_option("FILE", flags->file, "Trace file, plain or gzip-compressed")->required();
  command.add_option("--format", flags->read.format,
                     "auto, or " + format_list(scheduler::trace_format_names()));
  add_number(command, "--num-prompts", flags->read.num_prompts,
             "Look at this many requests, the first ones; 0 = all");
  command.add_flag("--sort", flags->read.sort, "Put requests in order of arrival first");
  add_number(command, "--page-size", flags->page_sizes, "Page sizes to give hit rates for, besides 1: 16,64")
      ->delimiter(',')
      ->allow_extra_args(false);
  add_number(command, "--intervals", flags->intervals, "Lines of the chart of arrivals");
  command.add_flag("--json", flags->json, "Print one JSON object");
}

void add_convert(CLI::App& trace, Action& action) {
  CLI::App& command =
      *trace.add_subcommand("convert", "Write a trace in another format, in order, or at another speed");
  const auto flags = flags_of<ConvertFlags>(command, action, convert);
  command.add_option("IN", flags->input, "Trace file, plain or gzip-compressed")->required();
  command.add_option("OUT", flags->output, "File to write; compressed if its name ends in .gz")->required();
  command.add_option("--from", flags->read.format,
                     "Format of IN: auto, or " + format_list(scheduler::trace_format_names()));
  command.add_option("--format", flags->format,
                     "Format of OUT: " + format_list(scheduler::writable_format_names()));
  command.add_flag("--sort", flags->read.sort, "Put requests in order of arrival");
  add_number(command, "--time-scale", flags->time_scale,
             "Arrival and think times are multiplied by this; 0.5 = twice as fast");
  add_number(command, "--num-prompts", flags->read.num_prompts,
             "Keep this many requests, the first ones; 0 = all");
}

void add_generate(CLI::App& trace, Action& action) {
  CLI::App& command = *trace.add_subcommand(
      "generate", "Make a trace of multi-turn conversations with shared system prompts and bursty arrivals");
  const auto flags = flags_of<GenerateFlags>(command, action, generate);
  scheduler::ConversationOptions& o = flags->options;
  command.add_option("--output", flags->output, "File to write; compressed if its name ends in .gz")
      ->required();
  add_number(command, "--num-conversations", o.num_conversations, "0 = as many as begin within --duration");
  add_number(command, "--duration", o.duration, "Seconds after which nothing arrives; 0 = no limit");
  add_number(command, "--request-rate", o.request_rate,
             "Requests per second that the starts of conversations are spaced for");
  add_number(command, "--burstiness", o.burstiness,
             "Coefficient of variation of the gaps between starts; 1 = Poisson");
  add_number(command, "--system-prompts", o.system_prompts, "Different system prompts; 0 = none");
  add_number(command, "--system-prompt-median", o.system_prompt_median, "Tokens");
  add_number(command, "--system-prompt-sigma", o.system_prompt_sigma, "Deviation of the logarithm");
  add_number(command, "--turns-mean", o.turns_mean, "Turns of a conversation (geometric)");
  add_number(command, "--message-median", o.message_median, "Tokens of a user's message");
  add_number(command, "--message-sigma", o.message_sigma, "Deviation of the logarithm");
  add_number(command, "--document-probability", o.document_probability,
             "Share of conversations that begin with a document");
  add_number(command, "--document-median", o.document_median, "Tokens");
  add_number(command, "--document-sigma", o.document_sigma, "Deviation of the logarithm");
  add_number(command, "--answer-median", o.answer_median, "Generated tokens");
  add_number(command, "--answer-sigma", o.answer_sigma, "Deviation of the logarithm");
  add_number(command, "--think-time-mean", o.think_time_mean, "Seconds between an answer and the next turn");
  add_number(command, "--answer-rate", o.answer_rate,
             "Tokens per second at which an answer is taken to arrive, for the arrival times of later turns");
  add_number(command, "--max-prompt-len", o.max_prompt_len, "A conversation ends before a prompt is longer");
  add_number(command, "--max-answer-len", o.max_answer_len, "Longer answers are cut");
  add_number(command, "--seed", o.seed, "Equal seed and flags, equal file");
}

}  // namespace

void add_trace_commands(CLI::App& trace, Action& action) {
  trace.require_subcommand(1);
  add_generate(trace, action);
  add_inspect(trace, action);
  add_convert(trace, action);
}

}  // namespace tpsim::launch
