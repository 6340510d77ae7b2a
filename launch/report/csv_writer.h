// requests.csv and steps.csv, written while a run goes on. Times in seconds of the run's clock.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "launch/report/record_spool.h"
#include "launch/report/report_dir.h"
#include "launch/report/step_profile.h"
#include "proto/base/output_file.h"
#include "proto/forward.pb.h"
#include "scheduler/records.h"

namespace tpsim {
class StateReader;
class StateWriter;
}  // namespace tpsim

namespace tpsim::launch {

struct CsvOptions {
  bool compress = false;          // requests.csv.gz and steps.csv.gz
  std::uint64_t steps_every = 1;  // steps.csv holds the steps whose number this divides; 0: there is none
  // Rows are kept beside this checkpoint until finish(), so that a killed run can be gone on with; empty:
  // they are not.
  std::filesystem::path checkpoint = {};
  bool resumed = false;                // there are rows of the run that is gone on with
  scheduler::ServiceLevels goodput{};  // any: requests.csv says last whether a request met it, 1 or 0
};

class CsvWriter : public scheduler::RunObserver {
 public:
  // Opens the files in `dir`. The first column names the backend of each run.
  CsvWriter(ReportDir& dir, const CsvOptions& options);

  // Rows from here on belong to this run, whose steps `profile` gets, too, if it is not null.
  void begin_run(const std::string& backend, StepProfile* profile = nullptr) {
    backend_ = backend;
    profile_ = profile;
  }
  void on_request(const scheduler::RequestRecord& record) override;
  void on_step(const scheduler::StepRecord& record) override;
  bool on_progress(const scheduler::Progress&) override { return true; }
  // Hands what is buffered to the files; before ReportDir::commit_all().
  void finish();

  // With a checkpoint: sees that every row is on the disk, and keeps those rows.
  void save(StateWriter& state);
  void load(StateReader& state);
  // The run is over and its report in place.
  void remove_spools();

 private:
  void begin_steps(bool with_windows, bool with_states);
  void flush(fmt::memory_buffer& buffer, std::optional<RecordSpool>& spool, OutputFile& file);

  const scheduler::ServiceLevels goodput_;
  const std::uint64_t steps_every_;
  OutputFile& requests_;
  OutputFile* const steps_;  // null: none
  bool steps_begun_ = false;
  bool with_windows_ = false;  // as the first run has it
  bool with_states_ = false;
  std::optional<RecordSpool> request_spool_, step_spool_;
  std::string backend_;
  StepProfile* profile_ = nullptr;
  std::array<std::string_view, proto::ForwardMode_ARRAYSIZE> mode_names_;
  fmt::memory_buffer request_buffer_;
  fmt::memory_buffer step_buffer_;
};

}  // namespace tpsim::launch
