// The Azure LLM inference traces (2023 and 2024) and the multimodal one (LMM, 2025): CSV with the columns
//
//   TIMESTAMP        2023-11-16 18:15:46.6805900, in UTC or with an offset (+00:00)
//   ContextTokens    prompt tokens
//   GeneratedTokens  generated tokens
//   NumImages        of the multimodal trace: images, whose tokens ContextTokens counts and whose sizes
//                    nothing tells
//
// Nothing tells which prompts share a prefix, so none do.
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "scheduler/workload/csv_record.h"
#include "scheduler/workload/trace_formats.h"

namespace tpsim::scheduler {
namespace {

constexpr std::int64_t kTicksPerSecond = 10'000'000;  // the trace's seven decimals

// Takes `digits` decimal digits from the front of `text`; nothing where they are not there.
std::optional<int> take_digits(std::string_view& text, std::size_t digits) {
  if (text.size() < digits) return std::nullopt;
  int value = 0;
  for (std::size_t i = 0; i < digits; ++i) {
    if (text[i] < '0' || text[i] > '9') return std::nullopt;
    value = value * 10 + (text[i] - '0');
  }
  text.remove_prefix(digits);
  return value;
}

bool take(std::string_view& text, char c) {
  if (text.empty() || text.front() != c) return false;
  text.remove_prefix(1);
  return true;
}

// Ticks since 1970 of a date and time; nothing where `text` is not one.
std::optional<std::int64_t> parse_ticks(std::string_view text) {
  std::array<int, 6> parts;  // year, month, day, hour, minute, second
  for (std::size_t i = 0; i < parts.size(); ++i) {
    constexpr std::string_view kBefore = " --T::";
    if (i > 0 && !take(text, kBefore[i]) && !(i == 3 && take(text, ' '))) return std::nullopt;
    const auto digits = take_digits(text, i == 0 ? 4 : 2);
    if (!digits) return std::nullopt;
    parts[i] = *digits;
  }
  const auto [year, month, day, hour, minute, second] = parts;
  if (hour > 23 || minute > 59 || second > 59) return std::nullopt;
  std::int64_t fraction = 0;
  if (take(text, '.')) {
    std::int64_t unit = kTicksPerSecond / 10;
    if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
    for (; !text.empty() && text.front() >= '0' && text.front() <= '9'; unit /= 10) {
      fraction += (text.front() - '0') * unit;  // beyond 100 ns: unit is 0
      text.remove_prefix(1);
    }
  }
  std::int64_t offset = 0;  // seconds east of UTC
  if (!text.empty() && !(text == "Z")) {
    const int sign = text.front() == '-' ? -1 : 1;
    if (!take(text, '+') && !take(text, '-')) return std::nullopt;
    const auto hours = take_digits(text, 2);
    take(text, ':');
    const auto minutes = take_digits(text, 2);
    if (!hours || !minutes || !text.empty() || *hours > 23 || *minutes > 59) return std::nullopt;
    offset = sign * (*hours * 3600 + *minutes * 60);
  }
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(month),
                                         std::chrono::day(day)};
  if (!date.ok()) return std::nullopt;
  const std::int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  const std::int64_t seconds = days * 86400 + hour * 3600 + minute * 60 + second - offset;
  return seconds * kTicksPerSecond + fraction;
}

enum { kTimestamp, kContextTokens, kGeneratedTokens, kNumImages };
constexpr std::array<std::string_view, 4> kColumns = {"TIMESTAMP", "ContextTokens", "GeneratedTokens",
                                                      "NumImages"};

class Azure : public TraceFormat {
 public:
  explicit Azure(TraceInput& input) : input_(input) {}

  bool next(TraceRecord& out) override {
    std::string_view line;
    if (!record_) {
      if (!input_.next_filled_line(line)) return false;
      record_.emplace(line, input_.place(), kColumns, kNumImages);
    }
    if (!input_.next_filled_line(line)) return false;
    out.place = input_.place();
    record_->parse(line, out.place);
    const std::optional<std::int64_t> ticks = parse_ticks(record_->text(kTimestamp));
    if (!ticks) {
      out.place.fail("TIMESTAMP is {}; a date and time like 2023-11-16 18:15:46.6805900 is needed",
                     in_quotes(record_->text(kTimestamp)));
    }
    if (!first_ticks_) first_ticks_ = ticks;
    WorkloadRequest& request = out.request;
    request.arrival_time = static_cast<double>(*ticks - *first_ticks_) / kTicksPerSecond;
    out.prompt_length = static_cast<std::uint32_t>(record_->count(kContextTokens, 1, kMaxRequestTokens));
    request.max_new_tokens =
        static_cast<std::uint32_t>(record_->count(kGeneratedTokens, 1, kMaxRequestTokens));
    if (record_->has_column(kNumImages)) {
      request.images.resize(record_->count(kNumImages, 0, kMostImages));
      for (ImageInput& image : request.images) image.content = next_image_++;
      request.images_in_prompt = !request.images.empty();
    }
    return true;
  }

 private:
  TraceInput& input_;
  std::optional<CsvRecord> record_;
  std::uint64_t next_image_ = 0;
  std::optional<std::int64_t> first_ticks_;
};

}  // namespace

std::unique_ptr<TraceFormat> open_azure(TraceInput& input) { return std::make_unique<Azure>(input); }

}  // namespace tpsim::scheduler
