// --checkpoint and --resume: the state of a run in a file.
//
// The file says first what the run is: every flag that was given, the requests, the model and the GPU, the
// program. A checkpoint of anything else is refused. Rows of the CSV files are kept beside it
// (RecordSpool, launch/report/csv_writer.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "launch/deployment/deployment.h"
#include "launch/flags/server_args.h"
#include "launch/simulation/reach.h"
#include "launch/simulation/report_output.h"
#include "proto/base/hash.h"
#include "rank/parallel/deployment_executor.h"
#include "scheduler/checkpoints.h"
#include "scheduler/workload/workload.h"

namespace tpsim::launch {

// What the file holds around `body`, whose hash is `hash`: before it and after it.
std::string checkpoint_head();
std::string checkpoint_tail(const ByteHash& hash);
// The body of the text of a file. Throws UserError "--resume FILE: …" for what is none, of another version or
// damaged.
std::string_view checkpoint_body(std::string_view text, const std::string& file);

// The file of --checkpoint and --resume: a version, bytes, and a hash of them. It is replaced as a whole: a
// process that is killed leaves what was there before or the new bytes. While a process has one, no other one
// can.
class CheckpointFile {
 public:
  // A new one, and with `resume` one that is there. Throws UserError where it cannot be, or is another run's.
  CheckpointFile(std::filesystem::path path, bool resume);
  ~CheckpointFile();
  CheckpointFile(const CheckpointFile&) = delete;
  CheckpointFile& operator=(const CheckpointFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Whether there is one to go on from.
  bool there() const { return there_; }
  // Throws UserError where it cannot be read.
  std::string text() const;

  // New bytes: begin(), write() as often as need be, then commit(), which returns whether they took the place
  // of the old ones. Where not, these stay, and trouble() says why.
  void begin();
  void write(std::string_view bytes);
  bool commit();
  const std::string& trouble() const { return trouble_; }

  // The bytes are of no use any more.
  void remove();

 private:
  std::filesystem::path temporary() const { return path_.string() + ".tmp"; }
  void put(std::string_view bytes);
  void note_trouble();

  std::filesystem::path path_;
  bool there_;
  int lock_ = -1;     // what keeps others away: the file that is there, or else the first new bytes
  int written_ = -1;  // the new bytes
  ByteHash hash_;
  std::string trouble_;  // of the bytes since begin()
};

// Flags and their values, and under names in parentheses what else makes the run.
using RunIdentity = std::map<std::string, std::string>;
RunIdentity identity_of(const ServerArgs& args, const Deployment& deployment,
                        const scheduler::StreamedWorkload& workload);
// Throws UserError "--resume FILE: …" unless a checkpoint of `was` is one of `is`.
void check_identity(const RunIdentity& was, const RunIdentity& is, const std::string& file);

class RunCheckpoints : public scheduler::Checkpoints {
 public:
  // Of --checkpoint or --resume, one of which is given. Throws UserError for a file that cannot be one of
  // them.
  explicit RunCheckpoints(const ServerArgs& args);
  // Before the run. Throws UserError where the file is of another one.
  void set_identity(RunIdentity identity);
  // What goes on with the run; before it begins. They outlive it.
  void set_records(ReportOutput& records) { records_ = &records; }
  void attach(rank::DeploymentExecutor& executor, Reach& reach);
  // The run is over and its report in place: the file is of no use any more.
  void remove() { file_.remove(); }
  const CheckpointFile& file() const { return file_; }

  std::string_view resumed() override { return state_; }
  void read_rest(StateReader& state) override;
  bool due() override;
  void save(const std::function<void(StateWriter&)>& write_run) override;

 private:
  CheckpointFile file_;
  const std::chrono::duration<double> every_;
  RunIdentity identity_;
  std::string text_;        // of the file, until it is read
  std::string_view state_;  // the run's part and what follows it
  rank::DeploymentExecutor* executor_ = nullptr;
  Reach* reach_ = nullptr;
  ReportOutput* records_ = nullptr;
  bool warned_ = false;  // that the last one could not be written
  std::uint64_t asked_ = 0;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace tpsim::launch
