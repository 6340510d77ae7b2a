// A row a closed-loop benchmark of a server: AIConfigurator's public collection of end-to-end measurements.
// Prompts are random, of about `isl` tokens, with about `osl` generated; `concurrency` requests are in flight
// all the time.
//
// The rest is in the scripts of those who made the rows: published_benchmarks.json has it as rules, and says
// where each comes from. A rule applies where its "when" holds: columns that are equal to a value, or
// "contains", "begins" (texts), "from", "before" (versions) or "least" (numbers); "not" and "any" of such. It
// adds its "flags" and what it "set"s, then those of "all" its inner rules and of the "first" one of them
// that applies. A value {"of": COLUMN} is a column's, with "plus" and "least".
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "launch/lab/measurements/csv_rows.h"
#include "launch/lab/measurements/measurement_formats.h"
#include "launch/lab/measurements/server_account.h"
#include "proto/base/text.h"

namespace tpsim::launch {

extern const std::string_view kPublishedBenchmarks;  // published_benchmarks.json, which the build embeds

namespace {

using Json = nlohmann::json;

// Whether a column is what a condition wants of it.
bool fits(const Json& column, const Json& wanted) {
  if (!wanted.is_object()) return column == wanted;
  for (const auto& [test, value] : wanted.items()) {
    if (test == "least" && column < value) return false;
    if (test == "contains" && column.get<std::string>().find(value.get<std::string>()) == std::string::npos)
      return false;
    if (test == "begins" && !column.get<std::string>().starts_with(value.get<std::string>())) return false;
    if ((test == "before" && !is_older(column, value)) || (test == "from" && is_older(column, value)))
      return false;
  }
  return true;
}

bool holds(const Json& condition, const Json& row) {
  for (const auto& [name, wanted] : condition.items()) {
    if (name == "not" ? holds(wanted, row)
        : name == "any"
            ? std::none_of(wanted.begin(), wanted.end(), [&row](const Json& of) { return holds(of, row); })
            : !fits(row.at(name), wanted))
      return false;
  }
  return true;
}

Json value_of(const Json& value, const Json& row) {
  if (!value.is_object()) return value;
  const std::uint64_t number =
      row.at(value.at("of").get<std::string>()).get<std::uint64_t>() + value.value("plus", 0U);
  return std::max(number, value.value("least", std::uint64_t{0}));
}

// Whether the rule applies; then `flags` and `settings` have what it says.
bool apply(const Json& rule, const Json& row, std::vector<std::string>& flags, Json& settings) {
  if (rule.contains("when") && !holds(rule["when"], row)) return false;
  for (const Json& word : rule.value("flags", Json::array())) {
    const Json value = value_of(word, row);
    flags.push_back(value.is_string() ? value.get<std::string>() : value.dump());
  }
  const Json set = rule.value("set", Json::object());
  for (const auto& [name, value] : set.items()) settings[name] = value_of(value, row);
  for (const Json& inner : rule.value("all", Json::array())) apply(inner, row, flags, settings);
  for (const Json& inner : rule.value("first", Json::array()))
    if (apply(inner, row, flags, settings)) break;
  return true;
}

struct Published {
  std::string model, hardware;     // hardware by tpsim's name
  std::string precision;           // fp8, fp4, own (of the model as it was released) or empty: 16 bit
  std::string version;             // of SGLang; empty: not said, taken for an old one
  std::uint64_t isl = 0, osl = 0;  // tokens
  std::uint64_t concurrency = 0;
  std::uint32_t tp_size = 1, ep_size = 1, dp_size = 1;  // dp_size: of attention
  // Another row of the file agrees in every column and is slower: two settings were run, of which the columns
  // name none.
  bool faster_twin = false;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Published, model, hardware, precision, version, isl, osl, concurrency,
                                   tp_size, ep_size, dp_size, faster_twin)

// What the rules set.
struct Pattern {
  double range_ratio = 1;     // of the lengths, shortest over longest
  std::uint64_t rounds = 10;  // prompts of each of the places in flight
  std::uint32_t ep_size = 1;  // as the server had it; a row may not say so
  double server_tokens = 1;   // that the server makes of the text of one of the client's tokens
  std::string front_end;      // --front-end
  // What the names of the model's releases in fp8 and fp4 end with. Without one in fp8 it is quantised as it
  // is loaded; without one in fp4 its own weights are that.
  std::string fp8_release;
  std::string fp4_release = "-NVFP4";
  bool speculates = false;  // with the model's own next-token head
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Pattern, range_ratio, rounds, ep_size, server_tokens,
                                                front_end, fp8_release, fp4_release, speculates)

const Json& published_rules() {
  static const Json table = Json::parse(kPublishedBenchmarks);
  return table;
}

// `version` without what images' names have around it. A model has no rows of releases before its first.
std::string version_of(std::string version, const std::string& model) {
  if (version.starts_with("v")) version.erase(0, 1);
  for (const auto& [name, first] : published_rules().at("first_releases").items()) {
    if (model.find(name) != std::string::npos && is_older(version, first)) return first;
  }
  return version;
}

// `flags`: receives those of `tpsim run`, beside model, GPU, parallelism and release.
Pattern published_pattern(const Published& row, std::vector<std::string>& flags) {
  Json settings = {{"ep_size", row.ep_size}};
  for (const Json& rule : published_rules().at("rules")) apply(rule, row, flags, settings);
  return settings.get<Pattern>();
}

// GPUs of which the catalogue has no other form than SXM's are called without it.
std::string hardware_of(std::string system) {
  system = to_lower(std::move(system));
  std::replace(system.begin(), system.end(), '_', '-');
  constexpr std::string_view kSxm = "-sxm";
  if (system.ends_with(kSxm) && (system.starts_with("b") || system.starts_with("gb")))
    system.erase(system.size() - kSxm.size());
  return system;
}

// What a column says of weights in AIConfigurator's words (common.py: GEMMQuantMode, MoEQuantMode) or those
// of InferenceX's configs; nullopt: nothing, or a word that is none of theirs.
std::optional<std::string> weights_of(const std::string& said) {
  const std::string word = to_lower(said);
  if (word.find("mxfp4") != std::string::npos || word.starts_with("int4") || word.starts_with("w4a"))
    return "own";
  if (word == "nvfp4" || word == "fp4") return "fp4";
  if (word.starts_with("fp8")) return "fp8";
  if (word == "bf16" || word == "bfloat16" || word == "fp16" || word == "float16") return "";
  return std::nullopt;
}

bool is_deepseek(const Published& row) { return row.model.find("DeepSeek") != std::string::npos; }

// The release in fp8 or nvfp4 that a row's model was served from; "" for one that is quantised as it is
// loaded.
std::string release_of(const Published& row, const Pattern& pattern) {
  const std::string& model = row.model;
  if (row.precision == "own" || to_lower(model).find(row.precision) != std::string::npos) return model;
  if (row.precision == "fp8") {
    // DeepSeek's own weights are fp8 as they are.
    if (is_deepseek(row)) return model;
    return pattern.fp8_release.empty() ? "" : model + pattern.fp8_release;
  }
  if (model.ends_with("DeepSeek-R1")) return "nvidia/DeepSeek-R1-FP4";
  if (model.ends_with("DeepSeek-V3")) return "nvidia/DeepSeek-V3-0324-FP4";
  return model + pattern.fp4_release;
}

struct Row {
  std::string file, id;   // FILE:LINE
  std::string precision;  // as its column has it
  Published asked;
  std::uint32_t pp_size = 1;
  MeasuredFigures measured;
  bool known_precision = true;
  bool has_twin = false;  // a row that agrees in every column and not in its time
};

// Two rows of one family that agree in all that they say.
bool same_columns(const Row& a, const Row& b) {
  const auto columns = [](const Row& row) {
    const Published& asked = row.asked;
    return std::tuple(std::string_view(asked.hardware), std::string_view(asked.precision),
                      std::string_view(asked.version), asked.isl, asked.osl, asked.concurrency, asked.tp_size,
                      asked.ep_size, asked.dp_size, row.pp_size);
  };
  return is_deepseek(a.asked) && is_deepseek(b.asked) && columns(a) == columns(b);
}

void mark_twins(std::vector<Row>& rows) {
  // Copies of one measurement agree to the last digit or nearly.
  constexpr double kOther = 1.02;
  for (Row& row : rows) {
    for (const Row& other : rows) {
      const double mine = *row.measured.tpot_ms, others = *other.measured.tpot_ms;
      const bool faster = others > mine * kOther;
      if ((!faster && mine <= others * kOther) || !same_columns(row, other)) continue;
      row.has_twin = true;
      row.asked.faster_twin = row.asked.faster_twin || faster;
    }
  }
}

MeasuredLoad load_of(const Row& row) {
  const Published& asked = row.asked;
  MeasuredLoad load;
  load.file = row.file;
  load.id = row.id;
  load.model = asked.model;
  load.hardware = asked.hardware;
  load.load_kind = "closed";
  load.tp = asked.tp_size;
  load.setting_by_time = row.has_twin;
  load.measured = row.measured;
  std::vector<std::string> server_flags;
  const Pattern pattern = published_pattern(asked, server_flags);
  const std::uint64_t prompts = asked.concurrency * pattern.rounds;
  const auto prompt_len =
      static_cast<std::uint64_t>(std::llround(static_cast<double>(asked.isl) * pattern.server_tokens));
  load.load = fmt::format("closed:{}:{}:{}:{}", asked.isl, asked.osl, asked.concurrency, prompts);
  load.settings = fmt::format(
      "{}{}{}{}", row.precision, pattern.ep_size > 1 ? fmt::format(" ep{}", pattern.ep_size) : "",
      asked.dp_size > 1 ? fmt::format(" dp{}", asked.dp_size) : "", pattern.speculates ? " mtp" : "");
  const std::string model = release_of(asked, pattern);
  if (!row.known_precision)
    load.refusal = fmt::format(
        "precision {} is none that tpsim knows; it knows bf16, fp8, fp4, mxfp4 and int4", row.precision);
  add_server({.model_path = model.empty() ? asked.model : model, .version = asked.version}, load);
  if (model.empty()) add_flag(load.flags, "--quantization", "fp8");
  if (row.pp_size > 1) add_flag(load.flags, "--pp-size", std::to_string(row.pp_size));
  if (asked.dp_size > 1) {
    add_flag(load.flags, "--dp-size", std::to_string(asked.dp_size));
    add_flag(load.flags, "--enable-dp-attention");
  }
  if (pattern.ep_size > 1) add_flag(load.flags, "--ep-size", std::to_string(pattern.ep_size));
  add_flags(load.flags, server_flags);
  add_flags(load.flags,
            {"--dataset-name", "random", "--random-input-len", std::to_string(prompt_len),
             "--random-output-len", std::to_string(asked.osl), "--random-range-ratio",
             fmt::format("{}", pattern.range_ratio), "--max-concurrency", std::to_string(asked.concurrency),
             "--num-prompts", std::to_string(prompts), "--front-end", pattern.front_end});
  return load;
}

}  // namespace

std::vector<MeasuredLoad> read_benchmark_file(scheduler::TraceInput& input, const MeasurementFile&) {
  CsvRows cells(input, "id model_path system isl osl concurrency tp_size silicon_ttft_ms silicon_tpot_ms",
                "backend_version precision gemm_quant_mode moe_quant_mode pp_size attention_dp_size "
                "moe_tp_size moe_ep_size");
  std::vector<Row> rows;
  while (cells.next()) {
    Row& row = rows.emplace_back();
    row.file = fmt::format("{}:{}", input.name(), cells.place().line);
    row.id = cells.text("id");
    Published& asked = row.asked;
    asked.model = cells.text("model_path");
    asked.hardware = hardware_of(cells.text("system"));
    if (row.id.empty() || asked.model.empty() || asked.hardware.empty())
      cells.place().fail("id, model_path and system must have a name");
    row.precision = cells.text("precision");
    // The experts' format decides: there are 16-bit and fp8 attention around experts of 4 bit. A dense
    // model's columns agree.
    const std::optional<std::string> said = weights_of(row.precision);
    std::optional<std::string> weights = weights_of(cells.text("moe_quant_mode"));
    if (!weights || weights->empty()) weights = said ? said : weights;
    if (!weights) weights = weights_of(cells.text("gemm_quant_mode"));
    row.known_precision = weights || row.precision.empty();
    asked.precision = weights.value_or("");
    asked.version = version_of(cells.text("backend_version"), asked.model);
    asked.isl = cells.count("isl", 1, 1U << 30);
    asked.osl = cells.count("osl", 1, 1U << 30);
    asked.concurrency = cells.count("concurrency", 1, 1U << 20);
    asked.tp_size = cells.gpus("tp_size");
    asked.ep_size = cells.gpus("moe_ep_size");
    asked.dp_size = cells.gpus("attention_dp_size");
    // Where experts are spread and cut at once, tp_size is the product of the two: rows that spell out their
    // setting ("…_tp4_ep4_…") have 16 there, and times of four GPUs.
    const std::uint32_t moe_tp = cells.gpus("moe_tp_size");
    if (asked.ep_size > 1 && moe_tp > 1 && asked.tp_size == moe_tp * asked.ep_size) asked.tp_size = moe_tp;
    row.pp_size = cells.gpus("pp_size");
    row.measured.ttft_ms = cells.time("silicon_ttft_ms");
    row.measured.tpot_ms = cells.time("silicon_tpot_ms");
  }
  mark_twins(rows);
  std::vector<MeasuredLoad> loads;
  loads.reserve(rows.size());
  for (const Row& row : rows) loads.push_back(load_of(row));
  return loads;
}

}  // namespace tpsim::launch
