// A row a run of SGLang's own benchmark as somebody published it (SGLang's documentation and cookbook): the
// launch line of the server and the command of the benchmark as they stand there, and the figures that came
// out.
//
// What the launch line says is asked as it stands; `tpsim run` leaves aside what means nothing to a
// simulation. Lengths are those of the columns, which say what the command leaves to its defaults. ShareGPT's
// lengths are not published, only their sums (sharegpt_lengths.h).
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "launch/cli/shell_line.h"
#include "launch/lab/measurements/csv_rows.h"
#include "launch/lab/measurements/measured_requests.h"
#include "launch/lab/measurements/measurement_formats.h"
#include "launch/lab/measurements/server_account.h"
#include "launch/lab/measurements/sharegpt_lengths.h"
#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::launch {
namespace {

std::vector<std::string> words_of(std::string_view command, const scheduler::Place& place) {
  try {
    return shell_words(command);
  } catch (const UserError& error) {
    place.fail("{}", error.what());
  }
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
  std::vector<std::string> words = words_of(launch, place);
  if (!drop_program(words)) return {};
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
// few short answers that waited for the others' prompts. A page that does not say which of them it has has
// means: gemma-4-31B's tokens of 0.7 and 1.5 s on one MI300X, at 1,045 of them a second, would be medians of
// 700 and 1,600 requests that run, of which its memory holds 130, and are means over some that were
// retracted.
std::optional<double> median_or_mean(const CsvRows& cells, std::string_view median, std::string_view mean,
                                     Statistic& statistic) {
  const std::optional<double> value = figure(cells, median);
  const bool said = cells.text("notes").find("mean or median not said") == std::string::npos;
  statistic = value && said ? Statistic::kMedian : Statistic::kMean;
  return value ? value : figure(cells, mean);
}

// ShareGPT's requests: load.workload, or why there are none.
void offer_sharegpt(const CsvRows& cells, std::uint64_t prompts, MeasuredLoad& load) {
  const std::optional<double> input = figure(cells, "total_input_tokens");
  const std::optional<double> output = figure(cells, "total_output_tokens");
  if (!input || !output) {
    load.refusal = "the lengths of its requests were not published, nor their sums";
    return;
  }
  const auto count = static_cast<double>(prompts);
  std::vector<MeasuredRequest> requests = sharegpt_requests(prompts, *input / count, *output / count);
  // Sums of no remainder are those of equal lengths, whatever the page calls them.
  if (std::fmod(*input, count) == 0 && std::fmod(*output, count) == 0) {
    for (MeasuredRequest& request : requests) {
      request.input_tokens = static_cast<std::uint32_t>(*input / count);
      request.output_tokens = static_cast<std::uint32_t>(*output / count);
    }
  }
  load.workload = replay(requests, false, load);
  add_flags(load.flags, {"--trace", load.workload->name, "--request-rate", "inf"});
}

// What vLLM's client and SGLang's chat endpoint (its template, its messages) take for each of many requests
// that are sent at once, each by a connection of its own: 1,000 prompts of 128 tokens and answers of four
// took a Qwen3-14B 7.8 s, 984 DeepSeek-V3.2 on eight GPUs 7.1 s; the last of 1,000 first tokens of
// GLM-4.5-Air came after 6.2 s. No flag names it by request, so it is said by the prompt's tokens, as
// tokenizing is.
constexpr double kChatBurstUs = 6000;
constexpr double kTokenizeUs = 1.5;  // --tokenize-us where nothing is said
void pass_chat_endpoint(const CsvRows& cells, std::uint64_t prompts, MeasuredLoad& load) {
  const std::optional<double> input = figure(cells, "total_input_tokens");
  if (load.load_kind != "burst" || !input || !load.refusal.empty() ||
      cells.text("bench").find("openai-chat") == std::string::npos)
    return;
  const double us = kTokenizeUs + kChatBurstUs * static_cast<double>(prompts) / *input;
  add_flags(load.flags, {"--tokenize-us", fmt::format("{:.1f}", us)});
}

void offer(const CsvRows& cells, std::uint64_t prompts, MeasuredLoad& load) {
  const std::string dataset = cells.text("dataset"), range_ratio = cells.text("range_ratio");
  const std::uint64_t input = cells.text("input_len").empty() ? 0 : cells.count("input_len", 1, 1U << 30);
  const std::uint64_t output = cells.text("output_len").empty() ? 0 : cells.count("output_len", 1, 1U << 30);
  const std::string concurrency = cells.text("max_concurrency"), rate = cells.text("request_rate");
  load.load_kind = rate.empty() || rate == "inf" ? (concurrency.empty() ? "burst" : "closed") : "poisson";
  load.load = fmt::format("{}:{}:{}:{}:{}", dataset, input, output, concurrency, prompts);
  if (dataset == "sharegpt") {
    offer_sharegpt(cells, prompts, load);
  } else if (input == 0 || output == 0) {
    load.refusal = "the lengths of its requests were not published";
  }
  if (dataset == "image") {
    std::vector<std::string> words = words_of(cells.text("bench"), cells.place());
    add_flags(load.flags, {"--dataset-name", "image"});
    for (const std::string_view flag : {"--image-count", "--image-resolution"}) {
      const std::string value = take(words, std::array{flag});
      if (!value.empty()) add_flags(load.flags, {std::string(flag), value});
    }
  } else if (dataset != "sharegpt") {
    add_flags(load.flags, {"--dataset-name", "random"});
  }
  if (dataset != "sharegpt") {
    add_flags(load.flags,
              {"--random-input-len", std::to_string(input), "--random-output-len", std::to_string(output),
               "--random-range-ratio", range_ratio.empty() ? "0" : range_ratio, "--num-prompts",
               std::to_string(prompts)});
  }
  add_flags(load.flags, {"--front-end", "text"});
  pass_chat_endpoint(cells, prompts, load);
  if (!concurrency.empty()) add_flags(load.flags, {"--max-concurrency", concurrency});
  if (load.load_kind == "poisson") add_flags(load.flags, {"--request-rate", rate});
}

// Of servers that draft and whose acceptance nobody published: 2.4 tokens a step of three drafts, as LMSYS
// measured of DeepSeek V3's own layer. Only their first tokens are compared.
constexpr const char* kUsualAcceptance = "0.75,0.6,0.5";
// GLM-5.2 keeps all that its layer drafts of random prompts: with five drafts a token takes 0.72 to 0.75 of
// its time with three, on H200, B200 and GB300 (6 tokens of a step 1.1 times as long, not 4). So requests
// that began together end together, and the next ones wait for each other's prefills.
constexpr const char* kAllAccepted = "1";

// Runs that cannot be what their rows say.
struct Doubt {
  std::string_view model, hardware, version, why;
};
// GPUStack's pages of one H100: 65 GB of weights a step take 44 ms (49 on the A100 of the page beside it),
// 15 GB and a full pool 41, under vLLM and TensorRT-LLM, too. Its Qwen3-8B and its servers of several H100s
// are none of those.
constexpr std::string_view kHalfAnH100 =
    "three engines alike read memory at 1.5 TB/s there and multiply fp8 at 430 TFLOP/s, half of what the "
    "H100 SXM that its page names does";
constexpr std::array kDoubts = {
    Doubt{"Kimi-K2.5", "H200", "0.5.6.post2",
          "its release has no KimiK25ForConditionalGeneration (0.5.9 is the first that has), and its tokens "
          "take "
          "up to 50 times as long as on other pages"},
    Doubt{"Kimi-K2.6", "MI350X", "",
          "its figures stand on Kimi-K2.5's page, too (PUBLISHED.md): one of the two was not measured"},
    Doubt{"gpt-oss", "A100", "", "tokens of 0.5 to 2.5 s are no server's that uses its GPU (PUBLISHED.md)"},
    Doubt{"gpt-oss", "H100", "0.5.3rc0",
          "first tokens of 140 s beside tokens of 39 ms are not one server's (PUBLISHED.md)"},
    Doubt{"Qwen3-14B", "H100", "0.5.5.post1", kHalfAnH100},
    Doubt{"Qwen3-32B", "H100", "0.5.5.post1", kHalfAnH100},
    Doubt{"GLM-4.6-FP8", "H100", "", "PUBLISHED.md beside the file finds it implausible"},
    Doubt{"Qwen3.5-4B", "MI300X", "", "PUBLISHED.md beside the file finds it implausible"},
};

// Of rows that name a branch, a commit or nothing: the release that first had the model, for which its page
// was written (srt/models and srt/configs of SGLang's wheels; of Qwen3-Coder and GLM-5.2 the one that the
// page names in other places).
struct FirstRelease {
  std::string_view model, version;
};
constexpr std::array kFirstReleases = {
    FirstRelease{"GLM-5.2", "0.5.13"},
    FirstRelease{"GLM-5", "0.5.9"},
    FirstRelease{"Qwen3.5", "0.5.9"},
    FirstRelease{"Qwen3.6", "0.5.15"},
    FirstRelease{"Qwen3-Coder-480B", "0.5.7"},
    FirstRelease{"gemma-4", "0.5.12"},
    FirstRelease{"NVIDIA-Nemotron-3", "0.5.9"},
    FirstRelease{"MiMo-V2.5", "0.5.12"},
    FirstRelease{"LFM2.5", "0.5.13"},
    FirstRelease{"MiniMax-M3", "0.5.14"},
    FirstRelease{"Laguna", "0.5.13"},
    FirstRelease{"DeepSeek-OCR-2", "0.5.8"},
    FirstRelease{"Hy3", "0.5.12"},
    FirstRelease{"Step-3.5", "0.5.9"},
};
std::string release_of(const std::string& model, const std::string& version) {
  // A build from source names none, or none of SGLang's.
  if (version.starts_with("0.") && version.find("dev") == std::string::npos) return version;
  const auto first = std::ranges::find_if(
      kFirstReleases, [&](const FirstRelease& release) { return model.starts_with(release.model); });
  return first == kFirstReleases.end() ? "" : std::string(first->version);
}

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
  std::vector<std::string> words = words_of(cells.text("bench"), cells.place());
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

// Whether more than a tenth of a run of one request after the other is first tokens beyond their median: its
// server compiled (33 of 65 s of a Ministral's), so its duration and its throughput are no steady server's.
bool holds_compiles(const CsvRows& cells) {
  const std::optional<double> mean = figure(cells, "mean_ttft_ms"), median = figure(cells, "median_ttft_ms");
  const std::optional<double> duration = figure(cells, "duration_s");
  return cells.text("max_concurrency") == "1" && mean && median && duration &&
         (*mean - *median) / 1e3 * cells.number("num_prompts") > 0.1 * *duration;
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
  const std::string version = cells.text("sglang_version");
  for (const Doubt& doubt : kDoubts) {
    if (load.model.starts_with(doubt.model) && load.hardware == doubt.hardware &&
        (doubt.version.empty() || version == doubt.version))
      load.refusal = doubt.why;
  }
  add_server({.model_path = path, .version = release_of(load.model, version)}, load);
  add_flags(load.flags, flags);
  if (const std::optional<double> kept = figure(cells, "accept_length")) {
    load.accept_lens = {{0, *kept}};
    load.accept_chains = true;
    add_flags(load.flags, {"--speculative-accept-rates", "trace"});
  }
  const bool guessed =
      load.accept_lens.empty() && drafts_tokens(flags) && !gives(flags, "--speculative-accept");
  if (guessed) {
    const bool all = load.model.starts_with("GLM-5.2");
    add_flags(load.flags, {"--speculative-accept-rates", all ? kAllAccepted : kUsualAcceptance});
  }
  const std::uint64_t prompts = cells.count("num_prompts", 1, 1U << 30);
  offer(cells, prompts, load);
  serve_before(cells, load, runs);
  load.measured.ttft_ms = median_or_mean(cells, "median_ttft_ms", "mean_ttft_ms", load.ttft);
  if (guessed) return load;
  load.measured.tpot_ms = median_or_mean(cells, "median_tpot_ms", "mean_tpot_ms", load.tpot);
  load.measured.e2e_ms = median_or_mean(cells, "median_e2e_ms", "mean_e2e_ms", load.e2e);
  if (holds_compiles(cells)) return load;
  load.measured.duration_s = figure(cells, "duration_s");
  load.measured.output_throughput = figure(cells, "output_throughput");
  return load;
}

// Rows of one page that ask the same of the same server are runs of one another. Where their tokens a second
// differ by more than a quarter one of them, at least, measured something else (most likely what a first run
// compiles), and no row says which.
constexpr double kSameRun = 1.25;
struct PublishedRun {
  std::size_t load;
  double throughput;
};
std::string question_of(const CsvRows& cells, const MeasuredLoad& load) {
  std::vector<std::string> flags = server_flags(cells.text("launch"), cells.place());
  // Of one replica SGLang leaves attention as it is.
  if (!gives(flags, "--dp") && !gives(flags, "--data-parallel-size"))
    std::erase(flags, "--enable-dp-attention");
  const std::string page = cells.text("source").substr(0, cells.text("source").find('#'));
  return fmt::format("{}\n{}\n{}\n{}\n{}", page, cells.text("sglang_version"), load.hardware, load.load,
                     fmt::join(flags, " "));
}
void refuse_contradictions(const std::map<std::string, std::vector<PublishedRun>>& questions,
                           std::vector<MeasuredLoad>& loads) {
  for (const auto& [question, runs] : questions) {
    const auto [least, most] = std::ranges::minmax(runs, {}, &PublishedRun::throughput);
    if (most.throughput <= kSameRun * least.throughput) continue;
    for (const PublishedRun& run : runs)
      loads[run.load].refusal = fmt::format(
          "contradicts {}, which asks the same of the same server: {:.0f} and {:.0f} tokens a second",
          loads[run.load == least.load ? most.load : least.load].id, least.throughput, most.throughput);
  }
}

}  // namespace

std::vector<MeasuredLoad> read_published_file(scheduler::TraceInput& input, const MeasurementFile&) {
  CsvRows cells(
      input, "id model gpu launch bench dataset num_prompts",
      "source sglang_version input_len output_len range_ratio max_concurrency request_rate mean_ttft_ms "
      "median_ttft_ms mean_tpot_ms median_tpot_ms mean_e2e_ms median_e2e_ms duration_s output_throughput "
      "total_input_tokens total_output_tokens accept_length notes");
  std::vector<MeasuredLoad> loads;
  std::map<std::string, std::string> runs;  // that each server served so far
  std::map<std::string, std::vector<PublishedRun>> questions;
  while (cells.next()) {
    loads.push_back(load_of(cells, runs));
    const std::optional<double> throughput = figure(cells, "output_throughput");
    if (throughput && loads.back().refusal.empty())
      questions[question_of(cells, loads.back())].push_back({loads.size() - 1, *throughput});
  }
  refuse_contradictions(questions, loads);
  return loads;
}

}  // namespace tpsim::launch
