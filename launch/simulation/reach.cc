#include "launch/simulation/reach.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "rank/catalogue/catalogue.h"

namespace tpsim::launch {
namespace {

constexpr std::array<std::string_view, kNumShapes> kNames = {
    "tokens of a pass", "requests of a prefill", "requests of a decode batch", "KV tokens of a decode batch",
    "tokens of a request"};

struct NamedShape {
  const char* feature;  // in the catalogue's file
  Shape shape;
};
// By the phase that a class is of; matrix products and collectives see all rows of a pass.
std::vector<NamedShape> shapes_of(std::string_view operator_class) {
  if (!operator_class.starts_with("attention.")) return {{"rows", Shape::kRows}};
  if (operator_class.ends_with("decode"))
    return {{"requests", Shape::kDecodeRequests},
            {"kv_tokens", Shape::kDecodeTokens},
            {"tokens", Shape::kRequestTokens}};
  return {{"requests", Shape::kPrefillRequests}, {"rows", Shape::kRows}, {"tokens", Shape::kRequestTokens}};
}

}  // namespace

bool any_kernel_measured(const proto::RunReport& header) {
  const auto& rows = header.calibration();
  return std::any_of(rows.begin(), rows.end(), [](const proto::Calibration& row) {
    const std::string& name = row.operator_class();
    return row.status() != "uncalibrated" &&
           (name.starts_with("attention.") || name.starts_with("gemm") || name.starts_with("moe"));
  });
}

Reach::Reach(const Deployment& deployment, scheduler::RunObserver& sink) : sink_(sink) {
  limits_.fill(std::numeric_limits<double>::infinity());
  const auto text = rank::catalogue::find("ranges", deployment.hardware.name());
  if (!text) return;
  const auto classes = nlohmann::json::parse(*text);
  const double row_bytes = 2.0 * deployment.model.hidden_size;
  for (const proto::Calibration& row : deployment.header.calibration()) {
    const auto found = classes.find(row.operator_class());
    // Large all-reduces are NCCL's, so the custom kernel's limit is none of a pass.
    if (found == classes.end() || row.operator_class() == "all_reduce.custom") continue;
    for (const NamedShape& named : shapes_of(row.operator_class()))
      if (found->contains(named.feature))
        add({row.operator_class(), named.shape, found->at(named.feature).get<double>()});
    // Collectives hand over the hidden state of every row.
    if (found->contains("bytes"))
      add({row.operator_class(), Shape::kRows, found->at("bytes").get<double>() / row_bytes});
  }
}

void Reach::add(const Range& range) {
  double& limit = limits_[static_cast<std::size_t>(range.shape)];
  if (range.largest >= limit) return;
  limit = range.largest;
  std::erase_if(ranges_, [&range](const Range& other) { return other.shape == range.shape; });
  ranges_.push_back(range);
}

void Reach::on_request(const scheduler::RequestRecord& record) {
  if (record.state == scheduler::RequestState::kCompleted)
    longest_ = std::max(longest_, static_cast<double>(record.input_tokens) + record.output_tokens);
  sink_.on_request(record);
}

scheduler::StepTally* Reach::tally_of(std::uint32_t replica) {
  while (tallies_.size() <= replica) tallies_.emplace_back(limits_);
  return &tallies_[replica];
}

void Reach::Tally::on_step(const scheduler::StepRecord& record) {
  const auto kv_tokens = static_cast<double>(record.pools[kvcache::kKvPool].held);
  const Shapes shapes = {
      static_cast<double>(record.extend_tokens) + record.decode_requests,
      static_cast<double>(record.extend_requests),
      static_cast<double>(record.decode_requests),
      record.decode_requests > 0 ? kv_tokens : 0,
      record.running > 0 ? kv_tokens / record.running : 0,
  };
  seconds += record.step_time;
  for (std::size_t i = 0; i < kNumShapes; ++i) {
    largest[i] = std::max(largest[i], shapes[i]);
    if (shapes[i] > limits[i]) beyond_seconds[i] += record.step_time;
  }
}

std::vector<proto::Extrapolation> Reach::extrapolations(const proto::RunReport& header) const {
  Shapes most{}, beyond_seconds{};
  double seconds = 0;
  for (const Tally& tally : tallies_) {
    seconds += tally.seconds;
    for (std::size_t i = 0; i < kNumShapes; ++i) {
      most[i] = std::max(most[i], tally.largest[i]);
      beyond_seconds[i] += tally.beyond_seconds[i];
    }
  }
  most[static_cast<std::size_t>(Shape::kRequestTokens)] = longest_;  // that of a pass is the mean one
  std::vector<proto::Extrapolation> all;
  if (!any_kernel_measured(header)) {
    proto::Extrapolation& out = all.emplace_back();
    out.set_operator_class("all");
    out.set_shape("GPU");
    out.set_time_share(1);
    out.set_message(fmt::format(
        "{}: no attention kernel and no matrix product was measured on it; prices follow its datasheet",
        header.hardware()));
  }
  for (const Range& range : ranges_) {
    const auto shape = static_cast<std::size_t>(range.shape);
    if (!(most[shape] > range.largest)) continue;
    const double share = seconds > 0 ? beyond_seconds[shape] / seconds : 0;
    proto::Extrapolation& out = all.emplace_back();
    out.set_operator_class(range.operator_class);
    out.set_shape(std::string(kNames[shape]));
    out.set_largest(most[shape]);
    out.set_measured(range.largest);
    out.set_time_share(share);
    const std::string time = share >= 0.0005
                                 ? fmt::format("{:.1f} % of the time is in such steps", 100 * share)
                                 : std::string("hardly any of the time is in such steps");
    out.set_message(fmt::format("{}: up to {:.0f} {}, measured up to {:.0f} ({:.1f} times as far{}); {}",
                                range.operator_class, most[shape], kNames[shape], range.largest,
                                most[shape] / range.largest,
                                most[shape] > 2 * range.largest ? ": too far to be relied on" : "", time));
  }
  return all;
}

}  // namespace tpsim::launch
