// A row a run of SGLang's own benchmark as somebody published it (SGLang's documentation and cookbook): the
// launch line of the server and the command of the benchmark as they stand there, and the figures that came
// out.
//
// What the launch line says is asked as it stands; `tpsim run` leaves aside what means nothing to a
// simulation. Lengths are those of the columns, which say what the command leaves to its defaults. ShareGPT's
// lengths are not published, only their sums: they are drawn evenly between one token and twice their mean.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "launch/lab/measurements/csv_rows.h"
#include "launch/lab/measurements/measurement_formats.h"
#include "launch/lab/measurements/server_account.h"
#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::launch {
namespace {

// What a shell makes of a command that neither pipes nor expands.
std::vector<std::string> shell_words(std::string_view command, const scheduler::Place& place) {
  std::vector<std::string> words;
  bool in_word = false;
  char quote = 0;
  for (std::size_t i = 0; i < command.size(); ++i) {
    char c = command[i];
    if (quote == 0 && std::isspace(static_cast<unsigned char>(c)) != 0) {
      in_word = false;
      continue;
    }
    if (!in_word) words.emplace_back();
    in_word = true;
    if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    } else if (c == quote) {
      quote = 0;
    } else {
      if (c == '\\' && quote != '\'' && i + 1 < command.size()) c = command[++i];
      words.back() += c;
    }
  }
  if (quote != 0) place.fail("the command has a {} that is not closed", quote);
  return words;
}

// Takes every `names` with its value out of `words`; the last value counts, as for a command line.
std::string take(std::vector<std::string>& words, std::span<const std::string_view> names) {
  std::string value;
  for (std::size_t i = 0; i < words.size();) {
    const std::string_view word = words[i];
    const std::string_view name = word.substr(0, word.find('='));
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      ++i;
      continue;
    }
    const bool joined = name.size() < word.size();
    const std::size_t count = joined || i + 1 == words.size() ? 1 : 2;
    value = joined ? std::string(word.substr(name.size() + 1)) : count == 2 ? words[i + 1] : "";
    words.erase(words.begin() + static_cast<std::ptrdiff_t>(i),
                words.begin() + static_cast<std::ptrdiff_t>(i + count));
  }
  return value;
}

// The server's flags: what follows `sglang serve` or `python3 -m sglang.launch_server`.
std::vector<std::string> server_flags(std::string_view launch, const scheduler::Place& place) {
  std::vector<std::string> words = shell_words(launch, place);
  const auto starts = [](const std::string& word) {
    return word == "serve" || word == "sglang.launch_server" || word.ends_with("launch_server.py");
  };
  const auto start = std::find_if(words.begin(), words.end(), starts);
  if (start == words.end()) return {};
  words.erase(words.begin(), start + 1);
  // A remark in parentheses at its end is the page's, not the command's.
  words.erase(std::ranges::find_if(words, [](const std::string& word) { return word.starts_with('('); }),
              words.end());
  return words;
}

// Nothing where a page has no figure, or 0 for one that its benchmark did not take.
std::optional<double> figure(const CsvRows& cells, std::string_view column) {
  const double value = cells.text(column).empty() ? 0 : cells.number(column);
  return value > 0 ? std::optional(value) : std::nullopt;
}

// The median where there is one: means carry what was compiled in a server's first runs, and in a burst the
// few short answers that waited for the others' prompts.
std::optional<double> median_or_mean(const CsvRows& cells, std::string_view median, std::string_view mean,
                                     Statistic& statistic) {
  const std::optional<double> value = figure(cells, median);
  statistic = value ? Statistic::kMedian : Statistic::kMean;
  return value ? value : figure(cells, mean);
}

// Mean tokens of a request's share in the column; 0 where it is empty.
std::uint64_t mean_tokens(const CsvRows& cells, std::string_view total, std::uint64_t prompts) {
  const std::optional<double> tokens = figure(cells, total);
  return tokens ? static_cast<std::uint64_t>(std::llround(*tokens / static_cast<double>(prompts))) : 0;
}

void offer(const CsvRows& cells, std::uint64_t prompts, MeasuredLoad& load) {
  const std::string dataset = cells.text("dataset"), range_ratio = cells.text("range_ratio");
  std::uint64_t input = 0, output = 0;
  std::string ratio = range_ratio.empty() ? "0" : range_ratio;
  if (dataset == "sharegpt") {
    input = 2 * mean_tokens(cells, "total_input_tokens", prompts);
    output = 2 * mean_tokens(cells, "total_output_tokens", prompts);
    ratio = "0";
    if (input == 0 || output == 0)
      load.refusal = "the lengths of its requests were not published, nor their sums";
  } else {
    input = cells.text("input_len").empty() ? 0 : cells.count("input_len", 1, 1U << 30);
    output = cells.text("output_len").empty() ? 0 : cells.count("output_len", 1, 1U << 30);
    if (input == 0 || output == 0) load.refusal = "the lengths of its requests were not published";
  }
  const std::string concurrency = cells.text("max_concurrency"), rate = cells.text("request_rate");
  load.load_kind = rate.empty() || rate == "inf" ? (concurrency.empty() ? "burst" : "closed") : "poisson";
  load.load = fmt::format("{}:{}:{}:{}:{}", dataset, input, output, concurrency, prompts);
  if (dataset == "image") {
    std::vector<std::string> words = shell_words(cells.text("bench"), cells.place());
    add_flags(load.flags, {"--dataset-name", "image"});
    for (const std::string_view flag : {"--image-count", "--image-resolution"}) {
      const std::string value = take(words, std::array{flag});
      if (!value.empty()) add_flags(load.flags, {std::string(flag), value});
    }
  } else {
    add_flags(load.flags, {"--dataset-name", "random"});
  }
  add_flags(load.flags,
            {"--random-input-len", std::to_string(input), "--random-output-len", std::to_string(output),
             "--random-range-ratio", ratio, "--num-prompts", std::to_string(prompts), "--front-end", "text"});
  if (!concurrency.empty()) add_flags(load.flags, {"--max-concurrency", concurrency});
  if (load.load_kind == "poisson") add_flags(load.flags, {"--request-rate", rate});
}

// Of servers that draft and whose acceptance nobody published: 2.4 tokens a step of three drafts, as LMSYS
// measured of DeepSeek V3's own layer. Only their first tokens are compared.
constexpr const char* kUsualAcceptance = "0.75,0.6,0.5";

bool gives(const std::vector<std::string>& flags, std::string_view start, std::string_view value = {}) {
  for (std::size_t i = 0; i < flags.size(); ++i) {
    if (!flags[i].starts_with(start)) continue;
    if (value.empty() || flags[i].ends_with(value) || (i + 1 < flags.size() && flags[i + 1] == value))
      return true;
  }
  return false;
}
bool drafts_tokens(const std::vector<std::string>& flags) {
  return gives(flags, "--speculative-algo") && !gives(flags, "--speculative-algo", "NGRAM");
}

// What the benchmark asks before it measures: its first prompt once, where it says nothing else, and on the
// pages that have several runs against one server what those asked, for a prompt of each begins alike. A
// cache that the command flushes has neither.
void serve_before(const CsvRows& cells, MeasuredLoad& load, std::map<std::string, std::string>& runs) {
  if (cells.text("dataset") != "random" || !load.refusal.empty()) return;
  std::vector<std::string> words = shell_words(cells.text("bench"), cells.place());
  const std::string asked = take(words, std::array<std::string_view, 1>{"--warmup-requests"});
  const bool flushed = std::find(words.begin(), words.end(), "--flush-cache") != words.end();
  add_flags(load.flags, {"--warmup-requests", asked.empty() ? "1" : asked});
  if (flushed) add_flags(load.flags, {"--flush-cache"});
  const std::string page = cells.text("source").substr(0, cells.text("source").find('#'));
  // What it flushes is gone for those behind it, too.
  std::string& before = runs[fmt::format("{}\n{}\n{}", page, load.hardware, cells.text("launch"))];
  if (flushed) before.clear();
  if (!before.empty()) add_flags(load.flags, {"--random-runs-before", before});
  const std::string ratio = cells.text("range_ratio").empty() ? "0" : cells.text("range_ratio");
  before += fmt::format("{}{}:{}:{}", before.empty() ? "" : ",", cells.text("input_len"), ratio,
                        cells.text("num_prompts"));
}

MeasuredLoad load_of(const CsvRows& cells, std::map<std::string, std::string>& runs) {
  MeasuredLoad load;
  const scheduler::Place place = cells.place();
  load.file = fmt::format("{}:{}", place.name, place.line);
  load.id = cells.text("id");
  if (load.id.empty()) place.fail("id must have a name");
  std::vector<std::string> flags = server_flags(cells.text("launch"), place);
  if (flags.empty()) load.refusal = "no launch line of its server was published";
  constexpr std::array<std::string_view, 2> kModel = {"--model-path", "--model"};
  constexpr std::array<std::string_view, 3> kTp = {"--tp-size", "--tp", "--tensor-parallel-size"};
  const std::string model = take(flags, kModel), tp = take(flags, kTp);
  // What the launch line leaves to a variable of the page's reader is in the column.
  const std::string path = model.empty() || model.front() == '$' ? cells.text("model") : model;
  load.model = std::filesystem::path(path).filename().string();
  load.hardware = cells.text("gpu");
  if (load.hardware.empty()) load.refusal = "its GPU was not published";
  if (!tp.empty()) {
    try {
      load.tp = static_cast<std::uint32_t>(parse_count("--tp", tp, 1, 1024));
    } catch (const UserError& error) {
      load.refusal = error.what();
    }
  }
  load.settings = fmt::format("{}", fmt::join(flags, " "));
  add_server({.model_path = path, .version = cells.text("sglang_version")}, load);
  add_flags(load.flags, flags);
  if (const std::optional<double> kept = figure(cells, "accept_length")) {
    load.accept_lens = {{0, *kept}};
    load.accept_chains = true;
    add_flags(load.flags, {"--speculative-accept-rates", "trace"});
  }
  const bool guessed =
      load.accept_lens.empty() && drafts_tokens(flags) && !gives(flags, "--speculative-accept");
  if (guessed) add_flags(load.flags, {"--speculative-accept-rates", kUsualAcceptance});
  const std::uint64_t prompts = cells.count("num_prompts", 1, 1U << 30);
  offer(cells, prompts, load);
  serve_before(cells, load, runs);
  load.measured.ttft_ms = median_or_mean(cells, "median_ttft_ms", "mean_ttft_ms", load.ttft);
  if (guessed) return load;
  load.measured.tpot_ms = median_or_mean(cells, "median_tpot_ms", "mean_tpot_ms", load.tpot);
  load.measured.e2e_ms = median_or_mean(cells, "median_e2e_ms", "mean_e2e_ms", load.e2e);
  load.measured.duration_s = figure(cells, "duration_s");
  load.measured.output_throughput = figure(cells, "output_throughput");
  return load;
}

}  // namespace

std::vector<MeasuredLoad> read_published_file(scheduler::TraceInput& input, const MeasurementFile&) {
  CsvRows cells(
      input, "id model gpu launch bench dataset num_prompts",
      "source sglang_version input_len output_len range_ratio max_concurrency request_rate mean_ttft_ms "
      "median_ttft_ms mean_tpot_ms median_tpot_ms mean_e2e_ms median_e2e_ms duration_s output_throughput "
      "total_input_tokens total_output_tokens accept_length");
  std::vector<MeasuredLoad> loads;
  std::map<std::string, std::string> runs;  // that each server served so far
  while (cells.next()) loads.push_back(load_of(cells, runs));
  return loads;
}

}  // namespace tpsim::launch
