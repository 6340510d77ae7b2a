#include "launch/commands/trace/trace_commands.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <system_error>
#include <type_traits>
#include <vector>

#include "launch/cli/standard_output.h"
#include "launch/commands/trace/inspect_report.h"
#include "proto/base/error.h"
#include "scheduler/workload/conversations.h"
#include "scheduler/workload/statistics.h"
#include "scheduler/workload/streamed_trace.h"
#include "scheduler/workload/trace_reader.h"
#include "scheduler/workload/trace_writer.h"

namespace tpsim::launch {
namespace {

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

// An option for whole numbers. CLI11 alone would take -1, and what is too large, for the largest one.
template <typename Number>
CLI::Option* add_count(CLI::App& command, const std::string& name, Number& value,
                       const std::string& description) {
  return command.add_option(name, value, description)->check([](const std::string& text) {
    using Item = std::conditional_t<std::is_integral_v<Number>, Number, std::uint32_t>;
    return reads<Item>(text)
               ? std::string()
               : fmt::format("{} is not a whole number from 0 to {}", text, std::numeric_limits<Item>::max());
  });
}

// An option for any number. CLI11 alone would take nothing for 0.
CLI::Option* add_real(CLI::App& command, const std::string& name, double& value,
                      const std::string& description) {
  return command.add_option(name, value, description)->check([](const std::string& text) {
    return reads<double>(text) ? std::string() : text + " is not a number";
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
  add_count(command, "--num-prompts", flags->read.num_prompts,
            "Look at this many requests, the first ones; 0 = all");
  command.add_flag("--sort", flags->read.sort, "Put requests in order of arrival first");
  add_count(command, "--page-size", flags->page_sizes, "Page sizes to give hit rates for, besides 1: 16,64")
      ->delimiter(',')
      ->allow_extra_args(false);
  add_count(command, "--intervals", flags->intervals, "Lines of the chart of arrivals");
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
  add_real(command, "--time-scale", flags->time_scale,
           "Arrival and think times are multiplied by this; 0.5 = twice as fast");
  add_count(command, "--num-prompts", flags->read.num_prompts,
            "Keep this many requests, the first ones; 0 = all");
}

void add_generate(CLI::App& trace, Action& action) {
  CLI::App& command = *trace.add_subcommand(
      "generate", "Make a trace of multi-turn conversations with shared system prompts and bursty arrivals");
  const auto flags = flags_of<GenerateFlags>(command, action, generate);
  scheduler::ConversationOptions& o = flags->options;
  command.add_option("--output", flags->output, "File to write; compressed if its name ends in .gz")
      ->required();
  add_count(command, "--num-conversations", o.num_conversations, "0 = as many as begin within --duration");
  add_real(command, "--duration", o.duration, "Seconds after which nothing arrives; 0 = no limit");
  add_real(command, "--request-rate", o.request_rate,
           "Requests per second that the starts of conversations are spaced for");
  add_real(command, "--burstiness", o.burstiness,
           "Coefficient of variation of the gaps between starts; 1 = Poisson");
  add_count(command, "--system-prompts", o.system_prompts, "Different system prompts; 0 = none");
  add_real(command, "--system-prompt-median", o.system_prompt_median, "Tokens");
  add_real(command, "--system-prompt-sigma", o.system_prompt_sigma, "Deviation of the logarithm");
  add_real(command, "--turns-mean", o.turns_mean, "Turns of a conversation (geometric)");
  add_real(command, "--message-median", o.message_median, "Tokens of a user's message");
  add_real(command, "--message-sigma", o.message_sigma, "Deviation of the logarithm");
  add_real(command, "--document-probability", o.document_probability,
           "Share of conversations that begin with a document");
  add_real(command, "--document-median", o.document_median, "Tokens");
  add_real(command, "--document-sigma", o.document_sigma, "Deviation of the logarithm");
  add_real(command, "--answer-median", o.answer_median, "Generated tokens");
  add_real(command, "--answer-sigma", o.answer_sigma, "Deviation of the logarithm");
  add_real(command, "--think-time-mean", o.think_time_mean, "Seconds between an answer and the next turn");
  add_real(command, "--answer-rate", o.answer_rate,
           "Tokens per second at which an answer is taken to arrive, for the arrival times of later turns");
  add_count(command, "--max-prompt-len", o.max_prompt_len, "A conversation ends before a prompt is longer");
  add_count(command, "--max-answer-len", o.max_answer_len, "Longer answers are cut");
  add_count(command, "--seed", o.seed, "Equal seed and flags, equal file");
}

}  // namespace

void add_trace_commands(CLI::App& trace, Action& action) {
  trace.require_subcommand(1);
  add_generate(trace, action);
  add_inspect(trace, action);
  add_convert(trace, action);
}

}  // namespace tpsim::launch
