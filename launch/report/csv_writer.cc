#include "launch/report/csv_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "launch/report/short_decimal.h"
#include "proto/base/archive.h"
#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

constexpr std::size_t kFlushBytes = 1 << 16;

std::string_view state_name(scheduler::RequestState state) {
  switch (state) {
    case scheduler::RequestState::kCompleted:
      return "completed";
    case scheduler::RequestState::kRejected:
      return "rejected";
    case scheduler::RequestState::kUnfinished:
      return "unfinished";
    case scheduler::RequestState::kCancelled:
      return "cancelled";
    case scheduler::RequestState::kFailed:
      return "failed";
  }
  return "";
}

// Room for the numbers of a row, and for its words.
constexpr std::size_t kMostNumbers = 24;
constexpr std::size_t kMostRow = kMostNumbers * (kMostDecimal + 1) + 32;

// A row of CSV, put together where it will stand: after what `buffer` has.
class Row {
 public:
  // `more`: bytes of words of any length.
  Row(fmt::memory_buffer& buffer, std::string_view first, std::size_t more = 0) : buffer_(buffer) {
    buffer.reserve(buffer.size() + first.size() + kMostRow + more);
    at_ = std::copy(first.begin(), first.end(), buffer.data() + buffer.size());
  }
  void word(std::string_view text) {
    *at_++ = ',';
    at_ = std::copy(text.begin(), text.end(), at_);
  }
  template <typename... Values>
  void numbers(Values... values) {
    ((*at_++ = ',', at_ = put_whole(at_, values)), ...);
  }
  void decimal(double value, int digits) {
    *at_++ = ',';
    at_ = put_decimal(at_, value, digits);
  }
  void end() {
    *at_++ = '\n';
    buffer_.resize(static_cast<std::size_t>(at_ - buffer_.data()));
  }

 private:
  fmt::memory_buffer& buffer_;
  char* at_;
};

// Plain or compressed; a reader must not find the other one of an earlier run beside it.
OutputFile& open_csv(ReportDir& dir, const std::string& name, bool compress) {
  dir.leave_out(compress ? name : name + ".gz");
  return dir.open(compress ? name + ".gz" : name);
}

}  // namespace

std::string csv_word(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

RecordSpool::RecordSpool(std::filesystem::path path, bool resumed) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_RDWR | O_CLOEXEC | (resumed ? 0 : O_CREAT | O_TRUNC), 0666);
  if (descriptor_ < 0 && resumed && errno == ENOENT)
    throw_user_error(
        "--resume: {} is missing, which has the rows that were written; keep it beside the checkpoint",
        path_.string());
  if (descriptor_ < 0) fail("opened");
}

RecordSpool::~RecordSpool() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void RecordSpool::fail(const char* doing) const {
  throw_user_error(
      "--checkpoint: {} cannot be {} ({}); make room, and --resume the checkpoint if there is one",
      path_.string(), doing, std::strerror(errno));
}

void RecordSpool::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(hash_.size()));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("written");
    hash_.add(bytes.substr(0, static_cast<std::size_t>(count)));
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

template <typename Take>
std::uint64_t RecordSpool::read(std::uint64_t size, const Take& take) const {
  std::string block(std::size_t{1} << 18, '\0');
  std::uint64_t at = 0;
  while (at < size) {
    const std::size_t wanted = std::min<std::uint64_t>(block.size(), size - at);
    const ssize_t count = ::pread(descriptor_, block.data(), wanted, static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("read");
    if (count == 0) break;
    take(std::string_view(block).substr(0, static_cast<std::size_t>(count)));
    at += static_cast<std::uint64_t>(count);
  }
  return at;
}

void RecordSpool::save(StateWriter& state) {
  if (::fdatasync(descriptor_) != 0) fail("written");
  state(hash_.size(), hash_.value());
}

void RecordSpool::load(StateReader& state) {
  std::uint64_t size = 0, hash = 0;
  state(size, hash);
  read(size, [this](std::string_view bytes) { hash_.add(bytes); });
  if (hash_.size() != size || hash_.value() != hash)
    throw_user_error("--resume: {} is damaged, or another run's; keep what lies beside a checkpoint as it is",
                     path_.string());
  if (::ftruncate(descriptor_, static_cast<off_t>(size)) != 0) fail("written");
}

void RecordSpool::copy_to(OutputFile& file) {
  if (read(hash_.size(), [&file](std::string_view bytes) { file.write(bytes); }) == hash_.size()) return;
  errno = EIO;
  fail("read");
}

void RecordSpool::remove() { ::unlink(path_.c_str()); }

CsvWriter::CsvWriter(ReportDir& dir, const CsvOptions& options)
    : goodput_(options.goodput),
      replicas_(options.replicas || options.split),
      split_(options.split),
      models_(options.models),
      host_tier_(options.host_tier),
      steps_every_(options.steps_every),
      requests_(open_csv(dir, "requests.csv", options.compress)),
      steps_(options.steps_every > 0 ? &open_csv(dir, "steps.csv", options.compress) : nullptr) {
  for (std::size_t mode = 0; mode < mode_names_.size(); ++mode)
    mode_names_[mode] = proto::ForwardMode_Name(static_cast<proto::ForwardMode>(mode));
  requests_.write(
      "backend,id,state,session,input_tokens,output_tokens,cached_tokens,retractions,arrival_time,"
      "first_scheduled_time,first_token_time,finish_time");
  if (host_tier_) requests_.write(",cached_host,cached_storage");
  if (models_) requests_.write(",model");
  if (replicas_) requests_.write(split_ ? ",prefill_replica,decode_replica" : ",replica");
  requests_.write(goodput_.any() ? ",good\n" : "\n");
  if (!options.checkpoint.empty())
    request_spool_.emplace(options.checkpoint.string() + ".requests", options.resumed);
  if (steps_ == nullptr) {
    dir.leave_out("steps.csv");
    dir.leave_out("steps.csv.gz");
    return;
  }
  if (!options.checkpoint.empty())
    step_spool_.emplace(options.checkpoint.string() + ".steps", options.resumed);
}

void CsvWriter::begin_run(const std::string& backend, StepProfile* profile,
                          const std::vector<std::string>& models) {
  backend_ = backend;
  profile_ = profile;
  model_names_.assign(1, "");
  for (const std::string& name : models) model_names_.push_back(csv_word(name));
}

void CsvWriter::flush(fmt::memory_buffer& buffer, std::optional<RecordSpool>& spool, OutputFile& file) {
  const std::string_view rows(buffer.data(), buffer.size());
  if (spool) {
    spool->write(rows);
  } else {
    file.write(rows);
  }
  buffer.clear();
}

void CsvWriter::save(StateWriter& state) {
  state(steps_begun_, with_windows_, with_states_);
  flush(request_buffer_, request_spool_, requests_);
  request_spool_->save(state);
  if (steps_ == nullptr) return;
  flush(step_buffer_, step_spool_, *steps_);
  step_spool_->save(state);
}

void CsvWriter::load(StateReader& state) {
  bool steps_begun = false;
  state(steps_begun, with_windows_, with_states_);
  request_spool_->load(state);
  if (steps_ == nullptr) return;
  step_spool_->load(state);
  if (steps_begun) begin_steps(with_windows_, with_states_);
}

void CsvWriter::remove_spools() {
  if (request_spool_) request_spool_->remove();
  if (step_spool_) step_spool_->remove();
}

void CsvWriter::begin_steps(bool with_windows, bool with_states) {
  if (std::exchange(steps_begun_, true)) return;
  with_windows_ = with_windows;
  with_states_ = with_states;
  steps_->write(
      "backend,sequence_number,forward_mode,start_time,step_time,extend_requests,extend_tokens,cached_tokens,"
      "decode_requests,capture_bucket,waiting,running,kv_allocated_tokens,kv_cached_tokens,kv_free_tokens");
  if (with_windows) steps_->write(",swa_allocated_tokens,swa_cached_tokens,swa_free_tokens");
  if (with_states) steps_->write(",states_held,states_cached,states_free");
  if (host_tier_) steps_->write(",host_cached_tokens,host_free_tokens");
  steps_->write(replicas_ ? ",replica\n" : "\n");
}

void CsvWriter::on_request(const scheduler::RequestRecord& r) {
  const std::string_view model = models_ ? std::string_view(model_names_[r.model]) : "";
  Row row(request_buffer_, backend_, model.size());
  row.numbers(r.id);
  row.word(state_name(r.state));
  row.numbers(r.session, r.input_tokens, r.output_tokens, r.cached_tokens, r.retractions);
  for (const double time : {r.arrival_time, r.first_scheduled_time, r.first_token_time, r.finish_time})
    row.decimal(time, 9);
  if (host_tier_) row.numbers(r.cached_host, r.cached_storage);
  if (models_) row.word(model);
  if (split_ && r.prefill_replica) row.numbers(*r.prefill_replica);
  if (split_ && !r.prefill_replica) row.word("");  // of one that was not finished
  if (replicas_) row.numbers(r.replica);
  if (goodput_.any()) row.numbers(goodput_.met_by(r) ? 1U : 0U);
  row.end();
  if (request_buffer_.size() > kFlushBytes) flush(request_buffer_, request_spool_, requests_);
}

void CsvWriter::on_step(const scheduler::StepRecord& s) {
  if (profile_ != nullptr) profile_->add(s);
  if (steps_ == nullptr) return;
  const auto& [tokens, windows, states, host] = s.pools;
  begin_steps(windows.capacity() > 0, states.capacity() > 0);  // all runs of a file are of one model
  if (s.sequence_number % steps_every_ != 0) return;
  Row row(step_buffer_, backend_);
  row.numbers(s.sequence_number);
  row.word(mode_names_[static_cast<std::size_t>(s.forward_mode)]);
  row.decimal(s.start_time, 9);
  row.decimal(s.step_time, 6);
  row.numbers(s.extend_requests, s.extend_tokens, s.cached_tokens, s.decode_requests, s.capture_bucket,
              s.waiting, s.running, tokens.held, tokens.cached, tokens.free);
  if (windows.capacity() > 0) row.numbers(windows.held, windows.cached, windows.free);
  if (with_states_) row.numbers(states.held, states.cached, states.free);
  if (host_tier_) row.numbers(host.held + host.cached, host.free);
  if (replicas_) row.numbers(s.replica);
  row.end();
  if (step_buffer_.size() > kFlushBytes) flush(step_buffer_, step_spool_, *steps_);
}

void CsvWriter::finish() {
  flush(request_buffer_, request_spool_, requests_);
  if (request_spool_) request_spool_->copy_to(requests_);
  if (steps_ == nullptr) return;
  begin_steps(/*with_windows=*/false, /*with_states=*/false);
  flush(step_buffer_, step_spool_, *steps_);
  if (step_spool_) step_spool_->copy_to(*steps_);
}

}  // namespace tpsim::launch
