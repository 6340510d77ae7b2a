#include "launch/simulation/result_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "launch/report/json_writer.h"
#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void refuse(const std::string& path, int error) {
  throw_user_error("--output-file {}: cannot be written ({}); give a file that can be appended to", path,
                   std::strerror(error));
}

// A number of server_args; null where the option does not belong to this load, and text that is none as text.
Json option(const proto::RunReport& report, const std::string& name) {
  const auto found = report.server_args().find(name);
  if (found == report.server_args().end() || found->second == "none") return nullptr;
  char* end = nullptr;
  const double value = std::strtod(found->second.c_str(), &end);
  if (*end != '\0' || !std::isfinite(value)) return found->second;
  return value == std::floor(value) ? Json(static_cast<std::int64_t>(value)) : Json(value);
}

Json server_info(const proto::RunReport& report) {
  Json info = {{"model", report.model()},
               {"hardware", report.hardware()},
               {"attention_backend", report.backend()},
               {"executor", report.executor()},
               {"clock", report.clock()}};
  std::map<std::string, std::string> sorted(report.server_args().begin(), report.server_args().end());
  for (auto& [name, value] : sorted) info[name] = std::move(value);
  return info;
}

// What the benchmark writes into a line of its result file (benchmark/serving.py of 0.5.23), as far as a
// simulation knows it: `backend` is "tpsim", `server_info` what was simulated, `accept_length` null; tokens
// are never retokenized. An unlimited request_rate is the text "inf". A run that stopped early has one key
// more.
Json benchmark_result(const proto::RunReport& r) {
  const auto dataset = r.server_args().find("dataset_name");
  const bool named = dataset != r.server_args().end() && !dataset->second.empty();
  Json result = {{"tag", nullptr},
                 {"backend", "tpsim"},
                 {"dataset_name", named ? dataset->second : r.trace()},
                 {"request_rate", option(r, "request_rate")},
                 {"max_concurrency", option(r, "max_concurrency")},
                 {"sharegpt_output_len", nullptr},
                 {"random_input_len", option(r, "random_input_len")},
                 {"random_output_len", option(r, "random_output_len")},
                 {"random_range_ratio", option(r, "random_range_ratio")},
                 {"server_info", server_info(r)}};
  const Json report = to_json(r);
  for (const char* name : {"duration", "completed", "total_input_tokens"}) result[name] = report[name];
  result["total_input_text_tokens"] = r.total_input_tokens();
  result["total_input_vision_tokens"] = 0;
  result["total_output_tokens"] = r.total_output_tokens();
  result["total_output_tokens_retokenized"] = r.total_output_tokens();
  for (const char* of : {"request", "input", "output", "total"})
    result[fmt::format("{}_throughput", of)] = report[fmt::format("{}_throughput", of)];
  for (const char* latency : {"e2e_latency", "ttft", "tpot", "itl"}) {
    for (const char* figure : {"mean", "median", "std", "p90", "p95", "p99"}) {
      const std::string name = fmt::format("{}_{}_ms", figure, latency);
      result[name] = report[name];
    }
  }
  result["concurrency"] = r.concurrency();
  result["accept_length"] = nullptr;
  if (r.stopped_early()) result["stopped_early"] = true;
  return result;
}

}  // namespace

ResultFile::ResultFile(std::string path) : path_(std::move(path)) {
  if (path_.empty()) return;
  std::error_code ignored;
  const std::filesystem::path parent = std::filesystem::path(path_).parent_path();
  if (std::filesystem::is_directory(path_, ignored)) refuse(path_, EISDIR);
  const bool there = ::access(path_.c_str(), F_OK) == 0;
  const std::string place = there ? path_ : parent.empty() ? "." : parent.string();
  if (::access(place.c_str(), W_OK) != 0) refuse(path_, errno);
}

void ResultFile::add(const proto::RunReport& report) {
  if (path_.empty()) return;
  lines_ += benchmark_result(report).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void ResultFile::write() const {
  if (lines_.empty()) return;
  errno = 0;
  std::ofstream file(path_, std::ios::binary | std::ios::app);
  if (!file) refuse(path_, errno);
  std::error_code unknown;
  const bool regular = std::filesystem::is_regular_file(path_, unknown);
  const std::uintmax_t before = regular ? std::filesystem::file_size(path_, unknown) : 0;
  std::string text = lines_;
  if (before > 0) {  // what another program left without an end of line stays a line
    std::ifstream reader(path_, std::ios::binary);
    if (reader.seekg(-1, std::ios::end) && reader.get() != '\n') text.insert(0, 1, '\n');
  }
  if (file.write(text.data(), static_cast<std::streamsize>(text.size())).flush()) return;
  const int error = errno;
  file.close();
  if (regular) std::filesystem::resize_file(path_, before, unknown);
  refuse(path_, error);
}

}  // namespace tpsim::launch
