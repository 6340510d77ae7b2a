// What the ranks of a numeric deployment exchange. Every process stands in for one or more ranks; results are
// the same bits for any number of processes: sums are fp32, in rank order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tpsim::rank {

class Collectives {
 public:
  virtual ~Collectives() = default;
  virtual std::uint32_t tp_size() const = 0;
  virtual std::uint32_t first_rank() const = 0;  // of this process
  virtual std::uint32_t num_ranks() const = 0;   // of this process

  // parts[i] is the contribution [count] of rank first_rank() + i; the sum over all ranks goes to `out`
  // (which may be parts[0]). Throws scheduler::ExecutorLost where a process is gone.
  virtual void all_reduce(std::span<const float* const> parts, std::uint64_t count, float* out) = 0;
  // parts[i] is [rows, columns] of rank first_rank() + i; out is [rows, tp_size * columns].
  virtual void all_gather(std::span<const float* const> parts, std::uint32_t rows, std::uint32_t columns,
                          float* out) = 0;

  // Messages of any length: sent[i][r] goes from rank first_rank() + i to rank r; received[i][r] is what that
  // rank sent to rank first_rank() + i.
  using Messages = std::vector<std::vector<std::vector<float>>>;
  virtual void all_to_all(const Messages& sent, Messages& received) = 0;

  double bytes_sent() const { return bytes_sent_; }  // by one rank, as a ring would send

 protected:
  double bytes_sent_ = 0;
};

// parts[0] + parts[1] + …, element by element, from the left. `out` may be parts[0].
void sum_in_rank_order(std::span<const float* const> parts, std::uint64_t count, float* out);
// What one rank of a ring sends for `count` fp32 elements of the result.
double ring_bytes(std::uint32_t tp_size, std::uint64_t count, bool reduce);

// What a rank sends to others, of the ranks of a process the mean.
double exchanged_bytes(const Collectives::Messages& sent, std::uint32_t first_rank);

// All ranks in this process.
class LocalCollectives : public Collectives {
 public:
  explicit LocalCollectives(std::uint32_t tp_size) : tp_size_(tp_size) {}
  std::uint32_t tp_size() const override { return tp_size_; }
  std::uint32_t first_rank() const override { return 0; }
  std::uint32_t num_ranks() const override { return tp_size_; }
  void all_reduce(std::span<const float* const> parts, std::uint64_t count, float* out) override;
  void all_gather(std::span<const float* const> parts, std::uint32_t rows, std::uint32_t columns,
                  float* out) override;
  void all_to_all(const Messages& sent, Messages& received) override;

 private:
  std::uint32_t tp_size_;
};

}  // namespace tpsim::rank
