// requests.csv and steps.csv, written while a run goes on. Times in seconds of the run's clock.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/report/report_dir.h"
#include "launch/report/step_profile.h"
#include "proto/base/hash.h"
#include "proto/base/output_file.h"
#include "proto/forward.pb.h"
#include "scheduler/records.h"

namespace tpsim {
class StateReader;
class StateWriter;
}  // namespace tpsim

namespace tpsim::launch {

// Rows of requests.csv or steps.csv that outlive the process: a file beside a checkpoint. A run that goes on
// from the checkpoint keeps the rows that were there when it was made and writes those after them again.
class RecordSpool {
 public:
  // `resumed`: goes on with the file that is there (load()); else begins an empty one. Throws UserError
  // naming --checkpoint or --resume.
  RecordSpool(std::filesystem::path path, bool resumed);
  ~RecordSpool();
  RecordSpool(const RecordSpool&) = delete;
  RecordSpool& operator=(const RecordSpool&) = delete;

  // Throws UserError where the bytes cannot be written.
  void write(std::string_view bytes);
  // Sees that all bytes are on the disk, and says in a checkpoint which they are.
  void save(StateWriter& state);
  // Forgets what came after those. Throws UserError where they are not what they were.
  void load(StateReader& state);
  void copy_to(OutputFile& file);
  // The rows are elsewhere now.
  void remove();

 private:
  [[noreturn]] void fail(const char* doing) const;

  // Calls take(bytes) with the first `size` bytes, block by block. Returns how many there were.
  template <typename Take>
  std::uint64_t read(std::uint64_t size, const Take& take) const;

  std::filesystem::path path_;
  int descriptor_ = -1;
  ByteHash hash_;
};

// `text` as it stands in a row: quoted where it has to be.
std::string csv_word(const std::string& text);

struct CsvOptions {
  bool compress = false;          // requests.csv.gz and steps.csv.gz
  std::uint64_t steps_every = 1;  // steps.csv holds the steps whose number this divides; 0: there is none
  // Rows are kept beside this checkpoint until finish(), so that a killed run can be gone on with; empty:
  // they are not.
  std::filesystem::path checkpoint = {};
  bool resumed = false;                // there are rows of the run that is gone on with
  bool replicas = false;               // rows say last, but for that, which replica they are of
  bool split = false;                  // and which prefilled and which decoded
  bool models = false;                 // rows of requests say before that which model they are for
  bool host_tier = false;              // rows say before that what came from host memory, and what it holds
  scheduler::ServiceLevels goodput{};  // any: requests.csv says last whether a request met it, 1 or 0
};

class CsvWriter : public scheduler::RunObserver {
 public:
  // Opens the files in `dir`. The first column names the backend of each run.
  CsvWriter(ReportDir& dir, const CsvOptions& options);

  // Rows from here on belong to this run, whose steps `profile` gets, too, if it is not null. `models`:
  // names, by RequestRecord::model from 1.
  void begin_run(const std::string& backend, StepProfile* profile = nullptr,
                 const std::vector<std::string>& models = {});
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
  const bool replicas_, split_, models_;
  const bool host_tier_;
  const std::uint64_t steps_every_;
  OutputFile& requests_;
  OutputFile* const steps_;  // null: none
  bool steps_begun_ = false;
  bool with_windows_ = false;  // as the first run has it
  bool with_states_ = false;
  std::optional<RecordSpool> request_spool_, step_spool_;
  std::string backend_;
  std::vector<std::string> model_names_;  // as they stand in rows; of 0, which names none, first
  StepProfile* profile_ = nullptr;
  std::array<std::string_view, proto::ForwardMode_ARRAYSIZE> mode_names_;
  fmt::memory_buffer request_buffer_;
  fmt::memory_buffer step_buffer_;
};

}  // namespace tpsim::launch
