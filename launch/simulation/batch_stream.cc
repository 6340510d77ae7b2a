#include "launch/simulation/batch_stream.h"

#include <fcntl.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/util/delimited_message_util.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <system_error>
#include <utility>

#include "proto/base/error.h"
#include "proto/versions.h"

namespace tpsim::launch {
namespace {

using google::protobuf::util::ParseDelimitedFromZeroCopyStream;
using google::protobuf::util::SerializeDelimitedToZeroCopyStream;

constexpr std::size_t kBufferBytes = 1U << 20;
constexpr std::uint32_t kMostRequests = 65535;

// Whether a deployment could have written it.
bool plausible(const proto::BatchStreamHeader& header) {
  constexpr std::uint32_t kLargestPage = 128;
  constexpr std::uint64_t kMostTokens = std::uint64_t{1} << 31;
  const auto& sizes = header.cuda_graph_bs();
  return header.page_size() > 0 && header.page_size() <= kLargestPage && header.num_pages() > 0 &&
         std::uint64_t{header.num_pages()} * header.page_size() < kMostTokens &&
         std::adjacent_find(sizes.begin(), sizes.end(), std::greater_equal<>()) == sizes.end() &&
         (sizes.empty() || (sizes[0] > 0 && sizes[sizes.size() - 1] <= kMostRequests));
}

}  // namespace

proto::BatchStreamHeader stream_header(const Deployment& deployment, const std::string& trace) {
  proto::BatchStreamHeader header;
  header.set_version(kBatchStreamVersion);
  header.set_page_size(deployment.scheduler.page_size);
  header.set_num_pages(deployment.ranks.state.num_pages);
  for (const std::uint32_t bs : deployment.scheduler.cuda_graph_bs) header.add_cuda_graph_bs(bs);
  header.set_model(deployment.model.name);
  header.set_backend(deployment.attention.backends.name());
  header.set_tp_size(deployment.ranks.tp_size);
  header.set_trace(trace);
  return header;
}

BatchStreamWriter::BatchStreamWriter(const std::filesystem::path& file,
                                     const proto::BatchStreamHeader& header)
    : file_(file, "--record-batches " + file.string()) {
  write(header);
}

void BatchStreamWriter::write(const google::protobuf::MessageLite& message) {
  google::protobuf::io::StringOutputStream out(&buffer_);
  SerializeDelimitedToZeroCopyStream(message, &out);
  if (buffer_.size() < kBufferBytes) return;
  file_.write(buffer_);
  buffer_.clear();
}

void BatchStreamWriter::add(const proto::ForwardBatch& batch) { write(batch); }

void BatchStreamWriter::commit() {
  file_.write(buffer_);
  buffer_.clear();
  file_.commit();
}

BatchStreamReader::BatchStreamReader(std::filesystem::path file) : file_(std::move(file)) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file_, error))
    throw_user_error("{}: is not a file; name one that `tpsim run --record-batches` wrote", file_.string());
  bytes_ = std::filesystem::file_size(file_, error);
  const int descriptor = open(file_.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw_user_error("{}: cannot be read", file_.string());
  input_.emplace(descriptor);
  input_->SetCloseOnDelete(true);
  if (!ParseDelimitedFromZeroCopyStream(&header_, &*input_, nullptr) || header_.version() == 0 ||
      (header_.version() == kBatchStreamVersion && !plausible(header_))) {
    throw_user_error("{}: is not a recorded stream of batches; `tpsim run --record-batches` writes one",
                     file_.string());
  }
  if (header_.version() != kBatchStreamVersion) {
    throw_user_error("{}: is of version {}; this program reads version {}", file_.string(), header_.version(),
                     kBatchStreamVersion);
  }
}

bool BatchStreamReader::next(proto::ForwardBatch& batch) {
  bool end = false;  // good only between two messages
  if (ParseDelimitedFromZeroCopyStream(&batch, &*input_, &end)) {
    ++batches_;
    return true;
  }
  if (!end) throw_user_error("{}: is damaged or cut off at batch {}", file_.string(), batches_);
  return false;
}

double BatchStreamReader::progress() const {
  return bytes_ == 0 ? 1 : static_cast<double>(input_->ByteCount()) / static_cast<double>(bytes_);
}

}  // namespace tpsim::launch
