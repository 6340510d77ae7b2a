// A row a load, with its figures: tests/calibration/measured/h200-sxm_serving.csv and files like it. A load
// that was repeated on the same server has a row each time; the last one counts, for a new server is slower
// the first times (kernels are loaded, and found, as they are needed).
#include <array>
#include <charconv>
#include <map>
#include <system_error>
#include <utility>

#include "launch/measurements/measured_requests.h"
#include "launch/measurements/measurement_formats.h"
#include "launch/measurements/server_account.h"
#include "scheduler/workload/csv_record.h"

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

bool is_loads_file(std::string_view first_line) {
  return first_line.find("tpot_ms") != std::string_view::npos &&
         first_line.find("load") != std::string_view::npos &&
         first_line.find("silicon_") == std::string_view::npos && first_line.front() != '{';
}

std::vector<MeasuredLoad> read_loads_file(scheduler::TraceInput& input, const MeasurementFile& file) {
  enum {
    kServer,
    kModel,
    kBackend,
    kLoad,
    kFlags,
    kLoadFormat,
    kTp,
    kHardware,
    kVersion,
    kTtft,
    kTpot,
    kE2e,
    kDuration,
    kAcceptLen,
    kPool
  };
  constexpr std::array<std::string_view, 15> kColumns = {
      "server",  "model",   "backend", "load",   "flags",      "load_format", "tp",         "hardware",
      "version", "ttft_ms", "tpot_ms", "e2e_ms", "duration_s", "accept_len",  "pool_tokens"};
  std::string_view line;
  input.next_filled_line(line);
  scheduler::CsvRecord record(line, input.place(), kColumns, kFlags);
  std::vector<MeasuredLoad> loads;
  std::map<std::pair<std::string, std::string>, std::size_t> known;
  while (input.next_filled_line(line)) {
    const scheduler::Place place = input.place();
    record.parse(line, place);
    const auto text = [&record](std::size_t column) {
      return record.has_column(column) ? std::string(record.text(column)) : std::string();
    };
    const auto figure = [&](std::size_t column) -> std::optional<double> {
      if (text(column).empty()) return std::nullopt;
      const double value = record.number(column);
      if (value <= 0) place.fail("{} is 0; a measured time is longer", kColumns[column]);
      return value;
    };
    MeasuredLoad load;
    load.file = fmt::format("{}:{}", input.name(), place.line);
    load.server = text(kServer);
    load.load = text(kLoad);
    load.model = text(kModel);
    load.backend = text(kBackend);
    if (load.server.empty() || load.load.empty() || load.model.empty())
      place.fail("server, load and model must have a name");
    load.settings = text(kFlags);
    if (!text(kTp).empty()) load.tp = static_cast<std::uint32_t>(record.count(kTp, 1, 1024));
    load.hardware = text(kHardware).empty() ? file.options.hardware : text(kHardware);
    std::vector<std::string> given = words_of_flags(load.settings);
    localize_draft_model(given, file);
    load.flags = {"--model-path", file.model_path(load.model), "--hardware", load.hardware,
                  "--tp-size",    std::to_string(load.tp)};
    const std::string release = nearest_release(text(kVersion));
    if (!release.empty()) add_flag(load.flags, "--sglang-version", release);
    if (!text(kLoadFormat).empty()) add_flag(load.flags, "--load-format", text(kLoadFormat));
    const std::size_t plus = load.backend.find('+');
    if (plus != std::string::npos) {
      add_flag(load.flags, "--prefill-attention-backend", load.backend.substr(0, plus));
      add_flag(load.flags, "--decode-attention-backend", load.backend.substr(plus + 1));
    } else if (!load.backend.empty()) {
      add_flag(load.flags, "--attention-backend", load.backend);
    }
    load.flags.insert(load.flags.end(), given.begin(), given.end());
    load.measured = {figure(kTtft), figure(kTpot), figure(kE2e), figure(kDuration)};
    if (!text(kAcceptLen).empty()) {
      load.accept_together = text(kAcceptLen).find(':') == std::string::npos;
      load.accept_lens = read_accept_lens(text(kAcceptLen), place);
      add_flag(load.flags, "--speculative-accept-rates", "trace");
    }
    if (!text(kPool).empty()) load.pool_tokens = record.count(kPool, 1, std::uint64_t{1} << 50);
    offer_by_name(place, load);
    const auto [entry, is_new] = known.emplace(std::pair(load.server, load.load), loads.size());
    if (is_new) {
      loads.push_back(std::move(load));
    } else {
      loads[entry->second] = std::move(load);
    }
  }
  return loads;
}

}  // namespace tpsim::launch
