#include "launch/flags/load_flags.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <utility>

#include "launch/cli/flag_values.h"
#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::launch {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr std::array<Named<scheduler::SessionMode>, 2> kSessionModes = {{
    {"closed", scheduler::SessionMode::kClosed},
    {"timestamps", scheduler::SessionMode::kTimestamps},
}};
// What sets gsp_zipf, and fixed_interval.
constexpr std::array<Named<bool>, 2> kGroupDistributions = {{{"uniform", false}, {"zipf", true}}};
constexpr std::array<Named<bool>, 2> kRequestIntervals = {{{"poisson", false}, {"fixed", true}}};

// The flags of --dataset-name generated-shared-prefix.
void declare_shared_prefixes(FlagSet& flags, LoadArgs& args) {
  scheduler::SharedPrefixOptions& gsp = args.gsp;
  const auto noted = [&args](FlagSet::ReadValue read) {
    return [&args, read = std::move(read)](std::string_view flag, const std::string& value) {
      if (args.gsp_flag.empty()) args.gsp_flag = flag;
      read(flag, value);
    };
  };
  flags.add_value("--gsp-num-groups", "N", "system prompts of generated-shared-prefix (default 64)",
                  noted(count(gsp.num_groups, 1)));
  flags.add_value("--gsp-prompts-per-group", "N", "prompts with each of them (default 16)",
                  noted(count(gsp.prompts_per_group, 1)));
  flags.add_value("--gsp-system-prompt-len", "TOKENS", "of a system prompt (default 2048)",
                  noted(count(gsp.system_prompt_len, 1)));
  flags.add_value("--gsp-question-len", "TOKENS", "after the system prompt (default 128)",
                  noted(count(gsp.question_len, 1)));
  flags.add_value("--gsp-output-len", "TOKENS", "of an answer (default 256)",
                  noted(count(gsp.output_len, 1)));
  flags.add_value("--gsp-range-ratio", "R", "shortest length over longest (default 1.0)",
                  noted(real(gsp.range_ratio, 0, true, 1, true)));
  flags.add_value("--gsp-num-turns", "N", "questions of a conversation (default 1)",
                  noted(count(gsp.num_turns, 1)));
  flags.add_switch("--gsp-ordered", "group after group (default: shuffled)", gsp.ordered);
  flags.add_value("--gsp-group-distribution", "KIND",
                  "uniform, or zipf: the group of each prompt is drawn (default uniform)",
                  noted(choice(kGroupDistributions, args.gsp_zipf)));
  flags.add_value("--gsp-zipf-alpha", "A", "of zipf: the k-th group comes 1/k^A as often as the first",
                  noted(real(gsp.zipf_alpha, 0, false, 1000, true)));
}

// What a dataset needs, and the flags that are another one's.
void check_dataset(const LoadArgs& args) {
  const std::string& name = args.dataset_name;
  const bool random = name == "random" || name == "random-ids" || name == "image";
  const bool shared = name == "generated-shared-prefix";
  const bool file = name == "sharegpt" || name == "mooncake";
  for (const auto& [flag, given] :
       {std::pair<std::string_view, bool>{"--random-input-len", args.random_input_len.has_value()},
        {"--random-output-len", args.random_output_len.has_value()},
        {"--random-range-ratio", args.random_range_ratio.has_value()}}) {
    if (given && !random)
      throw_user_error("{}: is for --dataset-name random and image, {}", flag,
                       shared ? "use the --gsp-* flags" : "the lengths of a trace are its own");
  }
  if (!shared && (!args.gsp_flag.empty() || args.gsp.ordered))
    throw_user_error("{}: is for --dataset-name generated-shared-prefix",
                     args.gsp_flag.empty() ? "--gsp-ordered" : args.gsp_flag);
  if (args.gsp_zipf != args.gsp.zipf_alpha.has_value())
    throw_user_error("--gsp-zipf-alpha: {} --gsp-group-distribution zipf",
                     args.gsp_zipf ? "is required by" : "needs");
  if (shared && args.num_prompts)
    throw_user_error(
        "--num-prompts {}: generated-shared-prefix makes --gsp-num-groups times --gsp-prompts-per-group "
        "conversations, leave it out",
        *args.num_prompts);
  if (file && args.dataset_path.empty())
    throw_user_error("--dataset-path: is required by --dataset-name {}, nothing is downloaded", name);
  if (!file && !args.dataset_path.empty())
    throw_user_error("--dataset-path {}: is for --dataset-name sharegpt or mooncake{}", args.dataset_path,
                     random ? ", random prompts are lengths only" : "");
}

// The times at which requests come.
void check_times(const LoadArgs& args) {
  const bool timed = args.dataset_name.empty() || args.dataset_name == "mooncake";
  if (!timed && args.time_scale)
    throw_user_error("--time-scale {}: is for --trace, use --request-rate for {}",
                     format_real(*args.time_scale), args.dataset_name);
  if (!timed && args.use_trace_timestamps)
    throw_user_error("--use-trace-timestamps: is for traces, {} has no times", args.dataset_name);
  if (args.use_trace_timestamps && args.request_rate)
    throw_user_error(
        "--use-trace-timestamps: excludes --request-rate, which replaces the times of the trace");
  if (args.dataset_name == "mooncake" && args.request_rate)
    throw_user_error(
        "--request-rate {}: SGLang's benchmark keeps the times of mooncake whatever the rate; use --trace to "
        "replace them",
        format_real(*args.request_rate));
  if (args.fixed_interval && !args.request_rate)
    throw_user_error("--request-interval fixed: needs --request-rate");
  if (args.request_rate && args.time_scale)
    throw_user_error("--time-scale {}: excludes --request-rate, which replaces the times of the trace",
                     format_real(*args.time_scale));
}

// INPUT_LEN:RANGE_RATIO:PROMPTS.
scheduler::RandomOptions read_run_before(std::string_view flag, const std::string& run) {
  const std::vector<std::string> parts = split_list(run, ':');
  if (parts.size() != 3)
    throw_user_error(
        "{} {}: must be --random-input-len, --random-range-ratio and --num-prompts of each run with colons "
        "between, for example 1000:0:80",
        flag, run);
  scheduler::RandomOptions options;
  options.random_input_len = parse_count(flag, parts[0], 1, kMaxCount);
  options.random_range_ratio = parse_real(flag, parts[1], 0, true, 1, true);
  options.num_prompts = parse_count(flag, parts[2], 1, 1'000'000);
  return options;
}

using Level = std::optional<double> scheduler::ServiceLevels::*;

constexpr std::array<std::pair<std::string_view, Level>, 4> kLevels = {{
    {"ttft", &scheduler::ServiceLevels::ttft_ms},
    {"tpot", &scheduler::ServiceLevels::tpot_ms},
    {"e2e", &scheduler::ServiceLevels::e2e_ms},
    {"e2el", &scheduler::ServiceLevels::e2e_ms},
}};
constexpr std::size_t kNames = 3;  // without the second name of e2e
constexpr double kLongest = 1e12;  // milliseconds; longer ones are slips of the keyboard

void read_pair(std::string_view flag, const std::string& pair, scheduler::ServiceLevels& levels) {
  const std::size_t colon = pair.find(':');
  const std::string name = pair.substr(0, colon);
  const auto* const found = std::find_if(kLevels.begin(), kLevels.end(),
                                         [&name](const auto& level) { return level.first == name; });
  if (colon == std::string::npos || found == kLevels.end())
    throw_user_error("{} {}: must be ttft, tpot or e2e, a colon and milliseconds, for example ttft:2000",
                     flag, pair.empty() ? "''" : pair);
  std::optional<double>& level = levels.*found->second;
  if (level) throw_user_error("{} {}: is named twice", flag, pair);
  level = parse_real(fmt::format("{} {}", flag, name), pair.substr(colon + 1), 0, false, kLongest, true);
}

// Pairs in several words or separated by commas: "ttft:2000", "tpot:50", "e2e:30000" (or the benchmark's
// "e2el").
scheduler::ServiceLevels read_service_levels(std::string_view flag, const std::vector<std::string>& values) {
  scheduler::ServiceLevels levels;
  for (const std::string& value : values) {
    for (const std::string& pair : split_list(value)) read_pair(flag, pair, levels);
  }
  return levels;
}

}  // namespace

void declare_load(FlagSet& flags, LoadArgs& args, const std::function<void()>& images) {
  flags.group("Load");
  flags.add_value("--trace", "FILE", "workload to serve; gzip is accepted", text(args.trace));
  flags.add_value("--trace-format", "FORMAT",
                  "auto, mooncake, azure, burstgpt, sharegpt or tpsim (default auto)",
                  word({"auto", "mooncake", "azure", "burstgpt", "sharegpt", "tpsim"}, args.trace_format));
  flags.add_value(
      "--dataset-name", "NAME",
      "a dataset of SGLang's benchmark instead of --trace, with its lengths and order for --seed: random, "
      "random-ids, image, generated-shared-prefix, or from --dataset-path sharegpt (lengths in tokens, no "
      "text) or mooncake (default: sharegpt where --dataset-path is given)",
      word({"random", "random-ids", "image", "generated-shared-prefix", "sharegpt", "mooncake"},
           args.dataset_name));
  flags.add_value("--dataset-path", "FILE", "of --dataset-name sharegpt or mooncake",
                  [&args](std::string_view flag, const std::string& value) {
                    text(args.dataset_path)(flag, value);
                    if (args.dataset_name.empty()) args.dataset_name = "sharegpt";  // the benchmark's default
                  });
  flags.add_value("--num-prompts", "N", "requests (default: the whole trace, or 1000 of a dataset)",
                  count(args.num_prompts, 1));
  flags.add_switch("--use-trace-timestamps",
                   "requests come at the times of the trace (so they do by default); refused with what "
                   "replaces those times",
                   args.use_trace_timestamps);
  flags.add_value("--random-input-len", "TOKENS", "longest random prompt (default 1024)",
                  count(args.random_input_len, 1));
  flags.add_value("--random-output-len", "TOKENS", "longest random output (default 1024)",
                  count(args.random_output_len, 1));
  flags.add_value("--random-range-ratio", "R", "shortest length over longest (default 0.0)",
                  real(args.random_range_ratio, 0, true, 1, true));
  declare_shared_prefixes(flags, args);
  images();
  flags.add_value("--session-mode", "MODE",
                  "later turns of the trace's conversations: closed sends one when the answer before it has "
                  "ended and its think_time is over (no think_time: its distance in the trace after the turn "
                  "before it was sent, not before the answer's end); timestamps sends all at the trace's "
                  "times and reports which were early (default closed)",
                  choice(kSessionModes, args.session_mode));
  flags.add_value("--request-rate", "PER_S",
                  "arrivals per second, of conversations where turns are closed; inf for all at once "
                  "(default: the trace's times, random: inf)",
                  real(args.request_rate, 0, false, kInfinity, true));
  flags.add_value("--request-interval", "KIND", "of --request-rate: poisson or fixed (default poisson)",
                  choice(kRequestIntervals, args.fixed_interval));
  flags.add_value("--max-concurrency", "N",
                  "most requests in flight; others wait to be sent (default: no limit)",
                  count(args.max_concurrency, 1));
  flags.add_value("--front-end", "KIND",
                  "what lies between clients and scheduler: ids (SGLang's HTTP server, prompts as token "
                  "ids), text (prompts that it tokenizes), kit (ids, drawn by the client of "
                  "launch/lab/measure when a request is due) or none (default ids; none for traces of "
                  "tpsim's own format, which name when requests reach the scheduler)",
                  word({"ids", "text", "kit", "none"}, args.front_end));
  flags.add_value("--client-seconds", "S",
                  "of the front end's time, what a client itself takes before its request is out and when a "
                  "token has come; 0 tells what the server's own metrics would (default 0.00102: the Python "
                  "client whose stamps the times were fitted to)",
                  real(args.client_seconds, 0, true, 1, true));
  flags.add_value("--tokenize-us", "US",
                  "host time of tokenizing one token of a prompt, of --front-end text (default "
                  "1.5: Qwen's and Llama's; DeepSeek's takes 3.6 of random ids)",
                  real(args.tokenize_us, 0, true, 1e6, true));
  flags.add_value("--stream-interval", "TOKENS",
                  "of an answer that go to its client together; gaps between tokens are reported as if each "
                  "went alone (default 1)",
                  count(args.stream_interval, 1));
  flags.add_value("--time-scale,--mooncake-slowdown-factor", "X",
                  "multiplies the times of the trace, think times too; 0.5 is twice as fast (default 1)",
                  real(args.time_scale, 0, false, 1e6, true));
  flags.add_list(
      "--random-runs-before", "INPUT_LEN:RANGE_RATIO:PROMPTS",
      "runs of SGLang's benchmark with --dataset-name random and the same seed that the server served "
      "before: the prompts of all runs begin alike, and are found in the cache",
      [&args](std::string_view flag, const std::vector<std::string>& values) {
        for (const std::string& value : values)
          for (const std::string& run : split_list(value))
            args.runs_before.push_back(read_run_before(flag, run));
      });
  flags.add_value("--warmup-requests", "N",
                  "copies of the first request, of at most 32 output tokens, served before the clock starts "
                  "and counted only in the totals of the ranks; their prefix stays in the cache (default 0)",
                  count(args.warmup_requests, 0, 1'000'000));
  flags.add_switch("--flush-cache", "empties the cache after --warmup-requests", args.flush_cache);
  flags.add_value("--seed", "N", "of dataset and arrivals (default: --random-seed)",
                  count(args.seed, 0, std::numeric_limits<std::uint32_t>::max()));
  flags.add_value("--random-seed", "N", "of everything random (default 1)",
                  count(args.random_seed, 0, std::numeric_limits<std::uint32_t>::max()));
  flags.group("Service levels");
  flags.add_list("--goodput,--slo", "NAME:MS",
                 "milliseconds within which a request is good, of ttft, tpot and e2e, for example ttft:2000 "
                 "tpot:50; compare chooses by it",
                 [&args](std::string_view flag, const std::vector<std::string>& values) {
                   args.goodput = read_service_levels(flag, values);
                 });
  flags.add_switch("--max-goodput-rate",
                   "searches the highest request rate at which enough requests are good, by --request-rate, "
                   "or for a trace with times by --time-scale unless --request-rate is given",
                   args.max_goodput_rate);
  flags.add_value("--goodput-share,--slo-share", "SHARE", "of requests that is enough (default 0.99)",
                  real(args.goodput_share, 0, false, 1, true));
}

void check_load(const LoadArgs& args) {
  if (args.trace.empty() && args.dataset_name.empty())
    throw_user_error("--trace: is required, or --dataset-name random for random lengths");
  if (!args.trace.empty() && !args.dataset_name.empty())
    throw_user_error("--dataset-name {}: excludes --trace, give one of the two", args.dataset_name);
  check_dataset(args);
  if (!args.dataset_name.empty() && args.session_mode)
    throw_user_error("--session-mode {}: is for --trace, the turns of {} have no times of their own",
                     to_string(*args.session_mode), args.dataset_name);
  if (!args.dataset_name.empty() && args.trace_format != "auto")
    throw_user_error("--trace-format {}: is for --trace", args.trace_format);
  if (args.flush_cache && args.warmup_requests == 0 && args.runs_before.empty())
    throw_user_error("--flush-cache: the cache is empty at the start, it is for --warmup-requests");
  if (!args.runs_before.empty() && args.dataset_name != "random")
    throw_user_error("--random-runs-before: is for --dataset-name random, whose prompts begin alike");
  check_times(args);
}

std::string to_string(const scheduler::ServiceLevels& levels) {
  std::string text;
  for (std::size_t i = 0; i < kNames; ++i) {
    const std::optional<double>& level = levels.*kLevels[i].second;
    if (level) text += fmt::format("{}{}:{}", text.empty() ? "" : " ", kLevels[i].first, format_real(*level));
  }
  return text;
}

void check_service_levels(const LoadArgs& args, bool numeric) {
  if (args.goodput_share && !args.max_goodput_rate)
    throw_user_error("--goodput-share {}: needs --max-goodput-rate, whose search it ends",
                     format_real(*args.goodput_share));
  if (!args.max_goodput_rate) return;
  if (!args.goodput.any())
    throw_user_error("--max-goodput-rate: needs --slo, for example --slo ttft:2000 tpot:50");
  if (args.max_concurrency != 0)
    throw_user_error(
        "--max-goodput-rate: excludes --max-concurrency {}, which holds requests back instead of offering "
        "them",
        args.max_concurrency);
  if (numeric)
    throw_user_error(
        "--max-goodput-rate: is for --executor modeled, numeric ranks tell no GPU's rate, only this "
        "machine's");
}

void check_numeric_load(const LoadArgs& args) {
  if (args.front_end && *args.front_end != "none")
    throw_user_error("--front-end {}: is for --executor modeled, numeric ranks run on the wall clock",
                     *args.front_end);
}

std::string_view to_string(scheduler::SessionMode mode) { return name_of(kSessionModes, mode); }

}  // namespace tpsim::launch
