// Measured and predicted, put together.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <random>
#include <vector>

#include "launch/lab/served/batch_comparison.h"
#include "launch/lab/validation/predict_load.h"
#include "launch/lab/validation/validation_report.h"

namespace tpsim::launch {
namespace {

TEST(ErrorFigures, AreThoseOfTheirDefinition) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> ratio(0.5, 1.8);
  for (std::size_t n : {1U, 2U, 3U, 10U, 101U}) {
    std::vector<double> ratios(n), errors;
    for (double& r : ratios) r = ratio(random);
    double sum = 0;
    for (double r : ratios) {
      errors.push_back(std::abs(r - 1));
      sum += errors.back();
    }
    const proto::ErrorFigures figures = error_figures(ratios);
    std::sort(errors.begin(), errors.end());
    EXPECT_EQ(figures.count(), n);
    EXPECT_NEAR(figures.mean(), sum / static_cast<double>(n), 1e-12);
    if (n % 2 == 1) {
      EXPECT_NEAR(figures.median(), errors[n / 2], 1e-12);
    }
    if (n == 101) {
      EXPECT_NEAR(figures.p90(), errors[90], 1e-12);
    }
    EXPECT_GE(figures.p90(), figures.median());
    EXPECT_LE(figures.p90(), errors.back());
  }
  EXPECT_EQ(error_figures({}).count(), 0U);
}

MeasuredBatch decode(std::uint32_t running, std::uint64_t kv, double seconds, double accept = 1) {
  MeasuredBatch batch;
  batch.decode = true;
  batch.running = running;
  batch.kv_tokens = kv;
  batch.accept_len = accept;
  batch.tokens_per_second = running * accept / seconds;
  return batch;
}

MeasuredBatch prefill(std::uint32_t seqs, std::uint64_t tokens, std::uint32_t running) {
  MeasuredBatch batch;
  batch.new_seqs = seqs;
  batch.new_tokens = tokens;
  batch.running = running;
  return batch;
}

// A server whose decode takes 5 ms and 100 us for each request, and a prefill 10 us a token, the first 2 ms
// of which the decode before it waits for.
TEST(Batches, TellTheTimesOfSteps) {
  const auto step = [](std::uint32_t running) { return 5e-3 + 1e-4 * running; };
  const std::vector<MeasuredBatch> log = {
      prefill(1, 100, 0),
      decode(1, 101, 9),  // since some other load
      decode(1, 102, step(1), 2.5),
      decode(1, 103, step(1)),
      decode(1, 303, step(1) + 2e-3),
      prefill(2, 200, 1),
      decode(3, 306, step(3) + 2e-3 - 2e-3),
      decode(3, 309, step(3)),
      decode(3, 312, step(3)),
  };
  const std::vector<MeasuredStep> decodes = decode_steps(log);
  ASSERT_EQ(decodes.size(), 4U);
  for (const MeasuredStep& d : decodes) EXPECT_NEAR(d.seconds, step(log[d.first].running), 1e-12);
  const std::vector<MeasuredStep> prefills = prefill_steps(log);
  ASSERT_EQ(prefills.size(), 1U);
  EXPECT_NEAR(prefills[0].seconds, 2e-3, 1e-12);

  std::vector<ServedStep> served;
  const auto serve = [&](bool decodes_now, std::uint32_t count, std::uint64_t size, double seconds) {
    ServedStep s;
    s.decode = decodes_now;
    s.prefill = !decodes_now;
    (decodes_now ? s.running : s.new_seqs) = count;
    s.kv_tokens = decodes_now ? size : 0;
    s.new_tokens = decodes_now ? 0 : static_cast<std::uint32_t>(size);
    s.seconds = seconds;
    s.end = served.empty() ? seconds : served.back().end + seconds;
    served.push_back(s);
  };
  serve(true, 1, 90, 1.0);
  serve(true, 1, 102, 1.1 * step(1));
  serve(true, 1, 500, 1.0);
  serve(false, 2, 201, 3e-3);
  serve(false, 2, 300, 1.0);
  const proto::StepComparison decode_errors = compare("decode", predicted_decode_steps(log, served));
  EXPECT_EQ(decode_errors.steps(), 2U);
  EXPECT_EQ(decode_errors.without_counterpart(), 2U);  // nothing ran three
  for (const double ratio : decode_errors.ratios()) EXPECT_NEAR(ratio, 1.1, 1e-9);
  const proto::StepComparison prefill_errors = compare("prefill", predicted_prefill_steps(log, served));
  ASSERT_EQ(prefill_errors.steps(), 1U);
  EXPECT_NEAR(prefill_errors.ratios(0), 1.5, 1e-9);
  served[3].new_tokens = 250;
  EXPECT_EQ(compare("prefill", predicted_prefill_steps(log, served)).without_counterpart(), 1U);

  const proto::BatchTimeline all = measured_timeline(log, 100);
  ASSERT_EQ(all.time_size(), 6);
  EXPECT_NEAR(all.time(5), 3 * step(1) + 2e-3 + 3 * step(3), 1e-9);
  const proto::BatchTimeline few = measured_timeline(log, 2);
  ASSERT_EQ(few.time_size(), 2);
  EXPECT_NEAR(few.step_ms(0), 1e3 * (step(1) + 2e-3), 1e-9);
}

proto::ValidatedRow row(const std::string& server, const std::string& backend, double measured,
                        double predicted) {
  proto::ValidatedRow out;
  out.set_server(server);
  out.set_load("closed:1:1:1:1");
  out.set_model("m");
  out.set_hardware("h200-sxm");
  out.set_backend(backend);
  out.set_tp(1);
  out.set_load_kind("closed");
  out.mutable_duration_s()->set_measured(measured);
  out.mutable_duration_s()->set_predicted(predicted);
  return out;
}

TEST(Validation, GroupsPairsAndRefusals) {
  std::vector<proto::ValidatedRow> rows = {row("a", "fa3", 1.0, 1.1), row("b", "triton", 1.2, 1.05),
                                           row("c", "flashinfer", 1.02, 0.5), row("d", "fa3", 9, 9)};
  rows[3].set_refusal("it cannot be");
  const proto::Validation validation = make_validation(rows);
  EXPECT_EQ(validation.rows_size(), 3);
  ASSERT_EQ(validation.not_asked_size(), 1);
  EXPECT_EQ(validation.not_asked(0).reason(), "it cannot be");
  // a-b and c-b are more than 3 % apart, a-c is not.
  EXPECT_EQ(validation.pairs().count(), 2U);
  EXPECT_EQ(validation.pairs().right(), 1U);
  ASSERT_EQ(validation.pairs().wrong_size(), 1);
  EXPECT_NEAR(validation.pairs().wrong(0).measured(), 1.2, 1e-12);
  double mean = 0;
  for (const proto::ValidationGroup& group : validation.groups())
    if (group.by() == "all") mean = group.duration_s().mean();
  EXPECT_NEAR(mean, (0.1 + 0.125 + (1 - 0.5 / 1.02)) / 3, 1e-9);
  const nlohmann::ordered_json json = validation_json(validation);
  EXPECT_EQ(json["rows"][0]["server"], "a");
  EXPECT_EQ(json["rows"][0]["duration_s"]["measured"], 1.0);
  EXPECT_FALSE(json["rows"][0].contains("ttft_ms"));
  EXPECT_NE(validation_table(validation, false).find("it cannot be"), std::string::npos);
  EXPECT_NE(validation_page(validation).find("duration_s"), std::string::npos);
}

TEST(Predictions, RefuseWithTheSentenceOfRun) {
  MeasuredLoad load;
  load.server = "s";
  load.flags = {"--model-path", "llama-3.1-8b", "--hardware", "h200-sxm", "--page-size", "7x"};
  const std::atomic<bool> stop = false;
  EXPECT_NE(predict_load(load, stop).refusal().find("--page-size 7x"), std::string::npos);
  load.flags.back() = "16";
  EXPECT_NE(predict_load(load, stop).refusal().find("--trace: is required"), std::string::npos);
}

}  // namespace
}  // namespace tpsim::launch
