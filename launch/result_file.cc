#include "launch/result_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <utility>

#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

using Json = nlohmann::ordered_json;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void refuse(const std::string& path, int error) {
  throw_user_error("--output-file {}: cannot be written ({}), give a file that can be appended to", path,
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

}  // namespace

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
                 {"server_info", server_info(r)},
                 {"duration", r.duration()},
                 {"completed", r.completed()},
                 {"total_input_tokens", r.total_input_tokens()},
                 {"total_input_text_tokens", r.total_input_tokens()},
                 {"total_input_vision_tokens", 0},
                 {"total_output_tokens", r.total_output_tokens()},
                 {"total_output_tokens_retokenized", r.total_output_tokens()},
                 {"request_throughput", r.request_throughput()},
                 {"input_throughput", r.input_throughput()},
                 {"output_throughput", r.output_throughput()},
                 {"total_throughput", r.total_throughput()},
                 {"mean_e2e_latency_ms", r.mean_e2e_latency_ms()},
                 {"median_e2e_latency_ms", r.median_e2e_latency_ms()},
                 {"std_e2e_latency_ms", r.std_e2e_latency_ms()},
                 {"p90_e2e_latency_ms", r.p90_e2e_latency_ms()},
                 {"p95_e2e_latency_ms", r.p95_e2e_latency_ms()},
                 {"p99_e2e_latency_ms", r.p99_e2e_latency_ms()},
                 {"mean_ttft_ms", r.mean_ttft_ms()},
                 {"median_ttft_ms", r.median_ttft_ms()},
                 {"std_ttft_ms", r.std_ttft_ms()},
                 {"p90_ttft_ms", r.p90_ttft_ms()},
                 {"p95_ttft_ms", r.p95_ttft_ms()},
                 {"p99_ttft_ms", r.p99_ttft_ms()},
                 {"mean_tpot_ms", r.mean_tpot_ms()},
                 {"median_tpot_ms", r.median_tpot_ms()},
                 {"std_tpot_ms", r.std_tpot_ms()},
                 {"p90_tpot_ms", r.p90_tpot_ms()},
                 {"p95_tpot_ms", r.p95_tpot_ms()},
                 {"p99_tpot_ms", r.p99_tpot_ms()},
                 {"mean_itl_ms", r.mean_itl_ms()},
                 {"median_itl_ms", r.median_itl_ms()},
                 {"std_itl_ms", r.std_itl_ms()},
                 {"p90_itl_ms", r.p90_itl_ms()},
                 {"p95_itl_ms", r.p95_itl_ms()},
                 {"p99_itl_ms", r.p99_itl_ms()},
                 {"concurrency", r.concurrency()},
                 {"accept_length", nullptr}};
  if (r.stopped_early()) result["stopped_early"] = true;
  return result;
}

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
  const Descriptor file(::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0666));
  struct stat before {};
  if (file.get() < 0 || ::fstat(file.get(), &before) != 0) refuse(path_, errno);
  const bool regular = S_ISREG(before.st_mode);
  std::string text = lines_;
  if (regular && before.st_size > 0) {  // what another program left without an end of line stays a line
    const Descriptor reader(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    char last = '\n';
    if (reader.get() >= 0 && ::pread(reader.get(), &last, 1, before.st_size - 1) == 1 && last != '\n')
      text.insert(0, 1, '\n');
  }
  for (std::size_t written = 0; written < text.size();) {
    const ssize_t count = ::write(file.get(), text.data() + written, text.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int error = errno;
      if (regular && ::ftruncate(file.get(), before.st_size) != 0) refuse(path_, errno);
      refuse(path_, error);
    }
    written += static_cast<std::size_t>(count);
  }
}

}  // namespace tpsim::launch
