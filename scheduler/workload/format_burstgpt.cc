// The BurstGPT traces (arXiv 2401.17644): CSV with the columns
//
//   Timestamp        seconds
//   Request tokens   prompt tokens
//   Response tokens  generated tokens; 0 marks a request that failed, and such a line is left out
//   Session ID       conversation (newer releases only)
//
// and Model, Total tokens, Log Type and Elapsed time, which do not matter here. Nothing tells which prompts
// share a prefix, so none do.
#include <array>
#include <memory>
#include <optional>

#include "scheduler/workload/csv_record.h"
#include "scheduler/workload/trace_formats.h"

namespace tpsim::scheduler {

namespace {

enum { kTimestamp, kRequestTokens, kResponseTokens, kSessionId };
constexpr std::array<std::string_view, 4> kColumns = {"Timestamp", "Request tokens", "Response tokens",
                                                      "Session ID"};

class BurstGpt : public TraceFormat {
 public:
  explicit BurstGpt(TraceInput& input) : input_(input) {}

  bool next(TraceRecord& out) override {
    std::string_view line;
    if (!record_) {
      if (!input_.next_filled_line(line)) return false;
      record_.emplace(line, input_.place(), kColumns, kSessionId);
    }
    while (input_.next_filled_line(line)) {
      out.place = input_.place();
      record_->parse(line, out.place);
      out.request.arrival_time = record_->number(kTimestamp);
      const std::uint64_t response = record_->count(kResponseTokens, 0, kMaxRequestTokens);
      const std::uint64_t length = record_->count(kRequestTokens, response == 0 ? 0 : 1, kMaxRequestTokens);
      if (response == 0) {
        ++failed_;
        continue;
      }
      out.request.max_new_tokens = static_cast<std::uint32_t>(response);
      if (record_->has_column(kSessionId)) out.session = record_->text(kSessionId);
      out.prompt_length = static_cast<std::uint32_t>(length);
      return true;
    }
    return false;
  }

  std::vector<std::string> notes() const override {
    if (failed_ == 0) return {};
    return {fmt::format("{} failed requests (Response tokens 0) were left out", failed_)};
  }

 private:
  TraceInput& input_;
  std::optional<CsvRecord> record_;
  std::uint64_t failed_ = 0;
};

}  // namespace

std::unique_ptr<TraceFormat> open_burstgpt(TraceInput& input) { return std::make_unique<BurstGpt>(input); }

}  // namespace tpsim::scheduler
