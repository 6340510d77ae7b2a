#include "launch/report/html_page.h"

#include <algorithm>
#include <boost/algorithm/string/replace.hpp>
#include <cmath>
#include <cstddef>
#include <map>
#include <numeric>
#include <string>
#include <utility>

namespace tpsim::launch {
namespace {

using Json = nlohmann::ordered_json;

void replace(std::string& page, std::string_view mark, std::string_view text) {
  page.replace(page.find(mark), mark.size(), text);
}

double rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double scale = std::pow(10.0, 5 - std::floor(std::log10(std::fabs(value))));
  return std::isfinite(scale) && scale > 0 ? std::round(value * scale) / scale : value;
}

void round_numbers(Json& json) {
  if (json.is_number_float()) {
    json = rounded(json.get<double>());
  } else if (json.is_structured()) {
    for (Json& child : json) round_numbers(child);
  }
}

Json columns(const Json& points) {
  Json result = Json::object();
  for (const Json& point : points) {
    for (const auto& [name, value] : point.items()) result[name].push_back(value);
  }
  return result;
}

// Whether two ranks spend their time alike.
bool alike(const Json& a, const Json& b) {
  for (const auto& [name, value] : a.items()) {
    const bool counts = name == "slowdown" || name == "prefill" || name == "decode" || name == "mixed" ||
                        name.ends_with("_seconds");
    if (counts && b.value(name, Json()) != value) return false;
  }
  return true;
}

Json rank_classes(const Json& ranks) {
  Json result = Json::array();
  for (const Json& rank : ranks) {
    const auto found =
        std::find_if(result.begin(), result.end(), [&rank](const Json& other) { return alike(rank, other); });
    if (found != result.end()) {
      (*found)["ranks"].push_back(rank.value("rank", 0));
    } else {
      result.push_back(rank);
      result.back()["ranks"] = {rank.value("rank", 0)};
    }
  }
  return result;
}

// Every server argument once; takes them out of the runs.
Json options_of(Json& runs) {
  std::map<std::string, Json> values;  // name -> one value for each run
  std::size_t index = 0;
  for (Json& run : runs) {
    const Json args = run.value("server_args", Json::object());
    for (const auto& [name, value] : args.items()) {
      Json& list = values[name];
      while (list.size() < index) list.push_back(nullptr);
      list.push_back(value);
    }
    run.erase("server_args");
    ++index;
  }
  Json result = Json::array();
  for (auto& [name, list] : values) {
    while (list.size() < index) list.push_back(nullptr);
    const bool same = std::all_of(list.begin(), list.end(), [&l = list](const Json& v) { return v == l[0]; });
    if (same) list = Json::array({list[0]});
    result.push_back({{"name", name}, {"values", std::move(list)}});
  }
  return result;
}

Json calibration_of(Json& runs) {
  Json result = Json::array();
  for (Json& run : runs) {
    for (Json& row : run["calibration"]) {
      if (std::find(result.begin(), result.end(), row) == result.end()) result.push_back(std::move(row));
    }
    run.erase("calibration");
  }
  return result;
}

constexpr std::size_t kNone = ~std::size_t{0};

// The run of a backend with these settings (none but in a sweep); kNone where there is none.
std::size_t find_run(const Json& runs, const Json& backend, const Json& settings) {
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].value("backend", Json()) == backend && runs[i].value("settings", Json::object()) == settings)
      return i;
  }
  return kNone;
}

// The best, the best at each load, and some along the Pareto front.
std::vector<std::size_t> shown_runs(std::size_t best, const Json& report, const Json& runs) {
  std::vector<std::size_t> shown;
  if (runs.size() <= kShown) {
    shown.resize(runs.size());
    std::iota(shown.begin(), shown.end(), std::size_t{0});
    return shown;
  }
  const auto add = [&shown](std::size_t i) {
    if (i != kNone && shown.size() < kShown && std::find(shown.begin(), shown.end(), i) == shown.end())
      shown.push_back(i);
  };
  add(best);
  for (const Json& at : report.value("best_by_load", Json::array()))
    add(find_run(runs, at.value("backend", Json()), at.value("setting", Json::object())));
  std::vector<std::size_t> front;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].value("pareto", false) && std::find(shown.begin(), shown.end(), i) == shown.end())
      front.push_back(i);
  }
  std::stable_sort(front.begin(), front.end(), [&runs](std::size_t a, std::size_t b) {
    return runs[a].value("total_throughput", 0.0) > runs[b].value("total_throughput", 0.0);
  });
  const std::size_t wanted = std::min(front.size(), kShown - shown.size());
  for (std::size_t k = 1; k <= wanted; ++k) add(front[k * front.size() / wanted - 1]);
  return shown;
}

void drop_series(const std::vector<std::size_t>& shown, Json& runs) {
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (std::find(shown.begin(), shown.end(), i) != shown.end()) continue;
    for (const char* name : {"timeline", "ttft_histogram", "tpot_histogram", "itl_histogram", "error_bands"})
      runs[i].erase(name);
  }
}

void add_steps(Json& runs, std::vector<StepProfile> steps) {
  steps.resize(std::min(steps.size(), runs.size()));
  const auto by_size = [](const StepProfile& a, const StepProfile& b) { return a.size() < b.size(); };
  const auto total = [&steps] {
    std::size_t sum = 0;
    for (const StepProfile& profile : steps) sum += profile.size();
    return sum;
  };
  while (total() > kStepBlocks) std::max_element(steps.begin(), steps.end(), by_size)->coarsen();
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].size() == 0) continue;
    runs[i]["steps_profile"] = {
        {"per_block", steps[i].steps_per_block()}, {"count", steps[i].steps()}, {"data", steps[i].encoded()}};
  }
}

}  // namespace

Json page_data(Json report, std::vector<StepProfile> steps) {
  Json runs = std::move(report["runs"]);  // on its own: an ordered object moves its values when it grows
  report["options"] = options_of(runs);
  report["calibration"] = calibration_of(runs);
  const std::size_t best =
      find_run(runs, report.value("best", Json()), report.value("best_setting", Json::object()));
  const std::vector<std::size_t> shown = shown_runs(best, report, runs);
  report["best_index"] = best == kNone ? -1 : static_cast<int>(best);
  report["shown"] = shown;
  drop_series(shown, runs);
  for (Json& run : runs) {
    if (run.contains("timeline")) run["timeline"] = columns(run["timeline"]);
    if (run.contains("ranks")) run["ranks"] = rank_classes(run["ranks"]);
  }
  round_numbers(runs);
  add_steps(runs, std::move(steps));
  report["runs"] = std::move(runs);
  return report;
}

std::string html_page(const nlohmann::ordered_json& data) { return fill_page(page_template(), data); }

std::string fill_page(std::string_view text, const nlohmann::ordered_json& data) {
  std::string json = data.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
  // Inside a script element only "</" and "<!" could end the text early; in JSON strings < may be escaped.
  boost::algorithm::replace_all(json, "<", "\\u003c");
  std::string page(text);
  replace(page, "@CHART_JS@", chart_js());
  replace(page, "@DATA@", json);
  return page;
}

}  // namespace tpsim::launch
