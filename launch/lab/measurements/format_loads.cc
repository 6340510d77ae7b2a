// A row a load, with its figures: tests/calibration/measured/h200-sxm_serving.csv and files like it. A load
// that was repeated on the same server has a row each time; the last one counts, for a new server is slower
// the first times (kernels are loaded, and found, as they are needed).
#include <charconv>
#include <system_error>
#include <utility>

#include "launch/lab/measurements/csv_rows.h"
#include "launch/lab/measurements/measured_requests.h"
#include "launch/lab/measurements/measurement_formats.h"
#include "launch/lab/measurements/server_account.h"

namespace tpsim::launch {
namespace {

// "2.63", or by the request's step "0:1.00 1:3.00 5:5.00".
std::vector<std::pair<std::uint32_t, double>> read_accept_lens(const std::string& text,
                                                               const scheduler::Place& place) {
  std::vector<std::pair<std::uint32_t, double>> lens;
  for (const std::string& word : words_of_flags(text)) {
    const std::size_t colon = word.find(':');
    std::uint32_t at = 0;
    double mean = 0;
    const char* begin = word.data();
    const char* const end = word.data() + word.size();
    bool good = true;
    if (colon != std::string::npos) {
      const auto [stop, error] = std::from_chars(begin, end, at);
      good = error == std::errc() && stop == begin + colon;
      begin += colon + 1;
    }
    const auto [stop, error] = std::from_chars(begin, end, mean);
    good = good && error == std::errc() && stop == end && mean >= 1 && mean <= 1024 &&
           (lens.empty() || (colon != std::string::npos && at > lens.back().first));
    if (!good)
      place.fail("accept_len is {}; a mean like 2.63 is needed, or means by step like 0:1.00 5:3.25",
                 in_quotes(text));
    lens.emplace_back(at, mean);
  }
  return lens;
}

}  // namespace

std::vector<MeasuredLoad> read_loads_file(scheduler::TraceInput& input, const MeasurementFile& file) {
  CsvRows cells(
      input, "server model backend load",
      "flags load_format tp hardware version ttft_ms tpot_ms e2e_ms duration_s accept_len pool_tokens");
  std::vector<MeasuredLoad> loads;
  while (cells.next()) {
    const scheduler::Place place = cells.place();
    MeasuredLoad& load = loads.emplace_back();
    load.file = fmt::format("{}:{}", input.name(), place.line);
    load.server = cells.text("server");
    load.load = cells.text("load");
    load.model = cells.text("model");
    load.backend = cells.text("backend");
    if (load.server.empty() || load.load.empty() || load.model.empty())
      place.fail("server, load and model must have a name");
    load.settings = cells.text("flags");
    load.tp = cells.text("tp").empty() ? 1 : cells.small_count("tp", 1, 1024);
    load.hardware = cells.text("hardware").empty() ? file.options.hardware : cells.text("hardware");
    const std::size_t plus = load.backend.find('+');
    add_server({.model_path = file.model_path(load.model),
                .version = cells.text("version"),
                .load_format = cells.text("load_format"),
                .prefill_backend = load.backend.substr(0, plus),
                .decode_backend = plus == std::string::npos ? load.backend : load.backend.substr(plus + 1)},
               load);
    std::vector<std::string> given = words_of_flags(load.settings);
    localize_draft_model(given, file);
    add_flags(load.flags, given);
    load.measured = {.ttft_ms = cells.optional_time("ttft_ms"),
                     .tpot_ms = cells.optional_time("tpot_ms"),
                     .e2e_ms = cells.optional_time("e2e_ms"),
                     .duration_s = cells.optional_time("duration_s"),
                     .output_throughput = {}};
    if (const std::string accepted = cells.text("accept_len"); !accepted.empty()) {
      load.accept_together = accepted.find(':') == std::string::npos;
      load.accept_lens = read_accept_lens(accepted, place);
      add_flag(load.flags, "--speculative-accept-rates", "trace");
    }
    if (!cells.text("pool_tokens").empty())
      load.pool_tokens = cells.count("pool_tokens", 1, std::uint64_t{1} << 50);
    offer_by_name(place, load);
  }
  keep_last_of_each(loads);
  return loads;
}

}  // namespace tpsim::launch
